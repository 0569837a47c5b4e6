use serde_json::{Value, json};

use super::test_api::{TestApi, apis_without_server, json_to_text, texts_of_field};

fn failing_loop(on_error: &str) -> Value {
    json!([{
        "name": "flow.fail", "id": "l", "forEach": "{{input}}", "onError": on_error,
        "parameters": { "message": "no {{index}}", "times": "{{item}}" },
    }])
}

async fn run_loop(api: &TestApi, tools: Value, input: Value) -> (String, Value) {
    let id = api.start(tools, json!({ "input": input })).await;
    api.events(&id).await;
    let fields = "state total successful failed outputs
        executionResults { errors { stepId index code message } }
        steps { stepId index state output itemTally { total successful failed }
            items { stepId index state output resolvedParameters error { index code } } }";
    let execution = api.execution(&id, fields).await;
    (id, execution)
}

#[tokio::test]
async fn a_loop_that_ignores_failures_counts_and_lists_them() {
    for api in apis_without_server().await {
        // An item fails as often as its value says, so only the second item of `[0, 1, 0]` fails.
        for (on_error, output) in
            [("ignore", json!([null, null, null])), ("continue", json!([null, null]))]
        {
            let (_, execution) = run_loop(&api, failing_loop(on_error), json!([0, 1, 0])).await;
            assert_eq!(execution["state"], "COMPLETED", "{execution:#}");
            assert_eq!(execution["outputs"]["l"], output, "{on_error}");
            let errors = &execution["executionResults"]["errors"];
            assert_eq!(errors.as_array().map(Vec::len), Some(1), "{errors}");
            assert_eq!((&errors[0]["stepId"], &errors[0]["index"]), (&json!("l"), &json!(1)));
            assert_eq!(
                (&execution["total"], &execution["successful"], &execution["failed"]),
                (&json!(1), &json!(1), &json!(0))
            );
            let step = &execution["steps"][0];
            assert_eq!(step["itemTally"], json!({ "total": 3, "successful": 2, "failed": 1 }));
            let items = step["items"].as_array().unwrap();
            assert_eq!(texts_of_field(items, "state"), ["SUCCEEDED", "FAILED", "SUCCEEDED"]);
            assert_eq!(texts_of_field(items, "index"), ["0", "1", "2"]);
            assert_eq!(items[1]["error"]["index"], 1);
            assert_eq!(items[1]["resolvedParameters"], json!({ "message": "no 1", "times": 1 }));
        }
    }
}

#[tokio::test]
async fn a_failed_item_fails_its_step() {
    for api in apis_without_server().await {
        let (id, execution) = run_loop(&api, failing_loop("fail"), json!([0, 1])).await;
        assert_eq!(execution["state"], "FAILED");
        let errors = &execution["executionResults"]["errors"];
        assert_eq!(errors.as_array().map(Vec::len), Some(1), "{errors}");
        assert_eq!((&errors[0]["index"], &errors[0]["code"]), (&json!(1), &json!("tool.failed")));
        let events = api.events(&id).await;
        let indexed: Vec<_> = events
            .iter()
            .filter(|event| event["data"]["index"] == 1)
            .map(|event| json_to_text(&event["type"]))
            .collect();
        assert_eq!(indexed, ["step_started", "step_failed"]);
        let started = events.iter().find(|event| event["type"] == "step_started").unwrap();
        assert_eq!(started["data"], json!({ "items": 2 }));
    }
}

#[tokio::test]
async fn items_of_a_loop_are_paged() {
    let [api, _] = apis_without_server().await;
    let echo = json!([{ "name": "flow.echo", "id": "l", "forEach": "{{input}}",
        "parameters": { "x": "{{item}}" }, "maxParallel": 3 }]);
    let list: Vec<usize> = (0..25).collect();
    let id = api.start(echo, json!({ "input": list })).await;
    api.events(&id).await;
    let outputs = api.execution(&id, "outputs").await;
    let gathered: Vec<_> = list.iter().map(|item| json!({ "x": item })).collect();
    assert_eq!(outputs["outputs"]["l"], json!(gathered));
    for (arguments, expected) in [
        ("(first: 2)", vec!["0", "1"]),
        ("(first: 2, afterIndex: 22)", vec!["23", "24"]),
        ("(afterIndex: 23)", vec!["24"]),
        ("(afterIndex: 100)", vec![]),
        ("(state: [FAILED])", vec![]),
    ] {
        let fields = format!("steps {{ items{arguments} {{ index }} }}");
        let execution = api.execution(&id, &fields).await;
        let items = execution["steps"][0]["items"].as_array().unwrap();
        assert_eq!(texts_of_field(items, "index"), expected, "{arguments}");
    }
    for arguments in ["(first: 0)", "(first: 10001)", "(afterIndex: -1)"] {
        let query = format!(
            "{{ execution(executionId: \"{id}\") {{ steps {{ items{arguments} {{ index }} }} }} }}"
        );
        let refusal = api.expect_error(&query, json!({})).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{arguments} {refusal}");
    }
}

#[tokio::test]
async fn a_decision_applies_to_one_item_or_to_all_that_wait() {
    for api in apis_without_server().await {
        let tools = json!([{ "name": "flow.fail", "id": "l", "forEach": "{{input}}",
            "onError": "wait", "parameters": { "message": "no" , "times": 1 } }]);
        let id = api.start(tools, json!({ "input": [1, 2, 3] })).await;
        let waiting = |n: usize| {
            let (api, id) = (&api, id.clone());
            async move {
                let fields = "steps { items(state: [WAITING]) { index waitsFor } }";
                let items =
                    |execution: &Value| execution["steps"][0]["items"].as_array().unwrap().clone();
                items(
                    &api.wait_for_execution(&id, fields, |execution| items(execution).len() == n)
                        .await,
                )
            }
        };
        let items = waiting(3).await;
        assert!(items.iter().all(|item| item["waitsFor"] == "decision"), "{items:?}");
        let query = "mutation ($id: ID!, $step: String!) {
            approveStep(executionId: $id, stepId: $step, approved: true) { executionId } }";
        for (step, code) in
            [("l[3]", "NOT_FOUND"), ("l[x]", "NOT_FOUND"), ("m", "NOT_FOUND"), ("l]", "NOT_FOUND")]
        {
            let refusal = api.expect_error(query, json!({ "id": id, "step": step })).await;
            assert_eq!(refusal["code"], code, "{step} {refusal}");
        }
        api.get(query, json!({ "id": id, "step": "l[1]" })).await;
        let items = waiting(2).await;
        assert_eq!(texts_of_field(&items, "index"), ["0", "2"]);
        let refusal = api.expect_error(query, json!({ "id": id, "step": "l[1]" })).await;
        assert_eq!(refusal["code"], "CONFLICT", "{refusal}");
        let reason = api.execution(&id, "waitsFor { kind stepId index message }").await;
        let kinds = texts_of_field(reason["waitsFor"].as_array().unwrap(), "kind");
        assert_eq!(kinds, ["decision", "decision", "items"], "{reason:#}");
        api.get(query, json!({ "id": id, "step": "l" })).await;
        let events = api.events(&id).await;
        assert_eq!(events.last().map(|event| &event["data"]["state"]), Some(&json!("COMPLETED")));
    }
}
