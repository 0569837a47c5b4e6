//! Limits on calls hold across nodes, and nobody who waits for one is forgotten.

use serde_json::{Value, json};
use shared::{clock::Timestamp, event::Event};
use tokio::time::Instant;

use super::{
    home::{CALM_MS, LEASE, MARGIN, Mark},
    node::Node,
    world::World,
};

/// Calls of the tool that two may call at once.
const PAIRED: usize = 40;
/// Calls of the tool that may be called so often a second.
const RATED: usize = 60;
/// How often that is.
const RATE: usize = 20;
/// How much later than it was permitted a call may be recorded on a machine that does other things.
const LATE: f64 = 1.0;

fn call(tool: &str, seconds: f64) -> Value {
    json!({ "name": tool, "parameters": { "n": 1, "seconds": seconds } })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_nodes_call_more_often_than_a_limit_allows() {
    let calls = json!([
        { "tool": "ledger.pair", "concurrency": 2 },
        { "tool": "flow.noop", "rate": format!("{RATE}/s") },
    ]);
    let world = World::new(&json!({ "calls": calls, "lease_ms": CALM_MS })).await;
    let nodes = [world.home.serve().await, world.home.serve().await];
    let paired =
        nodes[0].plan(&json!([call("ledger.pair", 0.05), call("ledger.pair", 0.05)])).await;
    let rated = nodes[0].plan(&json!([{ "name": "flow.noop" }, { "name": "flow.noop" }])).await;
    let begun = Instant::now();
    for at in 0..RATED / 2 {
        nodes[at % 2].execute(&rated, &json!({})).await;
        if at < PAIRED / 2 {
            nodes[at % 2].execute(&paired, &json!({})).await;
        }
    }
    world.all_completed(PAIRED / 2 + RATED / 2).await;
    let took = begun.elapsed();

    let ledger = world.home.ledger();
    assert_eq!(ledger.iter().filter(|mark| mark.begins).count(), PAIRED);
    let most = most_at_once(&ledger);
    assert_eq!(most, 2, "as many as allowed, and no more: {ledger:#?}");

    let starts = starts(&world, "flow.noop").await;
    assert!(starts.len() >= RATED, "{starts:?}");
    // So many at once, and then one after another.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let least = (RATED - RATE) as f64 / RATE as f64;
    assert!(took.as_secs_f64() >= least, "{took:?}");
    assert_rate(&starts);
}

/// Returns how many calls there were at the same time.
fn most_at_once(ledger: &[Mark]) -> i64 {
    let open = ledger.iter().scan(0, |open, mark| {
        *open += if mark.begins { 1 } else { -1 };
        Some(*open)
    });
    open.max().unwrap_or_default()
}

/// Returns when the calls of a tool began, in order.
async fn starts(world: &World, tool: &str) -> Vec<Timestamp> {
    let mut starts = Vec::new();
    for head in world.heads().await {
        let plan = world.store.plan(head.plan).await.unwrap().unwrap();
        if plan.called_tools().all(|name| name.as_str() == tool) {
            let log = world.log(head.execution).await;
            let started =
                log.iter().filter(|recorded| matches!(recorded.event, Event::StepStarted(_)));
            starts.extend(started.map(|recorded| recorded.at));
        }
    }
    starts.sort();
    starts
}

/// In any window there are no more than may come at once and those that came free meanwhile.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn assert_rate(starts: &[Timestamp]) {
    for (from, first) in starts.iter().enumerate() {
        for (n, last) in starts[from..].iter().enumerate() {
            let seconds = (*last - *first).as_seconds_f64() + LATE;
            let most = RATE as f64 * (1.0 + seconds);
            assert!((n as f64) < most, "{} within {seconds} s: {starts:#?}", n + 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_nodes_places_are_free_after_its_lease_and_the_urgent_go_first() {
    let calls = json!([
        { "tool": "ledger.held", "concurrency": 1 },
        { "tool": "ledger.single", "concurrency": 1 },
    ]);
    let world = World::new(&json!({ "calls": calls, "drain_ms": 60_000 })).await;
    let (node, lost) = (world.home.serve().await, world.home.serve().await);
    tokio::join!(a_lost_place_is_free(&world, &node, lost), the_urgent_go_first(&world, &node));
    leave_no_places_behind(&world, &node).await;
    who_only_waits_is_handed_over_at_once(&world, node).await;
}

/// The holder of the only place is killed; who waits for it on another node gets it. The call
/// itself may go on outside, but nobody knows of it, and it is not made again.
async fn a_lost_place_is_free(world: &World, node: &Node, lost: Node) {
    let long = lost.plan(&json!([call("ledger.held", 8.0)])).await;
    let short = lost.plan(&json!([call("ledger.held", 0.0)])).await;
    let holder = lost.execute(&long, &json!({})).await;
    world.until_said("it is held", |said| said.iter().any(|mark| mark.execution == holder)).await;
    let waiting = node.execute(&short, &json!({})).await;
    lost.kill().await;
    let freed = Instant::now();
    let gets_it =
        world.until_said("it is free", |said| said.iter().any(|mark| mark.execution == waiting));
    gets_it.await;
    let took = freed.elapsed();
    assert!(took < LEASE + MARGIN, "{took:?}");
}

/// Of those that wait on one node for a place, the urgent ones go first.
async fn the_urgent_go_first(world: &World, node: &Node) {
    let plan = node.plan(&json!([call("ledger.single", 0.1)])).await;
    let holder = node.start(&json!([call("ledger.single", 15.0)])).await;
    world.until_said("it is full", |said| said.iter().any(|mark| mark.execution == holder)).await;
    let mut wanted = Vec::new();
    for priority in [0, 0, 1, 0, 2, 1, 2, 0] {
        let id = node.execute(&plan, &json!({ "priority": priority })).await;
        wanted.push((-priority, wanted.len(), id));
    }
    let is_done = |said: &[Mark]| {
        said.iter().filter(|mark| mark.begins && mark.tool == "ledger.single").count() == 9
    };
    world.until_said("everybody had his turn", is_done).await;
    wanted.sort();
    let said = world.home.ledger();
    let turns = said.iter().filter(|mark| mark.begins && mark.tool == "ledger.single").skip(1);
    let turns: Vec<&str> = turns.map(|mark| mark.execution.as_str()).collect();
    let wanted: Vec<&str> = wanted.iter().map(|(.., id)| id.as_str()).collect();
    assert_eq!(turns, wanted);
}

/// Cancels executions that wait for a place while others have it: nobody keeps one.
async fn leave_no_places_behind(world: &World, node: &Node) {
    let plan = node.plan(&json!([call("ledger.single", 0.02)])).await;
    for _ in 0..4 {
        let mut ids = Vec::new();
        for _ in 0..6 {
            ids.push(node.execute(&plan, &json!({})).await);
        }
        for id in ids.iter().rev() {
            node.control("cancelExecution", id, "").await;
        }
    }
    let last = node.execute(&plan, &json!({})).await;
    let done = world.until_said("the last one has its turn", |said| {
        said.iter().any(|mark| !mark.begins && mark.execution == last)
    });
    done.await;
    world.all_over(4 * 6 + 1 + 9 + 2).await;
}

/// A node on which calls wait for a place ends without waiting for it, and others wait on.
async fn who_only_waits_is_handed_over_at_once(world: &World, node: Node) {
    let other = world.home.serve().await;
    let holder = other.start(&json!([call("ledger.single", 30.0)])).await;
    world.until_said("it is full", |said| said.iter().any(|mark| mark.execution == holder)).await;
    let plan = node.plan(&json!([call("ledger.single", 0.0)])).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(node.execute(&plan, &json!({})).await);
    }
    node.drain().await;
    other.control("cancelExecution", &holder, "").await;
    let have_had_turns = |said: &[Mark]| {
        ids.iter().all(|id| said.iter().any(|mark| !mark.begins && mark.execution == *id))
    };
    world.until_said("they have their turns on the other node", have_had_turns).await;
    world.all_over(4 * 6 + 1 + 9 + 2 + 5).await;
}
