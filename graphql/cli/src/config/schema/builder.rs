use serde_json::{Value, json};

pub(super) fn text_schema(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

pub(super) fn boolean_schema(about: &str) -> Value {
    json!({ "type": "boolean", "description": about })
}

pub(in crate::config) fn integer_schema(minimum: u64, maximum: u64, about: &str) -> Value {
    json!({ "type": "integer", "minimum": minimum, "maximum": maximum, "description": about })
}

pub(super) fn number_schema(minimum: f64, maximum: f64, about: &str) -> Value {
    json!({ "type": "number", "minimum": minimum, "maximum": maximum, "description": about })
}

pub(super) fn choice_schema(words: &[&str], about: &str) -> Value {
    json!({ "enum": words, "description": about })
}

#[expect(clippy::needless_pass_by_value, reason = "the schema becomes a part of the result")]
pub(super) fn list_schema(items: Value, about: &str) -> Value {
    json!({ "type": "array", "items": items, "description": about })
}

#[expect(clippy::needless_pass_by_value, reason = "the schema becomes a part of the result")]
pub(super) fn map_schema(values: Value, about: &str) -> Value {
    json!({ "type": "object", "additionalProperties": values, "description": about })
}

#[expect(clippy::needless_pass_by_value, reason = "the schemas become parts of the result")]
pub(super) fn any_of(about: &str, schemas: Vec<Value>) -> Value {
    json!({ "anyOf": schemas, "description": about })
}

pub(super) fn with_null(mut schema: Value) -> Value {
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

/// Returns the schema of an object that allows no other fields. An empty description is left out.
pub(in crate::config) fn object_schema(about: &str, required: &[&str], fields: Value) -> Value {
    let mut schema = json!({ "type": "object", "additionalProperties": false });
    if !about.is_empty() {
        schema["description"] = json!(about);
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema["properties"] = fields;
    schema
}
