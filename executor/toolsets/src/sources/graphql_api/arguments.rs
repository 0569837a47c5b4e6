use std::collections::{BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use super::introspection::{Argument, TypeKind, TypeRef, Types};
use crate::sources::offer::clip_text;

const MAX_DESCRIPTION_BYTES: usize = 300;
/// Maximum number of input objects with a full schema in one tool. Further input objects accept any
/// object.
const MAX_INPUT_OBJECTS: usize = 60;
const MAX_ENUM_VALUES: usize = 500;

/// Maximum number of fields and enum values in all schemas of an endpoint, and the limits for one
/// tool. Some endpoints have thousands of fields with the same input objects.
const MAX_TOTAL_NODES: usize = 240_000;
const NODE_LIMITS_PER_TOOL: (usize, usize) = (40, 4_000);

/// Returns the maximum number of nodes of one tool's schema if an endpoint has this many tools.
pub(super) fn nodes_per_tool(tools: usize) -> usize {
    (MAX_TOTAL_NODES / tools.max(1)).clamp(NODE_LIMITS_PER_TOOL.0, NODE_LIMITS_PER_TOOL.1)
}

/// Makes the schema of a field's arguments. Input objects become `$defs`, because they may be
/// recursive.
pub(super) fn build_schema(types: &Types, arguments: &[Argument], max_nodes: usize) -> Value {
    let mut builder = SchemaBuilder {
        types,
        defined: BTreeSet::new(),
        queue: VecDeque::new(),
        node_count: 0,
        max_nodes,
    };
    let mut schema = builder.object_schema(arguments);
    let mut defs = Map::new();
    while let Some(name) = builder.queue.pop_front() {
        if builder.is_full() {
            defs.insert(name, json!({ "type": "object" }));
            continue;
        }
        let fields =
            types.by_name.get(&name).and_then(|definition| definition.input_fields.as_deref());
        let schema = builder.object_schema(fields.unwrap_or_default());
        defs.insert(name, schema);
    }
    if !defs.is_empty() {
        schema["$defs"] = Value::Object(defs);
    }
    schema
}

struct SchemaBuilder<'a> {
    types: &'a Types,
    /// Names of the input objects that have, or will get, an entry in `$defs`.
    defined: BTreeSet<String>,
    /// Names of the input objects whose entries are still missing.
    queue: VecDeque<String>,
    node_count: usize,
    max_nodes: usize,
}

impl SchemaBuilder<'_> {
    fn is_full(&self) -> bool {
        self.node_count >= self.max_nodes
    }

    fn object_schema(&mut self, arguments: &[Argument]) -> Value {
        let mut properties = Map::new();
        self.node_count += arguments.len();
        for argument in arguments {
            let mut schema = self.value_schema(&argument.type_ref);
            if let (Some(about), Value::Object(fields)) = (&argument.description, &mut schema)
                && !about.trim().is_empty()
            {
                fields.insert(
                    "description".to_owned(),
                    json!(clip_text(about.trim(), MAX_DESCRIPTION_BYTES)),
                );
            }
            properties.insert(argument.name.clone(), schema);
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

    /// Returns the schema of a value. A type without `!` may be null.
    fn value_schema(&mut self, type_ref: &TypeRef) -> Value {
        if type_ref.kind == TypeKind::NonNull {
            let inner = type_ref.of_type.as_deref();
            return inner.map_or_else(|| json!({}), |inner| self.non_null_schema(inner));
        }
        let mut schema = self.non_null_schema(type_ref);
        match schema.get("type").cloned() {
            Some(Value::String(one)) => schema["type"] = json!([one, "null"]),
            Some(Value::Array(mut all)) => {
                all.push(json!("null"));
                schema["type"] = Value::Array(all);
            }
            _ if schema.get("$ref").is_some() => {
                schema = json!({ "anyOf": [schema, { "type": "null" }] });
            }
            _ => {}
        }
        if let Some(Value::Array(values)) = schema.get_mut("enum") {
            values.push(Value::Null);
        }
        schema
    }

    fn non_null_schema(&mut self, type_ref: &TypeRef) -> Value {
        if type_ref.kind == TypeKind::List {
            let items = type_ref
                .of_type
                .as_deref()
                .map_or_else(|| json!({}), |inner| self.value_schema(inner));
            return json!({ "type": "array", "items": items });
        }
        let Some((name, definition)) = self.types.named_type(type_ref) else { return json!({}) };
        match definition.kind {
            TypeKind::Enum => {
                let values = definition.enum_values.as_deref().unwrap_or_default();
                if values.is_empty() || values.len() > MAX_ENUM_VALUES || self.is_full() {
                    return json!({ "type": "string" });
                }
                self.node_count += values.len();
                let values: Vec<_> = values.iter().map(|value| &value.name).collect();
                json!({ "type": "string", "enum": values })
            }
            TypeKind::InputObject => self.input_schema(name),
            _ => scalar_schema(name),
        }
    }

    fn input_schema(&mut self, name: &str) -> Value {
        if !self.defined.contains(name) {
            if self.defined.len() >= MAX_INPUT_OBJECTS || self.is_full() {
                return json!({ "type": "object" });
            }
            self.defined.insert(name.to_owned());
            self.queue.push_back(name.to_owned());
        }
        json!({ "$ref": format!("#/$defs/{name}") })
    }
}

pub(super) fn scalar_schema(name: &str) -> Value {
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

    /// Input objects that each contain all other input objects, as in endpoints over databases.
    fn database_types(tables: usize) -> Types {
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
        let types = database_types(300);
        let fields = types.fields(types.query_type.as_deref());
        let maximum = nodes_per_tool(fields.len());
        let sizes =
            fields.iter().map(|field| build_schema(&types, &field.args, maximum).to_string().len());
        let bytes: usize = sizes.sum();
        // Without the limit on nodes, there would be 300 schemas with 60 input objects of 300
        // fields each.
        assert!(bytes < 60 << 20, "{bytes}");
        assert!(nodes_per_tool(1) <= 4_000 && nodes_per_tool(1_000_000) >= 40);
        let whole = build_schema(&database_types(5), &fields[0].args, nodes_per_tool(1));
        assert_eq!(whole["$defs"].as_object().unwrap().len(), 5, "all arguments that fit are kept");
        assert!(Schema::new(&build_schema(&types, &fields[0].args, 1)).is_ok());
    }
}
