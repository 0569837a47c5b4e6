//! Finished executions that need a replan. The queue holds ids only, because a model works for
//! minutes, and the execution frees its memory slot meanwhile.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use shared::{
    execution::Execution,
    id::ExecutionId,
    store::{ExecutionHead, StoreError},
};
use tokio::{task::JoinSet, time::Instant};
use tracing::{error, warn};

use super::{DriveError, DriverStop, Worker, WorkerContext, load_existing};

/// Maximum number of replans that run at the same time. Keeps capacity of the model's provider free
/// for other requests.
const MAX_RUNNING: usize = 4;
/// Maximum number of executions that wait. A later scan finds further executions.
const MAX_WAITING: usize = 4_096;
/// Delay before the first retry. Doubles with each retry, up to [`MAX_RETRY_DELAY`].
const RETRY_DELAY: Duration = Duration::from_secs(2);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(5);

pub(super) type ReplanEnded = (ExecutionId, Result<(), DriveError>);

#[derive(Debug, Default)]
pub(super) struct ReplanQueue {
    waiting: BTreeMap<ExecutionId, WaitingReplan>,
    /// The running replans, each with the number of its earlier failures.
    running: BTreeMap<ExecutionId, u32>,
    tasks: JoinSet<ReplanEnded>,
}

#[derive(Debug)]
struct WaitingReplan {
    due_at: Instant,
    failure_count: u32,
}

impl ReplanQueue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    pub(super) fn contains(&self, id: ExecutionId) -> bool {
        self.waiting.contains_key(&id) || self.running.contains_key(&id)
    }

    pub(super) async fn next(&mut self) -> Option<ReplanEnded> {
        let ended = self.tasks.join_next().await?;
        Some(ended.expect("panics are caught"))
    }

    pub(super) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }

    fn push(&mut self, id: ExecutionId, failure_count: u32) {
        if self.waiting.len() < MAX_WAITING {
            let delay = match failure_count {
                0 => Duration::ZERO,
                n => RETRY_DELAY.saturating_mul(1 << (n - 1).min(15)).min(MAX_RETRY_DELAY),
            };
            self.waiting
                .insert(id, WaitingReplan { due_at: Instant::now() + delay, failure_count });
        }
    }

    fn start_due(&mut self) -> Vec<ExecutionId> {
        let now = Instant::now();
        let due = self.waiting.iter().filter(|(_, entry)| entry.due_at <= now);
        let mut due: Vec<_> = due.map(|(id, entry)| (entry.due_at, *id)).collect();
        due.sort();
        due.truncate(MAX_RUNNING.saturating_sub(self.running.len()));
        for (_, id) in &due {
            let failure_count = self.waiting.remove(id).map_or(0, |entry| entry.failure_count);
            self.running.insert(*id, failure_count);
        }
        due.into_iter().map(|(_, id)| id).collect()
    }
}

impl Worker {
    pub(super) fn queue_replan(&mut self, id: ExecutionId) {
        if self.context.replanner.get().is_some() && !self.replan_queue.contains(id) {
            self.replan_queue.push(id, 0);
            self.start_replans();
        }
    }

    pub(super) fn start_replans(&mut self) {
        for id in self.replan_queue.start_due() {
            let context = Arc::clone(&self.context);
            self.replan_queue.tasks.spawn(async move {
                let replan = AssertUnwindSafe(replan(&context, id)).catch_unwind();
                let lost = || StoreError::Unavailable("the replan panicked".to_owned());
                (id, replan.await.unwrap_or_else(|_| Err(lost().into())))
            });
        }
    }

    pub(super) fn record_replan_end(&mut self, id: ExecutionId, result: Result<(), DriveError>) {
        let failure_count = self.replan_queue.running.remove(&id).unwrap_or_default();
        match result {
            Ok(()) => (),
            Err(err) if err.is_damage() => {
                error!(execution = %id, %err, "this execution cannot be replanned; other executions are not affected");
                self.note_damage(id);
            }
            Err(err) => {
                warn!(execution = %id, %err, "the replan failed, will retry");
                self.replan_queue.push(id, failure_count.saturating_add(1));
            }
        }
        self.start_replans();
    }
}

async fn replan(context: &WorkerContext, id: ExecutionId) -> Result<(), DriveError> {
    let Some(replanner) = context.replanner.get() else { return Ok(()) };
    let ended = load_existing(&*context.store, id).await?;
    if ended.replan_cause().is_some() {
        replanner.replan(&ended).await?;
    }
    Ok(context.store.put_head(ExecutionHead::from_execution(&ended, None, None)).await?)
}

/// Takes ownership of a finished execution that needs a replan, so that other workers leave the
/// replan to this worker. Gives up ownership of any other execution.
pub(super) async fn keep_for_replan(
    context: &WorkerContext,
    ended: &Execution,
) -> Result<DriverStop, DriveError> {
    let head = context.store.head(ended.id()).await?;
    // Queues no replan for a finished execution without an owner, because the execution was
    // replanned or needs no replan.
    let is_settled = head.is_some_and(|head| head.state.is_finished() && head.owner.is_none());
    let needs_replan = ended.replan_cause().is_some() && !is_settled;
    let owner = needs_replan.then_some(context.worker);
    context.store.put_head(ExecutionHead::from_execution(ended, owner, None)).await?;
    Ok(if needs_replan { DriverStop::NeedsReplan } else { DriverStop::Finished })
}

#[cfg(test)]
mod tests;
