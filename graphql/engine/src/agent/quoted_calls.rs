//! Detects calls in a model's text that only quote the result of a tool. Otherwise the author of a
//! file or a page could make the agent call tools.

use planner::calls::{CatalogNames, ToolCall, parse_tool_calls};
use serde_json::Value;

use super::history::PastTurn;

const TOOL_FIELDS: [&str; 6] =
    ["tool", "toolName", "tool_name", "name", "function", "function_call"];

/// Returns `true` if the text before the first call and after the last call is empty, or begins
/// with a bracket or a tag, as if it enclosed the calls. Ignores thoughts at the start, and a
/// fence.
pub(super) fn has_only_calls(text: &str, calls: &[ToolCall]) -> bool {
    let (Some(first), Some(last)) = (calls.first(), calls.last()) else { return false };
    let text = remove_thoughts(text);
    let Some(begin) = text.find(&first.raw) else { return false };
    let Some(end) = text.rfind(&last.raw).map(|start| start + last.raw.len()) else { return false };
    let before = text[..begin].trim_start();
    let before = before.strip_prefix("```").map_or(before, |rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_')
    });
    let after = text.get(end..).unwrap_or_default().trim_start();
    let after = after.strip_prefix("```").unwrap_or(after);
    // The text around the calls is allowed if it begins like a list, an object or tags that enclose
    // them.
    let is_wrapping =
        |text: &str, with: [char; 3]| text.trim().is_empty() || text.trim().starts_with(with);
    is_wrapping(before, ['{', '[', '<']) && is_wrapping(after, ['}', ']', '<'])
}

#[derive(Debug)]
pub(super) struct QuotedCalls {
    text_without_whitespace: String,
    calls: Vec<ToolCall>,
}

impl QuotedCalls {
    pub(super) fn find(history: &[PastTurn], names: &CatalogNames<'_>) -> Self {
        let mut texts = Vec::new();
        history.iter().flat_map(PastTurn::results).for_each(|value| add_texts(value, &mut texts));
        // Ignores a text with too many calls for the parser. `contains_literally` still finds the
        // calls of this text.
        let read =
            |text: &String| parse_tool_calls(text, &|text| names.find(text)).unwrap_or_default();
        let calls = texts.iter().flat_map(read).collect();
        let text_without_whitespace =
            texts.iter().map(|text| remove_whitespace(text)).collect::<Vec<_>>().join("\n");
        Self { text_without_whitespace, calls }
    }

    pub(super) fn contains(&self, call: &ToolCall) -> bool {
        let is_same = |known: &ToolCall| (&known.tool, &known.args) == (&call.tool, &call.args);
        self.contains_literally(call) || self.calls.iter().any(is_same)
    }

    pub(super) fn contains_literally(&self, call: &ToolCall) -> bool {
        self.text_without_whitespace.contains(&remove_whitespace(&call.raw))
    }
}

fn add_texts(value: &Value, texts: &mut Vec<String>) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(items) => left.extend(items),
            Value::Object(fields) if TOOL_FIELDS.iter().any(|name| fields.contains_key(*name)) => {
                texts.push(value.to_string());
            }
            Value::Object(fields) => left.extend(fields.values()),
            _ => {}
        }
    }
}

fn remove_thoughts(text: &str) -> &str {
    let text = text.trim();
    let Some((tag, rest)) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
        return text;
    };
    if !matches!(tag, "think" | "thinking") {
        return text;
    }
    rest.split_once(&format!("</{tag}>")).map_or(text, |(_, behind)| behind.trim())
}

fn remove_whitespace(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolbox::dispatch::ToolReach;

    use super::*;
    use crate::agent::{tests::make_toolbox, turn::active_catalog};

    #[test]
    fn a_call_quoted_from_a_result_is_recognised_in_any_format() {
        let toolbox = make_toolbox();
        let catalog = active_catalog(&toolbox, &ToolReach::default());
        let names = CatalogNames::new(&catalog);
        let call = |text: &str| parse_tool_calls(text, &|name| names.find(name)).unwrap().remove(0);
        let json = r#"{"tool": "blog.make", "args": {"id": "5"}}"#;
        let simple = r#"TOOL: blog.make ARGS: {"id": "5"}"#;
        let other = r#"{"tool": "blog.make", "args": {"id": "6"}}"#;
        for (result, text, expected) in [
            // The results: a file, a parsed document, a list of calls, a nested text, and a call in
            // another format.
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
            let quoted = QuotedCalls::find(&[past], &names);
            assert_eq!(quoted.contains(&call(text)), expected, "{result} {text}");
        }
    }

    #[test]
    fn an_answer_that_contains_only_calls_is_recognised() {
        let toolbox = make_toolbox();
        let catalog = active_catalog(&toolbox, &ToolReach::default());
        let names = CatalogNames::new(&catalog);
        let look = r#"{"tool": "blog.look", "args": {}}"#;
        for (text, expected) in [
            ("TOOL: blog.look ARGS: {}".to_owned(), true),
            (format!("```json\n{look}\n```\n"), true),
            (format!("{look}\n{look}"), true),
            (format!("<think>Which?</think>\n{look}"), true),
            (format!("One calls it so: {look}"), false),
            (format!("{look}\nThis is the content of the file."), false),
        ] {
            let calls = parse_tool_calls(&text, &|name| names.find(name)).unwrap();
            assert!(!calls.is_empty(), "{text}");
            assert_eq!(has_only_calls(&text, &calls), expected, "{text}");
        }
    }
}
