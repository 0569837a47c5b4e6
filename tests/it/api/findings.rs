//! Findings: what happened, why, and what helps.

use serde_json::json;

use super::world::{World, pluck, world, worlds};

const FIELDS: &str = "code severity kind stepId index at until message causeSeq causeExecutionId
    remedies { label command mutation variables isDangerous }";

async fn codes_at(world: &World, id: &str, seq: i64) -> Vec<String> {
    let fields = format!("findings(atSeq: {seq}) {{ {FIELDS} }}");
    let found = world.execution(id, &fields).await;
    pluck(found["findings"].as_array().unwrap(), "code")
}

#[tokio::test]
async fn findings_of_a_position_are_those_of_that_time() {
    for world in worlds().await {
        let tools = json!([
            { "name": "flow.noop", "id": "ask", "requiresApproval": true },
            { "name": "flow.fail", "id": "b", "parameters": { "message": "no", "code": "x.y" },
              "dependsOn": "ask" },
            { "name": "flow.noop", "id": "c", "dependsOn": "b" },
        ]);
        let id = world.start(tools, json!({})).await;
        world.until(&id, "ask", "WAITING").await;
        let approve = "mutation ($id: ID!) {
            approveStep(executionId: $id, stepId: \"ask\", approved: true) { state } }";
        world.get(approve, json!({ "id": id })).await;
        let events = world.events(&id).await;
        let seq_of = |kind: &str| {
            let event = events.iter().find(|event| event["type"] == kind).unwrap();
            event["seq"].as_i64().unwrap()
        };
        assert!(codes_at(&world, &id, 1).await.is_empty());
        assert_eq!(codes_at(&world, &id, seq_of("step_waiting")).await, ["wait.approval"]);
        let last = seq_of("finished");
        let expected = ["x.y", "skip.execution_failed"];
        assert_eq!(codes_at(&world, &id, last).await, expected);
        assert_eq!(codes_at(&world, &id, last + 100).await, expected);
        let found = world.execution(&id, &format!("findings(first: 1) {{ {FIELDS} }}")).await;
        let finding = &found["findings"][0];
        assert_eq!(finding["causeSeq"], seq_of("step_failed"), "{finding:#}");
        assert_eq!((&finding["severity"], &finding["kind"]), (&json!("ERROR"), &json!("FAILURE")));
        let variables = json!({ "executionId": id, "mode": "FAILED" });
        let remedies = finding["remedies"].as_array().unwrap();
        let retry = remedies.iter().find(|remedy| remedy["mutation"] == "retryExecution");
        assert_eq!(retry.unwrap()["variables"], variables, "{finding:#}");
        // The mutation can be sent as it stands.
        let retry = "mutation ($executionId: ID!, $mode: RetryMode) {
            retryExecution(executionId: $executionId, mode: $mode) { state } }";
        world.get(retry, variables).await;
    }
}

/// A page of 200 rows asks each for its most severe finding.
#[tokio::test]
async fn a_page_of_rows_may_ask_for_reasons() {
    let world = world().await;
    world.start(json!([{ "name": "flow.noop" }]), json!({})).await;
    for (list, id) in [("executions", "executionId"), ("requests", "requestId")] {
        let row = format!("{id} findings(first: 1) {{ {FIELDS} }}");
        let query = format!("{{ {list}(first: 200) {{ nodes {{ {row} }} }} }}");
        let found = world.get(&query, json!({})).await;
        assert_eq!(found["nodes"].as_array().unwrap().len(), 1, "{found:#}");
    }
}
