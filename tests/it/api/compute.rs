use serde_json::{Value, json};

use super::test_api::{TestApi, api, apis_without_server, json_to_text};

const EXECUTION_FIELDS: &str =
    "state outputs executionResults { errors { stepId code message retryable } }
    steps { stepId state attempts resolvedParameters warnings }";

#[expect(clippy::needless_pass_by_value, reason = "so that tests can write `json!` in place")]
fn compute_step(expression: &str, values: Value) -> Value {
    json!({ "id": "c", "name": "flow.compute",
        "parameters": { "expression": expression, "values": values } })
}

async fn run_steps(api: &TestApi, tools: Value, options: Value) -> Value {
    let id = api.start(tools, options).await;
    api.events(&id).await;
    api.execution(&id, EXECUTION_FIELDS).await
}

#[tokio::test]
async fn compute_returns_a_value_of_outputs_and_inputs() {
    for api in apis_without_server().await {
        let list = json!({ "id": "list", "name": "flow.echo", "parameters":
            { "items": [{ "n": "a", "price": 10 }, { "n": "b", "price": 2.5 }, { "n": "a", "price": 1 }] } });
        let expression = "{'total': sum(items.map(i, i.price)) * factor, \
                          'names': items.map(i, i.n).distinct().join(', ')}";
        let values = json!({ "items": "{{list.items}}", "factor": "{{input.factor}}" });
        let next = json!({ "id": "next", "name": "flow.echo", "when": "c.total > 20",
            "parameters": { "text": "{{c.names}}: {{c.total}}" } });
        let tools = json!([list, compute_step(expression, values), next]);
        let done = run_steps(&api, tools, json!({ "input": { "factor": 2 } })).await;
        assert_eq!(done["state"], "COMPLETED", "{done:#}");
        assert_eq!(done["outputs"]["c"], json!({ "total": 27.0, "names": "a, b" }));
        assert_eq!(done["outputs"]["next"]["text"], "a, b: 27.0");
    }
}

#[tokio::test]
async fn compute_runs_for_each_item_of_a_loop() {
    let api = api().await;
    let tools = json!([
        { "id": "list", "name": "flow.echo", "parameters": { "rows": [[1, 2], [], [3]] } },
        { "id": "c", "name": "flow.compute", "forEach": "{{list.rows}}",
          "parameters": { "expression": "sum(row) + index", "values": { "row": "{{item}}", "index": "{{index}}" } } },
    ]);
    let done = run_steps(&api, tools, json!({})).await;
    assert_eq!(done["outputs"]["c"], json!([3, 1, 5]), "{done:#}");
}

#[tokio::test]
async fn a_failed_expression_is_not_retried_and_names_the_cause() {
    let api = api().await;
    for (expression, values, code, message) in [
        ("n / 0", json!({ "n": 1 }), "tool.failed", "`/`: division by zero"),
        ("[t, t]", json!({ "t": "x".repeat(600_000) }), "tool.failed", "1048576 bytes"),
        ("l.map(a, l.map(b, l))", json!({ "l": vec![1; 2_000] }), "tool.failed", "1000000"),
        ("n.a", json!({ "n": "{{list.missing}}" }), "template.unresolved", "`{{list.missing}}`"),
        ("unknown", json!("{{list}}"), "tool.failed", "`unknown` is not a field of `values`"),
    ] {
        let mut step = compute_step(expression, values);
        step["retry"] = json!({ "maxAttempts": 3, "backoffMs": 1 });
        let list = json!({ "id": "list", "name": "flow.echo", "parameters": { "n": 1 } });
        let done = run_steps(&api, json!([list, step]), json!({})).await;
        let error = &done["executionResults"]["errors"][0];
        assert_eq!(
            (&done["state"], json_to_text(&error["code"])),
            (&json!("FAILED"), code.to_owned())
        );
        assert!(json_to_text(&error["message"]).contains(message), "{error:#}");
        assert_eq!(error["retryable"], false);
        assert!(done["steps"][1]["attempts"].as_u64() <= Some(1), "{done:#}");
    }
}

#[tokio::test]
async fn compute_keeps_an_unresolved_template_without_strict_templates() {
    let api = api().await;
    let mut step = compute_step("text", json!({ "text": "{{list.missing}}" }));
    step["strictTemplates"] = json!(false);
    let list = json!({ "id": "list", "name": "flow.echo" });
    let done = run_steps(&api, json!([list, step]), json!({ "strictTemplates": true })).await;
    assert_eq!(done["outputs"]["c"], "{{list.missing}}", "{done:#}");
}

#[tokio::test]
async fn an_invalid_expression_is_a_diagnostic_of_the_plan() {
    let api = api().await;
    let create = "mutation ($input: PlanInput!) {
        createPlan(input: $input) { diagnostics { code path message } } }";
    let tools = json!([compute_step("price", json!({ "prices": 1 })),
        { "name": "flow.compute", "parameters": { "expression": "{{c}}" } }]);
    let payload = api.get(create, json!({ "input": { "tools": tools } })).await;
    let found = payload["diagnostics"].as_array().unwrap();
    let places: Vec<_> = found
        .iter()
        .map(|diagnostic| (json_to_text(&diagnostic["code"]), json_to_text(&diagnostic["path"])))
        .collect();
    let expected = [
        ("plan.invalid_parameters", "tools[0].parameters.expression"),
        ("plan.invalid_template", "tools[1].parameters.expression"),
    ];
    assert_eq!(places, expected.map(|(code, path)| (code.to_owned(), path.to_owned())));
    assert!(json_to_text(&found[0]["message"]).contains("column 1"), "{found:#?}");
}

#[tokio::test]
async fn a_dry_run_evaluates_expressions_over_the_input() {
    let api = api().await;
    for (expression, values, state) in [
        ("10 / n", json!({ "n": "{{input.n}}" }), "FAILED"),
        ("10 / n", json!({ "n": "{{input.one}}" }), "COMPLETED"),
        ("10 / n", json!({ "n": "{{list.n}}" }), "COMPLETED"),
        ("10 / n", json!({ "n": "{{input.missing}}" }), "FAILED"),
        ("one + other", json!("{{input}}"), "FAILED"),
        ("one + n", json!("{{input}}"), "COMPLETED"),
    ] {
        let tools =
            json!([{ "id": "list", "name": "flow.echo" }, compute_step(expression, values)]);
        let options = json!({ "dryRun": true, "input": { "n": 0, "one": 1 } });
        let done = run_steps(&api, tools, options).await;
        assert_eq!(done["state"], state, "{expression} {done:#}");
    }
}
