//! Drives executions that calls have started, also when their callers have left.

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

/// The most executions that are driven at once. Others wait.
const DRIVEN: usize = 1_000;
/// The most executions that wait. Any worker can take more of them from the store.
const WAITING: usize = 100_000;

/// Hands executions over to be driven.
#[derive(Clone, Debug)]
pub(crate) struct Drivers(mpsc::UnboundedSender<ExecutionId>);

/// Drives the executions that are handed over.
pub(crate) struct Driving {
    drive: Drive,
    wanted: mpsc::UnboundedReceiver<ExecutionId>,
}

/// Makes both ends of the queue.
pub(crate) fn drivers(drive: Drive) -> (Drivers, Driving) {
    let (sender, wanted) = mpsc::unbounded_channel();
    (Drivers(sender), Driving { drive, wanted })
}

impl Drivers {
    /// Hands an execution over and does not wait: executions that are driven may wait for the next call
    /// of the same caller.
    pub(crate) fn carry_on(&self, id: ExecutionId) {
        // The receiver is gone only when the process ends. The store has the execution.
        let _ = self.0.send(id);
    }
}

impl Driving {
    /// Drives all executions that are handed over. Never returns.
    pub(crate) async fn go_on(mut self) -> Infallible {
        let mut tasks = JoinSet::new();
        let mut queue = Queue::default();
        loop {
            while tasks.len() < DRIVEN
                && let Some(id) = queue.next()
            {
                let drive = self.drive.clone();
                let task = tasks.spawn(async move { drive.to_end(id).await });
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

/// Executions that are driven, and those that wait.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<ExecutionId>,
    /// All of them, each once.
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
