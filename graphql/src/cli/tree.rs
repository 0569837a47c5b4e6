//! An execution and those that its steps begin, watched as one tree.

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
    client::Client,
    events::{Board, News},
    failure::Failure,
};

/// The most executions that are followed at once; further ones have their turn as those end.
const FOLLOWED: usize = 64;
/// How often an execution is looked for that a step is about to begin.
const LOOKS: usize = 200;
/// How long between two looks.
const LOOK: Duration = Duration::from_millis(50);

const EVENTS: &str = "subscription($id: ID!, $after: Int) { executionEvents(executionId: $id, \
     afterSeq: $after) { seq at type stepId attempt data(maxBytes: 0) } }";

/// An execution and those that its steps begin.
pub(super) struct Tree {
    root: String,
    nodes: BTreeMap<String, Node>,
    /// Those that were begun while too many were followed.
    queue: VecDeque<(String, String)>,
    /// The same, to be found.
    queued: BTreeSet<String>,
}

struct Node {
    board: Board,
    /// What stands before the names of its steps.
    prefix: String,
}

impl Node {
    fn of(id: &str, prefix: String) -> Self {
        Self { board: Board::of(id), prefix }
    }
}

/// The events of a tree, each with its execution.
pub(super) type Events = SelectAll<BoxStream<'static, (String, Result<Value, Failure>)>>;

impl Tree {
    pub(super) fn new(root: String) -> Self {
        let nodes = BTreeMap::from([(root.clone(), Node::of(&root, String::new()))]);
        Self { root, nodes, queue: VecDeque::new(), queued: BTreeSet::new() }
    }

    /// Returns the execution that everything else is part of.
    pub(super) fn root(&self) -> &Board {
        &self.nodes[&self.root].board
    }

    /// Returns the position up to which the events of an execution were seen.
    pub(super) fn seq_of(&self, id: &str) -> u64 {
        self.nodes.get(id).map_or(0, |node| node.board.seq)
    }

    /// Subscribes to whatever is not over, behind what was seen.
    pub(super) fn subscribe(&self, client: &Client) -> Events {
        let mut events = SelectAll::new();
        for (id, node) in &self.nodes {
            events.push(self.events(client, id, node.board.seq));
        }
        events
    }

    fn events(
        &self,
        client: &Client,
        id: &str,
        after: u64,
    ) -> BoxStream<'static, (String, Result<Value, Failure>)> {
        let (is_root, id, client) = (id == self.root, id.to_owned(), client.clone());
        let (of, variables) = (id.clone(), json!({ "id": id, "after": after }));
        let ready = async move {
            if !is_root {
                await_begun(&client, &id).await;
            }
            client.subscribe(EVENTS, variables)
        };
        let events = stream::once(ready).flatten();
        // One that was never begun after all has no events.
        let is_there = move |it: &Result<Value, Failure>| {
            let is_missing = matches!(it, Err(failure) if failure.code == "NOT_FOUND");
            std::future::ready(is_root || !is_missing)
        };
        events.filter(is_there).map(move |it| (of.clone(), it)).boxed()
    }

    /// Moves past an event. Returns what to tell, and follows what a step began.
    pub(super) fn apply(
        &mut self,
        client: &Client,
        events: &mut Events,
        (id, event): (&str, &Value),
    ) -> Option<News> {
        let node = self.nodes.get_mut(id)?;
        let news = node.board.apply(event);
        let prefix = node.prefix.clone();
        let data = &event["data"];
        if let Some(child) = data["childExecutionId"].as_str() {
            let step = event["stepId"].as_str().unwrap_or_default();
            let item = data["index"].as_u64().map(|it| format!("[{it}]")).unwrap_or_default();
            self.queued.insert(child.to_owned());
            self.queue.push_back((child.to_owned(), format!("{prefix}{step}{item} › ")));
        }
        if node_is_over(&self.nodes, id) && id != self.root {
            self.nodes.remove(id);
        }
        while self.nodes.len() < FOLLOWED
            && let Some((child, prefix)) = self.queue.pop_front()
        {
            self.queued.remove(&child);
            events.push(self.events(client, &child, 0));
            let node = Node::of(&child, prefix);
            self.nodes.insert(child, node);
        }
        news.map(|it| it.within(&prefix))
    }

    /// Returns whether only a person can make something of it go on.
    pub(super) fn waits_for_a_person(&self) -> bool {
        self.waits(&self.root, 0)
    }

    fn waits(&self, id: &str, depth: u32) -> bool {
        // Of one that has to wait until it is followed, only its state is known to whoever asks.
        let Some(node) = self.nodes.get(id) else { return self.queued.contains(id) };
        depth <= shared::limits::DEPTH
            && node.board.waits_for_a_person(|child| self.waits(child, depth + 1))
    }

    /// Returns whether it only waits, as far as is seen, for a person or for what is not followed:
    /// of that nothing is heard, so that it has to be looked at again and again.
    pub(super) fn waits_unseen(&self) -> bool {
        !self.queued.is_empty() && self.waits_for_a_person()
    }

    /// Returns the executions that steps wait for and that were begun while too many were followed.
    pub(super) fn queued(&self) -> impl Iterator<Item = &str> {
        let awaited: BTreeSet<&str> =
            self.nodes.values().flat_map(|it| it.board.children()).collect();
        self.queue.iter().map(|(id, _)| id.as_str()).filter(move |it| awaited.contains(it))
    }

    /// Returns the steps that wait for a person, each with its execution.
    pub(super) fn persons(&self) -> Vec<(String, String)> {
        let of = |(id, node): (&String, &Node)| {
            let id = id.clone();
            let steps: Vec<_> = node.board.persons().map(str::to_owned).collect();
            steps.into_iter().map(move |step| (id.clone(), step))
        };
        self.nodes.iter().flat_map(of).collect()
    }
}

fn node_is_over(nodes: &BTreeMap<String, Node>, id: &str) -> bool {
    nodes.get(id).is_some_and(|it| it.board.is_over())
}

/// Waits until an execution is there that a step is about to begin, but not for ever.
async fn await_begun(client: &Client, id: &str) {
    let query = "query($id: ID!) { execution(executionId: $id) { state } }";
    for _ in 0..LOOKS {
        match client.field(query, json!({ "id": id })).boxed().await {
            Ok(Value::Null) => time::sleep(LOOK).await,
            _ => return,
        }
    }
}
