//! Carries on what calls of tools began, also when nobody waits for it any more.

use std::{collections::BTreeSet, convert::Infallible};

use shared::id::ExecutionId;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinSet,
};

use super::super::drive::Drive;

/// The most executions that are carried on at once; a few more wait for their turn.
const DRIVEN: usize = 1_000;
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
    /// Carries an execution on to its end. It does not wait for that, and not for a place either:
    /// those that have one may wait for what the very caller is about to say.
    pub(super) fn carry_on(&self, id: ExecutionId) {
        // Nobody is there only when the process ends; then the store has it.
        if let Err(TrySendError::Full(id)) = self.0.try_send(id) {
            tracing::warn!(execution = %id, "too many are carried on here: `faber worker` does it");
        }
    }
}

impl Driving {
    /// Carries on whatever is handed over. It never ends by itself.
    pub(super) async fn go_on(mut self) -> Infallible {
        let mut tasks = JoinSet::new();
        let mut driven = BTreeSet::new();
        loop {
            tokio::select! {
                Some(id) = self.wanted.recv(), if tasks.len() < DRIVEN => {
                    if driven.insert(id) {
                        let drive = self.drive.clone();
                        tasks.spawn(async move {
                            drive.to_end(id).await;
                            id
                        });
                    }
                }
                Some(ended) = tasks.join_next() => match ended {
                    Ok(id) => drop(driven.remove(&id)),
                    Err(err) => tracing::error!(%err, "what carries an execution on panicked"),
                },
                else => std::future::pending::<()>().await,
            }
        }
    }
}
