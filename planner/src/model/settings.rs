//! Which model is asked, where, and how patiently.

use std::{fmt, sync::Arc, time::Duration};

use super::{Fallback, Model, ModelError, Patience, Patient, Price, Provider, ProviderKind};

/// How long a model may take for one answer where nothing is said: slow ones think for a minute.
pub const TIMEOUT: Duration = Duration::from_mins(2);
/// How often a question is asked again where nothing is said.
pub const RETRIES: u32 = 3;
/// The most that can be configured.
pub const MOST_RETRIES: u32 = 20;

/// Which model is asked, where, and how.
#[derive(Clone, PartialEq)]
pub struct Settings {
    /// The provider, which says the format and the address.
    pub provider: ProviderKind,
    /// Where it is, if not where its provider is.
    pub base_url: Option<String>,
    /// Its name there.
    pub model: String,
    /// What opens it.
    pub key: Key,
    /// How long one answer may take.
    pub timeout: Duration,
    /// How often a question is asked again that could not be answered then.
    pub retries: u32,
    /// The most tokens of an answer, if not the provider's.
    pub max_tokens: Option<u32>,
    /// How freely it chooses its words, if not as the provider has it.
    pub temperature: Option<f64>,
    /// What its answers cost, if somebody said.
    pub price: Option<Price>,
    /// Whether the provider is asked to keep answers in form.
    pub structured: bool,
    /// Whether tools are offered in the way of the provider. Otherwise in words.
    pub native_tools: bool,
    /// The model that answers where this one does not.
    pub fallback: Option<Box<Settings>>,
}

/// What opens a model.
#[derive(Clone, PartialEq, Eq)]
pub enum Key {
    /// Nothing: it is open.
    None,
    /// The variable of the environment that has it, and what that says. Nothing where it is not
    /// set, which is said when somebody asks.
    Variable(String, Option<String>),
}

impl Settings {
    /// Returns the name that people know the model by.
    pub fn name(&self) -> String {
        format!("{}/{}", self.provider.name(), self.model)
    }

    /// Makes the model: patient, and with another one behind it where one is named. Nothing is
    /// sent yet.
    pub fn model(&self) -> Result<Arc<dyn Model>, ModelError> {
        let patience = Patience { retries: self.retries, ..Patience::default() };
        let first = Arc::new(Patient::new(Arc::new(Provider::new(self)?), patience));
        Ok(match &self.fallback {
            Some(second) => Arc::new(Fallback::new(first, second.model()?)),
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
        }
    }
}
