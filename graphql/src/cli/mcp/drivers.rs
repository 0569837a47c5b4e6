//! Carries on what calls of tools began, also when nobody waits for it any more.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
};

use shared::id::ExecutionId;
use tokio::{
    sync::mpsc,
    task::{Id, JoinSet},
};

use super::super::drive::Drive;

/// The most executions that are carried on at once; others wait for their turn.
const DRIVEN: usize = 1_000;
/// How many may wait. The store has them all: any worker takes those that are more.
const WAITING: usize = 100_000;

/// The way to what carries executions on.
#[derive(Clone, Debug)]
pub(super) struct Drivers(mpsc::UnboundedSender<ExecutionId>);

/// What carries executions on.
pub(super) struct Driving {
    drive: Drive,
    wanted: mpsc::UnboundedReceiver<ExecutionId>,
}

/// Makes what carries executions on, and the way to it.
pub(super) fn drivers(drive: Drive) -> (Drivers, Driving) {
    let (sender, wanted) = mpsc::unbounded_channel();
    (Drivers(sender), Driving { drive, wanted })
}

impl Drivers {
    /// Carries an execution on to its end. It does not wait for that, and not for a place either:
    /// those that have one may wait for what the very caller is about to say.
    pub(super) fn carry_on(&self, id: ExecutionId) {
        // Nobody is there only when the process ends; then the store has it.
        let _ = self.0.send(id);
    }
}

impl Driving {
    /// Carries on whatever is handed over. It never ends by itself.
    pub(super) async fn go_on(mut self) -> Infallible {
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

/// Executions that are carried on, and those that wait for their turn.
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
