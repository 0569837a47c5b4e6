//! What an execution did is undone where it does not end well, as the API shows it.

use serde_json::{Value, json};

use super::world::{pluck, text, worlds};

fn tools(undo: &Value) -> Value {
    json!([
        { "name": "flow.echo", "id": "a", "parameters": { "n": 1 },
          "compensate": { "name": "flow.echo", "parameters": { "undo": "{{a.n}}" } } },
        { "name": "flow.echo", "id": "b", "parameters": { "n": 2 }, "dependsOn": "a",
          "compensate": undo },
        { "name": "flow.fail", "id": "c", "parameters": { "message": "no" }, "dependsOn": "b" },
    ])
}

const FIELDS: &str = "state compensateOnFailure total successful failed
    steps { stepId state compensation { state toolName resolvedParameters output error { code } } }";

#[tokio::test]
async fn what_succeeded_is_undone_the_latest_first() {
    for world in worlds().await {
        let undo = json!({ "name": "flow.echo", "parameters": { "undo": "{{b.n}}" } });
        let id = world.start(tools(&undo), json!({ "compensateOnFailure": true })).await;
        let events = world.events(&id).await;
        let undone: Vec<_> = events
            .iter()
            .filter(|event| text(&event["type"]).contains("compensat"))
            .map(|event| format!("{} {}", text(&event["type"]), text(&event["stepId"])))
            .collect();
        let expected = [
            "compensation_started null",
            "step_compensation_started b",
            "step_compensated b",
            "step_compensation_started a",
            "step_compensated a",
        ];
        assert_eq!(undone, expected);
        let execution = world.execution(&id, FIELDS).await;
        assert_eq!(
            (&execution["state"], &execution["compensateOnFailure"]),
            (&json!("FAILED"), &json!(true))
        );
        let counts = ["total", "successful", "failed"].map(|key| execution[key].as_u64());
        assert_eq!(counts, [3, 2, 1].map(Some));
        let steps = execution["steps"].as_array().unwrap();
        assert_eq!(pluck(steps, "state"), ["COMPENSATED", "COMPENSATED", "FAILED"]);
        let undone = &steps[0]["compensation"];
        assert_eq!(
            (&undone["state"], &undone["toolName"]),
            (&json!("SUCCEEDED"), &json!("flow.echo"))
        );
        assert_eq!(undone["resolvedParameters"], json!({ "undo": 1 }));
        assert_eq!(steps[2]["compensation"], Value::Null);
        let plan = world.execution(&id, "plan { tools { compensate } }").await;
        let written = &plan["plan"]["tools"][0]["compensate"];
        assert_eq!(
            (&written["toolName"], &written["parameters"]),
            (&json!("flow.echo"), &json!({ "undo": "{{a.n}}" }))
        );
    }
}

#[tokio::test]
async fn an_undoing_that_fails_is_told_and_the_others_go_on() {
    for world in worlds().await {
        let undo = json!({ "name": "flow.fail", "parameters": { "message": "stuck" } });
        let id = world.start(tools(&undo), json!({ "compensateOnFailure": true })).await;
        world.events(&id).await;
        let execution = world.execution(&id, FIELDS).await;
        let steps = execution["steps"].as_array().unwrap();
        assert_eq!(pluck(steps, "state"), ["COMPENSATED", "SUCCEEDED", "FAILED"]);
        let failed = &steps[1]["compensation"];
        assert_eq!(
            (&failed["state"], &failed["error"]["code"]),
            (&json!("FAILED"), &json!("tool.failed"))
        );
    }
}

/// Left out, the plan decides, and the plans that it executes.
#[tokio::test]
async fn a_plan_that_has_compensations_is_undone_unless_the_caller_forbids_it() {
    let [world, _] = worlds().await;
    let undoing = tools(&json!({ "name": "flow.echo" }));
    let inner = world.plan(undoing.clone()).await;
    let save = "mutation ($id: ID!) { savePlan(name: \"undoing\", planId: $id) }";
    world.get(save, json!({ "id": inner })).await;
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
        let id = world.start(tools.clone(), options.clone()).await;
        let events = world.events(&id).await;
        let first = &events[0]["data"];
        let execution = world
            .execution(
                &id,
                "compensateOnFailure steps { state child { FIELDS } }"
                    .replace("FIELDS", FIELDS)
                    .as_str(),
            )
            .await;
        assert_eq!(execution["compensateOnFailure"], compensates, "{tools} {options} {first}");
        let child = &execution["steps"][0]["child"];
        let undone = if child.is_null() { &execution } else { child };
        let states = pluck(undone["steps"].as_array().unwrap(), "state");
        assert_eq!(states.contains(&"COMPENSATED".to_owned()), compensates, "{tools} {options}");
        // A retry keeps what was decided.
        let retry = "mutation ($id: ID!) { retryExecution(executionId: $id) { executionId } }";
        let again = world.get(retry, json!({ "id": id })).await;
        let again = world.execution(&text(&again["executionId"]), "compensateOnFailure").await;
        assert_eq!(again["compensateOnFailure"], compensates, "{tools} {options}");
    }
}

/// A value that was left out is part of no key.
#[tokio::test]
async fn a_key_stands_for_a_value_that_was_left_out() {
    let [world, _] = worlds().await;
    let plan = world.plan(tools(&json!({ "name": "flow.echo" }))).await;
    let start = "mutation ($id: ID!, $options: ExecutionOptions) {
        executePlan(planId: $id, options: $options) { executionId } }";
    let asked = |compensates: Value| {
        let mut options = json!({ "idempotencyKey": "k" });
        if !compensates.is_null() {
            options["compensateOnFailure"] = compensates;
        }
        json!({ "id": plan, "options": options })
    };
    let first = world.get(start, asked(Value::Null)).await;
    assert_eq!(world.get(start, asked(Value::Null)).await, first);
    for other in [true, false] {
        let refusal = world.refused(start, asked(json!(other))).await;
        assert_eq!(refusal["code"], "CONFLICT", "{other}");
    }
}

#[tokio::test]
async fn an_execution_lists_the_calls_that_would_undo_it() {
    let [world, _] = worlds().await;
    let wait = json!({ "id": "w", "name": "flow.wait", "parameters": { "name": "go" },
        "dependsOn": "each" });
    let each = json!({ "id": "each", "name": "flow.echo", "forEach": "{{input.list}}",
        "compensate": { "name": "flow.noop" } });
    let inner = world.plan(json!([each, wait])).await;
    let outer = json!([
        { "id": "a", "name": "flow.echo", "compensate": { "name": "flow.echo" } },
        { "id": "sub", "plan": inner, "parameters": { "list": "{{input}}" }, "dependsOn": "a" },
    ]);
    for (compensates, expected) in
        [(true, vec!["a flow.echo null", "each flow.noop 1", "each flow.noop 0"]), (false, vec![])]
    {
        let options = json!({ "input": [1, 2], "compensateOnFailure": compensates });
        let id = world.start(outer.clone(), options).await;
        world
            .execution_until(&id, "steps { child { state } }", |execution| {
                execution["steps"][1]["child"]["state"] == "WAITING"
            })
            .await;
        let execution =
            world.execution(&id, "undoCalls { executionId stepId index toolName }").await;
        let calls = execution["undoCalls"].as_array().unwrap();
        let calls: Vec<_> = calls
            .iter()
            .map(|call| {
                format!("{} {} {}", text(&call["stepId"]), text(&call["toolName"]), call["index"])
            })
            .collect();
        assert_eq!(calls, expected);
        let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
        world.get(cancel, json!({ "id": id })).await;
        world.events(&id).await;
        let execution = world.execution(&id, "undoCalls { stepId }").await;
        assert_eq!(execution["undoCalls"], json!([]));
    }
}

#[tokio::test]
async fn a_cancel_leaves_what_is_being_undone_alone() {
    for world in worlds().await {
        let undo = json!({ "name": "flow.sleep", "parameters": { "ms": 3_000 } });
        let id = world.start(tools(&undo), json!({ "compensateOnFailure": true })).await;
        world.execution_until(&id, "state", |execution| execution["state"] == "COMPENSATING").await;
        let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
        assert_eq!(world.get(cancel, json!({ "id": id })).await["state"], "COMPENSATING");
        let events = world.events(&id).await;
        assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("FAILED")));
        assert!(!pluck(&events, "type").contains(&"cancel_requested".to_owned()));
        let execution = world.execution(&id, FIELDS).await;
        assert_eq!(execution["steps"][0]["state"], "COMPENSATED");
    }
}
