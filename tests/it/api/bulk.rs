//! Many executions are steered at once.

use std::{sync::Arc, time::Instant};

use async_graphql::{Request, Variables};
use graphql::schema::ClientGone;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    id::CommandId,
    limits,
    store::{Command, SentCommand, Store, memory::Memory},
};
use tests::toolset::PATIENCE;
use tokio::time::timeout;

use super::world::{Role, World, text, world, worlds};

const BULK: &str = "mutation ($filter: ExecutionFilter!, $action: BulkAction!, $perSecond: Float) {
    bulkControl(filter: $filter, action: $action, perSecond: $perSecond) }";

fn wait() -> Value {
    json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }])
}

async fn waiting(world: &World, n: usize) -> (String, Vec<String>) {
    let plan = world.plan(wait()).await;
    let mut ids = Vec::new();
    for _ in 0..n {
        let query = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
        let id = text(&world.get(query, json!({ "id": plan })).await["executionId"]);
        world.until(&id, "w", "WAITING").await;
        ids.push(id);
    }
    (plan, ids)
}

async fn bulk(world: &World, filter: Value, action: &str) -> Value {
    world.get(BULK, json!({ "filter": filter, "action": action })).await
}

#[tokio::test]
async fn those_that_fit_are_steered_and_counted() {
    for world in worlds().await {
        let (plan, ids) = waiting(&world, 3).await;
        let (_, others) = waiting(&world, 1).await;
        let of_plan = json!({ "planId": plan });
        let count = |action: &'static str| bulk(&world, of_plan.clone(), action);
        assert_eq!(count("RETRY").await, 0, "none has ended");
        assert_eq!(count("RESUME").await, 0, "none is paused");
        assert_eq!(count("PAUSE").await, 3);
        for id in &ids {
            let paused = async {
                while world.execution(id, "state").await["state"] != "PAUSED" {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, paused).await.expect("it is paused");
        }
        assert_eq!(count("PAUSE").await, 0, "all are paused");
        assert_eq!(count("RESUME").await, 3);
        assert_eq!(count("CANCEL").await, 3);
        for id in &ids {
            let events = world.events(id).await;
            assert_eq!(
                events.last().map(|event| &event["data"]["state"]),
                Some(&json!("CANCELLED"))
            );
        }
        assert_eq!(count("CANCEL").await, 0, "all have ended");
        assert_eq!(bulk(&world, json!({ "planId": "nonsense" }), "CANCEL").await, 0);
        assert_eq!(world.execution(&others[0], "state").await["state"], "WAITING");
        // What retrying makes matches the filter, too, and is not retried.
        assert_eq!(count("RETRY").await, 3);
        let query = "query ($id: ID!) { plan(planId: $id) { executions { retryOf } } }";
        let found = world.get(query, json!({ "id": plan })).await;
        let retries: Vec<_> = found["executions"].as_array().unwrap().iter().collect();
        let of: Vec<_> = retries
            .iter()
            .filter(|execution| execution["retryOf"].is_string())
            .map(|execution| text(&execution["retryOf"]))
            .collect();
        assert_eq!(of, ids, "the newest last");
    }
}

#[tokio::test]
async fn retries_are_spread_by_when_they_start() {
    let world = world().await;
    let (plan, _) = waiting(&world, 3).await;
    let of_plan = json!({ "planId": plan });
    bulk(&world, of_plan.clone(), "CANCEL").await;
    let ended = json!({ "planId": plan, "state": ["CANCELLED"] });
    let query = "query ($filter: ExecutionFilter) {
        executions(filter: $filter) { nodes { state } } }";
    let all_have = |found: &Value| found["nodes"].as_array().map(Vec::len) == Some(3);
    world.get_until(query, json!({ "filter": ended }), all_have).await;
    let begun = Instant::now();
    let variables = json!({ "filter": ended, "action": "RETRY", "perSecond": 0.001 });
    assert_eq!(world.get(BULK, variables).await, 3);
    assert!(begun.elapsed().as_secs() < 100, "nobody waits for them");
    let query = "query ($id: ID!) { plan(planId: $id) { executions {
        retryOf state startAt createdAt waitsFor { kind until } } } }";
    let found = world.get(query, json!({ "id": plan })).await;
    let new: Vec<&Value> = found["executions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|execution| execution["retryOf"].is_string())
        .collect();
    assert_eq!(new.len(), 3);
    assert_eq!(new[0]["startAt"], Value::Null);
    for execution in &new[1..] {
        assert_eq!(execution["state"], "PENDING");
        assert_eq!(execution["waitsFor"][0]["kind"], "start");
        assert_eq!(execution["waitsFor"][0]["until"], execution["startAt"]);
    }
    assert!(text(&new[1]["startAt"]) < text(&new[2]["startAt"]));
}

#[tokio::test]
async fn the_pace_of_others_holds_while_somebody_waits() {
    let world = world().await;
    let (plan, _) = waiting(&world, 3).await;
    let begun = Instant::now();
    let variables = json!({ "filter": { "planId": plan }, "action": "CANCEL", "perSecond": 20.0 });
    assert_eq!(world.get(BULK, variables).await, 3);
    assert!(begun.elapsed().as_millis() >= 100, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn those_that_need_a_person_are_steered() {
    for world in worlds().await {
        let (_, ids) = waiting(&world, 2).await;
        let sleep = json!([{ "name": "flow.sleep", "id": "s", "parameters": { "ms": 600_000 } }]);
        let plan = world.plan(sleep).await;
        let query = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
        let sleeps = text(&world.get(query, json!({ "id": plan })).await["executionId"]);
        world.until(&sleeps, "s", "RUNNING").await;
        let needs = json!({ "needsPerson": true });
        let list = "query ($filter: ExecutionFilter) { executions(filter: $filter) {
            nodes { executionId } } }";
        let found = world.get(list, json!({ "filter": needs })).await;
        let mut found: Vec<String> = found["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|execution| text(&execution["executionId"]))
            .collect();
        found.sort();
        let mut expected = ids.clone();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(bulk(&world, needs, "CANCEL").await, 2);
        assert_eq!(world.execution(&sleeps, "state").await["state"], "IN_PROGRESS");
    }
}

#[tokio::test]
async fn it_ends_when_the_client_leaves() {
    let world = world().await;
    let (plan, ids) = waiting(&world, 3).await;
    let leaving = ClientGone::default();
    let variables = json!({ "filter": { "planId": plan }, "action": "CANCEL", "perSecond": 0.001 });
    let request = Request::new(BULK).variables(Variables::from_json(variables));
    let asking = world.schema.execute(request.data(leaving.clone()));
    let left = async {
        world.events(&ids[0]).await;
        leaving.0.cancel();
    };
    let (answer, ()) = futures::join!(asking, left);
    let answer = serde_json::to_value(&answer).unwrap();
    assert_eq!(answer["data"], json!({ "bulkControl": 1 }));
    for id in &ids[1..] {
        assert_eq!(world.execution(id, "state").await["state"], "WAITING");
    }
}

#[tokio::test]
async fn a_pace_is_a_number_above_nothing() {
    let world = world().await;
    for pace in [json!(0), json!(-1), json!(1e-300)] {
        let variables = json!({ "filter": {}, "action": "CANCEL", "perSecond": pace });
        let refusal = world.refused(BULK, variables).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{pace} {refusal}");
    }
}

#[tokio::test]
async fn one_whose_inbox_is_full_keeps_nobody_from_the_others() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let world = World::over(&store, Role::Asks, None);
    let (mut ids, now) = (Vec::new(), WallClock.now());
    for _ in 0..3 {
        ids.push(world.start(wait(), json!({})).await);
    }
    let full = ids[1].parse().unwrap();
    for _ in 0..limits::INBOX {
        let id = CommandId::draw(now);
        let pause = SentCommand { id, execution: full, at: now, command: Command::Pause };
        store.send_command(pause).await.unwrap();
    }
    assert_eq!(bulk(&world, json!({}), "CANCEL").await, 2);
    for (id, told) in ids.iter().zip([1, limits::INBOX, 1]) {
        let waiting = store.list_commands(Some(id.parse().unwrap())).await.unwrap();
        assert_eq!(waiting.len(), told, "{id}");
    }
}

/// An unattended retry must not pay twice.
#[tokio::test]
async fn a_retry_leaves_out_what_would_repeat_an_unknown_call() {
    for world in worlds().await {
        let register = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
        let pay = json!({ "name": "pay", "description": "Pays.", "parameters": { "type": "object" }, "effect": "ONCE",
            "run": { "command": ["sleep", "60"] } });
        world.get(register, json!({ "input": pay })).await;
        let paying = json!([{ "name": "pay", "timeoutMs": 50 }]);
        let failing = json!([{ "name": "flow.fail", "parameters": { "message": "no" } }]);
        let unknown = world.start(paying, json!({})).await;
        let failed = world.start(failing, json!({})).await;
        for id in [&unknown, &failed] {
            world.events(id).await;
        }
        assert_eq!(bulk(&world, json!({ "state": ["FAILED"] }), "RETRY").await, 1);
        let settle = "mutation ($id: ID!) {
            settleStep(executionId: $id, stepId: \"pay\", outcome: SUCCEEDED) {
                state failed steps { settled } } }";
        let settled = world.get(settle, json!({ "id": unknown })).await;
        let expected =
            json!({ "state": "FAILED", "failed": 1, "steps": [{ "settled": "SUCCEEDED" }] });
        assert_eq!(settled, expected);
        let of_plan = world.execution(&unknown, "planId").await;
        let filter = json!({ "planId": of_plan["planId"] });
        assert_eq!(bulk(&world, filter, "RETRY").await, 1, "a person has decided");
    }
}
