//! What one node's call returned another one need not ask for, for a while.

use std::time::Duration;

use serde_json::json;
use shared::event::Event;
use tokio::time::{interval, timeout};

use super::{
    node::{LOOK, Node, PATIENCE},
    world::{World, id},
};

/// How long an output may be used.
const TTL_MS: u64 = 12_000;
/// How often is asked whether it still may: every time it is executed.
const ASK: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_has_read_another_one_need_not() {
    let world = World::new(&json!({})).await;
    let (one, other) = (world.home.serve().await, world.home.serve().await);
    let read = |n: u64| {
        json!([{ "name": "ledger.read", "cacheTtlMs": TTL_MS,
            "parameters": { "n": n, "seconds": 0.0 } }])
    };
    let (plan, different) = (one.plan(&read(7)).await, one.plan(&read(8)).await);
    assert!(!is_cached(&world, &one, &plan).await, "nobody has read it");
    assert!(is_cached(&world, &other, &plan).await, "the other node has read it");
    assert!(!is_cached(&world, &other, &different).await, "these parameters nobody had");
    assert_eq!(calls(&world), 2);
    let mut look = interval(ASK);
    let expires = async {
        while is_cached(&world, &other, &plan).await {
            look.tick().await;
        }
    };
    timeout(PATIENCE, expires).await.expect("it expires");
    assert_eq!(calls(&world), 3, "it has expired once");
}

/// Executes a plan on a node. Returns whether its step's output was known.
async fn is_cached(world: &World, node: &Node, plan: &str) -> bool {
    let execution = node.execute(plan, &json!({})).await;
    let query = "query ($id: ID!) { execution(executionId: $id) { state outputs } }";
    let mut look = interval(LOOK);
    let ends = async {
        loop {
            let found = node.ask(query, &json!({ "id": execution })).await;
            if found["state"] == "COMPLETED" {
                return found;
            }
            look.tick().await;
        }
    };
    let found = timeout(PATIENCE, ends).await.expect("it ends");
    let n = found["outputs"]["ledger.read"]["n"].as_u64();
    assert!(n.is_some_and(|n| n == 7 || n == 8), "{found}");
    let log = world.log(id(&execution)).await;
    let cached = log.iter().find_map(|recorded| match &recorded.event {
        Event::StepSucceeded { cached, .. } => Some(*cached),
        _ => None,
    });
    cached.expect("it has succeeded")
}

fn calls(world: &World) -> usize {
    world.home.ledger().iter().filter(|mark| mark.begins).count()
}
