use std::{fmt, sync::Arc, time::Duration};

use shared::secret_file::SecretFile;

use super::{
    Fallback, Model, ModelError, ModelRetryPolicy, Price, Provider, ProviderKind, RetryingModel,
    local::{LocalModel, SharedStarter},
    observed::ObservedModel,
};

/// The default time limit of one answer. Slow models think for a minute.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(2);
pub const DEFAULT_RETRIES: u32 = 3;
pub const MAX_RETRIES: u32 = 20;

#[derive(Clone, PartialEq)]
pub struct Settings {
    pub provider: ProviderKind,
    pub base_url: Option<String>,
    /// The name that the provider gives the model. Empty for the first model of a local server.
    pub model: String,
    pub key: Key,
    pub timeout: Duration,
    pub retries: u32,
    /// Maximum number of tokens of an answer. Without a value, the provider decides.
    pub max_tokens: Option<u32>,
    /// The temperature. Without a value, the provider decides.
    pub temperature: Option<f64>,
    pub price: Option<Price>,
    pub structured_output: bool,
    /// If true, tools are offered through the interface of the provider. Otherwise they are
    /// described in words.
    pub native_tools: bool,
    pub fallback: Option<Box<Settings>>,
    /// Starts a local server if none is found.
    pub starter: Option<SharedStarter>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Key {
    None,
    /// The name of an environment variable, and its value. A question fails if the variable has no
    /// value.
    Variable(String, Option<String>),
    /// A file. Each question reads the file, so that the key can change.
    File(SecretFile),
}

impl Settings {
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider.name(), self.model)
    }

    pub fn build_model(&self) -> Result<Arc<dyn Model>, ModelError> {
        let patience = ModelRetryPolicy { retries: self.retries, ..ModelRetryPolicy::default() };
        let model: Arc<dyn Model> = if self.provider.is_local() {
            Arc::new(LocalModel::new(self))
        } else {
            Arc::new(Provider::new(self)?)
        };
        let observed = ObservedModel::new(model, self.name(), self.provider.name());
        let first = Arc::new(RetryingModel::new(Arc::new(observed), patience));
        Ok(match &self.fallback {
            Some(second) => Arc::new(Fallback::new(first, second.build_model()?)),
            None => first,
        })
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("model", &self.name())
            .field("base_url", &self.base_url)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Variable(name, _) => f.debug_tuple("Variable").field(name).finish(),
            Self::File(file) => f.debug_tuple("File").field(&file.written()).finish(),
        }
    }
}
