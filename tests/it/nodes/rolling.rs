//! A node that is told to end lets short steps end, hands the rest over, and says goodbye.

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp, WallClock},
    event::{Event, RecordedEvent},
    id::WorkerId,
};

use super::{
    home::{CALM_MS, MARGIN},
    node::Node,
    world::{World, claimers, id},
};

/// Executions of each kind that are about.
const EACH: usize = 4;
/// How many seconds the long calls take.
const LONG: f64 = 15.0;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_to_end_hands_everything_over() {
    let calls = json!([{ "tool": "ledger.single", "concurrency": 1 }]);
    let world = World::new(&json!({ "calls": calls, "lease_ms": CALM_MS })).await;
    let node = world.home.serve().await;
    let mut plans = Vec::new();
    for tools in kinds() {
        plans.push(node.plan(&tools).await);
    }
    let holder = hold(&world, &node).await;
    for plan in plans.iter().flat_map(|plan_id| std::iter::repeat_n(plan_id, EACH)) {
        node.execute(plan, &json!({})).await;
    }
    let has_begun = |what: &str, world: &World| {
        let said = world.home.ledger();
        said.iter().filter(|mark| mark.begins && mark.tool == what).count()
    };
    world
        .until_said("everything is about", |_| {
            has_begun("ledger.read", &world) >= EACH && has_begun("ledger.once", &world) >= 2 * EACH
        })
        .await;
    // Only now, so that everything was the node's.
    let successor = world.home.work().await;
    let told_at = WallClock.now();
    node.drain().await;
    let left_at = WallClock.now();
    // Each parent has a child.
    world.all_completed(plans.len() * EACH + EACH + 1).await;
    world.called_once();
    let leaver = claimers(&world.log(id(&holder)).await)[0];
    assert_handed_over(&world, leaver, (told_at, left_at)).await;
    drop(successor);
}

/// What is about: short steps that must not be called twice, a long one that may, a sleep, a list,
/// a plan in a plan, and calls that wait for a limit which somebody else has used up. Most of it
/// takes longer than a successor needs to come.
fn kinds() -> Vec<Value> {
    let call = |id: &str, tool: &str, seconds: f64| json!({ "id": id, "name": tool, "parameters": { "n": 1, "seconds": seconds } });
    let mut chain: Vec<Value> = Vec::new();
    for at in 0..30_usize {
        let mut step = call(&format!("c{at}"), "ledger.once", 0.25);
        step["dependsOn"] = json!(at.checked_sub(1).map(|before| format!("c{before}")));
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
        json!([call("long", "ledger.read", LONG)]),
        json!([{ "name": "flow.sleep", "parameters": { "ms": 5_000 } }]),
        list,
        json!([{ "id": "sub", "inlinePlan": inner }, { "name": "flow.noop", "dependsOn": "sub" }]),
        json!([call("waits", "ledger.single", 0.0)]),
    ]
}

/// Uses up the limit of a tool, so that others wait for it. Returns who does.
async fn hold(world: &World, node: &Node) -> String {
    let call = json!({ "name": "ledger.single", "parameters": { "n": 1, "seconds": LONG } });
    let id = node.start(&json!([call])).await;
    world.until_said("it is held", |said| said.iter().any(|mark| mark.execution == id)).await;
    id
}

/// Whatever the node left was carried on by the other one and did not come back, and nobody waited
/// for the lease of one that had said goodbye.
async fn assert_handed_over(
    world: &World,
    leaver: WorkerId,
    (told_at, left_at): (Timestamp, Timestamp),
) {
    let bound = TimeDelta::from_std(MARGIN).unwrap();
    let mut handed_over = 0;
    for head in world.heads().await {
        let log = world.log(head.execution).await;
        let claims = claims(&log);
        // What was due before the node was told to end anybody might take.
        let is_handed_over = |pair: &[(WorkerId, Timestamp)]| {
            pair[0].0 == leaver && pair[1].0 != leaver && pair[1].1 > told_at
        };
        let Some(at) = claims.windows(2).position(is_handed_over) else { continue };
        handed_over += 1;
        let after = &claims[at + 1..];
        assert!(
            after.iter().all(|(worker, _)| *worker != leaver),
            "it was claimed again: {log:#?}"
        );
        let late = after[0].1 - left_at;
        assert!(late < bound, "{late} {log:#?}");
    }
    assert!(handed_over >= 3 * EACH, "{handed_over} were handed over");
}

/// Returns who claimed an execution and when, in the order of claims.
fn claims(log: &[RecordedEvent]) -> Vec<(WorkerId, Timestamp)> {
    let claims = log.iter().filter_map(|recorded| match &recorded.event {
        Event::Claimed(claimed) if !claimed.renewed => Some((claimed.worker, recorded.at)),
        _ => None,
    });
    claims.collect()
}
