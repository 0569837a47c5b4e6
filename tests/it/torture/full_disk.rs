//! A full disk: clients get an error, nothing is lost, and work continues once there is room.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    disk::Disk,
    node::{Node, Role},
    shared_run::SharedRun,
    workspace::Workspace,
};
use crate::harness::api_client::{RequestFailure, ask};

const MAX_WAIT: Duration = Duration::from_mins(3);
/// Size of the disk. A nearly empty store fits.
const DISK_BYTES: u64 = 48 << 20;

const PLAN_MUTATION: &str =
    "mutation ($input: PlanInput!) { createPlan(input: $input) { plan { planId } } }";
const EXECUTE_MUTATION: &str = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
const STATE_QUERY: &str = "query ($id: ID!) { execution(executionId: $id) { state } }";

#[tokio::test(flavor = "multi_thread")]
async fn requests_on_a_full_disk_are_refused_until_there_is_room() {
    let Some(disk) = Disk::mount(DISK_BYTES) else { return };
    let workspace = Workspace::new(format!("sqlite:{}", disk.path().join("faber.db").display()));
    let mut node = Node::start(&workspace, Role::Serve).await.unwrap();
    let address = node.address.clone().unwrap();
    let run = SharedRun::new();
    run.set_address(0, Some(address.clone()));
    let steps = json!({ "input": { "tools": [
        { "id": "before", "name": "flow.sleep", "parameters": { "ms": 100 } },
        { "id": "after", "name": "flow.effect", "dependsOn": "before" },
    ] } });
    let plan =
        run.ask_until_answered(PLAN_MUTATION, &steps).await.unwrap()["plan"]["planId"].clone();

    disk.fill();
    // The WAL has free space on the full disk, so the store still accepts some writes.
    let refusal = timeout(MAX_WAIT, fill_store(&address)).await.expect("the disk becomes full");
    let RequestFailure::Refused { code, message } = &refusal else { panic!("{refusal:?}") };
    assert_eq!(code, "STORE_UNAVAILABLE", "{message}");
    assert!(message.contains("the disk is full") && message.contains("make room"), "{message}");
    // A smaller write can still fit, so the test repeats it until the store refuses it.
    let id = json!({ "id": plan });
    let refused = repeat_until_refused(&address, EXECUTE_MUTATION, &id);
    let refusal = timeout(MAX_WAIT, refused).await.expect("the disk becomes full for every write");
    assert_eq!(refusal.code(), "STORE_UNAVAILABLE");
    let list = "{ executions { nodes { executionId } } }";
    assert!(ask(&address, list, &Value::Null).await.is_ok(), "a full store can be read");
    wait_for_ready_status(&address, "503").await;
    assert_eq!(node.process.exit_status(), None);

    disk.free();
    wait_for_ready_status(&address, "200").await;
    let started = run.ask_until_answered(EXECUTE_MUTATION, &json!({ "id": plan })).await.unwrap();
    wait_until_completed(&run, &started).await;
}

/// The server must report a full disk even if only the server itself writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_full_disk_is_not_ready_until_there_is_room() {
    let Some(disk) = Disk::mount(DISK_BYTES) else { return };
    let workspace = Workspace::new(format!("sqlite:{}", disk.path().join("faber.db").display()));
    let node = Node::start(&workspace, Role::Serve).await.unwrap();
    let address = node.address.clone().unwrap();
    wait_for_ready_status(&address, "200").await;
    disk.fill();
    // No client writes, so only the writes of the server itself can find the full disk.
    wait_for_ready_status(&address, "503").await;
    disk.free();
    wait_for_ready_status(&address, "200").await;
}

async fn wait_for_ready_status(address: &str, status: &str) {
    let asking = async {
        while !readiness_status(address).await.is_ok_and(|answer| answer.contains(status)) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(MAX_WAIT, asking).await.unwrap_or_else(|_| panic!("readiness never becomes {status}"));
}

async fn readiness_status(address: &str) -> std::io::Result<String> {
    let mut connection = BufReader::new(TcpStream::connect(address).await?);
    let ask = format!("GET /health/ready HTTP/1.0\r\nHost: {address}\r\n\r\n");
    connection.get_mut().write_all(ask.as_bytes()).await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    Ok(line)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_runs_while_the_disk_is_full_is_recorded_later() {
    let Some(disk) = Disk::mount(DISK_BYTES) else { return };
    let workspace = Workspace::new(format!("sqlite:{}", disk.path().join("faber.db").display()));
    let node = Node::start(&workspace, Role::Serve).await.unwrap();
    let address = node.address.clone().unwrap();
    let run = SharedRun::new();
    run.set_address(0, Some(address.clone()));
    let tool = json!({ "id": "long", "name": "ledger.idempotent",
        "parameters": { "n": 1, "seconds": 1, "fate": "ok", "until": 0 } });
    let plan = run
        .ask_until_answered(PLAN_MUTATION, &json!({ "input": { "tools": [tool] } }))
        .await
        .unwrap();
    let started = run
        .ask_until_answered(EXECUTE_MUTATION, &json!({ "id": plan["plan"]["planId"] }))
        .await
        .unwrap();
    tests::toolset::wait_until("the tool is called", || !workspace.ledger().is_empty()).await;
    disk.fill();
    timeout(MAX_WAIT, fill_store(&address)).await.expect("the disk becomes full");
    disk.free();
    wait_until_completed(&run, &started).await;
    drop(node);
}

/// Waits until an execution completed. Fails with its log at the limit.
async fn wait_until_completed(run: &SharedRun, started: &Value) {
    let id = json!({ "id": started["executionId"] });
    let over = async {
        while run.ask_until_answered(STATE_QUERY, &id).await.unwrap()["state"] != "COMPLETED" {
            sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(MAX_WAIT, over).await.is_err() {
        let log = "query ($id: ID!) { execution(executionId: $id) { state
            events { seq at type stepId data } } }";
        panic!(
            "the execution does not complete: {:#}",
            run.ask_until_answered(log, &id).await.unwrap()
        );
    }
}

async fn fill_store(address: &str) -> RequestFailure {
    let text = "x".repeat(400_000);
    let step = json!({ "name": "flow.echo", "parameters": { "text": text } });
    let input = json!({ "input": { "tools": [step] } });
    repeat_until_refused(address, PLAN_MUTATION, &input).await
}

async fn repeat_until_refused(address: &str, query: &str, variables: &Value) -> RequestFailure {
    loop {
        match ask(address, query, variables).await {
            Err(refusal @ RequestFailure::Refused { .. }) => return refusal,
            Ok(_) | Err(RequestFailure::ServerGone) => (),
        }
    }
}
