use serde_json::{Value, json};

use super::test_api::{apis_without_server, json_to_text, texts_of_field};

fn steps_to_compensate(undo: &Value) -> Value {
    json!([
        { "name": "flow.echo", "id": "a", "parameters": { "n": 1 },
          "compensate": { "name": "flow.echo", "parameters": { "undo": "{{a.n}}" } } },
        { "name": "flow.echo", "id": "b", "parameters": { "n": 2 }, "dependsOn": "a",
          "compensate": undo },
        { "name": "flow.fail", "id": "c", "parameters": { "message": "no" }, "dependsOn": "b" },
    ])
}

const EXECUTION_FIELDS: &str = "state compensateOnFailure total successful failed
    steps { stepId state compensation { state toolName resolvedParameters output error { code } } }";

#[tokio::test]
async fn compensations_run_in_reverse_order() {
    for api in apis_without_server().await {
        let undo = json!({ "name": "flow.echo", "parameters": { "undo": "{{b.n}}" } });
        let id =
            api.start(steps_to_compensate(&undo), json!({ "compensateOnFailure": true })).await;
        let events = api.events(&id).await;
        let undone: Vec<_> = events
            .iter()
            .filter(|event| json_to_text(&event["type"]).contains("compensat"))
            .map(|event| {
                format!("{} {}", json_to_text(&event["type"]), json_to_text(&event["stepId"]))
            })
            .collect();
        let expected = [
            "compensation_started null",
            "step_compensation_started b",
            "step_compensated b",
            "step_compensation_started a",
            "step_compensated a",
        ];
        assert_eq!(undone, expected);
        let execution = api.execution(&id, EXECUTION_FIELDS).await;
        assert_eq!(
            (&execution["state"], &execution["compensateOnFailure"]),
            (&json!("FAILED"), &json!(true))
        );
        let counts = ["total", "successful", "failed"].map(|key| execution[key].as_u64());
        assert_eq!(counts, [3, 2, 1].map(Some));
        let steps = execution["steps"].as_array().unwrap();
        assert_eq!(texts_of_field(steps, "state"), ["COMPENSATED", "COMPENSATED", "FAILED"]);
        let undone = &steps[0]["compensation"];
        assert_eq!(
            (&undone["state"], &undone["toolName"]),
            (&json!("SUCCEEDED"), &json!("flow.echo"))
        );
        assert_eq!(undone["resolvedParameters"], json!({ "undo": 1 }));
        assert_eq!(steps[2]["compensation"], Value::Null);
        let plan = api.execution(&id, "plan { tools { compensate } }").await;
        let written = &plan["plan"]["tools"][0]["compensate"];
        assert_eq!(
            (&written["toolName"], &written["parameters"]),
            (&json!("flow.echo"), &json!({ "undo": "{{a.n}}" }))
        );
    }
}

#[tokio::test]
async fn a_failed_compensation_is_reported_and_the_others_run() {
    for api in apis_without_server().await {
        let undo = json!({ "name": "flow.fail", "parameters": { "message": "stuck" } });
        let id =
            api.start(steps_to_compensate(&undo), json!({ "compensateOnFailure": true })).await;
        api.events(&id).await;
        let execution = api.execution(&id, EXECUTION_FIELDS).await;
        let steps = execution["steps"].as_array().unwrap();
        assert_eq!(texts_of_field(steps, "state"), ["COMPENSATED", "SUCCEEDED", "FAILED"]);
        let failed = &steps[1]["compensation"];
        assert_eq!(
            (&failed["state"], &failed["error"]["code"]),
            (&json!("FAILED"), &json!("tool.failed"))
        );
    }
}

/// If a request leaves `compensateOnFailure` out, an execution compensates if its plan or one of
/// its sub-plans has compensations.
#[tokio::test]
async fn a_failed_plan_with_compensations_compensates_unless_the_option_forbids_it() {
    let [api, _] = apis_without_server().await;
    let undoing = steps_to_compensate(&json!({ "name": "flow.echo" }));
    let inner = api.plan(undoing.clone()).await;
    let save = "mutation ($id: ID!) { savePlan(name: \"undoing\", planId: $id) }";
    api.get(save, json!({ "id": inner })).await;
    let plain = json!([{ "name": "flow.fail", "parameters": { "message": "no" } }]);
    for (tools, options, compensates) in [
        (undoing.clone(), json!({}), true),
        (undoing.clone(), json!({ "compensateOnFailure": null }), true),
        (undoing.clone(), json!({ "replans": 0 }), true),
        (undoing.clone(), json!({ "compensateOnFailure": true }), true),
        (undoing.clone(), json!({ "compensateOnFailure": false }), false),
        (json!([{ "id": "sub", "plan": inner }]), json!({}), true),
        (json!([{ "id": "sub", "plan": "undoing" }]), json!({}), true),
        (json!([{ "id": "sub", "plan": inner }]), json!({ "compensateOnFailure": false }), false),
        (plain, json!({}), false),
    ] {
        let id = api.start(tools.clone(), options.clone()).await;
        let events = api.events(&id).await;
        let first = &events[0]["data"];
        let execution = api
            .execution(
                &id,
                "compensateOnFailure steps { state child { FIELDS } }"
                    .replace("FIELDS", EXECUTION_FIELDS)
                    .as_str(),
            )
            .await;
        assert_eq!(execution["compensateOnFailure"], compensates, "{tools} {options} {first}");
        let child = &execution["steps"][0]["child"];
        let undone = if child.is_null() { &execution } else { child };
        let states = texts_of_field(undone["steps"].as_array().unwrap(), "state");
        assert_eq!(states.contains(&"COMPENSATED".to_owned()), compensates, "{tools} {options}");
        // A retry must keep `compensateOnFailure` of the execution that it retries.
        let retry = "mutation ($id: ID!) { retryExecution(executionId: $id) { executionId } }";
        let again = api.get(retry, json!({ "id": id })).await;
        let again =
            api.execution(&json_to_text(&again["executionId"]), "compensateOnFailure").await;
        assert_eq!(again["compensateOnFailure"], compensates, "{tools} {options}");
    }
}

/// An option that a request leaves out is not part of the fingerprint of its idempotency key.
#[tokio::test]
async fn a_repeated_key_accepts_an_option_that_was_left_out() {
    let [api, _] = apis_without_server().await;
    let plan = api.plan(steps_to_compensate(&json!({ "name": "flow.echo" }))).await;
    let start = "mutation ($id: ID!, $options: ExecutionOptions) {
        executePlan(planId: $id, options: $options) { executionId } }";
    let request_for = |compensates: Value| {
        let mut options = json!({ "idempotencyKey": "k" });
        if !compensates.is_null() {
            options["compensateOnFailure"] = compensates;
        }
        json!({ "id": plan, "options": options })
    };
    let first = api.get(start, request_for(Value::Null)).await;
    assert_eq!(api.get(start, request_for(Value::Null)).await, first);
    for other in [true, false] {
        let refusal = api.expect_error(start, request_for(json!(other))).await;
        assert_eq!(refusal["code"], "CONFLICT", "{other}");
    }
}

#[tokio::test]
async fn undo_calls_lists_the_compensations_of_an_execution() {
    let [api, _] = apis_without_server().await;
    let wait = json!({ "id": "w", "name": "flow.wait", "parameters": { "name": "go" },
        "dependsOn": "each" });
    let each = json!({ "id": "each", "name": "flow.echo", "forEach": "{{input.list}}",
        "compensate": { "name": "flow.noop" } });
    let inner = api.plan(json!([each, wait])).await;
    let outer = json!([
        { "id": "a", "name": "flow.echo", "compensate": { "name": "flow.echo" } },
        { "id": "sub", "plan": inner, "parameters": { "list": "{{input}}" }, "dependsOn": "a" },
    ]);
    for (compensates, expected) in
        [(true, vec!["a flow.echo null", "each flow.noop 1", "each flow.noop 0"]), (false, vec![])]
    {
        let options = json!({ "input": [1, 2], "compensateOnFailure": compensates });
        let id = api.start(outer.clone(), options).await;
        api.wait_for_execution(&id, "steps { child { state } }", |execution| {
            execution["steps"][1]["child"]["state"] == "WAITING"
        })
        .await;
        let execution = api.execution(&id, "undoCalls { executionId stepId index toolName }").await;
        let calls = execution["undoCalls"].as_array().unwrap();
        let calls: Vec<_> = calls
            .iter()
            .map(|call| {
                format!(
                    "{} {} {}",
                    json_to_text(&call["stepId"]),
                    json_to_text(&call["toolName"]),
                    call["index"]
                )
            })
            .collect();
        assert_eq!(calls, expected);
        let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
        api.get(cancel, json!({ "id": id })).await;
        api.events(&id).await;
        let execution = api.execution(&id, "undoCalls { stepId }").await;
        assert_eq!(execution["undoCalls"], json!([]));
    }
}

#[tokio::test]
async fn cancelling_does_not_stop_running_compensations() {
    for api in apis_without_server().await {
        let undo = json!({ "name": "flow.sleep", "parameters": { "ms": 3_000 } });
        let id =
            api.start(steps_to_compensate(&undo), json!({ "compensateOnFailure": true })).await;
        api.wait_for_execution(&id, "state", |execution| execution["state"] == "COMPENSATING")
            .await;
        let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
        assert_eq!(api.get(cancel, json!({ "id": id })).await["state"], "COMPENSATING");
        let events = api.events(&id).await;
        assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("FAILED")));
        assert!(!texts_of_field(&events, "type").contains(&"cancel_requested".to_owned()));
        let execution = api.execution(&id, EXECUTION_FIELDS).await;
        assert_eq!(execution["steps"][0]["state"], "COMPENSATED");
    }
}
