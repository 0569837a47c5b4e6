use serde_json::{Map, Value, json};
use shared::{id::ToolName, tool::ToolDefinition};

use super::prompt::list_parameters;

/// The toolsets that an agent with a capability may use. Some of these sets exist only if a user
/// registers them.
const CAPABILITIES: [(&str, &[&str]); 6] = [
    ("code_writing", &["code_tools", "file_tools"]),
    ("debugging", &["code_tools", "file_tools", "system_tools"]),
    ("research", &["web_tools", "rag_tools", "osint_tools"]),
    ("planning", &["planning_tools"]),
    ("system_operations", &["system_tools", "file_tools"]),
    ("security", &["osint_tools", "web_tools", "system_tools"]),
];

/// Returns the schemas of the tools of these capabilities, under display names. Without
/// capabilities, returns all tools. An unknown capability has no tools.
pub fn schemas_for<'a>(
    capabilities: &[&str],
    tools: impl IntoIterator<Item = &'a ToolDefinition>,
    shown_name: impl Fn(&ToolDefinition) -> ToolName,
) -> Map<String, Value> {
    let opened = |capability: &&str| CAPABILITIES.iter().find(|(name, _)| name == capability);
    let sets: Vec<&str> =
        capabilities.iter().filter_map(opened).flat_map(|(_, sets)| *sets).copied().collect();
    // Also reads the set in the tool's own name, because Faber's built-in tools keep their names
    // even if their set is renamed.
    let set_in_name =
        |tool: &ToolDefinition| tool.name.as_str().split_once('.').map(|(set, _)| set.to_owned());
    let is_open = |tool: &&ToolDefinition| {
        capabilities.is_empty()
            || sets.contains(&tool.set.as_str())
            || set_in_name(tool).is_some_and(|set| sets.contains(&set.as_str()))
    };
    let named = |tool: &ToolDefinition| {
        let name = shown_name(tool);
        let schema = tool_schema(&name, tool);
        (name.into(), schema)
    };
    tools.into_iter().filter(is_open).map(named).collect()
}

/// Returns `{name, description, parameters: {name: {type, required, default, description}}}`.
pub fn tool_schema(name: &ToolName, tool: &ToolDefinition) -> Value {
    let parameters = list_parameters(tool).map(|(name, schema, is_required)| {
        let parameter = json!({
            "type": parameter_type(schema),
            "required": is_required,
            "default": schema.get("default"),
            "description": schema.get("description").and_then(Value::as_str).unwrap_or_default(),
        });
        (name.clone(), parameter)
    });
    json!({
        "name": name,
        "description": tool.description,
        "parameters": parameters.collect::<Map<_, _>>(),
    })
}

/// Returns the type without `null`, because `required` already shows whether the value may be
/// missing. The default is `any`.
fn parameter_type(schema: &Value) -> Value {
    match super::known::schema_types(schema).as_deref() {
        Some([one]) => Value::from(*one),
        Some([]) | None => Value::from("any"),
        Some(several) => Value::from(several.to_vec()),
    }
}
