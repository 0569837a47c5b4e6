mod forms;
mod linear;
mod predecessor_inputs;
mod properties;
mod quirks;
mod sentences;
mod told;
mod tools;

use serde_json::{Value, json};

use super::{
    CallFormat, CatalogNames, LimitExceeded, ToolCall, parse_tool_calls, source::CallReader,
};

fn parse_calls(text: &str) -> Vec<ToolCall> {
    let names = CatalogNames::new(tools::catalog());
    parse_tool_calls(text, &|name| names.find(name)).expect("the text is small")
}

fn calls_as_json(text: &str) -> Value {
    parse_calls(text)
        .iter()
        .map(|call| json!([call.tool, call.args, call.format.as_str()]))
        .collect()
}

fn check_only_call(text: &str, tool: &str, args: Value, format: CallFormat) {
    let expected = vec![Value::from(tool), args, Value::from(format.as_str())];
    assert_eq!(calls_as_json(text), Value::from(vec![Value::from(expected)]), "{text}");
}

fn check_none(text: &str) {
    assert_eq!(calls_as_json(text), json!([]), "{text}");
}

fn parse_and_count_reads(text: &str) -> (Result<Vec<ToolCall>, LimitExceeded>, usize) {
    let names = CatalogNames::new(tools::catalog());
    let known = |name: &str| names.find(name);
    let reading = CallReader::new(text, &known);
    let calls = super::scan::scan_calls(&reading);
    (calls, reading.source.steps())
}
