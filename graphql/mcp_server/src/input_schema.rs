use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Keywords of JSON Schema that are removed, because they do not help a caller.
const UNUSED_KEYWORDS: [&str; 3] = ["$schema", "title", "format"];

pub(crate) fn input_schema<T: JsonSchema>() -> Map<String, Value> {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    simplify_schema(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            schema.shift_remove("description");
            schema.entry("properties").or_insert_with(|| json!({}));
            schema
        }
        _ => Map::new(),
    }
}

/// Removes unused keywords. Also removes null from the types of optional properties, because some
/// clients cannot read lists of types.
fn simplify_schema(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for name in UNUSED_KEYWORDS {
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
                types.retain(|kind| kind != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    fields.insert("type".to_owned(), one);
                }
            }
            remove_null_choices(fields);
            for (_, inner) in fields.iter_mut() {
                simplify_schema(inner);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(simplify_schema),
        _ => (),
    }
}

fn remove_null_choices(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(values)) = fields.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(choices)) = fields.get_mut("anyOf") else { return };
    choices.retain(|choice| choice["type"] != "null");
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

    /// The description of the type is not part of the schema.
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
    fn optional_arguments_do_not_allow_null() {
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
        assert_eq!(Value::Object(input_schema::<Sample>()), expected);
    }
}
