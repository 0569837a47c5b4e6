use std::time::Duration;

use executor::call_limits::{CallLimits, LimitRule, LimitedCalls};
use serde_json::json;
use shared::store::Rate;
use tokio::time::{self, Instant};

use super::test_api::{TestApi, limited, texts_of_field};

async fn api_with_one_call_at_a_time() -> TestApi {
    let rule = LimitRule {
        calls: LimitedCalls::Set("flow".parse().unwrap()),
        key: None,
        concurrency: Some(1),
        rate: None,
    };
    limited(CallLimits::new(vec![rule])).await
}

const CALL_MUTATION: &str = "mutation ($name: String!, $p: JSON) {
    callTool(name: $name, parameters: $p) { status result } }";

#[tokio::test(start_paused = true)]
async fn single_calls_and_steps_share_a_limit() {
    let rule = LimitRule {
        calls: LimitedCalls::Tool("flow.echo".parse().unwrap()),
        key: None,
        concurrency: None,
        rate: Some(Rate { calls: 2, per_ms: 86_400_000 }),
    };
    let api = limited(CallLimits::new(vec![rule])).await;
    let called = api.get(CALL_MUTATION, json!({ "name": "flow.echo", "p": { "n": 1 } })).await;
    assert_eq!(called, json!({ "status": "success", "result": { "n": 1 } }));
    let id = api.start(json!([{ "name": "flow.echo" }]), json!({})).await;
    api.wait_for_step(&id, "flow.echo", "SUCCEEDED").await;
    let late = api.expect_error(CALL_MUTATION, json!({ "name": "flow.echo" })).await;
    assert_eq!(late["code"], "LIMIT_EXCEEDED", "{late}");
    let called = api.get(CALL_MUTATION, json!({ "name": "flow.noop" })).await;
    assert_eq!(called["status"], "success", "other tools have no limit");
}

#[tokio::test(start_paused = true)]
async fn a_single_call_waits_for_a_permit() {
    let api = api_with_one_call_at_a_time().await;
    let began = Instant::now();
    let long = api.get(CALL_MUTATION, json!({ "name": "flow.sleep", "p": { "ms": 5_000 } }));
    let next = async {
        time::sleep(Duration::from_millis(1)).await;
        let called = api.get(CALL_MUTATION, json!({ "name": "flow.echo", "p": { "n": 1 } })).await;
        (called, began.elapsed())
    };
    let (long, (called, after)) = tokio::join!(long, next);
    assert_eq!(long["status"], "success");
    assert_eq!(called, json!({ "status": "success", "result": { "n": 1 } }));
    assert!(after >= Duration::from_secs(5), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_single_call_without_a_permit_in_time_is_refused() {
    let api = api_with_one_call_at_a_time().await;
    let long = api.get(CALL_MUTATION, json!({ "name": "flow.sleep", "p": { "ms": 40_000 } }));
    let late = async {
        time::sleep(Duration::from_secs(1)).await;
        api.expect_error(CALL_MUTATION, json!({ "name": "flow.echo", "p": { "n": 1 } })).await
    };
    let (long, late) = tokio::join!(long, late);
    assert_eq!(long["status"], "success");
    assert_eq!(late["code"], "LIMIT_EXCEEDED");
    assert_eq!(
        late["message"],
        "calls of `flow.echo` are limited by `set:flow`: no call could start within 30 s; try \
         again later"
    );
    let history = api.get("{ toolHistory { tool } }", json!({})).await;
    assert_eq!(history, json!([{ "tool": "flow.sleep" }]), "a refused call is not made");
}

/// A step whose dependencies are finished must show why it does not run.
#[tokio::test]
async fn a_step_that_waits_for_a_limit_names_it_and_blocks_no_other_step() {
    let rule = LimitRule {
        calls: LimitedCalls::Tool("flow.echo".parse().unwrap()),
        key: Some("customer".parse().unwrap()),
        concurrency: None,
        rate: Some(Rate { calls: 1, per_ms: 86_400_000 }),
    };
    let api = limited(CallLimits::new(vec![rule])).await;
    let echo = |id: &str, customer: u32| json!({ "name": "flow.echo", "id": id, "parameters": { "customer": customer } });
    let tools = json!([echo("a", 1), echo("b", 1), echo("c", 2),
        { "name": "flow.noop", "id": "d", "dependsOn": "c" }]);
    let id = api.start(tools, json!({})).await;
    api.wait_for_execution(&id, "successful", |execution| execution["successful"] == 3).await;
    let execution = api
        .execution(&id, "state steps { state attempts } waitsFor { kind stepId name message }")
        .await;
    let steps = execution["steps"].as_array().unwrap();
    let waiting: Vec<_> =
        texts_of_field(steps, "state").into_iter().filter(|state| state == "PENDING").collect();
    assert_eq!(waiting.len(), 1, "{execution:#}");
    let wait = &execution["waitsFor"][0];
    assert_eq!(
        (&wait["kind"], &wait["name"]),
        (&json!("limit"), &json!("tool:flow.echo/customer=1"))
    );
    assert!(wait["stepId"] == "a" || wait["stepId"] == "b", "{wait}");
    let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
    api.get(cancel, json!({ "id": id })).await;
    // A step that waits for a permit can be cancelled. The mutation can answer before the worker
    // cancels the execution, so the test waits.
    api.wait_for_execution(&id, "state", |execution| execution["state"] == "CANCELLED").await;
}
