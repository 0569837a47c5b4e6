use serde_json::{Value, json};

use super::{DEMO_QUERY, MockModel, Workspace, configure, demo_plan};

async fn cache_entry(workspace: &Workspace, planned: &Value) -> Value {
    let request = workspace.json(&["debug", planned["requestId"].as_str().unwrap()], 0).await;
    let entries = request["transcript"].as_array().unwrap();
    let found = entries.iter().find(|entry| entry["kind"] == "cache");
    found.map(|entry| entry["content"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_repeated_query_takes_its_plan_from_the_plan_cache() {
    let workspace = Workspace::new();
    let answers = json!([{ "content": demo_plan("alice@test.com") }]);
    let model = MockModel::with_answers(&workspace, "model", answers).await;
    configure(&workspace, &model.planner_settings("openai"));
    let first = workspace.json(&["plan", DEMO_QUERY], 0).await;
    let second = workspace.json(&["plan", DEMO_QUERY], 0).await;
    assert_eq!(model.requests().await.len(), 1);
    assert_eq!(cache_entry(&workspace, &second).await["requestId"], first["requestId"]);
    assert_eq!((&second["tools"], &second["query"]), (&first["tools"], &json!(DEMO_QUERY)));
    // The cached plan runs like any other.
    let ran = workspace.json(&["run", DEMO_QUERY], 0).await;
    assert_eq!((&ran["state"], &ran["successful"]), (&json!("COMPLETED"), &json!(2)));
    assert_eq!(model.requests().await.len(), 1);
    workspace.json(&["plan", DEMO_QUERY, "--cache", "off"], 0).await;
    assert_eq!(model.requests().await.len(), 2);
}
