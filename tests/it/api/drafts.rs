use serde_json::{Value, json};

use super::test_api::{api, texts_of_field};

const VALIDATE_QUERY: &str = "query ($input: PlanInput!) { validatePlan(input: $input) {
    plan { executionOrder tools { stepId parameters dependsOn } }
    diagnostics { severity code path message help } } }";

#[tokio::test]
async fn every_diagnostic_of_a_draft_is_returned_and_nothing_is_stored() {
    let api = api().await;
    let input = json!({ "query": "q", "tools": [
        { "name": "flow.ecko" },
        { "name": "flow.noop", "id": "a", "dependsOn": ["b"], "outputMapping": "x" },
        { "name": "flow.noop", "id": "b", "dependsOn": "a" },
    ] });
    let create =
        VALIDATE_QUERY.replace("query (", "mutation (").replace("validatePlan", "createPlan");
    for query in [VALIDATE_QUERY, &create] {
        let payload = api.get(query, json!({ "input": input })).await;
        assert_eq!(payload["plan"], Value::Null);
        let diagnostics = payload["diagnostics"].as_array().unwrap();
        let mut codes = texts_of_field(diagnostics, "code");
        codes.sort();
        assert_eq!(codes, ["plan.cycle", "plan.invalid_mapping", "plan.unknown_tool"]);
        assert!(texts_of_field(diagnostics, "path").contains(&"tools[1].outputMapping".to_owned()));
        let cycle =
            diagnostics.iter().find(|diagnostic| diagnostic["code"] == "plan.cycle").unwrap();
        let message = "Circular dependency detected between tools: a -> b -> a";
        assert_eq!(cycle["message"], message);
    }
    let requests = api.get("{ requests { nodes { requestId } } }", json!({})).await;
    assert_eq!(requests["nodes"], json!([]));
}

#[tokio::test]
async fn other_spellings_of_a_draft_are_accepted() {
    let api = api().await;
    for depends_on in [json!(null), json!("a"), json!(["a"])] {
        let input = json!({ "tools": [
            { "name": "flow.echo", "id": "b", "dependsOn": depends_on, "parameters": "{\"n\": 1}",
              "outputMapping": null, "retry": { "maxAttempts": 3 } },
            { "toolName": "flow.echo", "id": "a" },
        ], "executionOrder": ["b", "a"] });
        let payload = api.get(VALIDATE_QUERY, json!({ "input": input })).await;
        let tools = payload["plan"]["tools"].as_array().unwrap_or_else(|| panic!("{payload:#}"));
        let b = tools.iter().find(|tool| tool["stepId"] == "b").unwrap();
        assert_eq!(b["parameters"], json!({ "n": 1 }));
        let depends = depends_on != Value::Null;
        assert_eq!(b["dependsOn"], if depends { json!(["a"]) } else { json!([]) });
        let codes = texts_of_field(payload["diagnostics"].as_array().unwrap(), "code");
        assert_eq!(codes.contains(&"plan.order_differs".to_owned()), depends, "{codes:?}");
    }
}

#[tokio::test]
async fn a_step_with_no_or_two_tool_names_is_invalid() {
    let api = api().await;
    for step in [json!({}), json!({ "name": "flow.noop", "toolName": "flow.noop" })] {
        let input = json!({ "tools": [step] });
        let payload = api.get(VALIDATE_QUERY, json!({ "input": input })).await;
        assert_eq!(payload["plan"], Value::Null, "{step}");
    }
}
