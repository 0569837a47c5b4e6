use planner::model::{Message, Model, ModelError, Provider, Question, Settings, local::LocalModel};

use super::Check;
use crate::{config::Config, local_engine::model_settings};

const TEST_MESSAGE: &str = "Answer with the word OK.";

pub(crate) async fn check_planner(config: &Config) -> Vec<Check> {
    let Some(model) = config.planning_model() else {
        let result = Ok("offline: no model, no network".to_owned());
        return vec![Check::new("planner", result, "")];
    };
    let settings = model_settings(config, model);
    let mut checks = vec![check_model("planner", &settings).await];
    if let Some(fallback) = &settings.fallback {
        checks.push(check_model("planner.fallback", fallback).await);
    }
    checks
}

async fn check_model(name: &str, settings: &Settings) -> Check {
    let result = ask_model(settings).await.map_err(|err| err.to_string());
    let help = "correct `planner` in the configuration, set the variable that `api_key_env` names, \
                or plan without a model: `planner: offline`";
    Check::new(name, result, help)
}

async fn ask_model(settings: &Settings) -> Result<String, ModelError> {
    if settings.provider.is_local() {
        return LocalModel::new(settings).describe().await;
    }
    let provider = Provider::new(settings)?;
    let name = provider.name().to_owned();
    match provider.is_listed().await {
        Ok(true) => return Ok(format!("`{name}` is available")),
        Err(err @ ModelError::Unavailable { .. }) => return Err(err),
        // Some providers list only some of their models, or refuse to list any. So the test message
        // below shows whether the model answers.
        Ok(false) | Err(ModelError::Refused { .. }) => (),
    }
    let messages = vec![Message::User(TEST_MESSAGE.to_owned())];
    provider.ask(&Question { messages, ..Question::default() }).await?;
    Ok(format!("`{name}` answers"))
}
