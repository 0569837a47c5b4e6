use serde_json::{Value, json};

use super::test_api::{api, apis_without_server, json_to_text};

fn inner_steps() -> Value {
    json!([{ "name": "flow.echo", "id": "in", "parameters": { "twice": "{{input.x}}{{input.x}}" } }])
}

const TREE_FIELDS: &str = "executionId state outputs parentExecutionId
    steps { stepId toolName state output childExecutionId resolvedParameters
        child { executionId planId requestId state input parentExecutionId parentStepId parentIndex
            parent { executionId } } }";

#[tokio::test]
async fn a_sub_plan_runs_as_a_child_execution_in_the_same_request() {
    for api in apis_without_server().await {
        let child = api.plan(inner_steps()).await;
        let save = "mutation ($plan: ID!) { savePlan(name: \"twice\", planId: $plan) }";
        api.get(save, json!({ "plan": child })).await;
        let inline = json!({ "tools": inner_steps() });
        for sub in
            [json!({ "plan": child }), json!({ "plan": "twice" }), json!({ "inlinePlan": inline })]
        {
            let mut step = sub.clone();
            step["id"] = json!("sub");
            step["parameters"] = json!({ "x": "{{a.x}}" });
            let tools = json!([{ "name": "flow.echo", "id": "a", "parameters": { "x": "y" } }, step,
                { "name": "flow.echo", "id": "z", "parameters": { "got": "{{sub.in.twice}}" } }]);
            let id = api.start(tools, json!({})).await;
            api.events(&id).await;
            let execution = api.execution(&id, TREE_FIELDS).await;
            assert_eq!(execution["state"], "COMPLETED", "{sub} {execution:#}");
            assert_eq!(execution["outputs"]["sub"], json!({ "in": { "twice": "yy" } }));
            assert_eq!(execution["outputs"]["z"], json!({ "got": "yy" }));
            let step = &execution["steps"][1];
            let found = &step["child"];
            assert_eq!(step["childExecutionId"], found["executionId"]);
            assert_eq!(found["input"], json!({ "x": "y" }));
            assert_eq!(found["parent"]["executionId"], json!(id));
            assert_eq!(
                (&found["parentStepId"], &found["parentIndex"]),
                (&json!("sub"), &Value::Null)
            );
            let request = api.execution(&id, "requestId").await["requestId"].clone();
            assert_eq!(found["requestId"], request);
            let list = "query ($filter: ExecutionFilter) {
                executions(filter: $filter) { nodes { executionId } } }";
            let (whole, part) = (&execution["executionId"], &found["executionId"]);
            for (parts, expected) in [
                (json!(null), json!([part, whole])),
                (json!(true), json!([part, whole])),
                (json!(false), json!([whole])),
            ] {
                let filter = json!({ "filter": { "requestId": request, "parts": parts } });
                let listed = api.get(list, filter).await;
                let ids: Value = listed["nodes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|child_execution| child_execution["executionId"].clone())
                    .collect();
                assert_eq!(ids, expected, "{parts}");
            }
            let query =
                "query ($id: ID!) { plan(planId: $id) { tools { stepId plan timeoutMs } } }";
            let plan = api.execution(&id, "planId").await["planId"].clone();
            let planned = api.get(query, json!({ "id": plan })).await;
            assert_eq!(planned["tools"][1]["plan"], found["planId"]);
            if sub.get("plan").is_some() {
                assert_eq!(found["planId"], json!(child));
            }
        }
    }
}

/// Regression: only the mutation `runSavedPlan` checked the inputs of a saved plan.
#[tokio::test]
async fn a_step_that_executes_a_saved_plan_checks_its_inputs() {
    let api = api().await;
    let echo = json!({ "s": "{{input.s}}", "n": "{{input.n}}" });
    let plan = api.plan(json!([{ "name": "flow.echo", "id": "in", "parameters": echo }])).await;
    let save = "mutation ($plan: ID!, $inputs: JSON) {
        savePlan(name: \"typed\", planId: $plan, inputs: $inputs) }";
    let inputs = json!({ "s": "string", "n": { "type": "integer", "default": 7 } });
    api.get(save, json!({ "plan": plan, "inputs": inputs })).await;
    let tools = json!([{ "plan": "typed", "parameters": { "s": "{{input.s}}" } }]);
    let fields = "state outputs executionResults { errors { code } }";
    for (s, expected) in [(json!("x"), Some(7)), (json!([1]), None)] {
        for dry in [false, true] {
            let options = json!({ "input": { "s": s }, "dryRun": dry });
            let id = api.start(tools.clone(), options).await;
            api.events(&id).await;
            let execution = api.execution(&id, fields).await;
            let state = if expected.is_some() { "COMPLETED" } else { "FAILED" };
            assert_eq!(execution["state"], state, "{s} {dry} {execution}");
            if expected.is_none() {
                let codes = json!([{ "code": "tool.invalid_parameters" }]);
                assert_eq!(execution["executionResults"]["errors"], codes);
            } else if !dry {
                assert_eq!(execution["outputs"]["typed"]["in"], json!({ "s": s, "n": 7 }));
            }
        }
    }
}

#[tokio::test]
async fn waits_for_of_a_parent_names_the_child_and_its_reason() {
    let api = api().await;
    let child =
        api.plan(json!([{ "name": "flow.noop", "id": "n", "requiresApproval": true }])).await;
    let id = api.start(json!([{ "plan": child, "id": "sub" }]), json!({})).await;
    api.wait_for_step(&id, "sub", "RUNNING").await;
    let fields = "waitsFor { kind stepId executionId message }
        step(stepId: \"sub\") { childExecutionId }";
    let execution = api.execution(&id, fields).await;
    let child = execution["step"]["childExecutionId"].clone();
    let wait = &execution["waitsFor"][0];
    assert_eq!((&wait["kind"], &wait["stepId"]), (&json!("child"), &json!("sub")));
    assert_eq!(wait["executionId"], child);
    api.wait_for_step(&json_to_text(&child), "n", "WAITING").await;
    let execution = api.execution(&json_to_text(&child), "waitsFor { kind stepId message }").await;
    let expected = json!([{ "kind": "approval", "stepId": "n",
        "message": "needs approval of `n`, which calls `flow.noop`" }]);
    assert_eq!(execution["waitsFor"], expected);
    let fields = "findings(first: 1) { code severity message causeExecutionId remedies { mutation variables } }";
    let execution = api.execution(&id, fields).await;
    let found = &execution["findings"][0];
    assert_eq!((&found["code"], &found["severity"]), (&json!("wait.child"), &json!("WARNING")));
    assert!(
        json_to_text(&found["message"])
            .ends_with(": needs approval of `n`, which calls `flow.noop`")
    );
    assert_eq!(found["causeExecutionId"], child);
    assert_eq!(found["remedies"][0]["mutation"], "approveStep");
    assert_eq!(found["remedies"][0]["variables"]["executionId"], child);
    let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { executionId } }";
    api.get(cancel, json!({ "id": id })).await;
    for id in [id, json_to_text(&child)] {
        let events = api.events(&id).await;
        assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("CANCELLED")));
        assert_eq!(api.execution(&id, "waitsFor { kind }").await["waitsFor"], json!([]));
    }
}

#[tokio::test]
async fn an_unknown_sub_plan_is_a_diagnostic_and_validation_stores_nothing() {
    let api = api().await;
    let query = "query ($input: PlanInput!) { validatePlan(input: $input) {
        plan { planId } diagnostics { severity code path } } }";
    for name in ["plan_1_aaaaaaaaa", "nobody", ""] {
        let input = json!({ "tools": [{ "plan": name, "id": "s" }] });
        let payload = api.get(query, json!({ "input": input })).await;
        assert_eq!(payload["plan"], Value::Null, "{name}");
        assert!(!payload["diagnostics"].as_array().unwrap().is_empty(), "{name}");
    }
    let both = json!({ "tools": [{ "plan": "x", "inlinePlan": { "tools": inner_steps() } }] });
    let payload = api.get(query, json!({ "input": both })).await;
    assert_eq!(payload["plan"], Value::Null);
    let good = json!({ "tools": [{ "inlinePlan": { "tools": inner_steps() }, "parameters": { "x": 1 } }] });
    let payload = api.get(query, json!({ "input": good })).await;
    assert!(payload["plan"].is_object(), "{payload}");
    let kept = api.get("{ plans { nodes { planId } } }", json!({})).await;
    assert_eq!(kept["nodes"], json!([]));
    let wrong = json!({ "tools": [{ "inlinePlan": { "tools": [{ "name": "nothing" }] } }] });
    let payload = api.get(query, json!({ "input": wrong })).await;
    let path = json_to_text(&payload["diagnostics"][0]["path"]);
    assert!(path.starts_with("tools[0].plan.tools[0]"), "{payload}");
}
