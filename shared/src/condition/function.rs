use std::ops::RangeInclusive;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::{
    number::{self, Number},
    value::Val,
};
use crate::limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Integer,
    Unsigned,
    Double,
    Text,
    Bool,
    Type,
    Dyn,
    Timestamp,
    Duration,
    Sum,
    Least,
    Greatest,
    Join,
    Split,
    Sort,
    Distinct,
    Flatten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStyle {
    Plain,
    Method,
}

const PLAIN_STYLE: &[CallStyle] = &[CallStyle::Plain];
const METHOD_STYLE: &[CallStyle] = &[CallStyle::Method];
const BOTH_STYLES: &[CallStyle] = &[CallStyle::Plain, CallStyle::Method];

/// Maximum number of arguments of `min` and `max`. An expression has at most this many bytes, so
/// this limit is never reached.
const MAX_ARGUMENTS: usize = limits::CONDITION_BYTES;

/// All functions, each with its name, its syntax, and its smallest and largest number of arguments.
/// The receiver counts as an argument.
const FUNCTIONS: [(&str, Function, &[CallStyle], usize, usize); 23] = [
    ("size", Function::Size, BOTH_STYLES, 1, 1),
    ("contains", Function::Contains, METHOD_STYLE, 2, 2),
    ("startsWith", Function::StartsWith, METHOD_STYLE, 2, 2),
    ("endsWith", Function::EndsWith, METHOD_STYLE, 2, 2),
    ("int", Function::Integer, PLAIN_STYLE, 1, 1),
    ("uint", Function::Unsigned, PLAIN_STYLE, 1, 1),
    ("double", Function::Double, PLAIN_STYLE, 1, 1),
    ("string", Function::Text, PLAIN_STYLE, 1, 1),
    ("bool", Function::Bool, PLAIN_STYLE, 1, 1),
    ("type", Function::Type, PLAIN_STYLE, 1, 1),
    ("dyn", Function::Dyn, PLAIN_STYLE, 1, 1),
    ("timestamp", Function::Timestamp, PLAIN_STYLE, 1, 1),
    ("duration", Function::Duration, PLAIN_STYLE, 1, 1),
    ("sum", Function::Sum, BOTH_STYLES, 1, 1),
    ("min", Function::Least, PLAIN_STYLE, 1, MAX_ARGUMENTS),
    ("min", Function::Least, METHOD_STYLE, 1, 1),
    ("max", Function::Greatest, PLAIN_STYLE, 1, MAX_ARGUMENTS),
    ("max", Function::Greatest, METHOD_STYLE, 1, 1),
    ("join", Function::Join, BOTH_STYLES, 1, 2),
    ("split", Function::Split, BOTH_STYLES, 2, 2),
    ("sort", Function::Sort, BOTH_STYLES, 1, 1),
    ("distinct", Function::Distinct, BOTH_STYLES, 1, 1),
    ("flatten", Function::Flatten, BOTH_STYLES, 1, 1),
];

impl Function {
    /// Finds a function by its name and call syntax. Also returns its smallest and largest number
    /// of arguments.
    pub(super) fn from_name(name: &str, style: CallStyle) -> Option<(Self, RangeInclusive<usize>)> {
        let (_, function, _, minimum, maximum) = FUNCTIONS
            .iter()
            .find(|(known, _, styles, ..)| *known == name && styles.contains(&style))?;
        Some((*function, *minimum..=*maximum))
    }

    pub(super) fn name(self) -> &'static str {
        FUNCTIONS.iter().find(|(_, function, ..)| *function == self).map_or("", |(name, ..)| name)
    }

    pub(super) fn is_about_lists(self) -> bool {
        matches!(
            self,
            Self::Sum
                | Self::Least
                | Self::Greatest
                | Self::Join
                | Self::Split
                | Self::Sort
                | Self::Distinct
                | Self::Flatten
        )
    }

    pub(super) fn is_never_bool(self) -> bool {
        !matches!(
            self,
            Self::Contains
                | Self::StartsWith
                | Self::EndsWith
                | Self::Bool
                | Self::Dyn
                | Self::Least
                | Self::Greatest
        )
    }

    /// Calls a function that [`super::lists`] does not have. Returns a message if the call fails.
    pub(super) fn call<'a>(self, arguments: &[Val<'a>]) -> Result<Val<'a>, String> {
        match (self, arguments) {
            (Self::Size, [operand]) => size_of(operand),
            (Self::Type, [operand]) => Ok(Val::Type(operand.kind())),
            (Self::Dyn, [operand]) => Ok(operand.clone()),
            (Self::Contains, [Val::Text(operand), Val::Text(part)]) => {
                Ok(Val::Bool(operand.contains(&**part)))
            }
            (Self::StartsWith, [Val::Text(operand), Val::Text(part)]) => {
                Ok(Val::Bool(operand.starts_with(&**part)))
            }
            (Self::EndsWith, [Val::Text(operand), Val::Text(part)]) => {
                Ok(Val::Bool(operand.ends_with(&**part)))
            }
            (Self::Contains, [Val::List(_), _]) => {
                Err("looks into strings; write `x in list` for lists".to_owned())
            }
            (Self::Contains | Self::StartsWith | Self::EndsWith, [operand, part]) => {
                Err(format!("needs two strings, and got {} and {}", operand.kind(), part.kind()))
            }
            (_, [operand]) => {
                self.convert(operand).unwrap_or_else(|| Err(conversion_error(operand)))
            }
            _ => Err("got too many or too few arguments".to_owned()),
        }
    }

    fn convert<'a>(self, operand: &Val<'a>) -> Option<Result<Val<'a>, String>> {
        Some(match (self, operand) {
            (Self::Integer, operand) => to_integer(operand)?.map(Val::Integer),
            (Self::Unsigned, operand) => match to_integer(operand)? {
                Ok(number) if number < 0 => Err(format!("`{number}` is negative")),
                number => number.map(Val::Integer),
            },
            (Self::Double, Val::Integer(value)) => {
                Ok(Val::Double(Number::Integer(*value).to_double()))
            }
            (Self::Double, Val::Double(value)) => Ok(Val::Double(*value)),
            (Self::Double, Val::Text(value)) => {
                value.parse().map(Val::Double).map_err(|_| describe_value(operand, "no number"))
            }
            (Self::Text, operand) => return convert_to_text(operand).map(Ok),
            (Self::Bool, Val::Bool(_))
            | (Self::Timestamp, Val::Time(_))
            | (Self::Duration, Val::Span(_)) => Ok(operand.clone()),
            (Self::Bool, Val::Text(text)) => match &**text {
                "true" => Ok(Val::Bool(true)),
                "false" => Ok(Val::Bool(false)),
                _ => Err(describe_value(operand, "neither `true` nor `false`")),
            },
            (Self::Timestamp, Val::Text(text)) => DateTime::parse_from_rfc3339(text)
                .map(|time| Val::Time(time.with_timezone(&Utc)))
                .map_err(|_| describe_value(operand, "not a time such as `2026-01-31T08:00:00Z`")),
            (Self::Timestamp, Val::Integer(seconds)) => i64::try_from(*seconds)
                .ok()
                .and_then(|seconds| DateTime::from_timestamp(seconds, 0))
                .map(Val::Time)
                .ok_or_else(|| format!("`{seconds}` seconds are outside the range of timestamps")),
            (Self::Duration, Val::Text(text)) => parse_duration(text)
                .map(Val::Span)
                .ok_or_else(|| describe_value(operand, "not a duration such as `1h30m`")),
            _ => return None,
        })
    }
}

pub(super) fn convert_to_text<'a>(operand: &Val<'a>) -> Option<Val<'a>> {
    Some(match operand {
        Val::Text(_) => operand.clone(),
        Val::Bool(value) => Val::from_text(value.to_string()),
        Val::Integer(value) => Val::from_text(value.to_string()),
        Val::Double(value) => Val::from_text(value.to_string()),
        Val::Time(value) => Val::from_text(format_time(*value)),
        _ => return None,
    })
}

pub(super) fn format_time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

fn size_of<'a>(operand: &Val<'a>) -> Result<Val<'a>, String> {
    let size = match operand {
        Val::Text(text) => text.chars().count(),
        Val::List(list) => list.len(),
        Val::Map(map) => map.len(),
        _ => {
            return Err(format!("needs a string, a list or an object, and got {}", operand.kind()));
        }
    };
    Ok(Val::Integer(size as i128))
}

fn to_integer(operand: &Val<'_>) -> Option<Result<i128, String>> {
    let found = match operand {
        Val::Integer(number) => Some(*number),
        Val::Double(number) => Number::Double(*number).whole_part(),
        Val::Text(text) => text.parse().ok().and_then(number::checked_integer),
        Val::Time(time) => Some(time.timestamp().into()),
        _ => return None,
    };
    Some(found.ok_or_else(|| describe_value(operand, "not a 64-bit integer")))
}

/// Parses a duration as Go and CEL write it: numbers with units, such as `1h30m`, `1.5s` or
/// `-20ms`.
fn parse_duration(text: &str) -> Option<TimeDelta> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut sum = TimeDelta::zero();
    loop {
        let end = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (count, after) = rest.split_at(end);
        let end = after.find(|char: char| char.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let nanos = match unit {
            "h" => 3_600e9,
            "m" => 60e9,
            "s" => 1e9,
            "ms" => 1e6,
            "us" => 1e3,
            "ns" => 1.0,
            _ => return None,
        };
        let nanos = Number::Double((count.parse::<f64>().ok()? * nanos).round()).whole_part()?;
        sum = sum.checked_add(&TimeDelta::nanoseconds(i64::try_from(nanos).ok()?))?;
        rest = after;
        if rest.is_empty() {
            return Some(if negative { -sum } else { sum });
        }
    }
}

fn conversion_error(operand: &Val<'_>) -> String {
    format!("cannot convert {}", operand.kind())
}

fn describe_value(operand: &Val<'_>, property: &str) -> String {
    match operand {
        Val::Text(text) => {
            let excerpt: String = text.chars().take(40).collect();
            let more = if excerpt.len() < text.len() { "…" } else { "" };
            format!("`{excerpt}{more}` is {property}")
        }
        Val::Double(number) => format!("`{number}` is {property}"),
        _ => format!("{} is {property}", operand.kind()),
    }
}
