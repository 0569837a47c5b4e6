//! The output cache is shared by nodes and expires.

use std::time::Duration;

use serde_json::json;
use shared::event::Event;
use tokio::time::{interval, timeout};

use super::{
    cluster::{Cluster, execution_id},
    node::{MAX_WAIT, Node, POLL_INTERVAL},
};

/// Lifetime of a cached output.
const TTL_MS: u64 = 12_000;
/// Interval between two executions that test whether the output has expired.
const EXECUTION_INTERVAL: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_one_node_cached_serves_other_nodes_until_it_expires() {
    let cluster = Cluster::new(&json!({})).await;
    let (one, other) =
        (cluster.workspace.start_server().await, cluster.workspace.start_server().await);
    let read = |n: u64| {
        json!([{ "name": "ledger.read", "cacheTtlMs": TTL_MS,
            "parameters": { "n": n, "seconds": 0.0 } }])
    };
    let (plan, different) = (one.create_plan(&read(7)).await, one.create_plan(&read(8)).await);
    assert!(!is_cached(&cluster, &one, &plan).await, "no node has called the tool");
    assert!(is_cached(&cluster, &other, &plan).await, "the other node has called the tool");
    assert!(!is_cached(&cluster, &other, &different).await, "no node used these parameters");
    assert_eq!(count_calls(&cluster), 2);
    let mut look = interval(EXECUTION_INTERVAL);
    let expires = async {
        while is_cached(&cluster, &other, &plan).await {
            look.tick().await;
        }
    };
    timeout(MAX_WAIT, expires).await.expect("the output expires");
    assert_eq!(count_calls(&cluster), 3, "the output expired once");
}

/// Executes a plan on a node. Returns whether the step used the cached output.
async fn is_cached(cluster: &Cluster, node: &Node, plan: &str) -> bool {
    let execution = node.execute(plan, &json!({})).await;
    let query = "query ($id: ID!) { execution(executionId: $id) { state outputs } }";
    let mut look = interval(POLL_INTERVAL);
    let ends = async {
        loop {
            let found = node.ask(query, &json!({ "id": execution })).await;
            if found["state"] == "COMPLETED" {
                return found;
            }
            look.tick().await;
        }
    };
    let found = timeout(MAX_WAIT, ends).await.expect("the execution ends");
    let n = found["outputs"]["ledger.read"]["n"].as_u64();
    assert!(n.is_some_and(|n| n == 7 || n == 8), "{found}");
    let log = cluster.read_log(execution_id(&execution)).await;
    let cached = log.iter().find_map(|recorded| match &recorded.event {
        Event::StepSucceeded { cached, .. } => Some(*cached),
        _ => None,
    });
    cached.expect("the step has succeeded")
}

fn count_calls(cluster: &Cluster) -> usize {
    cluster.workspace.complete_ledger_lines().iter().filter(|entry| entry.is_start).count()
}
