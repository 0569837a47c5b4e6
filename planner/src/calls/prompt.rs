use std::fmt::Write as _;

use serde_json::{Value, json};
use shared::{id::ToolName, schema::Schema, tool::ToolDefinition};

use super::{
    known,
    sample::{flatten_schema, make_sample, resolve_schema},
};

const MAX_DEPTH: usize = 2;
const MAX_FIELDS: usize = 24;
const MAX_PARAMETER_LINES: usize = 2_000;
const MAX_EXAMPLES_TRIED: usize = 16;
const EXAMPLE_CHOICES: usize = 4;

pub(super) const SUCCESS_HEADING: &str = "Tool execution successful:";
pub(super) const FAILURE_HEADING: &str = "Tool execution failed:";
pub(super) const REPORT_END: &str = "\nPlease provide a";

/// Writes the system prompt that teaches a model to call these tools. Empty without tools. Lists
/// the parameters of each tool, because models guess missing facts.
pub fn tool_prompt<'a>(
    tools: impl IntoIterator<Item = &'a ToolDefinition>,
    shown_name: impl Fn(&ToolDefinition) -> ToolName,
) -> String {
    let tools: Vec<_> = tools.into_iter().map(|tool| (shown_name(tool), tool)).collect();
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
            "{SUCCESS_HEADING}\nTool: {tool}\nResult: {result}\n{REPORT_END} final response to the user based on this tool output."
        ),
        Err(error) => {
            let error = if error.is_empty() { "Unknown error" } else { error };
            format!(
                "{FAILURE_HEADING}\nTool: {tool}\nError: {error}\n{REPORT_END}n alternative response or try a different approach."
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
    let mut lines_left = MAX_PARAMETER_LINES;
    for (name, schema, is_required) in list_parameters(tool) {
        let described = DescribedParameter { name, schema, is_required, depth: 0 };
        describe_parameter(prompt, root, &described, &mut lines_left);
    }
}

struct DescribedParameter<'a> {
    name: &'a str,
    schema: &'a Value,
    is_required: bool,
    depth: usize,
}

fn describe_parameter(
    prompt: &mut String,
    root: &Value,
    described: &DescribedParameter<'_>,
    lines_left: &mut usize,
) {
    let DescribedParameter { name, schema, is_required, depth } = *described;
    let Some(rest) = lines_left.checked_sub(1) else { return };
    *lines_left = rest;
    let target = resolve_schema(root, schema);
    let types = describe_types(root, target).unwrap_or_else(|| "any".to_owned());
    let find_keyword = |key: &str| schema.get(key).or_else(|| target.get(key));
    let need = match find_keyword("default") {
        _ if is_required => ", required".to_owned(),
        Some(default) if !default.is_null() => format!(", default {default}"),
        _ => ", optional".to_owned(),
    };
    let _ = write!(prompt, "{:indent$}{name} ({types}{need})", "", indent = 4 + 2 * depth);
    if let Some(choices) = find_keyword("enum").and_then(Value::as_array) {
        let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
        let _ = write!(prompt, ", one of {}", choices.join(", "));
    }
    let words = find_keyword("description").and_then(Value::as_str).unwrap_or_default();
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
        let item = DescribedParameter {
            name: "each item",
            schema: items,
            is_required: true,
            depth: depth + 1,
        };
        describe_parameter(prompt, root, &item, lines_left);
    }
    let required = whole.get("required").and_then(Value::as_array);
    let fields = whole.get("properties").and_then(Value::as_object).into_iter().flatten();
    for (name, schema) in fields.take(MAX_FIELDS) {
        let is_required =
            required.is_some_and(|required| required.iter().any(|field| field == name));
        let field = DescribedParameter { name, schema, is_required, depth: depth + 1 };
        describe_parameter(prompt, root, &field, lines_left);
    }
}

/// Returns the types of a value in words. Follows references in alternatives.
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

pub(super) fn list_parameters(
    tool: &ToolDefinition,
) -> impl Iterator<Item = (&String, &Value, bool)> {
    let schema = &tool.input_schema;
    let required = schema.get("required").and_then(Value::as_array);
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(move |(name, schema)| {
        (name, schema, required.is_some_and(|required| required.iter().any(|field| field == name)))
    })
}

/// Writes an example call of one of the tools. Returns `None` if no tried tool accepts the sample
/// values.
fn example_call(tools: &[(ToolName, &ToolDefinition)]) -> Option<String> {
    if tools.iter().any(|(name, _)| name.as_str() == "file_tools.glob") {
        let args = json!({ "pattern": "*.py", "path": "/home/user" });
        return Some(format_call("file_tools.glob", &args));
    }
    let needs = |(_, tool): &&(ToolName, &ToolDefinition)| {
        list_parameters(tool).any(|(_, _, is_required)| is_required)
    };
    let rest = tools.iter().filter(|tool| !needs(tool));
    let tried = tools.iter().filter(needs).chain(rest).take(MAX_EXAMPLES_TRIED);
    tried.into_iter().find_map(|(name, tool)| {
        let schema = &tool.input_schema;
        let valid = Schema::new(schema).ok();
        let mut made =
            (0..EXAMPLE_CHOICES).map(|choice| match make_sample(schema, "", schema, choice) {
                Value::Object(args) => Value::Object(args),
                _ => json!({}),
            });
        let args = made.find(|args| valid.as_ref().is_none_or(|valid| valid.is_valid(args)));
        Some(format_call(name.as_str(), &args?))
    })
}

fn format_call(tool: &str, args: &Value) -> String {
    let fields = args.as_object().into_iter().flatten();
    let fields: Vec<String> =
        fields.map(|(key, types)| format!("{}: {types}", Value::from(key.as_str()))).collect();
    format!("TOOL: {tool} ARGS: {{{}}}", fields.join(", "))
}
