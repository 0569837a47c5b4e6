use serde_json::json;

use super::test_api::{TestApi, api, apis_without_server, texts_of_field};

const FINDING_FIELDS: &str =
    "code severity kind stepId index at until message causeSeq causeExecutionId
    remedies { label command mutation variables isDangerous }";

async fn finding_codes_at(api: &TestApi, id: &str, seq: i64) -> Vec<String> {
    let fields = format!("findings(atSeq: {seq}) {{ {FINDING_FIELDS} }}");
    let found = api.execution(id, &fields).await;
    texts_of_field(found["findings"].as_array().unwrap(), "code")
}

#[tokio::test]
async fn findings_at_an_earlier_event_are_those_of_that_time() {
    for api in apis_without_server().await {
        let tools = json!([
            { "name": "flow.noop", "id": "ask", "requiresApproval": true },
            { "name": "flow.fail", "id": "b", "parameters": { "message": "no", "code": "x.y" },
              "dependsOn": "ask" },
            { "name": "flow.noop", "id": "c", "dependsOn": "b" },
        ]);
        let id = api.start(tools, json!({})).await;
        api.wait_for_step(&id, "ask", "WAITING").await;
        let approve = "mutation ($id: ID!) {
            approveStep(executionId: $id, stepId: \"ask\", approved: true) { state } }";
        api.get(approve, json!({ "id": id })).await;
        let events = api.events(&id).await;
        let seq_of = |kind: &str| {
            let event = events.iter().find(|event| event["type"] == kind).unwrap();
            event["seq"].as_i64().unwrap()
        };
        assert!(finding_codes_at(&api, &id, 1).await.is_empty());
        assert_eq!(finding_codes_at(&api, &id, seq_of("step_waiting")).await, ["wait.approval"]);
        let last = seq_of("finished");
        let expected = ["x.y", "skip.execution_failed"];
        assert_eq!(finding_codes_at(&api, &id, last).await, expected);
        assert_eq!(finding_codes_at(&api, &id, last + 100).await, expected);
        let found = api.execution(&id, &format!("findings(first: 1) {{ {FINDING_FIELDS} }}")).await;
        let finding = &found["findings"][0];
        assert_eq!(finding["causeSeq"], seq_of("step_failed"), "{finding:#}");
        assert_eq!((&finding["severity"], &finding["kind"]), (&json!("ERROR"), &json!("FAILURE")));
        let variables = json!({ "executionId": id, "mode": "FAILED" });
        let remedies = finding["remedies"].as_array().unwrap();
        let retry = remedies.iter().find(|remedy| remedy["mutation"] == "retryExecution");
        assert_eq!(retry.unwrap()["variables"], variables, "{finding:#}");
        // Sends the mutation of the remedy with its variables, because a client must be able to
        // send them unchanged.
        let retry = "mutation ($executionId: ID!, $mode: RetryMode) {
            retryExecution(executionId: $executionId, mode: $mode) { state } }";
        api.get(retry, variables).await;
    }
}

/// The web page asks for the most severe finding of each of 200 executions.
#[tokio::test]
async fn a_page_of_200_rows_can_include_findings() {
    let api = api().await;
    api.start(json!([{ "name": "flow.noop" }]), json!({})).await;
    for (list, id) in [("executions", "executionId"), ("requests", "requestId")] {
        let row = format!("{id} findings(first: 1) {{ {FINDING_FIELDS} }}");
        let query = format!("{{ {list}(first: 200) {{ nodes {{ {row} }} }} }}");
        let found = api.get(&query, json!({})).await;
        assert_eq!(found["nodes"].as_array().unwrap().len(), 1, "{found:#}");
    }
}
