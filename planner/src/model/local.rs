//! A model on this machine: finds a server on loopback, or lets a [`ServerStarter`] start one. If
//! the model becomes unavailable, the next question starts another search, because the server may
//! have ended.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::Value;
use tokio::{sync::Mutex, time::timeout};

use super::{Key, Model, ModelError, Provider, Question, Reply, Settings, http};

/// The servers in the order of the search, each with its name and the address before
/// `chat/completions`.
const SERVERS: [(&str, &str); 3] = [
    ("Ollama", "http://127.0.0.1:11434/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
    ("LM Studio", "http://127.0.0.1:1234/v1"),
];
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
pub const PULL_COMMAND: &str = "faber models pull planner";

pub const STARTED_MODEL: &str = "faber-planner";

#[derive(Clone, Debug)]
pub struct StartedServer {
    pub url: String,
    /// The key of the server. Other users of the machine do not know it, so they cannot use the
    /// server.
    pub key: Key,
}

#[async_trait]
pub trait ServerStarter: Debug + Send + Sync {
    /// Returns a running server. The error names what is missing, and the remedy.
    async fn start_server(&self) -> Result<StartedServer, String>;

    fn describe(&self) -> Result<String, String>;
}

#[derive(Clone, Debug)]
pub struct SharedStarter(pub Arc<dyn ServerStarter>);

impl PartialEq for SharedStarter {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Debug)]
pub struct LocalModel {
    settings: Settings,
    name: String,
    servers: Vec<(String, String)>,
    found_provider: Mutex<Option<Arc<Provider>>>,
}

impl LocalModel {
    pub fn new(settings: &Settings) -> Self {
        let servers: Vec<(String, String)> = match &settings.base_url {
            Some(url) => vec![("the server".to_owned(), url.trim_end_matches('/').to_owned())],
            None => SERVERS.map(|(name, url)| (name.to_owned(), url.to_owned())).into(),
        };
        let name = if settings.model.is_empty() {
            settings.provider.name().to_owned()
        } else {
            settings.name()
        };
        Self { settings: settings.clone(), name, servers, found_provider: Mutex::default() }
    }

    /// Returns the model of the first server that has the requested model. If no server has it,
    /// starts a server.
    async fn find_provider(&self) -> Result<Arc<Provider>, ModelError> {
        let mut found_provider = self.found_provider.lock().await;
        if let Some(provider) = &*found_provider {
            return Ok(Arc::clone(provider));
        }
        let provider = match self.search_servers().await? {
            Some((_, provider)) => provider,
            None => self.start_server().await?,
        };
        let provider = Arc::new(provider);
        *found_provider = Some(Arc::clone(&provider));
        Ok(provider)
    }

    async fn search_servers(&self) -> Result<Option<(String, Provider)>, ModelError> {
        for (server, url) in &self.servers {
            if let Some(model) = self.find_model(url).await? {
                let key = match &self.settings.base_url {
                    Some(_) => self.settings.key.clone(),
                    None => Key::None,
                };
                let provider = self.provider_at(url, &model, key)?;
                return Ok(Some((format!("{server} at {url}"), provider)));
            }
        }
        Ok(None)
    }

    async fn start_server(&self) -> Result<Provider, ModelError> {
        let Some(starter) = self.usable_starter() else { return Err(self.missing_error("")) };
        let StartedServer { url, key } =
            starter.start_server().await.map_err(|error| self.missing_error(&error))?;
        // Does not ask the server for its models, because the starter has checked that it offers
        // this model.
        self.provider_at(&url, STARTED_MODEL, key)
    }

    /// Returns the starter, unless the settings name another server or another model.
    fn usable_starter(&self) -> Option<&dyn ServerStarter> {
        let Settings { base_url, model, starter, .. } = &self.settings;
        let is_wanted = base_url.is_none() && ["", STARTED_MODEL].contains(&model.as_str());
        starter.as_ref().filter(|_| is_wanted).map(|SharedStarter(starter)| &**starter)
    }

    /// Returns the requested model of a server. Returns `None` if the server lacks the model or
    /// does not answer.
    async fn find_model(&self, url: &str) -> Result<Option<String>, ModelError> {
        let wanted = self.settings.model.as_str();
        if wanted.is_empty() {
            return self.find_first_model(url).await;
        }
        let models = self.list_models(url).await?;
        let is_wanted = |id: &String| {
            id == wanted || id.split_once(':').is_some_and(|(name, _)| name == wanted)
        };
        Ok(models.into_iter().find(is_wanted))
    }

    /// Returns the first model of a server whose name does not show that it makes embeddings or
    /// runs in Ollama's cloud.
    async fn find_first_model(&self, url: &str) -> Result<Option<String>, ModelError> {
        let is_local = |id: &str| !id.contains("embed") && !id.ends_with("cloud");
        let models = self.list_models(url).await?;
        Ok(models.into_iter().find(|id| is_local(&id.to_ascii_lowercase())))
    }

    async fn list_models(&self, url: &str) -> Result<Vec<String>, ModelError> {
        let client = http::build_client(true).map_err(|err| self.refused_error(err.to_string()))?;
        let request = client.get(format!("{url}/models"));
        let answer = timeout(PROBE_TIMEOUT, http::send_request(request)).await;
        let Ok(Ok(answer)) = answer else { return Ok(Vec::new()) };
        let list: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let models = list["data"].as_array().into_iter().flatten();
        Ok(models.filter_map(|model| model["id"].as_str().map(str::to_owned)).collect())
    }

    fn provider_at(&self, url: &str, model: &str, key: Key) -> Result<Provider, ModelError> {
        Provider::new(&Settings {
            base_url: Some(url.to_owned()),
            model: model.to_owned(),
            key,
            ..self.settings.clone()
        })
    }

    /// Describes where the model is, or how its server would be started. Starts nothing.
    pub async fn describe(&self) -> Result<String, ModelError> {
        if let Some((place, provider)) = self.search_servers().await? {
            return Ok(format!("`{}` at {place}", provider.name()));
        }
        match self.usable_starter() {
            Some(starter) => starter.describe().map_err(|error| self.missing_error(&error)),
            None => Err(self.missing_error("")),
        }
    }

    fn missing_error(&self, reason: &str) -> ModelError {
        let wanted = match self.settings.model.as_str() {
            "" => "a model".to_owned(),
            name => format!("the model `{name}`"),
        };
        let tried: Vec<String> =
            self.servers.iter().map(|(name, url)| format!("{name} at {url}")).collect();
        let Settings { base_url, model, .. } = &self.settings;
        let reason = match (base_url, model.as_str()) {
            _ if !reason.is_empty() => reason.to_owned(),
            (Some(_), _) => {
                format!(
                    "start the server at `planner.base_url`, or remove `planner.base_url` and run \
                     `{PULL_COMMAND}` to download a model"
                )
            }
            (None, "") => format!("run `{PULL_COMMAND}`, or start a server"),
            (None, _) => {
                format!(
                    "start a server that has the model, or remove `planner.model` and run \
                     `{PULL_COMMAND}`"
                )
            }
        };
        self.refused_error(format!(
            "no server on this machine has {wanted} ({}): {reason}",
            tried.join(", ")
        ))
    }

    fn refused_error(&self, reason: String) -> ModelError {
        ModelError::Refused { model: self.name.clone(), reason }
    }
}

#[async_trait]
impl Model for LocalModel {
    fn name(&self) -> &str {
        &self.name
    }

    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        let provider = self.find_provider().await?;
        let answer = provider.ask(question).await;
        if matches!(answer, Err(ModelError::Unavailable { .. })) {
            *self.found_provider.lock().await = None;
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, routing::get, routing::post};
    use serde_json::json;
    use tokio::{net::TcpListener, task::JoinSet};

    use super::*;
    use crate::model::{Message, ProviderKind, provider::tests::settings_of};

    async fn serve_models(models: &[&str]) -> (String, JoinSet<()>) {
        let list =
            json!({ "data": models.iter().map(|id| json!({ "id": id })).collect::<Vec<_>>() });
        let answer =
            json!({ "choices": [{ "message": { "content": "yes" }, "finish_reason": "stop" }] });
        let app = Router::new()
            .route("/v1/models", get(|| async move { Json(list) }))
            .route("/v1/chat/completions", post(|| async move { Json(answer) }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
        (url, tasks)
    }

    fn local_model(name: &str, urls: &[&str], starter: Option<SharedStarter>) -> LocalModel {
        let provider = ProviderKind::find_by_name("local").unwrap();
        let settings = Settings {
            model: name.to_owned(),
            key: Key::None,
            starter,
            ..settings_of(provider, None)
        };
        let servers = urls.iter().map(|url| ("a server".to_owned(), (*url).to_owned()));
        LocalModel { servers: servers.collect(), ..LocalModel::new(&settings) }
    }

    async fn ask_hello(model: &LocalModel) -> Result<String, String> {
        let question =
            Question { messages: vec![Message::User("x".to_owned())], ..Question::default() };
        model.ask(&question).await.map(|reply| reply.model).map_err(|err| err.to_string())
    }

    const UNREACHABLE_URL: &str = "http://127.0.0.1:1/v1";

    #[derive(Debug)]
    struct ScriptedStarter(Result<StartedServer, String>);

    #[async_trait]
    impl ServerStarter for ScriptedStarter {
        async fn start_server(&self) -> Result<StartedServer, String> {
            self.0.clone()
        }

        fn describe(&self) -> Result<String, String> {
            self.0.clone().map(|server| server.url)
        }
    }

    #[tokio::test]
    async fn the_first_server_with_the_wanted_model_is_used() {
        let (empty, _empty_task) = serve_models(&[]).await;
        let (one, _one_task) = serve_models(&["nomic-embed", "big:120b-cloud", "one:1b"]).await;
        let (two, _two_task) = serve_models(&["two"]).await;
        let urls = [UNREACHABLE_URL, &empty, &one, &two];
        for (wanted, expected) in
            [("", "local/one:1b"), ("one", "local/one:1b"), ("two", "local/two")]
        {
            assert_eq!(ask_hello(&local_model(wanted, &urls, None)).await.unwrap(), expected);
        }
        let error = ask_hello(&local_model("three", &urls, None)).await.unwrap_err();
        assert!(error.contains("has the model `three`") && error.contains(PULL_COMMAND), "{error}");
    }

    #[tokio::test]
    async fn a_server_is_started_only_if_none_is_found() {
        let (running, _running_task) = serve_models(&["running"]).await;
        let (url, _started_task) = serve_models(&["faber-planner"]).await;
        let server = StartedServer { url, key: Key::None };
        let starter = || Some(SharedStarter(Arc::new(ScriptedStarter(Ok(server.clone())))));
        assert_eq!(
            ask_hello(&local_model("", &[&running], starter())).await.unwrap(),
            "local/running"
        );
        for name in ["", STARTED_MODEL] {
            let answer =
                ask_hello(&local_model(name, &[UNREACHABLE_URL], starter())).await.unwrap();
            assert_eq!(answer, "local/faber-planner");
        }
        let error = ask_hello(&local_model("other", &[&running], starter())).await.unwrap_err();
        assert!(
            error.contains("the model `other`") && error.contains("remove `planner.model`"),
            "{error}"
        );
        let fails =
            SharedStarter(Arc::new(ScriptedStarter(Err("install `llama-server`".to_owned()))));
        let error = ask_hello(&local_model("", &[UNREACHABLE_URL], Some(fails))).await.unwrap_err();
        assert!(error.ends_with("install `llama-server`"), "{error}");
    }
}
