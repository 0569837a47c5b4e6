//! What comes due is shared among all nodes, also with one that has just come.

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
    home::CALM_MS,
    node::{Node, PATIENCE, ask_at, fresh_key},
    world::{World, claimers},
};

/// Executions that come due at the same time.
const COUNT: usize = 200;
/// Executions that one operation asks for.
const AT_ONCE: usize = 25;
/// How long it may take to ask for them all.
const AHEAD: Duration = Duration::from_secs(12);
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

    let old: BTreeSet<_> = world.heads().await.iter().map(|head| head.execution).collect();
    let _third = world.home.work().await;
    schedule(&first, &plan).await;
    world.all_completed(2 * COUNT).await;
    let after = claims(&world, &old).await;
    assert_fair(&after, 3);
    assert!(before.keys().all(|execution| after.contains_key(execution)), "{before:?} {after:?}");
}

/// Asks for executions that all begin at the same time, a little later.
async fn schedule(node: &Node, plan: &str) {
    let at = WallClock.now() + TimeDelta::from_std(AHEAD).unwrap();
    let each = |text: fn(usize) -> String| (0..AT_ONCE).map(text).collect::<String>();
    let given = each(|number| format!(", $o{number}: ExecutionOptions"));
    let begin = each(|number| {
        format!("e{number}: executePlan(planId: $id, options: $o{number}) {{ executionId }}\n")
    });
    let query = format!("mutation ($id: ID!{given}) {{ {begin} }}");
    let asked: JoinSet<()> = (0..COUNT / AT_ONCE)
        .map(|_| {
            let (address, query) = (node.address.clone(), query.clone());
            let options = || json!({ "startAt": at.to_rfc3339(), "idempotencyKey": fresh_key() });
            let mut variables: Map<String, Value> =
                (0..AT_ONCE).map(|number| (format!("o{number}"), options())).collect();
            variables.insert("id".to_owned(), json!(plan));
            async move { drop(ask_at(&address, &query, &Value::Object(variables)).await) }
        })
        .collect();
    timeout(PATIENCE, asked.join_all()).await.expect("they are begun");
}

/// Counts the first claims of every worker.
async fn claims(world: &World, but: &BTreeSet<ExecutionId>) -> BTreeMap<WorkerId, usize> {
    let mut claims = BTreeMap::new();
    for head in world.heads().await.iter().filter(|head| !but.contains(&head.execution)) {
        let log = world.log(head.execution).await;
        *claims.entry(claimers(&log)[0]).or_default() += 1;
    }
    claims
}

/// Everybody has a good part, however busy the machine is. What was asked for too late for that
/// begins where it was asked for.
fn assert_fair(claims: &BTreeMap<WorkerId, usize>, workers: usize) {
    assert_eq!(claims.len(), workers, "{claims:?}");
    assert!(claims.values().all(|count| count * 100 >= 8 * COUNT), "{claims:?}");
}
