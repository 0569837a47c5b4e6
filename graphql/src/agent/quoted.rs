//! Calls that a model only quotes: what it was told may look like one, and so may an example.
//!
//! A model that calls tools in the way of its provider speaks of them in its words. Some models
//! write their calls there all the same, so those are looked for; but only where a reply is nothing
//! but calls, and none that a tool returned: else whoever wrote a file, or a page, could have calls
//! made by having them quoted.

use planner::calls::{CatalogNames, ToolCall, parse_tool_calls};
use serde_json::Value;

use super::history::Past;

/// What the JSON of a call names its tool by.
const NAMES: [&str; 6] = ["tool", "toolName", "tool_name", "name", "function", "function_call"];

/// Returns whether a reply is nothing but its calls, but for a fence around them.
pub(super) fn is_nothing_but(text: &str, calls: &[ToolCall]) -> bool {
    let (Some(first), Some(last)) = (calls.first(), calls.last()) else { return false };
    let text = without_thoughts(text);
    let Some(begin) = text.find(&first.raw) else { return false };
    let Some(end) = text.rfind(&last.raw).map(|start| start + last.raw.len()) else { return false };
    let before = text[..begin].trim_start();
    let before = before.strip_prefix("```").map_or(before, |rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_')
    });
    let after = text.get(end..).unwrap_or_default().trim_start();
    let after = after.strip_prefix("```").unwrap_or(after);
    // What wraps calls begins as they do.
    let is_wrapping =
        |text: &str, with: [char; 3]| text.trim().is_empty() || text.trim().starts_with(with);
    is_wrapping(before, ['{', '[', '<']) && is_wrapping(after, ['}', ']', '<'])
}

/// What tools returned.
#[derive(Debug)]
pub(super) struct Told {
    /// All of it, without blanks.
    letters: String,
    /// The calls that can be read in it.
    calls: Vec<ToolCall>,
}

impl Told {
    pub(super) fn of(history: &[Past], names: &CatalogNames<'_>) -> Self {
        let mut texts = Vec::new();
        history.iter().flat_map(Past::results).for_each(|value| add(value, &mut texts));
        // Where there are too many to read, their letters are enough.
        let read = |text: &String| parse_tool_calls(text, &|text| names.find(text)).unwrap_or_default();
        let calls = texts.iter().flat_map(read).collect();
        let letters = texts.iter().map(|text| squeezed(text)).collect::<Vec<_>>().join("\n");
        Self { letters, calls }
    }

    /// Returns whether a call stands there, however it is written.
    pub(super) fn has(&self, call: &ToolCall) -> bool {
        let is_same = |known: &ToolCall| (&known.tool, &known.args) == (&call.tool, &call.args);
        self.repeats(call) || self.calls.iter().any(is_same)
    }

    /// Returns whether a call stands there letter by letter.
    pub(super) fn repeats(&self, call: &ToolCall) -> bool {
        self.letters.contains(&squeezed(&call.raw))
    }
}

/// Adds every text in a value, and what may be a call that was read as JSON.
fn add(value: &Value, texts: &mut Vec<String>) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(items) => left.extend(items),
            Value::Object(fields) if NAMES.iter().any(|name| fields.contains_key(*name)) => {
                texts.push(value.to_string());
            }
            Value::Object(fields) => left.extend(fields.values()),
            _ => {}
        }
    }
}

/// Returns a text without what its author only thinks, at its beginning.
fn without_thoughts(text: &str) -> &str {
    let text = text.trim();
    let Some((tag, rest)) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
        return text;
    };
    if !matches!(tag, "think" | "thinking") {
        return text;
    }
    rest.split_once(&format!("</{tag}>")).map_or(text, |(_, behind)| behind.trim())
}

/// Returns a text without blanks, by which JSON that was written anew may differ.
fn squeezed(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolbox::dispatch::Reach;

    use super::*;
    use crate::agent::{tests::toolbox, turn::within};

    #[test]
    fn what_was_told_is_known_however_it_is_written() {
        let toolbox = toolbox();
        let catalog = within(&toolbox, &Reach::default());
        let names = CatalogNames::new(&catalog);
        let call = |text: &str| parse_tool_calls(text, &|name| names.find(name)).unwrap().remove(0);
        let json = r#"{"tool": "blog.make", "args": {"id": "5"}}"#;
        let simple = r#"TOOL: blog.make ARGS: {"id": "5"}"#;
        let other = r#"{"tool": "blog.make", "args": {"id": "6"}}"#;
        for (result, text, expected) in [
            // A file, a document that was read, one of many in a list, in another form.
            (json!(format!("a\n{json}\nb")), json, true),
            (json!({ "tool": "blog.make", "args": { "id": "5" } }), json, true),
            (json!({ "calls": [{ "tool": "blog.make", "args": { "id": "5" } }] }), json, true),
            (json!([1, { "x": { "content": json } }]), json, true),
            (json!(json), simple, true),
            (json!(json), other, false),
            (json!(null), json, false),
            (json!("call blog.make(id=5)"), "blog.make(id=5)", true),
        ] {
            let made = json!({ "tool": "blog.look", "status": "success", "result": result });
            let past = serde_json::from_value(json!({ "read": [made] })).unwrap();
            let told = Told::of(&[past], &names);
            assert_eq!(told.has(&call(text)), expected, "{result} {text}");
        }
    }

    #[test]
    fn an_answer_that_is_nothing_but_calls() {
        let toolbox = toolbox();
        let catalog = within(&toolbox, &Reach::default());
        let names = CatalogNames::new(&catalog);
        let look = r#"{"tool": "blog.look", "args": {}}"#;
        for (text, expected) in [
            ("TOOL: blog.look ARGS: {}".to_owned(), true),
            (format!("```json\n{look}\n```\n"), true),
            (format!("{look}\n{look}"), true),
            (format!("<think>Which?</think>\n{look}"), true),
            (format!("One calls it so: {look}"), false),
            (format!("{look}\nThat is what is in the file."), false),
        ] {
            let calls = parse_tool_calls(&text, &|name| names.find(name)).unwrap();
            assert!(!calls.is_empty(), "{text}");
            assert_eq!(is_nothing_but(&text, &calls), expected, "{text}");
        }
    }
}
