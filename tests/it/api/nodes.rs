//! Objects are found by their ids.

use serde_json::{Value, json};

use super::test_api::{TestApi, api, apis_without_server, json_to_text, texts_of_field};

const NODE_QUERY: &str = "query ($id: ID!) { node(id: $id) { __typename id
    ... on StepStatus { stepId index toolName output }
    ... on Tool { qualifiedName } ... on ToolSet { name } } }";

async fn find_node(api: &TestApi, id: &str) -> Value {
    api.get(NODE_QUERY, json!({ "id": id })).await
}

fn looped_and_undone_steps() -> Value {
    json!([
        { "name": "flow.echo", "id": "a.b", "parameters": { "n": "{{item}}" },
          "forEach": "{{input.all}}",
          "compensate": { "name": "flow.noop", "parameters": {} } },
        { "name": "flow.fail", "id": "c", "parameters": { "message": "no" }, "dependsOn": "a.b" },
    ])
}

#[tokio::test]
async fn every_object_is_found_by_its_id() {
    for api in apis_without_server().await {
        let options = json!({ "input": { "all": [5, 6] }, "compensateOnFailure": true });
        let execution = api.start(looped_and_undone_steps(), options).await;
        api.events(&execution).await;
        let fields = "id request { id } plan { id } steps { id items { id compensation { id } } }";
        let found = api.execution(&execution, fields).await;
        assert_eq!(found["id"], json!(execution));
        let step = |path: &str| format!("{execution}/{path}");
        assert_eq!(found["steps"][0]["id"], json!(step("a.b")));
        assert_eq!(found["steps"][0]["items"][1]["id"], json!(step("a.b[1]")));
        let undone = json!({ "id": step("a.b[1]/undo") });
        assert_eq!(found["steps"][0]["items"][1]["compensation"], undone);
        for (id, type_name) in [
            (execution.clone(), "Execution"),
            (json_to_text(&found["request"]["id"]), "Request"),
            (json_to_text(&found["plan"]["id"]), "Plan"),
            (step("a.b"), "StepStatus"),
            (step("a.b[1]"), "StepStatus"),
            (step("a.b[1]/undo"), "StepStatus"),
            (step("c"), "StepStatus"),
            ("tool:flow.echo".to_owned(), "Tool"),
            ("toolset:flow".to_owned(), "ToolSet"),
        ] {
            let node = find_node(&api, &id).await;
            assert_eq!((&node["__typename"], &node["id"]), (&json!(type_name), &json!(id)));
        }
        let item = find_node(&api, &step("a.b[1]")).await;
        assert_eq!((&item["stepId"], &item["index"]), (&json!("a.b"), &json!(1)));
        assert_eq!(item["output"], json!({ "n": 6 }));
        let undo = find_node(&api, &step("a.b[0]/undo")).await;
        assert_eq!((&undo["toolName"], &undo["index"]), (&json!("flow.noop"), &json!(0)));
    }
}

#[tokio::test]
async fn an_unknown_id_is_null() {
    let api = api().await;
    let execution = api.start(looped_and_undone_steps(), json!({ "input": { "all": [5] } })).await;
    api.events(&execution).await;
    for id in [
        "",
        "/",
        "nonsense",
        "exec_1_aaaaaaaaa",
        "plan_1_aaaaaaaaa",
        "req_1_aaaaaaaaa",
        "exec_1_aaaaaaaaa/a.b",
        "tool:",
        "tool:echo",
        "tool:flow.unknown",
        "tool:toolkit.unknown",
        "toolset:",
        "toolset:unknown",
    ] {
        assert_eq!(find_node(&api, id).await, Value::Null, "{id}");
    }
    for path in
        ["", "d", "a.b/", "a.b[1]", "a.b[00]", "a.b[+0]", "a.b[]", "c[0]", "c/undo", "a.b/c"]
    {
        let id = format!("{execution}/{path}");
        assert_eq!(find_node(&api, &id).await, Value::Null, "{id}");
    }
}

#[tokio::test]
async fn every_listed_tool_has_a_node() {
    let api = api().await;
    let add = "mutation { addAction(input: { name: \"act\", description: \"Act.\",
        tools: [{ name: \"unregistered\" }, { name: \"flow.echo\" }] }) { warnings } }";
    api.get(add, json!({})).await;
    let listed = api.ask("{ tools { id } toolSets { id } toolkit { tools { id } } }", json!({}));
    let listed = listed.await["data"].take();
    let mut ids = texts_of_field(listed["tools"].as_array().unwrap(), "id");
    ids.extend(texts_of_field(listed["toolSets"].as_array().unwrap(), "id"));
    ids.extend(texts_of_field(listed["toolkit"]["tools"].as_array().unwrap(), "id"));
    assert!(ids.iter().any(|id| id == "tool:toolkit.unregistered"), "{ids:?}");
    for id in ids {
        assert_eq!(find_node(&api, &id).await["id"], json!(id));
    }
}

#[tokio::test]
async fn strings_have_enums_and_policies_have_types_beside_them() {
    let api = api().await;
    let steps = json!([
        { "name": "flow.echo", "id": "a", "parameters": {}, "when": "false", "onError": "continue",
          "retry": { "maxAttempts": 3, "backoffMs": 7 },
          "compensate": { "name": "flow.noop", "parameters": { "x": "{{a}}" }, "timeoutMs": 9 } },
        { "name": "flow.wait", "id": "w", "parameters": { "name": "go" } },
    ]);
    let id = api.start(steps, json!({})).await;
    api.wait_for_step(&id, "w", "WAITING").await;
    let fields = "steps { skipReasonEnum waitsFor waitsForEnum } waitsFor { kind kindEnum }
        plan { tools { onErrorEnum retryPolicy { maxAttempts backoffMs jitter }
            compensation { toolName parameters effect timeoutMs retryPolicy { maxAttempts } } } }
        request { timeline { kind kindEnum } transcript { kind kindEnum } }
        events { type typeEnum detail { ... on StepSkippedEvent { stepId reason }
            ... on StepWaitingEvent { waitsFor name } } }";
    let found = api.execution(&id, fields).await;
    assert_eq!(found["steps"][0]["skipReasonEnum"], "condition");
    let waits =
        json!({ "skipReasonEnum": null, "waitsFor": "signal:go", "waitsForEnum": "signal" });
    assert_eq!(found["steps"][1], waits);
    assert_eq!(found["waitsFor"], json!([{ "kind": "signal", "kindEnum": "signal" }]));
    let planned = json!({
        "onErrorEnum": "continue",
        "retryPolicy": { "maxAttempts": 3, "backoffMs": 7, "jitter": true },
        "compensation": { "toolName": "flow.noop", "parameters": { "x": "{{a}}" },
            "effect": "READ", "timeoutMs": 9, "retryPolicy": { "maxAttempts": 1 } },
    });
    assert_eq!(found["plan"]["tools"][0], planned);
    assert_eq!(found["plan"]["tools"][1]["compensation"], Value::Null);
    for list in ["timeline", "transcript"] {
        for entry in found["request"][list].as_array().unwrap() {
            assert_eq!(entry["kind"], entry["kindEnum"], "{entry}");
        }
    }
    let events = found["events"].as_array().unwrap();
    assert!(events.iter().all(|event| event["type"] == event["typeEnum"]), "{found}");
    let detail_of = |kind: &str| {
        events.iter().find(|event| event["type"] == kind).map(|event| event["detail"].clone())
    };
    let skipped = json!({ "stepId": "a", "reason": "condition" });
    assert_eq!(detail_of("step_skipped"), Some(skipped));
    assert_eq!(detail_of("step_waiting"), Some(json!({ "waitsFor": "signal", "name": "go" })));
}

/// `planQuery` is another name of `createPlanWithRequestId`, with the same errors.
#[tokio::test]
async fn plan_query_keeps_the_request_of_a_failed_planning() {
    let api = api().await;
    for name in ["planQuery", "createPlanWithRequestId"] {
        let mutation =
            format!("mutation ($query: String!) {{ {name}(query: $query) {{ planId }} }}");
        let error = api.expect_error(&mutation, json!({ "query": "no draft" })).await;
        assert_eq!(error["code"], "NO_PLAN_FOUND", "{error}");
        let request = "query ($id: ID!) { request(requestId: $id) { planningError { codeEnum } } }";
        let kept = api.get(request, json!({ "id": error["requestId"] })).await;
        assert_eq!(kept, json!({ "planningError": { "codeEnum": "NO_PLAN_FOUND" } }));
    }
}
