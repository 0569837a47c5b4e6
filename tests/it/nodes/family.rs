//! Plans in plans across nodes: parents and children are on different nodes, any of which may be
//! lost at any moment.

use std::{collections::BTreeSet, time::Duration};

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    execution::ExecutionState,
    id::{ExecutionId, WorkerId},
    store::ExecutionHead,
};
use tests::faulty::Dice;
use tokio::time::{Instant, sleep};

use super::{
    home::MARGIN,
    node::Node,
    number,
    world::{World, claimers, id},
};

/// Nodes that are killed while families are about.
const KILLS: u64 = 8;
/// Families that begin before each of them, each of seven executions.
const PER_KILL: u64 = 4;

/// A plan whose second step is a plan of one call.
fn family(tool: &str, seconds: f64) -> Value {
    let call = json!({ "id": "call", "name": tool, "parameters": { "n": 5, "seconds": seconds,
        "from": "{{input.from}}" } });
    json!([
        { "id": "a", "name": "flow.echo", "parameters": { "x": 1 } },
        { "id": "sub", "inlinePlan": { "tools": [call] }, "parameters": { "from": "{{a.x}}" } },
        { "id": "z", "name": "flow.echo", "parameters": { "got": "{{sub.call.n}}" } },
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn families_survive_whoever_is_lost() {
    let world = World::new(&json!({})).await;
    let (near, far) = (world.home.serve().await, world.home.serve_far().await);
    let plan = far.plan(&family("far.read", 3.0)).await;

    // The node of the child is lost; the parent's lacks the tool and must wait for another.
    let (parent, child) = begin(&world, &near, &plan).await;
    far.kill().await;
    let far = world.home.serve_far().await;
    completed(&world, 2).await;
    let (of_parent, of_child) = (workers(&world, parent).await, workers(&world, child).await);
    // On a machine that is too busy to keep a lease there are more.
    assert!(of_child.len() >= 2, "two nodes have the tool: {of_parent:?} {of_child:?}");

    // The node of the parent is lost while the child runs.
    let (_, child) = begin(&world, &near, &plan).await;
    near.kill().await;
    completed(&world, 4).await;
    assert!(!workers(&world, child).await.is_empty());

    // Both are lost.
    let near = world.home.serve().await;
    begin(&world, &near, &plan).await;
    tokio::join!(near.kill(), far.kill());
    let far = world.home.serve_far().await;
    completed(&world, 6).await;

    a_stopped_parent_stops_its_child(&world, &far).await;
}

async fn a_stopped_parent_stops_its_child(world: &World, far: &Node) {
    let near = world.home.serve().await;
    let plan = far.plan(&family("far.once", 40.0)).await;
    let (parent, child) = begin(world, &near, &plan).await;
    let begun = Instant::now();
    near.control("cancelExecution", &parent.to_string(), "").await;
    world.all_over(8).await;
    // The call itself takes longer.
    assert!(begun.elapsed() < MARGIN + MARGIN / 2, "{:?}", begun.elapsed());
    for id in [parent, child] {
        let head = world.store.head(id).await.unwrap().unwrap();
        // A call that was lost on the way, on a busy machine, is not known to be stopped.
        let is_stopped = matches!(head.state, ExecutionState::Cancelled | ExecutionState::Failed);
        assert!(is_stopped, "{:#?}", world.log(id).await);
    }
    world.called_once();
}

/// Begins a family, and waits until the child's tool is called. Returns parent and child.
async fn begin(world: &World, node: &Node, plan: &str) -> (ExecutionId, ExecutionId) {
    let parent = id(&node.execute(plan, &json!({})).await);
    let is_child = |head: &ExecutionHead| head.parent == Some(parent);
    world.until("there is a child", |heads| heads.iter().any(is_child)).await;
    let child = world.heads().await.into_iter().find(is_child).unwrap().execution;
    let name = child.to_string();
    world
        .until_said("the child calls", |said| said.iter().any(|mark| mark.execution == name))
        .await;
    (parent, child)
}

async fn completed(world: &World, count: usize) {
    world.all_completed(count).await;
    for head in world.heads().await.iter().filter(|head| head.parent.is_none()) {
        assert_eq!(outputs(world, head).await["z"], json!({ "got": 5 }));
    }
}

async fn workers(world: &World, id: ExecutionId) -> BTreeSet<WorkerId> {
    claimers(&world.log(id).await).into_iter().collect()
}

async fn outputs(world: &World, head: &ExecutionHead) -> Value {
    world.replay(head).await.outputs()
}

/// Everything is so short that nodes are killed between any two things that they do, such as the
/// end of a child and telling its parent. Other moments: `FABER_NODES_SEED=7`; many more:
/// `FABER_NODES_KILLS=200`.
#[tokio::test(flavor = "multi_thread")]
async fn no_parent_waits_for_ever_whenever_nodes_are_killed() {
    let world = World::new(&json!({})).await;
    let dice = Dice::new(number("FABER_NODES_SEED").unwrap_or(1));
    let kills = number("FABER_NODES_KILLS").unwrap_or(KILLS);
    let mut nodes = vec![world.home.serve().await, world.home.work().await];
    let plan = nodes[0].plan(&generations()).await;
    let mut begun = 0;
    for _ in 0..kills {
        let server = nodes.iter().find(|node| node.serves()).unwrap();
        for _ in 0..PER_KILL {
            // Those that begin later are spread over all nodes.
            let ms = i64::try_from(200 + dice.below(500)).unwrap();
            let at = WallClock.now() + TimeDelta::milliseconds(ms);
            server.execute(&plan, &json!({ "startAt": at.to_rfc3339() })).await;
            begun += 1;
        }
        sleep(Duration::from_millis(200 + dice.below(700))).await;
        let one = usize::try_from(dice.below(2)).unwrap();
        let lost = nodes.remove(one);
        lost.kill().await;
        // One that serves is there for those who ask.
        let other =
            if nodes[0].serves() { world.home.work().await } else { world.home.serve().await };
        nodes.push(other);
    }
    world.all_completed(begun * 7).await;
    for head in world.heads().await.iter().filter(|head| head.parent.is_none()) {
        let expected =
            json!([1, 2, 3].map(|n| json!({ "own": { "n": n }, "sub": { "x": { "n": n } } })));
        assert_eq!(outputs(&world, head).await["each"], expected);
    }
}

/// A plan that executes another one three times, which executes yet another one.
fn generations() -> Value {
    let echo =
        |id: &str| json!({ "id": id, "name": "flow.echo", "parameters": { "n": "{{input.n}}" } });
    let youngest = json!({ "tools": [echo("x")] });
    let middle = json!({ "tools": [
        echo("own"),
        { "id": "sub", "inlinePlan": youngest, "parameters": { "n": "{{own.n}}" } },
    ] });
    json!([
        { "id": "list", "name": "flow.echo", "parameters": { "all": [1, 2, 3] } },
        { "id": "each", "forEach": "{{list.all}}", "inlinePlan": middle,
          "parameters": { "n": "{{item}}" } },
    ])
}
