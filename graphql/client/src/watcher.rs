//! Watches an execution and its children until it is finished or needs a person. [`Watcher::next`]
//! loses no event if its future is dropped.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use serde::Deserialize;
use shared::{execution::ExecutionState, id::ExecutionId, store::Store};
use tokio::time::{self, Instant, Interval, MissedTickBehavior};

use crate::{
    Client,
    event_tree::{EventTree, Events},
    failure::Failure,
    view::news::News,
};

/// Number of reconnects without a new event of the watched execution after which the server counts
/// as unavailable. Events of children do not count.
const MAX_RECONNECTS: usize = 5;
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
const STATE_POLL_INTERVAL: Duration = Duration::from_secs(1);

pub struct Watcher<'a> {
    client: &'a Client,
    store: Option<&'a Arc<dyn Store>>,
    id: String,
    tree: EventTree,
    connection: Connection,
    poll_timer: Interval,
    reconnects: Reconnects,
}

struct Reconnects {
    left: usize,
    seq_at_loss: u64,
}

impl Reconnects {
    fn new() -> Self {
        Self { left: MAX_RECONNECTS, seq_at_loss: 0 }
    }

    fn renew_after_events(&mut self, seq: u64) {
        if seq > self.seq_at_loss {
            self.left = MAX_RECONNECTS;
        }
        self.seq_at_loss = seq;
    }

    /// Uses one reconnect. Returns `false` if none is left.
    fn use_one(&mut self) -> bool {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

enum Connection {
    Open(Events),
    Lost { retry_at: Instant },
}

pub enum Update {
    News {
        execution: String,
        news: News,
    },
    Event,
    /// The server closed the stream of events. The watcher subscribes again.
    Ended,
    Poll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionPhase {
    Running,
    Finished,
    NeedsPerson,
}

#[derive(Deserialize)]
struct ExecutionPosition {
    state: ExecutionState,
    seq: u64,
}

impl<'a> Watcher<'a> {
    /// Makes a watcher. Without a store, the watcher does not know which answers wait in inboxes.
    pub fn new(client: &'a Client, store: Option<&'a Arc<dyn Store>>, id: String) -> Self {
        let tree = EventTree::new(id.clone());
        let connection = Connection::Open(tree.subscribe(client));
        let mut poll_timer = time::interval(STATE_POLL_INTERVAL);
        poll_timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { client, store, id, tree, connection, poll_timer, reconnects: Reconnects::new() }
    }

    pub fn tree(&self) -> &EventTree {
        &self.tree
    }

    pub async fn next(&mut self) -> Result<Update, Failure> {
        let needs_polling = self.tree.needs_polling();
        loop {
            let events = match &mut self.connection {
                Connection::Open(events) => events,
                Connection::Lost { retry_at } => {
                    time::sleep_until(*retry_at).await;
                    self.connection = Connection::Open(self.tree.subscribe(self.client));
                    continue;
                }
            };
            let next = tokio::select! {
                next = events.next() => next,
                _ = self.poll_timer.tick(), if needs_polling => return Ok(Update::Poll),
            };
            let Some((execution, event)) = next else {
                self.lose_connection();
                return Ok(Update::Ended);
            };
            let news = self.tree.apply(self.client, events, &execution, &event?);
            return Ok(news.map_or(Update::Event, |news| Update::News { execution, news }));
        }
    }

    /// Subscribes again after a failure. Returns the failure if it is final, or after too many
    /// reconnects without an event.
    pub fn reconnect_after(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.code != "SERVER_UNAVAILABLE" {
            return Err(failure);
        }
        self.lose_connection();
        if self.reconnects.use_one() { Ok(()) } else { Err(failure) }
    }

    fn lose_connection(&mut self) {
        self.reconnects.renew_after_events(self.tree.root().seq);
        self.connection = Connection::Lost { retry_at: Instant::now() + RECONNECT_DELAY };
    }

    /// Returns `true` if the execution is finished. Callers need this after [`Update::Ended`],
    /// because the stream can end before the event `finished`.
    pub async fn is_finished(&mut self) -> Result<bool, Failure> {
        let found = load_position(self.client, &self.id).await?;
        Ok(found.is_some_and(|found| found.state.is_finished()))
    }

    /// Returns the phase of the execution after the updates so far. `has_reader` returns whether a
    /// worker will read the inbox of an execution.
    pub async fn load_phase(
        &mut self,
        has_reader: impl AsyncFn(ExecutionId) -> Result<bool, Failure>,
    ) -> Result<ExecutionPhase, Failure> {
        let Self { client, store, tree, .. } = self;
        if tree.root().is_finished {
            return Ok(ExecutionPhase::Finished);
        }
        let needs_person =
            tree.waits_for_person() && is_unanswered(client, *store, tree, has_reader).await?;
        Ok(if needs_person { ExecutionPhase::NeedsPerson } else { ExecutionPhase::Running })
    }
}

/// The append that records an answer also removes it from the inbox, so this function reads the
/// inbox before the state.
async fn is_unanswered(
    client: &Client,
    store: Option<&Arc<dyn Store>>,
    tree: &EventTree,
    has_reader: impl AsyncFn(ExecutionId) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    for id in tree.waiting_children() {
        if !load_position(client, id).await?.is_some_and(|found| found.waits_for_person()) {
            return Ok(false);
        }
    }
    for id in tree.asking_executions() {
        let is_answered = match (store, id.parse()) {
            (Some(store), Ok(id)) if !store.list_commands(Some(id)).await?.is_empty() => {
                has_reader(id).await?
            }
            _ => false,
        };
        // If this process has not read the last events yet, one of them could be the answer.
        let read = tree.last_seq_of(&id);
        let is_left = |found: ExecutionPosition| found.waits_for_person() && found.seq <= read;
        if is_answered || !load_position(client, &id).await?.is_some_and(is_left) {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn load_position(client: &Client, id: &str) -> Result<Option<ExecutionPosition>, Failure> {
    client.query_execution(id, "state seq").await
}

impl ExecutionPosition {
    fn waits_for_person(&self) -> bool {
        self.state == ExecutionState::Waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_after_the_last_reconnect_allow_more_reconnects() {
        let mut reconnects = Reconnects::new();
        let use_all = |reconnects: &mut Reconnects| (0..9).filter(|_| reconnects.use_one()).count();
        reconnects.renew_after_events(3);
        assert_eq!(use_all(&mut reconnects), MAX_RECONNECTS);
        reconnects.renew_after_events(3);
        assert_eq!(use_all(&mut reconnects), 0);
        reconnects.renew_after_events(4);
        assert_eq!(use_all(&mut reconnects), MAX_RECONNECTS);
    }
}
