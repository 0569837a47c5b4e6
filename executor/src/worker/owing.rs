//! Executions that are over and that wait here to be planned anew, or are.
//!
//! Nothing of them is in memory but their names: an execution gives its place to others when it is
//! over, however long a model thinks. By their heads they are still this worker's, so that another
//! one finds them when this one is gone.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt as _;
use shared::{
    execution::Execution,
    id::ExecutionId,
    store::{Head, StoreError},
};
use tokio::{task::JoinSet, time::Instant};
use tracing::{error, warn};

use super::{Context, DriveError, Stop, Worker, load};

/// How many are planned anew at once: a model and its provider have other askers, too.
const AT_ONCE: usize = 4;
/// How many wait; what is more is found again by the [sweep](Worker::sweep).
const MOST: usize = 4_096;
/// The wait after it could not be done; each further one is twice as long.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest wait.
const SELDOM: Duration = Duration::from_mins(5);

/// What became of one that was to be planned anew: an error where it is still to be.
pub(super) type Went = (ExecutionId, Result<(), DriveError>);

/// Executions that are over and that are to be planned anew.
#[derive(Debug, Default)]
pub(super) struct Owing {
    waiting: BTreeMap<ExecutionId, Waiting>,
    /// Those that are being planned anew, and how often that was tried before.
    begun: BTreeMap<ExecutionId, u32>,
    tasks: JoinSet<Went>,
}

#[derive(Debug)]
struct Waiting {
    /// When it is tried.
    at: Instant,
    /// How often it was.
    tries: u32,
}

impl Owing {
    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.begun.len()
    }

    /// Returns whether an execution is one of them.
    pub(super) fn has(&self, id: ExecutionId) -> bool {
        self.waiting.contains_key(&id) || self.begun.contains_key(&id)
    }

    /// Waits until one of them was planned anew, or could not be; nothing where none is.
    pub(super) async fn next(&mut self) -> Option<Went> {
        let went = self.tasks.join_next().await?;
        Some(went.expect("what panics is caught"))
    }

    /// Ends what is under way. It is still owed.
    pub(super) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }

    fn wait(&mut self, id: ExecutionId, tries: u32) {
        if self.waiting.len() < MOST {
            let wait = AGAIN.saturating_mul(1 << tries.min(16)).min(SELDOM);
            let at = Instant::now() + if tries == 0 { Duration::ZERO } else { wait };
            self.waiting.insert(id, Waiting { at, tries });
        }
    }

    /// Takes those whose time has come, the longest waiting first, as many as there is room for.
    fn take(&mut self) -> Vec<ExecutionId> {
        let now = Instant::now();
        let ready = self.waiting.iter().filter(|(_, it)| it.at <= now);
        let mut ready: Vec<_> = ready.map(|(id, it)| (it.at, *id)).collect();
        ready.sort();
        ready.truncate(AT_ONCE.saturating_sub(self.begun.len()));
        for (_, id) in &ready {
            let tries = self.waiting.remove(id).map_or(0, |it| it.tries);
            self.begun.insert(*id, tries);
        }
        ready.into_iter().map(|(_, id)| id).collect()
    }
}

impl Worker {
    /// Keeps an execution that is over to be planned anew, unless that is for others.
    pub(super) fn owe(&mut self, id: ExecutionId) {
        if self.context.onward.get().is_some() && !self.owing.has(id) {
            self.owing.wait(id, 0);
            self.go_on();
        }
    }

    /// Plans anew what waits for it.
    pub(super) fn go_on(&mut self) {
        for id in self.owing.take() {
            let context = Arc::clone(&self.context);
            self.owing.tasks.spawn(async move {
                let going = AssertUnwindSafe(go_on(&context, id)).catch_unwind();
                let lost = || StoreError::Unavailable("it came to a sudden end".to_owned());
                (id, going.await.unwrap_or_else(|_| Err(lost().into())))
            });
        }
    }

    /// Notes what became of one of them.
    pub(super) fn went_on(&mut self, id: ExecutionId, went: Result<(), DriveError>) {
        let tries = self.owing.begun.remove(&id).unwrap_or_default();
        match went {
            Ok(()) => (),
            Err(err) if err.is_damage() => {
                error!(execution = %id, %err, "cannot be planned anew; the others go on");
                self.note_damage(id);
            }
            Err(err) => {
                warn!(execution = %id, %err, "is planned anew later");
                self.owing.wait(id, tries.saturating_add(1));
            }
        }
        self.go_on();
    }
}

/// Plans an execution anew, and lets go of it then.
async fn go_on(context: &Context, id: ExecutionId) -> Result<(), DriveError> {
    let Some(onward) = context.onward.get() else { return Ok(()) };
    let ended = load(&*context.store, id).await?;
    if ended.anew().is_some() {
        onward.go_on(&ended).await?;
    }
    Ok(context.store.put_head(Head::of(&ended, None, None)).await?)
}

/// Lets go of an execution that is over, unless it is still to be planned anew: then it becomes this
/// worker's, so that no other one does so at the same time.
pub(super) async fn keep_if_owed(context: &Context, ended: &Execution) -> Result<Stop, DriveError> {
    let head = context.store.head(ended.id()).await?;
    // What was let go of was planned anew, or never will be.
    let is_let_go = head.is_some_and(|it| it.state.is_over() && it.owner.is_none());
    let owner = Some(context.worker).filter(|_| ended.anew().is_some() && !is_let_go);
    context.store.put_head(Head::of(ended, owner, None)).await?;
    Ok(if owner.is_some() { Stop::Owes } else { Stop::Finished })
}

#[cfg(test)]
mod tests;
