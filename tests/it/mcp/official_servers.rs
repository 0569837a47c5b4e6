use std::path::PathBuf;

use serde_json::{Value, json};
use shared::tool::{Effect, ErrorCode};
use tests::{
    installed,
    toolset::{Connected, second_attempt},
};

pub(super) fn server_script(name: &str) -> PathBuf {
    let modules = installed::find_path("FABER_TEST_MCP_MODULES", "mcp/node_modules");
    modules.join("@modelcontextprotocol").join(name).join("dist/index.js")
}

async fn connect_everything() -> Connected {
    let mcp = json!({ "command": installed::find_program("node"), "args": [server_script("server-everything"), "stdio"] });
    Connected::connect(&json!({ "mcp": mcp })).await
}

#[tokio::test]
async fn tools_of_the_official_test_server_work() {
    let everything = connect_everything().await;
    let echo = everything.call("echo", json!({ "message": "Größe 🎉\n\u{2028}" })).await;
    assert_eq!(echo, Ok(json!("Echo: Größe 🎉\n\u{2028}")));
    let sum = everything.call("get-sum", json!({ "a": 2, "b": 0.5 })).await;
    assert_eq!(sum, Ok(json!("The sum of 2 and 0.5 is 2.5.")));

    let structured = everything.tool("get-structured-content");
    let definition = structured.definition();
    assert!(definition.output_schema.is_some() && definition.effect == Effect::Read);
    let weather = json!({ "location": "Chicago" });
    let weather = everything.call("get-structured-content", weather).await.unwrap();
    assert!(weather["temperature"].is_number(), "{weather}");

    let image = everything.call("get-tiny-image", json!({})).await.unwrap();
    let kinds: Vec<_> = image.as_array().unwrap().iter().map(|part| part.get("type")).collect();
    assert_eq!(kinds, [None, Some(&json!("image")), None]);
    let links = everything.call("get-resource-links", json!({ "count": 2 })).await.unwrap();
    assert_eq!(links[1]["type"], "resource_link");
}

#[tokio::test]
async fn a_long_operation_of_an_official_server_can_be_cancelled() {
    let everything = connect_everything().await;
    let cx = second_attempt();
    let cancel = cx.cancel.clone();
    let parameters = json!({ "duration": 600, "steps": 60 });
    let long = everything.call_in("trigger-long-running-operation", parameters, cx);
    let (long, ()) = tokio::join!(long, async {
        everything.call("echo", json!({ "message": "a" })).await.unwrap();
        cancel.cancel();
    });
    assert_eq!(long.unwrap_err().code, ErrorCode::CANCELLED);
    let echo = everything.call("echo", json!({ "message": "b" })).await;
    assert_eq!(echo, Ok(json!("Echo: b")));
}

#[tokio::test]
async fn wrong_parameters_fail_for_certain_with_the_name_of_the_parameter() {
    let everything = connect_everything().await;
    assert!(everything.tool("echo").complaint(&json!({})).is_some());
    let err = everything.call("echo", json!({})).await.unwrap_err();
    assert!(err.is_definite && err.message.contains("message"), "{err}");
}

#[tokio::test]
async fn many_calls_share_one_server() {
    let everything = connect_everything().await;
    let calls = (0..200).map(|n| {
        let everything = &everything;
        async move { everything.call("echo", json!({ "message": n.to_string() })).await }
    });
    let answers = futures::future::join_all(calls).await;
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Ok(json!(format!("Echo: {n}"))));
    }
}

#[tokio::test]
async fn the_official_file_server_writes_and_reads_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let mcp = json!({ "command": installed::find_program("node"), "args": [server_script("server-filesystem"), root] });
    let files = Connected::connect(&json!({ "mcp": mcp })).await;
    let path = root.join("größe.txt");
    let write = json!({ "path": path, "content": "Zeile 1\n" });
    files.call("write_file", write).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "Zeile 1\n");
    let read = files.call("read_text_file", json!({ "path": path })).await;
    assert_eq!(read, Ok(json!({ "content": "Zeile 1\n" })));

    let err = files.call("read_text_file", json!({ "path": "/etc/passwd" })).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::FAILED);
    assert!(err.message.contains("Access denied"), "{err}");
    assert_eq!(files.tool("read_text_file").definition().effect, Effect::Read);
    assert_eq!(files.tool("write_file").definition().effect, Effect::Idempotent);
}

#[tokio::test]
async fn the_official_memory_server_keeps_memories_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let memory = json!({ "mcp": {
        "command": installed::find_program("node"),
        "args": [server_script("server-memory")],
        "env": { "MEMORY_FILE_PATH": folder.path().join("memory.jsonl") },
    } });
    let entity = json!({ "name": "Ada", "entityType": "person", "observations": ["counts"] });
    let first = Connected::connect(&memory).await;
    first.call("create_entities", json!({ "entities": [entity] })).await.unwrap();
    first.sources.close().await;

    let second = Connected::connect(&memory).await;
    let graph = second.call("read_graph", json!({})).await;
    let entities: Option<Value> = graph.ok().and_then(|graph| graph.get("entities").cloned());
    assert_eq!(entities, Some(json!([entity])));
}
