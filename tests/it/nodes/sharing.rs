//! What comes due is shared among all nodes, also with one that has just come.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    id::{ExecutionId, WorkerId},
};
use tokio::{task::JoinSet, time::timeout};

use super::{
    home::CALM_MS,
    node::{Node, PATIENCE, ask_at},
    world::{World, claimers},
};

/// Executions that come due at the same time.
const COUNT: usize = 200;
/// Executions that one operation asks for.
const AT_ONCE: usize = 25;
/// How long it may take to ask for them all.
const AHEAD: Duration = Duration::from_secs(4);
/// How often nodes look; what one has not taken after two looks, another one takes.
const POLL_MS: u64 = 500;

/// A chain of what costs nothing, so that nodes and not tools are what is shared.
fn chain() -> Value {
    json!([
        { "name": "flow.noop", "id": "a" },
        { "name": "flow.noop", "id": "b", "dependsOn": "a" },
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_due_is_shared_also_with_a_node_that_has_just_come() {
    let world = World::new(&json!({ "lease_ms": CALM_MS, "poll_ms": POLL_MS })).await;
    let first = world.home.serve().await;
    let _second = world.home.work().await;
    let plan = first.plan(&chain()).await;
    schedule(&first, &plan).await;
    world.all_completed(COUNT).await;
    let before = claims(&world, &BTreeSet::new()).await;
    assert_fair(&before, 2);

    let old: BTreeSet<_> = world.heads().await.iter().map(|it| it.execution).collect();
    let _third = world.home.work().await;
    schedule(&first, &plan).await;
    world.all_completed(2 * COUNT).await;
    let after = claims(&world, &old).await;
    assert_fair(&after, 3);
    assert!(before.keys().all(|it| after.contains_key(it)), "{before:?} {after:?}");
}

/// Asks for executions that all begin at the same time, a little later.
async fn schedule(node: &Node, plan: &str) {
    let at = WallClock.now() + TimeDelta::from_std(AHEAD).unwrap();
    let begin = (0..AT_ONCE).fold(String::new(), |all, it| {
        all + &format!("e{it}: executePlan(planId: $id, options: $options) {{ executionId }}\n")
    });
    let query = format!("mutation ($id: ID!, $options: ExecutionOptions) {{ {begin} }}");
    let variables = json!({ "id": plan, "options": { "startAt": at.to_rfc3339() } });
    let asked: JoinSet<()> = (0..COUNT / AT_ONCE)
        .map(|_| {
            let (address, query) = (node.address.clone(), query.clone());
            let variables = variables.clone();
            async move { drop(ask_at(&address, &query, &variables).await) }
        })
        .collect();
    timeout(PATIENCE, asked.join_all()).await.expect("they are begun");
}

/// Counts the first claims of every worker.
async fn claims(world: &World, but: &BTreeSet<ExecutionId>) -> BTreeMap<WorkerId, usize> {
    let mut claims = BTreeMap::new();
    for head in world.heads().await.iter().filter(|it| !but.contains(&it.execution)) {
        let log = world.log(head.execution).await;
        *claims.entry(claimers(&log)[0]).or_default() += 1;
    }
    claims
}

/// Everybody has a good part, however busy the machine is.
fn assert_fair(claims: &BTreeMap<WorkerId, usize>, workers: usize) {
    assert_eq!(claims.len(), workers, "{claims:?}");
    assert!(claims.values().all(|it| it * 100 >= 15 * COUNT), "{claims:?}");
}
