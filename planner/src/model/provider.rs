//! A model of a provider, asked once.
//!
//! The languages of the providers are `genai`'s business. What it leaves to others is here: how to ask
//! where it is and in what it is spoken to ([`mod@language`]), how to ask for an answer in form ([`form`]),
//! and which errors may pass ([`failures`]).

mod address;
mod failures;
mod form;
mod language;

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use genai::{
    Client, ModelIden, ServiceTarget,
    adapter::AdapterKind,
    chat::{ChatResponse, StopReason, Usage},
    resolver::{AuthData, Endpoint, ProviderConfig},
};
use tokio::time::timeout;

use self::{
    address::endpoint,
    form::about_form,
    language::{has_list, language},
};
use super::{
    AnswerForm, Key, Model, ModelError, NativeCall, Question, Reply, Settings, Stop, Tokens,
    exchange::Exchanges, names::WireNames, wire,
};

/// What is shown to servers that want no key.
const NO_KEY: &str = "none";

/// A model of a provider.
#[derive(Debug)]
pub struct Provider {
    client: Client,
    exchanges: Exchanges,
    /// What it is spoken to in.
    kind: AdapterKind,
    /// Where it is, if not where `genai` has it.
    endpoint: Option<Endpoint>,
    settings: Settings,
    name: String,
    /// The provider refused to keep answers in form, so that it is not asked to any more.
    is_formless: AtomicBool,
}

impl Provider {
    /// Makes ready to ask a model. Nothing is sent yet.
    pub fn new(settings: &Settings) -> Result<Self, ModelError> {
        let name = settings.name();
        let refused = |why: String| ModelError::Refused { model: name.clone(), why };
        let endpoint = settings.base_url.as_deref().map(endpoint).transpose().map_err(refused)?;
        let (kind, place) = language(settings.provider.0, &settings.model);
        let exchanges = Exchanges::new();
        let (exchanges, client) = exchanges.map_err(|err| refused(err.to_string()))?;
        let client = Client::builder().with_reqwest(client).build();
        Ok(Self {
            client: client.map_err(|err| refused(err.to_string()))?,
            exchanges,
            kind,
            endpoint: endpoint.or(place),
            settings: settings.clone(),
            is_formless: AtomicBool::new(false),
            name,
        })
    }

    async fn try_once(
        &self,
        question: &Question,
        form: Option<&AnswerForm>,
    ) -> Result<Reply, ModelError> {
        let names = WireNames::of(&question.tools);
        let request = wire::request(question, &names);
        let options = self.options(form);
        let target = self.target().await?;
        let provider = target.endpoint.clone();
        let answer = self.exchanges.run(&provider, |endpoint| {
            let target = ServiceTarget { endpoint, ..target };
            self.client.exec_chat(target, request, Some(&options))
        });
        match timeout(self.settings.timeout, answer).await {
            Ok(Ok(response)) => self.reply(response, &names),
            Ok(Err(err)) => Err(self.failed(err)),
            Err(_) => {
                let seconds = self.settings.timeout.as_secs_f64();
                Err(self.lost(format!("it did not answer in {seconds} s"), None))
            }
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

    fn reply(&self, response: ChatResponse, names: &WireNames) -> Result<Reply, ModelError> {
        let (text, tokens) = (response.texts().concat(), tokens(&response.usage));
        let (stop, is_unsaid) = match &response.stop_reason {
            Some(reason) => (stop(reason), false),
            None => (Stop::Other, true),
        };
        let calls = response.into_tool_calls().into_iter();
        let calls: Vec<NativeCall> = calls.map(|call| wire::call(call, names)).collect();
        if text.is_empty() && calls.is_empty() && is_unsaid {
            // What is no answer of the language at all looks like this.
            let why = "it answered nothing that could be read: check `planner.provider` and \
                       `planner.base_url`";
            return Err(self.lost(why.to_owned(), None));
        }
        let (cost, model) = (self.settings.price.map(|it| it.of(tokens)), self.name.clone());
        Ok(Reply { text, calls, stop, tokens, cost, model, missed: Vec::new() })
    }
}

#[async_trait]
impl Model for Provider {
    fn name(&self) -> &str {
        &self.name
    }

    /// Asks again without the form if the provider refuses it, and remembers that it does.
    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        let is_formless = !self.settings.structured || self.is_formless.load(Ordering::Relaxed);
        let form = question.answer.as_ref().filter(|_| !is_formless);
        match self.try_once(question, form).await {
            Err(ModelError::Refused { why, .. })
                if form.is_some() && about_form(&why).is_some() =>
            {
                tracing::debug!(%why, "the provider does not keep answers in form");
                let answer = self.try_once(question, None).await;
                if answer.is_ok() {
                    self.is_formless.store(true, Ordering::Relaxed);
                }
                answer
            }
            answer => answer,
        }
    }
}

/// Asks the provider what its models are: enough to see that it answers, and that the key opens it.
impl Provider {
    /// Returns whether the model is among those that its provider lists, if it lists any.
    pub async fn is_listed(&self) -> Result<bool, ModelError> {
        if !has_list(self.kind) {
            return Ok(false);
        }
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

fn tokens(usage: &Usage) -> Tokens {
    let count = |tokens: Option<i32>| {
        tokens.and_then(|count| u64::try_from(count).ok()).unwrap_or_default()
    };
    Tokens { input: count(usage.prompt_tokens), output: count(usage.completion_tokens) }
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

#[cfg(test)]
mod tests {
    use super::{
        super::{ProviderKind, settings},
        *,
    };

    /// Makes ready to ask a server that is not there.
    pub(super) fn provider() -> Provider {
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
}
