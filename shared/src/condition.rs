//! Conditions.

use serde_json::Value;

use crate::template::{Names, Target, Values};

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    source: String,
}

/// What is wrong with a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConditionError(pub String);

impl Condition {
    /// Parses.
    pub fn parse(source: &str, _names: &dyn Names) -> Result<Self, ConditionError> {
        Ok(Self { source: source.to_owned() })
    }

    /// Returns the source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns what it looks at.
    pub fn targets(&self) -> &[Target] {
        &[]
    }

    /// Returns whether it holds.
    pub fn holds(&self, _values: &dyn Values, _input: &Value) -> Result<bool, String> {
        Ok(self.source == "true")
    }
}
