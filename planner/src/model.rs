//! Language models: what they are asked, and what they answer.
//!
//! Whoever asks knows one trait, [`Model`]. That there are providers, each with a language of its
//! own, names that they do not like, and bad days, ends here.

mod fallback;
mod http;
mod names;
mod patient;
mod provider;
mod providers;
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
    patient::{Patience, Patient},
    provider::Provider,
    providers::ProviderKind,
    settings::{Key, Settings},
};

/// Something that answers in words, or with calls of tools.
#[async_trait]
pub trait Model: Debug + Send + Sync {
    /// Names the model for people: its provider and its name there.
    fn name(&self) -> &str;

    /// Asks, and waits for the whole answer.
    ///
    /// It ends: every implementation limits how long it waits and how often it tries.
    async fn ask(&self, question: &Question) -> Result<Reply, ModelError>;
}

/// What a model is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Question {
    /// What was said so far, oldest first.
    pub messages: Vec<Message>,
    /// The tools that it may call, in the way of its provider.
    pub tools: Vec<OfferedTool>,
    /// What the answer must look like, if it must. Providers that cannot promise it are asked all
    /// the same, so that the words of the question must say it, too.
    pub answer: Option<AnswerForm>,
}

/// Something that was said.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The rules.
    System(String),
    /// What a person, or the program, says.
    User(String),
    /// What the model said.
    Assistant {
        /// Its words.
        text: String,
        /// What it called.
        calls: Vec<NativeCall>,
    },
    /// What came of the calls of the message before: one for each.
    Results(Vec<CallResult>),
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    /// The name by which it is called. Providers that allow fewer letters are shown another one.
    pub name: ToolName,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its parameters.
    pub schema: Value,
}

/// The form of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerForm {
    /// A name for it, of letters, digits, `_` and `-`.
    pub name: &'static str,
    /// Its JSON Schema.
    pub schema: Value,
}

/// A call of a tool, in the way of the provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NativeCall {
    /// What the provider calls it by.
    pub id: String,
    /// The tool, by the name under which it was offered, or whatever else the model wrote.
    pub tool: String,
    /// The arguments: an object, or whatever else the model wrote.
    pub arguments: Value,
    /// What the provider wants back with the call, unread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<String>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// The call's [`NativeCall::id`].
    pub id: String,
    /// The tool, as it was called.
    pub tool: String,
    /// What came of it, in words or as JSON.
    pub text: String,
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Its words. Thoughts that the provider keeps apart are left out.
    pub text: String,
    /// What it wants to be called.
    pub calls: Vec<NativeCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it took.
    pub tokens: Tokens,
    /// What it cost, where the configuration knows its price.
    pub cost: Option<f64>,
    /// Who answered: the model that was asked, or the one that stands in for it.
    pub model: String,
    /// What was tried before and came to nothing, oldest first.
    pub missed: Vec<ModelError>,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It had said everything.
    End,
    /// It waits for what comes of its calls.
    Calls,
    /// It had no more room: the answer is cut.
    Length,
    /// The provider did not let it go on.
    Filter,
    /// The provider does not say, or says something else.
    Other,
}

/// What an answer took, as far as the provider says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Tokens of the question.
    pub input: u64,
    /// Tokens of the answer, thoughts included.
    pub output: u64,
}

/// What a million tokens cost, in the money of whoever wrote it down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Those of questions.
    pub input: f64,
    /// Those of answers.
    pub output: f64,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// It did not answer as it should; it may, later.
    #[error("the model `{model}` is not available: {why}")]
    Unavailable {
        /// Which.
        model: String,
        /// What happened, and what to do.
        why: String,
        /// How long it wants to be left alone.
        wait: Option<Duration>,
    },
    /// It does not answer this, or not to us: asking again is no use.
    #[error("the model `{model}` cannot be used: {why}")]
    Refused {
        /// Which.
        model: String,
        /// What happened, and what to do.
        why: String,
    },
}

impl Price {
    /// Returns what tokens cost, to a billionth.
    pub fn of(self, tokens: Tokens) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "tokens are counted in millions")]
        let each = |price: f64, count: u64| price * count as f64;
        let millionths = each(self.input, tokens.input) + each(self.output, tokens.output);
        (millionths * 1e3).round() / 1e9
    }
}

/// Returns what several answers cost together, if there are any and of each is known what it did.
pub fn total(costs: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let costs: Vec<f64> = costs.into_iter().collect::<Option<_>>()?;
    (!costs.is_empty()).then(|| (costs.iter().sum::<f64>() * 1e9).round() / 1e9)
}

impl ModelError {
    /// Returns which model.
    pub fn model(&self) -> &str {
        match self {
            Self::Unavailable { model, .. } | Self::Refused { model, .. } => model,
        }
    }

    /// Returns what happened, and what to do.
    pub fn why(&self) -> &str {
        match self {
            Self::Unavailable { why, .. } | Self::Refused { why, .. } => why,
        }
    }
}

impl std::iter::Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, it| {
            sum += it;
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
    fn prices_are_of_a_million_tokens() {
        for (input, output, tokens, expected) in [
            (2.5, 10.0, (1_000_000, 1_000_000), 12.5),
            (2.5, 10.0, (812, 40), 0.002_43),
            (0.1, 0.2, (1, 1), 0.000_000_3),
            (0.0, 0.0, (5, 5), 0.0),
        ] {
            let tokens = Tokens { input: tokens.0, output: tokens.1 };
            let cost = Price { input, output }.of(tokens);
            assert!((cost - expected).abs() < 1e-12, "{tokens:?}: {cost}");
        }
    }

    #[test]
    fn what_is_not_known_of_one_is_not_known_of_all() {
        assert_eq!(total([Some(0.1), Some(0.2)]), Some(0.3));
        assert_eq!(total([Some(0.1), None]), None);
        assert_eq!(total([]), None);
    }
}
