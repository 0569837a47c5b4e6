//! Tools files in the format of Tool-Habilis: `{"tools_list": [{"name", "description", "examples",
//! "arguments"}]}`.

use serde::Deserialize as _;
use serde_json::{Map, Value, json};
use toolbox::effect_rules::EffectRules;

const TOOL_FIELDS: [&str; 6] = ["name", "description", "examples", "arguments", "effect", "run"];

/// Returns the key `effects` of a file, which sets the effects of its tools as in a `source`.
pub fn read_effects(file: &Value) -> Result<EffectRules, String> {
    match file.get("effects") {
        None | Some(Value::Null) => Ok(EffectRules::default()),
        Some(rules) => EffectRules::deserialize(rules).map_err(|err| err.to_string()),
    }
}

/// Converts the tools of a file to the form of the configuration. The error names the position, the
/// tool and the field of the first mistake.
pub fn read(file: &Value) -> Result<Vec<Value>, String> {
    let Some(list) = file.get("tools_list") else {
        return Err("no list of tools: write `{\"tools_list\": [{\"name\": …}]}`".to_owned());
    };
    let Value::Array(list) = list else {
        return Err(format!("no list of tools: `tools_list` is {}", kind_name(list)));
    };
    let tool = |(index, tool): (usize, &Value)| {
        let named = tool.get("name").and_then(Value::as_str);
        let name_note = named.map(|tool| format!(" (`{tool}`)")).unwrap_or_default();
        convert_tool(tool).map_err(|error| format!("`tools_list[{index}]`{name_note}: {error}"))
    };
    list.iter().enumerate().map(tool).collect()
}

fn convert_tool(tool: &Value) -> Result<Value, String> {
    let Value::Object(fields) = tool else {
        return Err(format!("a tool must be a map with a `name`, not {}", kind_name(tool)));
    };
    if let Some(unknown) = fields.keys().find(|field| !TOOL_FIELDS.contains(&field.as_str())) {
        let known_fields = TOOL_FIELDS.join("`, `");
        return Err(format!("there is no field `{unknown}`: a tool has `{known_fields}`"));
    }
    let name = match fields.get("name") {
        Some(Value::String(name)) => name,
        None | Some(Value::Null) => return Err("`name` is missing".to_owned()),
        Some(other) => return Err(format!("`name` must be a string, not {}", kind_name(other))),
    };
    let description = match find_field(fields, "description") {
        None => "",
        Some(Value::String(text)) => text,
        Some(other) => {
            return Err(format!("`description` must be a string, not {}", kind_name(other)));
        }
    };
    let mut converted = json!({
        "name": name,
        "description": description,
        "examples": read_examples(find_field(fields, "examples"))?,
        "parameters": read_parameters(find_field(fields, "arguments"))?,
    });
    for key in ["effect", "run"] {
        if let Some(value) = find_field(fields, key) {
            converted[key] = value.clone();
        }
    }
    Ok(converted)
}

fn find_field<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).filter(|value| !value.is_null())
}

fn read_examples(value: Option<&Value>) -> Result<Vec<&str>, String> {
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return Err(format!("`examples` must be a list of strings, not {}", kind_name(other)));
        }
    };
    let mut texts = Vec::with_capacity(list.len());
    for (index, example) in list.iter().enumerate() {
        let Value::String(text) = example else {
            return Err(format!(
                "`examples[{index}]` must be a string, not {}",
                kind_name(example)
            ));
        };
        texts.push(text.as_str());
    }
    Ok(texts)
}

/// Returns the schema of a tool's parameters. Without a schema, every argument is required.
fn read_parameters(value: Option<&Value>) -> Result<Value, String> {
    let arguments = match value {
        None => &Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(other) => {
            return Err(format!(
                "`arguments` must be a map of names to descriptions, or a JSON Schema, not {}",
                kind_name(other)
            ));
        }
    };
    if is_schema(arguments) {
        return Ok(json!(arguments));
    }
    let mut properties = Map::new();
    for (name, about) in arguments {
        let schema = match about {
            Value::String(about) => json!({ "description": about }),
            Value::Object(_) => about.clone(),
            other => {
                return Err(format!(
                    "`arguments.{name}` must be a description or a JSON Schema, not {}",
                    kind_name(other)
                ));
            }
        };
        properties.insert(name.clone(), schema);
    }
    let required: Vec<&String> = properties.keys().collect();
    Ok(json!({ "type": "object", "required": required, "properties": properties }))
}

/// Returns `true` if the arguments are the JSON Schema of an object. A tool may have arguments
/// called `type` and `properties`, but their values are descriptions.
fn is_schema(arguments: &Map<String, Value>) -> bool {
    let is_object = arguments.get("type").is_some_and(|kind| kind == "object");
    let has_required_list = arguments.get("required").is_some_and(Value::is_array);
    arguments.get("properties").is_some_and(Value::is_object) && (is_object || has_required_list)
}

fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_described_tool_becomes_a_tool_with_examples() {
        let file = json!({ "tools_list": [
            { "name": "time", "description": "Says the time.", "examples": ["What time is it?"], "arguments": {} },
            { "name": "add", "arguments": { "a": "A number.", "b": "Another." }, "run": { "command": ["add"] } },
        ] });
        let tools = read(&file).unwrap();
        assert_eq!(tools[0]["examples"], json!(["What time is it?"]));
        assert!(tools[0].get("run").is_none());
        let schema = json!({
            "type": "object",
            "required": ["a", "b"],
            "properties": { "a": { "description": "A number." }, "b": { "description": "Another." } },
        });
        assert_eq!(tools[1]["parameters"], schema);
        assert_eq!(tools[1]["run"], json!({ "command": ["add"] }));
    }

    #[test]
    fn a_file_without_a_list_of_tools_is_rejected() {
        for file in [json!([]), json!({ "tools": [] }), json!({ "tools_list": {} })] {
            assert!(read(&file).unwrap_err().contains("no list of tools"), "{file}");
        }
    }

    #[test]
    fn a_null_field_counts_as_missing() {
        let with = |tool: Value| read(&json!({ "tools_list": [tool] })).unwrap();
        let nulls = json!({ "name": "t", "description": null, "examples": null, "arguments": null,
            "effect": null, "run": null });
        assert_eq!(with(nulls), with(json!({ "name": "t" })));
    }

    #[test]
    fn arguments_may_be_a_schema() {
        let parameters = |arguments: Value| {
            let file = json!({ "tools_list": [{ "name": "t", "arguments": arguments }] });
            read(&file).unwrap()[0]["parameters"].clone()
        };
        for schema in [
            json!({ "type": "object", "properties": { "a": { "type": "integer" }, "b": {} } }),
            json!({ "type": "object", "properties": {}, "additionalProperties": false }),
            json!({ "properties": { "a": { "type": "integer" } }, "required": ["a"] }),
        ] {
            assert_eq!(parameters(schema.clone()), schema);
        }
        // These objects are arguments with the names of keywords, and not schemas.
        for arguments in [
            json!({ "type": "object", "properties": "Which." }),
            json!({ "type": "The type of it.", "properties": { "description": "Which." } }),
            json!({ "type": "object" }),
        ] {
            let names: Vec<&String> = arguments.as_object().unwrap().keys().collect();
            assert_eq!(parameters(arguments.clone())["required"], json!(names));
        }
    }

    #[test]
    fn an_error_in_a_tools_file_names_its_place() {
        for (tool, reason) in [
            (json!(7), "`tools_list[1]`: a tool must be a map with a `name`, not a number"),
            (json!({}), "`tools_list[1]`: `name` is missing"),
            (json!({ "name": 7 }), "`tools_list[1]`: `name` must be a string, not a number"),
            (
                json!({ "name": "t", "exampels": [] }),
                "`tools_list[1]` (`t`): there is no field `exampels`: a tool has `name`, \
                 `description`, `examples`, `arguments`, `effect`, `run`",
            ),
            (
                json!({ "name": "t", "description": [] }),
                "`tools_list[1]` (`t`): `description` must be a string, not a list",
            ),
            (
                json!({ "name": "t", "examples": "one" }),
                "`tools_list[1]` (`t`): `examples` must be a list of strings, not a text",
            ),
            (
                json!({ "name": "t", "examples": ["one", null] }),
                "`tools_list[1]` (`t`): `examples[1]` must be a string, not null",
            ),
            (
                json!({ "name": "t", "arguments": ["a"] }),
                "`tools_list[1]` (`t`): `arguments` must be a map of names to descriptions, or a \
                 JSON Schema, not a list",
            ),
            (
                json!({ "name": "t", "arguments": { "a": 1 } }),
                "`tools_list[1]` (`t`): `arguments.a` must be a description or a JSON Schema, not \
                 a number",
            ),
        ] {
            let file = json!({ "tools_list": [{ "name": "good" }, tool] });
            assert_eq!(read(&file).unwrap_err(), reason);
        }
    }
}
