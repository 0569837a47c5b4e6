//! Large binaries of tools: stored beside the log, returned by the API, and passed to other tools.

use serde_json::{Value, json};
use tests::installed;

use super::test_api::{TestApi, apis_without_server};

async fn add_picture_tools(api: &TestApi) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/mcp/hostile.mjs");
    let arguments = [script, "normal", "/dev/null"];
    let source =
        json!({ "mcp": { "command": installed::find_program("node"), "args": arguments } });
    let add = "mutation ($input: ToolSetInput!) { addToolSet(input: $input) { name } }";
    let input = json!({ "name": "pictures", "description": "Pictures.", "source": source });
    api.get(add, json!({ "input": input })).await;
    // A query for tools waits until the toolset is connected.
    api.get("{ tools { name } }", json!({})).await;
}

async fn query_blob(api: &TestApi, id: &Value) -> Value {
    let query = "query ($id: ID!) { blob(id: $id) { id mimeType bytes sha256 data } }";
    api.get(query, json!({ "id": id })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_picture_becomes_a_blob_and_other_tools_receive_its_bytes() {
    for api in apis_without_server().await {
        add_picture_tools(&api).await;
        let bytes = 3 << 20;
        let steps = json!([
            { "name": "picture", "parameters": { "bytes": bytes } },
            { "name": "measure", "parameters": { "data": "{{picture.data}}" } },
            { "name": "flow.echo", "parameters": { "all": "{{picture}}" } },
        ]);
        let id = api.start(steps, json!({})).await;
        let events = api.events(&id).await;
        let log = Value::from(events).to_string();
        assert!(log.len() < 10_000, "{} bytes: {log:.1000}", log.len());
        let outputs = api.execution(&id, "state outputs").await;
        assert_eq!(outputs["state"], "COMPLETED", "{outputs}");
        let outputs = &outputs["outputs"];
        let reference = &outputs["picture"]["data"];
        assert_eq!(outputs["picture"]["mimeType"], "image/png");
        assert_eq!(
            (&reference["mimeType"], &reference["bytes"]),
            (&json!("image/png"), &json!(bytes))
        );
        assert_eq!(
            outputs["flow.echo"]["all"], outputs["picture"],
            "a step without need of the bytes passes the reference on"
        );
        let blob = query_blob(&api, &reference["$blob"]).await;
        assert_eq!((&blob["id"], &blob["bytes"]), (&reference["$blob"], &json!(bytes)));
        assert_eq!(outputs["measure"], json!({ "bytes": bytes, "sha256": blob["sha256"] }));
        assert!(reference["$blob"].as_str().unwrap().starts_with(&id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_picture_of_a_single_call_becomes_a_blob() {
    let [api, _] = apis_without_server().await;
    add_picture_tools(&api).await;
    let call = "mutation ($bytes: Int!) { callTool(name: \"picture\", parameters: { bytes: $bytes }) { result } }";
    let small = api.get(call, json!({ "bytes": 300 })).await;
    assert_eq!(small["result"]["data"].as_str().map(str::len), Some(400));
    let large = api.get(call, json!({ "bytes": 300_000 })).await;
    let reference = &large["result"]["data"]["$blob"];
    assert!(reference.as_str().unwrap().starts_with("call/"), "{large}");
    assert_eq!(query_blob(&api, reference).await["data"].as_str().map(str::len), Some(400_000));
    for unknown in [json!("call/00"), json!(format!("call/{}", "0".repeat(64)))] {
        assert_eq!(query_blob(&api, &unknown).await, Value::Null);
    }
}
