//! A model of a provider, asked once over HTTP.

mod anthropic;
mod failures;
mod openai;
#[cfg(test)]
pub(super) mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use reqwest::{
    Client, RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use self::failures::mentions_answer_schema;
use super::{
    AnswerForm, Key, Model, ModelError, NativeCall, Question, Reply, Settings, Stop, Tokens, http,
    names::WireNames, providers::Format,
};

#[derive(Debug)]
pub struct Provider {
    client: Client,
    /// The URL before the paths of the format, with a trailing slash.
    base_url: String,
    settings: Settings,
    name: String,
    /// `true` if the provider refused a schema of an answer, so that it gets no further schema.
    rejects_answer_schemas: AtomicBool,
}

#[derive(Debug, Default)]
struct Answer {
    text: String,
    calls: Vec<NativeCall>,
    stop: Option<Stop>,
    tokens: Tokens,
}

impl Provider {
    pub fn new(settings: &Settings) -> Result<Self, ModelError> {
        let name = settings.name();
        let refused = |reason: String| ModelError::Refused { model: name.clone(), reason };
        let base_url = parse_base_url(settings).map_err(refused)?;
        let client = http::build_client(settings.provider.is_local())
            .map_err(|err| refused(err.to_string()))?;
        let rejects_answer_schemas = AtomicBool::new(false);
        Ok(Self { client, base_url, settings: settings.clone(), name, rejects_answer_schemas })
    }

    async fn ask_once(
        &self,
        question: &Question,
        form: Option<&AnswerForm>,
    ) -> Result<Reply, ModelError> {
        let names = WireNames::for_tools(&question.tools);
        let (path, body) = match self.settings.provider.format {
            Format::OpenAi => {
                ("chat/completions", openai::write_request(question, &names, &self.settings, form))
            }
            Format::Anthropic => {
                ("messages", anthropic::write_request(question, &names, &self.settings))
            }
        };
        let request = self.client.post(format!("{}{path}", self.base_url)).json(&body);
        let answer = self.exchange_json(request).await?;
        let answer = match self.settings.provider.format {
            Format::OpenAi => openai::read_answer(&answer, &names),
            Format::Anthropic => anthropic::read_answer(&answer, &names),
        };
        let Answer { text, calls, stop, tokens } = answer;
        if text.is_empty() && calls.is_empty() && stop.is_none() {
            // The answer is JSON, but not in the format of the provider.
            let reason = "its answer cannot be read: check `planner.provider` and \
                       `planner.base_url`";
            return Err(self.unavailable_error(reason.to_owned(), None));
        }
        let cost = self.settings.price.map(|price| price.cost_of(tokens));
        let stop = stop.unwrap_or(Stop::Other);
        Ok(Reply { text, calls, stop, tokens, cost, model: self.name.clone(), missed: Vec::new() })
    }

    async fn exchange_json(&self, request: RequestBuilder) -> Result<Value, ModelError> {
        let request = match self.settings.provider.format {
            Format::OpenAi => request,
            Format::Anthropic => request.header("anthropic-version", anthropic::API_VERSION),
        };
        let request = match self.key_header()? {
            Some((name, key)) => request.header(name, key),
            None => request,
        };
        let answer = timeout(self.settings.timeout, http::send_request(request)).await;
        let seconds = self.settings.timeout.as_secs_f64();
        let slow = |_| self.unavailable_error(format!("it did not answer in {seconds} s"), None);
        let answer = answer.map_err(slow)?.map_err(|err| self.exchange_failed(err))?;
        let body = String::from_utf8_lossy(&answer.body);
        if !answer.status.is_success() {
            return Err(self.status_error(
                answer.status,
                &body,
                failures::retry_after(&answer.headers),
            ));
        }
        serde_json::from_str(&body).map_err(|_| {
            self.unavailable_error(
                format!("its answer is not JSON: {}", self.shorten_without_key(&body)),
                None,
            )
        })
    }

    fn key_header(&self) -> Result<Option<(HeaderName, HeaderValue)>, ModelError> {
        let key = match &self.settings.key {
            Key::None => return Ok(None),
            Key::Variable(_, Some(key)) => key.clone(),
            Key::File(file) => file.read().map_err(|reason| {
                self.refused_error(format!(
                    "the key is missing: {reason}; correct the file that `planner.api_key_file` \
                     names"
                ))
            })?,
            Key::Variable(name, None) => {
                return Err(self.refused_error(format!(
                    "the variable `{name}` is not set: set it to the key of the model, or name \
                     another variable with `planner.api_key_env`"
                )));
            }
        };
        let (name, value) = match self.settings.provider.format {
            Format::OpenAi => (AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {key}"))),
            Format::Anthropic => {
                (HeaderName::from_static("x-api-key"), HeaderValue::from_str(&key))
            }
        };
        let mut value = value.map_err(|_| {
            self.refused_error(
                "the key has characters that no header can have: check it".to_owned(),
            )
        })?;
        value.set_sensitive(true);
        Ok(Some((name, value)))
    }

    pub async fn is_listed(&self) -> Result<bool, ModelError> {
        let list = self.exchange_json(self.client.get(format!("{}models", self.base_url))).await?;
        let wanted = self.settings.model.as_str();
        // Compares without prefix and tag, because Gemini lists `models/NAME` and Ollama lists
        // `NAME:TAG`.
        let is_this_model = |id: &str| {
            let name = id.strip_prefix("models/").unwrap_or(id);
            name == wanted || name.split_once(':').is_some_and(|(name, _)| name == wanted)
        };
        let models = list["data"].as_array().into_iter().flatten();
        Ok(models.filter_map(|model| model["id"].as_str()).any(is_this_model))
    }
}

#[async_trait]
impl Model for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        let may_form =
            self.settings.structured_output && !self.rejects_answer_schemas.load(Ordering::Relaxed);
        let form = question.answer.as_ref().filter(|_| may_form);
        match self.ask_once(question, form).await {
            Err(ModelError::Refused { reason, .. })
                if form.is_some() && mentions_answer_schema(&reason) =>
            {
                tracing::debug!(why = %reason, "the provider rejects schemas of answers, so it gets none");
                let answer = self.ask_once(question, None).await;
                self.rejects_answer_schemas.fetch_or(answer.is_ok(), Ordering::Relaxed);
                answer
            }
            answer => answer,
        }
    }
}

fn parse_base_url(settings: &Settings) -> Result<String, String> {
    let default = settings.provider.base_url;
    let Some(written) = &settings.base_url else {
        return if default.is_empty() {
            let name = settings.provider.name();
            Err(format!("`{name}` has an address for each user: set `planner.base_url`"))
        } else {
            Ok(default.to_owned())
        };
    };
    let url: Url = written.parse().map_err(|err| {
        format!("`planner.base_url` is not an address ({err}): write `https://host/v1`")
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("`planner.base_url` is neither `http://…` nor `https://…`".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        let reason = "`planner.base_url` contains a password: remove it, and name a variable with \
                   `planner.api_key_env`";
        return Err(reason.to_owned());
    }
    Ok(format!("{}/", written.trim_end_matches('/')))
}

fn object_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) if !fields.is_empty() => {
            let mut fields = fields.clone();
            // Removes this key, because some providers refuse it.
            fields.shift_remove("$schema");
            fields.entry("type").or_insert_with(|| json!("object"));
            if fields["type"] == "object" {
                fields.entry("properties").or_insert_with(|| json!({}));
            }
            Value::Object(fields)
        }
        _ => json!({ "type": "object", "properties": {} }),
    }
}

fn read_arguments(written: &Value) -> Value {
    match written {
        Value::Null => json!({}),
        Value::String(text) if text.trim().is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| written.clone()),
        other => other.clone(),
    }
}

fn read_text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn remove_thoughts(text: &str) -> &str {
    let start = text.trim_start();
    let rest = start.strip_prefix("<think>").and_then(|rest| rest.split_once("</think>"));
    rest.map_or(text, |(_, rest)| rest.trim_start())
}
