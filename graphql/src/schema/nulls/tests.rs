use std::sync::Arc;

use async_graphql::{
    EmptyMutation, Error, Object, Result, Schema, Subscription,
    extensions::{
        Extension, ExtensionContext, ExtensionFactory, NextExecute, NextResolve, ResolveInfo,
    },
};
use async_trait::async_trait;
use futures::{Stream, StreamExt, stream};
use serde_json::{Value as Json, json};
use tokio::task;

use super::*;

struct Root;

/// A type with fields of every kind: nullable, non-null, objects and lists, with and without an
/// error.
#[derive(Clone)]
struct Thing;

fn failed<T>() -> Result<T> {
    Err(Error::new("failed"))
}

#[Object]
impl Root {
    async fn thing(&self) -> Thing {
        Thing
    }

    async fn maybe(&self) -> Option<Thing> {
        Some(Thing)
    }
}

#[Object]
impl Thing {
    /// Resolves later than all other fields.
    async fn late(&self) -> i32 {
        for _ in 0..8 {
            task::yield_now().await;
        }
        1
    }

    async fn soon(&self) -> i32 {
        2
    }

    async fn nothing(&self) -> Option<i32> {
        None
    }

    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn wrong(&self) -> Result<i32> {
        failed()
    }

    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn perhaps(&self) -> Result<Option<i32>> {
        failed()
    }

    async fn thing(&self) -> Thing {
        Thing
    }

    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn maybe(&self) -> Result<Option<Thing>> {
        Ok(Some(Thing))
    }

    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn lost(&self) -> Result<Option<Thing>> {
        failed()
    }

    async fn things(&self) -> Vec<Thing> {
        vec![Thing, Thing]
    }

    async fn maybe_things(&self) -> Option<Vec<Thing>> {
        Some(vec![Thing])
    }

    async fn perhaps_things(&self) -> Vec<Option<Thing>> {
        vec![Some(Thing), None]
    }

    #[expect(clippy::unused_async, reason = "resolvers are")]
    async fn lost_things(&self) -> Result<Option<Vec<Thing>>> {
        failed()
    }
}

struct Events;

#[Subscription]
impl Events {
    async fn events(&self) -> impl Stream<Item = Thing> {
        stream::iter([Thing, Thing])
    }
}

#[derive(Default)]
struct FieldErrorsExtension(FieldErrors);

impl ExtensionFactory for FieldErrorsExtension {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Self::default())
    }
}

#[async_trait]
impl Extension for FieldErrorsExtension {
    async fn execute(
        &self,
        ctx: &ExtensionContext<'_>,
        operation_name: Option<&str>,
        next: NextExecute<'_>,
    ) -> Response {
        self.0.complete_answer(next.run(ctx, operation_name).await)
    }

    async fn resolve(
        &self,
        ctx: &ExtensionContext<'_>,
        info: ResolveInfo<'_>,
        next: NextResolve<'_>,
    ) -> ServerResult<Option<Value>> {
        let (return_type, path) = (info.return_type, info.path_node);
        self.0.resolve_null(return_type, path, next.run(ctx, info).await)
    }
}

fn schema() -> Schema<Root, EmptyMutation, Events> {
    Schema::build(Root, EmptyMutation, Events).extension(FieldErrorsExtension::default()).finish()
}

/// Returns the data as text, and the paths of all errors.
fn data_and_error_paths(answer: &Response) -> (String, Vec<Json>) {
    let paths = answer.errors.iter().map(|error| serde_json::to_value(&error.path).unwrap());
    (serde_json::to_string(&answer.data).unwrap(), paths.collect())
}

/// Operations, with the data and the error paths of their answers.
const CASES: &[(&str, &str, &str)] = &[
    // Without an error, the fields of the answer have the order of the operation.
    ("{ thing { late soon } }", r#"{"thing":{"late":1,"soon":2}}"#, "[]"),
    (
        "{ thing { ...F soon b: late ... { a: soon } } } fragment F on Thing { late b: late nothing }",
        r#"{"thing":{"late":1,"b":1,"nothing":null,"soon":2,"a":2}}"#,
        "[]",
    ),
    (
        "{ thing { thing { late } } thing { soon thing { soon } } }",
        r#"{"thing":{"thing":{"late":1,"soon":2},"soon":2}}"#,
        "[]",
    ),
    // A failed nullable field is null, and its parent is not.
    (
        "{ thing { soon perhaps late } }",
        r#"{"thing":{"soon":2,"perhaps":null,"late":1}}"#,
        r#"[["thing","perhaps"]]"#,
    ),
    ("{ thing { perhaps } }", r#"{"thing":{"perhaps":null}}"#, r#"[["thing","perhaps"]]"#),
    (
        "{ thing { a: lost { soon } b: lostThings { soon } } }",
        r#"{"thing":{"a":null,"b":null}}"#,
        r#"[["thing","a"],["thing","b"]]"#,
    ),
    (
        "{ thing { ...F ... on Thing { soon } } } fragment F on Thing { x: perhaps }",
        r#"{"thing":{"x":null,"soon":2}}"#,
        r#"[["thing","x"]]"#,
    ),
    // A failed non-null field makes its parent null.
    ("{ thing { soon wrong } }", "null", r#"[["thing","wrong"]]"#),
    (
        "{ thing { soon } maybe { soon wrong } }",
        r#"{"thing":{"soon":2},"maybe":null}"#,
        r#"[["maybe","wrong"]]"#,
    ),
    (
        "{ a: maybe { thing { ...F } } b: maybe { soon } } fragment F on Thing { late x: wrong }",
        r#"{"a":null,"b":{"soon":2}}"#,
        r#"[["a","thing","x"]]"#,
    ),
    (
        "{ thing { maybe { maybe { wrong } soon } } }",
        r#"{"thing":{"maybe":{"maybe":null,"soon":2}}}"#,
        r#"[["thing","maybe","maybe","wrong"]]"#,
    ),
    // An error in an item of a list contains the index of the item and the field.
    (
        "{ thing { things { perhaps soon } } }",
        r#"{"thing":{"things":[{"perhaps":null,"soon":2},{"perhaps":null,"soon":2}]}}"#,
        r#"[["thing","things",0,"perhaps"],["thing","things",1,"perhaps"]]"#,
    ),
    ("{ thing { things { wrong } } }", "null", r#"[["thing","things",0,"wrong"]]"#),
    (
        "{ thing { maybeThings { soon wrong } soon } }",
        r#"{"thing":{"maybeThings":null,"soon":2}}"#,
        r#"[["thing","maybeThings",0,"wrong"]]"#,
    ),
    (
        "{ thing { perhapsThings { soon wrong } } }",
        r#"{"thing":{"perhapsThings":[null,null]}}"#,
        r#"[["thing","perhapsThings",0,"wrong"]]"#,
    ),
    // An object that is requested twice is null if one of the two results failed.
    (
        "{ maybe { soon } maybe { wrong } thing { soon } }",
        r#"{"maybe":null,"thing":{"soon":2}}"#,
        r#"[["maybe","wrong"]]"#,
    ),
    (
        "{ maybe { thing { wrong } } maybe { thing { soon } } }",
        r#"{"maybe":null}"#,
        r#"[["maybe","thing","wrong"]]"#,
    ),
    // Introspection fields are handled like other fields.
    (
        r#"{ __typename __type(name: "Thing") { kind name } none: __type(name: "None") { name } }"#,
        r#"{"__typename":"Root","__type":{"kind":"OBJECT","name":"Thing"},"none":null}"#,
        "[]",
    ),
];

#[tokio::test]
async fn an_error_sets_the_nearest_nullable_field_to_null() {
    let schema = schema();
    for (query, data, errors) in CASES {
        let (pending, paths) = data_and_error_paths(&schema.execute(*query).await);
        assert_eq!((&*pending, &*json!(paths).to_string()), (*data, *errors), "{query}");
    }
}

#[tokio::test]
async fn errors_of_one_subscription_event_do_not_affect_others() {
    for (query, data, error) in [
        ("subscription { events { late soon } }", r#"{"events":{"late":1,"soon":2}}"#, None),
        (
            "subscription { e: events { soon perhaps late } }",
            r#"{"e":{"soon":2,"perhaps":null,"late":1}}"#,
            Some(json!(["e", "perhaps"])),
        ),
        (
            "subscription { events { soon maybe { soon wrong } } }",
            r#"{"events":{"soon":2,"maybe":null}}"#,
            Some(json!(["events", "maybe", "wrong"])),
        ),
        ("subscription { events { soon wrong } }", "null", Some(json!(["events", "wrong"]))),
    ] {
        let answers: Vec<_> = schema().execute_stream(query).collect().await;
        let expected = (data.to_owned(), Vec::from_iter(error));
        let paths: Vec<_> = answers.iter().map(data_and_error_paths).collect();
        assert_eq!(paths, [expected.clone(), expected], "{query}");
    }
}
