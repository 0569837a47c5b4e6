//! What a model is told about tools, and about what came of a call.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use shared::{id::ToolName, tool::ToolDefinition};

use super::known;

/// How the report of a call that went well begins.
pub(super) const SUCCESSFUL: &str = "Tool execution successful:";
/// How the report of a call that failed begins.
pub(super) const FAILED: &str = "Tool execution failed:";
/// How the last line of either begins.
pub(super) const PLEASE: &str = "\nPlease provide a";

/// Writes the system prompt that teaches a model to call these tools; empty if there are none.
///
/// Each tool is listed with what it does and its parameters, because models guess what they are
/// not told. The example is a call that the tools really have. Each is under the name that is shown
/// of it.
pub fn tool_prompt<'a>(
    tools: impl IntoIterator<Item = &'a ToolDefinition>,
    shown: impl Fn(&ToolDefinition) -> ToolName,
) -> String {
    let tools: Vec<_> = tools.into_iter().map(|it| (shown(it), it)).collect();
    let Some(example) = example(&tools) else { return String::new() };
    let mut prompt = "You have access to the following tools:\n\n".to_owned();
    for (name, tool) in &tools {
        describe(&mut prompt, name, tool);
    }
    prompt.push_str(
        "\nTo use a tool, format your response like this:\n\
         TOOL: tool_name ARGS: {\"arg1\": \"value1\", \"arg2\": \"value2\"}\n\n\
         For example:\n",
    );
    prompt.push_str(&example);
    prompt.push_str(
        "\n\nAfter using a tool, you'll receive the results and can provide a final answer to the user.\n\
         Always use tools when they can help answer the user's question more accurately.",
    );
    prompt
}

/// Writes what came of a call, for the model that asked for it.
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

fn describe(prompt: &mut String, name: &ToolName, tool: &ToolDefinition) {
    let _ = writeln!(prompt, "- {name}");
    for line in tool.description.lines().map(str::trim).filter(|it| !it.is_empty()) {
        let _ = writeln!(prompt, "  {line}");
    }
    for (name, schema, is_required) in parameters(tool) {
        let types = known::types(schema).filter(|it| !it.is_empty());
        let types = types.map_or_else(|| "any".to_owned(), |it| it.join(" or "));
        let need = match schema.get("default") {
            _ if is_required => ", required".to_owned(),
            Some(default) if !default.is_null() => format!(", default {default}"),
            _ => ", optional".to_owned(),
        };
        let _ = write!(prompt, "    {name} ({types}{need})");
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            let choices: Vec<String> = choices.iter().map(Value::to_string).collect();
            let _ = write!(prompt, ", one of {}", choices.join(", "));
        }
        let words = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(prompt, "{}{words}", if words.is_empty() { "" } else { ": " });
    }
}

/// Returns each parameter with its schema, and whether it must be given.
pub(super) fn parameters(tool: &ToolDefinition) -> impl Iterator<Item = (&String, &Value, bool)> {
    let schema = &tool.input_schema;
    let required = schema.get("required").and_then(Value::as_array);
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(move |(name, schema)| {
        (name, schema, required.is_some_and(|it| it.iter().any(|it| it == name)))
    })
}

/// Writes a call of one of the tools: of `file_tools.glob` if it is there, else of the first that
/// needs something, else of the first.
fn example(tools: &[(ToolName, &ToolDefinition)]) -> Option<String> {
    if tools.iter().any(|(name, _)| name.as_str() == "file_tools.glob") {
        let args = json!({ "pattern": "*.py", "path": "/home/user" });
        return Some(call("file_tools.glob", &args));
    }
    let needs = |(_, tool): &&(ToolName, &ToolDefinition)| {
        parameters(tool).any(|(_, _, is_required)| is_required)
    };
    let (name, tool) = tools.iter().find(needs).or_else(|| tools.first())?;
    let args: Map<String, Value> = parameters(tool)
        .filter(|(_, _, is_required)| *is_required)
        .map(|(name, schema, _)| (name.clone(), sample(name, schema)))
        .collect();
    Some(call(name.as_str(), &Value::Object(args)))
}

/// Writes a call as the prompt asks for it, with blanks as people write JSON.
fn call(tool: &str, args: &Value) -> String {
    let fields = args.as_object().into_iter().flatten();
    let fields: Vec<String> =
        fields.map(|(key, it)| format!("{}: {it}", Value::from(key.as_str()))).collect();
    format!("TOOL: {tool} ARGS: {{{}}}", fields.join(", "))
}

/// Returns a value that fits, as far as the schema's first words say.
fn sample(name: &str, schema: &Value) -> Value {
    let given = |key: &str| schema.get(key).filter(|it| !it.is_null()).cloned();
    let first = |key: &str| schema.get(key).and_then(|it| it.get(0)).cloned();
    let said = given("const").or_else(|| first("examples")).or_else(|| first("enum"));
    said.or_else(|| given("default")).unwrap_or_else(|| {
        match known::types(schema).and_then(|it| it.first().copied()) {
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            Some("object") => json!({}),
            _ => Value::from(name),
        }
    })
}
