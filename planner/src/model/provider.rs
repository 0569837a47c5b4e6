//! A model of a provider, asked once.
//!
//! The languages of the providers are `genai`'s business. Here is what it leaves to others: which
//! errors may pass, how long to wait, and that no key is ever shown.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use chrono::DateTime;
use genai::{
    Client, ModelIden, ServiceTarget,
    adapter::AdapterKind,
    chat::{ChatOptions, JsonSpec, StopReason},
    resolver::{AuthData, Endpoint, ProviderConfig},
    webc,
};
use reqwest::{
    StatusCode, Url,
    header::{DATE, HeaderMap, HeaderName, RETRY_AFTER},
};
use serde_json::json;
use tokio::time::timeout;

use super::{
    AnswerForm, Hearer, Key, Model, ModelError, NativeCall, Question, Reply, Settings, Stop,
    exchange::{ANSWER_BYTES, Broken, Exchanges},
    names::WireNames,
    said::{Said, heard},
    wire,
};

/// Characters of what a provider says about an error that are repeated.
const SAID: usize = 300;
/// What is shown to servers that want no key.
const NO_KEY: &str = "none";

/// A model of a provider.
#[derive(Debug)]
pub struct Provider {
    client: Client,
    exchanges: Exchanges,
    kind: AdapterKind,
    endpoint: Option<Endpoint>,
    settings: Settings,
    name: String,
    /// The provider refused to keep answers in form, so that it is not asked to any more.
    is_formless: AtomicBool,
    /// The provider does not answer in pieces, so that it is not asked to any more.
    is_streamless: AtomicBool,
}

/// Why there is no answer.
struct Missed {
    err: ModelError,
    /// Whether there may be one if it need not come in pieces.
    is_streamless: bool,
}

impl Missed {
    fn of(err: ModelError) -> Self {
        Self { err, is_streamless: false }
    }
}

impl Provider {
    /// Makes ready to ask a model. Nothing is sent yet.
    pub fn new(settings: &Settings) -> Result<Self, ModelError> {
        let name = settings.name();
        let refused = |why: String| ModelError::Refused { model: name.clone(), why };
        let endpoint = settings.base_url.as_deref().map(endpoint).transpose().map_err(refused)?;
        let exchanges = Exchanges::new();
        let (exchanges, client) = exchanges.map_err(|err| refused(err.to_string()))?;
        let client = Client::builder().with_reqwest(client).build();
        Ok(Self {
            client: client.map_err(|err| refused(err.to_string()))?,
            exchanges,
            kind: settings.provider.0,
            endpoint,
            settings: settings.clone(),
            is_formless: AtomicBool::new(false),
            is_streamless: AtomicBool::new(false),
            name,
        })
    }

    async fn try_once(
        &self,
        question: &Question,
        form: Option<&AnswerForm>,
        hearer: Option<&dyn Hearer>,
    ) -> Result<Reply, Missed> {
        let names = WireNames::of(&question.tools);
        let request = wire::request(question, &names);
        let options = self.options(form);
        let target = self.target().await.map_err(Missed::of)?;
        let begun = AtomicBool::new(false);
        let provider = target.endpoint.clone();
        let answer = self.exchanges.run(&provider, async |endpoint| {
            let target = ServiceTarget { endpoint, ..target };
            let Some(hearer) = hearer else {
                let response = self.client.exec_chat(target, request, Some(&options)).await;
                return response.map(Said::from);
            };
            let options = options.with_capture_usage(true).with_capture_tool_calls(true);
            let response = self.client.exec_chat_stream(target, request, Some(&options)).await?;
            heard(response.stream, hearer, &begun).await
        });
        let answer = timeout(self.settings.timeout, answer).await;
        let is_mute = hearer.is_some() && !begun.load(Ordering::Relaxed);
        match answer {
            Ok(Ok(said)) => {
                let is_streamless = is_mute && !said.is_whole;
                self.reply(said, &names).map_err(|err| Missed { err, is_streamless })
            }
            Ok(Err(err)) => {
                let is_streamless = is_mute && may_want_whole(&err);
                Err(Missed { err: self.failed(err), is_streamless })
            }
            Err(_) => {
                let seconds = self.settings.timeout.as_secs_f64();
                Err(Missed::of(self.lost(format!("it did not answer in {seconds} s"), None)))
            }
        }
    }

    /// Asks for an answer in form, or without one where the provider does not keep it.
    async fn try_in_form(
        &self,
        question: &Question,
        hearer: Option<&dyn Hearer>,
    ) -> Result<Reply, Missed> {
        let is_formless = !self.settings.structured || self.is_formless.load(Ordering::Relaxed);
        let form = question.answer.as_ref().filter(|_| !is_formless);
        let answer = self.try_once(question, form, hearer).await;
        match answer {
            Err(Missed { err: ModelError::Refused { why, .. }, .. })
                if form.is_some() && about_form(&why).is_some() =>
            {
                tracing::debug!(%why, "the provider does not keep answers in form");
                let answer = self.try_once(question, None, hearer).await;
                if answer.is_ok() {
                    self.is_formless.store(true, Ordering::Relaxed);
                }
                answer
            }
            answer => answer,
        }
    }

    fn options(&self, form: Option<&AnswerForm>) -> ChatOptions {
        let mut options = ChatOptions::default().with_normalize_reasoning_content(true);
        options.max_tokens = self.settings.max_tokens;
        options.temperature = self.settings.temperature;
        let Some(form) = form else { return options };
        match self.kind {
            AdapterKind::Gemini | AdapterKind::Vertex => {
                options.with_response_format(JsonSpec::new(form.name, form.schema.clone()))
            }
            AdapterKind::Ollama | AdapterKind::OllamaCloud | AdapterKind::OpenAIResp => {
                options.with_response_format(genai::chat::ChatResponseFormat::JsonMode)
            }
            // Their forms have no room for parameters that only a tool's own schema knows.
            AdapterKind::Anthropic
            | AdapterKind::MiniMax
            | AdapterKind::Cohere
            | AdapterKind::BedrockApi
            | AdapterKind::GeminiIx
            | AdapterKind::GithubCopilot => options,
            // `genai` always asks for the strict form, which has no such room either.
            _ => options.with_extra_body(json!({ "response_format": {
                "type": "json_schema",
                "json_schema": { "name": form.name, "strict": false, "schema": form.schema },
            } })),
        }
    }

    async fn target(&self) -> Result<ServiceTarget, ModelError> {
        let key = match &self.settings.key {
            Key::None => NO_KEY.to_owned(),
            Key::Variable(_, Some(key)) => key.clone(),
            Key::Variable(name, None) => {
                let why = format!(
                    "the variable `{name}` is not set, which should have its key: set it, or name \
                     another one by `planner.api_key_env`"
                );
                return Err(self.refused(why));
            }
        };
        let model = ModelIden::new(self.kind, self.settings.model.as_str());
        let target = self.client.resolve_service_target(model).await;
        let target = target.map_err(|err| self.refused(self.shown(&err.to_string())))?;
        let endpoint = self.endpoint.clone().unwrap_or(target.endpoint);
        Ok(ServiceTarget { endpoint, auth: AuthData::from_single(key), model: target.model })
    }

    fn reply(&self, said: Said, names: &WireNames) -> Result<Reply, ModelError> {
        let Said { text, calls, stop: why, tokens, is_whole } = said;
        if !is_whole {
            return Err(self.lost("its answer broke off before its end".to_owned(), None));
        }
        let (stop, is_unsaid) = (why.as_ref().map_or(Stop::Other, stop), why.is_none());
        let calls: Vec<NativeCall> = calls.into_iter().map(|it| wire::call(it, names)).collect();
        if text.is_empty() && calls.is_empty() && is_unsaid {
            // What is no answer of the language at all looks like this.
            let why = "it answered nothing that could be read: check `planner.provider` and \
                       `planner.base_url`";
            return Err(self.lost(why.to_owned(), None));
        }
        let (cost, model) = (self.settings.price.map(|it| it.of(tokens)), self.name.clone());
        Ok(Reply { text, calls, stop, tokens, cost, model, missed: Vec::new() })
    }

    /// Says which errors may pass.
    fn failed(&self, err: Broken) -> ModelError {
        let err = match err {
            Broken::Said(err) => *err,
            Broken::Lost(why) => return self.lost(self.shown(&why), None),
            Broken::TooLong => {
                return self.refused(format!(
                    "its answer has more than {} MB, and was not read to its end: check \
                     `planner.base_url`, or set `planner.max_tokens`",
                    ANSWER_BYTES >> 20
                ));
            }
        };
        let status = err.status();
        let wait = err.headers().and_then(retry_after);
        if let Some(status) = status {
            return self.answered(status, body(&err), wait);
        }
        match err {
            genai::Error::WebModelCall { webc_error, .. }
            | genai::Error::WebAdapterCall { webc_error, .. } => match webc_error {
                webc::Error::ResponseFailedNotJson { body, .. }
                | webc::Error::ResponseFailedInvalidJson { body, .. } => {
                    self.lost(format!("it answered what is no JSON: {}", self.shown(&body)), None)
                }
                other => self.lost(self.shown(&other.to_string()), None),
            },
            genai::Error::ChatResponseGeneration { cause, .. } => {
                self.lost(format!("its answer cannot be read: {}", self.shown(&cause)), None)
            }
            other => self.refused(self.shown(&other.to_string())),
        }
    }

    fn answered(&self, status: StatusCode, body: &str, wait: Option<Duration>) -> ModelError {
        let why = format!("it answered {status}: {}", self.shown(body));
        match status {
            // No money, which does not come back by waiting.
            StatusCode::TOO_MANY_REQUESTS if body.contains("insufficient_quota") => {
                self.refused(why)
            }
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::CONFLICT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS => self.lost(why, wait),
            _ if status.is_server_error() => self.lost(why, wait),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                self.refused(match &self.settings.key {
                    Key::Variable(name, _) => {
                        format!("{why}; check the key in the variable `{name}`")
                    }
                    Key::None => {
                        format!("{why}; name the variable with its key by `planner.api_key_env`")
                    }
                })
            }
            StatusCode::NOT_FOUND => self.refused(format!(
                "{why}; check `planner.provider`, `planner.base_url` and `planner.model`"
            )),
            _ => match about_form(body) {
                // It may stand behind what is shown.
                Some(word) if !why.contains(word) => {
                    self.refused(format!("{why} (it speaks of `{word}`)"))
                }
                _ => self.refused(why),
            },
        }
    }

    fn lost(&self, why: String, wait: Option<Duration>) -> ModelError {
        ModelError::Unavailable { model: self.name.clone(), why, wait }
    }

    fn refused(&self, why: String) -> ModelError {
        ModelError::Refused { model: self.name.clone(), why }
    }

    /// Returns the beginning of what a provider said, without the key: some repeat it.
    fn shown(&self, said: &str) -> String {
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = match &self.settings.key {
            Key::Variable(_, Some(key)) => said.replace(key.as_str(), "***"),
            _ => said,
        };
        match said.char_indices().nth(SAID) {
            Some((end, _)) => format!("{}…", &said[..end]),
            None => said,
        }
    }
}

#[async_trait]
impl Model for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    async fn ask_aloud(
        &self,
        question: &Question,
        hearer: Option<&dyn Hearer>,
    ) -> Result<Reply, ModelError> {
        let hearer = hearer.filter(|_| !self.is_streamless.load(Ordering::Relaxed));
        match self.try_in_form(question, hearer).await {
            Err(Missed { err, is_streamless: true }) => {
                tracing::debug!(%err, "the provider does not answer in pieces");
                let answer = self.try_in_form(question, None).await;
                if answer.is_ok() {
                    self.is_streamless.store(true, Ordering::Relaxed);
                }
                answer.map_err(|it| it.err)
            }
            answer => answer.map_err(|it| it.err),
        }
    }
}

/// Asks the provider what its models are: enough to see that it answers, and that the key opens it.
impl Provider {
    /// Returns whether the model is among those that its provider lists.
    pub async fn is_listed(&self) -> Result<bool, ModelError> {
        let target = self.target().await?;
        let auth = target.auth;
        let names = self.exchanges.run(&target.endpoint, |endpoint| {
            self.client.all_model_names(self.kind, ProviderConfig::from((endpoint, auth)))
        });
        let names = match timeout(self.settings.timeout, names).await {
            Ok(names) => names.map_err(|err| self.failed(err))?,
            Err(_) => return Err(self.lost("it does not answer".to_owned(), None)),
        };
        let wanted = self.settings.model.as_str();
        Ok(names
            .iter()
            .any(|it| it == wanted || it.split_once(':').is_some_and(|it| it.0 == wanted)))
    }
}

/// Returns whether an answer that was to come in pieces may come as a whole, for all that an error
/// says. Whoever is refused for who he is, for what he asks for or for how often, is so again.
fn may_want_whole(err: &Broken) -> bool {
    let Broken::Said(err) = err else { return false };
    match err.status() {
        Some(
            StatusCode::UNAUTHORIZED
            | StatusCode::PAYMENT_REQUIRED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::CONFLICT
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS,
        ) => false,
        Some(status) => status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED,
        None => true,
    }
}

/// Returns the word by which a provider shows that it refuses to keep answers in form.
fn about_form(said: &str) -> Option<&'static str> {
    ["response_format", "json_schema", "response_schema", "responseJsonSchema", "text.format"]
        .into_iter()
        .find(|it| said.contains(it))
}

/// Returns the address that the paths of the provider's language follow.
fn endpoint(written: &str) -> Result<Endpoint, String> {
    let url: Url = written.parse().map_err(|err| {
        format!("`planner.base_url` is no address ({err}): write `https://host/v1`")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("`planner.base_url` is neither `http://…` nor `https://…`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let why = "`planner.base_url` has a password: name a variable by `planner.api_key_env`";
        return Err(why.to_owned());
    }
    Ok(Endpoint::from_owned(format!("{}/", written.trim_end_matches('/'))))
}

fn stop(reason: &StopReason) -> Stop {
    match reason {
        StopReason::Completed(_) | StopReason::StopSequence(_) => Stop::End,
        StopReason::MaxTokens(_) => Stop::Length,
        StopReason::ToolCall(_) => Stop::Calls,
        StopReason::ContentFilter(_) => Stop::Filter,
        StopReason::Other(_) => Stop::Other,
    }
}

/// Returns what a provider said with an error.
fn body(err: &genai::Error) -> &str {
    match err {
        genai::Error::WebModelCall { webc_error, .. }
        | genai::Error::WebAdapterCall { webc_error, .. } => match webc_error {
            webc::Error::ResponseFailedStatus { body, .. } => body,
            _ => "",
        },
        genai::Error::HttpError { body, .. } => body,
        _ => "",
    }
}

/// Returns how long a provider wants one to wait, where it says so: in (milli)seconds, or until
/// when by its own clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let date = |name: HeaderName| {
        let written = headers.get(name)?.to_str().ok()?;
        DateTime::parse_from_rfc2822(written.trim()).ok()
    };
    let seconds = number("retry-after-ms").map(|it| it / 1e3).or_else(|| number("retry-after"));
    match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => (date(RETRY_AFTER)? - date(DATE)?).to_std().ok(),
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::{
        super::{ProviderKind, settings},
        *,
    };

    fn provider() -> Provider {
        Provider::new(&Settings {
            provider: ProviderKind::named("openai").unwrap(),
            base_url: Some("http://127.0.0.1:1/v1".to_owned()),
            model: "m".to_owned(),
            key: Key::Variable("K".to_owned(), Some("sk-secret".to_owned())),
            timeout: settings::TIMEOUT,
            retries: 0,
            max_tokens: None,
            temperature: None,
            price: None,
            structured: true,
            native_tools: true,
            fallback: None,
        })
        .unwrap()
    }

    #[test]
    fn what_may_pass_is_asked_again() {
        let provider = provider();
        for (status, body, may_pass) in [
            (429, "slow down", true),
            (429, r#"{"error":{"code":"insufficient_quota"}}"#, false),
            (500, "", true),
            (503, "", true),
            (529, "overloaded", true),
            (408, "", true),
            (400, "what?", false),
            (401, "who?", false),
            (404, "where?", false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let err = provider.answered(status, body, None);
            let is_passing = matches!(err, ModelError::Unavailable { .. });
            assert_eq!(is_passing, may_pass, "{status} {body}: {err}");
        }
    }

    #[test]
    fn waits_are_read_in_seconds_and_milliseconds() {
        for (name, value, expected) in [
            ("retry-after", "2", Some(2_000)),
            ("retry-after", "0.5", Some(500)),
            ("retry-after-ms", "1500", Some(1_500)),
            ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("retry-after", "-1", None),
            ("other", "1", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            let expected = expected.map(Duration::from_millis);
            assert_eq!(retry_after(&headers), expected, "{name}: {value}");
        }
    }

    #[test]
    fn waits_until_a_time_are_by_the_clock_of_the_provider() {
        let wait = |until, now| {
            let now = HeaderValue::from_static(now);
            let until = HeaderValue::from_static(until);
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, until), (DATE, now)]))
        };
        let noon = "Wed, 21 Oct 2026 12:00:00 GMT";
        assert_eq!(wait("Wed, 21 Oct 2026 12:00:07 GMT", noon), Some(Duration::from_secs(7)));
        assert_eq!(wait(noon, noon), Some(Duration::ZERO));
        assert_eq!(wait("Wed, 21 Oct 2026 11:59:59 GMT", noon), None, "it has passed");
        assert_eq!(wait("later", noon), None);
    }

    #[test]
    fn that_it_is_about_the_form_is_seen_however_late_it_is_said() {
        let provider = provider();
        let late = format!("{} response_format", "x ".repeat(1_000));
        for (body, expected) in [(late.as_str(), true), ("no `json_schema`", true), ("no", false)] {
            let err = provider.answered(StatusCode::BAD_REQUEST, body, None);
            assert_eq!(about_form(err.why()).is_some(), expected, "{err}");
        }
    }

    #[test]
    fn keys_are_shown_nowhere() {
        let provider = provider();
        let err = provider.answered(StatusCode::UNAUTHORIZED, "bad key sk-secret", None);
        assert!(
            err.to_string().contains("bad key ***; check the key in the variable `K`"),
            "{err}"
        );
        assert!(!format!("{provider:?}").contains("sk-secret"));
        assert!(provider.shown(&"x".repeat(1_000)).len() < 400);
    }

    #[test]
    fn addresses_are_looked_at_before_they_are_used() {
        assert_eq!(endpoint("https://h/v1").unwrap().base_url(), "https://h/v1/");
        assert_eq!(endpoint("https://h/v1/").unwrap().base_url(), "https://h/v1/");
        for wrong in ["nowhere", "ftp://h/", "https://me:pw@h/"] {
            assert!(endpoint(wrong).unwrap_err().contains("base_url"), "{wrong}");
        }
    }

    #[test]
    fn forms_are_asked_for_in_the_way_of_the_provider() {
        let form = AnswerForm { name: "plan", schema: json!({ "type": "object" }) };
        let mut provider = provider();
        let openai = provider.options(Some(&form));
        assert_eq!(openai.extra_body.unwrap()["response_format"]["json_schema"]["strict"], false);
        provider.kind = AdapterKind::Gemini;
        assert!(provider.options(Some(&form)).response_format.is_some());
        provider.kind = AdapterKind::Anthropic;
        let anthropic = provider.options(Some(&form));
        assert!(anthropic.response_format.is_none() && anthropic.extra_body.is_none());
    }
}
