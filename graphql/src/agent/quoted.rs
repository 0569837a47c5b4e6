//! Calls that a model only quotes: what it was told may look like one, and so may an example.
//!
//! A model that calls tools in the way of its provider speaks of them in its words. Some models
//! write their calls there all the same, so those are looked for; but only where a reply is nothing
//! but calls, and none that a tool returned: else whoever wrote a file, or a page, could have calls
//! made by having them quoted.

use std::borrow::Cow;

use planner::calls::{CatalogNames, ToolCall, parse_tool_calls};
use serde_json::Value;

/// Returns whether a reply is nothing but its calls, but for a fence around them.
pub(super) fn is_nothing_but(text: &str, calls: &[ToolCall]) -> bool {
    let (Some(first), Some(last)) = (calls.first(), calls.last()) else { return false };
    let text = without_thoughts(text);
    let Some(begin) = text.find(&first.raw) else { return false };
    let Some(end) = text.rfind(&last.raw).map(|it| it + last.raw.len()) else { return false };
    let before = text[..begin].trim_start();
    let before = before.strip_prefix("```").map_or(before, |it| {
        it.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_')
    });
    let after = text.get(end..).unwrap_or_default().trim_start();
    let after = after.strip_prefix("```").unwrap_or(after);
    // What wraps calls begins as they do.
    let is_wrapping =
        |it: &str, with: [char; 3]| it.trim().is_empty() || it.trim().starts_with(with);
    is_wrapping(before, ['{', '[', '<']) && is_wrapping(after, ['}', ']', '<'])
}

/// Returns whether a call stands in something that tools returned.
pub(super) fn is_told(call: &ToolCall, told: &[Cow<'_, str>], names: &CatalogNames<'_>) -> bool {
    let raw = squeezed(&call.raw);
    told.iter().any(|text| {
        let is_same = |it: &ToolCall| (&it.tool, &it.args) == (&call.tool, &call.args);
        squeezed(text).contains(&raw)
            || parse_tool_calls(text, &|it| names.find(it)).is_ok_and(|it| it.iter().any(is_same))
    })
}

/// Returns whether a call stands in something that tools returned, letter by letter.
pub(super) fn is_repeated(call: &ToolCall, told: &[Cow<'_, str>]) -> bool {
    let raw = squeezed(&call.raw);
    told.iter().any(|text| squeezed(text).contains(&raw))
}

/// Returns the texts of a value, and all of it as text: each may be what is quoted.
pub(super) fn texts<'a>(value: &'a Value, found: &mut Vec<Cow<'a, str>>) {
    match value {
        Value::String(text) => found.push(text.into()),
        Value::Array(items) => items.iter().for_each(|it| texts(it, found)),
        Value::Object(fields) => {
            found.push(value.to_string().into());
            fields.values().for_each(|it| texts(it, found));
        }
        _ => (),
    }
}

/// Returns a text without what its author only thinks, at its beginning.
fn without_thoughts(text: &str) -> &str {
    let text = text.trim();
    let Some((tag, rest)) = text.strip_prefix('<').and_then(|it| it.split_once('>')) else {
        return text;
    };
    if !matches!(tag, "think" | "thinking") {
        return text;
    }
    rest.split_once(&format!("</{tag}>")).map_or(text, |(_, behind)| behind.trim())
}

/// Returns a text without blanks, by which JSON that was written anew may differ.
fn squeezed(text: &str) -> String {
    text.chars().filter(|it| !it.is_whitespace()).collect()
}
