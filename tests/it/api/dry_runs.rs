//! Tests of dry runs, which check a plan and its input and call no tool.

use serde_json::{Value, json};

use super::test_api::{TestApi, api, apis_without_server, json_to_text, texts_of_field};

const EXECUTION_FIELDS: &str =
    "state dryRun total successful failed skipped outputs node startedAt finishedAt
    executionResults { errors { stepId code message } }
    steps { stepId state attempts resolvedParameters warnings skipReason error { code } }";

async fn dry_run(api: &TestApi, tools: Value, mut options: Value) -> Value {
    options["dryRun"] = json!(true);
    let id = api.start(tools, options).await;
    let events = api.events(&id).await;
    let kinds = texts_of_field(&events, "type");
    assert_eq!(kinds.last().map(String::as_str), Some("finished"));
    assert!(!kinds.contains(&"step_started".to_owned()), "{kinds:?}");
    api.execution(&id, EXECUTION_FIELDS).await
}

#[tokio::test]
async fn a_dry_run_of_a_valid_plan_skips_every_step() {
    for api in apis_without_server().await {
        let tools = json!([
            { "name": "flow.echo", "id": "a", "parameters": { "who": "{{input.who}}", "as": "{{input.as}}" } },
            { "name": "flow.sleep", "id": "b", "parameters": { "ms": "{{input.ms}}" }, "dependsOn": "a" },
            { "name": "flow.echo", "id": "c", "parameters": { "x": "{{a.x}} and {{input.who}}" } },
        ]);
        let input = json!({ "who": "{{b.braces}}", "as": [1], "ms": 86_400_000 });
        let execution = dry_run(&api, tools, json!({ "input": input })).await;
        assert_eq!(
            (&execution["state"], &execution["dryRun"]),
            (&json!("COMPLETED"), &json!(true))
        );
        let counts =
            ["total", "successful", "failed", "skipped"].map(|key| execution[key].as_u64());
        assert_eq!(counts, [3, 0, 0, 3].map(Some));
        assert_eq!(execution["outputs"], json!({}));
        assert!(execution["finishedAt"].is_string());
        let steps = execution["steps"].as_array().unwrap();
        assert!(steps.iter().all(|step| step["attempts"] == 0 && step["skipReason"] == "dry_run"));
        let resolved: Vec<_> =
            steps.iter().map(|step| step["resolvedParameters"].clone()).collect();
        let expected = [
            json!({ "who": "{{b.braces}}", "as": [1] }),
            json!({ "ms": 86_400_000 }),
            json!({ "x": "{{a.x}} and {{b.braces}}" }),
        ];
        assert_eq!(resolved, expected);
    }
}

#[tokio::test]
async fn a_dry_run_with_an_unfit_input_fails_with_every_error() {
    for api in apis_without_server().await {
        let tools = json!([
            { "name": "flow.sleep", "id": "fits", "parameters": { "ms": "{{input.ms}}" } },
            { "name": "flow.sleep", "id": "text", "parameters": { "ms": "{{input.text}}" } },
            { "name": "flow.sleep", "id": "missing", "parameters": { "ms": "{{input.none}}" } },
            { "name": "flow.echo", "id": "loop", "parameters": { "x": "{{item}}" },
              "forEach": "{{input.text}}" },
            { "name": "flow.echo", "id": "list", "parameters": { "x": "{{item}}" },
              "forEach": "{{input.list}}" },
        ]);
        let input = json!({ "ms": 1, "text": "soon", "list": [1, 2] });
        let execution = dry_run(&api, tools, json!({ "input": input })).await;
        assert_eq!(execution["state"], "FAILED");
        let errors = execution["executionResults"]["errors"].as_array().unwrap();
        let codes: Vec<_> = errors
            .iter()
            .map(|error| (json_to_text(&error["stepId"]), json_to_text(&error["code"])))
            .collect();
        let expected = [
            ("text", "tool.invalid_parameters"),
            ("missing", "tool.invalid_parameters"),
            ("loop", "step.not_a_list"),
        ];
        let expected = expected.map(|(step, code)| (step.to_owned(), code.to_owned()));
        assert_eq!(codes, expected, "{errors:#?}");
        let states = texts_of_field(execution["steps"].as_array().unwrap(), "state");
        assert_eq!(states, ["SKIPPED", "FAILED", "FAILED", "FAILED", "SKIPPED"]);
    }
}

#[tokio::test]
async fn a_missing_input_is_a_warning_or_an_error_with_strict_templates() {
    let api = api().await;
    let tools = json!([{ "name": "flow.echo", "id": "e", "parameters": { "x": "{{input.y}}" } }]);
    let execution = dry_run(&api, tools.clone(), json!({})).await;
    assert_eq!(execution["state"], "COMPLETED");
    let warning = json_to_text(&execution["steps"][0]["warnings"][0]);
    assert!(warning.starts_with("`{{input.y}}` has no value"), "{warning}");
    let execution = dry_run(&api, tools, json!({ "strictTemplates": true })).await;
    assert_eq!(execution["state"], "FAILED");
    assert_eq!(execution["steps"][0]["error"]["code"], "template.unresolved");
}

/// Regression: a mail was sent to `{{input.who}}`, and the execution was `COMPLETED`.
#[tokio::test]
async fn a_missing_input_of_a_step_with_an_effect_fails_the_execution_before_its_first_step() {
    let api = api().await;
    let step = |strict: Value| {
        let parameters = json!({ "text": "Hello {{input.who}}" });
        let mut act =
            json!({ "name": "flow.effect", "dependsOn": "flow.echo", "parameters": parameters });
        if strict.is_boolean() {
            act["strictTemplates"] = strict;
        }
        json!([{ "name": "flow.echo" }, act])
    };
    for (of_step, options, expected) in [
        (json!(null), json!({}), "FAILED"),
        (json!(null), json!({ "strictTemplates": true }), "FAILED"),
        (json!(null), json!({ "strictTemplates": false }), "COMPLETED"),
        (json!(true), json!({ "strictTemplates": false }), "FAILED"),
        (json!(false), json!({ "strictTemplates": true }), "COMPLETED"),
        (json!(null), json!({ "input": { "who": "Ann" } }), "COMPLETED"),
    ] {
        let checked = dry_run(&api, step(of_step.clone()), options.clone()).await;
        assert_eq!(checked["state"], expected, "{of_step} {options} {checked:#}");
        let id = api.start(step(of_step.clone()), options.clone()).await;
        let events = api.events(&id).await;
        let start_count = events.iter().filter(|event| event["type"] == "step_started").count();
        let state = &events.last().unwrap()["data"]["state"];
        assert_eq!(
            (state, start_count),
            (&json!(expected), if expected == "FAILED" { 0 } else { 2 })
        );
        let failed = events.iter().find(|event| event["type"] == "step_failed");
        let code = failed.map(|event| event["data"]["error"]["code"].clone());
        assert_eq!(code, (expected == "FAILED").then(|| json!("template.unresolved")));
    }
}

#[tokio::test]
async fn a_dry_run_and_a_real_run_cannot_share_an_idempotency_key() {
    let api = api().await;
    let plan = api.plan(json!([{ "name": "flow.noop" }])).await;
    let query = "mutation ($id: ID!, $options: ExecutionOptions) {
        executePlan(planId: $id, options: $options) { executionId dryRun } }";
    let dry = json!({ "id": plan, "options": { "dryRun": true, "idempotencyKey": "k" } });
    let one = api.get(query, dry.clone()).await;
    assert_eq!(api.get(query, dry).await, one);
    let wet = json!({ "id": plan, "options": { "idempotencyKey": "k" } });
    assert_eq!(api.expect_error(query, wet).await["code"], "CONFLICT");
    let retry = "mutation ($id: ID!) { retryExecution(executionId: $id) { dryRun retryOf state } }";
    let again = api.get(retry, json!({ "id": one["executionId"] })).await;
    let expected = json!({ "dryRun": true, "retryOf": one["executionId"], "state": "COMPLETED" });
    assert_eq!(again, expected);
}
