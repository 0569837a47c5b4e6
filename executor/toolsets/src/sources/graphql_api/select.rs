//! The selection of a field: all scalars, and objects down to a depth.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    arguments::scalar_schema,
    introspection::{Argument, Field, Type, TypeKind, TypeRef, Types},
};

/// Maximum number of fields of one selection, which keeps a request small.
const MAX_FIELDS: usize = 400;
/// Maximum number of objects that are searched for fields, including objects without a selectable
/// field.
const MAX_SEARCHED_OBJECTS: usize = 10_000;

/// Returns the selection below a field, and the schema of the selected value. The text is empty for
/// a scalar.
pub(super) fn select(types: &Types, type_ref: &TypeRef, depth: usize) -> (String, Value) {
    let mut selector = Selector {
        types,
        fields_left: MAX_FIELDS,
        objects_left: MAX_SEARCHED_OBJECTS,
        path: Vec::new(),
    };
    let selection = selector.select_value(type_ref, depth);
    selection.unwrap_or_else(|| (" { __typename }".to_owned(), json!({})))
}

struct Selector<'a> {
    types: &'a Types,
    fields_left: usize,
    objects_left: usize,
    path: Vec<&'a str>,
}

impl<'a> Selector<'a> {
    /// Returns the selection below a value of the type, and its schema. Returns `None` if the field
    /// is left out.
    fn select_value(&mut self, type_ref: &'a TypeRef, depth: usize) -> Option<(String, Value)> {
        let (name, named_type) = self.types.named_type(type_ref)?;
        let (text, schema) = match named_type.kind {
            TypeKind::Scalar => (String::new(), scalar_schema(name)),
            TypeKind::Enum => (String::new(), json!({ "type": "string" })),
            TypeKind::Object | TypeKind::Interface | TypeKind::Union => {
                self.select_object(name, named_type, depth)?
            }
            TypeKind::InputObject | TypeKind::List | TypeKind::NonNull => return None,
        };
        Some((text, wrap_schema(type_ref, schema)))
    }

    fn select_object(
        &mut self,
        name: &'a str,
        named_type: &'a Type,
        depth: usize,
    ) -> Option<(String, Value)> {
        if depth == 0 || self.path.contains(&name) {
            return None;
        }
        self.objects_left = self.objects_left.checked_sub(1)?;
        self.path.push(name);
        let mut words = Vec::new();
        let mut properties = Map::new();
        if named_type.kind != TypeKind::Object {
            words.push("__typename".to_owned());
            properties.insert("__typename".to_owned(), json!({ "type": "string" }));
        }
        self.select_fields(
            named_type.fields.as_deref().unwrap_or_default(),
            depth,
            &mut words,
            &mut properties,
        );
        if named_type.kind != TypeKind::Object {
            self.select_members(named_type, &mut words, &mut properties);
        }
        self.path.pop();
        let schema = json!({ "type": "object", "properties": properties });
        (!words.is_empty()).then(|| (format!(" {{ {} }}", words.join(" ")), schema))
    }

    /// Selects scalars and enums before objects, because the number of fields is limited.
    fn select_fields(
        &mut self,
        fields: &'a [Field],
        depth: usize,
        words: &mut Vec<String>,
        properties: &mut Map<String, Value>,
    ) {
        let (plain, objects): (Vec<_>, Vec<_>) = fields
            .iter()
            .filter(|field| has_no_required_argument(field))
            .partition(|field| self.is_scalar_or_enum(field));
        for field in plain.into_iter().chain(objects) {
            if self.fields_left == 0 {
                return;
            }
            let Some((text, schema)) = self.select_value(&field.type_ref, depth - 1) else {
                continue;
            };
            self.fields_left = self.fields_left.saturating_sub(1);
            words.push(format!("{}{text}", field.name));
            properties.insert(field.name.clone(), schema);
        }
    }

    fn is_scalar_or_enum(&self, field: &Field) -> bool {
        let named_type = self.types.named_type(&field.type_ref);
        named_type.is_some_and(|(_, known)| matches!(known.kind, TypeKind::Scalar | TypeKind::Enum))
    }

    /// Selects scalar and enum fields of the possible types. A response cannot have two fields of
    /// the same name and different types, so only the first is selected.
    fn select_members(
        &mut self,
        parent: &'a Type,
        words: &mut Vec<String>,
        properties: &mut Map<String, Value>,
    ) {
        let mut field_types: BTreeMap<&str, String> = BTreeMap::new();
        let field_names: BTreeSet<&str> =
            parent.fields.iter().flatten().map(|field| field.name.as_str()).collect();
        for member in parent.possible_types.as_deref().unwrap_or_default() {
            let fields = self.types.fields(Some(&member.name)).iter();
            let fields = fields.filter(|field| {
                self.is_scalar_or_enum(field)
                    && has_no_required_argument(field)
                    && !field_names.contains(field.name.as_str())
                    && *field_types
                        .entry(&field.name)
                        .or_insert_with(|| field.type_ref.to_graphql())
                        == field.type_ref.to_graphql()
            });
            let fields: Vec<&Field> = fields.take(self.fields_left).collect();
            self.fields_left -= fields.len();
            for field in &fields {
                // Allows the field to be absent, because objects of another type do not have it.
                let schema =
                    self.select_value(&field.type_ref, 1).map(|(_, schema)| allow_null(schema));
                properties.insert(field.name.clone(), schema.unwrap_or_else(|| json!({})));
            }
            let fields: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            if !fields.is_empty() {
                words.push(format!("... on {} {{ {} }}", member.name, fields.join(" ")));
            }
        }
    }
}

fn has_no_required_argument(field: &Field) -> bool {
    !field.args.iter().any(Argument::is_required)
}

/// Adds the lists and nulls of a type to the schema of its named type.
fn wrap_schema(type_ref: &TypeRef, inner: Value) -> Value {
    match (type_ref.kind, &type_ref.of_type) {
        (TypeKind::NonNull, Some(type_ref)) => non_null_schema(type_ref, inner),
        _ => allow_null(non_null_schema(type_ref, inner)),
    }
}

fn non_null_schema(type_ref: &TypeRef, inner: Value) -> Value {
    match (type_ref.kind, &type_ref.of_type) {
        (TypeKind::List, Some(type_ref)) => {
            json!({ "type": "array", "items": wrap_schema(type_ref, inner) })
        }
        _ => inner,
    }
}

fn allow_null(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(Value::Array(all)) if all.iter().any(|kind| kind == "null") => {}
        Some(Value::Array(all)) => all.push(json!("null")),
        Some(one) => *one = json!([one.take(), "null"]),
        None => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The objects refer to many other objects, so a search without a limit would not end.
    #[test]
    fn objects_without_scalar_fields_are_searched_to_a_limited_depth() {
        let object = |level: usize, index: usize| format!("o{level}_{index}");
        let types = (0..12).flat_map(|level| (0..40).map(move |index| (level, index))).map(
            |(level, index)| {
                let below = (0..40).map(|next| {
                    let type_ref = json!({ "kind": "OBJECT", "name": object(level + 1, next) });
                    json!({ "name": format!("f{next}"), "args": [], "type": type_ref })
                });
                let fields: Vec<_> = below.filter(|_| level < 11).collect();
                json!({ "kind": "OBJECT", "name": object(level, index), "fields": fields })
            },
        );
        let types: Vec<_> = types.collect();
        let types =
            Types::read(json!({ "queryType": { "name": "o0_0" }, "types": types })).unwrap();
        let type_ref = &types.fields(types.query_type.as_deref())[0].type_ref;
        assert_eq!(select(&types, type_ref, 10).0, " { __typename }");
    }
}
