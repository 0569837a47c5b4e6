//! Large binaries that tools return: kept beside the log, read through the API, given to other tools.

use serde_json::{Value, json};

use super::world::{World, worlds};

async fn with_pictures(world: &World) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/mcp/hostile.mjs");
    let source = json!({ "mcp": { "command": "node", "args": [script, "normal", "/dev/null"] } });
    let add = "mutation ($input: ToolSetInput!) { addToolSet(input: $input) { name } }";
    let input = json!({ "name": "pictures", "description": "Pictures.", "source": source });
    world.get(add, json!({ "input": input })).await;
    // Asking for tools waits until the set is connected.
    world.get("{ tools { name } }", json!({})).await;
}

async fn blob(world: &World, id: &Value) -> Value {
    let query = "query ($id: ID!) { blob(id: $id) { id mimeType bytes sha256 data } }";
    world.get(query, json!({ "id": id })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_picture_is_referred_to_and_given_to_other_tools() {
    for world in worlds().await {
        with_pictures(&world).await;
        let bytes = 3 << 20;
        let steps = json!([
            { "name": "picture", "parameters": { "bytes": bytes } },
            { "name": "measure", "parameters": { "data": "{{picture.data}}" } },
            { "name": "flow.echo", "parameters": { "all": "{{picture}}" } },
        ]);
        let id = world.start(steps, json!({})).await;
        let events = world.events(&id).await;
        let log = Value::from(events).to_string();
        assert!(log.len() < 10_000, "{} bytes: {log:.1000}", log.len());
        let outputs = world.execution(&id, "state outputs").await;
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
            "what only passes on passes on"
        );
        let blob = blob(&world, &reference["$blob"]).await;
        assert_eq!((&blob["id"], &blob["bytes"]), (&reference["$blob"], &json!(bytes)));
        assert_eq!(outputs["measure"], json!({ "bytes": bytes, "sha256": blob["sha256"] }));
        assert!(reference["$blob"].as_str().unwrap().starts_with(&id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_of_a_call_outside_plans_is_kept_too() {
    let [world, _] = worlds().await;
    with_pictures(&world).await;
    let call = "mutation ($bytes: Int!) { callTool(name: \"picture\", parameters: { bytes: $bytes }) { result } }";
    let small = world.get(call, json!({ "bytes": 300 })).await;
    assert_eq!(small["result"]["data"].as_str().map(str::len), Some(400));
    let large = world.get(call, json!({ "bytes": 300_000 })).await;
    let reference = &large["result"]["data"]["$blob"];
    assert!(reference.as_str().unwrap().starts_with("call/"), "{large}");
    assert_eq!(blob(&world, reference).await["data"].as_str().map(str::len), Some(400_000));
    for unknown in [json!("call/00"), json!(format!("call/{}", "0".repeat(64)))] {
        assert_eq!(blob(&world, &unknown).await, Value::Null);
    }
}
