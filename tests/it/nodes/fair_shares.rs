//! Executions that become due are shared by all nodes, including a node that has just started.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::TimeDelta;
use serde_json::{Map, Value, json};
use shared::{
    clock::{Clock, WallClock},
    id::{ExecutionId, WorkerId},
};
use tokio::{task::JoinSet, time::timeout};

use super::{
    cluster::{Cluster, list_claimers},
    node::{MAX_WAIT, Node, ask_until_answered, new_key},
    workspace::LONG_LEASE_MS,
};

/// Number of executions that become due at the same time.
const DUE_EXECUTION_COUNT: usize = 200;
/// Number of executions that one request starts.
const EXECUTIONS_PER_REQUEST: usize = 25;
/// Time to send all requests before the executions become due.
const START_DELAY: Duration = Duration::from_secs(18);
/// Poll interval of the nodes in milliseconds. An execution that its preferred node does not claim
/// within two polls can go to another node.
const POLL_MS: u64 = 2_000;

/// Returns a plan of steps that take no time, so that only the nodes decide how fast it runs.
fn noop_chain() -> Value {
    json!([
        { "name": "flow.noop", "id": "a" },
        { "name": "flow.noop", "id": "b", "dependsOn": "a" },
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_that_become_due_are_shared_with_a_node_that_has_just_started() {
    let cluster = Cluster::new(&json!({ "lease_ms": LONG_LEASE_MS, "poll_ms": POLL_MS })).await;
    let first = cluster.workspace.start_server().await;
    let _second = cluster.workspace.start_worker().await;
    let plan = first.create_plan(&noop_chain()).await;
    schedule_executions(&first, &plan).await;
    cluster.wait_for_all_completed(DUE_EXECUTION_COUNT).await;
    let before = count_claims(&cluster, &BTreeSet::new()).await;
    assert_fair(&before, 2);

    let old: BTreeSet<_> = cluster.read_heads().await.iter().map(|head| head.execution).collect();
    let _third = cluster.workspace.start_worker().await;
    schedule_executions(&first, &plan).await;
    cluster.wait_for_all_completed(2 * DUE_EXECUTION_COUNT).await;
    let after = count_claims(&cluster, &old).await;
    assert_fair(&after, 3);
    assert!(before.keys().all(|execution| after.contains_key(execution)), "{before:?} {after:?}");
}

async fn schedule_executions(node: &Node, plan: &str) {
    let at = WallClock.now() + TimeDelta::from_std(START_DELAY).unwrap();
    let each =
        |text: fn(usize) -> String| (0..EXECUTIONS_PER_REQUEST).map(text).collect::<String>();
    let declarations = each(|number| format!(", $o{number}: ExecutionOptions"));
    let begin = each(|number| {
        format!("e{number}: executePlan(planId: $id, options: $o{number}) {{ executionId }}\n")
    });
    let query = format!("mutation ($id: ID!{declarations}) {{ {begin} }}");
    let requests: JoinSet<()> = (0..DUE_EXECUTION_COUNT / EXECUTIONS_PER_REQUEST)
        .map(|_| {
            let (address, query) = (node.address.clone(), query.clone());
            let options = || json!({ "startAt": at.to_rfc3339(), "idempotencyKey": new_key() });
            let mut variables: Map<String, Value> = (0..EXECUTIONS_PER_REQUEST)
                .map(|number| (format!("o{number}"), options()))
                .collect();
            variables.insert("id".to_owned(), json!(plan));
            async move {
                drop(ask_until_answered(&address, &query, &Value::Object(variables)).await);
            }
        })
        .collect();
    timeout(MAX_WAIT, requests.join_all()).await.expect("all executions start");
}

async fn count_claims(
    cluster: &Cluster,
    excluded: &BTreeSet<ExecutionId>,
) -> BTreeMap<WorkerId, usize> {
    let mut claims = BTreeMap::new();
    for head in cluster.read_heads().await.iter().filter(|head| !excluded.contains(&head.execution))
    {
        let log = cluster.read_log(head.execution).await;
        *claims.entry(list_claimers(&log)[0]).or_default() += 1;
    }
    claims
}

/// Checks that every worker claimed at least 8 percent of the executions. This is less than an
/// equal share, because on a busy machine a request can arrive after its execution is due. Such an
/// execution runs on the node that received the request.
fn assert_fair(claims: &BTreeMap<WorkerId, usize>, workers: usize) {
    assert_eq!(claims.len(), workers, "{claims:?}");
    assert!(claims.values().all(|count| count * 100 >= 8 * DUE_EXECUTION_COUNT), "{claims:?}");
}
