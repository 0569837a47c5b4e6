//! `flow.compute`: data between steps without a program.

use serde_json::{Value, json};

use super::world::{World, text, world, worlds};

const FIELDS: &str = "state outputs executionResults { errors { stepId code message retryable } }
    steps { stepId state attempts resolvedParameters warnings }";

#[expect(clippy::needless_pass_by_value, reason = "so that tests can write `json!` in place")]
fn compute(expression: &str, values: Value) -> Value {
    json!({ "id": "c", "name": "flow.compute",
        "parameters": { "expression": expression, "values": values } })
}

async fn run(world: &World, tools: Value, options: Value) -> Value {
    let id = world.start(tools, options).await;
    world.events(&id).await;
    world.execution(&id, FIELDS).await
}

#[tokio::test]
async fn a_value_is_calculated_from_others() {
    for world in worlds().await {
        let list = json!({ "id": "list", "name": "flow.echo", "parameters":
            { "items": [{ "n": "a", "price": 10 }, { "n": "b", "price": 2.5 }, { "n": "a", "price": 1 }] } });
        let expression = "{'total': sum(items.map(i, i.price)) * factor, \
                          'names': items.map(i, i.n).distinct().join(', ')}";
        let values = json!({ "items": "{{list.items}}", "factor": "{{input.factor}}" });
        let next = json!({ "id": "next", "name": "flow.echo", "when": "c.total > 20",
            "parameters": { "text": "{{c.names}}: {{c.total}}" } });
        let tools = json!([list, compute(expression, values), next]);
        let done = run(&world, tools, json!({ "input": { "factor": 2 } })).await;
        assert_eq!(done["state"], "COMPLETED", "{done:#}");
        assert_eq!(done["outputs"]["c"], json!({ "total": 27.0, "names": "a, b" }));
        assert_eq!(done["outputs"]["next"]["text"], "a, b: 27.0");
    }
}

#[tokio::test]
async fn a_loop_calculates_for_each_item() {
    let world = world().await;
    let tools = json!([
        { "id": "list", "name": "flow.echo", "parameters": { "rows": [[1, 2], [], [3]] } },
        { "id": "c", "name": "flow.compute", "forEach": "{{list.rows}}",
          "parameters": { "expression": "sum(row) + index", "values": { "row": "{{item}}", "index": "{{index}}" } } },
    ]);
    let done = run(&world, tools, json!({})).await;
    assert_eq!(done["outputs"]["c"], json!([3, 1, 5]), "{done:#}");
}

#[tokio::test]
async fn a_failure_is_final_and_says_why() {
    let world = world().await;
    for (expression, values, code, message) in [
        ("n / 0", json!({ "n": 1 }), "tool.failed", "`/`: division by zero"),
        ("[t, t]", json!({ "t": "x".repeat(600_000) }), "tool.failed", "1048576 bytes"),
        ("l.map(a, l.map(b, l))", json!({ "l": vec![1; 2_000] }), "tool.failed", "1000000"),
        ("n.a", json!({ "n": "{{list.missing}}" }), "template.unresolved", "`{{list.missing}}`"),
        ("unknown", json!("{{list}}"), "tool.failed", "`unknown` is no field of `values`"),
    ] {
        let mut step = compute(expression, values);
        step["retry"] = json!({ "maxAttempts": 3, "backoffMs": 1 });
        let list = json!({ "id": "list", "name": "flow.echo", "parameters": { "n": 1 } });
        let done = run(&world, json!([list, step]), json!({})).await;
        let error = &done["executionResults"]["errors"][0];
        assert_eq!((&done["state"], text(&error["code"])), (&json!("FAILED"), code.to_owned()));
        assert!(text(&error["message"]).contains(message), "{error:#}");
        assert_eq!(error["retryable"], false);
        assert!(done["steps"][1]["attempts"].as_u64() <= Some(1), "{done:#}");
    }
}

#[tokio::test]
async fn a_step_may_accept_missing_values() {
    let world = world().await;
    let mut step = compute("text", json!({ "text": "{{list.missing}}" }));
    step["strictTemplates"] = json!(false);
    let list = json!({ "id": "list", "name": "flow.echo" });
    let done = run(&world, json!([list, step]), json!({ "strictTemplates": true })).await;
    assert_eq!(done["outputs"]["c"], "{{list.missing}}", "{done:#}");
}

#[tokio::test]
async fn planning_refuses_wrong_expressions() {
    let world = world().await;
    let create = "mutation ($input: PlanInput!) {
        createPlan(input: $input) { diagnostics { code path message } } }";
    let tools = json!([compute("price", json!({ "prices": 1 })),
        { "name": "flow.compute", "parameters": { "expression": "{{c}}" } }]);
    let payload = world.get(create, json!({ "input": { "tools": tools } })).await;
    let found = payload["diagnostics"].as_array().unwrap();
    let places: Vec<_> = found
        .iter()
        .map(|diagnostic| (text(&diagnostic["code"]), text(&diagnostic["path"])))
        .collect();
    let expected = [
        ("plan.invalid_parameters", "tools[0].parameters.expression"),
        ("plan.invalid_template", "tools[1].parameters.expression"),
    ];
    assert_eq!(places, expected.map(|(code, path)| (code.to_owned(), path.to_owned())));
    assert!(text(&found[0]["message"]).contains("column 1"), "{found:#?}");
}

#[tokio::test]
async fn a_dry_run_calculates_with_the_input() {
    let world = world().await;
    for (expression, values, state) in [
        ("10 / n", json!({ "n": "{{input.n}}" }), "FAILED"),
        ("10 / n", json!({ "n": "{{input.one}}" }), "COMPLETED"),
        ("10 / n", json!({ "n": "{{list.n}}" }), "COMPLETED"),
        ("10 / n", json!({ "n": "{{input.missing}}" }), "FAILED"),
        ("one + other", json!("{{input}}"), "FAILED"),
        ("one + n", json!("{{input}}"), "COMPLETED"),
    ] {
        let tools = json!([{ "id": "list", "name": "flow.echo" }, compute(expression, values)]);
        let options = json!({ "dryRun": true, "input": { "n": 0, "one": 1 } });
        let done = run(&world, tools, options).await;
        assert_eq!(done["state"], state, "{expression} {done:#}");
    }
}
