//! What a condition computes with: JSON as it is, borrowed, and what operators make of it.

use std::{cmp::Ordering, fmt, ops::Deref, rc::Rc};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value};

use super::number;

/// A value. Cloning one never copies what is in it.
#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Null,
    Bool(bool),
    /// Within the 64 bits of a signed or an unsigned integer.
    Integer(i128),
    Double(f64),
    Text(Text<'a>),
    List(List<'a>),
    Map(Entries<'a>),
    Type(Kind),
    Time(DateTime<Utc>),
    Span(TimeDelta),
}

/// A string.
#[derive(Clone, Debug)]
pub(super) enum Text<'a> {
    Found(&'a str),
    Made(Rc<str>),
}

/// A list.
#[derive(Clone, Debug)]
pub(super) enum List<'a> {
    Found(&'a [Value]),
    Made(Rc<[Val<'a>]>),
}

/// A map.
#[derive(Clone, Debug)]
pub(super) enum Entries<'a> {
    Found(&'a Map<String, Value>),
    /// One that the condition itself writes out, so that it is short.
    Made(Rc<[(Val<'a>, Val<'a>)]>),
}

/// What sort of value something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
    /// Takes a JSON value for what it is.
    pub(super) fn of(json: &'a Value) -> Self {
        match json {
            Value::Null => Self::Null,
            Value::Bool(it) => Self::Bool(*it),
            Value::Number(it) => match (it.as_i64(), it.as_u64()) {
                (Some(it), _) => Self::Integer(it.into()),
                (None, Some(it)) => Self::Integer(it.into()),
                (None, None) => Self::Double(it.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(it) => Self::Text(Text::Found(it)),
            Value::Array(it) => Self::List(List::Found(it)),
            Value::Object(it) => Self::Map(Entries::Found(it)),
        }
    }

    /// Makes a string.
    pub(super) fn text(made: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Made(made.into()))
    }

    /// Makes a list.
    pub(super) fn list(made: Vec<Self>) -> Self {
        Self::List(List::Made(made.into()))
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Null => Kind::Null,
            Self::Bool(_) => Kind::Bool,
            Self::Integer(it) if i64::try_from(*it).is_err() => Kind::Unsigned,
            Self::Integer(_) => Kind::Integer,
            Self::Double(_) => Kind::Double,
            Self::Text(_) => Kind::Text,
            Self::List(_) => Kind::List,
            Self::Map(_) => Kind::Map,
            Self::Type(_) => Kind::Type,
            Self::Time(_) => Kind::Time,
            Self::Span(_) => Kind::Span,
        }
    }

    /// Compares two values that are neither lists nor maps; nothing if they have no order.
    pub(super) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Some(left.cmp(right)),
            (Self::Integer(left), Self::Integer(right)) => Some(left.cmp(right)),
            (Self::Double(left), Self::Double(right)) => left.partial_cmp(right),
            (Self::Integer(left), Self::Double(right)) => number::order(*left, *right),
            (Self::Double(left), Self::Integer(right)) => {
                number::order(*right, *left).map(Ordering::reverse)
            }
            (Self::Text(left), Self::Text(right)) => Some((**left).cmp(&**right)),
            (Self::Time(left), Self::Time(right)) => Some(left.cmp(right)),
            (Self::Span(left), Self::Span(right)) => Some(left.cmp(right)),
            _ => None,
        }
    }

    /// Returns whether two values are alike enough to have an order.
    pub(super) fn has_order_with(&self, other: &Self) -> bool {
        let is_number = |it: &Self| matches!(it, Self::Integer(_) | Self::Double(_));
        match (self, other) {
            (Self::Bool(_), Self::Bool(_))
            | (Self::Text(_), Self::Text(_))
            | (Self::Time(_), Self::Time(_))
            | (Self::Span(_), Self::Span(_)) => true,
            (left, right) => is_number(left) && is_number(right),
        }
    }

    /// Returns how many bytes there are to go through if it is a string.
    pub(super) fn text_bytes(&self) -> usize {
        if let Self::Text(it) = self { it.len() } else { 0 }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Found(it) => it,
            Self::Made(it) => it,
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Found(it) => it.len(),
            Self::Made(it) => it.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Val<'a>> {
        match self {
            Self::Found(it) => it.get(index).map(Val::of),
            Self::Made(it) => it.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Val<'a>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Entries<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Found(it) => it.len(),
            Self::Made(it) => it.len(),
        }
    }

    /// Returns what is under `key`.
    pub(super) fn get(&self, key: &Val<'a>) -> Option<Val<'a>> {
        match (self, key) {
            (Self::Found(it), Val::Text(key)) => it.get(&**key).map(Val::of),
            (Self::Found(_), _) => None,
            (Self::Made(it), key) => {
                let same = |it: &&(Val<'a>, Val<'a>)| it.0.order(key) == Some(Ordering::Equal);
                it.iter().find(same).map(|(_, value)| value.clone())
            }
        }
    }

    /// Returns how many entries finding a key may have to go through.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Found(_) => 0,
            Self::Made(it) => it.len(),
        }
    }

    /// Returns the keys.
    pub(super) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Self::Found(it) => it.keys().map(|key| Val::Text(Text::Found(key))).collect(),
            Self::Made(it) => it.iter().map(|(key, _)| key.clone()).collect(),
        }
    }
}

impl Kind {
    /// Returns the kind that CEL calls `name`.
    pub(super) fn named(name: &str) -> Option<Self> {
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

    /// Returns what CEL calls it.
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

/// Writes what people call it, with its article.
impl fmt::Display for Kind {
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
