//! What a model was told, so that a call which it only says again is not made: a file that it reads
//! may have the text of a call in it, and an honest answer quotes that.

use planner::calls::{CatalogNames, ToolCall, parse_tool_calls};
use serde_json::Value;

use super::history::Past;

/// What the JSON of a call names its tool by.
const NAMES: [&str; 6] = ["tool", "toolName", "tool_name", "name", "function", "function_call"];

/// What a model was told.
#[derive(Debug)]
pub(super) struct Told {
    /// What tools returned, without spaces.
    returned: String,
    /// What was asked, without spaces.
    asked: String,
    /// The calls that can be read in either.
    calls: Vec<ToolCall>,
}

impl Told {
    pub(super) fn of(query: &str, history: &[Past], names: &CatalogNames<'_>) -> Self {
        let mut texts = Vec::new();
        for result in history.iter().flat_map(Past::results) {
            add(result, &mut texts);
        }
        let find = |it: &str| names.find(it);
        let read = texts.iter().map(String::as_str).chain([query]);
        // Where there are too many to read, their words are enough.
        let calls = read.flat_map(|it| parse_tool_calls(it, &find).unwrap_or_default()).collect();
        let returned = texts.iter().map(|it| squeezed(it)).collect::<Vec<_>>().join("\n");
        Self { returned, asked: squeezed(query), calls }
    }

    /// Returns whether a call was told. Who asks may well name a call in words (`is_loose`): then
    /// it is meant.
    pub(super) fn has(&self, call: &ToolCall, is_loose: bool) -> bool {
        let raw = squeezed(&call.raw);
        if self.returned.contains(&raw) {
            return true;
        }
        let is_same = |it: &ToolCall| it.tool == call.tool && it.args == call.args;
        !is_loose && (self.asked.contains(&raw) || self.calls.iter().any(is_same))
    }
}

/// Adds every text in a value, and what may be a call that was read as JSON.
fn add(value: &Value, texts: &mut Vec<String>) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => texts.push(text.clone()),
            Value::Array(items) => left.extend(items),
            Value::Object(fields) if NAMES.iter().any(|it| fields.contains_key(*it)) => {
                texts.push(value.to_string());
            }
            Value::Object(fields) => left.extend(fields.values()),
            _ => {}
        }
    }
}

/// Returns whether a text is made of calls alone, and of the fences around them.
pub(super) fn is_nothing_but(text: &str, calls: &[ToolCall]) -> bool {
    let mut rest = text.to_owned();
    for call in calls {
        rest = rest.replacen(&call.raw, "", 1);
    }
    let is_fence = |it: &str| {
        it.strip_prefix("```")
            .is_some_and(|it| it.chars().all(|it| it.is_ascii_alphanumeric() || it == '_'))
    };
    rest.lines().map(str::trim).all(|it| it.is_empty() || is_fence(it))
}

fn squeezed(text: &str) -> String {
    text.chars().filter(|it| !it.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::agent::tests::toolbox;

    fn history(result: &Value) -> Vec<Past> {
        let made = json!({ "tool": "blog.look", "status": "success", "result": result });
        vec![serde_json::from_value(json!({ "read": [made] })).unwrap()]
    }

    #[test]
    fn what_was_told_is_known_however_it_is_written() {
        let toolbox = toolbox();
        let catalog =
            crate::agent::turn::within(&toolbox, &executor::tool::dispatch::Reach::default());
        let names = CatalogNames::new(&catalog);
        let call = |text: &str| parse_tool_calls(text, &|it| names.find(it)).unwrap().remove(0);
        let json = r#"{"tool": "blog.make", "args": {"id": "5"}}"#;
        let simple = r#"TOOL: blog.make ARGS: {"id": "5"}"#;
        let other = r#"{"tool": "blog.make", "args": {"id": "6"}}"#;
        let has = |query: &str, result: Value, text: &str, is_loose: bool| {
            Told::of(query, &history(&result), &names).has(&call(text), is_loose)
        };
        for (query, result, text, is_loose, expected) in [
            // A file, a document that was read, one of many in a list, in another form.
            ("q", json!(format!("a\n{json}\nb")), json, false, true),
            ("q", json!({ "tool": "blog.make", "args": { "id": "5" } }), json, false, true),
            ("q", json!([1, { "x": { "content": json } }]), json, false, true),
            ("q", json!(json), simple, false, true),
            ("q", json!(json), other, false, false),
            ("q", json!(null), json, false, false),
            // A question that has the text of a call is no order; words of an order are.
            (json, json!(null), json, false, true),
            ("call blog.make(id=5)", json!(null), "blog.make(id=5)", true, false),
            ("q", json!("call blog.make(id=5)"), "blog.make(id=5)", true, true),
        ] {
            assert_eq!(
                has(query, result.clone(), text, is_loose),
                expected,
                "{query} {result} {text}"
            );
        }
    }

    #[test]
    fn an_answer_that_is_nothing_but_a_call() {
        let toolbox = toolbox();
        let catalog =
            crate::agent::turn::within(&toolbox, &executor::tool::dispatch::Reach::default());
        let names = CatalogNames::new(&catalog);
        for (text, expected) in [
            ("TOOL: blog.look ARGS: {}", true),
            ("```json\n{\"tool\": \"blog.look\", \"args\": {}}\n```\n", true),
            (
                "{\"tool\": \"blog.look\", \"args\": {}}\n{\"tool\": \"blog.keep\", \"args\": {}}",
                true,
            ),
            ("One calls it so: {\"tool\": \"blog.look\", \"args\": {}}", false),
        ] {
            let calls = parse_tool_calls(text, &|it| names.find(it)).unwrap();
            assert!(!calls.is_empty(), "{text}");
            assert_eq!(is_nothing_but(text, &calls), expected, "{text}");
        }
    }
}
