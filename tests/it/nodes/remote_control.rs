//! Requests to one node control and watch executions that another node runs.

use std::time::Duration;

use serde_json::{Value, json};
use shared::execution::ExecutionState;
use tokio::time::{Instant, sleep, timeout};

use super::{
    cluster::{Cluster, execution_id, list_claimers},
    node::{MAX_WAIT, Node, POLL_INTERVAL},
    workspace::DEFAULT_MARGIN,
};
use crate::harness::api_client::{EventSubscription, RequestFailure};

const EVENTS_SUBSCRIPTION: &str = "subscription ($id: ID!, $after: Int) {
    executionEvents(executionId: $id, afterSeq: $after) { seq type stepId attempt data } }";
/// Number of executions that are followed while their node is killed.
const FOLLOWED_EXECUTION_COUNT: usize = 6;
const STEPS_PER_EXECUTION: usize = 40;

struct Subscriber {
    events: EventSubscription,
    received: Vec<Value>,
}

impl Subscriber {
    async fn subscribe(node: &Node, execution: &str) -> Self {
        let variables = json!({ "id": execution, "after": 0 });
        let subscribing = async {
            loop {
                match EventSubscription::subscribe(&node.address, EVENTS_SUBSCRIPTION, &variables)
                    .await
                {
                    // On a busy machine the server can be late, so the client connects again.
                    Err(RequestFailure::ServerGone) => sleep(POLL_INTERVAL).await,
                    events => return events,
                }
            }
        };
        let events = timeout(MAX_WAIT, subscribing).await.expect("the node answers").unwrap();
        Self { events, received: Vec::new() }
    }

    /// Waits for an event of this kind and step, unless it was received before.
    async fn wait_for_once(&mut self, kind: &str, step: &str) {
        if !self.received.iter().any(|event| event["type"] == kind && event["stepId"] == step) {
            self.wait_for(kind, step).await;
        }
    }

    /// Waits for another event of this kind, and of `step` unless that is empty.
    async fn wait_for(&mut self, kind: &str, step: &str) {
        let listening = async {
            loop {
                let event = self.events.next().await.unwrap();
                let event = event.unwrap_or_else(|| panic!("the stream ended without `{kind}`"));
                let is_expected =
                    event["type"] == kind && (step.is_empty() || event["stepId"] == step);
                self.received.push(event);
                if is_expected {
                    return;
                }
            }
        };
        let heard = timeout(MAX_WAIT, listening).await;
        heard.unwrap_or_else(|_| panic!("never received `{kind}` {step}: {:#?}", self.received));
    }

    /// Follows the execution until it finishes, and checks that the subscriber received every event
    /// of the log exactly once.
    async fn assert_receives_whole_log(mut self, cluster: &Cluster, execution: &str) {
        self.wait_for("finished", "").await;
        let end =
            timeout(MAX_WAIT, self.events.next()).await.expect("the stream completes").unwrap();
        assert_eq!(end, None);
        let log = cluster.read_log(execution_id(execution)).await;
        let received: Vec<_> =
            self.received.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
        let kept: Vec<_> = log.iter().map(|recorded| recorded.seq.0).collect();
        assert_eq!(received, kept);
        assert_eq!(received, (1..=log.len() as u64).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_controls_and_watches_executions_of_another_node() {
    let cluster = Cluster::new(&json!({})).await;
    let (owner_node, other_node) =
        (cluster.workspace.start_server().await, cluster.workspace.start_server().await);
    tokio::join!(
        control_through_other_node(&cluster, &owner_node, &other_node),
        cancel_through_other_node(&cluster, &owner_node, &other_node)
    );
    watch_takeover(&cluster, owner_node, &other_node).await;
}

async fn control_through_other_node(cluster: &Cluster, owner_node: &Node, other_node: &Node) {
    let call = |tool: &str, after: &str| {
        json!({ "id": tool, "name": "ledger.once", "dependsOn": after,
            "parameters": { "n": 1, "seconds": 0.3 } })
    };
    let id = owner_node
        .start(&json!([
            { "id": "wait", "name": "flow.wait", "parameters": { "name": "go" } },
            call("one", "wait"), call("two", "one"),
            { "id": "ask", "name": "flow.noop", "requiresApproval": true, "dependsOn": "two" },
        ]))
        .await;
    let mut subscriber = Subscriber::subscribe(other_node, &id).await;
    subscriber.wait_for("step_waiting", "wait").await;
    other_node.run_mutation("signalExecution", &id, ", name: \"go\"").await;
    subscriber.wait_for("step_started", "one").await;
    other_node.run_mutation("pauseExecution", &id, "").await;
    subscriber.wait_for("paused", "").await;
    other_node.run_mutation("resumeExecution", &id, "").await;
    subscriber.wait_for("resumed", "").await;
    // Perhaps both calls have ended before the pause, and the subscriber has already received this
    // event.
    subscriber.wait_for_once("step_waiting", "ask").await;
    other_node.run_mutation("approveStep", &id, ", stepId: \"ask\", approved: true").await;
    subscriber.assert_receives_whole_log(cluster, &id).await;
}

async fn cancel_through_other_node(cluster: &Cluster, owner_node: &Node, other_node: &Node) {
    let call = json!({ "name": "ledger.read", "parameters": { "n": 1, "seconds": 8.0 } });
    let execution = owner_node.start(&json!([call])).await;
    let is_start = cluster.wait_for_ledger("the tool runs", |entries| {
        entries.iter().any(|entry| entry.execution == execution)
    });
    is_start.await;
    let started_at = Instant::now();
    other_node.run_mutation("cancelExecution", &execution, ", reason: \"enough\"").await;
    let subscriber = Subscriber::subscribe(other_node, &execution).await;
    subscriber.assert_receives_whole_log(cluster, &execution).await;
    assert!(
        started_at.elapsed() < Duration::from_secs(1) + DEFAULT_MARGIN,
        "{:?}",
        started_at.elapsed()
    );
    let head = cluster.store.head(execution_id(&execution)).await.unwrap().unwrap();
    assert_eq!(head.state, ExecutionState::Cancelled);
    assert_eq!(
        list_claimers(&cluster.read_log(execution_id(&execution)).await).len(),
        1,
        "its own node cancelled it"
    );
    let has_ended = cluster
        .workspace
        .complete_ledger_lines()
        .iter()
        .any(|entry| !entry.is_start && entry.execution == execution);
    assert!(!has_ended, "the tool was stopped");
}

/// Follows executions through one node while the node that owns them is killed and a third node
/// takes over.
async fn watch_takeover(cluster: &Cluster, owner_node: Node, other_node: &Node) {
    let step = |index: usize| {
        let after = index.checked_sub(1).map(|before| format!("s{before}"));
        json!({ "id": format!("s{index}"), "name": "flow.sleep", "dependsOn": after,
            "parameters": { "ms": 100 } })
    };
    let plan = owner_node
        .create_plan(&json!((0..STEPS_PER_EXECUTION).map(step).collect::<Vec<_>>()))
        .await;
    let mut subscribers = Vec::new();
    for _ in 0..FOLLOWED_EXECUTION_COUNT {
        let id = owner_node.execute(&plan, &json!({})).await;
        subscribers.push((Subscriber::subscribe(other_node, &id).await, id));
    }
    let (last, _) = subscribers.last_mut().unwrap();
    last.wait_for("step_succeeded", "s2").await;
    owner_node.kill().await;
    let third = cluster.workspace.start_server().await;
    let mut taken_over = 0;
    for (subscriber, execution) in subscribers {
        // A subscriber that connects later, and to another node, receives the same events.
        let latecomer = Subscriber::subscribe(&third, &execution).await;
        subscriber.assert_receives_whole_log(cluster, &execution).await;
        latecomer.assert_receives_whole_log(cluster, &execution).await;
        taken_over +=
            usize::from(list_claimers(&cluster.read_log(execution_id(&execution)).await).len() > 1);
    }
    assert!(taken_over > 0, "the node was killed too late");
}
