//! The selection of a field: all scalars, and objects down to a depth.
//!
//! Fields with required arguments are left out. So are objects of a type that is already being
//! selected: an author's books are selected, but not the books' author.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    arguments::scalar,
    introspection::{Argument, Field, Kind, Ref, Type, Types},
};

/// Fields of one selection, which keep a request small.
const MAX_FIELDS: usize = 400;
/// Objects that are searched for fields, including objects without a selectable field.
const MAX_SEARCHED_OBJECTS: usize = 10_000;

/// Returns the selection below a field, and the schema of the selected value. The text is empty for
/// a scalar.
pub(super) fn select(types: &Types, of: &Ref, depth: usize) -> (String, Value) {
    let mut selector =
        Selector { types, left: MAX_FIELDS, looks: MAX_SEARCHED_OBJECTS, path: Vec::new() };
    let made = selector.value(of, depth);
    made.unwrap_or_else(|| (" { __typename }".to_owned(), json!({})))
}

struct Selector<'a> {
    types: &'a Types,
    left: usize,
    looks: usize,
    path: Vec<&'a str>,
}

impl<'a> Selector<'a> {
    /// Returns the selection below a value of the type, and its schema. Returns `None` if the field
    /// is left out.
    fn value(&mut self, of: &'a Ref, depth: usize) -> Option<(String, Value)> {
        let (name, known) = self.types.named(of)?;
        let (text, schema) = match known.kind {
            Kind::Scalar => (String::new(), scalar(name)),
            Kind::Enum => (String::new(), json!({ "type": "string" })),
            Kind::Object | Kind::Interface | Kind::Union => self.object(name, known, depth)?,
            Kind::InputObject | Kind::List | Kind::NonNull => return None,
        };
        Some((text, wrapped(of, schema)))
    }

    fn object(&mut self, name: &'a str, known: &'a Type, depth: usize) -> Option<(String, Value)> {
        if depth == 0 || self.path.contains(&name) {
            return None;
        }
        self.looks = self.looks.checked_sub(1)?;
        self.path.push(name);
        let mut words = Vec::new();
        let mut properties = Map::new();
        if known.kind != Kind::Object {
            words.push("__typename".to_owned());
            properties.insert("__typename".to_owned(), json!({ "type": "string" }));
        }
        self.fields(
            known.fields.as_deref().unwrap_or_default(),
            depth,
            &mut words,
            &mut properties,
        );
        if known.kind != Kind::Object {
            self.members(known, &mut words, &mut properties);
        }
        self.path.pop();
        let schema = json!({ "type": "object", "properties": properties });
        (!words.is_empty()).then(|| (format!(" {{ {} }}", words.join(" ")), schema))
    }

    /// Selects scalars and enums before objects, so that they get the remaining fields.
    fn fields(
        &mut self,
        fields: &'a [Field],
        depth: usize,
        words: &mut Vec<String>,
        properties: &mut Map<String, Value>,
    ) {
        let (plain, objects): (Vec<_>, Vec<_>) =
            fields.iter().filter(|field| is_open(field)).partition(|field| self.is_plain(field));
        for field in plain.into_iter().chain(objects) {
            if self.left == 0 {
                return;
            }
            let Some((text, schema)) = self.value(&field.of, depth - 1) else { continue };
            self.left = self.left.saturating_sub(1);
            words.push(format!("{}{text}", field.name));
            properties.insert(field.name.clone(), schema);
        }
    }

    fn is_plain(&self, field: &Field) -> bool {
        let known = self.types.named(&field.of);
        known.is_some_and(|(_, known)| matches!(known.kind, Kind::Scalar | Kind::Enum))
    }

    /// Selects scalar and enum fields of the possible types. If two types have fields of the same
    /// name and different types, only the first is selected, because a response cannot have both.
    fn members(
        &mut self,
        of: &'a Type,
        words: &mut Vec<String>,
        properties: &mut Map<String, Value>,
    ) {
        let mut meanings: BTreeMap<&str, String> = BTreeMap::new();
        let own: BTreeSet<&str> =
            of.fields.iter().flatten().map(|field| field.name.as_str()).collect();
        for member in of.possible_types.as_deref().unwrap_or_default() {
            let fields = self.types.fields(Some(&member.name)).iter();
            let fields = fields.filter(|field| {
                self.is_plain(field)
                    && is_open(field)
                    && !own.contains(field.name.as_str())
                    && *meanings.entry(&field.name).or_insert_with(|| field.of.written())
                        == field.of.written()
            });
            let fields: Vec<&Field> = fields.take(self.left).collect();
            self.left -= fields.len();
            for field in &fields {
                // Objects of another type do not have the field.
                let schema = self.value(&field.of, 1).map(|(_, schema)| nullable(schema));
                properties.insert(field.name.clone(), schema.unwrap_or_else(|| json!({})));
            }
            let fields: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            if !fields.is_empty() {
                words.push(format!("... on {} {{ {} }}", member.name, fields.join(" ")));
            }
        }
    }
}

fn is_open(field: &Field) -> bool {
    !field.args.iter().any(Argument::is_required)
}

/// Adds the lists and nulls of a type to the schema of its named type.
fn wrapped(of: &Ref, inner: Value) -> Value {
    match (of.kind, &of.of_type) {
        (Kind::NonNull, Some(of)) => certain(of, inner),
        _ => nullable(certain(of, inner)),
    }
}

fn certain(of: &Ref, inner: Value) -> Value {
    match (of.kind, &of.of_type) {
        (Kind::List, Some(of)) => json!({ "type": "array", "items": wrapped(of, inner) }),
        _ => inner,
    }
}

fn nullable(mut schema: Value) -> Value {
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

    /// The objects refer to many others, so a search without a limit would not end.
    #[test]
    fn objects_without_scalar_fields_are_searched_to_a_limited_depth() {
        let object = |level: usize, at: usize| format!("o{level}_{at}");
        let types =
            (0..12).flat_map(|level| (0..40).map(move |at| (level, at))).map(|(level, at)| {
                let below = (0..40).map(|next| {
                    let of = json!({ "kind": "OBJECT", "name": object(level + 1, next) });
                    json!({ "name": format!("f{next}"), "args": [], "type": of })
                });
                let fields: Vec<_> = below.filter(|_| level < 11).collect();
                json!({ "kind": "OBJECT", "name": object(level, at), "fields": fields })
            });
        let types: Vec<_> = types.collect();
        let types =
            Types::read(json!({ "queryType": { "name": "o0_0" }, "types": types })).unwrap();
        let of = &types.fields(types.query.as_deref())[0].of;
        assert_eq!(select(&types, of, 10).0, " { __typename }");
    }
}
