#![expect(clippy::unused_async, reason = "resolvers are async")]

use std::sync::{Arc, Mutex};

use async_graphql::{
    ComplexObject, EmptySubscription, Enum, ID, InputObject, Interface, Object, Schema,
    SimpleObject, Union,
};
use axum::{Json, Router, http::HeaderMap, routing::post};
use expect_test::expect;
use serde_json::{Value, json};
use shared::tool::{Effect, ErrorCode};
use toolbox::SetStatus;

use crate::http::tests::trial::{TestServer, TestSet};

#[derive(Clone)]
struct Author {
    id: i32,
    name: String,
}

#[derive(Clone, SimpleObject)]
struct Book {
    id: ID,
    title: String,
    author_id: ID,
    kind: BookKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Enum)]
enum BookKind {
    Novel,
    Poems,
}

#[derive(Default, Clone)]
struct Library(Arc<Mutex<(Vec<Author>, Vec<Book>)>>);

#[Object]
impl Author {
    async fn id(&self) -> ID {
        self.id.into()
    }

    async fn name(&self) -> &str {
        &self.name
    }

    async fn books(&self, cx: &async_graphql::Context<'_>) -> Vec<Shelf> {
        let library = cx.data_unchecked::<Library>().0.lock().unwrap();
        let own = library.1.iter().filter(|book| book.author_id == ID::from(self.id));
        own.map(|book| Shelf { book: book.clone(), author: self.clone() }).collect()
    }

    async fn initials(&self, count: i32) -> String {
        self.name.chars().take(usize::try_from(count).unwrap_or(0)).collect()
    }
}

/// Books and authors refer to each other.
#[derive(SimpleObject)]
struct Shelf {
    book: Book,
    author: Author,
}

#[derive(InputObject)]
struct Filter {
    name: Option<String>,
    kinds: Option<Vec<BookKind>>,
    and: Option<Vec<Filter>>,
}

#[derive(SimpleObject)]
struct Cat {
    name: String,
    lives: i32,
}

#[derive(SimpleObject)]
#[graphql(complex)]
struct Dog {
    name: String,
    lives: String,
}

#[ComplexObject]
impl Dog {
    async fn sound(&self, #[graphql(default = 1)] times: usize) -> String {
        "wuff".repeat(times)
    }

    async fn trick(&self, word: String) -> String {
        word
    }
}

#[derive(Union)]
enum Pet {
    Cat(Cat),
    Dog(Dog),
}

#[derive(Interface)]
#[graphql(field(name = "name", ty = "&String"))]
enum Being {
    Cat(Cat),
    Dog(Dog),
}

struct Queries;

#[Object(rename_args = "snake_case")]
impl Queries {
    /// All authors.
    async fn authors(
        &self,
        cx: &async_graphql::Context<'_>,
        filter: Option<Filter>,
    ) -> Vec<Author> {
        let library = cx.data_unchecked::<Library>().0.lock().unwrap();
        let is_wanted = |author: &&Author| {
            let name = filter.as_ref().and_then(|filter| filter.name.as_ref());
            name.is_none_or(|name| *name == author.name)
        };
        library.0.iter().filter(is_wanted).cloned().collect()
    }

    async fn pets(&self) -> Vec<Pet> {
        let (name, lives) = ("Tom".to_owned(), 7);
        vec![
            Pet::Cat(Cat { name, lives }),
            Pet::Dog(Dog { name: "Rex".to_owned(), lives: "one".to_owned() }),
        ]
    }

    async fn being(&self) -> Being {
        Being::Cat(Cat { name: "Tom".to_owned(), lives: 7 })
    }

    async fn count(&self, #[graphql(default = 3)] by: i32) -> i32 {
        by * 2
    }

    async fn partial(&self) -> async_graphql::Result<Vec<Option<Flaky>>> {
        Ok(vec![Some(Flaky { works: true }), Some(Flaky { works: false })])
    }
}

struct Flaky {
    works: bool,
}

#[Object]
impl Flaky {
    async fn value(&self) -> async_graphql::Result<Option<i32>> {
        if self.works { Ok(Some(1)) } else { Err("it is broken".into()) }
    }
}

struct Mutations;

#[Object(rename_fields = "camelCase", rename_args = "snake_case")]
impl Mutations {
    async fn create_author(&self, cx: &async_graphql::Context<'_>, name: String) -> Author {
        let mut library = cx.data_unchecked::<Library>().0.lock().unwrap();
        let id = i32::try_from(library.0.len()).unwrap() + 1;
        library.0.push(Author { id, name });
        library.0.last().unwrap().clone()
    }

    async fn create_book(
        &self,
        cx: &async_graphql::Context<'_>,
        title: String,
        author_id: ID,
        kind: Option<BookKind>,
    ) -> async_graphql::Result<Book> {
        let mut library = cx.data_unchecked::<Library>().0.lock().unwrap();
        if !library.0.iter().any(|author| ID::from(author.id) == author_id) {
            return Err(format!("there is no author {}", &*author_id).into());
        }
        let id = library.1.len().into();
        let kind = kind.unwrap_or(BookKind::Novel);
        library.1.push(Book { id, title, author_id, kind });
        Ok(library.1.last().unwrap().clone())
    }

    async fn count(&self) -> i32 {
        1
    }
}

async fn start_endpoint() -> TestServer {
    let schema =
        Schema::build(Queries, Mutations, EmptySubscription).data(Library::default()).finish();
    let answer = move |headers: HeaderMap, Json(request): Json<async_graphql::Request>| {
        let schema = schema.clone();
        async move {
            if headers.get("authorization").is_some_and(|value| value != "Bearer toolsets") {
                return Json(json!({ "errors": [{ "message": "who are you?" }] }));
            }
            Json(serde_json::to_value(schema.execute(request).await).unwrap())
        }
    };
    TestServer::start(Router::new().route("/graphql", post(answer))).await
}

async fn ready_set(served: &TestServer, more: Value) -> TestSet {
    let mut source = json!({ "graphql": { "url": format!("{}/graphql", served.url) } });
    for (key, value) in more.as_object().unwrap() {
        source["graphql"][key] = value.clone();
    }
    TestSet::ready(&source).await
}

#[tokio::test]
async fn mutations_of_an_endpoint_can_be_called_in_sequence() {
    let served = start_endpoint().await;
    let set = ready_set(&served, json!({})).await;
    let author = set.call("createAuthor", json!({ "name": "Ada" })).await.unwrap();
    assert_eq!(author, json!({ "id": "1", "name": "Ada" }));
    // Passes the value that a template such as `{{createAuthor.id}}` would pass.
    let parameters = json!({ "title": "Notes", "author_id": author["id"], "kind": "POEMS" });
    let book = set.call("createBook", parameters).await.unwrap();
    assert_eq!(book, json!({ "id": "0", "title": "Notes", "authorId": "1", "kind": "POEMS" }));
    // An identifier may also be a number.
    set.call("s.createBook", json!({ "title": "More", "author_id": 1 })).await.unwrap();
    let authors = set.call("authors", json!({ "filter": { "name": "Ada", "and": [] } })).await;
    let authors = authors.unwrap();
    assert_eq!(
        (authors[0]["name"].as_str(), authors.as_array().map(Vec::len)),
        (Some("Ada"), Some(1))
    );
}

#[tokio::test]
async fn root_fields_become_tools() {
    let served = start_endpoint().await;
    let set = ready_set(&served, json!({})).await;
    assert_eq!(
        set.names(),
        ["authors", "pets", "being", "count", "partial", "createAuthor", "createBook", "count_2"]
    );
    let effect = |name: &str| set.tool(name).definition().effect;
    assert_eq!((effect("count"), effect("count_2")), (Effect::Read, Effect::Once));
    assert_eq!(set.call("count", json!({})).await, Ok(json!(6)));
    assert_eq!(set.call("count", json!({ "by": 4 })).await, Ok(json!(8)));
    assert_eq!(set.call("count_2", json!({})).await, Ok(json!(1)));
    let authors = set.tool("authors");
    expect!["All authors."].assert_eq(&authors.definition().description);
    expect![[r##"{"type":"object","properties":{"filter":{"anyOf":[{"$ref":"#/$defs/Filter"},{"type":"null"}]}},"additionalProperties":false,"$defs":{"Filter":{"type":"object","properties":{"name":{"type":["string","null"]},"kinds":{"type":["array","null"],"items":{"type":"string","enum":["NOVEL","POEMS"]}},"and":{"type":["array","null"],"items":{"$ref":"#/$defs/Filter"}}},"additionalProperties":false}}}"##]]
        .assert_eq(&authors.definition().input_schema.to_string());
    expect![[r#"{"type":"object","properties":{"title":{"type":"string"},"author_id":{"type":["string","integer"]},"kind":{"type":["string","null"],"enum":["NOVEL","POEMS",null]}},"required":["title","author_id"],"additionalProperties":false}"#]]
        .assert_eq(&set.tool("createBook").definition().input_schema.to_string());
    expect![[r#"{"type":"object","properties":{"id":{"type":["string","integer"]},"title":{"type":"string"},"authorId":{"type":["string","integer"]},"kind":{"type":"string"}}}"#]]
        .assert_eq(&set.tool("createBook").definition().output_schema.clone().unwrap().to_string());
}

#[tokio::test]
async fn a_configured_effect_does_not_turn_a_mutation_into_a_query() {
    let served = start_endpoint().await;
    let source = json!({
        "graphql": { "url": format!("{}/graphql", served.url) },
        "effects": { "s.count_2": "read", "create*": "idempotent", "*": "once" },
    });
    let set = TestSet::ready(&source).await;
    let effect = |name: &str| set.tool(name).definition().effect;
    assert_eq!(
        (effect("count_2"), effect("createBook"), effect("count")),
        (Effect::Read, Effect::Idempotent, Effect::Once)
    );
    assert_eq!(set.call("count_2", json!({})).await, Ok(json!(1)));
    assert_eq!(set.call("count", json!({})).await, Ok(json!(6)));
}

#[tokio::test]
async fn a_selection_has_the_configured_depth() {
    let served = start_endpoint().await;
    for (depth, expected) in [
        (1, json!({ "id": "1", "name": "Ada" })),
        (
            3,
            json!({ "id": "1", "name": "Ada", "books": [{ "book": { "id": "0", "title": "T", "authorId": "1", "kind": "NOVEL" } }] }),
        ),
    ] {
        let set =
            ready_set(&served, json!({ "depth": depth, "include": ["auth*", "create*"] })).await;
        assert_eq!(set.names(), ["authors", "createAuthor", "createBook"]);
        if depth == 1 {
            set.call("createAuthor", json!({ "name": "Ada" })).await.unwrap();
            set.call("createBook", json!({ "title": "T", "author_id": "1" })).await.unwrap();
        }
        assert_eq!(set.call("authors", json!({})).await, Ok(json!([expected])), "{depth}");
    }
}

#[tokio::test]
async fn unions_and_interfaces_select_their_type_name() {
    let served = start_endpoint().await;
    let set = ready_set(&served, json!({})).await;
    let pets = set.call("pets", json!({})).await.unwrap();
    assert_eq!(
        pets,
        json!([{ "__typename": "Cat", "name": "Tom", "lives": 7 }, { "__typename": "Dog", "name": "Rex", "sound": "wuff" }])
    );
    let being = set.call("being", json!({})).await.unwrap();
    assert_eq!(being, json!({ "__typename": "Cat", "name": "Tom", "lives": 7 }));
    expect![[r#"{"type":"object","properties":{"__typename":{"type":"string"},"name":{"type":"string"},"lives":{"type":["integer","null"]},"sound":{"type":["string","null"]}}}"#]]
        .assert_eq(&set.tool("being").definition().output_schema.clone().unwrap().to_string());
}

#[tokio::test]
async fn an_answer_with_errors_and_data_is_a_failure() {
    let served = start_endpoint().await;
    let set = ready_set(&served, json!({})).await;
    let err = set.call("createBook", json!({ "title": "T", "author_id": "9" })).await.unwrap_err();
    assert_eq!(err.to_string(), "tool.failed: there is no author 9");
    let err = set.call("partial", json!({})).await.unwrap_err();
    assert_eq!(err.to_string(), "tool.failed: it is broken (at partial.1.value)");
}

#[tokio::test]
async fn a_token_is_sent_to_the_endpoint() {
    let served = start_endpoint().await;
    let secret = ready_set(&served, json!({ "auth": { "secret": "CARGO_PKG_NAME" } })).await;
    assert_eq!(secret.call("count", json!({})).await, Ok(json!(6)));
    let url = format!("{}/graphql", served.url);
    let wrong = TestSet::start(&json!({ "graphql": { "url": url, "auth": "wrong" } }));
    expect!["the endpoint does not return its schema: who are you?"]
        .assert_eq(&wrong.error().await);
}

#[tokio::test]
async fn a_set_with_a_wrong_endpoint_fails_and_can_be_retried() {
    let nothing = TestServer::start(Router::new()).await;
    let source = json!({ "graphql": { "url": format!("{}/graphql", nothing.url) } });
    let set = TestSet::start(&source);
    assert!(set.error().await.ends_with(" answered 404 Not Found"));
    assert!(set.toolbox.reconnect_set(&"s".parse().unwrap()));
    assert!(matches!(set.status().await, SetStatus::Failed { .. }));
    let deep = TestSet::start(&json!({ "graphql": { "url": nothing.url, "depth": 9 } }));
    expect!["`depth` is at most 6, because each level multiplies the size of the query"]
        .assert_eq(&deep.error().await);
}

/// Returns a server that answers every request with the same response.
fn fixed_answer_router(answer: Value) -> Router {
    Router::new().fallback(move || {
        let answer = answer.clone();
        async move { Json(answer) }
    })
}

#[tokio::test]
async fn a_malformed_introspection_answer_fails_the_set() {
    for (schema, expected) in [
        (
            json!({ "data": { "__schema": { "types": 3 } } }),
            "the schema of the endpoint cannot be read: ",
        ),
        (json!({ "data": null }), "did not answer as a GraphQL endpoint does"),
        (json!([1]), "did not answer as a GraphQL endpoint does"),
        (json!({ "errors": [{ "message": "introspection is off" }] }), "introspection is off"),
    ] {
        let served = TestServer::start(fixed_answer_router(schema)).await;
        let set = TestSet::start(&json!({ "graphql": { "url": served.url } }));
        let error = set.error().await;
        assert!(error.contains(expected), "{error}");
    }
    // Types that refer to each other or to unknown types.
    let field = |name: &str, of: &str| json!({ "name": name, "args": [], "type": { "kind": "OBJECT", "name": of } });
    let types = json!([
        { "kind": "OBJECT", "name": "Q", "fields": [field("a", "A"), field("gone", "Gone")] },
        { "kind": "OBJECT", "name": "A", "fields": [field("b", "B")] },
        { "kind": "OBJECT", "name": "B", "fields": [field("a", "A")] },
    ]);
    let answer =
        json!({ "data": { "a": 1, "__schema": { "queryType": { "name": "Q" }, "types": types } } });
    let served = TestServer::start(fixed_answer_router(answer)).await;
    let set = TestSet::ready(&json!({ "graphql": { "url": served.url } })).await;
    assert_eq!(set.names(), ["a", "gone"]);
    assert_eq!(set.call("a", json!({})).await, Ok(json!(1)));
    let err = set.call("gone", json!({})).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::FAILED);
}
