//! The prompt that describes tools to a model, and the report of a tool's result.

use std::fmt::Write as _;

use serde_json::{Value, json};
use shared::{id::ToolName, schema::Schema, tool::ToolDefinition};

use super::{
    known,
    sample::{flatten_schema, resolve_schema, sample},
};

/// Levels of a parameter that are described.
const MAX_DEPTH: usize = 2;
const MAX_FIELDS: usize = 24;
const MAX_PARAMETER_LINES: usize = 2_000;
const MAX_EXAMPLES_TRIED: usize = 16;
const CHOICES: usize = 4;

pub(super) const SUCCESSFUL: &str = "Tool execution successful:";
pub(super) const FAILED: &str = "Tool execution failed:";
/// The beginning of the last line of a report.
pub(super) const PLEASE: &str = "\nPlease provide a";

/// Writes the system prompt that teaches a model to call these tools. Empty without tools.
///
/// Each tool is listed with its description and parameters, because models guess missing facts. The
/// example calls one of the tools. The prompt uses display names.
pub fn tool_prompt<'a>(
    tools: impl IntoIterator<Item = &'a ToolDefinition>,
    shown: impl Fn(&ToolDefinition) -> ToolName,
) -> String {
    let tools: Vec<_> = tools.into_iter().map(|tool| (shown(tool), tool)).collect();
    if tools.is_empty() {
        return String::new();
    }
    let mut prompt = "You have access to the following tools:\n\n".to_owned();
    for (name, tool) in &tools {
        describe_tool(&mut prompt, name, tool);
    }
    prompt.push_str(
        "\nTo use a tool, format your response like this:\n\
         TOOL: tool_name ARGS: {\"arg1\": \"value1\", \"arg2\": \"value2\"}",
    );
    if let Some(example_call) = example_call(&tools) {
        let _ = write!(prompt, "\n\nFor example:\n{example_call}");
    }
    prompt.push_str(
        "\n\nAfter using a tool, you'll receive the results and can provide a final answer to the user.\n\
         Always use tools when they can help answer the user's question more accurately.",
    );
    prompt
}

pub fn format_tool_result(tool: &str, result: Result<&str, &str>) -> String {
    match result {
        Ok(result) => format!(
            "{SUCCESSFUL}\nTool: {tool}\nResult: {result}\n{PLEASE} final response to the user based on this tool output."
        ),
        Err(error) => {
            let error = if error.is_empty() { "Unknown error" } else { error };
            format!(
                "{FAILED}\nTool: {tool}\nError: {error}\n{PLEASE}n alternative response or try a different approach."
            )
        }
    }
}

fn describe_tool(prompt: &mut String, name: &ToolName, tool: &ToolDefinition) {
    let _ = writeln!(prompt, "- {name}");
    for line in tool.description.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let _ = writeln!(prompt, "  {line}");
    }
    let root = &tool.input_schema;
    let mut left = MAX_PARAMETER_LINES;
    for (name, schema, is_required) in parameters(tool) {
        let described = Described { name, schema, is_required, depth: 0 };
        describe_parameter(prompt, root, &described, &mut left);
    }
}

struct Described<'a> {
    name: &'a str,
    schema: &'a Value,
    is_required: bool,
    depth: usize,
}

/// Describes a parameter and the fields in it while lines are `left`.
fn describe_parameter(
    prompt: &mut String,
    root: &Value,
    described: &Described<'_>,
    left: &mut usize,
) {
    let Described { name, schema, is_required, depth } = *described;
    let Some(rest) = left.checked_sub(1) else { return };
    *left = rest;
    let target = resolve_schema(root, schema);
    let types = describe_types(root, target).unwrap_or_else(|| "any".to_owned());
    let said = |key: &str| schema.get(key).or_else(|| target.get(key));
    let need = match said("default") {
        _ if is_required => ", required".to_owned(),
        Some(default) if !default.is_null() => format!(", default {default}"),
        _ => ", optional".to_owned(),
    };
    let _ = write!(prompt, "{:indent$}{name} ({types}{need})", "", indent = 4 + 2 * depth);
    if let Some(choices) = said("enum").and_then(Value::as_array) {
        let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
        let _ = write!(prompt, ", one of {}", choices.join(", "));
    }
    let words = said("description").and_then(Value::as_str).unwrap_or_default();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(prompt, "{}{words}", if words.is_empty() { "" } else { ": " });
    if depth >= MAX_DEPTH {
        return;
    }
    let whole = flatten_schema(root, schema, 0);
    if let Some(items) = whole
        .get("items")
        .filter(|items| items.as_object().is_some_and(|fields| !fields.is_empty()))
    {
        let item =
            Described { name: "each item", schema: items, is_required: true, depth: depth + 1 };
        describe_parameter(prompt, root, &item, left);
    }
    let required = whole.get("required").and_then(Value::as_array);
    let fields = whole.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, schema) in fields.take(MAX_FIELDS) {
        let is_required =
            required.is_some_and(|required| required.iter().any(|field| field == name));
        let field = Described { name, schema, is_required, depth: depth + 1 };
        describe_parameter(prompt, root, &field, left);
    }
}

/// Returns the types of a value in words. Follows references.
fn describe_types(root: &Value, schema: &Value) -> Option<String> {
    if let Some(types) = known::schema_types(schema).filter(|types| !types.is_empty()) {
        return Some(types.join(" or "));
    }
    let choices = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(key)?.as_array());
    let mut types: Vec<&str> = if let Some(choices) = choices {
        let types = choices.iter().map(|choice| known::schema_types(resolve_schema(root, choice)));
        types.collect::<Option<Vec<_>>>()?.concat()
    } else {
        let all = schema.get("allOf")?.as_array()?;
        all.iter().find_map(|part| known::schema_types(resolve_schema(root, part)))?
    };
    types.dedup();
    (!types.is_empty()).then(|| types.join(" or "))
}

/// Returns each parameter with its schema, and whether it is required.
pub(super) fn parameters(tool: &ToolDefinition) -> impl Iterator<Item = (&String, &Value, bool)> {
    let schema = &tool.input_schema;
    let required = schema.get("required").and_then(Value::as_array);
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(move |(name, schema)| {
        (name, schema, required.is_some_and(|required| required.iter().any(|field| field == name)))
    })
}

/// Writes an example call of one of the tools: `file_tools.glob`, else the first tool with required
/// parameters, else any. Returns none if no tool accepts the sample values.
fn example_call(tools: &[(ToolName, &ToolDefinition)]) -> Option<String> {
    if tools.iter().any(|(name, _)| name.as_str() == "file_tools.glob") {
        let args = json!({ "pattern": "*.py", "path": "/home/user" });
        return Some(call("file_tools.glob", &args));
    }
    let needs = |(_, tool): &&(ToolName, &ToolDefinition)| {
        parameters(tool).any(|(_, _, is_required)| is_required)
    };
    let rest = tools.iter().filter(|tool| !needs(tool));
    let tried = tools.iter().filter(needs).chain(rest).take(MAX_EXAMPLES_TRIED);
    tried.into_iter().find_map(|(name, tool)| {
        let schema = &tool.input_schema;
        let valid = Schema::new(schema).ok();
        let mut made = (0..CHOICES).map(|choice| match sample(schema, "", schema, choice) {
            Value::Object(args) => Value::Object(args),
            _ => json!({}),
        });
        let args = made.find(|args| valid.as_ref().is_none_or(|valid| valid.is_valid(args)));
        Some(call(name.as_str(), &args?))
    })
}

fn call(tool: &str, args: &Value) -> String {
    let fields = args.as_object().into_iter().flatten();
    let fields: Vec<String> =
        fields.map(|(key, types)| format!("{}: {types}", Value::from(key.as_str()))).collect();
    format!("TOOL: {tool} ARGS: {{{}}}", fields.join(", "))
}
