//! People steer executions: they cancel, pause, resume, approve and signal.

use serde_json::{Value, json};

use super::world::{World, worlds};

async fn steer(world: &World, id: &str, what: &str) -> Value {
    let query = format!("mutation ($id: ID!) {{ {} }}", mutation(what));
    world.get(&query, json!({ "id": id })).await
}

async fn refused(world: &World, id: &str, what: &str) -> Value {
    let query = format!("mutation ($id: ID!) {{ {} }}", mutation(what));
    world.refused(&query, json!({ "id": id })).await["code"].clone()
}

fn mutation(what: &str) -> String {
    let (name, arguments) = what.split_once(' ').unwrap_or((what, ""));
    format!("{name}(executionId: $id {arguments}) {{ state outputs steps {{ state }} }}")
}

fn wait() -> Value {
    json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }])
}

#[tokio::test]
async fn a_signal_ends_a_wait() {
    for world in worlds().await {
        let id = world.start(wait(), json!({})).await;
        world.until(&id, "w", "WAITING").await;
        assert_eq!(world.execution(&id, "state").await["state"], "WAITING");
        steer(&world, &id, "signalExecution , name: \"other\"").await;
        steer(&world, &id, "signalExecution , name: \"go\", payload: { n: [1] }").await;
        world.events(&id).await;
        let outputs = world.execution(&id, "outputs").await;
        assert_eq!(outputs["outputs"], json!({ "w": { "n": [1] } }));
        for what in ["signalExecution , name: \"go\"", "pauseExecution", "resumeExecution"] {
            assert_eq!(refused(&world, &id, what).await, "CONFLICT", "{what}");
        }
        assert_eq!(
            refused(&world, &id, "approveStep , stepId: \"w\", approved: true").await,
            "CONFLICT"
        );
    }
}

#[tokio::test]
async fn what_is_cancelled_stays_cancelled() {
    for world in worlds().await {
        let id = world.start(wait(), json!({})).await;
        world.until(&id, "w", "WAITING").await;
        let cancelled = steer(&world, &id, "cancelExecution , reason: \"enough\"").await;
        assert_eq!(cancelled["state"], "CANCELLED");
        assert_eq!(cancelled["steps"], json!([{ "state": "CANCELLED" }]));
        assert_eq!(steer(&world, &id, "cancelExecution").await, cancelled);
        let events = world.events(&id).await;
        let asked: Vec<_> =
            events.iter().filter(|event| event["type"] == "cancel_requested").collect();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0]["data"], json!({ "reason": "enough" }));
    }
}

#[tokio::test]
async fn a_pause_holds_until_somebody_resumes() {
    for world in worlds().await {
        let mut tools = wait();
        tools.as_array_mut().unwrap().push(json!({ "name": "flow.noop", "dependsOn": "w" }));
        let id = world.start(tools, json!({})).await;
        world.until(&id, "w", "WAITING").await;
        for _ in 0..2 {
            assert_eq!(steer(&world, &id, "pauseExecution").await["state"], "PAUSED");
        }
        steer(&world, &id, "signalExecution , name: \"go\"").await;
        world.until(&id, "w", "SUCCEEDED").await;
        let paused = world.execution(&id, "state step(stepId: \"flow.noop\") { state }").await;
        assert_eq!(paused, json!({ "state": "PAUSED", "step": { "state": "PENDING" } }));
        let resumed = steer(&world, &id, "resumeExecution").await;
        assert_ne!(resumed["state"], "PAUSED");
        let events = world.events(&id).await;
        assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("COMPLETED")));
    }
}

#[tokio::test]
async fn a_person_lets_a_step_go_on_or_not() {
    for world in worlds().await {
        for (approved, state) in [(true, "COMPLETED"), (false, "FAILED")] {
            let step = json!([{ "name": "flow.echo", "id": "a", "requiresApproval": true,
                "parameters": { "x": 1 } }]);
            let id = world.start(step, json!({})).await;
            world.until(&id, "a", "WAITING").await;
            let execution =
                world.execution(&id, "step(stepId: \"a\") { resolvedParameters }").await;
            assert_eq!(execution["step"]["resolvedParameters"], json!({ "x": 1 }));
            let unknown = format!("approveStep , stepId: \"b\", approved: {approved}");
            assert_eq!(refused(&world, &id, &unknown).await, "NOT_FOUND");
            let what = format!("approveStep , stepId: \"a\", approved: {approved}, comment: \"c\"");
            let answer = steer(&world, &id, &what).await;
            assert_ne!(answer["steps"][0]["state"], "WAITING");
            let events = world.events(&id).await;
            assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!(state)));
            let fields = "executionResults { errors { code } }";
            let codes = if approved { json!([]) } else { json!([{ "code": "step.rejected" }]) };
            assert_eq!(world.execution(&id, fields).await["executionResults"]["errors"], codes);
        }
    }
}

#[tokio::test]
async fn a_step_that_waits_for_a_signal_waits_for_no_person() {
    for world in worlds().await {
        let id = world.start(wait(), json!({})).await;
        world.until(&id, "w", "WAITING").await;
        let what = "approveStep , stepId: \"w\", approved: true";
        assert_eq!(refused(&world, &id, what).await, "CONFLICT");
    }
}

#[tokio::test]
async fn a_failure_waits_for_a_decision() {
    for world in worlds().await {
        let step = json!([{ "name": "flow.fail", "id": "f", "onError": "wait",
            "parameters": { "message": "m", "times": 1 } }]);
        let id = world.start(step, json!({})).await;
        world.until(&id, "f", "WAITING").await;
        let execution =
            world.execution(&id, "step(stepId: \"f\") { error { message attempt } }").await;
        assert_eq!(execution["step"]["error"], json!({ "message": "m", "attempt": 1 }));
        steer(&world, &id, "approveStep , stepId: \"f\", approved: true").await;
        let events = world.events(&id).await;
        assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("COMPLETED")));
    }
}

/// Signals that nobody waits for are kept, but not without end.
#[tokio::test]
async fn a_signal_too_many_is_refused() {
    let [world, _] = worlds().await;
    let id = world.start(wait(), json!({})).await;
    world.until(&id, "w", "WAITING").await;
    let query = "mutation ($id: ID!) { signalExecution(executionId: $id, name: \"other\") {
        executionId } }";
    for _ in 0..10 {
        let some = (0..100).map(|_| world.get(query, json!({ "id": id })));
        futures::future::join_all(some).await;
    }
    let refusal = world.refused(query, json!({ "id": id })).await;
    assert_eq!(refusal["code"], "LIMIT_EXCEEDED", "{refusal}");
    steer(&world, &id, "signalExecution , name: \"go\"").await;
    let events = world.events(&id).await;
    assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("COMPLETED")));
}
