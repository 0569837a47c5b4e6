//! Damaged data: a clear error for what is damaged; the others go on, also in lists, and nobody
//! looks at it again and again.

use std::time::Duration;

use mongodb::{
    Client,
    bson::{Document, doc},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    home::Home,
    node::{Node, Role},
    scene::Scene,
    wire::{Trouble, ask},
};
use crate::mongod::Mongod;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_mins(3);
/// How often a worker may complain of one thing while it looks for work dozens of times.
const COMPLAINTS: usize = 6;

const EXECUTE: &str = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
const STATE: &str = "query ($id: ID!) { execution(executionId: $id) { state } }";

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_row_harms_nobody_else() {
    for text in ["garbage", r#"[{"at":1,"type":"claimed"}]"#] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faber.db");
        let home = Home::new(format!("sqlite:{}", path.display()));
        let (sleeps, waits) = leave(&home).await;
        let damage = "UPDATE events SET json = ?2 WHERE first = 1
            AND log = (SELECT number FROM logs WHERE execution = ?1)";
        let connection = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(connection.execute(damage, [&sleeps, text]).unwrap(), 1);
        drop(connection);
        check(&home, &sleeps, &waits).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_log_harms_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("faber.db");
    let home = Home::new(format!("sqlite:{}", path.display()));
    let (sleeps, waits) = leave(&home).await;
    let damage = "DELETE FROM events WHERE first = 1
        AND log = (SELECT number FROM logs WHERE execution = ?1)";
    let connection = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(connection.execute(damage, [&sleeps]).unwrap(), 1);
    drop(connection);
    check(&home, &sleeps, &waits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_document_harms_nobody_else() {
    let url = Mongod::shared().await.fresh_url();
    let home = Home::new(url.clone());
    let (sleeps, waits) = leave(&home).await;
    let client = Client::with_uri_str(&url).await.unwrap();
    let events = client.default_database().unwrap().collection::<Document>("events");
    let first = doc! { "_id.x": &sleeps, "_id.s": 1 };
    let damage = doc! { "$set": { "events": "[{\"at\":1" } };
    assert_eq!(events.update_one(first, damage).await.unwrap().matched_count, 1);
    check(&home, &sleeps, &waits).await;
}

/// Leaves behind one execution that a killed worker had, and one that waits for a signal.
async fn leave(home: &Home) -> (String, String) {
    let mut node = Node::start(home, Role::Serve).await.unwrap();
    let scene = Scene::new();
    scene.moved(0, node.address.clone());
    // Nobody puts it aside while a tool runs.
    let parameters = json!({ "n": 1, "seconds": 30, "fate": "ok", "until": 0 });
    let sleeps = begin(&scene, json!({ "name": "ledger.idempotent", "parameters": parameters }));
    let sleeps = sleeps.await;
    let waits = begin(&scene, json!({ "name": "flow.wait", "parameters": { "name": "go" } })).await;
    tests::toolset::until("it is called", || !home.ledger().is_empty()).await;
    node.process.kill().await;
    (sleeps, waits)
}

async fn begin(scene: &Scene, step: Value) -> String {
    let plan = "mutation ($input: PlanInput!) { createPlan(input: $input) { plan { planId } } }";
    let made = scene.insist(plan, &json!({ "input": { "tools": [step] } })).await.unwrap();
    let begun = scene.insist(EXECUTE, &json!({ "id": made["plan"]["planId"] })).await.unwrap();
    begun["executionId"].as_str().unwrap().to_owned()
}

/// Asks until there is an answer; on a machine that does other things it may be late.
async fn answered(address: &str, query: &str, variables: &Value) -> Result<Value, Trouble> {
    let asking = async {
        loop {
            match ask(address, query, variables).await {
                Err(Trouble::Gone) => (),
                answer => return answer,
            }
        }
    };
    timeout(PATIENCE, asking).await.expect("it is answered")
}

async fn check(home: &Home, damaged: &str, waits: &str) {
    let node = Node::start(home, Role::Serve).await.unwrap();
    let address = node.address.clone().unwrap();
    let scene = Scene::new();
    scene.moved(0, node.address.clone());

    let answer = answered(&address, STATE, &json!({ "id": damaged })).await;
    let refusal = answer.expect_err("what is damaged cannot be shown");
    assert_eq!(refusal.code(), "INTERNAL", "{refusal:?}");
    let list = "{ executions { nodes { executionId } } }";
    let listed = answered(&address, list, &Value::Null).await.unwrap().to_string();
    assert!(listed.contains(waits), "{listed}");

    let signal =
        "mutation ($id: ID!) { signalExecution(executionId: $id, name: \"go\") { state } }";
    scene.insist(signal, &json!({ "id": waits })).await.unwrap();
    // Dozens of looks for work later.
    let long = begin(&scene, json!({ "name": "flow.sleep", "parameters": { "ms": 3_000 } })).await;
    for id in [waits, &long] {
        let id = json!({ "id": id });
        let over = async {
            while scene.insist(STATE, &id).await.unwrap()["state"] != "COMPLETED" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(PATIENCE, over).await.expect("the others go on");
    }
    let said = node.process.said();
    let complaints = said.lines().filter(|line| line.contains(damaged)).count();
    assert!(complaints > 0, "nobody says what is damaged: {said}");
    assert!(complaints <= COMPLAINTS, "{complaints} times: {said}");
}
