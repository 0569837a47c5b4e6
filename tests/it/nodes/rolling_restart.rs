//! A node that is drained finishes short steps, releases its executions to another node, and
//! removes itself from the store.

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp, WallClock},
    event::{Event, RecordedEvent},
    id::WorkerId,
};

use super::{
    cluster::{Cluster, execution_id, list_claimers},
    node::Node,
    workspace::{DEFAULT_MARGIN, LONG_LEASE_MS},
};

const EXECUTIONS_PER_PLAN: usize = 4;
/// Duration of long calls in seconds.
const LONG_SECONDS: f64 = 15.0;

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_hands_all_its_executions_to_its_successor() {
    let calls = json!([{ "tool": "ledger.single", "concurrency": 1 }]);
    let cluster = Cluster::new(&json!({ "calls": calls, "lease_ms": LONG_LEASE_MS })).await;
    let node = cluster.workspace.start_server().await;
    let mut plans = Vec::new();
    for tools in running_plans() {
        plans.push(node.create_plan(&tools).await);
    }
    let holder = hold_permit(&cluster, &node).await;
    for plan in plans.iter().flat_map(|plan_id| std::iter::repeat_n(plan_id, EXECUTIONS_PER_PLAN)) {
        node.execute(plan, &json!({})).await;
    }
    let has_begun = |tool: &str, cluster: &Cluster| {
        let entries = cluster.workspace.complete_ledger_lines();
        entries.iter().filter(|entry| entry.is_start && entry.tool == tool).count()
    };
    cluster
        .wait_for_ledger("everything runs", |_| {
            has_begun("ledger.read", &cluster) >= EXECUTIONS_PER_PLAN
                && has_begun("ledger.once", &cluster) >= 2 * EXECUTIONS_PER_PLAN
        })
        .await;
    // The successor starts only now, so that the first node owned all executions before the drain.
    let successor = cluster.workspace.start_worker().await;
    let told_at = WallClock.now();
    node.drain().await;
    let left_at = WallClock.now();
    // Each execution of the plan with a sub-plan has one child. The last execution holds the
    // permit.
    cluster
        .wait_for_all_completed(plans.len() * EXECUTIONS_PER_PLAN + EXECUTIONS_PER_PLAN + 1)
        .await;
    cluster.assert_once_tools_called_once();
    let drained_node = list_claimers(&cluster.read_log(execution_id(&holder)).await)[0];
    assert_handed_over(&cluster, drained_node, told_at, left_at).await;
    drop(successor);
}

/// Returns plans that run during the restart: short `once` steps, a long `read`, a sleep, a loop, a
/// sub-plan, and calls that wait for a permit. Most take longer than the successor needs to start.
fn running_plans() -> Vec<Value> {
    let call = |id: &str, tool: &str, seconds: f64| json!({ "id": id, "name": tool, "parameters": { "n": 1, "seconds": seconds } });
    let mut chain: Vec<Value> = Vec::new();
    for index in 0..30_usize {
        let mut step = call(&format!("c{index}"), "ledger.once", 0.25);
        step["dependsOn"] = json!(index.checked_sub(1).map(|before| format!("c{before}")));
        chain.push(step);
    }
    let list = json!([
        { "id": "list", "name": "flow.echo", "parameters": { "all": (0..20).collect::<Vec<_>>() } },
        { "id": "each", "name": "ledger.once", "forEach": "{{list.all}}", "maxParallel": 1,
          "parameters": { "n": "{{item}}", "seconds": 0.25 } },
    ]);
    let inner = json!({ "tools": [
        call("in", "ledger.once", 0.2),
        { "id": "rest", "name": "flow.sleep", "parameters": { "ms": 2_000 }, "dependsOn": "in" },
        { "id": "out", "name": "ledger.once", "parameters": { "n": 1, "seconds": 0.0 }, "dependsOn": "rest" },
    ] });
    vec![
        json!(chain),
        json!([call("long", "ledger.read", LONG_SECONDS)]),
        json!([{ "name": "flow.sleep", "parameters": { "ms": 5_000 } }]),
        list,
        json!([{ "id": "sub", "inlinePlan": inner }, { "name": "flow.noop", "dependsOn": "sub" }]),
        json!([call("waits", "ledger.single", 0.0)]),
    ]
}

/// Holds the only permit of a tool, so that other calls wait. Returns the id of the execution.
async fn hold_permit(cluster: &Cluster, node: &Node) -> String {
    let call =
        json!({ "name": "ledger.single", "parameters": { "n": 1, "seconds": LONG_SECONDS } });
    let id = node.start(&json!([call])).await;
    cluster
        .wait_for_ledger("the permit is held", |entries| {
            entries.iter().any(|entry| entry.execution == id)
        })
        .await;
    id
}

/// Checks that the other node continued the executions that the drained node released, that the
/// drained node claimed none of them again, and that no execution waited for a lease.
async fn assert_handed_over(
    cluster: &Cluster,
    drained_node: WorkerId,
    told_at: Timestamp,
    left_at: Timestamp,
) {
    let bound = TimeDelta::from_std(DEFAULT_MARGIN).unwrap();
    let mut handed_over = 0;
    for head in cluster.read_heads().await {
        let log = cluster.read_log(head.execution).await;
        let claims = list_claims(&log);
        // Ignores changes of the owner before the drain, because a busy worker can lose its lease.
        let is_handed_over = |pair: &[(WorkerId, Timestamp)]| {
            pair[0].0 == drained_node && pair[1].0 != drained_node && pair[1].1 > told_at
        };
        let Some(index) = claims.windows(2).position(is_handed_over) else { continue };
        handed_over += 1;
        let after = &claims[index + 1..];
        assert!(
            after.iter().all(|(worker, _)| *worker != drained_node),
            "the leaver claimed an execution again: {log:#?}"
        );
        let late = after[0].1 - left_at;
        assert!(late < bound, "{late} {log:#?}");
    }
    assert!(handed_over >= 3 * EXECUTIONS_PER_PLAN, "{handed_over} were handed over");
}

fn list_claims(log: &[RecordedEvent]) -> Vec<(WorkerId, Timestamp)> {
    let claims = log.iter().filter_map(|recorded| match &recorded.event {
        Event::Claimed(claimed) if !claimed.renewed => Some((claimed.worker, recorded.at)),
        _ => None,
    });
    claims.collect()
}
