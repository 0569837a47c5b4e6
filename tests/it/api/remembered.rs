//! A query that was planned before is planned from memory, as long as nothing else is different.

use graphql::{
    engine::PlanCache,
    schema::{self, Limits},
};
use serde_json::{Value, json};

use super::world::{World, text, worlds};

const PLAN: &str = "mutation ($query: String!, $options: PlanningOptions) {
    createPlanWithRequestId(query: $query, options: $options) {
        planId requestId query planner tools { stepId toolName parameters }
        diagnostics { code } request { transcript { kind content } } } }";

const QUERY: &str =
    r#"{"tools":[{"id":"e","name":"flow.echo","parameters":{"n":12345678901234567890}}]}"#;

/// Returns from which request a plan came, if it came from memory.
fn source(plan: &Value) -> Option<String> {
    let entries = plan["request"]["transcript"].as_array().unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    let cached = entries.iter().find(|entry| entry["kind"] == "cache");
    // The planner of these tests notes what it was shown.
    assert_eq!(cached.is_none(), kinds.contains(&"candidates"), "{kinds:?}");
    assert!(kinds.contains(&"draft") && kinds.contains(&"plan"), "{kinds:?}");
    cached.map(|entry| text(&entry["content"]["requestId"]))
}

async fn plan(world: &World, query: &str, options: Value) -> Value {
    world.get(PLAN, json!({ "query": query, "options": options })).await
}

#[tokio::test]
async fn the_same_query_is_planned_once() {
    for world in worlds().await {
        let first = plan(&world, QUERY, json!({})).await;
        assert_eq!(source(&first), None);
        let second = plan(&world, QUERY, json!({})).await;
        assert_eq!(source(&second), Some(text(&first["requestId"])));
        // It is a plan of its own request all the same.
        assert_ne!(second["requestId"], first["requestId"]);
        assert_ne!(second["planId"], first["planId"]);
        for same in ["tools", "query", "planner", "diagnostics"] {
            assert_eq!(second[same], first[same], "{same}");
        }
        // Whatever else is different is planned anew.
        assert_eq!(source(&plan(&world, &format!("{QUERY} "), json!({})).await), None);
        assert_eq!(source(&plan(&world, QUERY, json!({ "toolSets": ["flow"] })).await), None);
        let register = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
        let tool = json!({ "name": "more", "description": "d", "parameters": { "type": "object" },
            "run": { "command": ["true"] } });
        world.get(register, json!({ "input": tool })).await;
        let anew = plan(&world, QUERY, json!({})).await;
        assert_eq!(source(&anew), None, "there is another tool");
        let again = plan(&world, QUERY, json!({})).await;
        assert_eq!(source(&again), Some(text(&anew["requestId"])));
    }
}

#[tokio::test]
async fn what_makes_no_plan_is_not_kept() {
    let [world, _] = worlds().await;
    let bad = r#"{"tools":[{"name":"nobody"}]}"#;
    for _ in 0..2 {
        let refusal = world.refused(PLAN, json!({ "query": bad })).await;
        assert_eq!(refusal["code"], "INVALID_PLAN");
        let debug = "query ($id: ID!) { request(requestId: $id) { transcript { kind } } }";
        let request = world.get(debug, json!({ "id": refusal["requestId"] })).await;
        let kinds = request["transcript"].as_array().unwrap();
        assert!(kinds.iter().all(|kind| kind["kind"] != "cache"), "{kinds:?}");
    }
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let [mut world, _] = worlds().await;
    plan(&world, QUERY, json!({})).await;
    let engine = world.engine.clone().with_plan_cache(PlanCache::Off);
    world.schema = schema::build(engine, Limits::default());
    for _ in 0..2 {
        assert_eq!(source(&plan(&world, QUERY, json!({})).await), None);
    }
}

#[tokio::test]
async fn a_query_may_switch_it_off_for_itself() {
    let [world, _] = worlds().await;
    let off = json!({ "cache": "OFF" });
    for _ in 0..2 {
        assert_eq!(source(&plan(&world, QUERY, off.clone()).await), None);
    }
    let first = plan(&world, QUERY, json!({ "cache": "EXACT" })).await;
    assert_eq!(source(&first), None, "nothing was kept");
    assert_eq!(source(&plan(&world, QUERY, off).await), None);
    let again = plan(&world, QUERY, json!({})).await;
    assert_eq!(source(&again), Some(text(&first["requestId"])));
}
