use serde_json::{Value, json};

use super::test_api::{TestApi, api, apis_without_server, json_to_text};

const SAVE_MUTATION: &str = "mutation ($name: String!, $plan: ID!, $inputs: JSON) {
    savePlan(name: $name, planId: $plan, inputs: $inputs) }";
const RUN_MUTATION: &str = "mutation ($name: String!, $input: JSON, $options: ExecutionOptions) {
    runSavedPlan(name: $name, input: $input, options: $options) { executionId planId input } }";

fn greeting_steps() -> Value {
    json!([{ "name": "flow.echo", "id": "e", "parameters": {
        "text": "{{input.greeting}}, {{input.name}}!", "times": "{{input.times}}" } }])
}

fn greeting_inputs() -> Value {
    json!({
        "name": { "type": "string" },
        "greeting": { "type": "string", "default": "Hello" },
        "times": { "type": "integer", "default": 1 },
    })
}

async fn save_plan(api: &TestApi, name: &str, plan: &str, inputs: Value) -> Value {
    api.get(SAVE_MUTATION, json!({ "name": name, "plan": plan, "inputs": inputs })).await
}

#[tokio::test]
async fn a_saved_plan_checks_its_inputs_and_fills_defaults() {
    for api in apis_without_server().await {
        let plan = api.plan(greeting_steps()).await;
        let schema =
            json!({ "type": "object", "properties": greeting_inputs(), "required": ["name"] });
        for (name, inputs) in [("short form", greeting_inputs()), ("a schema", schema)] {
            assert_eq!(save_plan(&api, name, &plan, inputs).await, true);
            let run =
                api.get(RUN_MUTATION, json!({ "name": name, "input": { "name": "A" } })).await;
            assert_eq!(run["planId"], json!(plan));
            let given = json!({ "name": "A", "greeting": "Hello", "times": 1 });
            assert_eq!(run["input"], given);
            let id = json_to_text(&run["executionId"]);
            api.events(&id).await;
            let outputs = api.execution(&id, "outputs").await["outputs"].clone();
            assert_eq!(outputs, json!({ "e": { "text": "Hello, A!", "times": 1 } }));
            for (input, reason) in [
                (json!({}), "`name` is missing"),
                (json!({ "name": 1 }), "`name`: 1 is not of type \"string\""),
                (json!({ "name": "A", "times": 1.5 }), "`times`"),
                (json!("A"), "is not of type \"object\""),
                (Value::Null, "`name` is missing"),
            ] {
                let refusal =
                    api.expect_error(RUN_MUTATION, json!({ "name": name, "input": input })).await;
                assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{input} {refusal}");
                assert!(json_to_text(&refusal["message"]).contains(reason), "{refusal}");
            }
        }
        let unknown = json!({ "name": "short form", "input": { "name": "A", "timse": 2 } });
        let refusal = api.expect_error(RUN_MUTATION, unknown).await;
        assert!(json_to_text(&refusal["message"]).contains("did you mean `times`?"), "{refusal}");
    }
}

#[tokio::test]
async fn a_name_means_the_plan_that_was_saved_last_under_it() {
    let api = api().await;
    let (first, second) = (api.plan(greeting_steps()).await, api.plan(greeting_steps()).await);
    for plan in [&first, &second] {
        save_plan(&api, "n", plan, Value::Null).await;
        let run = api.get(RUN_MUTATION, json!({ "name": "n", "input": [1, "anything"] })).await;
        assert_eq!((&run["planId"], &run["input"]), (&json!(plan), &json!([1, "anything"])));
    }
}

#[tokio::test]
async fn a_repeated_key_returns_the_same_run_of_a_saved_plan() {
    let api = api().await;
    let plan = api.plan(greeting_steps()).await;
    save_plan(&api, "n", &plan, greeting_inputs()).await;
    let run = |name: &str| {
        let options = json!({ "idempotencyKey": "k" });
        json!({ "name": "n", "input": { "name": name }, "options": options })
    };
    let one = api.get(RUN_MUTATION, run("A")).await;
    assert_eq!(api.get(RUN_MUTATION, run("A")).await, one);
    assert_eq!(api.expect_error(RUN_MUTATION, run("B")).await["code"], "CONFLICT");
}

#[tokio::test]
async fn invalid_names_and_inputs_of_saved_plans_are_refused() {
    let api = api().await;
    let plan = api.plan(greeting_steps()).await;
    let long = "x".repeat(129);
    for (name, of, inputs, code) in [
        ("", &plan, Value::Null, "INVALID_ARGUMENT"),
        (" n", &plan, Value::Null, "INVALID_ARGUMENT"),
        ("a\nb", &plan, Value::Null, "INVALID_ARGUMENT"),
        (long.as_str(), &plan, Value::Null, "INVALID_ARGUMENT"),
        ("plan_1_aaaaaaaaa", &plan, Value::Null, "INVALID_ARGUMENT"),
        ("n", &plan, json!({ "a": { "type": "strnig" } }), "INVALID_ARGUMENT"),
        ("n", &plan, json!(5), "INVALID_ARGUMENT"),
        ("n", &"plan_1_aaaaaaaaa".to_owned(), Value::Null, "NOT_FOUND"),
        ("n", &"nonsense".to_owned(), Value::Null, "NOT_FOUND"),
    ] {
        let variables = json!({ "name": name, "plan": of, "inputs": inputs });
        let refusal = api.expect_error(SAVE_MUTATION, variables).await;
        assert_eq!(refusal["code"], code, "{name:?} {refusal}");
    }
    assert_eq!(api.expect_error(RUN_MUTATION, json!({ "name": "n" })).await["code"], "NOT_FOUND");
    save_plan(&api, "n", &plan, greeting_inputs()).await;
    let twice =
        json!({ "name": "n", "input": { "name": "A" }, "options": { "input": { "name": "B" } } });
    assert_eq!(api.expect_error(RUN_MUTATION, twice).await["code"], "INVALID_ARGUMENT");
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let refusal = api.expect_error(RUN_MUTATION, json!({ "name": "n", "input": deep })).await;
    assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{refusal}");
    let large = json!({ "name": "n", "input": "x".repeat(2 << 20) });
    assert_eq!(api.expect_error(RUN_MUTATION, large).await["code"], "LIMIT_EXCEEDED");
}

#[tokio::test]
async fn saved_plans_are_paged_and_can_be_removed() {
    const LIST_QUERY: &str = "query ($first: Int, $after: String) {
        savedPlans(first: $first, after: $after) { name planId inputs savedAt plan { version } } }";
    for api in apis_without_server().await {
        let plan = api.plan(greeting_steps()).await;
        for name in ["b", "c", "a"] {
            save_plan(&api, name, &plan, greeting_inputs()).await;
        }
        let first = api.get(LIST_QUERY, json!({ "first": 2 })).await;
        assert_eq!((&first[0]["name"], &first[1]["name"]), (&json!("a"), &json!("b")));
        assert_eq!((&first[0]["planId"], &first[0]["plan"]["version"]), (&json!(plan), &json!(1)));
        assert_eq!(first[0]["inputs"]["required"], json!(["name"]));
        let rest = api.get(LIST_QUERY, json!({ "after": "b" })).await;
        assert_eq!((&rest[0]["name"], rest.as_array().unwrap().len()), (&json!("c"), 1));
        let refusal = api.expect_error(LIST_QUERY, json!({ "first": 0 })).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT");

        let remove = "mutation ($name: String!) { removeSavedPlan(name: $name) }";
        assert_eq!(api.get(remove, json!({ "name": "b" })).await, true);
        assert_eq!(api.get(remove, json!({ "name": "b" })).await, false);
        let refusal = api.expect_error(RUN_MUTATION, json!({ "name": "b" })).await;
        assert_eq!(refusal["code"], "NOT_FOUND");
        assert!(api.get(LIST_QUERY, json!({})).await.as_array().unwrap().len() == 2);
    }
}

#[tokio::test]
async fn an_exported_plan_runs_in_another_store() {
    let [one, other] = apis_without_server().await;
    let inner = one.plan(greeting_steps()).await;
    save_plan(&one, "greet", &inner, Value::Null).await;
    let tools = json!([
        { "id": "by_name", "plan": "greet", "parameters": { "greeting": "Hi", "name": "A", "times": 1 } },
        { "id": "by_id", "plan": inner, "parameters": { "greeting": "Ho", "name": "B", "times": 2 },
          "dependsOn": "by_name" },
    ]);
    let plan = one.plan(tools).await;
    // The name `greet` now means another plan. The plan that uses this name was created before the
    // change.
    let changed = one.plan(json!([{ "name": "flow.noop" }])).await;
    save_plan(&one, "greet", &changed, Value::Null).await;
    let export = "query ($id: ID!) { exportPlan(planId: $id) }";
    let exported = one.get(export, json!({ "id": plan })).await;
    let create = "mutation ($input: PlanInput!) { createPlan(input: $input) {
        plan { planId } diagnostics { message } } }";
    let copy = other.get(create, json!({ "input": exported })).await;
    let copy = json_to_text(&copy["plan"]["planId"]);
    let execute = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
    let run = json_to_text(&other.get(execute, json!({ "id": copy })).await["executionId"]);
    other.events(&run).await;
    let outputs = other.execution(&run, "outputs").await["outputs"].clone();
    let output = |step: &str| outputs[step]["e"]["text"].clone();
    assert_eq!(
        (output("by_name"), output("by_id")),
        (json!("Hi, A!"), json!("Ho, B!")),
        "{outputs:#}"
    );
    assert_eq!(one.get(export, json!({ "id": "plan_1_aaaaaaaaa" })).await, Value::Null);
}
