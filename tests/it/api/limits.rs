//! Limits on calls, as the API shows them.

use std::time::Duration;

use executor::call_limits::{CallLimits, LimitRule, LimitedCalls};
use serde_json::json;
use shared::store::Rate;
use tokio::time::{self, Instant};

use super::world::{World, limited, pluck};

async fn one_at_a_time() -> World {
    let rule = LimitRule {
        of: LimitedCalls::Set("flow".parse().unwrap()),
        key: None,
        concurrency: Some(1),
        rate: None,
    };
    limited(CallLimits::new(vec![rule])).await
}

const CALL: &str = "mutation ($name: String!, $p: JSON) {
    callTool(name: $name, parameters: $p) { status result } }";

/// Single calls and steps are counted together.
#[tokio::test(start_paused = true)]
async fn a_single_call_counts_like_a_step() {
    let rule = LimitRule {
        of: LimitedCalls::Tool("flow.echo".parse().unwrap()),
        key: None,
        concurrency: None,
        rate: Some(Rate { calls: 2, per_ms: 86_400_000 }),
    };
    let world = limited(CallLimits::new(vec![rule])).await;
    let called = world.get(CALL, json!({ "name": "flow.echo", "p": { "n": 1 } })).await;
    assert_eq!(called, json!({ "status": "success", "result": { "n": 1 } }));
    let id = world.start(json!([{ "name": "flow.echo" }]), json!({})).await;
    world.until(&id, "flow.echo", "SUCCEEDED").await;
    let late = world.refused(CALL, json!({ "name": "flow.echo" })).await;
    assert_eq!(late["code"], "LIMIT_EXCEEDED", "{late}");
    let called = world.get(CALL, json!({ "name": "flow.noop" })).await;
    assert_eq!(called["status"], "success", "others have no limit");
}

#[tokio::test(start_paused = true)]
async fn a_single_call_waits_for_its_turn() {
    let world = one_at_a_time().await;
    let began = Instant::now();
    let long = world.get(CALL, json!({ "name": "flow.sleep", "p": { "ms": 5_000 } }));
    let next = async {
        time::sleep(Duration::from_millis(1)).await;
        let called = world.get(CALL, json!({ "name": "flow.echo", "p": { "n": 1 } })).await;
        (called, began.elapsed())
    };
    let (long, (called, after)) = tokio::join!(long, next);
    assert_eq!(long["status"], "success");
    assert_eq!(called, json!({ "status": "success", "result": { "n": 1 } }));
    assert!(after >= Duration::from_secs(5), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_single_call_waits_no_longer_than_whoever_asks() {
    let world = one_at_a_time().await;
    let long = world.get(CALL, json!({ "name": "flow.sleep", "p": { "ms": 40_000 } }));
    let late = async {
        time::sleep(Duration::from_secs(1)).await;
        world.refused(CALL, json!({ "name": "flow.echo", "p": { "n": 1 } })).await
    };
    let (long, late) = tokio::join!(long, late);
    assert_eq!(long["status"], "success");
    assert_eq!(late["code"], "LIMIT_EXCEEDED");
    assert_eq!(
        late["message"],
        "calls of `flow.echo` are limited by `set:flow`: there was no room within 30 s; try again later"
    );
    let history = world.get("{ toolHistory { tool } }", json!({})).await;
    assert_eq!(history, json!([{ "tool": "flow.sleep" }]), "what was refused was not called");
}

/// Complaint of rivals' users: nobody can say why a step that could run does not.
#[tokio::test]
async fn a_step_that_waits_for_a_limit_says_which_and_holds_nothing() {
    let rule = LimitRule {
        of: LimitedCalls::Tool("flow.echo".parse().unwrap()),
        key: Some("customer".parse().unwrap()),
        concurrency: None,
        rate: Some(Rate { calls: 1, per_ms: 86_400_000 }),
    };
    let world = limited(CallLimits::new(vec![rule])).await;
    let echo = |id: &str, customer: u32| json!({ "name": "flow.echo", "id": id, "parameters": { "customer": customer } });
    let tools = json!([echo("a", 1), echo("b", 1), echo("c", 2),
        { "name": "flow.noop", "id": "d", "dependsOn": "c" }]);
    let id = world.start(tools, json!({})).await;
    world.execution_until(&id, "successful", |execution| execution["successful"] == 3).await;
    let execution = world
        .execution(&id, "state steps { state attempts } waitsFor { kind stepId name message }")
        .await;
    let steps = execution["steps"].as_array().unwrap();
    let waiting: Vec<_> =
        pluck(steps, "state").into_iter().filter(|state| state == "PENDING").collect();
    assert_eq!(waiting.len(), 1, "{execution:#}");
    let wait = &execution["waitsFor"][0];
    assert_eq!(
        (&wait["kind"], &wait["name"]),
        (&json!("limit"), &json!("tool:flow.echo/customer=1"))
    );
    assert!(wait["stepId"] == "a" || wait["stepId"] == "b", "{wait}");
    let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
    world.get(cancel, json!({ "id": id })).await;
    // What waits for a limit can be cancelled; the answer may be older than that.
    world.execution_until(&id, "state", |execution| execution["state"] == "CANCELLED").await;
}
