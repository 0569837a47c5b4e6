//! A node that is told to end lets short steps end, hands the rest over, and says goodbye.

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp, WallClock},
    event::{Event, Recorded},
    id::WorkerId,
};

use super::{
    home::{CALM_MS, MARGIN},
    node::Node,
    world::{World, claimers},
};

/// Executions of each kind that are about.
const EACH: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_end_hands_everything_over() {
    let calls = json!([{ "tool": "ledger.single", "concurrency": 1 }]);
    let world = World::new(&json!({ "calls": calls, "lease_ms": CALM_MS })).await;
    let (node, successor) = (world.home.serve().await, world.home.work().await);
    let mut plans = Vec::new();
    for tools in kinds() {
        plans.push(node.plan(&tools).await);
    }
    hold(&world, &node).await;
    for plan in plans.iter().flat_map(|it| std::iter::repeat_n(it, EACH)) {
        node.execute(plan, &json!({})).await;
    }
    let has_begun = |what: &str, world: &World| {
        let said = world.home.ledger();
        said.iter().filter(|it| it.begins && it.tool == what).count()
    };
    world
        .until_said("everything is about", |_| {
            has_begun("ledger.read", &world) >= EACH && has_begun("ledger.once", &world) >= 2 * EACH
        })
        .await;
    node.drain().await;
    let left_at = WallClock.now();
    // Each parent has a child.
    world.all_completed(plans.len() * EACH + EACH + 1).await;
    world.called_once();
    assert_handed_over(&world, left_at).await;
    drop(successor);
}

/// What is about: short steps that must not be called twice, a long one that may, a sleep, a list,
/// a plan in a plan, and calls that wait for a limit which somebody else has used up.
fn kinds() -> Vec<Value> {
    let call = |id: &str, tool: &str, seconds: f64| json!({ "id": id, "name": tool, "parameters": { "n": 1, "seconds": seconds } });
    let mut chain: Vec<Value> = Vec::new();
    for at in 0..12_usize {
        let mut step = call(&format!("c{at}"), "ledger.once", 0.25);
        step["dependsOn"] = json!(at.checked_sub(1).map(|it| format!("c{it}")));
        chain.push(step);
    }
    let list = json!([
        { "id": "list", "name": "flow.echo", "parameters": { "all": [0, 1, 2, 3, 4, 5, 6, 7, 8] } },
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
        json!([call("long", "ledger.read", 4.0)]),
        json!([{ "name": "flow.sleep", "parameters": { "ms": 5_000 } }]),
        list,
        json!([{ "id": "sub", "inlinePlan": inner }, { "name": "flow.noop", "dependsOn": "sub" }]),
        json!([call("waits", "ledger.single", 0.0)]),
    ]
}

/// Uses up the limit of a tool, so that others wait for it.
async fn hold(world: &World, node: &Node) {
    let call = json!({ "name": "ledger.single", "parameters": { "n": 1, "seconds": 4.0 } });
    let id = node.start(&json!([call])).await;
    world.until_said("it is held", |said| said.iter().any(|it| it.execution == id)).await;
}

/// Whatever the node left was carried on by the other one, and nobody waited for the lease of one
/// that had said goodbye.
async fn assert_handed_over(world: &World, left_at: Timestamp) {
    let bound = TimeDelta::from_std(MARGIN).unwrap();
    let mut handed_over = 0;
    for head in world.heads().await {
        let log = world.log(head.execution).await;
        let Some((first, at)) = taken_over(&log) else { continue };
        handed_over += 1;
        assert!(
            claimers(&log).iter().skip(1).all(|it| *it != first),
            "it was claimed again: {log:#?}"
        );
        assert!(at - left_at < bound, "{} {log:#?}", at - left_at);
    }
    assert!(handed_over >= 4 * EACH, "{handed_over} were handed over");
}

/// Returns who had it first, and when somebody else took it.
fn taken_over(log: &[Recorded]) -> Option<(WorkerId, Timestamp)> {
    let first = *claimers(log).first()?;
    log.iter().find_map(|it| match &it.event {
        Event::Claimed(claimed) if claimed.worker != first => Some((first, it.at)),
        _ => None,
    })
}
