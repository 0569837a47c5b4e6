//! Tools that call servers of third parties: npm's json-graphql-server and json-server.

use std::process::Stdio;

use serde_json::{Value, json};
use shared::tool::Effect;
use tests::{
    installed,
    toolset::{Connected, MAX_WAIT},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// A server that is stopped when this value is dropped.
struct Server {
    url: String,
    _child: Child,
}

impl Server {
    async fn start(kind: &str) -> Self {
        let modules = installed::find_path("FABER_TEST_SERVER_MODULES", "servers/node_modules");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers/serve.cjs");
        let mut command = Command::new(installed::find_program("node"));
        command.args([script, kind]).arg(modules).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = timeout(MAX_WAIT, lines.next_line()).await.expect("the server starts in time");
        let port = port.unwrap().expect("the server prints its port");
        Self { url: format!("http://127.0.0.1:{port}"), _child: child }
    }
}

#[tokio::test]
async fn tools_of_a_graphql_server_create_and_list_records() {
    let server = Server::start("graphql").await;
    let set = Connected::connect(&json!({ "graphql": { "url": server.url } })).await;
    let effect = |name: &str| set.tool(name).definition().effect;
    assert_eq!((effect("allAuthors"), effect("createAuthor")), (Effect::Read, Effect::Once));
    let author = set.call("createAuthor", json!({ "name": "Grace" })).await.unwrap();
    assert_eq!(author["name"], "Grace");
    let parameters = json!({ "title": "Compilers", "author_id": author["id"] });
    let book = set.call("createBook", parameters).await.unwrap();
    assert_eq!((&book["title"], &book["Author"]["name"]), (&json!("Compilers"), &json!("Grace")));
    let all = set.call("allBooks", json!({ "filter": { "q": "comp" } })).await.unwrap();
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    let missing = set.tool("createBook").complaint(&json!({ "title": "Compilers" }));
    assert!(missing.is_some_and(|message| message.contains("author_id")));
}

fn openapi_document(url: &str) -> Value {
    let id =
        json!([{ "name": "id", "in": "path", "required": true, "schema": { "type": "integer" } }]);
    let author = json!({ "type": "object", "required": ["name"], "properties": {
        "id": { "type": "integer", "readOnly": true }, "name": { "type": "string" },
    } });
    let body = json!({ "required": true, "content": { "application/json": { "schema": author } } });
    let filter = json!([{ "name": "name_like", "in": "query", "schema": { "type": "string" } }]);
    json!({
        "openapi": "3.1.0",
        "servers": [{ "url": url }],
        "paths": {
            "/authors": {
                "get": { "operationId": "listAuthors", "parameters": filter },
                "post": { "operationId": "createAuthor", "requestBody": body },
            },
            "/authors/{id}": {
                "parameters": id,
                "get": { "operationId": "getAuthor" },
                "put": { "operationId": "replaceAuthor", "requestBody": body },
                "delete": { "operationId": "deleteAuthor" },
            },
        },
    })
}

#[tokio::test]
async fn operations_of_an_openapi_document_are_called() {
    let server = Server::start("rest").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authors.json");
    std::fs::write(&file, openapi_document(&server.url).to_string()).unwrap();
    let set = Connected::connect(&json!({ "openapi": { "document": file } })).await;
    let created = set.call("createAuthor", json!({ "name": "Grace" })).await.unwrap();
    assert_eq!(created, json!({ "name": "Grace", "id": 2 }));
    let found = set.call("listAuthors", json!({ "name_like": "^Gr" })).await.unwrap();
    assert_eq!(found, json!([created]));
    let replaced = set.call("replaceAuthor", json!({ "id": 2, "name": "G. H." })).await.unwrap();
    assert_eq!(replaced["name"], "G. H.");
    set.call("deleteAuthor", json!({ "id": 2 })).await.unwrap();
    let gone = set.call("getAuthor", json!({ "id": 2 })).await.unwrap_err();
    assert!(gone.message.contains("404 Not Found") && !gone.retryable, "{gone}");
}
