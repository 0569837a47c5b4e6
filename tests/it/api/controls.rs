use serde_json::{Value, json};

use super::test_api::{TestApi, apis_without_server};

async fn control_execution(api: &TestApi, id: &str, mutation_name: &str) -> Value {
    let query = format!("mutation ($id: ID!) {{ {} }}", control_mutation(mutation_name));
    api.get(&query, json!({ "id": id })).await
}

async fn error_code(api: &TestApi, id: &str, mutation_name: &str) -> Value {
    let query = format!("mutation ($id: ID!) {{ {} }}", control_mutation(mutation_name));
    api.expect_error(&query, json!({ "id": id })).await["code"].clone()
}

fn control_mutation(mutation_name: &str) -> String {
    let (name, arguments) = mutation_name.split_once(' ').unwrap_or((mutation_name, ""));
    format!("{name}(executionId: $id {arguments}) {{ state outputs steps {{ state }} }}")
}

fn wait_step() -> Value {
    json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }])
}

#[tokio::test]
async fn a_signal_ends_the_step_that_waits_for_it() {
    for api in apis_without_server().await {
        let id = api.start(wait_step(), json!({})).await;
        api.wait_for_step(&id, "w", "WAITING").await;
        assert_eq!(api.execution(&id, "state").await["state"], "WAITING");
        control_execution(&api, &id, "signalExecution , name: \"other\"").await;
        control_execution(&api, &id, "signalExecution , name: \"go\", payload: { n: [1] }").await;
        api.events(&id).await;
        let outputs = api.execution(&id, "outputs").await;
        assert_eq!(outputs["outputs"], json!({ "w": { "n": [1] } }));
        for mutation_name in ["signalExecution , name: \"go\"", "pauseExecution", "resumeExecution"]
        {
            assert_eq!(error_code(&api, &id, mutation_name).await, "CONFLICT", "{mutation_name}");
        }
        assert_eq!(
            error_code(&api, &id, "approveStep , stepId: \"w\", approved: true").await,
            "CONFLICT"
        );
    }
}

#[tokio::test]
async fn cancelling_twice_records_one_cancellation() {
    for api in apis_without_server().await {
        let id = api.start(wait_step(), json!({})).await;
        api.wait_for_step(&id, "w", "WAITING").await;
        let cancelled = control_execution(&api, &id, "cancelExecution , reason: \"enough\"").await;
        assert_eq!(cancelled["state"], "CANCELLED");
        assert_eq!(cancelled["steps"], json!([{ "state": "CANCELLED" }]));
        assert_eq!(control_execution(&api, &id, "cancelExecution").await, cancelled);
        let events = api.events(&id).await;
        let requests: Vec<_> =
            events.iter().filter(|event| event["type"] == "cancel_requested").collect();
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0]["data"], json!({ "reason": "enough" }));
    }
}

#[tokio::test]
async fn a_paused_execution_starts_no_step_until_it_is_resumed() {
    for api in apis_without_server().await {
        let mut tools = wait_step();
        tools.as_array_mut().unwrap().push(json!({ "name": "flow.noop", "dependsOn": "w" }));
        let id = api.start(tools, json!({})).await;
        api.wait_for_step(&id, "w", "WAITING").await;
        for _ in 0..2 {
            assert_eq!(control_execution(&api, &id, "pauseExecution").await["state"], "PAUSED");
        }
        control_execution(&api, &id, "signalExecution , name: \"go\"").await;
        api.wait_for_step(&id, "w", "SUCCEEDED").await;
        let paused = api.execution(&id, "state step(stepId: \"flow.noop\") { state }").await;
        assert_eq!(paused, json!({ "state": "PAUSED", "step": { "state": "PENDING" } }));
        let resumed = control_execution(&api, &id, "resumeExecution").await;
        assert_ne!(resumed["state"], "PAUSED");
        let events = api.events(&id).await;
        assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("COMPLETED")));
    }
}

#[tokio::test]
async fn an_approval_runs_the_step_and_a_rejection_fails_it() {
    for api in apis_without_server().await {
        for (approved, state) in [(true, "COMPLETED"), (false, "FAILED")] {
            let step = json!([{ "name": "flow.echo", "id": "a", "requiresApproval": true,
                "parameters": { "x": 1 } }]);
            let id = api.start(step, json!({})).await;
            api.wait_for_step(&id, "a", "WAITING").await;
            let execution = api.execution(&id, "step(stepId: \"a\") { resolvedParameters }").await;
            assert_eq!(execution["step"]["resolvedParameters"], json!({ "x": 1 }));
            let unknown = format!("approveStep , stepId: \"b\", approved: {approved}");
            assert_eq!(error_code(&api, &id, &unknown).await, "NOT_FOUND");
            let mutation_name =
                format!("approveStep , stepId: \"a\", approved: {approved}, comment: \"c\"");
            let answer = control_execution(&api, &id, &mutation_name).await;
            assert_ne!(answer["steps"][0]["state"], "WAITING");
            let events = api.events(&id).await;
            assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!(state)));
            let fields = "executionResults { errors { code } }";
            let codes = if approved { json!([]) } else { json!([{ "code": "step.rejected" }]) };
            assert_eq!(api.execution(&id, fields).await["executionResults"]["errors"], codes);
        }
    }
}

#[tokio::test]
async fn a_step_that_waits_for_a_signal_cannot_be_approved() {
    for api in apis_without_server().await {
        let id = api.start(wait_step(), json!({})).await;
        api.wait_for_step(&id, "w", "WAITING").await;
        let mutation_name = "approveStep , stepId: \"w\", approved: true";
        assert_eq!(error_code(&api, &id, mutation_name).await, "CONFLICT");
    }
}

#[tokio::test]
async fn a_failed_step_with_on_error_wait_can_be_tried_again() {
    for api in apis_without_server().await {
        let step = json!([{ "name": "flow.fail", "id": "f", "onError": "wait",
            "parameters": { "message": "m", "times": 1 } }]);
        let id = api.start(step, json!({})).await;
        api.wait_for_step(&id, "f", "WAITING").await;
        let execution =
            api.execution(&id, "step(stepId: \"f\") { error { message attempt } }").await;
        assert_eq!(execution["step"]["error"], json!({ "message": "m", "attempt": 1 }));
        control_execution(&api, &id, "approveStep , stepId: \"f\", approved: true").await;
        let events = api.events(&id).await;
        assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("COMPLETED")));
    }
}

/// Signals that no step waits for are stored, up to a limit.
#[tokio::test]
async fn a_signal_over_the_limit_is_refused() {
    let [api, _] = apis_without_server().await;
    let id = api.start(wait_step(), json!({})).await;
    api.wait_for_step(&id, "w", "WAITING").await;
    let query = "mutation ($id: ID!) { signalExecution(executionId: $id, name: \"other\") {
        executionId } }";
    for _ in 0..10 {
        let some = (0..100).map(|_| api.get(query, json!({ "id": id })));
        futures::future::join_all(some).await;
    }
    let refusal = api.expect_error(query, json!({ "id": id })).await;
    assert_eq!(refusal["code"], "LIMIT_EXCEEDED", "{refusal}");
    control_execution(&api, &id, "signalExecution , name: \"go\"").await;
    let events = api.events(&id).await;
    assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("COMPLETED")));
}
