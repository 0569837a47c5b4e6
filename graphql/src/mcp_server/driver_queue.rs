//! Drives executions that calls started, also after their callers leave.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
};

use shared::id::ExecutionId;
use tokio::{
    sync::mpsc,
    task::{Id, JoinSet},
};

use crate::cli::drive::Drive;

/// The most executions that run at once. Others wait.
const DRIVEN: usize = 1_000;
/// The most waiting executions. Any worker can claim more of them from the store.
const WAITING: usize = 100_000;

/// The sending end of the queue.
#[derive(Clone, Debug)]
pub(crate) struct Drivers(mpsc::UnboundedSender<ExecutionId>);

/// The receiving end of the queue.
pub(crate) struct Driving {
    drive: Drive,
    wanted: mpsc::UnboundedReceiver<ExecutionId>,
}

/// Returns both ends of the queue.
pub(crate) fn drivers(drive: Drive) -> (Drivers, Driving) {
    let (sender, wanted) = mpsc::unbounded_channel();
    (Drivers(sender), Driving { drive, wanted })
}

impl Drivers {
    /// Hands an execution over without waiting: an execution may wait for the caller's next call.
    pub(crate) fn carry_on(&self, id: ExecutionId) {
        // The receiver is gone only when the process ends. The execution stays in the store.
        let _ = self.0.send(id);
    }
}

impl Driving {
    /// Drives all executions from the queue. Never returns.
    pub(crate) async fn go_on(mut self) -> Infallible {
        let mut tasks = JoinSet::new();
        let mut queue = Queue::default();
        loop {
            while tasks.len() < DRIVEN
                && let Some(id) = queue.next()
            {
                let drive = self.drive.clone();
                let task = tasks.spawn(async move { drive.drive_to_end(id).await });
                queue.tasks.insert(task.id(), id);
            }
            tokio::select! {
                Some(id) = self.wanted.recv() => queue.add(id),
                Some(ended) = tasks.join_next_with_id() => {
                    queue.ended(match ended {
                        Ok((task, ())) => task,
                        Err(err) => {
                            tracing::error!(%err, "what carries an execution on panicked");
                            err.id()
                        }
                    });
                }
                else => std::future::pending::<()>().await,
            }
        }
    }
}

/// Running and waiting executions.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<ExecutionId>,
    /// All running and waiting executions.
    known: BTreeSet<ExecutionId>,
    tasks: BTreeMap<Id, ExecutionId>,
}

impl Queue {
    fn add(&mut self, id: ExecutionId) {
        if self.waiting.len() >= WAITING {
            tracing::warn!(execution = %id, "too many are carried on here: `faber worker` does it");
        } else if self.known.insert(id) {
            self.waiting.push_back(id);
        }
    }

    fn next(&mut self) -> Option<ExecutionId> {
        self.waiting.pop_front()
    }

    fn ended(&mut self, task: Id) {
        if let Some(id) = self.tasks.remove(&task) {
            self.known.remove(&id);
        }
    }
}
