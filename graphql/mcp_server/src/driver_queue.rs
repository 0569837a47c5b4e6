//! Drives executions that calls started, even after the callers have disconnected.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
};

use client::drive::Drive;
use shared::id::ExecutionId;
use tokio::{
    sync::mpsc,
    task::{Id, JoinSet},
};

/// Maximum number of executions that run at the same time. Further executions wait in the queue.
const MAX_RUNNING_EXECUTIONS: usize = 1_000;
/// Maximum number of waiting executions. Any worker can claim further executions from the store.
const MAX_WAITING_EXECUTIONS: usize = 100_000;

#[derive(Clone, Debug)]
pub(crate) struct DriveQueue(mpsc::UnboundedSender<ExecutionId>);

pub(crate) struct QueueRunner {
    drive: Drive,
    incoming: mpsc::UnboundedReceiver<ExecutionId>,
}

pub(crate) fn drive_queue(drive: Drive) -> (DriveQueue, QueueRunner) {
    let (sender, incoming) = mpsc::unbounded_channel();
    (DriveQueue(sender), QueueRunner { drive, incoming })
}

impl DriveQueue {
    /// Adds an execution to the queue. Does not wait until the execution finishes, because that can
    /// depend on the caller's next call, such as an approval.
    pub(crate) fn push(&self, id: ExecutionId) {
        // Sending fails only when the process ends. The execution is in the store, so a later
        // worker can claim it.
        let _ = self.0.send(id);
    }
}

impl QueueRunner {
    pub(crate) async fn run(mut self) -> Infallible {
        let mut tasks = JoinSet::new();
        let mut backlog = Backlog::default();
        loop {
            while tasks.len() < MAX_RUNNING_EXECUTIONS
                && let Some(id) = backlog.next()
            {
                let drive = self.drive.clone();
                let task = tasks.spawn(async move { drive.drive_to_end(id).await });
                backlog.tasks.insert(task.id(), id);
            }
            tokio::select! {
                Some(id) = self.incoming.recv() => backlog.push_new(id),
                Some(ended) = tasks.join_next_with_id() => {
                    backlog.remove_task(match ended {
                        Ok((task, ())) => task,
                        Err(err) => {
                            tracing::error!(%err, "the task that drives an execution panicked");
                            err.id()
                        }
                    });
                }
                else => std::future::pending::<()>().await,
            }
        }
    }
}

#[derive(Debug, Default)]
struct Backlog {
    waiting: VecDeque<ExecutionId>,
    /// Running and waiting executions, so that none is driven twice.
    queued_ids: BTreeSet<ExecutionId>,
    tasks: BTreeMap<Id, ExecutionId>,
}

impl Backlog {
    fn push_new(&mut self, id: ExecutionId) {
        if self.waiting.len() >= MAX_WAITING_EXECUTIONS {
            tracing::warn!(execution = %id, "this process drives too many executions to drive one \
                more: start `faber worker` to continue this execution");
        } else if self.queued_ids.insert(id) {
            self.waiting.push_back(id);
        }
    }

    fn next(&mut self) -> Option<ExecutionId> {
        self.waiting.pop_front()
    }

    fn remove_task(&mut self, task: Id) {
        if let Some(id) = self.tasks.remove(&task) {
            self.queued_ids.remove(&id);
        }
    }
}
