//! The events of an execution and of its children, as one stream.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use futures::{
    FutureExt, StreamExt,
    stream::{self, BoxStream, SelectAll},
};
use serde_json::{Value, json};
use tokio::time;

use super::{
    failure::Failure,
    view::{
        format::format_step_name,
        news::{ExecutionView, News},
    },
};
use crate::{Client, types::Event};

/// Maximum number of executions with a subscription. Other children wait in a queue.
const MAX_SUBSCRIPTIONS: usize = 64;
/// Maximum number of polls for a new child. Polling is needed because the event with the id of the
/// child is recorded before the child is created.
const CREATION_POLLS: usize = 200;
const CREATION_POLL_INTERVAL: Duration = Duration::from_millis(50);

pub struct EventTree {
    root: String,
    nodes: BTreeMap<String, Node>,
    queue: VecDeque<(String, String)>,
    queued_ids: BTreeSet<String>,
}

struct Node {
    view: ExecutionView,
    /// The path of this execution. It is put before the names of the execution's steps.
    prefix: String,
}

impl Node {
    fn new(id: &str, prefix: String) -> Self {
        Self { view: ExecutionView::new(id), prefix }
    }
}

pub type Events = SelectAll<BoxStream<'static, (String, Result<Event, Failure>)>>;

impl EventTree {
    pub fn new(root: String) -> Self {
        let nodes = BTreeMap::from([(root.clone(), Node::new(&root, String::new()))]);
        Self { root, nodes, queue: VecDeque::new(), queued_ids: BTreeSet::new() }
    }

    pub fn root(&self) -> &ExecutionView {
        &self.nodes[&self.root].view
    }

    pub fn last_seq_of(&self, id: &str) -> u64 {
        self.nodes.get(id).map_or(0, |node| node.view.seq)
    }

    /// Subscribes to the executions of the tree, except those in the queue. Each subscription
    /// starts after the last applied event.
    pub fn subscribe(&self, client: &Client) -> Events {
        let mut events = SelectAll::new();
        for (id, node) in &self.nodes {
            events.push(self.subscribe_to(client, id, node.view.seq));
        }
        events
    }

    fn subscribe_to(
        &self,
        client: &Client,
        id: &str,
        after: u64,
    ) -> BoxStream<'static, (String, Result<Event, Failure>)> {
        let (is_root, id, client) = (id == self.root, id.to_owned(), client.clone());
        let event_owner = id.clone();
        let subscribed = async move {
            if !is_root {
                await_created(&client, &id).await;
            }
            let arguments = [("executionId: ID!", json!(id)), ("afterSeq: Int", json!(after))];
            client.subscribe("executionEvents", &arguments, Event::FIELDS)
        };
        // A child that does not exist is not an error, because Faber can stop before it creates the
        // child.
        let exists = move |event: &Result<Event, Failure>| {
            let is_missing = matches!(event, Err(failure) if failure.code == "NOT_FOUND");
            std::future::ready(is_root || !is_missing)
        };
        let events = stream::once(subscribed).flatten().filter(exists);
        events.map(move |event| (event_owner.clone(), event)).boxed()
    }

    pub fn apply(
        &mut self,
        client: &Client,
        events: &mut Events,
        id: &str,
        event: &Event,
    ) -> Option<News> {
        let node = self.nodes.get_mut(id)?;
        let news = node.view.apply(event);
        let prefix = node.prefix.clone();
        if node.view.is_finished && id != self.root {
            self.nodes.remove(id);
        }
        if let Some(child) = event.data.child_execution_id.as_deref() {
            let step =
                format_step_name(event.step_id.as_deref().unwrap_or_default(), event.data.index);
            self.queued_ids.insert(child.to_owned());
            self.queue.push_back((child.to_owned(), format!("{prefix}{step} › ")));
        }
        while self.nodes.len() < MAX_SUBSCRIPTIONS
            && let Some((child, prefix)) = self.queue.pop_front()
        {
            self.queued_ids.remove(&child);
            events.push(self.subscribe_to(client, &child, 0));
            let node = Node::new(&child, prefix);
            self.nodes.insert(child, node);
        }
        news.map(|news| news.with_prefix(&prefix))
    }

    pub fn waits_for_person(&self) -> bool {
        self.has_waiting_descendant(&self.root, 0)
    }

    fn has_waiting_descendant(&self, id: &str, depth: u32) -> bool {
        // The tree has no events of queued executions, so the caller checks their states.
        let Some(node) = self.nodes.get(id) else { return self.queued_ids.contains(id) };
        depth <= shared::limits::ANCESTORS
            && node.view.waits_for_person(|child| self.has_waiting_descendant(child, depth + 1))
    }

    /// Returns `true` if executions are queued and all other executions wait for a person. The tree
    /// has no events of queued executions, so the caller polls their states.
    pub fn needs_polling(&self) -> bool {
        !self.queued_ids.is_empty() && self.waits_for_person()
    }

    pub fn waiting_children(&self) -> impl Iterator<Item = &str> {
        let awaited: BTreeSet<&str> =
            self.nodes.values().flat_map(|node| node.view.children()).collect();
        self.queue.iter().map(|(id, _)| id.as_str()).filter(move |id| awaited.contains(id))
    }

    pub fn waiting_steps(&self) -> Vec<(String, String)> {
        let steps_of_node = |(id, node): (&String, &Node)| {
            let steps: Vec<_> =
                node.view.waiting_steps().map(|step| (id.clone(), step.to_owned())).collect();
            steps
        };
        self.nodes.iter().flat_map(steps_of_node).collect()
    }

    pub fn asking_executions(&self) -> BTreeSet<String> {
        self.waiting_steps().into_iter().map(|(id, _)| id).collect()
    }
}

async fn await_created(client: &Client, id: &str) {
    for _ in 0..CREATION_POLLS {
        let found = client.query_execution::<Value>(id, "state").boxed().await;
        match found {
            Ok(Value::Null) => time::sleep(CREATION_POLL_INTERVAL).await,
            _ => return,
        }
    }
}
