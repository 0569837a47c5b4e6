//! The schema only grows. `schema.graphql` is the schema of commit 99bdf0da without descriptions, and
//! `documents.txt` has the operations of its tests, pages and documentation, one on each line.

use std::collections::BTreeSet;

use async_graphql::{
    Response,
    extensions::{Extension, ExtensionContext, ExtensionFactory, NextExecute},
};

use super::{super::builder_with_descriptions, *};

const OLD_SCHEMA: &str = include_str!("compatibility/schema.graphql");
const OLD_DOCUMENTS: &str = include_str!("compatibility/documents.txt");

/// The default depends on the plan since a plan with `compensate` compensates without being asked.
const INTENDED_CHANGE: &str =
    "`ExecutionOptions.compensateOnFailure` was `Boolean = false` and is `Boolean`";

/// Answers each operation after its validation, without executing it.
struct ValidationOnly;

impl ExtensionFactory for ValidationOnly {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Self)
    }
}

#[async_trait::async_trait]
impl Extension for ValidationOnly {
    async fn execute(
        &self,
        _: &ExtensionContext<'_>,
        _: Option<&str>,
        _: NextExecute<'_>,
    ) -> Response {
        Response::default()
    }
}

/// Returns the differences that could break a client of the old schema: members that were removed or
/// changed, and new arguments that a client must send.
fn list_breaking_changes(old: &str, new: &str) -> Vec<String> {
    let input_types = list_input_types(old);
    let (old, new) = (describe_members(old), describe_members(new));
    let mut changes = Vec::new();
    for (name, shape) in &old {
        match new.get(name) {
            None => changes.push(format!("`{name}` was removed")),
            Some(now) if now != shape => {
                changes.push(format!("`{name}` was `{shape}` and is `{now}`"));
            }
            Some(_) => (),
        }
    }
    for (name, shape) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
        let is_sent_by_old_clients = match name.split_once('(') {
            Some((field, _)) => old.contains_key(field),
            None => name.split_once('.').is_some_and(|(ty, _)| input_types.contains(ty)),
        };
        if is_sent_by_old_clients && shape.ends_with('!') {
            changes.push(format!("`{name}` is new, and clients must send it"));
        }
    }
    changes
}

fn list_input_types(sdl: &str) -> BTreeSet<String> {
    let definitions = parse_schema(sdl).unwrap().definitions.into_iter();
    let inputs = definitions.filter_map(|definition| match definition {
        TypeSystemDefinition::Type(ty) if matches!(ty.node.kind, TypeKind::InputObject(_)) => {
            Some(ty.node.name.node.to_string())
        }
        _ => None,
    });
    inputs.collect()
}

#[test]
fn nothing_of_the_old_schema_was_removed_or_changed() {
    let mut changes = list_breaking_changes(OLD_SCHEMA, &schema_text());
    changes.retain(|change| change != INTENDED_CHANGE);
    assert!(changes.is_empty(), "{}", changes.join("\n"));
}

#[test]
fn breaking_changes_are_found() {
    let old = "type Query { a(x: Int): String b: Int } input I { c: Int } enum E { D F }";
    for (new, expected) in [
        (old, vec![]),
        (
            "type Query { a(x: Int y: Int): String b: Int z: Int } input I { c: Int d: Int = 1 }
             enum E { D F G } type New { i: Int! }",
            vec![],
        ),
        (
            "type Query { a(x: Int): String } input I { c: Int } enum E { D }",
            vec!["`E.F` was removed", "`Query.b` was removed"],
        ),
        (
            "type Query { a(x: Int = 1 y: Int!): String! b: Int } input I { c: Int! d: Int! }
             enum E { D F }",
            vec![
                "`I.c` was `Int` and is `Int!`",
                "`Query.a` was `String` and is `String!`",
                "`Query.a(x)` was `Int` and is `Int = 1`",
                "`I.d` is new, and clients must send it",
                "`Query.a(y)` is new, and clients must send it",
            ],
        ),
    ] {
        assert_eq!(list_breaking_changes(old, new), expected, "{new}");
    }
}

#[tokio::test]
async fn every_old_document_is_valid() {
    let schema = builder_with_descriptions().extension(ValidationOnly).finish();
    let documents: Vec<&str> = OLD_DOCUMENTS.lines().collect();
    assert!(documents.len() > 300, "{}", documents.len());
    for document in documents {
        let mut request = async_graphql::Request::new(document);
        let operations = &request.parsed_query().unwrap().operations;
        let name = operations.iter().find_map(|(name, _)| name.map(ToString::to_string));
        // All operations of a document are validated, whichever of them is executed.
        request.operation_name = name;
        let answer = schema.execute(request).await;
        assert!(answer.errors.is_empty(), "{document}\n{:?}", answer.errors);
    }
    let unknown = schema.execute("{ executions { nonsense } }").await;
    assert!(!unknown.errors.is_empty(), "the schema validates documents");
}
