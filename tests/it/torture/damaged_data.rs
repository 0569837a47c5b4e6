//! Damaged data: a query of the damaged execution returns a clear error, all other executions
//! continue, and workers log only a few errors.

use std::time::Duration;

use mongodb::{
    Client,
    bson::{Document, doc},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    node::{Node, Role},
    shared_run::SharedRun,
    workspace::Workspace,
};
use crate::harness::api_client::{RequestFailure, ask};
use crate::mongod::Mongod;

const MAX_WAIT: Duration = Duration::from_mins(3);
/// Maximum number of errors that a worker may log about one execution during dozens of polls.
const MAX_COMPLAINTS: usize = 6;

const EXECUTE_MUTATION: &str = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
const STATE_QUERY: &str = "query ($id: ID!) { execution(executionId: $id) { state } }";

#[tokio::test(flavor = "multi_thread")]
async fn executions_beside_a_damaged_sqlite_row_complete() {
    for text in ["garbage", r#"[{"at":1,"type":"claimed"}]"#] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faber.db");
        let workspace = Workspace::new(format!("sqlite:{}", path.display()));
        let (sleeps, waiting_execution) = leave_two_executions(&workspace).await;
        let damage = "UPDATE events SET json = ?2 WHERE first = 1
            AND log = (SELECT number FROM logs WHERE executionId = ?1)";
        let connection = rusqlite::Connection::open(&path).unwrap();
        assert_eq!(connection.execute(damage, [&sleeps, text]).unwrap(), 1);
        drop(connection);
        check_others_complete(&workspace, &sleeps, &waiting_execution).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_beside_a_truncated_log_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("faber.db");
    let workspace = Workspace::new(format!("sqlite:{}", path.display()));
    let (sleeps, waiting_execution) = leave_two_executions(&workspace).await;
    let damage = "DELETE FROM events WHERE first = 1
        AND log = (SELECT number FROM logs WHERE executionId = ?1)";
    let connection = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(connection.execute(damage, [&sleeps]).unwrap(), 1);
    drop(connection);
    check_others_complete(&workspace, &sleeps, &waiting_execution).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_beside_a_damaged_mongodb_document_complete() {
    let url = Mongod::shared().await.new_database_url();
    let workspace = Workspace::new(url.clone());
    let (sleeps, waiting_execution) = leave_two_executions(&workspace).await;
    let client = Client::with_uri_str(&url).await.unwrap();
    let events = client.default_database().unwrap().collection::<Document>("events");
    let first = doc! { "_id.x": &sleeps, "_id.s": 1 };
    let damage = doc! { "$set": { "events": "[{\"at\":1" } };
    assert_eq!(events.update_one(first, damage).await.unwrap().matched_count, 1);
    check_others_complete(&workspace, &sleeps, &waiting_execution).await;
}

/// Leaves one running execution of a killed worker, and one that waits for a signal.
async fn leave_two_executions(workspace: &Workspace) -> (String, String) {
    let mut node = Node::start(workspace, Role::Serve).await.unwrap();
    let run = SharedRun::new();
    run.set_address(0, node.address.clone());
    // The call runs long, because a worker does not park an execution while a tool runs.
    let parameters = json!({ "n": 1, "seconds": 30, "fate": "ok", "until": 0 });
    let sleeps =
        start_plan_with(&run, json!({ "name": "ledger.idempotent", "parameters": parameters }));
    let sleeps = sleeps.await;
    let waiting_execution =
        start_plan_with(&run, json!({ "name": "flow.wait", "parameters": { "name": "go" } })).await;
    tests::toolset::wait_until("the tool is called", || !workspace.ledger().is_empty()).await;
    node.process.kill().await;
    (sleeps, waiting_execution)
}

async fn start_plan_with(run: &SharedRun, step: Value) -> String {
    let plan = "mutation ($input: PlanInput!) { createPlan(input: $input) { plan { planId } } }";
    let made =
        run.ask_until_answered(plan, &json!({ "input": { "tools": [step] } })).await.unwrap();
    let started = run
        .ask_until_answered(EXECUTE_MUTATION, &json!({ "id": made["plan"]["planId"] }))
        .await
        .unwrap();
    started["executionId"].as_str().unwrap().to_owned()
}

/// Asks until the server answers, because on a busy machine an answer can come too late.
async fn ask_until_answered(
    address: &str,
    query: &str,
    variables: &Value,
) -> Result<Value, RequestFailure> {
    let asking = async {
        loop {
            match ask(address, query, variables).await {
                Err(RequestFailure::ServerGone) => (),
                answer => return answer,
            }
        }
    };
    timeout(MAX_WAIT, asking).await.expect("the server answers")
}

async fn check_others_complete(
    workspace: &Workspace,
    damaged_execution: &str,
    waiting_execution: &str,
) {
    let node = Node::start(workspace, Role::Serve).await.unwrap();
    let address = node.address.clone().unwrap();
    let run = SharedRun::new();
    run.set_address(0, node.address.clone());

    let answer =
        ask_until_answered(&address, STATE_QUERY, &json!({ "id": damaged_execution })).await;
    let refusal = answer.expect_err("a damaged execution is an error");
    assert_eq!(refusal.code(), "INTERNAL", "{refusal:?}");
    let list = "{ executions { nodes { executionId } } }";
    let listed = ask_until_answered(&address, list, &Value::Null).await.unwrap().to_string();
    assert!(listed.contains(waiting_execution), "{listed}");

    let signal =
        "mutation ($id: ID!) { signalExecution(executionId: $id, name: \"go\") { state } }";
    run.ask_until_answered(signal, &json!({ "id": waiting_execution })).await.unwrap();
    // While this step sleeps, the worker polls dozens of times.
    let long =
        start_plan_with(&run, json!({ "name": "flow.sleep", "parameters": { "ms": 3_000 } })).await;
    for id in [waiting_execution, &long] {
        let id = json!({ "id": id });
        let over = async {
            while run.ask_until_answered(STATE_QUERY, &id).await.unwrap()["state"] != "COMPLETED" {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(MAX_WAIT, over).await.expect("the others complete");
    }
    let output = node.process.output();
    let complaints = output.lines().filter(|line| line.contains(damaged_execution)).count();
    assert!(complaints > 0, "no log line names the damaged execution: {output}");
    assert!(complaints <= MAX_COMPLAINTS, "{complaints} complaints: {output}");
}
