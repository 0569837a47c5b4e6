//! Texts with calls, texts without calls, and the time to read them.

mod forms;
mod linear;
mod properties;
mod quirks;
mod seed;
mod sentences;
mod told;
mod tools;

use serde_json::{Value, json};

use super::{CallFormat, CatalogNames, TooMuch, ToolCall, parse_tool_calls, source::Reading};

fn calls(text: &str) -> Vec<ToolCall> {
    let names = CatalogNames::new(tools::catalog());
    parse_tool_calls(text, &|name| names.find(name)).expect("the text is small")
}

/// The calls of a text as JSON: tool, arguments, format.
fn read(text: &str) -> Value {
    calls(text).iter().map(|call| json!([call.tool, call.args, call.format.as_str()])).collect()
}

/// Expects one call.
fn check(text: &str, tool: &str, args: Value, format: CallFormat) {
    let expected = vec![Value::from(tool), args, Value::from(format.as_str())];
    assert_eq!(read(text), Value::from(vec![Value::from(expected)]), "{text}");
}

/// Expects no call.
fn check_none(text: &str) {
    assert_eq!(read(text), json!([]), "{text}");
}

/// Reads a text and returns the calls, and how often a byte was looked at.
fn read_counting(text: &str) -> (Result<Vec<ToolCall>, TooMuch>, usize) {
    let names = CatalogNames::new(tools::catalog());
    let known = |name: &str| names.find(name);
    let reading = Reading::new(text, &known);
    let calls = super::scan::scan_calls(&reading);
    (calls, reading.source.steps())
}
