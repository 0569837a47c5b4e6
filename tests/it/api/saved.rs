//! Plans are saved under a name, with typed inputs.

use serde_json::{Value, json};

use super::world::{World, text, world, worlds};

const SAVE: &str = "mutation ($name: String!, $plan: ID!, $inputs: JSON) {
    savePlan(name: $name, planId: $plan, inputs: $inputs) }";
const RUN: &str = "mutation ($name: String!, $input: JSON, $options: ExecutionOptions) {
    runSavedPlan(name: $name, input: $input, options: $options) { executionId planId input } }";

fn greeting() -> Value {
    json!([{ "name": "flow.echo", "id": "e", "parameters": {
        "text": "{{input.greeting}}, {{input.name}}!", "times": "{{input.times}}" } }])
}

fn inputs() -> Value {
    json!({
        "name": { "type": "string" },
        "greeting": { "type": "string", "default": "Hello" },
        "times": { "type": "integer", "default": 1 },
    })
}

async fn save(world: &World, name: &str, plan: &str, inputs: Value) -> Value {
    world.get(SAVE, json!({ "name": name, "plan": plan, "inputs": inputs })).await
}

#[tokio::test]
async fn a_saved_plan_takes_typed_inputs() {
    for world in worlds().await {
        let plan = world.plan(greeting()).await;
        let schema = json!({ "type": "object", "properties": inputs(), "required": ["name"] });
        for (name, inputs) in [("short form", inputs()), ("a schema", schema)] {
            assert_eq!(save(&world, name, &plan, inputs).await, true);
            let run = world.get(RUN, json!({ "name": name, "input": { "name": "A" } })).await;
            assert_eq!(run["planId"], json!(plan));
            let given = json!({ "name": "A", "greeting": "Hello", "times": 1 });
            assert_eq!(run["input"], given);
            let id = text(&run["executionId"]);
            world.events(&id).await;
            let outputs = world.execution(&id, "outputs").await["outputs"].clone();
            assert_eq!(outputs, json!({ "e": { "text": "Hello, A!", "times": 1 } }));
            for (input, why) in [
                (json!({}), "`name` is missing"),
                (json!({ "name": 1 }), "`name`: 1 is not of type \"string\""),
                (json!({ "name": "A", "times": 1.5 }), "`times`"),
                (json!("A"), "is not of type \"object\""),
                (Value::Null, "`name` is missing"),
            ] {
                let refusal = world.refused(RUN, json!({ "name": name, "input": input })).await;
                assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{input} {refusal}");
                assert!(text(&refusal["message"]).contains(why), "{refusal}");
            }
        }
        let unknown = json!({ "name": "short form", "input": { "name": "A", "timse": 2 } });
        let refusal = world.refused(RUN, unknown).await;
        assert!(text(&refusal["message"]).contains("did you mean `times`?"), "{refusal}");
    }
}

#[tokio::test]
async fn a_name_means_the_plan_that_was_saved_last() {
    let world = world().await;
    let (first, second) = (world.plan(greeting()).await, world.plan(greeting()).await);
    for plan in [&first, &second] {
        save(&world, "n", plan, Value::Null).await;
        let run = world.get(RUN, json!({ "name": "n", "input": [1, "anything"] })).await;
        assert_eq!((&run["planId"], &run["input"]), (&json!(plan), &json!([1, "anything"])));
    }
}

#[tokio::test]
async fn a_key_stands_for_one_run_of_a_saved_plan() {
    let world = world().await;
    let plan = world.plan(greeting()).await;
    save(&world, "n", &plan, inputs()).await;
    let run = |name: &str| {
        let options = json!({ "idempotencyKey": "k" });
        json!({ "name": "n", "input": { "name": name }, "options": options })
    };
    let one = world.get(RUN, run("A")).await;
    assert_eq!(world.get(RUN, run("A")).await, one);
    assert_eq!(world.refused(RUN, run("B")).await["code"], "CONFLICT");
}

#[tokio::test]
async fn what_cannot_be_saved_or_run_is_refused() {
    let world = world().await;
    let plan = world.plan(greeting()).await;
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
        let refusal = world.refused(SAVE, variables).await;
        assert_eq!(refusal["code"], code, "{name:?} {refusal}");
    }
    assert_eq!(world.refused(RUN, json!({ "name": "n" })).await["code"], "NOT_FOUND");
    save(&world, "n", &plan, inputs()).await;
    let twice =
        json!({ "name": "n", "input": { "name": "A" }, "options": { "input": { "name": "B" } } });
    assert_eq!(world.refused(RUN, twice).await["code"], "INVALID_ARGUMENT");
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let refusal = world.refused(RUN, json!({ "name": "n", "input": deep })).await;
    assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{refusal}");
    let large = json!({ "name": "n", "input": "x".repeat(2 << 20) });
    assert_eq!(world.refused(RUN, large).await["code"], "LIMIT_EXCEEDED");
}

#[tokio::test]
async fn saved_plans_are_listed_in_parts_and_lose_their_names() {
    const LIST: &str = "query ($first: Int, $after: String) {
        savedPlans(first: $first, after: $after) { name planId inputs savedAt plan { version } } }";
    for world in worlds().await {
        let plan = world.plan(greeting()).await;
        for name in ["b", "c", "a"] {
            save(&world, name, &plan, inputs()).await;
        }
        let first = world.get(LIST, json!({ "first": 2 })).await;
        assert_eq!((&first[0]["name"], &first[1]["name"]), (&json!("a"), &json!("b")));
        assert_eq!((&first[0]["planId"], &first[0]["plan"]["version"]), (&json!(plan), &json!(1)));
        assert_eq!(first[0]["inputs"]["required"], json!(["name"]));
        let rest = world.get(LIST, json!({ "after": "b" })).await;
        assert_eq!((&rest[0]["name"], rest.as_array().unwrap().len()), (&json!("c"), 1));
        let refusal = world.refused(LIST, json!({ "first": 0 })).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT");

        let remove = "mutation ($name: String!) { removeSavedPlan(name: $name) }";
        assert_eq!(world.get(remove, json!({ "name": "b" })).await, true);
        assert_eq!(world.get(remove, json!({ "name": "b" })).await, false);
        let refusal = world.refused(RUN, json!({ "name": "b" })).await;
        assert_eq!(refusal["code"], "NOT_FOUND");
        assert!(world.get(LIST, json!({})).await.as_array().unwrap().len() == 2);
    }
}

#[tokio::test]
async fn an_exported_plan_needs_nothing_of_its_store() {
    let [one, other] = worlds().await;
    let inner = one.plan(greeting()).await;
    save(&one, "greet", &inner, Value::Null).await;
    let tools = json!([
        { "id": "by_name", "plan": "greet", "parameters": { "greeting": "Hi", "name": "A", "times": 1 } },
        { "id": "by_id", "plan": inner, "parameters": { "greeting": "Ho", "name": "B", "times": 2 },
          "dependsOn": "by_name" },
    ]);
    let plan = one.plan(tools).await;
    // What the name means by now is not what it meant.
    let changed = one.plan(json!([{ "name": "flow.noop" }])).await;
    save(&one, "greet", &changed, Value::Null).await;
    let export = "query ($id: ID!) { exportPlan(planId: $id) }";
    let exported = one.get(export, json!({ "id": plan })).await;
    let create = "mutation ($input: PlanInput!) { createPlan(input: $input) {
        plan { planId } diagnostics { message } } }";
    let copy = other.get(create, json!({ "input": exported })).await;
    let copy = text(&copy["plan"]["planId"]);
    let execute = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
    let run = text(&other.get(execute, json!({ "id": copy })).await["executionId"]);
    other.events(&run).await;
    let outputs = other.execution(&run, "outputs").await["outputs"].clone();
    let said = |step: &str| outputs[step]["e"]["text"].clone();
    assert_eq!((said("by_name"), said("by_id")), (json!("Hi, A!"), json!("Ho, B!")), "{outputs:#}");
    assert_eq!(one.get(export, json!({ "id": "plan_1_aaaaaaaaa" })).await, Value::Null);
}
