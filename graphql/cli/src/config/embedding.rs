//! The setting `embedding`: the source of embeddings.

use std::path::{Path, PathBuf};

use planner::embed::{ServerConfig, Source};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{placed_error::read_placed, secret_file::SecretFile};

use super::{Config, environment::variable, show::mask_url};

const MODELS_FOLDER: &str = "models";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EmbeddingConfig {
    #[default]
    Builtin,
    /// Selection compares words, because there are no embeddings.
    Off,
    /// A model: the path of its folder, or the name of a downloaded model.
    Model { written: String, path: PathBuf },
    Server {
        base_url: String,
        model: String,
        api_key_env: Option<String>,
        api_key_file: Option<SecretFile>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEmbedding {
    model: Option<String>,
    base_url: Option<String>,
    api_key_env: Option<String>,
    api_key_file: Option<String>,
    builtin: Option<bool>,
}

pub(super) fn read(value: Option<Value>, base: &Path) -> Result<Option<EmbeddingConfig>, String> {
    const VALID_FORMS: &str = "write `{ builtin: true }`, `{ model: DIRECTORY }` or \
                         `{ base_url: http://…/v1, model: NAME }`";
    let value = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let written: WrittenEmbedding =
        read_placed(value).map_err(|err| format!("{}; {VALID_FORMS}", err.inside("embedding")))?;
    let WrittenEmbedding { model, base_url, api_key_env, api_key_file, builtin } = written;
    if api_key_env.is_some() && api_key_file.is_some() {
        let reason = "`embedding.api_key_file`: name one of `api_key_env` and `api_key_file`";
        return Err(reason.to_owned());
    }
    let has_key = api_key_env.is_some() || api_key_file.is_some();
    Ok(Some(match (builtin, base_url, model) {
        (Some(true), None, None) if !has_key => EmbeddingConfig::Builtin,
        (Some(false), None, None) if !has_key => EmbeddingConfig::Off,
        (None, Some(base_url), Some(model)) if mask_url(&base_url) == base_url => {
            let api_key_file = api_key_file.map(|file| SecretFile::new(file, base));
            EmbeddingConfig::Server { base_url, model, api_key_env, api_key_file }
        }
        (None, None, Some(written)) if !has_key => {
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
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Builtin => json!({ "builtin": true }),
            Self::Off => json!({ "builtin": false }),
            Self::Model { written, .. } => json!({ "model": written }),
            Self::Server { base_url, model, api_key_env, api_key_file } => json!({
                "base_url": mask_url(base_url),
                "model": model,
                "api_key_env": api_key_env,
                "api_key_file": api_key_file.as_ref().map(SecretFile::written),
            }),
        }
    }

    pub(super) fn key_file(&self) -> Option<&Path> {
        match self {
            Self::Server { api_key_file, .. } => api_key_file.as_ref().map(SecretFile::path),
            Self::Builtin | Self::Off | Self::Model { .. } => None,
        }
    }
}

impl Config {
    pub fn models_folder(&self) -> PathBuf {
        self.data.join(MODELS_FOLDER)
    }

    pub fn embedding_source(&self) -> Option<Source> {
        Some(match &self.embedding.value {
            EmbeddingConfig::Off => return None,
            EmbeddingConfig::Builtin => Source::Builtin,
            EmbeddingConfig::Model { written, path } => self.model_source(written, path),
            EmbeddingConfig::Server { base_url, model, api_key_env, api_key_file } => {
                match find_key(api_key_env.as_deref()) {
                    Ok(api_key) => Source::Server(ServerConfig {
                        base_url: base_url.clone(),
                        model: model.clone(),
                        api_key,
                        api_key_file: api_key_file.clone(),
                    }),
                    Err(reason) => Source::Invalid(reason),
                }
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

fn find_key(name: Option<&str>) -> Result<Option<String>, String> {
    let Some(name) = name else { return Ok(None) };
    let key = variable(name).map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    key.map(Some).ok_or_else(|| {
        format!("the variable `{name}`, which `embedding.api_key_env` names, is not set: set it")
    })
}
