//! A model plans the same query once.

use serde_json::{Value, json};

use super::{Home, Model, SEED, configure, plan};

/// Returns what the transcript has of where a plan was taken from.
async fn taken(home: &Home, planned: &Value) -> Value {
    let request = home.json(&["debug", planned["requestId"].as_str().unwrap()], 0).await;
    let entries = request["transcript"].as_array().unwrap();
    let found = entries.iter().find(|entry| entry["kind"] == "cache");
    found.map(|entry| entry["content"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_model_plans_the_same_query_once() {
    let home = Home::new();
    let answers = json!([{ "content": plan("alice@test.com") }]);
    let model = Model::answering(&home, "model", answers).await;
    configure(&home, &model.speaking("openai"));
    let first = home.json(&["plan", SEED], 0).await;
    let second = home.json(&["plan", SEED], 0).await;
    assert_eq!(model.asked().await.len(), 1);
    assert_eq!(taken(&home, &second).await["requestId"], first["requestId"]);
    assert_eq!((&second["tools"], &second["query"]), (&first["tools"], &json!(SEED)));
    // It runs like any other.
    let ran = home.json(&["run", SEED], 0).await;
    assert_eq!((&ran["state"], &ran["successful"]), (&json!("COMPLETED"), &json!(2)));
    assert_eq!(model.asked().await.len(), 1);
    home.json(&["plan", SEED, "--cache", "off"], 0).await;
    assert_eq!(model.asked().await.len(), 2);
}
