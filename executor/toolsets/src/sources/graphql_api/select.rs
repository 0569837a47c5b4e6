//! The default selection: all scalars, and objects down to a depth.
//!
//! Left out are fields that need arguments, and objects of a type that is being selected already:
//! an author's books, but not the books' author. Lists are selected as what is in them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    arguments::scalar,
    introspection::{Argument, Field, Kind, Ref, Type, Types},
};

/// Fields of one selection: a request stays small.
const FIELDS: usize = 400;
/// Objects that are looked into for that, also where nothing of them can be selected.
const LOOKS: usize = 10_000;

/// Selects below a field. The text is empty where nothing can be, and the schema is what comes of
/// it.
pub(super) fn select(types: &Types, of: &Ref, depth: usize) -> (String, Value) {
    let mut selector = Selector { types, left: FIELDS, looks: LOOKS, path: Vec::new() };
    let made = selector.value(of, depth);
    made.unwrap_or_else(|| (" { __typename }".to_owned(), json!({})))
}

/// Writes a part of a path.
pub(super) fn part(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

struct Selector<'a> {
    types: &'a Types,
    left: usize,
    /// Objects that may still be looked into.
    looks: usize,
    /// The types that are being selected.
    path: Vec<&'a str>,
}

impl<'a> Selector<'a> {
    /// Returns what is written behind a field of a type, and its schema; nothing if the field is
    /// to be left out.
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

    /// Selects plain fields before objects, so that what is left goes to the former.
    fn fields(
        &mut self,
        fields: &'a [Field],
        depth: usize,
        words: &mut Vec<String>,
        properties: &mut Map<String, Value>,
    ) {
        let (plain, objects): (Vec<_>, Vec<_>) =
            fields.iter().filter(|it| is_open(it)).partition(|it| self.is_plain(it));
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
        known.is_some_and(|(_, it)| matches!(it.kind, Kind::Scalar | Kind::Enum))
    }

    /// Selects the plain fields of a union's members, or those of an interface's that are not its
    /// own. Where two members mean different things by a name it is left out: an answer could not
    /// have both.
    fn members(
        &mut self,
        of: &'a Type,
        words: &mut Vec<String>,
        properties: &mut Map<String, Value>,
    ) {
        let mut meanings: BTreeMap<&str, String> = BTreeMap::new();
        let own: BTreeSet<&str> = of.fields.iter().flatten().map(|it| it.name.as_str()).collect();
        for member in of.possible_types.as_deref().unwrap_or_default() {
            let fields = self.types.fields(Some(&member.name)).iter();
            let fields = fields.filter(|it| {
                self.is_plain(it)
                    && is_open(it)
                    && !own.contains(it.name.as_str())
                    && *meanings.entry(&it.name).or_insert_with(|| it.of.written())
                        == it.of.written()
            });
            let fields: Vec<&Field> = fields.take(self.left).collect();
            self.left -= fields.len();
            for field in &fields {
                // Another member has no such field.
                let schema = self.value(&field.of, 1).map(|(_, it)| nullable(it));
                properties.insert(field.name.clone(), schema.unwrap_or_else(|| json!({})));
            }
            let fields: Vec<&str> = fields.iter().map(|it| it.name.as_str()).collect();
            if !fields.is_empty() {
                words.push(format!("... on {} {{ {} }}", member.name, fields.join(" ")));
            }
        }
    }
}

/// Returns whether a field can be selected without arguments.
fn is_open(field: &Field) -> bool {
    !field.args.iter().any(Argument::is_required)
}

/// Puts the lists and nulls of a type around what is in it.
fn wrapped(of: &Ref, inner: Value) -> Value {
    match (of.kind, &of.of_type) {
        (Kind::NonNull, Some(it)) => certain(it, inner),
        _ => nullable(certain(of, inner)),
    }
}

fn certain(of: &Ref, inner: Value) -> Value {
    match (of.kind, &of.of_type) {
        (Kind::List, Some(it)) => json!({ "type": "array", "items": wrapped(it, inner) }),
        _ => inner,
    }
}

fn nullable(mut schema: Value) -> Value {
    match schema.get_mut("type") {
        Some(Value::Array(all)) if all.iter().any(|it| it == "null") => {}
        Some(Value::Array(all)) => all.push(json!("null")),
        Some(one) => *one = json!([one.take(), "null"]),
        None => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects that lead to many others, and none of them to anything plain.
    #[test]
    fn objects_of_which_nothing_can_be_selected_are_not_searched_for_ever() {
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
