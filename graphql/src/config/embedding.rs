//! Where the vectors of texts come from, as the configuration says it.

use std::path::{Path, PathBuf};

use planner::embed::{ServerConfig, Source};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Config, environment::variable, show::mask_url};

/// Where models lie that were fetched, beneath the data directory.
const MODELS: &str = "models";

/// Where the vectors of texts come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EmbeddingConfig {
    /// The encoder that is part of this program.
    #[default]
    Builtin,
    /// Nowhere: tools are chosen by their words.
    Off,
    /// A model in a directory, or one that was fetched, by its name.
    Model {
        /// As it was written.
        written: String,
        /// The directory that it means if it is one.
        path: PathBuf,
    },
    /// A server that understands what `OpenAI`'s does.
    Server {
        /// What stands before `/embeddings`.
        base_url: String,
        /// The model's name.
        model: String,
        /// The variable that has the key.
        api_key_env: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    model: Option<String>,
    base_url: Option<String>,
    api_key_env: Option<String>,
    builtin: Option<bool>,
}

/// Reads the setting; a relative directory is relative to `base`.
pub(super) fn read(value: Option<Value>, base: &Path) -> Result<Option<EmbeddingConfig>, String> {
    const FORMS: &str = "write `{ builtin: true }`, `{ model: DIRECTORY }` or \
                         `{ base_url: http://…/v1, model: NAME }`";
    let value = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let written = serde_json::from_value(value);
    let written: Written = written.map_err(|err| format!("`embedding`: {err}; {FORMS}"))?;
    let Written { model, base_url, api_key_env, builtin } = written;
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
                "`embedding` says too much or too little ({FORMS}); a key is named by `api_key_env`"
            ));
        }
    }))
}

impl EmbeddingConfig {
    /// Shows it without a password.
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
    /// Returns where models lie that were fetched.
    pub fn models(&self) -> PathBuf {
        self.data.join(MODELS)
    }

    /// Returns where vectors may come from: what is configured, and if that does not work the
    /// encoder that is part of this program.
    pub fn embedding_sources(&self) -> Vec<Source> {
        let wanted = match &self.embedding.value {
            EmbeddingConfig::Off => return Vec::new(),
            EmbeddingConfig::Builtin => return vec![Source::Builtin],
            EmbeddingConfig::Model { written, path } => self.model(written, path),
            EmbeddingConfig::Server { base_url, model, api_key_env } => {
                server(base_url, model, api_key_env.as_deref())
            }
        };
        vec![wanted, Source::Builtin]
    }

    fn model(&self, written: &str, path: &Path) -> Source {
        let fetched = self.models().join(written);
        if path.is_dir() || !fetched.is_dir() {
            return Source::Directory(path.to_owned());
        }
        Source::Directory(fetched)
    }
}

fn server(base_url: &str, model: &str, api_key_env: Option<&str>) -> Source {
    let key = match api_key_env.map(|name| (name, variable(name))) {
        None => None,
        Some((_, Some(key))) if !key.trim().is_empty() => Some(key.trim().to_owned()),
        Some((name, _)) => {
            let why =
                format!("the variable `{name}` is not set, which `embedding.api_key_env` names");
            return Source::Wrong(why);
        }
    };
    let (base_url, model) = (base_url.to_owned(), model.to_owned());
    Source::Server(ServerConfig { base_url, model, api_key: key })
}
