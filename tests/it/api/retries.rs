//! Retries of a whole execution, of its failed steps, and of all steps from a given step on.

use serde_json::{Value, json};

use super::test_api::{TestApi, apis_without_server, json_to_text, texts_of_field};

const RETRY_MUTATION: &str = "mutation ($id: ID!, $from: String) {
    retryExecution(executionId: $id, fromStep: $from) {
        executionId requestId planId retryOf priority startAt } }";

/// Step `a` returns its input, `b` fails, and `c` depends on `b`.
fn failing_steps() -> Value {
    json!([
        { "name": "flow.echo", "id": "a", "parameters": { "n": "{{input.n}}" } },
        { "name": "flow.fail", "id": "b", "parameters": { "message": "no" }, "dependsOn": "a" },
        { "name": "flow.echo", "id": "c", "parameters": { "n": "{{a.n}}" }, "dependsOn": "b" },
    ])
}

async fn failed_execution(api: &TestApi) -> String {
    let id = api.start(failing_steps(), json!({ "input": { "n": 7 }, "priority": 3 })).await;
    let events = api.events(&id).await;
    assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("FAILED")));
    id
}

#[tokio::test]
async fn a_retry_from_a_step_reuses_the_outputs_before_it() {
    for api in apis_without_server().await {
        let id = failed_execution(&api).await;
        let old = api.execution(&id, "requestId planId").await;
        for (from, reused, attempts) in [
            (None, vec![false; 3], 1),
            (Some("a"), vec![false; 3], 1),
            (Some("b"), vec![true, false, false], 0),
        ] {
            let again = api.get(RETRY_MUTATION, json!({ "id": id, "from": from })).await;
            assert_eq!(again["retryOf"], json!(id));
            assert_eq!(
                (&again["requestId"], &again["planId"]),
                (&old["requestId"], &old["planId"])
            );
            assert_eq!((&again["priority"], &again["startAt"]), (&json!(3), &Value::Null));
            let new = json_to_text(&again["executionId"]);
            assert_ne!(new, id);
            let events = api.events(&new).await;
            let started = events
                .iter()
                .any(|event| event["type"] == "step_started" && event["stepId"] == "a");
            assert_eq!(started, attempts == 1, "{from:?}");
            let execution = api
                .execution(&new, "state input total successful failed skipped outputs steps { reused attempts state }")
                .await;
            assert_eq!(execution["state"], "FAILED", "step `b` fails again");
            assert_eq!(execution["input"], json!({ "n": 7 }));
            let counts =
                ["total", "successful", "failed", "skipped"].map(|key| execution[key].as_u64());
            assert_eq!(counts, [3, 1, 1, 1].map(Some));
            assert_eq!(execution["outputs"], json!({ "a": { "n": 7 } }));
            let steps = execution["steps"].as_array().unwrap();
            assert_eq!(steps.iter().map(|step| step["reused"] == true).collect::<Vec<_>>(), reused);
            assert_eq!(steps[0]["attempts"], attempts);
            assert_eq!(texts_of_field(steps, "state"), ["SUCCEEDED", "FAILED", "SKIPPED"]);
            let created = &events[0]["data"];
            let expected = if attempts == 0 { json!({ "a": { "n": 7 } }) } else { json!({}) };
            assert_eq!((&created["reused"], &created["retryOf"]), (&expected, &json!(id)));
        }
    }
}

#[tokio::test]
async fn a_retry_of_an_unfinished_execution_or_an_unknown_step_is_refused() {
    for api in apis_without_server().await {
        let wait = json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }]);
        let open = api.start(wait, json!({})).await;
        let refusal = api.expect_error(RETRY_MUTATION, json!({ "id": open })).await;
        assert_eq!(refusal["code"], "CONFLICT", "{refusal}");
        let id = failed_execution(&api).await;
        let refusal = api.expect_error(RETRY_MUTATION, json!({ "id": id, "from": "bb" })).await;
        assert_eq!(refusal["code"], "NOT_FOUND", "{refusal}");
        assert!(json_to_text(&refusal["message"]).contains("has no step `bb`"), "{refusal}");
        let refusal = api.expect_error(RETRY_MUTATION, json!({ "id": "exec_1_aaaaaaaaa" })).await;
        assert_eq!(refusal["code"], "NOT_FOUND");
    }
}

#[tokio::test]
async fn a_retry_whose_reused_outputs_exceed_an_event_is_refused() {
    let [api, _] = apis_without_server().await;
    let large = "x".repeat(900 << 10);
    let mut tools: Vec<Value> = (0..10)
        .map(|n| json!({ "name": "flow.echo", "id": format!("s{n}"), "parameters": { "x": "{{input}}" } }))
        .collect();
    tools.push(json!({ "name": "flow.noop", "id": "last" }));
    let id = api.start(json!(tools), json!({ "input": large, "mode": "SEQUENTIAL" })).await;
    api.events(&id).await;
    let refusal = api.expect_error(RETRY_MUTATION, json!({ "id": id, "from": "last" })).await;
    assert_eq!(refusal["code"], "LIMIT_EXCEEDED", "{refusal}");
    let again = api.get(RETRY_MUTATION, json!({ "id": id, "from": "s5" })).await;
    assert!(again["executionId"].is_string());
}

/// Step `a`, each item of `each`, the step `deep` in `sub`, and `c` have an effect. Step `b` fails,
/// so `c` never runs.
fn steps_with_effects() -> Value {
    let inner = json!({ "tools": [
        { "name": "flow.effect", "id": "deep" },
        { "name": "flow.echo", "id": "read", "parameters": {} },
    ] });
    json!([
        { "name": "flow.effect", "id": "a" },
        { "name": "flow.effect", "id": "each", "forEach": "{{input.list}}", "dependsOn": "a" },
        { "inlinePlan": inner, "id": "sub", "parameters": {}, "dependsOn": "each" },
        { "name": "flow.fail", "id": "b", "parameters": { "message": "no" }, "dependsOn": "sub" },
        { "name": "flow.effect", "id": "c", "dependsOn": "b" },
    ])
}

async fn failed_execution_with_effects(api: &TestApi) -> String {
    let id = api.start(steps_with_effects(), json!({ "input": { "list": [1, 2, 3] } })).await;
    let events = api.events(&id).await;
    assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("FAILED")));
    id
}

async fn repeated_calls(api: &TestApi, id: &str, arguments: &str) -> Vec<String> {
    let query = format!("repeatedCalls{arguments} {{ stepId toolName calls outcomeUnknown }}");
    let found = api.execution(id, &query).await;
    let calls = found["repeatedCalls"].as_array().unwrap_or_else(|| panic!("{found}"));
    let lines = calls.iter().map(|call| {
        let unknown = if call["outcomeUnknown"] == true { " unknown" } else { "" };
        format!(
            "{} {} {}{unknown}",
            json_to_text(&call["stepId"]),
            json_to_text(&call["toolName"]),
            call["calls"]
        )
    });
    lines.collect()
}

#[tokio::test]
async fn a_retry_of_failed_steps_reuses_every_output() {
    for api in apis_without_server().await {
        let first = failed_execution_with_effects(&api).await;
        let all = ["a flow.effect 1", "each flow.effect 3", "sub flow.effect 1"];
        assert_eq!(repeated_calls(&api, &first, "").await, all);
        assert_eq!(repeated_calls(&api, &first, "(mode: ALL)").await, all);
        assert_eq!(repeated_calls(&api, &first, "(mode: FAILED)").await, [""; 0]);
        let from = "(mode: FROM_STEP, fromStep: \"each\")";
        assert_eq!(repeated_calls(&api, &first, from).await, all[1..]);
        let retry = "mutation ($id: ID!) { retryExecution(executionId: $id, mode: FAILED) {
            executionId } }";
        let second = json_to_text(&api.get(retry, json!({ "id": first })).await["executionId"]);
        api.events(&second).await;
        let fields = "retryOf steps { stepId reused state } retries { executionId }";
        let found = api.execution(&second, fields).await;
        let steps = found["steps"].as_array().unwrap();
        let reused: Vec<bool> = steps.iter().map(|step| step["reused"] == true).collect();
        assert_eq!(reused, [true, true, true, false, false]);
        assert_eq!((&found["retryOf"], &found["retries"]), (&json!(first), &json!([])));
        // The second execution reused outputs of the first one. A retry with the mode `ALL` would
        // repeat those calls, too.
        assert_eq!(repeated_calls(&api, &second, "").await, all);
        let third = json_to_text(&api.get(retry, json!({ "id": first })).await["executionId"]);
        let found = api.execution(&first, "retries { executionId requestId }").await;
        assert_eq!(
            texts_of_field(found["retries"].as_array().unwrap(), "executionId"),
            [second, third]
        );
    }
}

#[tokio::test]
async fn a_retry_never_reuses_a_compensated_step() {
    for api in apis_without_server().await {
        let tools = json!([
            { "name": "flow.effect", "id": "a", "compensate": { "name": "flow.noop" } },
            { "name": "flow.fail", "id": "b", "parameters": { "message": "no" }, "dependsOn": "a" },
        ]);
        let id = api.start(tools, json!({ "compensateOnFailure": true })).await;
        api.events(&id).await;
        let retry = "mutation ($id: ID!) { retryExecution(executionId: $id, mode: FAILED) {
            executionId } }";
        let again = json_to_text(&api.get(retry, json!({ "id": id })).await["executionId"]);
        api.events(&again).await;
        let found = api.execution(&again, "steps { reused attempts }").await;
        assert_eq!(found["steps"][0], json!({ "reused": false, "attempts": 1 }));
        assert_eq!(
            repeated_calls(&api, &id, "(mode: ALL)").await,
            [""; 0],
            "a compensated call is not repeated"
        );
    }
}

#[tokio::test]
async fn a_retry_mode_that_contradicts_its_step_is_refused() {
    let [api, _] = apis_without_server().await;
    let id = failed_execution(&api).await;
    for arguments in
        ["mode: FROM_STEP", "mode: FAILED, fromStep: \"b\"", "mode: ALL, fromStep: \"b\""]
    {
        let retry = format!(
            "mutation ($id: ID!) {{ retryExecution(executionId: $id, {arguments}) {{ state }} }}"
        );
        let refusal = api.expect_error(&retry, json!({ "id": id })).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{arguments} {refusal}");
        let query = format!(
            "query ($id: ID!) {{ execution(executionId: $id) {{ repeatedCalls({arguments}) \
             {{ stepId }} }} }}"
        );
        let refusal = api.expect_error(&query, json!({ "id": id })).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{arguments} {refusal}");
    }
}
