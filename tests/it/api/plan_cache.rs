//! The plan cache: which queries take their plans from the cache, and how it is bypassed.

use engine::PlanCache;
use graphql::schema::{self, Limits};
use serde_json::{Value, json};

use super::test_api::{TestApi, apis_without_server, json_to_text};

const PLAN_MUTATION: &str = "mutation ($query: String!, $options: PlanningOptions) {
    createPlanWithRequestId(query: $query, options: $options) {
        planId requestId query planner tools { stepId toolName parameters }
        diagnostics { code } request { transcript { kind content } } } }";

const QUERY: &str =
    r#"{"tools":[{"id":"e","name":"flow.echo","parameters":{"n":12345678901234567890}}]}"#;

fn cached_request(plan: &Value) -> Option<String> {
    let entries = plan["request"]["transcript"].as_array().unwrap();
    let kinds: Vec<_> = entries.iter().map(|entry| entry["kind"].as_str().unwrap()).collect();
    let cached = entries.iter().find(|entry| entry["kind"] == "cache");
    // A planner adds an entry `candidates` to the transcript. If the plan comes from the cache,
    // there is no such entry.
    assert_eq!(cached.is_none(), kinds.contains(&"candidates"), "{kinds:?}");
    assert!(kinds.contains(&"draft") && kinds.contains(&"plan"), "{kinds:?}");
    cached.map(|entry| json_to_text(&entry["content"]["requestId"]))
}

async fn make_plan(api: &TestApi, query: &str, options: Value) -> Value {
    api.get(PLAN_MUTATION, json!({ "query": query, "options": options })).await
}

#[tokio::test]
async fn a_repeated_query_takes_its_plan_from_the_cache_until_something_changes() {
    for api in apis_without_server().await {
        let first = make_plan(&api, QUERY, json!({})).await;
        assert_eq!(cached_request(&first), None);
        let second = make_plan(&api, QUERY, json!({})).await;
        assert_eq!(cached_request(&second), Some(json_to_text(&first["requestId"])));
        // A plan from the cache still belongs to a new request.
        assert_ne!(second["requestId"], first["requestId"]);
        assert_ne!(second["planId"], first["planId"]);
        for same in ["tools", "query", "planner", "diagnostics"] {
            assert_eq!(second[same], first[same], "{same}");
        }
        // A request that differs from the first one in any way gets a new plan.
        assert_eq!(cached_request(&make_plan(&api, &format!("{QUERY} "), json!({})).await), None);
        assert_eq!(
            cached_request(&make_plan(&api, QUERY, json!({ "toolSets": ["flow"] })).await),
            None
        );
        let register = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
        let tool = json!({ "name": "more", "description": "d", "parameters": { "type": "object" },
            "run": { "command": ["true"] } });
        api.get(register, json!({ "input": tool })).await;
        let anew = make_plan(&api, QUERY, json!({})).await;
        assert_eq!(cached_request(&anew), None, "the catalog has another tool");
        let again = make_plan(&api, QUERY, json!({})).await;
        assert_eq!(cached_request(&again), Some(json_to_text(&anew["requestId"])));
    }
}

#[tokio::test]
async fn an_invalid_plan_is_not_cached() {
    let [api, _] = apis_without_server().await;
    let bad = r#"{"tools":[{"name":"nobody"}]}"#;
    for _ in 0..2 {
        let refusal = api.expect_error(PLAN_MUTATION, json!({ "query": bad })).await;
        assert_eq!(refusal["code"], "INVALID_PLAN");
        let debug = "query ($id: ID!) { request(requestId: $id) { transcript { kind } } }";
        let request = api.get(debug, json!({ "id": refusal["requestId"] })).await;
        let kinds = request["transcript"].as_array().unwrap();
        assert!(kinds.iter().all(|kind| kind["kind"] != "cache"), "{kinds:?}");
    }
}

#[tokio::test]
async fn the_plan_cache_can_be_switched_off() {
    let [mut api, _] = apis_without_server().await;
    make_plan(&api, QUERY, json!({})).await;
    let engine = api.engine.clone().with_plan_cache(PlanCache::Off);
    api.schema = schema::build(engine, Limits::default());
    for _ in 0..2 {
        assert_eq!(cached_request(&make_plan(&api, QUERY, json!({})).await), None);
    }
}

#[tokio::test]
async fn a_query_can_bypass_the_plan_cache() {
    let [api, _] = apis_without_server().await;
    let off = json!({ "cache": "OFF" });
    for _ in 0..2 {
        assert_eq!(cached_request(&make_plan(&api, QUERY, off.clone()).await), None);
    }
    let first = make_plan(&api, QUERY, json!({ "cache": "EXACT" })).await;
    assert_eq!(cached_request(&first), None, "the bypassing queries cached nothing");
    assert_eq!(cached_request(&make_plan(&api, QUERY, off).await), None);
    let again = make_plan(&api, QUERY, json!({})).await;
    assert_eq!(cached_request(&again), Some(json_to_text(&first["requestId"])));
}
