//! Documents that are written to keep a server busy.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::document::Document;
use crate::http::trial::Set;

/// The longest that reading may take: far less than what a bomb asks for.
const SOON: Duration = Duration::from_mins(1);

/// Returns a document whose schemas each apply the next one ten times.
fn bomb() -> Value {
    let mut schemas = Map::new();
    for at in 0..14 {
        let next = json!({ "$ref": format!("#/components/schemas/d{}", at + 1) });
        schemas.insert(format!("d{at}"), json!({ "allOf": vec![next; 10] }));
    }
    schemas.insert("d14".to_owned(), json!({ "type": "object" }));
    let schema = json!({ "$ref": "#/components/schemas/d0" });
    let content = json!({ "application/json": { "schema": schema } });
    let plain = json!({ "application/json": { "schema": { "type": "object" } } });
    let ok = |content: &Value| json!({ "200": { "content": content } });
    json!({
        "openapi": "3.1.0",
        "servers": [{ "url": "http://127.0.0.1:9/" }],
        "paths": {
            "/in": { "post": { "operationId": "in", "requestBody": { "content": content }, "responses": {} } },
            "/out": { "get": { "operationId": "out", "responses": ok(&content) } },
            "/fine": { "get": { "operationId": "fine", "responses": ok(&plain) } },
        },
        "components": { "schemas": schemas },
    })
}

#[tokio::test]
async fn an_operation_whose_schemas_cost_too_much_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("openapi.json");
    std::fs::write(&path, bomb().to_string()).unwrap();
    let set = Set::ready(&json!({ "openapi": { "document": path } })).await;
    assert_eq!(set.names(), ["fine"]);
    let left_out = set.toolbox.sets().remove(0).left_out;
    assert_eq!(left_out.len(), 2);
    for (why, name) in left_out.iter().zip(["`inputSchema` of `in`", "`outputSchema` of `out`"]) {
        assert!(why.contains(name) && why.contains("evaluations"), "{why}");
    }
}

#[test]
fn aliases_do_not_multiply() {
    let begun = Instant::now();
    let nodes = (1..14).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, at| {
        let all = vec![format!("*a{}", at - 1); 8].join(", ");
        format!("{text}a{at}: &a{at} [{all}]\n")
    });
    assert!(Document::parse(format!("openapi: 3.1.0\n{nodes}").as_bytes()).is_err());
    // Many aliases of one long text, with anchors enough to look honest.
    let anchors: Vec<_> = (0..5_000).map(|at| format!("n{at}: &n{at} x\n")).collect();
    let anchors = anchors.concat();
    let aliases = vec!["*long"; 40_000].join(", ");
    let text =
        format!("openapi: 3.1.0\nlong: &long {}\n{anchors}all: [{aliases}]\n", "x".repeat(1 << 20));
    assert!(Document::parse(text.as_bytes()).is_err());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}
