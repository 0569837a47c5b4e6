use planner::suggest::did_you_mean;
use serde_json::{Map, Value, json};
use shared::{
    json,
    schema::{Schema, SchemaViolation, ViolationKind, check_cost, fill_defaults},
};

const MAX_INPUTS_BYTES: usize = 64 << 10;
const MAX_INPUTS_DEPTH: usize = 64;

/// Returns the JSON Schema of a plan's input, or an error. The short form names each input:
/// `{"name": {"type": "string"}, "n": "integer"}`.
pub(super) fn to_schema(written: &Value) -> Result<Value, String> {
    let Value::Object(fields) = written else {
        return Err("write a JSON Schema, or `{\"name\": {\"type\": \"string\"}}`".to_owned());
    };
    if json::json_size(written) > MAX_INPUTS_BYTES {
        return Err(format!("they have more than {MAX_INPUTS_BYTES} bytes"));
    }
    if json::is_deeper_than(written, MAX_INPUTS_DEPTH) {
        return Err(format!("they are nested deeper than {MAX_INPUTS_DEPTH} levels"));
    }
    let schema = if is_schema(fields) { written.clone() } else { expand_short_form(fields)? };
    check_cost(&schema).map_err(|error| format!("they are refused: {error}"))?;
    Schema::new(&schema).map_err(|err| format!("this is not a JSON Schema: {err}"))?;
    // Checks the defaults already when the plan is saved, because otherwise each execution would
    // fail.
    check_defaults(&schema)?;
    Ok(schema)
}

fn is_schema(fields: &Map<String, Value>) -> bool {
    let has = |key: &str, is: fn(&Value) -> bool| fields.get(key).is_some_and(is);
    has("type", |value| value.is_string() || value.is_array())
        || has("$schema", Value::is_string)
        || has("$ref", Value::is_string)
        || has("required", Value::is_array)
        || ["allOf", "anyOf", "oneOf"].iter().any(|key| has(key, Value::is_array))
        || has("properties", |value| {
            value.as_object().is_some_and(|fields| fields.values().all(Value::is_object))
        })
}

fn expand_short_form(fields: &Map<String, Value>) -> Result<Value, String> {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, written) in fields {
        let mut property = match written {
            Value::String(kind) => Map::from_iter([("type".to_owned(), json!(kind))]),
            Value::Object(property) => property.clone(),
            other => {
                let hint = format!("write `{{\"{name}\": {{\"type\": \"string\"}}}}`");
                return Err(format!("`{name}` is {other}; {hint}"));
            }
        };
        let is_optional = match property.get("required") {
            Some(Value::Bool(is_required)) => {
                let is_optional = !is_required;
                property.shift_remove("required");
                is_optional
            }
            _ => property.contains_key("default"),
        };
        if !is_optional {
            required.push(name.clone());
        }
        properties.insert(name.clone(), Value::Object(property));
    }
    Ok(json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    }))
}

fn check_defaults(schema: &Value) -> Result<(), String> {
    for (name, property) in schema_properties(schema) {
        let Some(default) = property.get("default") else { continue };
        // Skips a property that does not compile alone, because it refers to another part of the
        // schema.
        let Ok(property_schema) = Schema::new(property) else { continue };
        if let Some(reason) = property_schema.complaint(default) {
            return Err(format!("the default of `{name}` does not fit: {reason}"));
        }
    }
    Ok(())
}

fn schema_properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

/// Adds defaults to the input of a plan, and checks the input against the schema. The error lists
/// all fields that do not fit.
pub(crate) fn fit_input(schema: &Value, input: Value) -> Result<Value, String> {
    let mut input = if input.is_null() { json!({}) } else { input };
    fill_defaults(schema, &mut input);
    let compiled = Schema::new(schema).map_err(|err| format!("its schema is damaged: {err}"))?;
    let misfits = compiled.violations(&input);
    if misfits.is_empty() {
        return Ok(input);
    }
    let described = misfits.iter().flat_map(|misfit| describe_misfit(schema, misfit));
    Err(described.collect::<Vec<_>>().join("; "))
}

fn describe_misfit(schema: &Value, misfit: &SchemaViolation) -> Vec<String> {
    let place = misfit.at.trim_start_matches('/').replace('/', ".");
    let within = if place.is_empty() { String::new() } else { format!(" in `{place}`") };
    match &misfit.kind {
        ViolationKind::Missing { property } => vec![format!("`{property}`{within} is missing")],
        ViolationKind::Unexpected { properties: names } => {
            let described = names.iter().map(|name| {
                let known_inputs = schema_properties(schema).map(|(input, _)| input.as_str());
                let help = did_you_mean(name, known_inputs).filter(|_| place.is_empty());
                let help = help.map(|help| format!(": {help}")).unwrap_or_default();
                format!("there is no input `{name}`{within}{help}")
            });
            described.collect()
        }
        _ if place.is_empty() => vec![misfit.message.clone()],
        _ => vec![format!("`{place}`: {}", misfit.message)],
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[test]
    fn the_short_form_of_inputs_becomes_a_schema() {
        let short = json!({
            "name": { "type": "string" },
            "n": { "type": "integer", "default": 3 },
            "note": { "type": "string", "required": false },
            "type": "boolean",
        });
        let long = to_schema(&json!({ "fields": { "type": "object" } })).unwrap();
        assert_eq!(long["required"], json!(["fields"]));
        expect![[r#"{"type":"object","properties":{"name":{"type":"string"},"n":{"type":"integer","default":3},"note":{"type":"string"}},"required":["name"],"additionalProperties":false}"#]]
            .assert_eq(&to_schema(&{
                let mut short = short.clone();
                short.as_object_mut().unwrap().shift_remove("type");
                short
            })
            .unwrap()
            .to_string());
        let whole = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        assert_eq!(to_schema(&whole).unwrap(), whole);
    }

    #[test]
    fn an_input_may_be_named_type_or_properties() {
        for name in ["type", "properties", "required"] {
            let found = to_schema(&json!({ name: { "type": "string" } })).unwrap();
            assert_eq!(found["required"], json!([name]), "{name}");
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_refused(written: Value, expected: Expect) {
        expected.assert_eq(&to_schema(&written).unwrap_err());
    }

    #[test]
    fn an_invalid_input_schema_is_rejected() {
        check_refused(
            json!(5),
            expect![[r#"write a JSON Schema, or `{"name": {"type": "string"}}`"#]],
        );
        check_refused(
            json!({ "a": 5 }),
            expect![[r#"`a` is 5; write `{"a": {"type": "string"}}`"#]],
        );
        let err = to_schema(&json!({ "a": "strnig" })).unwrap_err();
        assert!(err.starts_with("this is not a JSON Schema: ") && err.contains("strnig"), "{err}");
        check_refused(
            json!({ "a": { "type": "integer", "default": "x" } }),
            expect![[r#"the default of `a` does not fit: "x" is not of type "integer""#]],
        );
        let err = to_schema(&json!({ "a": { "description": "x".repeat(MAX_INPUTS_BYTES) } }))
            .unwrap_err();
        assert_eq!(err, "they have more than 65536 bytes");
    }

    #[test]
    fn inputs_get_defaults_and_every_violation_is_reported() {
        let schema = to_schema(&json!({
            "name": "string",
            "n": { "type": "integer", "default": 3 },
            "deep": { "type": "object", "default": {}, "properties": { "x": { "default": null } } },
        }))
        .unwrap();
        let fitted = fit_input(&schema, json!({ "name": "A", "deep": {} })).unwrap();
        assert_eq!(fitted, json!({ "name": "A", "deep": { "x": null }, "n": 3 }));
        let check = |given: Value, expected: Expect| {
            expected.assert_eq(&fit_input(&schema, given).unwrap_err());
        };
        check(Value::Null, expect!["`name` is missing"]);
        check(
            json!({ "nmae": "A", "n": "x" }),
            expect![[
                r#"`n`: "x" is not of type "integer"; there is no input `nmae`: did you mean `name`?; `name` is missing"#
            ]],
        );
        check(json!([1]), expect![[r#"[1] is not of type "object""#]]);
    }
}
