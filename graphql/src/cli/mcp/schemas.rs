//! JSON Schemas as clients of all kinds read them.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Keywords that say nothing to whoever calls a tool.
const NOISE: [&str; 3] = ["$schema", "title", "format"];

/// Returns the schema of what a tool takes.
pub(super) fn input<T: JsonSchema>() -> Map<String, Value> {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            schema.shift_remove("description");
            schema.entry("properties").or_insert_with(|| json!({}));
            schema
        }
        _ => Map::new(),
    }
}

/// Returns the schema of what a tool answers: these properties, of which those are always there,
/// or else an error.
pub(super) fn output(properties: Value, required: &[&str]) -> Map<String, Value> {
    let mut properties = properties;
    properties["error"] = json!({
        "type": "object",
        "description": "Instead of everything else, where it was refused or did not work out",
        "properties": {
            "code": { "type": "string", "description": "Such as `NOT_FOUND`, `INVALID_PLAN`, \
                `NO_PLAN_FOUND`, `CONFLICT`, `FORBIDDEN`" },
            "message": { "type": "string", "description": "What happened, and what to do" },
            "requestId": { "type": "string" },
            "diagnostics": { "type": "array", "items": { "type": "object" } },
        },
        "required": ["code", "message"],
    });
    properties["cut"] = json!({
        "type": "boolean",
        "description": "Whether something large was left out; `faber debug` shows it whole",
    });
    let schema = json!({
        "type": "object",
        "properties": properties,
        "anyOf": [{ "required": required }, { "required": ["error"] }],
    });
    schema.as_object().cloned().unwrap_or_default()
}

/// Writes what may be left out as what it is when it is there: not every client reads lists of
/// types.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for name in NOISE {
                if fields.get(name).is_some_and(Value::is_string) {
                    fields.shift_remove(name);
                }
            }
            if fields.get("default").is_some_and(Value::is_null) {
                fields.shift_remove("default");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|it| it != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    fields.insert("type".to_owned(), one);
                }
            }
            flatten(fields);
            for (_, inner) in fields.iter_mut() {
                tidy(inner);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(tidy),
        _ => (),
    }
}

/// Takes the only choice besides null out of `anyOf`, and null out of `enum`.
fn flatten(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|it| !it.is_null());
    }
    let Some(Value::Array(choices)) = fields.get_mut("anyOf") else { return };
    choices.retain(|it| it["type"] != "null");
    let [Value::Object(_)] = choices.as_slice() else { return };
    let only = choices.remove(0);
    fields.shift_remove("anyOf");
    for (name, value) in only.as_object().into_iter().flatten() {
        fields.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// What is said of the type itself is for readers of the code.
    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Sample {
        /// One thing.
        one: String,
        /// Another, with a
        /// long story.
        #[schemars(range(min = 1))]
        other_thing: Option<i32>,
        kind: Option<Kind>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[schemars(inline)]
    enum Kind {
        A,
        B,
    }

    #[test]
    fn what_may_be_left_out_is_not_null() {
        let expected = json!({
            "type": "object",
            "properties": {
                "one": { "description": "One thing.", "type": "string" },
                "otherThing": { "description": "Another, with a long story.", "type": "integer", "minimum": 1 },
                "kind": { "type": "string", "enum": ["A", "B"] },
            },
            "additionalProperties": false,
            "required": ["one"],
        });
        assert_eq!(Value::Object(input::<Sample>()), expected);
    }
}
