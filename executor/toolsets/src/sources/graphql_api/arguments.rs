//! The JSON Schema of a field's arguments.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use super::introspection::{Argument, Kind, Ref, Types};
use crate::sources::offer::cut;

const MAX_DESCRIPTION_BYTES: usize = 300;
/// Input objects with a full schema in one tool. Others accept any object.
const MAX_INPUT_OBJECTS: usize = 60;
const MAX_ENUM_VALUES: usize = 500;

/// Fields and enum values in all schemas of an endpoint, and the limits for one tool. Some
/// endpoints have thousands of fields with the same input objects.
const TOTAL_NODES: usize = 240_000;
const NODES_PER_TOOL: (usize, usize) = (40, 4_000);

/// Returns the nodes that each of `tools` schemas may have.
pub(super) fn share(tools: usize) -> usize {
    (TOTAL_NODES / tools.max(1)).clamp(NODES_PER_TOOL.0, NODES_PER_TOOL.1)
}

/// Makes the schema of a field's arguments. Input objects become `$defs`, because they may be
/// recursive. After `max_nodes` nodes, further input objects accept any object.
pub(super) fn schema(types: &Types, arguments: &[Argument], max_nodes: usize) -> Value {
    let mut builder = SchemaBuilder {
        types,
        known: BTreeSet::new(),
        queue: VecDeque::new(),
        nodes: 0,
        max_nodes,
    };
    let mut schema = builder.object_schema(arguments);
    let mut defs = Map::new();
    while let Some(name) = builder.queue.pop_front() {
        if builder.is_full() {
            defs.insert(name, json!({ "type": "object" }));
            continue;
        }
        let fields = types.all.get(&name).and_then(|known| known.input_fields.as_deref());
        let made = builder.object_schema(fields.unwrap_or_default());
        defs.insert(name, made);
    }
    if !defs.is_empty() {
        schema["$defs"] = Value::Object(defs);
    }
    schema
}

struct SchemaBuilder<'a> {
    types: &'a Types,
    /// Names of the input objects that have, or will get, an entry in `$defs`.
    known: BTreeSet<String>,
    /// Names of the input objects whose entries are still missing.
    queue: VecDeque<String>,
    nodes: usize,
    max_nodes: usize,
}

impl SchemaBuilder<'_> {
    fn is_full(&self) -> bool {
        self.nodes >= self.max_nodes
    }

    fn object_schema(&mut self, arguments: &[Argument]) -> Value {
        let mut properties = Map::new();
        self.nodes += arguments.len();
        for argument in arguments {
            let mut made = self.value_schema(&argument.of);
            if let (Some(about), Value::Object(fields)) = (&argument.description, &mut made)
                && !about.trim().is_empty()
            {
                fields.insert(
                    "description".to_owned(),
                    json!(cut(about.trim(), MAX_DESCRIPTION_BYTES)),
                );
            }
            properties.insert(argument.name.clone(), made);
        }
        let required: Vec<_> = arguments
            .iter()
            .filter(|argument| argument.is_required())
            .map(|argument| &argument.name)
            .collect();
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema["additionalProperties"] = json!(false);
        schema
    }

    /// A type without `!` may be null.
    fn value_schema(&mut self, of: &Ref) -> Value {
        if of.kind == Kind::NonNull {
            let inner = of.of_type.as_deref();
            return inner.map_or_else(|| json!({}), |inner| self.non_null_schema(inner));
        }
        let mut made = self.non_null_schema(of);
        match made.get("type").cloned() {
            Some(Value::String(one)) => made["type"] = json!([one, "null"]),
            Some(Value::Array(mut all)) => {
                all.push(json!("null"));
                made["type"] = Value::Array(all);
            }
            _ if made.get("$ref").is_some() => {
                made = json!({ "anyOf": [made, { "type": "null" }] });
            }
            _ => {}
        }
        if let Some(Value::Array(values)) = made.get_mut("enum") {
            values.push(Value::Null);
        }
        made
    }

    fn non_null_schema(&mut self, of: &Ref) -> Value {
        if of.kind == Kind::List {
            let items =
                of.of_type.as_deref().map_or_else(|| json!({}), |inner| self.value_schema(inner));
            return json!({ "type": "array", "items": items });
        }
        let Some((name, known)) = self.types.named(of) else { return json!({}) };
        match known.kind {
            Kind::Enum => {
                let values = known.enum_values.as_deref().unwrap_or_default();
                if values.is_empty() || values.len() > MAX_ENUM_VALUES || self.is_full() {
                    return json!({ "type": "string" });
                }
                self.nodes += values.len();
                let values: Vec<_> = values.iter().map(|value| &value.name).collect();
                json!({ "type": "string", "enum": values })
            }
            Kind::InputObject => self.input_schema(name),
            _ => scalar(name),
        }
    }

    fn input_schema(&mut self, name: &str) -> Value {
        if !self.known.contains(name) {
            if self.known.len() >= MAX_INPUT_OBJECTS || self.is_full() {
                return json!({ "type": "object" });
            }
            self.known.insert(name.to_owned());
            self.queue.push_back(name.to_owned());
        }
        json!({ "$ref": format!("#/$defs/{name}") })
    }
}

/// Returns the schema of a scalar. A custom scalar accepts any value.
pub(super) fn scalar(name: &str) -> Value {
    match name {
        "Int" => json!({ "type": "integer" }),
        "Float" => json!({ "type": "number" }),
        "String" => json!({ "type": "string" }),
        "Boolean" => json!({ "type": "boolean" }),
        "ID" => json!({ "type": ["string", "integer"] }),
        other => json!({ "title": other }),
    }
}

#[cfg(test)]
mod tests {
    use shared::schema::Schema;

    use super::*;

    /// Input objects that each contain all others, as in endpoints over databases.
    fn database(tables: usize) -> Types {
        let input = |n: usize| json!({ "kind": "INPUT_OBJECT", "name": format!("i{n}") });
        let all = || (0..tables).map(|n| json!({ "name": format!("f{n}"), "type": input(n) }));
        let inputs = (0..tables).map(|n| {
            let fields: Vec<_> = all().collect();
            json!({ "kind": "INPUT_OBJECT", "name": format!("i{n}"), "inputFields": fields })
        });
        let fields: Vec<_> = (0..tables)
            .map(|n| {
                json!({ "name": format!("t{n}"), "args": [{ "name": "where", "type": input(n) }],
                             "type": { "kind": "SCALAR", "name": "Int" } })
            })
            .collect();
        let query = json!({ "kind": "OBJECT", "name": "Q", "fields": fields });
        let types: Vec<_> = inputs.chain([query]).collect();
        Types::read(json!({ "queryType": { "name": "Q" }, "types": types })).unwrap()
    }

    #[test]
    fn argument_schemas_of_a_large_endpoint_stay_within_a_budget() {
        let types = database(300);
        let fields = types.fields(types.query.as_deref());
        let most = share(fields.len());
        let sizes = fields.iter().map(|field| schema(&types, &field.args, most).to_string().len());
        let bytes: usize = sizes.sum();
        // Without the budget there are 300 schemas with 60 input objects of 300 fields each.
        assert!(bytes < 60 << 20, "{bytes}");
        assert!(share(1) <= 4_000 && share(1_000_000) >= 40);
        let whole = schema(&database(5), &fields[0].args, share(1));
        assert_eq!(whole["$defs"].as_object().unwrap().len(), 5, "all arguments that fit are kept");
        assert!(Schema::new(&schema(&types, &fields[0].args, 1)).is_ok());
    }
}
