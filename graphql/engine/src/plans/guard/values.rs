use std::collections::BTreeSet;

use offline::Wording;
use serde_json::Value;

const MAX_SHOWN_CHARS: usize = 200;
const MAX_EARLIER_VALUES: usize = 10_000;

/// Collects texts and numbers with their paths. Omits values that the schema itself contains, such
/// as members of an `enum` and defaults.
pub(super) fn collect_values(
    value: &Value,
    schema: &Value,
    path: String,
    found: &mut Vec<(String, String)>,
) {
    let is_given = |schema: &Value| {
        schema["enum"].as_array().is_some_and(|known| known.contains(value))
            || schema.get("default").or_else(|| schema.get("const")) == Some(value)
    };
    let options = ["anyOf", "oneOf"].into_iter().filter_map(|key| schema[key].as_array());
    if is_given(schema) || options.flatten().any(is_given) {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect_values(value, &schema["properties"][name], format!("{path}.{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect_values(value, &schema["items"], format!("{path}[{index}]"), found);
            }
        }
        Value::String(text) => found.push((path, text.clone())),
        Value::Number(figure) => found.push((path, figure.to_string())),
        Value::Bool(_) | Value::Null => {}
    }
}

pub(super) fn add_texts(value: &Value, texts: &mut BTreeSet<String>) {
    if texts.len() >= MAX_EARLIER_VALUES {
        return;
    }
    match value {
        Value::String(text) => drop(texts.insert(text.clone())),
        Value::Number(figure) => drop(texts.insert(figure.to_string())),
        Value::Array(items) => items.iter().for_each(|item| add_texts(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| add_texts(field, texts)),
        Value::Bool(_) | Value::Null => {}
    }
}

/// Returns whether a query contains a value. A composed text, such as the body of a mail, needs
/// fewer of its words, but always its exact words, such as ids and numbers. `query` is in lower
/// case with single spaces.
pub(super) fn contains_value(
    query: &str,
    wording: &Wording<'_>,
    text: &str,
    is_composed: impl FnOnce() -> bool,
) -> bool {
    let text = to_lowercase_words(text);
    let says = |part: &str| {
        has_phrase(query, part, char::is_alphanumeric)
            || part.bytes().all(|byte| byte.is_ascii_digit())
                && has_phrase(query, part, |char| char.is_ascii_digit())
            || wording.says_figure(part)
    };
    if text.is_empty() || says(&text) {
        return true;
    }
    let words: Vec<String> = words_outside_templates(&text).collect();
    let said_count = words.iter().filter(|word| says(word)).count();
    if words.iter().any(|word| needs_exact_match(word) && !says(word)) {
        return false;
    }
    text.contains("{{")
        || said_count == words.len()
        || said_count > 0 && said_count * 2 >= words.len() && is_composed()
}

/// Returns the words of a text outside templates, in lower case, without punctuation at their ends.
pub(super) fn words_outside_templates(text: &str) -> impl Iterator<Item = String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("{{") {
        plain.push_str(before);
        plain.push(' ');
        rest = behind.split_once("}}").map_or("", |(_, behind)| behind);
    }
    plain.push_str(rest);
    let is_mark = |char: char| !char.is_alphanumeric();
    let words: Vec<String> = plain
        .split_whitespace()
        .map(|word| word.trim_matches(is_mark).to_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    words.into_iter()
}

/// Returns whether a word looks like an address, a path, an id or a number. A query must contain
/// such a word exactly.
fn needs_exact_match(word: &str) -> bool {
    word.contains(|char: char| char.is_ascii_digit() || "@/\\_.:".contains(char))
}

pub(super) fn to_lowercase_words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase().replace('’', "'")
}

fn has_phrase(text: &str, phrase: &str, is_inside: impl Fn(char) -> bool) -> bool {
    text.match_indices(phrase).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let behind = text[start + phrase.len()..].chars().next();
        !before.is_some_and(&is_inside) && !behind.is_some_and(&is_inside)
    })
}

pub(super) fn shorten(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
