//! Sub-plans across nodes: a parent and its child run on different nodes, and each of these nodes
//! can be lost.

use std::{collections::BTreeSet, time::Duration};

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    execution::ExecutionState,
    id::{ExecutionId, WorkerId},
    store::ExecutionHead,
};
use tests::faulty::Dice;
use tokio::time::{Instant, sleep};

use super::{
    cluster::{Cluster, execution_id, list_claimers},
    node::Node,
    workspace::DEFAULT_MARGIN,
};
use crate::harness::number_from_env;

/// Number of nodes that are killed while sub-plans run.
const KILL_COUNT: u64 = 8;
/// Number of parents that start before each kill. A parent and the executions below it are seven
/// executions.
const PARENTS_PER_KILL: u64 = 4;

fn plan_with_child(tool: &str, seconds: f64) -> Value {
    let call = json!({ "id": "call", "name": tool, "parameters": { "n": 5, "seconds": seconds,
        "from": "{{input.from}}" } });
    json!([
        { "id": "a", "name": "flow.echo", "parameters": { "x": 1 } },
        { "id": "sub", "inlinePlan": { "tools": [call] }, "parameters": { "from": "{{a.x}}" } },
        { "id": "z", "name": "flow.echo", "parameters": { "got": "{{sub.call.n}}" } },
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn sub_plans_complete_when_the_node_of_parent_or_child_is_lost() {
    let cluster = Cluster::new(&json!({})).await;
    let (parent_node, child_node) =
        (cluster.workspace.start_server().await, cluster.workspace.start_far_server().await);
    let plan = child_node.create_plan(&plan_with_child("far.read", 3.0)).await;

    // The child's node is lost. The parent's node lacks the tool, so the child must wait for
    // another node.
    let (parent, child) = start_parent(&cluster, &parent_node, &plan).await;
    child_node.kill().await;
    let child_node = cluster.workspace.start_far_server().await;
    assert_completed(&cluster, 2).await;
    let (parent_workers, child_workers) =
        (list_workers(&cluster, parent).await, list_workers(&cluster, child).await);
    // On a busy machine a worker can lose its lease, so perhaps more than two workers have claimed
    // the child.
    assert!(
        child_workers.len() >= 2,
        "two nodes claimed the child: {parent_workers:?} {child_workers:?}"
    );

    // Now the node of the parent is lost while the child runs.
    let (_, child) = start_parent(&cluster, &parent_node, &plan).await;
    parent_node.kill().await;
    assert_completed(&cluster, 4).await;
    assert!(!list_workers(&cluster, child).await.is_empty());

    // Now the nodes of the parent and of the child are lost together.
    let parent_node = cluster.workspace.start_server().await;
    start_parent(&cluster, &parent_node, &plan).await;
    tokio::join!(parent_node.kill(), child_node.kill());
    let child_node = cluster.workspace.start_far_server().await;
    assert_completed(&cluster, 6).await;

    assert_cancelled_parent_cancels_child(&cluster, &child_node).await;
}

async fn assert_cancelled_parent_cancels_child(cluster: &Cluster, child_node: &Node) {
    let parent_node = cluster.workspace.start_server().await;
    let plan = child_node.create_plan(&plan_with_child("far.once", 40.0)).await;
    let (parent, child) = start_parent(cluster, &parent_node, &plan).await;
    let started_at = Instant::now();
    parent_node.run_mutation("cancelExecution", &parent.to_string(), "").await;
    cluster.wait_for_all_finished(8).await;
    // The call itself takes longer, so its cancellation was fast.
    assert!(
        started_at.elapsed() < DEFAULT_MARGIN + DEFAULT_MARGIN / 2,
        "{:?}",
        started_at.elapsed()
    );
    for id in [parent, child] {
        let head = cluster.store.head(id).await.unwrap().unwrap();
        // On a busy machine a worker can lose its lease during the call. The outcome of the call is
        // then unknown, and the execution fails.
        let is_stopped = matches!(head.state, ExecutionState::Cancelled | ExecutionState::Failed);
        assert!(is_stopped, "{:#?}", cluster.read_log(id).await);
    }
    cluster.assert_once_tools_called_once();
}

/// Starts a parent and waits until the child calls its tool. Returns parent and child.
async fn start_parent(cluster: &Cluster, node: &Node, plan: &str) -> (ExecutionId, ExecutionId) {
    let parent = execution_id(&node.execute(plan, &json!({})).await);
    let is_child = |head: &ExecutionHead| head.parent == Some(parent);
    cluster.wait_for_heads("the parent has a child", |heads| heads.iter().any(is_child)).await;
    let child = cluster.read_heads().await.into_iter().find(is_child).unwrap().execution;
    let name = child.to_string();
    cluster
        .wait_for_ledger("the child calls", |entries| {
            entries.iter().any(|entry| entry.execution == name)
        })
        .await;
    (parent, child)
}

async fn assert_completed(cluster: &Cluster, count: usize) {
    cluster.wait_for_all_completed(count).await;
    for head in cluster.read_heads().await.iter().filter(|head| head.parent.is_none()) {
        assert_eq!(read_outputs(cluster, head).await["z"], json!({ "got": 5 }));
    }
}

async fn list_workers(cluster: &Cluster, id: ExecutionId) -> BTreeSet<WorkerId> {
    list_claimers(&cluster.read_log(id).await).into_iter().collect()
}

async fn read_outputs(cluster: &Cluster, head: &ExecutionHead) -> Value {
    cluster.replay(head).await.outputs()
}

/// All steps are short, so a kill can happen between any two actions, such as the end of a child
/// and the message to its parent. `FABER_NODES_SEED=7` chooses other moments,
/// `FABER_NODES_KILLS=200` kills more nodes.
#[tokio::test(flavor = "multi_thread")]
async fn parents_of_sub_plans_complete_when_nodes_are_killed_at_any_moment() {
    let cluster = Cluster::new(&json!({})).await;
    let dice = Dice::new(number_from_env("FABER_NODES_SEED").unwrap_or(1));
    let kills = number_from_env("FABER_NODES_KILLS").unwrap_or(KILL_COUNT);
    let mut nodes =
        vec![cluster.workspace.start_server().await, cluster.workspace.start_worker().await];
    let plan = nodes[0].create_plan(&plan_with_grandchildren()).await;
    let mut start_count = 0;
    for _ in 0..kills {
        let server = nodes.iter().find(|node| node.is_serving()).unwrap();
        for _ in 0..PARENTS_PER_KILL {
            // With a delayed start, any node can claim the execution, and not only the node that
            // got the request.
            let ms = i64::try_from(200 + dice.draw_below(500)).unwrap();
            let at = WallClock.now() + TimeDelta::milliseconds(ms);
            server.execute(&plan, &json!({ "startAt": at.to_rfc3339() })).await;
            start_count += 1;
        }
        sleep(Duration::from_millis(200 + dice.draw_below(700))).await;
        let one = usize::try_from(dice.draw_below(2)).unwrap();
        let lost = nodes.remove(one);
        lost.kill().await;
        // One node must always serve requests.
        let other = if nodes[0].is_serving() {
            cluster.workspace.start_worker().await
        } else {
            cluster.workspace.start_server().await
        };
        nodes.push(other);
    }
    cluster.wait_for_all_completed(start_count * 7).await;
    for head in cluster.read_heads().await.iter().filter(|head| head.parent.is_none()) {
        let expected =
            json!([1, 2, 3].map(|n| json!({ "own": { "n": n }, "sub": { "x": { "n": n } } })));
        assert_eq!(read_outputs(&cluster, head).await["each"], expected);
    }
}

/// Returns a plan that runs a sub-plan three times. The sub-plan runs another sub-plan.
fn plan_with_grandchildren() -> Value {
    let echo =
        |id: &str| json!({ "id": id, "name": "flow.echo", "parameters": { "n": "{{input.n}}" } });
    let youngest = json!({ "tools": [echo("x")] });
    let middle = json!({ "tools": [
        echo("own"),
        { "id": "sub", "inlinePlan": youngest, "parameters": { "n": "{{own.n}}" } },
    ] });
    json!([
        { "id": "list", "name": "flow.echo", "parameters": { "all": [1, 2, 3] } },
        { "id": "each", "forEach": "{{list.all}}", "inlinePlan": middle,
          "parameters": { "n": "{{item}}" } },
    ])
}
