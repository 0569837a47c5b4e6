//! Which model is asked, where, and how patiently.

use std::{fmt, sync::Arc, time::Duration};

use genai::adapter::AdapterKind;

use super::{Fallback, Model, ModelError, Patience, Patient, Price, Provider};
use crate::nearest::did_you_mean;

/// How long a model may take for one answer where nothing is said: slow ones think for a minute.
pub const TIMEOUT: Duration = Duration::from_mins(2);
/// How often a question is asked again where nothing is said.
pub const RETRIES: u32 = 3;
/// The most that can be configured.
pub const MOST_RETRIES: u32 = 20;

/// Which model is asked, where, and how.
#[derive(Clone, PartialEq)]
pub struct Settings {
    /// Whose language it speaks.
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

/// A language that providers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderKind(pub(super) AdapterKind);

impl ProviderKind {
    /// Returns the provider of a name, such as `openai`, or says which there are.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some(kind) = AdapterKind::from_lower_str(name)
            && AdapterKind::all().contains(&kind)
        {
            return Ok(Self(kind));
        }
        let names = || AdapterKind::all().iter().map(AdapterKind::as_lower_str);
        let help = did_you_mean(name, names()).unwrap_or_else(|| {
            let all: Vec<String> = names().map(|it| format!("`{it}`")).collect();
            format!(
                "there are {}; whatever else imitates one of them, often `openai`, has a `base_url`",
                all.join(", ")
            )
        });
        Err(format!("there is no provider `{name}`: {help}"))
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.0.as_lower_str()
    }

    /// Returns the variable that its users keep their key in, if it wants one.
    pub fn usual_variable(self) -> Option<&'static str> {
        self.0.default_key_env_name()
    }
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
