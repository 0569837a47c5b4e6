//! Measures how long the executions of a killed node wait until another node takes them over.

use std::time::Duration;

use engine::store::open_store;
use serde_json::json;
use shared::{
    id::WorkerId,
    store::{ExecutionHead, Store},
};
use tokio::{
    task::JoinSet,
    time::{Instant, interval, timeout},
};

use super::{
    node::{Node, Role},
    shared_run::SharedRun,
    workspace::Workspace,
};
use crate::harness::{number_from_env, read_heads};
use crate::mongod::Mongod;

/// Number of executions in a usual run. The figures in the documentation were measured with
/// `FABER_TAKEOVER=1000`.
const DEFAULT_EXECUTIONS: u64 = 100;
const LEASE: Duration = Duration::from_secs(5);
/// Extra time, because the machine can be busy.
const BUSY_MARGIN: Duration = Duration::from_secs(15);
/// Time limit of a wait whose duration is not measured.
const MAX_WAIT: Duration = Duration::from_mins(2);
/// Number of clients that start executions at the same time.
const CLIENT_COUNT: u64 = 16;

#[tokio::test(flavor = "multi_thread")]
async fn executions_of_a_killed_node_are_taken_over_after_its_lease() {
    let durations = measure_takeover(&Mongod::shared().await.new_database_url()).await;
    assert!(durations < LEASE + BUSY_MARGIN, "{durations:?}");
}

/// On SQLite no lease needs to expire, because the kernel releases the lock of a dead process.
#[tokio::test(flavor = "multi_thread")]
async fn executions_of_a_killed_sqlite_process_are_taken_over_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let durations =
        measure_takeover(&format!("sqlite:{}", folder.path().join("faber.db").display())).await;
    assert!(durations < BUSY_MARGIN, "{durations:?}");
}

async fn measure_takeover(url: &str) -> Duration {
    let count = number_from_env("FABER_TAKEOVER").unwrap_or(DEFAULT_EXECUTIONS);
    // The executions sleep. With this limit they are not parked, so they keep their owner.
    let limits = json!({ "lease_ms": 5_000, "poll_ms": 250, "park_after_ms": 86_400_000 });
    let workspace = Workspace::with_limits(url.to_owned(), &limits);
    let mut node = Node::start(&workspace, Role::Serve).await.unwrap();
    start_executions(node.address.as_deref().unwrap(), count).await;
    let store = open_store(url).await.unwrap();
    let (started, _) = wait_for_heads(&*store, |head| head.owner.is_some(), count).await;
    let owner = started[0].owner.unwrap();
    let other = Node::start(&workspace, Role::Work).await.unwrap();
    node.process.kill().await;
    let killed_at = Instant::now();
    let is_taken =
        |head: &ExecutionHead| head.owner.is_some_and(|worker: WorkerId| worker != owner);
    let (_, at) = wait_for_heads(&*store, is_taken, count).await;
    let durations = at - killed_at;
    let kind = url.split(':').next().unwrap();
    eprintln!("{kind}: {count} executions of a killed node are taken over after {durations:.2?}");
    drop(other);
    durations
}

async fn start_executions(address: &str, count: u64) {
    let run = SharedRun::new();
    run.set_address(0, Some(address.to_owned()));
    let plan = "mutation ($input: PlanInput!) { createPlan(input: $input) { plan { planId } } }";
    let sleep = json!({ "name": "flow.sleep", "parameters": { "ms": 3_600_000 } });
    let made =
        run.ask_until_answered(plan, &json!({ "input": { "tools": [sleep] } })).await.unwrap();
    let plan = made["plan"]["planId"].clone();
    let clients: JoinSet<()> = (0..CLIENT_COUNT)
        .map(|client| {
            let (run, plan) = (run.clone(), plan.clone());
            async move {
                let execute = "mutation ($id: ID!, $options: ExecutionOptions) {
                    executePlan(planId: $id, options: $options) { executionId } }";
                for index in (client..count).step_by(usize::try_from(CLIENT_COUNT).unwrap()) {
                    // If an answer is late, the client repeats the request. The key makes sure that
                    // this starts no second execution.
                    let options = json!({ "idempotencyKey": format!("takeover-{index}") });
                    let order = json!({ "id": plan, "options": options });
                    run.ask_until_answered(execute, &order).await.unwrap();
                }
            }
        })
        .collect();
    timeout(MAX_WAIT, clients.join_all()).await.expect("all executions start");
}

/// Waits until all heads are as expected. Returns them, and the time.
async fn wait_for_heads(
    store: &dyn Store,
    is_expected: impl Fn(&ExecutionHead) -> bool,
    count: u64,
) -> (Vec<ExecutionHead>, Instant) {
    let mut look = interval(Duration::from_millis(50));
    let looking = async {
        loop {
            look.tick().await;
            let heads = read_heads(store).await;
            if heads.len() as u64 == count && heads.iter().all(&is_expected) {
                return (heads, Instant::now());
            }
        }
    };
    timeout(MAX_WAIT, looking).await.expect("all heads change")
}
