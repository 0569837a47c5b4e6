use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
    routing::get,
};
use expect_test::{Expect, expect};
use serde_json::{Map, Value, json};
use shared::tool::Effect;
use tempfile::TempDir;
use toolbox::SetStatus;

use super::document::Document;
use crate::http::tests::trial::{TestServer, TestSet};

const PETS: &str = r##"
openapi: 3.0.3
info: { title: Pets, version: "1" }
servers: [{ url: "{scheme}://nowhere.invalid/v1", variables: { scheme: { default: http } } }]
security: [{ key: [] }]
paths:
  /pets:
    parameters:
      - { name: trace, in: header, schema: { type: string } }
    get:
      operationId: listPets
      summary: Lists pets.
      description: Newest first.
      tags: [pets, read]
      parameters:
        - { name: limit, in: query, description: How many., schema: { type: integer, minimum: 1, exclusiveMinimum: false } }
        - { name: tags, in: query, schema: { type: array, items: { type: string } }, explode: false }
        - { name: where, in: query, style: deepObject, explode: true, schema: { type: object } }
      responses:
        200: { description: ok, content: { application/json: { schema: { type: array, items: { $ref: "#/components/schemas/Pet" } } } } }
    post:
      operationId: pets/create
      tags: [pets]
      requestBody: { $ref: "#/components/requestBodies/Pet" }
      responses: { "201": { description: made, content: { application/json: { schema: { $ref: "#/components/schemas/Pet" } } } } }
  /pets/{id}:
    parameters: [{ $ref: "#/components/parameters/Id" }]
    get: { responses: {} }
    put:
      operationId: replacePet
      requestBody:
        required: true
        content: { application/json: { schema: { type: object, properties: { id: { type: integer } } } } }
    delete: { operationId: deletePet, security: [{ user: [] }] }
    patch:
      operationId: uploadPet
      requestBody: { content: { multipart/form-data: { schema: { type: object } } } }
  /login:
    post:
      operationId: login
      security: []
      requestBody: { content: { application/x-www-form-urlencoded: { schema: { type: object, properties: { user: { type: string }, n: { type: integer } } } } } }
  /other:
    get: { operationId: listPets, security: [{ token: [] }], parameters: [{ name: session, in: cookie, schema: {} }] }
components:
  securitySchemes:
    key: { type: apiKey, in: header, name: X-Key }
    user: { type: http, scheme: basic }
    token: { type: http, scheme: bearer }
  parameters:
    Id: { name: id, in: path, required: true, schema: { type: integer } }
  requestBodies:
    Pet: { required: true, content: { application/json: { schema: { $ref: "#/components/schemas/Pet" } } } }
  schemas:
    Pet:
      type: object
      required: [id, name]
      properties:
        id: { type: integer, readOnly: true }
        name: { type: string }
        owner: { type: string, nullable: true }
        parent: { $ref: "#/components/schemas/Pet" }
"##;

async fn echo(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let mut lines = vec![format!("{method} {uri}")];
    for name in ["x-key", "authorization", "cookie", "trace", "x-all", "content-type"] {
        if let Some(value) = headers.get(name) {
            lines.push(format!("{name}: {}", value.to_str().unwrap()));
        }
    }
    lines.push(String::from_utf8(body.to_vec()).unwrap());
    lines.join("\n").trim_end().to_owned().into_response()
}

struct Trial {
    served: TestServer,
    folder: TempDir,
}

impl Trial {
    async fn start(document: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("d.yaml"), document).unwrap();
        Self { served: TestServer::start(Router::new().fallback(echo)).await, folder }
    }

    fn source(&self, more: &Value) -> Value {
        let mut api = json!({
            "document": self.folder.path().join("d.yaml"),
            "base_url": format!("{}/v2/", self.served.url),
        });
        for (key, value) in more.as_object().unwrap() {
            api[key] = value.clone();
        }
        json!({ "openapi": api })
    }

    async fn ready(&self, more: Value) -> TestSet {
        TestSet::ready(&self.source(&more)).await
    }

    async fn error(&self, more: Value) -> String {
        TestSet::start(&self.source(&more)).error().await
    }
}

fn keys() -> Value {
    json!({ "auth": {
        "key": { "secret": "CARGO_PKG_NAME" },
        "user": { "username": "me", "password": { "secret": "CARGO_PKG_NAME" } },
        "token": "t",
    }, "headers": { "x-all": 1 } })
}

#[tokio::test]
async fn the_effect_of_an_operation_can_be_configured() {
    let trial = Trial::start(PETS).await;
    let mut source = trial.source(&json!({}));
    source["effects"] = json!({ "login": "read", "*Pet": "once" });
    let set = TestSet::ready(&source).await;
    let effect = |name: &str| set.tool(name).definition().effect;
    assert_eq!(effect("login"), Effect::Read);
    assert_eq!(effect("deletePet"), Effect::Once);
    assert_eq!(effect("listPets"), Effect::Read);
}

#[tokio::test]
async fn operations_become_tools() {
    let trial = Trial::start(PETS).await;
    let set = trial.ready(json!({})).await;
    let effects = set.names().into_iter().map(|name| {
        let tool = set.tool(&name);
        let definition = tool.definition();
        let mark = if definition.is_callable { "" } else { " (not callable)" };
        format!("{name}: {:?}{mark}", definition.effect)
    });
    expect![[r"
        listPets: Read
        pets/create: Once
        get_pets_id: Read
        replacePet: Idempotent
        deletePet: Idempotent
        uploadPet: Once (not callable)
        login: Once
        listPets_2: Read"]]
    .assert_eq(&effects.collect::<Vec<_>>().join("\n"));
    let list = set.tool("listPets");
    expect!["Lists pets.\nNewest first."].assert_eq(&list.definition().description);
    expect![[r#"{"type":"object","properties":{"limit":{"type":"integer","minimum":1,"description":"How many."},"tags":{"type":"array","items":{"type":"string"}},"where":{"type":"object"},"trace":{"type":"string"}},"additionalProperties":false}"#]]
        .assert_eq(&list.definition().input_schema.to_string());
    expect![[r##"{"type":"array","items":{"$ref":"#/$defs/Pet"},"$defs":{"Pet":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},"owner":{"type":["string","null"]},"parent":{"$ref":"#/$defs/Pet"}},"required":["id","name"]}}}"##]]
        .assert_eq(&list.definition().output_schema.as_ref().unwrap().to_string());
    let create = set.tool("pets/create");
    expect![[r##"{"type":"object","properties":{"trace":{"type":"string"},"name":{"type":"string"},"owner":{"type":["string","null"]},"parent":{"$ref":"#/$defs/Pet"}},"required":["name"],"additionalProperties":false,"$defs":{"Pet":{"type":"object","properties":{"name":{"type":"string"},"owner":{"type":["string","null"]},"parent":{"$ref":"#/$defs/Pet"}},"required":["name"]}}}"##]]
        .assert_eq(&create.definition().input_schema.to_string());
    assert!(create.complaint(&json!({ "name": "Rex", "parent": { "nam": 1 } })).is_some());
    let upload = set.tool("uploadPet");
    expect!["(It cannot be called: its body is `multipart/form-data`, which is not supported.)"]
        .assert_eq(&upload.definition().description);
    let err = set.call("uploadPet", json!({ "id": 1 })).await.unwrap_err();
    expect!["tool.unavailable: `uploadPet` cannot be called: its body is `multipart/form-data`, which is not supported"]
        .assert_eq(&err.to_string());
}

async fn check_result(set: &TestSet, tool: &str, parameters: Value, expected: Expect) {
    let result = set.call(tool, parameters).await;
    expected.assert_eq(
        result.as_ref().map_or_else(|err| &*err.message, |value| value.as_str().unwrap()),
    );
}

#[tokio::test]
async fn requests_follow_the_document() {
    let trial = Trial::start(PETS).await;
    let set = trial.ready(keys()).await;
    check_result(
        &set,
        "listPets",
        json!({ "limit": 2, "tags": ["a b", "c"], "where": { "k": 1 }, "trace": "x" }),
        expect![[r"
            GET /v2/pets?limit=2&tags=a%20b,c&where%5Bk%5D=1
            x-key: ***CARGO_PKG_NAME***
            trace: x
            x-all: 1"]],
    )
    .await;
    check_result(
        &set,
        "pets/create",
        json!({ "name": "Rex", "owner": null }),
        expect![[r#"
            POST /v2/pets
            x-key: ***CARGO_PKG_NAME***
            x-all: 1
            content-type: application/json
            {"name":"Rex","owner":null}"#]],
    )
    .await;
    check_result(
        &set,
        "replacePet",
        json!({ "id": 7, "body": { "id": 8 } }),
        expect![[r#"
            PUT /v2/pets/7
            x-key: ***CARGO_PKG_NAME***
            x-all: 1
            content-type: application/json
            {"id":8}"#]],
    )
    .await;
    check_result(
        &set,
        "deletePet",
        json!({ "id": 7 }),
        expect![[r"
            DELETE /v2/pets/7
            authorization: Basic ***user***
            x-all: 1"]],
    )
    .await;
    check_result(
        &set,
        "login",
        json!({ "user": "a&b", "n": 1 }),
        expect![[r"
            POST /v2/login
            x-all: 1
            content-type: application/x-www-form-urlencoded
            user=a%26b&n=1"]],
    )
    .await;
    check_result(
        &set,
        "listPets_2",
        json!({ "session": "s;1" }),
        expect![[r"
            GET /v2/other
            authorization: Bearer t
            cookie: session=s%3B1
            x-all: 1"]],
    )
    .await;
}

/// In YAML 1.1, `NO` and `y` would be booleans.
#[tokio::test]
async fn yaml_words_such_as_no_stay_text() {
    let document = r#"
openapi: 3.0.3
info: { title: T, version: "1" }
servers: [{ url: "http://nowhere.invalid/" }]
paths:
  /at:
    get:
      operationId: at
      description: N
      parameters:
        - { name: y, in: query, schema: { type: string, enum: [Y, N, NO, on] } }
"#;
    let trial = Trial::start(document).await;
    let set = trial.ready(json!({})).await;
    let set = set.toolbox.sets().remove(0);
    let definition = set.tools[0].definition();
    assert_eq!(definition.description, "N");
    assert_eq!(definition.input_schema["properties"]["y"]["enum"], json!(["Y", "N", "NO", "on"]));
}

/// `pets.list` and `list` of the set `s` must not both become `s.list`.
#[tokio::test]
async fn operations_with_colliding_names_get_distinct_ones() {
    let document = r#"
openapi: 3.0.3
info: { title: T, version: "1" }
servers: [{ url: "http://nowhere.invalid/" }]
paths:
  /a: { get: { operationId: s.list } }
  /b: { get: { operationId: list } }
"#;
    let trial = Trial::start(document).await;
    let set = trial.ready(json!({})).await;
    let names = set.toolbox.sets().remove(0).tools;
    let names: Vec<_> =
        names.iter().map(|tool| tool.definition().qualified_name().to_string()).collect();
    assert_eq!(names, ["s.list", "s.list_2"]);
}

#[tokio::test]
async fn a_path_parameter_keeps_its_name_in_a_collision() {
    let document = r#"
openapi: 3.0.3
info: { title: T, version: "1" }
servers: [{ url: "http://nowhere.invalid/" }]
paths:
  /a/{id}:
    parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]
    get:
      operationId: look
      parameters:
        - { name: id, in: query, schema: { type: string } }
        - { name: x, in: query, schema: { type: string } }
        - { name: x, in: header, schema: { type: string } }
"#;
    let trial = Trial::start(document).await;
    let set = trial.ready(json!({})).await;
    let tool = &set.toolbox.sets().remove(0).tools[0];
    let schema = &tool.definition().input_schema;
    let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["id_query", "x", "x_header", "id"]);
    assert_eq!(schema["required"], json!(["id"]));
}

#[tokio::test]
async fn tools_are_chosen_by_tag_and_name() {
    let trial = Trial::start(PETS).await;
    assert_eq!(trial.ready(json!({ "tags": ["read"] })).await.names(), ["listPets"]);
    let some = trial.ready(json!({ "include": ["*Pet", "pets/*"] })).await.names();
    assert_eq!(some, ["pets/create", "replacePet", "deletePet", "uploadPet"]);
}

#[tokio::test]
async fn a_wrong_openapi_source_is_explained() {
    let trial = Trial::start(PETS).await;
    expect!["`auth` names `kye`; the document's security schemes are `key`, `token`, `user`"]
        .assert_eq(&trial.error(json!({ "auth": { "kye": "x" } })).await);
    for (document, expected) in [
        ("swagger: '2.0'", expect!["the document is Swagger 2.0: convert it to OpenAPI 3"]),
        ("a: 1", expect!["this is not an OpenAPI 3 document: it has no `openapi: 3.…`"]),
        (
            "{\"openapi\": ",
            expect!["the document is not JSON: EOF while parsing a value at line 1 column 12"],
        ),
        ("openapi: 3.1.0\npaths: []", expect!["the document names no server: set `base_url`"]),
    ] {
        let trial = Trial::start(document).await;
        let mut source = trial.source(&json!({}));
        source["openapi"].as_object_mut().unwrap().remove("base_url");
        expected.assert_eq(&TestSet::start(&source).error().await);
    }
    let missing = trial.error(json!({ "document": "/nowhere/d.yaml" })).await;
    assert!(
        missing.starts_with("the document `/nowhere/d.yaml` cannot be read: No such file"),
        "{missing}"
    );
}

/// Reading a device or a pipe must not fill the memory or block.
#[tokio::test]
async fn too_large_files_and_devices_are_not_read() {
    let trial = Trial::start("a: 1").await;
    let path_of = |name: &str| trial.folder.path().join(name);
    nix::unistd::mkfifo(&path_of("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::File::create(path_of("large"))
        .unwrap()
        .set_len(super::MAX_DOCUMENT_BYTES as u64 + 1)
        .unwrap();
    for (document, expected) in [
        (PathBuf::from("/dev/zero"), "is not a file"),
        (path_of("pipe"), "is not a file"),
        (path_of("."), "is not a file"),
        (path_of("large"), "has more than 33554432 bytes"),
    ] {
        let error = trial.error(json!({ "document": document })).await;
        assert!(error.starts_with("the document `") && error.ends_with(expected), "{error}");
    }
}

#[tokio::test]
async fn a_document_that_appears_later_is_loaded_on_retry() {
    let trial = Trial::start("openapi: 3").await;
    let file = trial.folder.path().join("d.yaml");
    fs::remove_file(&file).unwrap();
    let set = TestSet::start(&trial.source(&json!({})));
    assert!(set.error().await.contains("cannot be read"));
    fs::write(&file, PETS).unwrap();
    assert!(set.toolbox.reconnect_set(&"s".parse().unwrap()));
    assert_eq!(set.status().await, SetStatus::Ready);
    assert_eq!(set.names().len(), 8);
}

fn hostile_document() -> Value {
    json!({
        "openapi": "3.1.0",
        "paths": {
            "/a": { "get": { "operationId": "a", "parameters": [{ "$ref": "#/components/parameters/Gone" }] } },
            "/b": { "post": { "operationId": "b", "requestBody": { "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Circle" } } } } } },
            "/c/{x}": { "get": { "operationId": "c" } },
            "/d": { "get": { "operationId": "", "parameters": 7, "responses": [], "tags": {}, "security": 1 } },
            "/e": { "get": { "operationId": "e", "parameters": [{ "name": "p", "in": "query", "schema": { "type": ["string", "null"], "const": "x" } }, { "name": "m", "in": "path", "style": "matrix" }] } },
            "/f": { "$ref": "#/paths/~1e" },
            "/g": { "$ref": "#/paths/~1g" },
            "/h": { "get": { "operationId": "h", "servers": [{ "url": "http://169.254.169.254/" }], "responses": { "200": { "content": { "application/json": { "schema": { "$ref": "https://example.com/x.json" } } } } } } },
            "/i": 3,
            "x-internal": { "get": {} },
        },
        "components": { "schemas": {
            "Circle": { "$ref": "#/components/schemas/Other" },
            "Other": { "$ref": "#/components/schemas/Circle" },
        } },
    })
}

#[tokio::test]
async fn a_malformed_document_fails_the_set() {
    let trial = Trial::start(&hostile_document().to_string()).await;
    let set = trial.ready(json!({})).await;
    assert_eq!(set.names(), ["b", "c", "get_d", "e", "e_2", "h"]);
    let whole = set.call("b", json!({ "body": [1] })).await.unwrap();
    expect!["POST /v2/b\ncontent-type: application/json\n[1]"].assert_eq(whole.as_str().unwrap());
    let about = |name: &str| set.tool(name).definition().description.clone();
    expect!["(It cannot be called: its path names `x`, which is not a parameter.)"]
        .assert_eq(&about("c"));
    expect!["(It cannot be called: `m` has the style `matrix`, which is not supported.)"]
        .assert_eq(&about("e"));
    let odd = set.tool("e");
    assert!(odd.complaint(&json!({ "p": "y" })).is_some());
    assert_eq!(odd.complaint(&json!({ "p": "x" })), None);
}

#[tokio::test]
async fn a_public_document_cannot_name_a_private_server() {
    let mut document = hostile_document();
    document["servers"] = json!([{ "url": "/api" }]);
    let router = Router::new()
        .route("/openapi.json", get(|State(document): State<Value>| async move { Json(document) }))
        .route("/api/{*rest}", get(|Path(rest): Path<String>| async move { rest }))
        .with_state(document);
    let served = TestServer::start(router).await;
    let address = format!("{}/openapi.json", served.url);
    let set = TestSet::ready(&json!({ "openapi": { "document": address } })).await;
    assert_eq!(set.call("get_d", json!({})).await, Ok(json!("d")));
    let err = set.call("h", json!({})).await.unwrap_err();
    assert!(err.message.starts_with("`169.254.169.254` is not a public address"), "{err}");
    assert!(!err.retryable);
    let missing =
        TestSet::start(&json!({ "openapi": { "document": format!("{}/x", served.url) } }));
    assert!(
        missing.error().await.ends_with("has no document at this URL: it answered 404 Not Found")
    );
}

#[tokio::test]
async fn an_unauthorized_answer_names_the_missing_credentials() {
    let trial = Trial::start(PETS).await;
    let stranger = || async { (StatusCode::UNAUTHORIZED, "who are you?") };
    let served = TestServer::start(Router::new().fallback(stranger)).await;
    let set = trial.ready(json!({ "base_url": served.url })).await;
    let err = set.call("deletePet", json!({ "id": 1 })).await.unwrap_err();
    assert!(
        err.message
            .ends_with("answered 401 Unauthorized: who are you?; set `auth.user` of the toolset"),
        "{err}"
    );
}

fn large_document() -> Value {
    let reference =
        |index: usize| json!({ "$ref": format!("#/components/schemas/S{}", index % 700) });
    let schemas: Map<String, Value> = (0..700)
        .map(|n| {
            let text = json!({ "type": "string", "description": "x".repeat(200) });
            let properties = json!({ "a": text, "b": reference(n * 3 + 1), "c": { "type": "array", "items": reference(n + 1) } });
            (format!("S{n}"), json!({ "type": "object", "properties": properties }))
        })
        .collect();
    let paths: Map<String, Value> = (0..600)
        .map(|n| {
            let body = json!({ "content": { "application/json": { "schema": reference(n) } } });
            let operation = |id: &str| json!({
                "operationId": format!("{id}{n}"),
                "description": "y".repeat(3_000),
                "requestBody": body,
                "responses": { "200": { "content": { "application/json": { "schema": reference(n) } } } },
            });
            (format!("/p{n}"), json!({ "put": operation("put"), "post": operation("post") }))
        })
        .collect();
    json!({ "openapi": "3.0.0", "paths": paths, "components": { "schemas": schemas } })
}

fn inlined_document() -> Value {
    let film = json!({ "adult": false, "title": "x".repeat(40), "overview": "y".repeat(300) });
    let text =
        |n: usize| json!({ "type": "string", "description": "z", "example": format!("{n}") });
    let fields: Map<String, Value> = (0..30).map(|n| (format!("field_{n}"), text(n))).collect();
    let item = json!({ "type": "object", "properties": fields, "example": film });
    let schema = json!({ "type": "object", "properties": {
        "page": { "type": "integer", "default": 0 },
        "results": { "type": "array", "items": item },
    } });
    let example = json!({ "page": 1, "results": vec![film; 5] });
    let content = json!({ "application/json": { "schema": schema, "examples": { "OK": { "value": example } } } });
    let query = |n: usize| json!({ "name": format!("with_{n}"), "in": "query", "schema": { "type": "string", "default": "en-US" } });
    let queries: Vec<Value> = (0..8).map(query).collect();
    let paths: Map<String, Value> = (0..1_000)
        .map(|n| {
            let operation = json!({
                "operationId": format!("film-{n}"),
                "parameters": queries,
                "responses": { "200": { "description": "200", "content": content } },
            });
            (format!("/3/film/{n}"), json!({ "get": operation }))
        })
        .collect();
    json!({ "openapi": "3.1.0", "paths": paths })
}

/// The set must be ready in time even in a debug build on a busy machine.
#[tokio::test]
async fn a_document_with_many_repetitions_loads_in_time() {
    let json = inlined_document().to_string();
    assert!(json.len() > 3 << 20, "{}", json.len());
    // A document that starts with a comment is YAML.
    for document in [json.clone(), format!("# films\n{json}")] {
        let trial = Trial::start(&document).await;
        let set = trial.ready(json!({})).await;
        assert_eq!(set.names().len(), 1_000);
        let output = set.tool("film-7").definition().output_schema.clone().unwrap();
        let field = &output["properties"]["results"]["items"]["properties"]["field_3"];
        assert_eq!(*field, json!({ "type": "string", "description": "z" }));
    }
}

#[tokio::test]
async fn a_merge_patch_body_is_preferred_for_an_object() {
    let patch = json!({ "schema": { "type": "object" } });
    let trial = Trial::start(&json!({ "openapi": "3.0.0", "paths": { "/pods/{name}": { "patch": {
        "operationId": "patchPod",
        "parameters": [{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }],
        "requestBody": { "content": {
            "application/apply-patch+yaml": patch,
            "application/json-patch+json": patch,
            "application/merge-patch+json": patch,
        } },
    } } } }).to_string()).await;
    let set = trial.ready(json!({})).await;
    let parameters = json!({ "name": "a", "body": { "spec": { "replicas": 2 } } });
    check_result(
        &set,
        "patchPod",
        parameters,
        expect![[r#"
            PATCH /v2/pods/a
            content-type: application/merge-patch+json
            {"spec":{"replicas":2}}"#]],
    )
    .await;
}

/// The expanded schemas would be infinite.
#[tokio::test]
async fn many_mutually_recursive_schemas_load_in_time() {
    let trial = Trial::start(&large_document().to_string()).await;
    let set = trial.ready(json!({})).await;
    assert_eq!(set.names().len(), 1_200);
    let tool = set.tool("post7");
    let definition = tool.definition();
    assert_eq!(definition.effect, Effect::Once);
    assert!(definition.description.len() < 1_100);
    assert_eq!(tool.complaint(&json!({ "a": "x", "b": { "a": "y" } })), None);
    assert!(tool.complaint(&json!({ "a": 1 })).is_some());
}

#[tokio::test]
async fn a_text_body_is_supported_only_for_text_schemas() {
    let bodies = [
        ("plain", "text/plain", json!({ "type": "string" })),
        ("unsaid", "text/csv", json!({})),
        ("xml", "application/xml; charset=utf-8", json!({ "$ref": "#/components/schemas/Text" })),
        ("one_of", "text/plain", json!({ "enum": ["a", "b"] })),
        ("object", "application/xml", json!({ "type": "object", "properties": { "a": {} } })),
        ("list", "text/csv", json!({ "type": "array", "items": { "type": "object" } })),
        ("referred", "application/xml", json!({ "$ref": "#/components/schemas/Order" })),
    ];
    let paths = bodies.into_iter().map(|(name, media, schema)| {
        let body = json!({ "required": true, "content": { media: { "schema": schema } } });
        (format!("/{name}"), json!({ "post": { "operationId": name, "requestBody": body } }))
    });
    let document = json!({
        "openapi": "3.1.0", "servers": [{ "url": "/v2" }],
        "paths": paths.collect::<serde_json::Map<_, _>>(),
        "components": { "schemas": { "Text": { "type": "string" }, "Order": { "properties": { "a": {} } } } },
    });
    let trial = Trial::start(&document.to_string()).await;
    let set = trial.ready(json!({})).await;
    for name in ["plain", "unsaid", "xml", "one_of"] {
        let echo = set.call(name, json!({ "body": "a" })).await.unwrap();
        assert!(echo.as_str().unwrap().ends_with("\na"), "{name}: {echo}");
        assert!(set.tool(name).complaint(&json!({ "body": { "a": 1 } })).is_some(), "{name}");
    }
    for name in ["object", "list", "referred"] {
        assert!(!set.tool(name).definition().is_callable, "{name}");
    }
    expect!["(It cannot be called: its body is `application/xml` with a value that is not a string, which is not supported.)"]
        .assert_eq(&set.tool("object").definition().description);
    let err = set.call("list", json!({})).await.unwrap_err();
    expect!["tool.unavailable: `list` cannot be called: its body is `text/csv` with a value that is not a string, which is not supported"]
        .assert_eq(&err.to_string());
}

/// Time limit for reading a document that grows exponentially when it is expanded.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

fn bomb() -> Value {
    let mut schemas = Map::new();
    for index in 0..14 {
        let next = json!({ "$ref": format!("#/components/schemas/d{}", index + 1) });
        schemas.insert(format!("d{index}"), json!({ "allOf": vec![next; 10] }));
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
async fn an_operation_with_too_expensive_schemas_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("openapi.json");
    std::fs::write(&path, bomb().to_string()).unwrap();
    let set = TestSet::ready(&json!({ "openapi": { "document": path } })).await;
    assert_eq!(set.names(), ["fine"]);
    let left_out = set.toolbox.sets().remove(0).left_out;
    assert_eq!(left_out.len(), 2);
    for (reason, name) in left_out.iter().zip(["`inputSchema` of `in`", "`outputSchema` of `out`"])
    {
        assert!(reason.contains(name) && reason.contains("evaluations"), "{reason}");
    }
}

#[test]
fn yaml_aliases_do_not_multiply_memory() {
    let started_at = Instant::now();
    let nodes = (1..14).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, index| {
        let all = vec![format!("*a{}", index - 1); 8].join(", ");
        format!("{text}a{index}: &a{index} [{all}]\n")
    });
    assert!(Document::parse(format!("openapi: 3.1.0\n{nodes}").as_bytes()).is_err());
    // Many aliases of one long text, and enough anchors to look plausible.
    let anchors: Vec<_> = (0..5_000).map(|index| format!("n{index}: &n{index} x\n")).collect();
    let anchors = anchors.concat();
    let aliases = vec!["*long"; 40_000].join(", ");
    let text =
        format!("openapi: 3.1.0\nlong: &long {}\n{anchors}all: [{aliases}]\n", "x".repeat(1 << 20));
    assert!(Document::parse(text.as_bytes()).is_err());
    assert!(started_at.elapsed() < READ_TIMEOUT, "{:?}", started_at.elapsed());
}
