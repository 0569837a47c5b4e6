//! A single process without a server runs a plan with sub-plans, and resumes after another process
//! was killed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shared::store::ExecutionHead;
use tempfile::TempDir;

use super::{cluster::Cluster, node::MAX_WAIT};
use crate::mongod::Mongod;

fn nested_plan(seconds: f64) -> Value {
    let youngest = json!({ "tools": [
        { "id": "x", "name": "flow.echo", "parameters": { "n": "{{input.n}}" } },
    ] });
    let middle = json!({ "tools": [
        { "id": "own", "name": "ledger.read",
          "parameters": { "n": "{{input.n}}", "seconds": seconds } },
        { "id": "sub", "plan": youngest, "parameters": { "n": "{{own.n}}" } },
    ] });
    json!({ "tools": [
        { "id": "list", "name": "flow.echo", "parameters": { "all": [1, 2] } },
        { "id": "each", "forEach": "{{list.all}}", "plan": middle,
          "parameters": { "n": "{{item}}" } },
        { "id": "last", "name": "flow.echo", "parameters": { "all": "{{each}}" } },
    ] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_process_runs_a_plan_with_sub_plans_to_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (file, set) = (open_sqlite_cluster(&folder).await, Cluster::new(&json!({})).await);
    tokio::join!(assert_runs_to_the_end(&file), assert_runs_to_the_end(&set));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_resumes_a_plan_with_sub_plans_after_another_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let url = Mongod::shared().await.new_database_url();
    let (file, set) = (open_sqlite_cluster(&folder).await, Cluster::open(url, &json!({})).await);
    tokio::join!(assert_resumes_after_kill(&file), assert_resumes_after_kill(&set));
}

async fn open_sqlite_cluster(folder: &TempDir) -> Cluster {
    let url = format!("sqlite:{}", folder.path().join("faber.db").display());
    Cluster::open(url, &json!({})).await
}

async fn assert_runs_to_the_end(cluster: &Cluster) {
    write_plan(cluster, 0.0);
    let mut run = cluster.workspace.spawn(&["run", "--plan", "plan.json"]);
    let status = run.wait_for_exit(MAX_WAIT).await.expect("the process ends");
    assert!(status.success(), "{status}");
    assert_outputs(cluster).await;
}

async fn assert_resumes_after_kill(cluster: &Cluster) {
    write_plan(cluster, 3.0);
    let mut first = cluster.workspace.spawn(&["run", "--plan", "plan.json"]);
    cluster
        .wait_for_ledger("a child runs", |entries| entries.iter().any(|entry| entry.is_start))
        .await;
    first.kill().await;
    let parent = root_head(cluster).await.execution.to_string();
    let mut second = cluster.workspace.spawn(&["execute", &parent]);
    let status = second.wait_for_exit(MAX_WAIT).await.expect("the process ends");
    assert!(status.success(), "{status}");
    assert_outputs(cluster).await;
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for entry in
        cluster.workspace.complete_ledger_lines().into_iter().filter(|entry| entry.is_start)
    {
        *calls.entry(entry.key).or_default() += 1;
    }
    assert!(calls.values().any(|count| *count > 1), "the process was killed too late: {calls:?}");
}

fn write_plan(cluster: &Cluster, seconds: f64) {
    std::fs::write(cluster.workspace.path("plan.json"), nested_plan(seconds).to_string()).unwrap();
}

async fn root_head(cluster: &Cluster) -> ExecutionHead {
    let heads = cluster.read_heads().await;
    heads.into_iter().find(|head| head.parent.is_none()).expect("the store has a parent")
}

/// No other process exists, so all executions must be finished when this process has ended.
async fn assert_outputs(cluster: &Cluster) {
    cluster.wait_for_all_completed(5).await;
    let all = json!([1, 2].map(|n| json!({ "own": { "n": n }, "sub": { "x": { "n": n } } })));
    let outputs = cluster.replay(&root_head(cluster).await).await.outputs();
    assert_eq!(outputs["last"], json!({ "all": all }));
}
