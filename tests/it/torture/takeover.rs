//! A killed node's executions are taken over within a lease and little more.

use std::time::Duration;

use graphql::store::open_store;
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
    audit::heads,
    home::Home,
    node::{Node, Role},
    number,
    scene::Scene,
};
use crate::mongod::Mongod;

/// Executions in the usual run; `FABER_TAKEOVER=1000` for the real figure.
const EXECUTIONS: u64 = 100;
/// The lease of these nodes: what users have.
const LEASE: Duration = Duration::from_secs(5);
/// What a machine that does other things at the same time may need on top.
const MARGIN: Duration = Duration::from_secs(15);
/// How long anything may take that is not measured.
const PATIENCE: Duration = Duration::from_mins(2);
/// Clients that start executions at the same time.
const CLIENTS: u64 = 16;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_nodes_executions_are_taken_over_within_a_lease() {
    let took = take_over(&Mongod::shared().await.fresh_url()).await;
    assert!(took < LEASE + MARGIN, "{took:?}");
}

/// In a file nobody waits for the lease: the kernel says that the process has gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_processs_executions_are_taken_over_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let took = take_over(&format!("sqlite:{}", folder.path().join("faber.db").display())).await;
    assert!(took < MARGIN, "{took:?}");
}

async fn take_over(url: &str) -> Duration {
    let count = number("FABER_TAKEOVER").unwrap_or(EXECUTIONS);
    // What sleeps is not put aside: it stays somebody's.
    let limits = json!({ "lease_ms": 5_000, "poll_ms": 250, "park_after_ms": 86_400_000 });
    let home = Home::with_limits(url.to_owned(), &limits);
    let mut node = Node::start(&home, Role::Serve).await.unwrap();
    begin(node.address.as_deref().unwrap(), count).await;
    let store = open_store(url).await.unwrap();
    let (begun, _) = until(&*store, |head| head.owner.is_some(), count).await;
    let owner = begun[0].owner.unwrap();
    let other = Node::start(&home, Role::Work).await.unwrap();
    node.process.kill().await;
    let killed_at = Instant::now();
    let is_taken =
        |head: &ExecutionHead| head.owner.is_some_and(|worker: WorkerId| worker != owner);
    let (_, at) = until(&*store, is_taken, count).await;
    let took = at - killed_at;
    let kind = url.split(':').next().unwrap();
    eprintln!("{kind}: {count} executions of a killed node are taken over after {took:.2?}");
    drop(other);
    took
}

async fn begin(address: &str, count: u64) {
    let scene = Scene::new();
    scene.moved(0, Some(address.to_owned()));
    let plan = "mutation ($input: PlanInput!) { createPlan(input: $input) { plan { planId } } }";
    let sleep = json!({ "name": "flow.sleep", "parameters": { "ms": 3_600_000 } });
    let made = scene.insist(plan, &json!({ "input": { "tools": [sleep] } })).await.unwrap();
    let plan = made["plan"]["planId"].clone();
    let clients: JoinSet<()> = (0..CLIENTS)
        .map(|client| {
            let (scene, plan) = (scene.clone(), plan.clone());
            async move {
                let execute = "mutation ($id: ID!, $options: ExecutionOptions) {
                    executePlan(planId: $id, options: $options) { executionId } }";
                for at in (client..count).step_by(usize::try_from(CLIENTS).unwrap()) {
                    // Whoever is late is asked again, and must not begin another one.
                    let options = json!({ "idempotencyKey": format!("takeover-{at}") });
                    let order = json!({ "id": plan, "options": options });
                    scene.insist(execute, &order).await.unwrap();
                }
            }
        })
        .collect();
    timeout(PATIENCE, clients.join_all()).await.expect("they are begun");
}

/// Waits until all executions are as somebody wants them. Returns their heads, and since when.
async fn until(
    store: &dyn Store,
    is_so: impl Fn(&ExecutionHead) -> bool,
    count: u64,
) -> (Vec<ExecutionHead>, Instant) {
    let mut look = interval(Duration::from_millis(50));
    let looking = async {
        loop {
            look.tick().await;
            let heads = heads(store).await;
            if heads.len() as u64 == count && heads.iter().all(&is_so) {
                return (heads, Instant::now());
            }
        }
    };
    timeout(PATIENCE, looking).await.expect("somebody takes them")
}
