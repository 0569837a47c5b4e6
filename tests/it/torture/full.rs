//! A full disk: who asks is told so, nothing is lost, and work goes on once there is room.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    disk::Disk,
    home::Home,
    node::{Node, Role},
    scene::Scene,
    wire::{Trouble, ask},
};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_mins(3);
/// Room for a store with little in it.
const BYTES: u64 = 48 << 20;

const PLAN: &str =
    "mutation ($input: PlanInput!) { createPlan(input: $input) { plan { planId } } }";
const EXECUTE: &str = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
const STATE: &str = "query ($id: ID!) { execution(executionId: $id) { state } }";

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_and_work_goes_on_once_there_is_room() {
    let Some(disk) = Disk::small(BYTES) else { return };
    let home = Home::new(format!("sqlite:{}", disk.path().join("faber.db").display()));
    let mut node = Node::start(&home, Role::Serve).await.unwrap();
    let address = node.address.clone().unwrap();
    let scene = Scene::new();
    scene.moved(0, Some(address.clone()));
    let steps = json!({ "input": { "tools": [
        { "id": "before", "name": "flow.sleep", "parameters": { "ms": 100 } },
        { "id": "after", "name": "flow.effect", "dependsOn": "before" },
    ] } });
    let plan = scene.insist(PLAN, &steps).await.unwrap()["plan"]["planId"].clone();

    disk.fill();
    // What the WAL has room for still fits.
    let refusal = timeout(PATIENCE, fill_up(&address)).await.expect("in the end it is full");
    let Trouble::Refused { code, message } = &refusal else { panic!("{refusal:?}") };
    assert_eq!(code, "STORE_UNAVAILABLE", "{message}");
    assert!(message.contains("the disk is full") && message.contains("make room"), "{message}");
    // What is smaller than that may still fit.
    let id = json!({ "id": plan });
    let refused = until_refused(&address, EXECUTE, &id);
    let refusal =
        timeout(PATIENCE, refused).await.expect("in the end it is full for whatever comes");
    assert_eq!(refusal.code(), "STORE_UNAVAILABLE");
    let list = "{ executions { nodes { executionId } } }";
    assert!(ask(&address, list, &Value::Null).await.is_ok(), "what is there can be read");
    until_readiness_is(&address, "503").await;
    assert_eq!(node.process.ended(), None);

    disk.free();
    until_readiness_is(&address, "200").await;
    let begun = scene.insist(EXECUTE, &json!({ "id": plan })).await.unwrap();
    await_completed(&scene, &begun).await;
}

/// A disk that can only be read is another reason for which nothing can be written.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_store_cannot_be_written_is_not_ready() {
    let Some(disk) = Disk::small(BYTES) else { return };
    let home = Home::new(format!("sqlite:{}", disk.path().join("faber.db").display()));
    let node = Node::start(&home, Role::Serve).await.unwrap();
    let address = node.address.clone().unwrap();
    until_readiness_is(&address, "200").await;
    disk.fill();
    // Nobody writes but the server itself.
    until_readiness_is(&address, "503").await;
    disk.free();
    until_readiness_is(&address, "200").await;
}

/// Asks whether a server is ready until it answers with a status.
async fn until_readiness_is(address: &str, status: &str) {
    let asking = async {
        while !readiness(address).await.is_ok_and(|answer| answer.contains(status)) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("it never answers {status}"));
}

/// Returns the first line of the answer to whether a server is ready.
async fn readiness(address: &str) -> std::io::Result<String> {
    let mut connection = BufReader::new(TcpStream::connect(address).await?);
    let ask = format!("GET /health/ready HTTP/1.0\r\nHost: {address}\r\n\r\n");
    connection.get_mut().write_all(ask.as_bytes()).await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    Ok(line)
}

/// What runs when the disk becomes full is recorded once there is room.
#[tokio::test(flavor = "multi_thread")]
async fn what_ran_when_the_disk_became_full_is_recorded_later() {
    let Some(disk) = Disk::small(BYTES) else { return };
    let home = Home::new(format!("sqlite:{}", disk.path().join("faber.db").display()));
    let node = Node::start(&home, Role::Serve).await.unwrap();
    let address = node.address.clone().unwrap();
    let scene = Scene::new();
    scene.moved(0, Some(address.clone()));
    let tool = json!({ "id": "long", "name": "ledger.idempotent",
        "parameters": { "n": 1, "seconds": 1, "fate": "ok", "until": 0 } });
    let plan = scene.insist(PLAN, &json!({ "input": { "tools": [tool] } })).await.unwrap();
    let begun = scene.insist(EXECUTE, &json!({ "id": plan["plan"]["planId"] })).await.unwrap();
    tests::toolset::until("it is called", || !home.ledger().is_empty()).await;
    disk.fill();
    timeout(PATIENCE, fill_up(&address)).await.expect("in the end it is full");
    disk.free();
    await_completed(&scene, &begun).await;
    drop(node);
}

/// Waits until an execution is completed, and shows what becomes of it otherwise.
async fn await_completed(scene: &Scene, begun: &Value) {
    let id = json!({ "id": begun["executionId"] });
    let over = async {
        while scene.insist(STATE, &id).await.unwrap()["state"] != "COMPLETED" {
            sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(PATIENCE, over).await.is_err() {
        let log = "query ($id: ID!) { execution(executionId: $id) { state
            events { seq at type stepId data } } }";
        panic!("it does not go on: {:#}", scene.insist(log, &id).await.unwrap());
    }
}

/// Keeps large plans until there is no room. Returns what whoever asked is told then.
async fn fill_up(address: &str) -> Trouble {
    let text = "x".repeat(400_000);
    let step = json!({ "name": "flow.echo", "parameters": { "text": text } });
    let input = json!({ "input": { "tools": [step] } });
    until_refused(address, PLAN, &input).await
}

/// Asks again and again until it is refused. Returns what whoever asked is told then.
async fn until_refused(address: &str, query: &str, variables: &Value) -> Trouble {
    loop {
        match ask(address, query, variables).await {
            Err(refusal @ Trouble::Refused { .. }) => return refusal,
            Ok(_) | Err(Trouble::Gone) => (),
        }
    }
}
