//! The functions that a condition may call.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::{
    number::{self, Number},
    value::Val,
};

/// A function whose arguments are all looked at.
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
}

/// Whether a function is called as `f(x)` or as `x.f()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Method,
}

/// Every function: how it is called, and with how many arguments, what it is called on included.
const FUNCTIONS: [(&str, Function, &[Style], usize); 13] = [
    ("size", Function::Size, &[Style::Plain, Style::Method], 1),
    ("contains", Function::Contains, &[Style::Method], 2),
    ("startsWith", Function::StartsWith, &[Style::Method], 2),
    ("endsWith", Function::EndsWith, &[Style::Method], 2),
    ("int", Function::Integer, &[Style::Plain], 1),
    ("uint", Function::Unsigned, &[Style::Plain], 1),
    ("double", Function::Double, &[Style::Plain], 1),
    ("string", Function::Text, &[Style::Plain], 1),
    ("bool", Function::Bool, &[Style::Plain], 1),
    ("type", Function::Type, &[Style::Plain], 1),
    ("dyn", Function::Dyn, &[Style::Plain], 1),
    ("timestamp", Function::Timestamp, &[Style::Plain], 1),
    ("duration", Function::Duration, &[Style::Plain], 1),
];

impl Function {
    /// Returns the function called `name` in this style, and how many arguments it takes.
    pub(super) fn named(name: &str, style: Style) -> Option<(Self, usize)> {
        let found = FUNCTIONS.iter().find(|it| it.0 == name && it.2.contains(&style))?;
        Some((found.1, found.3))
    }

    /// Returns how it is written.
    pub(super) fn name(self) -> &'static str {
        FUNCTIONS.iter().find(|it| it.1 == self).map_or("", |it| it.0)
    }

    /// Returns whether it never gives `true` or `false`.
    pub(super) fn is_never_bool(self) -> bool {
        !matches!(self, Self::Contains | Self::StartsWith | Self::EndsWith | Self::Bool | Self::Dyn)
    }

    /// Calls it with as many arguments as it takes. Err: why there is no result.
    pub(super) fn call<'a>(self, arguments: &[Val<'a>]) -> Result<Val<'a>, String> {
        match (self, arguments) {
            (Self::Size, [of]) => size(of),
            (Self::Type, [of]) => Ok(Val::Type(of.kind())),
            (Self::Dyn, [of]) => Ok(of.clone()),
            (Self::Contains, [Val::Text(of), Val::Text(part)]) => {
                Ok(Val::Bool(of.contains(&**part)))
            }
            (Self::StartsWith, [Val::Text(of), Val::Text(part)]) => {
                Ok(Val::Bool(of.starts_with(&**part)))
            }
            (Self::EndsWith, [Val::Text(of), Val::Text(part)]) => {
                Ok(Val::Bool(of.ends_with(&**part)))
            }
            (Self::Contains, [Val::List(_), _]) => {
                Err("looks into strings; write `x in list` for lists".to_owned())
            }
            (Self::Contains | Self::StartsWith | Self::EndsWith, [of, part]) => {
                Err(format!("needs two strings, and got {} and {}", of.kind(), part.kind()))
            }
            (_, [of]) => self.convert(of).unwrap_or_else(|| Err(unfit(of))),
            _ => Err("got too many or too few arguments".to_owned()),
        }
    }

    /// Converts `of`; nothing if values of its kind cannot be.
    fn convert<'a>(self, of: &Val<'a>) -> Option<Result<Val<'a>, String>> {
        Some(match (self, of) {
            (Self::Integer, of) => whole(of)?.map(Val::Integer),
            (Self::Unsigned, of) => match whole(of)? {
                Ok(it) if it < 0 => Err(format!("`{it}` is negative")),
                it => it.map(Val::Integer),
            },
            (Self::Double, Val::Integer(it)) => Ok(Val::Double(Number::Integer(*it).double())),
            (Self::Double, Val::Double(it)) => Ok(Val::Double(*it)),
            (Self::Double, Val::Text(it)) => {
                it.parse().map(Val::Double).map_err(|_| shown(of, "no number"))
            }
            (Self::Text, Val::Text(_))
            | (Self::Bool, Val::Bool(_))
            | (Self::Timestamp, Val::Time(_))
            | (Self::Duration, Val::Span(_)) => Ok(of.clone()),
            (Self::Text, Val::Bool(it)) => Ok(Val::text(it.to_string())),
            (Self::Text, Val::Integer(it)) => Ok(Val::text(it.to_string())),
            (Self::Text, Val::Double(it)) => Ok(Val::text(it.to_string())),
            (Self::Text, Val::Time(it)) => {
                Ok(Val::text(it.to_rfc3339_opts(SecondsFormat::AutoSi, true)))
            }
            (Self::Bool, Val::Text(it)) => match &**it {
                "true" => Ok(Val::Bool(true)),
                "false" => Ok(Val::Bool(false)),
                _ => Err(shown(of, "neither `true` nor `false`")),
            },
            (Self::Timestamp, Val::Text(it)) => DateTime::parse_from_rfc3339(it)
                .map(|it| Val::Time(it.with_timezone(&Utc)))
                .map_err(|_| shown(of, "no time such as `2026-01-31T08:00:00Z`")),
            (Self::Timestamp, Val::Integer(it)) => i64::try_from(*it)
                .ok()
                .and_then(|it| DateTime::from_timestamp(it, 0))
                .map(Val::Time)
                .ok_or_else(|| format!("`{it}` seconds are beyond all time")),
            (Self::Duration, Val::Text(it)) => {
                span(it).map(Val::Span).ok_or_else(|| shown(of, "no duration such as `1h30m`"))
            }
            _ => return None,
        })
    }
}

fn size<'a>(of: &Val<'a>) -> Result<Val<'a>, String> {
    let size = match of {
        Val::Text(it) => it.chars().count(),
        Val::List(it) => it.len(),
        Val::Map(it) => it.len(),
        _ => return Err(format!("needs a string, a list or an object, and got {}", of.kind())),
    };
    Ok(Val::Integer(size as i128))
}

/// Returns the integer that `of` means; nothing if values of its kind mean none.
fn whole(of: &Val<'_>) -> Option<Result<i128, String>> {
    let found = match of {
        Val::Integer(it) => Some(*it),
        Val::Double(it) => Number::Double(*it).whole_part(),
        Val::Text(it) => it.parse().ok().and_then(number::integer),
        Val::Time(it) => Some(it.timestamp().into()),
        _ => return None,
    };
    Some(found.ok_or_else(|| shown(of, "no integer of 64 bits")))
}

/// Reads what Go and CEL write: numbers with units, `1h30m`, `1.5s`, `-20ms`.
fn span(text: &str) -> Option<TimeDelta> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut sum = TimeDelta::zero();
    loop {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (count, after) = rest.split_at(end);
        let end = after.find(|it: char| it.is_ascii_digit()).unwrap_or(after.len());
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

fn unfit(of: &Val<'_>) -> String {
    format!("cannot convert {}", of.kind())
}

/// Says what is wrong with a value, and shows the beginning of it.
fn shown(of: &Val<'_>, what: &str) -> String {
    match of {
        Val::Text(it) => {
            let shown: String = it.chars().take(40).collect();
            let more = if shown.len() < it.len() { "…" } else { "" };
            format!("`{shown}{more}` is {what}")
        }
        Val::Double(it) => format!("`{it}` is {what}"),
        _ => format!("{} is {what}", of.kind()),
    }
}
