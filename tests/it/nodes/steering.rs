//! Whoever asks one node steers and watches what another one does.

use std::time::Duration;

use serde_json::{Value, json};
use shared::execution::ExecutionState;
use tokio::time::{Instant, sleep, timeout};

use super::{
    home::MARGIN,
    node::{LOOK, Node, PATIENCE},
    world::{World, claimers, id},
};
use crate::torture::wire::{Events, Trouble};

const EVENTS: &str = "subscription ($id: ID!, $after: Int) {
    executionEvents(executionId: $id, afterSeq: $after) { seq type stepId attempt data } }";
/// Executions that are followed while their node is killed.
const FOLLOWED: usize = 6;
/// Steps of each of them.
const STEPS: usize = 40;

/// What somebody is told who asks one node, in the order in which he is told.
struct Story {
    events: Events,
    told: Vec<Value>,
}

impl Story {
    async fn of(node: &Node, execution: &str) -> Self {
        let variables = json!({ "id": execution, "after": 0 });
        let subscribing = async {
            loop {
                match Events::of(&node.address, EVENTS, &variables).await {
                    // A busy machine may be late.
                    Err(Trouble::Gone) => sleep(LOOK).await,
                    events => return events,
                }
            }
        };
        let events = timeout(PATIENCE, subscribing).await.expect("it is answered").unwrap();
        Self { events, told: Vec::new() }
    }

    /// Waits until it is told of an event of a kind and of a step, unless it was already.
    async fn until_once(&mut self, kind: &str, step: &str) {
        if !self.told.iter().any(|event| event["type"] == kind && event["stepId"] == step) {
            self.until(kind, step).await;
        }
    }

    /// Waits until it is told of another event of a kind, and of a step where one is named.
    async fn until(&mut self, kind: &str, step: &str) {
        let listening = async {
            loop {
                let event = self.events.next().await.unwrap();
                let event = event.unwrap_or_else(|| panic!("it ended without `{kind}`"));
                let is_it = event["type"] == kind && (step.is_empty() || event["stepId"] == step);
                self.told.push(event);
                if is_it {
                    return;
                }
            }
        };
        let heard = timeout(PATIENCE, listening).await;
        heard.unwrap_or_else(|_| panic!("never told of `{kind}` {step}: {:#?}", self.told));
    }

    /// Listens to the end, and checks that it was told what the log has, all of it and once.
    async fn ends(mut self, world: &World, execution: &str) {
        self.until("finished", "").await;
        let end = timeout(PATIENCE, self.events.next()).await.expect("it is complete").unwrap();
        assert_eq!(end, None);
        let log = world.log(id(execution)).await;
        let told: Vec<_> = self.told.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        let kept: Vec<_> = log.iter().map(|recorded| recorded.seq.0).collect();
        assert_eq!(told, kept);
        assert_eq!(told, (1..=log.len() as u64).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_steers_and_watches_what_another_one_does() {
    let world = World::new(&json!({})).await;
    let (doer, other) = (world.home.serve().await, world.home.serve().await);
    tokio::join!(steer(&world, &doer, &other), stop(&world, &doer, &other));
    watch_a_take_over(&world, doer, &other).await;
}

/// Pauses, resumes, signals and approves by the other node.
async fn steer(world: &World, doer: &Node, other: &Node) {
    let call = |tool: &str, after: &str| {
        json!({ "id": tool, "name": "ledger.once", "dependsOn": after,
            "parameters": { "n": 1, "seconds": 0.3 } })
    };
    let id = doer
        .start(&json!([
            { "id": "wait", "name": "flow.wait", "parameters": { "name": "go" } },
            call("one", "wait"), call("two", "one"),
            { "id": "ask", "name": "flow.noop", "requiresApproval": true, "dependsOn": "two" },
        ]))
        .await;
    let mut story = Story::of(other, &id).await;
    story.until("step_waiting", "wait").await;
    other.control("signalExecution", &id, ", name: \"go\"").await;
    story.until("step_started", "one").await;
    other.control("pauseExecution", &id, "").await;
    story.until("paused", "").await;
    other.control("resumeExecution", &id, "").await;
    story.until("resumed", "").await;
    // Both calls may have ended before the pause.
    story.until_once("step_waiting", "ask").await;
    other.control("approveStep", &id, ", stepId: \"ask\", approved: true").await;
    story.ends(world, &id).await;
}

/// Stops by the other node what a tool of the first one is about to do.
async fn stop(world: &World, doer: &Node, other: &Node) {
    let call = json!({ "name": "ledger.read", "parameters": { "n": 1, "seconds": 8.0 } });
    let execution = doer.start(&json!([call])).await;
    let begins =
        world.until_said("it runs", |said| said.iter().any(|mark| mark.execution == execution));
    begins.await;
    let begun = Instant::now();
    other.control("cancelExecution", &execution, ", reason: \"enough\"").await;
    let story = Story::of(other, &execution).await;
    story.ends(world, &execution).await;
    assert!(begun.elapsed() < Duration::from_secs(1) + MARGIN, "{:?}", begun.elapsed());
    let head = world.store.head(id(&execution)).await.unwrap().unwrap();
    assert_eq!(head.state, ExecutionState::Cancelled);
    assert_eq!(claimers(&world.log(id(&execution)).await).len(), 1, "its own node stopped it");
    let has_ended =
        world.home.ledger().iter().any(|mark| !mark.begins && mark.execution == execution);
    assert!(!has_ended, "the tool was cut off");
}

/// Follows by one node what another one does until that is killed, and a third one goes on.
async fn watch_a_take_over(world: &World, doer: Node, other: &Node) {
    let step = |at: usize| {
        let after = at.checked_sub(1).map(|before| format!("s{before}"));
        json!({ "id": format!("s{at}"), "name": "flow.sleep", "dependsOn": after,
            "parameters": { "ms": 100 } })
    };
    let plan = doer.plan(&json!((0..STEPS).map(step).collect::<Vec<_>>())).await;
    let mut stories = Vec::new();
    for _ in 0..FOLLOWED {
        let id = doer.execute(&plan, &json!({})).await;
        stories.push((Story::of(other, &id).await, id));
    }
    let (last, _) = stories.last_mut().unwrap();
    last.until("step_succeeded", "s2").await;
    doer.kill().await;
    let third = world.home.serve().await;
    let mut taken_over = 0;
    for (story, execution) in stories {
        // Whoever comes later is told the same by somebody else.
        let latecomer = Story::of(&third, &execution).await;
        story.ends(world, &execution).await;
        latecomer.ends(world, &execution).await;
        taken_over += usize::from(claimers(&world.log(id(&execution)).await).len() > 1);
    }
    assert!(taken_over > 0, "the node was killed too late");
}
