//! What is written as programs write it: lists, objects, formulas.

use serde_json::Value;

use super::{
    phrase::PHRASE,
    span::{Reader, Said},
    token::{self, Kind},
    value,
};

impl Reader<'_> {
    /// Reads `[…]`, `{…}` and, where a slot takes several numbers, `(…)`.
    pub(super) fn bracket(&mut self, at: usize) -> Option<usize> {
        let token = &self.tokens[at];
        let close = match token.value.as_str() {
            "[" => "]",
            "(" => ")",
            text if text.starts_with('{') && token.kind != Kind::Quoted => "}",
            _ => return None,
        };
        if token.kind != Kind::Mark && close != "}" {
            return None;
        }
        let start = token.start;
        let end = matching(&self.query[start..], &token.value[..1], close)? + start;
        let last = self.tokens.iter().rposition(|it| it.start < end)?;
        let raw = &self.query[start..end];
        let said = match close {
            "}" => Said::Object(object(raw)?),
            "]" => Said::Values(list(raw)?),
            _ => {
                let values = list(raw)?;
                let is_fit = values.len() > 1 && values.iter().all(Value::is_number);
                is_fit.then_some(Said::Values(values))?
            }
        };
        if matches!(said, Said::Values(_)) && !self.frame.has_list() {
            return None;
        }
        self.push(at, last + 1, said);
        Some(last + 1)
    }

    /// Returns where something to compute ends that begins at `at`.
    pub(super) fn formula(&self, at: usize) -> Option<usize> {
        if !self.frame.slots.iter().any(|it| it.traits.is_formula) {
            return None;
        }
        let mut end = at;
        let mut is_one = false;
        while let Some(token) = self.tokens.get(end) {
            let text = token.value.as_str();
            let is_term = text.len() <= 12
                && text.bytes().any(|it| it.is_ascii_alphanumeric())
                && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"^*+-/().".contains(&it))
                && (text.contains('^')
                    || !text
                        .bytes()
                        .zip(text.bytes().skip(1))
                        .any(|(a, b)| a.is_ascii_alphabetic() && b.is_ascii_alphabetic())
                    || ["sin", "cos", "tan", "log", "ln", "exp", "sqrt"]
                        .iter()
                        .any(|it| text.starts_with(it)))
                && !(end == at && matches!(text, "a" | "A" | "I"));
            let is_operator = end > at
                && token.kind == Kind::Mark
                && matches!(text, "+" | "-" | "*" | "/" | "^" | "(" | ")");
            if !is_term && !is_operator {
                break;
            }
            is_one |= is_operator && text != "(" && text != ")"
                || text.contains('^')
                || text.contains('*');
            end += 1;
        }
        while end > at
            && self.tokens[end - 1].kind == Kind::Mark
            && !self.tokens[end - 1].is_mark(")")
        {
            end -= 1;
        }
        let has_variable = self.tokens[at..end]
            .iter()
            .any(|it| it.value.bytes().any(|it| it.is_ascii_alphabetic()));
        (is_one && has_variable && end > at).then_some(end)
    }
}

/// Returns where the bracket that opens `text` closes, behind it.
fn matching(text: &str, open: &str, close: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, char) in text.char_indices().take(4096) {
        let char = char.to_string();
        if char == open {
            depth += 1;
        } else if char == close {
            depth -= 1;
            if depth == 0 {
                return Some(at + close.len());
            }
        }
    }
    None
}

/// Reads a list as programs and people write it.
fn list(raw: &str) -> Option<Vec<Value>> {
    let inner = raw.get(1..raw.len() - 1)?;
    let json = format!("[{}]", inner.replace('\'', "\"").replace('(', "[").replace(')', "]"));
    if let Ok(Value::Array(items)) = serde_json::from_str(&json) {
        return Some(items.into_iter().map(plain).collect());
    }
    let items: Vec<&str> = inner.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    let is_fit =
        !items.is_empty() && items.iter().all(|it| it.split_whitespace().count() <= PHRASE);
    is_fit.then(|| {
        let read = |it: &&str| {
            let it = it.trim_matches(['"', '\'', '“', '”']);
            token::number(it).map_or_else(|| value::literal(it), Value::Number)
        };
        items.iter().map(read).collect()
    })
}

/// Makes texts literal: braces that a person wrote are no template.
fn plain(value: Value) -> Value {
    match value {
        Value::String(text) => value::literal(&text),
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, it)| (name, plain(it))).collect())
        }
        other => other,
    }
}

fn object(raw: &str) -> Option<Value> {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
    read(raw).or_else(|| read(&raw.replace('\'', "\""))).map(plain)
}
