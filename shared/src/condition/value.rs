//! Values of expressions: borrowed JSON, and the results of operators.

use std::{cmp::Ordering, fmt, ops::Deref, rc::Rc};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value};

use super::number;

/// A value that an expression computes with. A clone never copies the contents.
#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    /// An integer of 64 bits, signed or unsigned.
    Integer(i128),
    Double(f64),
    Text(Text<'a>),
    List(List<'a>),
    Map(Entries<'a>),
    Type(ValueKind),
    Time(DateTime<Utc>),
    Span(TimeDelta),
}

#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Owned(Rc<str>),
}

#[derive(Clone, Debug)]
pub(super) enum List<'a> {
    Borrowed(&'a [Value]),
    Owned(Rc<[Val<'a>]>),
}

#[derive(Clone, Debug)]
pub(super) enum Entries<'a> {
    Borrowed(&'a Map<String, Value>),
    /// A map that the expression itself contains as a literal, so it is short.
    Owned(Rc<[(Val<'a>, Val<'a>)]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Null,
    Bool,
    Integer,
    Unsigned,
    Double,
    Text,
    List,
    Map,
    Type,
    Time,
    Span,
}

impl<'a> Val<'a> {
    pub(super) fn from_json(json: &'a Value) -> Self {
        match json {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(value) => match (value.as_i64(), value.as_u64()) {
                (Some(integer), _) => Self::Integer(integer.into()),
                (None, Some(integer)) => Self::Integer(integer.into()),
                (None, None) => Self::Double(value.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Self::Text(Text::Borrowed(text)),
            Value::Array(items) => Self::List(List::Borrowed(items)),
            Value::Object(fields) => Self::Map(Entries::Borrowed(fields)),
        }
    }

    pub(super) fn from_text(made: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Owned(made.into()))
    }

    pub(super) fn from_items(made: Vec<Self>) -> Self {
        Self::List(List::Owned(made.into()))
    }

    pub(super) fn kind(&self) -> ValueKind {
        match self {
            Self::Null => ValueKind::Null,
            Self::Bool(_) => ValueKind::Bool,
            Self::Integer(integer) if i64::try_from(*integer).is_err() => ValueKind::Unsigned,
            Self::Integer(_) => ValueKind::Integer,
            Self::Double(_) => ValueKind::Double,
            Self::Text(_) => ValueKind::Text,
            Self::List(_) => ValueKind::List,
            Self::Map(_) => ValueKind::Map,
            Self::Type(_) => ValueKind::Type,
            Self::Time(_) => ValueKind::Time,
            Self::Span(_) => ValueKind::Span,
        }
    }

    /// Compares two values that are neither lists nor maps. Returns `None` if the two values cannot
    /// be compared.
    pub(super) fn order_with(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Some(left.cmp(right)),
            (Self::Integer(left), Self::Integer(right)) => Some(left.cmp(right)),
            (Self::Double(left), Self::Double(right)) => left.partial_cmp(right),
            (Self::Integer(left), Self::Double(right)) => number::compare_exactly(*left, *right),
            (Self::Double(left), Self::Integer(right)) => {
                number::compare_exactly(*right, *left).map(Ordering::reverse)
            }
            (Self::Text(left), Self::Text(right)) => Some((**left).cmp(&**right)),
            (Self::Time(left), Self::Time(right)) => Some(left.cmp(right)),
            (Self::Span(left), Self::Span(right)) => Some(left.cmp(right)),
            _ => None,
        }
    }

    pub(super) fn has_order_with(&self, other: &Self) -> bool {
        let is_number = |value: &Self| matches!(value, Self::Integer(_) | Self::Double(_));
        match (self, other) {
            (Self::Bool(_), Self::Bool(_))
            | (Self::Text(_), Self::Text(_))
            | (Self::Time(_), Self::Time(_))
            | (Self::Span(_), Self::Span(_)) => true,
            (left, right) => is_number(left) && is_number(right),
        }
    }

    pub(super) fn text_bytes(&self) -> usize {
        if let Self::Text(text) = self { text.len() } else { 0 }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Borrowed(items) => items.len(),
            Self::Owned(items) => items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Val<'a>> {
        match self {
            Self::Borrowed(items) => items.get(index).map(Val::from_json),
            Self::Owned(items) => items.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Val<'a>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Entries<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Borrowed(entries) => entries.len(),
            Self::Owned(entries) => entries.len(),
        }
    }

    pub(super) fn get(&self, key: &Val<'a>) -> Option<Val<'a>> {
        match (self, key) {
            (Self::Borrowed(fields), Val::Text(key)) => fields.get(&**key).map(Val::from_json),
            (Self::Borrowed(_), _) => None,
            (Self::Owned(entries), key) => entries
                .iter()
                .find(|(known, _)| known.order_with(key) == Some(Ordering::Equal))
                .map(|(_, value)| value.clone()),
        }
    }

    /// Returns the maximum number of entries that a lookup compares one by one.
    pub(super) fn lookup_cost(&self) -> usize {
        match self {
            Self::Borrowed(_) => 0,
            Self::Owned(entries) => entries.len(),
        }
    }

    pub(super) fn pairs(&self) -> Vec<(Val<'a>, Val<'a>)> {
        match self {
            Self::Borrowed(fields) => fields
                .iter()
                .map(|(key, value)| (Val::Text(Text::Borrowed(key)), Val::from_json(value)))
                .collect(),
            Self::Owned(entries) => entries.to_vec(),
        }
    }

    pub(super) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Self::Borrowed(fields) => {
                fields.keys().map(|key| Val::Text(Text::Borrowed(key))).collect()
            }
            Self::Owned(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }
}

impl ValueKind {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "null_type" => Self::Null,
            "bool" => Self::Bool,
            "int" => Self::Integer,
            "uint" => Self::Unsigned,
            "double" => Self::Double,
            "string" => Self::Text,
            "list" => Self::List,
            "map" => Self::Map,
            "type" => Self::Type,
            _ => return None,
        })
    }

    pub(super) fn type_name(self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Integer => "int",
            Self::Unsigned => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::List => "list",
            Self::Map => "map",
            Self::Type => "type",
            Self::Time => "timestamp",
            Self::Span => "duration",
        }
    }
}

/// Writes the kind with its article, for messages.
impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Integer | Self::Unsigned | Self::Double => "a number",
            Self::Text => "a string",
            Self::List => "a list",
            Self::Map => "an object",
            Self::Type => "a type",
            Self::Time => "a timestamp",
            Self::Span => "a duration",
        })
    }
}
