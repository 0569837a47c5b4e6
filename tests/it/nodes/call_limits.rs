//! Limits on calls hold across nodes, and every waiting call gets its turn.

use serde_json::{Value, json};
use shared::{clock::Timestamp, event::Event};
use tokio::time::Instant;

use super::{
    cluster::Cluster,
    node::Node,
    workspace::{DEFAULT_MARGIN, LEASE, LONG_LEASE_MS, LedgerEntry},
};

/// Number of calls of the tool whose concurrency is limited to two.
const PAIRED_CALL_COUNT: usize = 40;
/// Number of calls of the tool with a limited rate.
const RATED_CALL_COUNT: usize = 60;
const CALLS_PER_SECOND: usize = 20;
/// Maximum number of seconds that a busy machine needs to record a permitted call.
const MAX_LATENESS_SECONDS: f64 = 1.0;

fn call_step(tool: &str, seconds: f64) -> Value {
    json!({ "name": tool, "parameters": { "n": 1, "seconds": seconds } })
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_together_keep_limits_on_concurrency_and_rate() {
    let calls = json!([
        { "tool": "ledger.pair", "concurrency": 2 },
        { "tool": "flow.noop", "rate": format!("{CALLS_PER_SECOND}/s") },
    ]);
    let cluster = Cluster::new(&json!({ "calls": calls, "lease_ms": LONG_LEASE_MS })).await;
    let nodes = [cluster.workspace.start_server().await, cluster.workspace.start_server().await];
    let paired = nodes[0]
        .create_plan(&json!([call_step("ledger.pair", 0.05), call_step("ledger.pair", 0.05)]))
        .await;
    let rated =
        nodes[0].create_plan(&json!([{ "name": "flow.noop" }, { "name": "flow.noop" }])).await;
    let started_at = Instant::now();
    for index in 0..RATED_CALL_COUNT / 2 {
        nodes[index % 2].execute(&rated, &json!({})).await;
        if index < PAIRED_CALL_COUNT / 2 {
            nodes[index % 2].execute(&paired, &json!({})).await;
        }
    }
    cluster.wait_for_all_completed(PAIRED_CALL_COUNT / 2 + RATED_CALL_COUNT / 2).await;
    let took = started_at.elapsed();

    let ledger = cluster.workspace.complete_ledger_lines();
    assert_eq!(ledger.iter().filter(|entry| entry.is_start).count(), PAIRED_CALL_COUNT);
    let maximum = max_simultaneous_calls(&ledger);
    assert_eq!(maximum, 2, "exactly as many as the limit allows: {ledger:#?}");

    let starts = start_times(&cluster, "flow.noop").await;
    assert!(starts.len() >= RATED_CALL_COUNT, "{starts:?}");
    // The limit allows one burst of `CALLS_PER_SECOND` calls without a delay. The other calls
    // follow at `CALLS_PER_SECOND` calls per second.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let minimum = (RATED_CALL_COUNT - CALLS_PER_SECOND) as f64 / CALLS_PER_SECOND as f64;
    assert!(took.as_secs_f64() >= minimum, "{took:?}");
    assert_rate(&starts);
}

fn max_simultaneous_calls(ledger: &[LedgerEntry]) -> i64 {
    let open = ledger.iter().scan(0, |open, entry| {
        *open += if entry.is_start { 1 } else { -1 };
        Some(*open)
    });
    open.max().unwrap_or_default()
}

async fn start_times(cluster: &Cluster, tool: &str) -> Vec<Timestamp> {
    let mut starts = Vec::new();
    for head in cluster.read_heads().await {
        let plan = cluster.store.plan(head.plan).await.unwrap().unwrap();
        if plan.called_tools().all(|name| name.as_str() == tool) {
            let log = cluster.read_log(head.execution).await;
            let started =
                log.iter().filter(|recorded| matches!(recorded.event, Event::StepStarted(_)));
            starts.extend(started.map(|recorded| recorded.at));
        }
    }
    starts.sort();
    starts
}

/// Checks that each period has at most one burst of `CALLS_PER_SECOND` calls plus
/// `CALLS_PER_SECOND` calls per second.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn assert_rate(starts: &[Timestamp]) {
    for (from, first) in starts.iter().enumerate() {
        for (n, last) in starts[from..].iter().enumerate() {
            let seconds = (*last - *first).as_seconds_f64() + MAX_LATENESS_SECONDS;
            let maximum = CALLS_PER_SECOND as f64 * (1.0 + seconds);
            assert!((n as f64) < maximum, "{} within {seconds} s: {starts:#?}", n + 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_of_a_lost_node_expire_and_higher_priorities_go_first() {
    let calls = json!([
        { "tool": "ledger.held", "concurrency": 1 },
        { "tool": "ledger.single", "concurrency": 1 },
    ]);
    let cluster = Cluster::new(&json!({ "calls": calls, "drain_ms": 60_000 })).await;
    let (node, lost) =
        (cluster.workspace.start_server().await, cluster.workspace.start_server().await);
    tokio::join!(
        assert_lost_permit_expires(&cluster, &node, lost),
        assert_priority_order(&cluster, &node)
    );
    assert_cancelled_waits_hold_no_permit(&cluster, &node).await;
    assert_waiting_calls_move_when_a_node_drains(&cluster, node).await;
}

/// Checks that a call on another node gets the only permit after the node of its holder is killed.
/// The outcome of the holder's call is unknown, so the call is not repeated.
async fn assert_lost_permit_expires(cluster: &Cluster, node: &Node, lost: Node) {
    let long = lost.create_plan(&json!([call_step("ledger.held", 8.0)])).await;
    let short = lost.create_plan(&json!([call_step("ledger.held", 0.0)])).await;
    let holder = lost.execute(&long, &json!({})).await;
    cluster
        .wait_for_ledger("the permit is held", |entries| {
            entries.iter().any(|entry| entry.execution == holder)
        })
        .await;
    let waiting = node.execute(&short, &json!({})).await;
    lost.kill().await;
    let freed = Instant::now();
    let gets_it = cluster.wait_for_ledger("the permit is free", |entries| {
        entries.iter().any(|entry| entry.execution == waiting)
    });
    gets_it.await;
    let took = freed.elapsed();
    assert!(took < LEASE + DEFAULT_MARGIN, "{took:?}");
}

async fn assert_priority_order(cluster: &Cluster, node: &Node) {
    let plan = node.create_plan(&json!([call_step("ledger.single", 0.1)])).await;
    let holder = node.start(&json!([call_step("ledger.single", 15.0)])).await;
    cluster
        .wait_for_ledger("the only permit is held", |entries| {
            entries.iter().any(|entry| entry.execution == holder)
        })
        .await;
    let mut wanted = Vec::new();
    for priority in [0, 0, 1, 0, 2, 1, 2, 0] {
        let id = node.execute(&plan, &json!({ "priority": priority })).await;
        wanted.push((-priority, wanted.len(), id));
    }
    let is_done = |entries: &[LedgerEntry]| {
        entries.iter().filter(|entry| entry.is_start && entry.tool == "ledger.single").count() == 9
    };
    cluster.wait_for_ledger("every call had its turn", is_done).await;
    wanted.sort();
    let entries = cluster.workspace.complete_ledger_lines();
    let turns =
        entries.iter().filter(|entry| entry.is_start && entry.tool == "ledger.single").skip(1);
    let turns: Vec<&str> = turns.map(|entry| entry.execution.as_str()).collect();
    let wanted: Vec<&str> = wanted.iter().map(|(.., id)| id.as_str()).collect();
    assert_eq!(turns, wanted);
}

async fn assert_cancelled_waits_hold_no_permit(cluster: &Cluster, node: &Node) {
    let plan = node.create_plan(&json!([call_step("ledger.single", 0.02)])).await;
    for _ in 0..4 {
        let mut ids = Vec::new();
        for _ in 0..6 {
            ids.push(node.execute(&plan, &json!({})).await);
        }
        for id in ids.iter().rev() {
            node.run_mutation("cancelExecution", id, "").await;
        }
    }
    let last = node.execute(&plan, &json!({})).await;
    let done = cluster.wait_for_ledger("the last call gets a permit", |entries| {
        entries.iter().any(|entry| !entry.is_start && entry.execution == last)
    });
    done.await;
    cluster.wait_for_all_finished(4 * 6 + 1 + 9 + 2).await;
}

/// Checks that a node whose calls only wait for a permit drains without waiting for them, and that
/// these calls then wait on another node.
async fn assert_waiting_calls_move_when_a_node_drains(cluster: &Cluster, node: Node) {
    let other = cluster.workspace.start_server().await;
    let holder = other.start(&json!([call_step("ledger.single", 30.0)])).await;
    cluster
        .wait_for_ledger("the only permit is held", |entries| {
            entries.iter().any(|entry| entry.execution == holder)
        })
        .await;
    let plan = node.create_plan(&json!([call_step("ledger.single", 0.0)])).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(node.execute(&plan, &json!({})).await);
    }
    node.drain().await;
    other.run_mutation("cancelExecution", &holder, "").await;
    let have_had_turns = |entries: &[LedgerEntry]| {
        ids.iter().all(|id| entries.iter().any(|entry| !entry.is_start && entry.execution == *id))
    };
    cluster.wait_for_ledger("the calls get permits on the other node", have_had_turns).await;
    cluster.wait_for_all_finished(4 * 6 + 1 + 9 + 2 + 5).await;
}
