//! Heads of parked executions that the store has not accepted yet. The stored heads still name this
//! worker as owner, so no other worker claims these executions.

use std::{collections::BTreeMap, time::Duration};

use shared::{clock::Timestamp, id::ExecutionId, store::ExecutionHead};
use tokio::time::Instant;
use tracing::{debug, info};

use super::Worker;

const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Maximum number of heads that are kept. A later scan finds executions whose head was dropped.
const MAX_HEADS: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct PendingHeads(BTreeMap<ExecutionId, PendingHead>);

#[derive(Debug)]
struct PendingHead {
    head: ExecutionHead,
    retry_at: Instant,
    /// The time when the execution becomes due. `None` if it waits only for a command, or if it was
    /// due already and was released to other workers.
    due: Option<Timestamp>,
}

impl PendingHeads {
    pub(super) fn push(&mut self, head: ExecutionHead, now: Timestamp) {
        if self.0.len() < MAX_HEADS {
            let due = head.due.filter(|due| *due > now);
            let retry_at = Instant::now() + RETRY_DELAY;
            self.0.insert(head.execution, PendingHead { head, retry_at, due });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, id: ExecutionId) -> bool {
        self.0.contains_key(&id)
    }

    /// Removes the head of an execution that is driven again. Its driver writes a newer head.
    pub(super) fn remove(&mut self, id: ExecutionId) {
        self.0.remove(&id);
    }

    fn due_heads(&self, now: Timestamp) -> Vec<ExecutionHead> {
        let due = self.0.values().filter(|pending| pending.due.is_some_and(|due| due <= now));
        due.map(|pending| pending.head.clone()).collect()
    }

    fn retryable_heads(&self) -> Vec<ExecutionHead> {
        let now = Instant::now();
        let mut retryable_heads: Vec<_> =
            self.0.values().filter(|pending| pending.retry_at <= now).collect();
        retryable_heads.sort_by_key(|pending| pending.retry_at);
        retryable_heads.into_iter().map(|pending| pending.head.clone()).collect()
    }

    fn postpone(&mut self, id: ExecutionId) {
        if let Some(pending) = self.0.get_mut(&id) {
            pending.retry_at = Instant::now() + RETRY_DELAY;
        }
    }
}

impl Worker {
    pub(super) async fn write_heads(&mut self) {
        for head in self.backlog.pending_heads.due_heads(self.context.clock.now()) {
            self.claim_execution(head.execution, head.epoch);
        }
        for head in self.backlog.pending_heads.retryable_heads() {
            let id = head.execution;
            if let Err(err) = self.context.store.put_head(head).await {
                debug!(execution = %id, %err, "the head of the execution still cannot be written");
                self.backlog.pending_heads.postpone(id);
                // Stops here, because an unavailable store would refuse the other heads, too.
                if !err.is_permanent() {
                    return;
                }
            } else {
                info!(execution = %id, "the head of the execution is written, so any worker may claim it");
                self.backlog.pending_heads.remove(id);
            }
        }
    }
}
