//! Carries on what calls of tools began, also when nobody waits for it any more.

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
};

use shared::id::ExecutionId;
use tokio::{sync::mpsc, task::JoinSet};

use super::super::drive::Drive;

/// The most executions that are carried on at once; more wait for their turn.
const DRIVEN: usize = 1_000;
/// The most that wait for that.
const LATER: usize = 100_000;
/// How many may be handed over at once.
const WAITING: usize = 64;

/// The way to what carries executions on.
#[derive(Clone, Debug)]
pub(super) struct Drivers(mpsc::Sender<ExecutionId>);

/// What carries executions on.
pub(super) struct Driving {
    drive: Drive,
    wanted: mpsc::Receiver<ExecutionId>,
}

/// Makes what carries executions on, and the way to it.
pub(super) fn drivers(drive: Drive) -> (Drivers, Driving) {
    let (sender, wanted) = mpsc::channel(WAITING);
    (Drivers(sender), Driving { drive, wanted })
}

impl Drivers {
    /// Carries an execution on to its end.
    pub(super) async fn carry_on(&self, id: ExecutionId) {
        // Nobody is there only when the process ends; then the store has it.
        let _ = self.0.send(id).await;
    }
}

impl Driving {
    /// Carries on whatever is handed over. It never ends by itself.
    pub(super) async fn go_on(mut self) -> Infallible {
        let mut tasks = JoinSet::new();
        // Those that have their turn, and those that wait for it.
        let (mut driven, mut later) = (BTreeSet::new(), VecDeque::new());
        loop {
            tokio::select! {
                // It is always heard: who cannot say it could not say either what makes room.
                Some(id) = self.wanted.recv() => {
                    if later.len() >= LATER {
                        tracing::warn!(execution = %id, "too many wait here: `faber worker` takes it");
                    } else if driven.insert(id) {
                        later.push_back(id);
                    }
                }
                Some(ended) = tasks.join_next() => match ended {
                    Ok(id) => drop(driven.remove(&id)),
                    Err(err) => tracing::error!(%err, "what carries an execution on panicked"),
                },
                else => std::future::pending::<()>().await,
            }
            while tasks.len() < DRIVEN
                && let Some(id) = later.pop_front()
            {
                let drive = self.drive.clone();
                tasks.spawn(async move {
                    drive.to_end(id).await;
                    id
                });
            }
        }
    }
}
