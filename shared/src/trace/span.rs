use std::borrow::Cow;

use super::{SpanContext, SpanId};
use crate::clock::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    Internal,
    Client,
    Server,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    Text(Cow<'static, str>),
    Number(i64),
    Decimal(f64),
    Flag(bool),
}

#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    pub context: SpanContext,
    pub parent: Option<SpanId>,
    /// `true` if another process made the parent.
    pub has_remote_parent: bool,
    pub name: Cow<'static, str>,
    pub kind: SpanKind,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub attributes: Vec<(&'static str, AttributeValue)>,
    pub events: Vec<SpanEvent>,
    pub links: Vec<SpanContext>,
    /// The code or type of the failure. `None` if the operation succeeded.
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    pub name: &'static str,
    pub at: Timestamp,
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

impl FinishedSpan {
    #[must_use]
    pub fn with_attribute(mut self, key: &'static str, value: impl Into<AttributeValue>) -> Self {
        self.attributes.push((key, value.into()));
        self
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<usize> for AttributeValue {
    fn from(number: usize) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Decimal(number)
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}
