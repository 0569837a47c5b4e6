//! Limits on calls, as the API shows them.

use executor::limits::{CallLimits, Limited, Rule};
use serde_json::{Value, json};
use shared::store::Rate;

use super::world::{limited, pluck};

/// Complaint of rivals' users: nobody can say why a step that could run does not.
#[tokio::test]
async fn a_step_that_waits_for_a_limit_says_which_and_holds_nothing() {
    let rule = Rule {
        of: Limited::Tool("flow.echo".parse().unwrap()),
        key: Some("customer".parse().unwrap()),
        concurrency: None,
        rate: Some(Rate { calls: 1, per_ms: 86_400_000 }),
    };
    let world = limited(CallLimits::new(vec![rule])).await;
    let echo = |id: &str, customer: u32| json!({ "name": "flow.echo", "id": id, "parameters": { "customer": customer } });
    let tools = json!([echo("a", 1), echo("b", 1), echo("c", 2),
        { "name": "flow.noop", "id": "d", "dependsOn": "c" }]);
    let id = world.start(tools, json!({})).await;
    while world.execution(&id, "successful").await["successful"] != 3 {
        tokio::task::yield_now().await;
    }
    let it = world
        .execution(&id, "state steps { state attempts } waitsFor { kind stepId name message }")
        .await;
    let steps = it["steps"].as_array().unwrap();
    let waiting: Vec<_> = pluck(steps, "state").into_iter().filter(|it| it == "PENDING").collect();
    assert_eq!(waiting.len(), 1, "{it:#}");
    let wait = &it["waitsFor"][0];
    assert_eq!(
        (&wait["kind"], &wait["name"]),
        (&json!("limit"), &json!("tool:flow.echo/customer=1"))
    );
    assert!(wait["stepId"] == "a" || wait["stepId"] == "b", "{wait}");
    let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
    let cancelled: Value = world.get(cancel, json!({ "id": id })).await;
    assert_eq!(cancelled["state"], "CANCELLED", "what waits for a limit can be cancelled");
}
