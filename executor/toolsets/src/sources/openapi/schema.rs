//! Converts the schemas of a document into JSON Schemas.
//!
//! The number of nodes is limited, because models read the schemas and a document may have
//! thousands. Beyond the limit, a schema accepts any value.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use super::document::Document;
use crate::sources::offer::clip_text;

const MAX_DEPTH: usize = 24;
const MAX_DESCRIPTION_BYTES: usize = 300;
/// A longer list of `enum`, `oneOf`, `anyOf`, `allOf` or `prefixItems` is left out.
const MAX_CHOICES: usize = 500;
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// The direction of a value. Some properties belong to requests or responses only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

#[derive(Debug)]
pub(super) struct SchemaConverter<'a> {
    document: &'a Document,
    direction: Direction,
    nodes_left: usize,
    /// Maps each reference to its name in `$defs`.
    names: BTreeMap<String, String>,
    used_names: BTreeSet<String>,
    queue: VecDeque<(String, &'a Value)>,
}

impl<'a> SchemaConverter<'a> {
    pub(super) fn new(document: &'a Document, direction: Direction, nodes: usize) -> Self {
        Self {
            document,
            direction,
            nodes_left: nodes,
            names: BTreeMap::new(),
            used_names: BTreeSet::new(),
            queue: VecDeque::new(),
        }
    }

    /// Converts a schema. References in the result name schemas that
    /// [`into_defs`](Self::into_defs) returns.
    pub(super) fn schema(&mut self, schema: &'a Value) -> Value {
        self.convert_schema(schema, 0)
    }

    pub(super) fn into_defs(mut self) -> Map<String, Value> {
        let mut defs = Map::new();
        while let Some((name, schema)) = self.queue.pop_front() {
            let converted = self.convert_schema(schema, 0);
            defs.insert(name, converted);
        }
        remove_empty_cycles(&mut defs);
        defs
    }

    pub(super) fn is_left_out(&self, schema: &Value) -> bool {
        let word = match self.direction {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        };
        let is_marked = |schema: &Value| schema.get(word) == Some(&Value::Bool(true));
        is_marked(schema) || self.document.resolve(schema).is_ok_and(is_marked)
    }

    fn convert_schema(&mut self, schema: &'a Value, depth: usize) -> Value {
        let Value::Object(source) = schema else {
            return if *schema == Value::Bool(false) { json!(false) } else { json!({}) };
        };
        if self.nodes_left == 0 || depth > MAX_DEPTH {
            return json!({});
        }
        self.nodes_left -= 1;
        if let Some(reference) = source.get("$ref").and_then(Value::as_str) {
            return self.convert_reference(reference, source);
        }
        let mut converted = Map::new();
        convert_types(source, &mut converted);
        copy_keywords(source, &mut converted);
        self.convert_nested(source, &mut converted, depth);
        self.convert_properties(source, &mut converted, depth);
        let is_nullable = source.get("nullable") == Some(&Value::Bool(true));
        let is_open = !converted.contains_key("type");
        let is_chosen =
            ["allOf", "anyOf", "oneOf", "enum"].iter().any(|word| converted.contains_key(*word));
        if is_nullable && is_open && is_chosen {
            return json!({ "anyOf": [converted, { "type": "null" }] });
        }
        Value::Object(converted)
    }

    fn convert_reference(&mut self, reference: &str, source: &Map<String, Value>) -> Value {
        let Ok((pointer, target)) = self.document.resolve_reference(reference) else {
            return json!({});
        };
        let known_name = self.names.get(&pointer).cloned();
        let name = known_name.unwrap_or_else(|| {
            let name = self.definition_name(&pointer);
            self.names.insert(pointer, name.clone());
            self.queue.push_back((name.clone(), target));
            name
        });
        let mut converted = Map::new();
        converted.insert("$ref".to_owned(), json!(format!("#/$defs/{name}")));
        copy_description(source, &mut converted);
        Value::Object(converted)
    }

    fn definition_name(&mut self, pointer: &str) -> String {
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let base: String = last.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let base = if base.is_empty() { "schema".to_owned() } else { base };
        let mut name = base.clone();
        let mut count = 1;
        while !self.used_names.insert(name.clone()) {
            count += 1;
            name = format!("{base}_{count}");
        }
        name
    }

    fn convert_nested(
        &mut self,
        source: &'a Map<String, Value>,
        converted: &mut Map<String, Value>,
        depth: usize,
    ) {
        // Leaves out `not`, because the negation of an incomplete schema forbids too much.
        for word in ["items", "additionalProperties", "contains", "propertyNames"] {
            if let Some(inner @ (Value::Object(_) | Value::Bool(_))) = source.get(word) {
                let inner = if inner.is_boolean() {
                    inner.clone()
                } else {
                    self.convert_schema(inner, depth + 1)
                };
                converted.insert(word.to_owned(), inner);
            }
        }
        for word in ["allOf", "anyOf", "oneOf", "prefixItems"] {
            if let Some(Value::Array(all)) = source.get(word)
                && !all.is_empty()
                && all.len() <= MAX_CHOICES
            {
                let all = all.iter().map(|inner| self.convert_schema(inner, depth + 1)).collect();
                // Converts `oneOf` to `anyOf`, because several incomplete schemas may match at the
                // same time.
                let word = if word == "oneOf" { "anyOf" } else { word };
                converted.entry(word.to_owned()).or_insert(Value::Array(all));
            }
        }
    }

    fn convert_properties(
        &mut self,
        source: &'a Map<String, Value>,
        converted: &mut Map<String, Value>,
        depth: usize,
    ) {
        let mut left_out = BTreeSet::new();
        if let Some(Value::Object(all)) = source.get("properties") {
            let mut properties = Map::new();
            for (name, schema) in all {
                if self.is_left_out(schema) {
                    left_out.insert(name.as_str());
                } else {
                    properties.insert(name.clone(), self.convert_schema(schema, depth + 1));
                }
            }
            converted.insert("properties".to_owned(), Value::Object(properties));
        }
        if let Some(Value::Array(required)) = source.get("required") {
            let mut seen = BTreeSet::new();
            let required = required.iter().filter_map(Value::as_str);
            let required: Vec<_> =
                required.filter(|name| !left_out.contains(name) && seen.insert(*name)).collect();
            if !required.is_empty() {
                converted.insert("required".to_owned(), json!(required));
            }
        }
    }
}

fn convert_types(source: &Map<String, Value>, converted: &mut Map<String, Value>) {
    let one =
        |value: &Value| value.as_str().filter(|value| TYPES.contains(value)).map(str::to_owned);
    let mut types: Vec<String> = match source.get("type") {
        Some(Value::Array(all)) => all.iter().filter_map(one).collect(),
        Some(value) => one(value).into_iter().collect(),
        None => Vec::new(),
    };
    let is_nullable = source.get("nullable") == Some(&Value::Bool(true));
    if is_nullable && !types.is_empty() {
        types.push("null".to_owned());
    }
    let mut seen = BTreeSet::new();
    types.retain(|kind| seen.insert(kind.clone()));
    match types.len() {
        0 => {}
        1 => drop(converted.insert("type".to_owned(), json!(types[0]))),
        _ => drop(converted.insert("type".to_owned(), json!(types))),
    }
    if let Some(Value::Array(choices)) = source.get("enum")
        && !choices.is_empty()
        && choices.len() <= MAX_CHOICES
    {
        let mut choices = choices.clone();
        if is_nullable && !choices.contains(&Value::Null) {
            choices.push(Value::Null);
        }
        converted.insert("enum".to_owned(), Value::Array(choices));
    }
}

/// Copies valid keywords that all dialects share.
fn copy_keywords(source: &Map<String, Value>, converted: &mut Map<String, Value>) {
    copy_description(source, converted);
    for word in ["title", "format", "pattern"] {
        if let Some(Value::String(text)) = source.get(word) {
            converted.insert(word.to_owned(), json!(clip_text(text, MAX_DESCRIPTION_BYTES)));
        }
    }
    for word in ["default", "const"] {
        if let Some(value) = source.get(word) {
            converted.insert(word.to_owned(), value.clone());
        }
    }
    for word in ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]
    {
        if let Some(count) = source.get(word).and_then(Value::as_u64) {
            converted.insert(word.to_owned(), json!(count));
        }
    }
    if let Some(Value::Bool(is_unique)) = source.get("uniqueItems") {
        converted.insert("uniqueItems".to_owned(), json!(is_unique));
    }
    if let Some(step @ Value::Number(n)) = source.get("multipleOf")
        && n.as_f64().is_some_and(|step| step > 0.0)
    {
        converted.insert("multipleOf".to_owned(), step.clone());
    }
    for (word, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let bound = source.get(word).filter(|bound| bound.is_number());
        match (bound, source.get(exclusive)) {
            // Reads both forms, because the exclusive bound is a boolean in 3.0 and a number in
            // 3.1.
            (Some(bound), Some(Value::Bool(true))) => {
                converted.insert(exclusive.to_owned(), bound.clone());
            }
            (bound, other) => {
                converted.extend(bound.map(|bound| (word.to_owned(), bound.clone())));
                let other = other.filter(|other| other.is_number());
                converted.extend(other.map(|other| (exclusive.to_owned(), other.clone())));
            }
        }
    }
}

fn copy_description(source: &Map<String, Value>, converted: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = source.get("description") {
        converted
            .insert("description".to_owned(), json!(clip_text(text.trim(), MAX_DESCRIPTION_BYTES)));
    }
}

/// Removes references that lead back to themselves through references only, because validation of
/// such references would not end.
fn remove_empty_cycles(defs: &mut Map<String, Value>) {
    let mut done = BTreeSet::new();
    let names: Vec<String> = defs.keys().cloned().collect();
    for name in names {
        let mut path = Vec::new();
        visit_definition(&name, defs, &mut path, &mut done);
    }
}

fn visit_definition(
    name: &str,
    defs: &mut Map<String, Value>,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) {
    if !done.insert(name.to_owned()) {
        return;
    }
    path.push(name.to_owned());
    let mut next = Vec::new();
    if let Some(schema) = defs.get_mut(name) {
        remove_references(schema, &mut |target| {
            let is_cycle = path.iter().any(|name| name == target);
            if !is_cycle {
                next.push(target.to_owned());
            }
            is_cycle
        });
    }
    for target in next {
        visit_definition(&target, defs, path, done);
    }
    path.pop();
}

/// Removes the references for which `is_cut` returns `true`. Visits only references that describe
/// the same value as `schema`, not a value inside it.
fn remove_references(schema: &mut Value, is_cut: &mut dyn FnMut(&str) -> bool) {
    let target = schema.get("$ref").and_then(Value::as_str);
    let target = target.and_then(|target| target.strip_prefix("#/$defs/"));
    if target.is_some_and(&mut *is_cut) {
        *schema = json!({});
        return;
    }
    let Value::Object(words) = schema else { return };
    for word in ["allOf", "anyOf"] {
        if let Some(Value::Array(all)) = words.get_mut(word) {
            for inner in all {
                remove_references(inner, is_cut);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_converted_schema(
        schema: Value,
        components: Value,
        direction: Direction,
        expected: Expect,
    ) {
        let document = json!({ "openapi": "3.0.0", "components": { "schemas": components } });
        let document = Document::parse(document.to_string().as_bytes()).unwrap();
        let mut schemas = SchemaConverter::new(&document, direction, 50);
        let mut converted = schemas.schema(&schema);
        let defs = schemas.into_defs();
        if !defs.is_empty() {
            converted["$defs"] = Value::Object(defs);
        }
        let compiled = shared::schema::Schema::new(&converted).unwrap();
        compiled.is_valid(&json!({ "a": [1, null, { "a": {} }] }));
        expected.assert_eq(&converted.to_string());
    }

    fn check_request(schema: Value, components: Value, expected: Expect) {
        check_converted_schema(schema, components, Direction::Request, expected);
    }

    #[test]
    fn schemas_of_older_dialects_are_converted() {
        let none = || json!({});
        check_request(
            json!({ "type": "string", "nullable": true, "example": "x", "xml": {} }),
            none(),
            expect![[r#"{"type":["string","null"]}"#]],
        );
        check_request(
            json!({ "type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false }),
            none(),
            expect![[r#"{"type":"integer","exclusiveMinimum":1,"maximum":9}"#]],
        );
        check_request(
            json!({ "type": ["string", "null"], "exclusiveMinimum": 3 }),
            none(),
            expect![[r#"{"type":["string","null"],"exclusiveMinimum":3}"#]],
        );
        check_request(
            json!({ "nullable": true, "allOf": [{ "type": "string" }] }),
            none(),
            expect![[r#"{"anyOf":[{"allOf":[{"type":"string"}]},{"type":"null"}]}"#]],
        );
        check_request(
            json!({ "type": "string", "enum": ["a"], "nullable": true }),
            none(),
            expect![[r#"{"type":["string","null"],"enum":["a",null]}"#]],
        );
    }

    #[test]
    fn invalid_schema_keywords_are_left_out() {
        check_request(
            json!({ "type": "strnig", "properties": [], "required": "a", "items": 3, "enum": [], "minLength": -1, "multipleOf": 0, "allOf": {} }),
            json!({}),
            expect!["{}"],
        );
        check_request(json!([]), json!({}), expect!["{}"]);
        check_request(json!({ "$ref": "#/components/schemas/Gone" }), json!({}), expect!["{}"]);
        check_request(json!({ "$ref": "other.yaml#/A" }), json!({}), expect!["{}"]);
    }

    #[test]
    fn read_only_properties_are_left_out_of_requests() {
        let schema = json!({
            "type": "object",
            "required": ["id", "secret"],
            "properties": { "id": { "readOnly": true }, "secret": { "writeOnly": true } },
        });
        check_request(
            schema.clone(),
            json!({}),
            expect![[r#"{"type":"object","properties":{"secret":{}},"required":["secret"]}"#]],
        );
        check_converted_schema(
            schema,
            json!({}),
            Direction::Response,
            expect![[r#"{"type":"object","properties":{"id":{}},"required":["id"]}"#]],
        );
    }

    #[test]
    fn recursive_schemas_are_kept_and_circular_references_cut() {
        let node = json!({ "$ref": "#/components/schemas/Node" });
        check_request(
            node.clone(),
            json!({ "Node": { "properties": { "next": node } } }),
            expect![[
                r##"{"$ref":"#/$defs/Node","$defs":{"Node":{"properties":{"next":{"$ref":"#/$defs/Node"}}}}}"##
            ]],
        );
        check_request(
            json!({ "$ref": "#/components/schemas/A" }),
            json!({ "A": { "$ref": "#/components/schemas/B" }, "B": { "$ref": "#/components/schemas/A" } }),
            expect!["{}"],
        );
        check_request(
            json!({ "$ref": "#/components/schemas/A" }),
            json!({
                "A": { "allOf": [{ "$ref": "#/components/schemas/B" }] },
                "B": { "anyOf": [{ "$ref": "#/components/schemas/A" }, { "type": "string" }] },
            }),
            expect![[
                r##"{"$ref":"#/$defs/A","$defs":{"A":{"allOf":[{"$ref":"#/$defs/B"}]},"B":{"anyOf":[{},{"type":"string"}]}}}"##
            ]],
        );
    }

    #[test]
    fn a_too_large_schema_is_cut_to_accept_anything() {
        let all: Map<String, Value> = (0..500)
            .map(|n| {
                let next = format!("#/components/schemas/S{}", (n + 1) % 500);
                (
                    format!("S{n}"),
                    json!({ "properties": { "a": { "$ref": next }, "b": { "type": "string" } } }),
                )
            })
            .collect();
        let document = json!({ "openapi": "3.1.0", "components": { "schemas": all } });
        let document = Document::parse(document.to_string().as_bytes()).unwrap();
        let mut schemas = SchemaConverter::new(&document, Direction::Request, 100);
        let first = json!({ "$ref": "#/components/schemas/S0" });
        schemas.schema(&first);
        let defs = schemas.into_defs();
        assert!((25..=101).contains(&defs.len()), "{}", defs.len());
        assert!(defs.values().any(|schema| *schema == json!({})));
    }
}
