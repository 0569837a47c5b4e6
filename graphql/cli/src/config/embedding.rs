//! The setting `embedding`: the source of embeddings.

use std::path::{Path, PathBuf};

use planner::embed::{ServerConfig, Source};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::placed_error::read_placed;

use super::{Config, environment::variable, show::mask_url};

const MODELS_FOLDER: &str = "models";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EmbeddingConfig {
    #[default]
    Builtin,
    /// Selection compares words, because there are no embeddings.
    Off,
    /// A model: the path of its folder, or the name of a downloaded model.
    Model {
        written: String,
        /// The folder of the model, if `written` is a path.
        path: PathBuf,
    },
    /// A server with the API of `OpenAI`.
    Server {
        /// The address to which `/embeddings` is appended.
        base_url: String,
        model: String,
        api_key_env: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEmbedding {
    model: Option<String>,
    base_url: Option<String>,
    api_key_env: Option<String>,
    builtin: Option<bool>,
}

/// Reads the setting. A relative path starts at `base`.
pub(super) fn read(value: Option<Value>, base: &Path) -> Result<Option<EmbeddingConfig>, String> {
    const VALID_FORMS: &str = "write `{ builtin: true }`, `{ model: DIRECTORY }` or \
                         `{ base_url: http://…/v1, model: NAME }`";
    let value = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let written: WrittenEmbedding =
        read_placed(value).map_err(|err| format!("{}; {VALID_FORMS}", err.inside("embedding")))?;
    let WrittenEmbedding { model, base_url, api_key_env, builtin } = written;
    Ok(Some(match (builtin, base_url, model) {
        (Some(true), None, None) if api_key_env.is_none() => EmbeddingConfig::Builtin,
        (Some(false), None, None) if api_key_env.is_none() => EmbeddingConfig::Off,
        (None, Some(base_url), Some(model)) if mask_url(&base_url) == base_url => {
            EmbeddingConfig::Server { base_url, model, api_key_env }
        }
        (None, None, Some(written)) if api_key_env.is_none() => {
            let path = base.join(&written);
            EmbeddingConfig::Model { written, path }
        }
        _ => {
            return Err(format!(
                "`embedding` is not valid: {VALID_FORMS}; `api_key_env` names the variable of a key"
            ));
        }
    }))
}

impl EmbeddingConfig {
    /// Returns the setting without a password.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Builtin => json!({ "builtin": true }),
            Self::Off => json!({ "builtin": false }),
            Self::Model { written, .. } => json!({ "model": written }),
            Self::Server { base_url, model, api_key_env } => json!({
                "base_url": mask_url(base_url),
                "model": model,
                "api_key_env": api_key_env,
            }),
        }
    }
}

impl Config {
    pub fn models_folder(&self) -> PathBuf {
        self.data.join(MODELS_FOLDER)
    }

    /// Returns the configured source of embeddings, if there is one.
    pub fn embedding_source(&self) -> Option<Source> {
        Some(match &self.embedding.value {
            EmbeddingConfig::Off => return None,
            EmbeddingConfig::Builtin => Source::Builtin,
            EmbeddingConfig::Model { written, path } => self.model_source(written, path),
            EmbeddingConfig::Server { base_url, model, api_key_env } => {
                server_source(base_url, model, api_key_env.as_deref())
            }
        })
    }

    fn model_source(&self, written: &str, path: &Path) -> Source {
        let fetched = self.models_folder().join(written);
        if path.is_dir() || !fetched.is_dir() {
            return Source::Directory(path.to_owned());
        }
        Source::Directory(fetched)
    }
}

fn server_source(base_url: &str, model: &str, api_key_env: Option<&str>) -> Source {
    let key = match api_key_env.map(|name| (name, variable(name))) {
        None => None,
        Some((_, Some(key))) if !key.trim().is_empty() => Some(key.trim().to_owned()),
        Some((name, _)) => {
            let reason = format!(
                "the variable `{name}`, which `embedding.api_key_env` names, is not set: set it"
            );
            return Source::Invalid(reason);
        }
    };
    let (base_url, model) = (base_url.to_owned(), model.to_owned());
    Source::Server(ServerConfig { base_url, model, api_key: key })
}
