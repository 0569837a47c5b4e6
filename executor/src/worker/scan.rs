//! Looking for executions to take, and for commands to deliver.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use shared::{
    clock::Timestamp,
    id::{ExecutionId, WorkerId, fnv1a},
    store::{ExecutionHead, Store, StoreError},
};
use tokio::time::Instant;
use tracing::{error, warn};

use super::{Context, DriveError, Scope, Stop, Worker};
use crate::required_tools::RequiredTools;

/// How many executions one look takes.
const LOOK: usize = 256;
/// How many executions whose tools are not at hand one look reads beside those.
const LACKING: usize = 256;
/// How often a worker looks whether all that is its own is driven.
const SWEEP: Duration = Duration::from_secs(20);
/// How long one that is damaged is left alone.
const LAID_ASIDE: TimeDelta = TimeDelta::minutes(10);
/// Of how many executions that lack tools it is remembered what they need; more are read again.
const NEEDS: usize = 4_096;

/// Returns the worker that an execution falls to: rendezvous hashing, so that all workers agree
/// and one that comes or goes changes only its own share.
fn falls_to(execution: ExecutionId, workers: &[WorkerId]) -> Option<WorkerId> {
    let weight = |it: &&WorkerId| mix(fnv1a(format!("{execution}/{it}").bytes()));
    workers.iter().max_by_key(weight).copied()
}

/// Lets every bit of a hash depend on every bit (the finalizer of `MurmurHash3`): the letters that
/// differ between two workers come last, and what FNV-1a makes of those is no fair draw.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Leaves an execution alone for a while whose log or plan cannot be read, so that no worker looks
/// at it again and again; the others go on.
async fn lay_aside(context: &Context, id: ExecutionId) -> Result<(), StoreError> {
    let Some(head) = context.store.head(id).await? else { return Ok(()) };
    if head.state.is_finished() {
        return Ok(());
    }
    let due = context.clock.now().checked_add_signed(LAID_ASIDE);
    context.store.put_head(ExecutionHead { owner: None, due, ..head }).await
}

/// Does so where a driver here cannot go on.
pub(super) async fn leave_damaged(
    context: &Context,
    id: ExecutionId,
    result: &Result<Stop, DriveError>,
) {
    if result.as_ref().is_err_and(DriveError::is_damage)
        && let Err(err) = lay_aside(context, id).await
    {
        warn!(execution = %id, %err, "cannot lay a damaged execution aside");
    }
}

/// Leaves what a worker that is gone had, and for which this one lacks the tools, to whoever has
/// them: it is due from now on, so that what is gone does not hide what could be taken.
async fn leave(store: &dyn Store, head: ExecutionHead) -> Result<(), StoreError> {
    let due = head.due.unwrap_or(head.created_at);
    store.put_head(ExecutionHead { owner: None, due: Some(due), ..head }).await
}

impl Worker {
    /// Takes what is due and what workers that are gone left. Returns when to look again.
    pub(super) async fn look(&mut self) -> Duration {
        let poll = self.context.options.poll;
        if let Err(err) = self.look_again().await {
            warn!(%err, "cannot look who has the executions that were given up");
        }
        self.write_heads().await;
        self.start_replans();
        if let Err(err) = self.sweep().await {
            warn!(%err, "cannot look whether what is this worker's is driven");
        }
        if self.scope == Scope::Given {
            return poll;
        }
        match self.try_look().await {
            Ok(wait) => wait,
            Err(err) => {
                warn!(%err, "cannot look for work");
                poll
            }
        }
    }

    /// Claims what drivers here gave up, unless another worker has it by now: claiming that would
    /// interrupt its steps. What is still this worker's by its head nobody else looks for.
    async fn look_again(&mut self) -> Result<(), StoreError> {
        for (id, known) in self.backlog.given_up.clone() {
            let head = self.context.store.head(id).await?;
            // Of one that is over and still this worker's, something is to be done.
            let is_ours = |it: &ExecutionHead| !it.state.is_finished() || it.owner.is_some();
            let free = head.filter(|it| is_ours(it) && self.is_free(it));
            if free.is_none_or(|it| self.claim(id, it.epoch.max(known))) {
                self.backlog.given_up.remove(&id);
            }
        }
        Ok(())
    }

    /// Claims what is this worker's by its head, and is not driven here: what the head said last
    /// was lost, with a primary or with an answer. Whoever reads the log then mends the head.
    async fn sweep(&mut self) -> Result<(), StoreError> {
        if self.backlog.swept_at.elapsed() < SWEEP {
            return Ok(());
        }
        self.backlog.swept_at = Instant::now();
        let worker = self.context.worker;
        // Those that are known to be this worker's hide none that are not.
        let known = self.drivers.len() + self.backlog.owned() + self.replan_queue.len();
        for head in self.context.store.owned(worker, LOOK + known).await? {
            let id = head.execution;
            let is_known =
                self.local.contains(id) || self.backlog.owns(id) || self.replan_queue.contains(id);
            if is_known || self.is_left_to_others(&head) {
                continue;
            }
            if self.backlog.is_damaged(id) {
                // It could not be laid aside then. To claim it would only make its log longer.
                if let Err(err) = lay_aside(&self.context, id).await {
                    warn!(execution = %id, %err, "a damaged execution cannot be laid aside");
                }
            } else {
                self.claim(id, head.epoch);
            }
        }
        Ok(())
    }

    async fn try_look(&mut self) -> Result<Duration, StoreError> {
        let store = Arc::clone(&self.context.store);
        let poll = self.context.options.poll;
        let now = self.context.clock.now();
        let orphans = store.orphans(now, LOOK).await?;
        self.backlog.orphans.retain(|id, _| orphans.iter().any(|it| it.execution == *id));
        let (n_orphans, lacking) = self.claim_all(orphans).await?;
        for head in lacking {
            leave(&*store, head).await?;
        }
        let room = self.room.available_permits().min(LOOK);
        if room == 0 {
            return Ok(poll);
        }
        let due = store.due(now, room + self.backlog.lacking.min(LACKING)).await?;
        // Neither what is driven here already nor what lacks tools must hide what comes after it.
        let n_local = due.iter().filter(|it| self.local.contains(it.execution)).count();
        let (n_due, lacking) = self.claim_all(due).await?;
        self.backlog.lacking = lacking.len() + n_local;
        if n_due + n_orphans >= room {
            return Ok(Duration::ZERO);
        }
        if self.backlog.lacking >= LACKING {
            self.look_past(now).await?;
        }
        let next = store.next_due().await?;
        let wait = next.and_then(|it| (it - self.context.clock.now()).to_std().ok());
        Ok(wait.filter(|it| !it.is_zero()).map_or(poll, |it| it.min(poll)))
    }

    /// Goes on through what is due, a part each look, while so much of what comes first is for
    /// others that a look sees nothing else; and begins anew at the end.
    async fn look_past(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let part = self.context.store.due_after(now, self.backlog.cursor, LOOK).await?;
        let last = part.last().filter(|_| part.len() == LOOK);
        self.backlog.cursor = last.and_then(|it| Some((it.due?, it.execution)));
        self.claim_all(part).await.map(drop)
    }

    /// Claims those whose tools are at hand and whose turn it is to be claimed here. Returns how
    /// many, and those whose tools are not at hand.
    async fn claim_all(
        &mut self,
        heads: Vec<ExecutionHead>,
    ) -> Result<(usize, Vec<ExecutionHead>), StoreError> {
        if heads.is_empty() {
            return Ok((0, Vec::new()));
        }
        let workers = self.context.store.workers(self.context.clock.now()).await?;
        let (mut claimed, mut lacking) = (0, Vec::new());
        for head in heads {
            if self.is_left_to_others(&head) {
                continue;
            }
            // Of one that is over its parent is told, or it is planned anew, for which its tools
            // are not needed.
            let needs_tools = !head.state.is_finished() && !self.local.contains(head.execution);
            if needs_tools && !self.has_tools(&head).await? {
                lacking.push(head);
            } else if self.is_turn(&head, &workers) {
                let is_new = !self.local.contains(head.execution);
                claimed += usize::from(self.claim(head.execution, head.epoch) && is_new);
            }
        }
        Ok((claimed, lacking))
    }

    /// Returns whether only somebody who plans anew has a use for an execution, and nobody here
    /// does.
    fn is_left_to_others(&self, head: &ExecutionHead) -> bool {
        let is_owed_a_plan = head.state.is_finished() && head.parent.is_none();
        is_owed_a_plan && self.context.replanner.get().is_none()
    }

    /// Returns whether an execution is to be claimed here: at once if it falls to this worker, so
    /// that workers share what there is and do not race for it; later if nobody else came.
    fn is_turn(&mut self, head: &ExecutionHead, workers: &[WorkerId]) -> bool {
        let me = self.context.worker;
        if head.owner == Some(me) || falls_to(head.execution, workers).is_none_or(|it| it == me) {
            return true;
        }
        let grace = self.context.options.poll * 2;
        match head.due.filter(|_| head.owner.is_none()) {
            Some(due) => {
                let waited = (self.context.clock.now() - due).to_std().unwrap_or_default();
                waited >= grace
            }
            None => {
                self.backlog.orphans.entry(head.execution).or_insert_with(Instant::now).elapsed()
                    >= grace
            }
        }
    }

    async fn has_tools(&mut self, head: &ExecutionHead) -> Result<bool, StoreError> {
        match self.context.store.plan(head.plan).await {
            Ok(Some(plan)) if self.context.toolbox.has_all(plan.called_tools()) => {
                self.backlog.required_tools.remove(&head.execution);
                Ok(true)
            }
            Ok(Some(_)) => self.needs_are_met(head).await,
            Ok(None) | Err(StoreError::Corrupt { .. }) => {
                error!(execution = %head.execution, plan = %head.plan, "its plan cannot be read");
                lay_aside(&self.context, head.execution).await?;
                Ok(false)
            }
            Err(err) => Err(err),
        }
    }

    /// Returns whether what has begun can go on without some tool of its plan. Its log is read
    /// once, however often it is looked at.
    async fn needs_are_met(&mut self, head: &ExecutionHead) -> Result<bool, StoreError> {
        let id = head.execution;
        if !self.backlog.required_tools.get(&id).is_some_and(|it| it.is_current(head)) {
            self.backlog.required_tools.remove(&id);
            match RequiredTools::read(&*self.context.store, head).await {
                Ok(None) => return Ok(false),
                Ok(Some(needs)) => {
                    if self.backlog.required_tools.len() >= NEEDS {
                        self.backlog.required_tools.clear();
                    }
                    self.backlog.required_tools.insert(id, needs);
                }
                Err(err) if err.is_permanent() => {
                    error!(execution = %id, %err, "its log cannot be read");
                    lay_aside(&self.context, id).await?;
                    return Ok(false);
                }
                Err(err) => return Err(err),
            }
        }
        let now = self.context.clock.now();
        Ok(self
            .backlog
            .required_tools
            .get(&id)
            .is_some_and(|it| it.is_met(&self.context.toolbox, now)))
    }

    /// Gives commands to the drivers here, and takes executions that nobody has for those that
    /// are left.
    pub(super) async fn deliver(&mut self) {
        if let Err(err) = self.try_deliver().await {
            warn!(%err, "cannot look for commands");
        }
    }

    async fn try_deliver(&mut self) -> Result<(), StoreError> {
        let store = Arc::clone(&self.context.store);
        let mut settled = Vec::new();
        let mut heads: BTreeMap<ExecutionId, Option<ExecutionHead>> = BTreeMap::new();
        for envelope in store.inbox(None).await? {
            if self.local.deliver(&envelope) || self.scope == Scope::Given {
                continue;
            }
            let id = envelope.execution;
            let head = match heads.entry(id) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(place) => place.insert(store.head(id).await?),
            };
            match head {
                Some(head) if head.state.is_finished() => settled.push(envelope.id),
                // To record what is asked for, no tools are needed; and what nobody records keeps
                // later commands from being seen.
                Some(head) if self.is_free(head) && !self.backlog.is_damaged(id) => {
                    self.claim(id, head.epoch);
                }
                Some(_) => (),
                None => settled.push(envelope.id),
            }
        }
        if !settled.is_empty() {
            store.discard(settled).await?;
        }
        Ok(())
    }

    fn is_free(&self, head: &ExecutionHead) -> bool {
        head.owner.is_none_or(|it| it == self.context.worker)
    }

    /// Leaves a damaged execution alone for a while, so that no command makes this worker try
    /// again.
    pub(super) fn note_damage(&mut self, id: ExecutionId) {
        self.backlog.note_damage(id, LAID_ASIDE.to_std().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests;
