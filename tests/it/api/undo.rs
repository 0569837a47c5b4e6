//! What an execution did is undone where it does not end well, as the API shows it.

use serde_json::{Value, json};

use super::world::{pluck, text, worlds};

fn tools(undo: &Value) -> Value {
    json!([
        { "name": "flow.echo", "id": "a", "parameters": { "n": 1 },
          "compensate": { "name": "flow.echo", "parameters": { "undo": "{{a.n}}" } } },
        { "name": "flow.echo", "id": "b", "parameters": { "n": 2 }, "dependsOn": "a",
          "compensate": undo },
        { "name": "flow.fail", "id": "c", "parameters": { "message": "no" }, "dependsOn": "b" },
    ])
}

const FIELDS: &str = "state compensateOnFailure total successful failed
    steps { stepId state compensation { state toolName resolvedParameters output error { code } } }";

#[tokio::test]
async fn what_succeeded_is_undone_the_latest_first() {
    for world in worlds().await {
        let undo = json!({ "name": "flow.echo", "parameters": { "undo": "{{b.n}}" } });
        let id = world.start(tools(&undo), json!({ "compensateOnFailure": true })).await;
        let events = world.events(&id).await;
        let undone: Vec<_> = events
            .iter()
            .filter(|it| text(&it["type"]).contains("compensat"))
            .map(|it| format!("{} {}", text(&it["type"]), text(&it["stepId"])))
            .collect();
        let expected = [
            "compensation_started null",
            "step_compensation_started b",
            "step_compensated b",
            "step_compensation_started a",
            "step_compensated a",
        ];
        assert_eq!(undone, expected);
        let it = world.execution(&id, FIELDS).await;
        assert_eq!((&it["state"], &it["compensateOnFailure"]), (&json!("FAILED"), &json!(true)));
        let counts = ["total", "successful", "failed"].map(|key| it[key].as_u64());
        assert_eq!(counts, [3, 2, 1].map(Some));
        let steps = it["steps"].as_array().unwrap();
        assert_eq!(pluck(steps, "state"), ["COMPENSATED", "COMPENSATED", "FAILED"]);
        let undone = &steps[0]["compensation"];
        assert_eq!(
            (&undone["state"], &undone["toolName"]),
            (&json!("SUCCEEDED"), &json!("flow.echo"))
        );
        assert_eq!(undone["resolvedParameters"], json!({ "undo": 1 }));
        assert_eq!(steps[2]["compensation"], Value::Null);
        let plan = world.execution(&id, "plan { tools { compensate } }").await;
        let written = &plan["plan"]["tools"][0]["compensate"];
        assert_eq!(
            (&written["toolName"], &written["parameters"]),
            (&json!("flow.echo"), &json!({ "undo": "{{a.n}}" }))
        );
    }
}

#[tokio::test]
async fn an_undoing_that_fails_is_told_and_the_others_go_on() {
    for world in worlds().await {
        let undo = json!({ "name": "flow.fail", "parameters": { "message": "stuck" } });
        let id = world.start(tools(&undo), json!({ "compensateOnFailure": true })).await;
        world.events(&id).await;
        let it = world.execution(&id, FIELDS).await;
        let steps = it["steps"].as_array().unwrap();
        assert_eq!(pluck(steps, "state"), ["COMPENSATED", "SUCCEEDED", "FAILED"]);
        let failed = &steps[1]["compensation"];
        assert_eq!(
            (&failed["state"], &failed["error"]["code"]),
            (&json!("FAILED"), &json!("tool.failed"))
        );
    }
}

#[tokio::test]
async fn nothing_is_undone_unless_somebody_asks() {
    let [world, _] = worlds().await;
    let undo = json!({ "name": "flow.echo" });
    let id = world.start(tools(&undo), json!({})).await;
    world.events(&id).await;
    let it = world.execution(&id, FIELDS).await;
    let steps = it["steps"].as_array().unwrap();
    assert_eq!(pluck(steps, "state"), ["SUCCEEDED", "SUCCEEDED", "FAILED"]);
}

#[tokio::test]
async fn a_cancel_leaves_what_is_being_undone_alone() {
    for world in worlds().await {
        let undo = json!({ "name": "flow.sleep", "parameters": { "ms": 3_000 } });
        let id = world.start(tools(&undo), json!({ "compensateOnFailure": true })).await;
        world.execution_until(&id, "state", |it| it["state"] == "COMPENSATING").await;
        let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
        assert_eq!(world.get(cancel, json!({ "id": id })).await["state"], "COMPENSATING");
        let events = world.events(&id).await;
        assert_eq!(events.last().map(|it| &it["data"]["state"]), Some(&json!("FAILED")));
        assert!(!pluck(&events, "type").contains(&"cancel_requested".to_owned()));
        let it = world.execution(&id, FIELDS).await;
        assert_eq!(it["steps"][0]["state"], "COMPENSATED");
    }
}
