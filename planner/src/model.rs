//! Language models: questions, answers and errors. Callers know one trait, [`Model`].

mod fallback;
mod http;
pub mod local;
mod names;
mod observed;
mod patient;
mod provider;
mod providers;
pub mod pull;
#[cfg(test)]
pub(crate) mod scripted;
pub mod settings;

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::id::ToolName;

pub use self::{
    fallback::Fallback,
    patient::{ModelRetryPolicy, RetryingModel},
    provider::Provider,
    providers::ProviderKind,
    settings::{Key, Settings},
};

#[async_trait]
pub trait Model: Debug + Send + Sync {
    fn name(&self) -> &str;

    /// Asks, and waits for the whole answer.
    ///
    /// Each implementation limits the wait and the number of attempts.
    async fn ask(&self, question: &Question) -> Result<Reply, ModelError>;
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    pub messages: Vec<Message>,
    pub tools: Vec<OfferedTool>,
    /// The schema that the answer must have. A provider may ignore it, so the words of the question
    /// must ask for the same form.
    pub answer: Option<AnswerForm>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    System(String),
    User(String),
    Assistant {
        text: String,
        calls: Vec<NativeCall>,
    },
    /// The results of the calls in the previous message, one result for each call.
    Results(Vec<CallResult>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    /// The name of the tool. A provider that does not allow this name gets a similar name.
    pub name: ToolName,
    pub description: String,
    pub schema: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AnswerForm {
    pub name: &'static str,
    pub schema: Value,
    /// A larger and stricter schema, for servers whose answers always follow a schema.
    pub typed: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NativeCall {
    pub id: String,
    /// The name under which the tool was offered, or another name that the model wrote.
    pub tool: String,
    /// The arguments: an object, or other JSON that the model wrote.
    pub arguments: Value,
    /// JSON that the provider wants back with the call. Faber does not read it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    pub id: String,
    pub tool: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The words of the answer, without thoughts that the provider marks.
    pub text: String,
    pub calls: Vec<NativeCall>,
    pub stop: Stop,
    pub tokens: Tokens,
    pub cost: Option<f64>,
    /// The model that answered: the requested model, or its fallback.
    pub model: String,
    pub missed: Vec<ModelError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    End,
    /// The model waits for the results of its calls.
    Calls,
    /// The answer reached the limit of tokens and is cut off.
    Length,
    Filter,
    /// The provider gives no reason, or an unknown reason.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    pub input: f64,
    pub output: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The model gives no answer now. A retry may help.
    #[error("the model `{model}` is not available: {reason}")]
    Unavailable { model: String, reason: String, wait: Option<Duration> },
    /// The model or its provider refuses to answer, so a retry does not help.
    #[error("the model `{model}` cannot be used: {reason}")]
    Refused { model: String, reason: String },
}

impl Price {
    /// Returns the cost of tokens, rounded to a billionth.
    pub fn cost_of(self, tokens: Tokens) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "tokens are counted in millions")]
        let each = |price: f64, count: u64| price * count as f64;
        let millionths = each(self.input, tokens.input) + each(self.output, tokens.output);
        (millionths * 1e3).round() / 1e9
    }
}

/// Returns the cost of several answers, or `None` if the cost of one of them is unknown or there
/// are no answers.
pub fn sum_costs(costs: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let costs: Vec<f64> = costs.into_iter().collect::<Option<_>>()?;
    (!costs.is_empty()).then(|| (costs.iter().sum::<f64>() * 1e9).round() / 1e9)
}

impl ModelError {
    pub fn model(&self) -> &str {
        match self {
            Self::Unavailable { model, .. } | Self::Refused { model, .. } => model,
        }
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Unavailable { reason, .. } | Self::Refused { reason, .. } => reason,
        }
    }
}

impl std::iter::Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, tokens| {
            sum += tokens;
            sum
        })
    }
}

impl std::ops::AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_applies_to_a_million_tokens() {
        for (input, output, tokens, expected) in [
            (2.5, 10.0, (1_000_000, 1_000_000), 12.5),
            (2.5, 10.0, (812, 40), 0.002_43),
            (0.1, 0.2, (1, 1), 0.000_000_3),
            (0.0, 0.0, (5, 5), 0.0),
        ] {
            let tokens = Tokens { input: tokens.0, output: tokens.1 };
            let cost = Price { input, output }.cost_of(tokens);
            assert!((cost - expected).abs() < 1e-12, "{tokens:?}: {cost}");
        }
    }

    #[test]
    fn a_total_with_an_unknown_cost_is_unknown() {
        assert_eq!(sum_costs([Some(0.1), Some(0.2)]), Some(0.3));
        assert_eq!(sum_costs([Some(0.1), None]), None);
        assert_eq!(sum_costs([]), None);
    }
}
