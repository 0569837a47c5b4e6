//! What words are worth: the value that a parameter's type makes of them.

use serde_json::{Number, Value};

use super::{
    property::{Property, Role},
    token::{self, Kind, Token},
};

/// Words that mean yes.
const YES: &[&str] = &["true", "yes", "on", "enabled"];
/// Words that mean no.
const NO: &[&str] = &["false", "no", "off", "disabled", "not"];

/// Returns a text as a literal: braces that a person wrote are not a template.
pub(super) fn literal(text: &str) -> Value {
    Value::String(text.replace("{{", "{{{{"))
}

/// Returns what a range of words says, as it was written; one quotation says what is in it.
pub(super) fn text(query: &str, tokens: &[Token]) -> Option<String> {
    let tokens = &tokens[..contiguous(query, tokens)];
    match tokens {
        [] => None,
        [one] => Some(one.value.clone()),
        [first, .., last] => {
            let text = query.get(first.start..last.end)?;
            Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
        }
    }
    .filter(|it| !it.trim().is_empty())
}

/// Returns how many words stand together in the query: a clause for one of several things
/// leaves out what is said of the others.
pub(super) fn contiguous(query: &str, tokens: &[Token]) -> usize {
    let is_gap = |pair: &[Token]| match pair {
        [a, b] => query.get(a.end..b.start).is_none_or(|it| !it.trim().is_empty()),
        _ => false,
    };
    tokens.windows(2).position(is_gap).map_or(tokens.len(), |it| it + 1)
}

/// Returns the number that a token says.
pub(super) fn number(token: &Token) -> Option<Number> {
    match token.kind {
        Kind::Number => token::number(&token.value),
        Kind::Word => token::small_number(&token.lower).map(Number::from),
        Kind::Quoted => token::number(token.value.trim()),
        _ => None,
    }
}

/// Returns a number as a parameter's type has it.
pub(super) fn typed_number(number: Number, role: Role) -> Option<Value> {
    let is_whole = number.is_i64() || number.is_u64();
    (role != Role::Integer || is_whole).then_some(Value::Number(number))
}

/// Returns yes or no, where a token says one.
pub(super) fn truth(token: &Token) -> Option<bool> {
    if YES.contains(&token.lower.as_str()) {
        Some(true)
    } else if NO.contains(&token.lower.as_str()) {
        Some(false)
    } else {
        None
    }
}

/// Returns which listed value the words begin with, and how many words it takes.
pub(super) fn one_of(values: &[Value], tokens: &[Token]) -> Option<(Value, usize)> {
    let fits = values.iter().filter_map(|value| {
        let written = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let parts: Vec<String> = written
            .split(|it: char| !it.is_alphanumeric() && it != '.')
            .map(str::to_lowercase)
            .filter(|it| !it.is_empty())
            .collect();
        let whole = tokens.first().is_some_and(|it| it.lower == written.to_lowercase());
        let joined = parts.len() <= tokens.len()
            && !parts.is_empty()
            && parts.iter().zip(tokens).all(|(a, b)| *a == b.lower);
        match (whole, joined) {
            (true, _) => Some((value.clone(), 1)),
            (_, true) => Some((value.clone(), parts.len())),
            _ => None,
        }
    });
    fits.max_by_key(|(_, len)| *len)
}

/// Returns an identifier as a parameter's type has it, where a token can be one.
pub(super) fn id(property: &Property, token: &Token) -> Option<Value> {
    let written = token.value.trim_start_matches('#');
    if property.is_number {
        return number(token).filter(|it| it.is_i64() || it.is_u64()).map(Value::Number);
    }
    is_id_like(token).then(|| literal(written))
}

/// Returns whether a token can be an identifier: it has a digit or is nothing else.
pub(super) fn is_id_like(token: &Token) -> bool {
    match token.kind {
        Kind::Id | Kind::Number => true,
        Kind::Word => token.value.bytes().any(|it| it.is_ascii_digit()),
        _ => false,
    }
}

/// Returns the items that a range of words lists.
pub(super) fn list(query: &str, tokens: &[Token], property: &Property) -> Option<Value> {
    let items: Vec<Value> = tokens
        .split(|it| it.is_separator() || it.is_mark(";"))
        .filter(|it| !it.is_empty())
        .map(|item| {
            let item: Vec<Token> =
                item.iter().filter(|it| it.kind != Kind::Mark).cloned().collect();
            one_item(query, &item, property)
        })
        .collect::<Option<_>>()?;
    (!items.is_empty()).then_some(Value::Array(items))
}

fn one_item(query: &str, item: &[Token], property: &Property) -> Option<Value> {
    match property.item {
        Role::Number | Role::Integer => {
            item.iter().find_map(number).and_then(|it| typed_number(it, property.item))
        }
        Role::Bool => item.iter().find_map(truth).map(Value::Bool),
        Role::Enum => one_of(&property.values, item).map(|(value, _)| value),
        Role::Email => item.iter().find(|it| it.kind == Kind::Email).map(|it| literal(&it.value)),
        Role::List | Role::Other => None,
        _ => text(query, item).map(|it| literal(&it)),
    }
}
