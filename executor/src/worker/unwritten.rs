//! Executions that were put aside here, and of which the store does not say so yet.
//!
//! By their heads they are still this worker's, so nobody else looks for them. Their heads are
//! written as soon as that can be done; what comes due before is taken here, and what somebody asks
//! for, too. When the worker ends, the others find them.

use std::{collections::BTreeMap, time::Duration};

use shared::{clock::Timestamp, id::ExecutionId, store::Head};
use tokio::time::Instant;
use tracing::{debug, info};

use super::Worker;

/// How long until a head that could not be written is offered again.
const AGAIN: Duration = Duration::from_secs(5);
/// How many are kept; what is more is claimed again by the [sweep](Worker::sweep).
const MOST: usize = 4_096;

/// Heads that could not be written.
#[derive(Debug, Default)]
pub(super) struct Unwritten(BTreeMap<ExecutionId, Waiting>);

/// A head that could not be written.
#[derive(Debug)]
struct Waiting {
    head: Head,
    /// When it is offered again.
    at: Instant,
    /// When the execution comes due that had something to wait for. One that was due already was
    /// put aside because it is for others.
    due: Option<Timestamp>,
}

impl Unwritten {
    /// Keeps the head of what was put aside now.
    pub(super) fn keep(&mut self, head: Head, now: Timestamp) {
        if self.0.len() < MOST {
            let due = head.due.filter(|it| *it > now);
            self.0.insert(head.execution, Waiting { head, at: Instant::now() + AGAIN, due });
        }
    }

    /// Returns how many are kept.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the head of an execution is kept.
    pub(super) fn has(&self, id: ExecutionId) -> bool {
        self.0.contains_key(&id)
    }

    /// Forgets one that is driven again: what its driver says then is newer.
    pub(super) fn forget(&mut self, id: ExecutionId) {
        self.0.remove(&id);
    }

    /// Returns those whose time has come.
    fn due(&self, now: Timestamp) -> Vec<Head> {
        let is_due = |it: &&Waiting| it.due.is_some_and(|due| due <= now);
        self.0.values().filter(is_due).map(|it| it.head.clone()).collect()
    }

    /// Returns those that are to be offered again, the longest waiting first.
    fn ready(&self) -> Vec<Head> {
        let now = Instant::now();
        let mut ready: Vec<_> = self.0.values().filter(|it| it.at <= now).collect();
        ready.sort_by_key(|it| it.at);
        ready.into_iter().map(|it| it.head.clone()).collect()
    }

    fn put_off(&mut self, id: ExecutionId) {
        if let Some(waiting) = self.0.get_mut(&id) {
            waiting.at = Instant::now() + AGAIN;
        }
    }
}

impl Worker {
    /// Writes the heads that could not be written, and takes again what has come due meanwhile.
    pub(super) async fn write_heads(&mut self) {
        for head in self.unwritten.due(self.context.clock.now()) {
            self.claim(head.execution, head.epoch);
        }
        for head in self.unwritten.ready() {
            let id = head.execution;
            if let Err(err) = self.context.store.put_head(head).await {
                debug!(execution = %id, %err, "its head still cannot be written");
                self.unwritten.put_off(id);
                // A store that is not there is not asked for each of thousands.
                if !err.is_damage() {
                    return;
                }
            } else {
                info!(execution = %id, "its head is written: whoever is there may take it");
                self.unwritten.forget(id);
            }
        }
    }
}
