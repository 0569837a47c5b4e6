//! Scans the store for executions to claim, and for commands to deliver.
//!
//! All workers scan the same heads. To keep them from racing for the same execution, each execution
//! has a preferred worker, on which all workers agree by hashing.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use shared::{
    clock::Timestamp,
    id::{ExecutionId, WorkerId, fnv1a},
    metrics::process_metrics,
    store::{ExecutionHead, HeadQuery, QueuePosition, Store, StoreError},
};
use tokio::time::Instant;
use tracing::{error, warn};

use super::{DriveError, DriverStop, KnownClaim, Worker, WorkerContext, WorkerScope};
use crate::required_tools::RequiredTools;

const MAX_HEADS: usize = 256;
const MAX_UNCLAIMABLE: usize = 256;
const UNDRIVEN_CHECK_INTERVAL: Duration = Duration::from_secs(20);
const MAX_REQUIRED_TOOLS: usize = 4_096;

/// Returns the worker that should claim an execution. Rendezvous hashing: all workers agree, and a
/// worker that joins or leaves changes only its own share.
fn preferred_worker(execution: ExecutionId, workers: &[WorkerId]) -> Option<WorkerId> {
    let weight = |worker: &&WorkerId| mix_hash(fnv1a(format!("{execution}/{worker}").bytes()));
    workers.iter().max_by_key(weight).copied()
}

/// Mixes the bits of a hash (the finalizer of `MurmurHash3`). The ids of two workers may differ in
/// their last characters only, and FNV-1a alone spreads such ids badly.
fn mix_hash(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Postpones a damaged execution, so that workers do not claim it over and over.
async fn postpone_damaged(
    context: &WorkerContext,
    id: ExecutionId,
    pause: Duration,
) -> Result<(), StoreError> {
    let Some(head) = context.store.head(id).await? else { return Ok(()) };
    if head.state.is_finished() {
        return Ok(());
    }
    let due = TimeDelta::from_std(pause)
        .ok()
        .and_then(|pause| context.clock.now().checked_add_signed(pause));
    context.store.put_head(ExecutionHead { owner: None, due, ..head }).await
}

pub(super) async fn postpone_if_damaged(
    context: &WorkerContext,
    id: ExecutionId,
    pause: Duration,
    result: &Result<DriverStop, DriveError>,
) {
    if result.as_ref().is_err_and(DriveError::is_damage)
        && let Err(err) = postpone_damaged(context, id, pause).await
    {
        warn!(execution = %id, %err, "cannot postpone a damaged execution");
    }
}

/// Releases an orphan that this worker cannot drive. The orphan becomes a due execution, so that it
/// does not hide other orphans.
async fn release_orphan(store: &dyn Store, head: ExecutionHead) -> Result<(), StoreError> {
    let due = head.due.unwrap_or(head.created_at);
    store.put_head(ExecutionHead { owner: None, due: Some(due), ..head }).await
}

impl Worker {
    pub(super) async fn scan(&mut self) -> Duration {
        let poll = self.context.options.poll;
        if let Err(err) = self.reclaim_given_up().await {
            warn!(%err, "cannot read the heads of executions that were given up");
        }
        self.write_heads().await;
        self.start_replans();
        if let Err(err) = self.claim_undriven().await {
            warn!(%err, "cannot list the executions of this worker");
        }
        if self.scope == WorkerScope::Given {
            return poll;
        }
        match self.claim_due_executions().await {
            Ok(wait) => wait,
            Err(err) => {
                warn!(%err, "cannot scan for executions");
                poll
            }
        }
    }

    /// Claims executions that drivers gave up, unless another worker has claimed them. In that case
    /// a claim would interrupt the steps that the other worker runs.
    async fn reclaim_given_up(&mut self) -> Result<(), StoreError> {
        for (id, known_epoch) in self.backlog.given_up.clone() {
            let head = self.context.store.head(id).await?;
            // Claims a finished execution that has an owner, too, because it still has to notify
            // its parent or to be replanned.
            let needs_worker =
                |head: &ExecutionHead| !head.state.is_finished() || head.owner.is_some();
            let free = head.filter(|head| needs_worker(head) && self.is_claimable(head));
            if free.is_none_or(|head| self.claim_execution(id, head.epoch.max(known_epoch))) {
                self.backlog.given_up.remove(&id);
            }
        }
        Ok(())
    }

    /// Claims executions whose heads name this worker as owner but that it does not drive, because
    /// the store may have lost their last heads.
    async fn claim_undriven(&mut self) -> Result<(), StoreError> {
        if self.backlog.undriven_checked_at.elapsed() < UNDRIVEN_CHECK_INTERVAL {
            return Ok(());
        }
        self.backlog.undriven_checked_at = Instant::now();
        let worker = self.context.worker;
        // Raises the limit, so that executions that this worker already drives do not hide other
        // executions.
        let known_count = self.drivers.len() + self.backlog.owned_count() + self.replan_queue.len();
        for head in self
            .context
            .store
            .find_heads(HeadQuery::OwnedBy(worker), MAX_HEADS + known_count)
            .await?
        {
            let id = head.execution;
            let is_known =
                self.local.contains(id) || self.backlog.owns(id) || self.replan_queue.contains(id);
            if is_known || self.is_left_to_others(&head) {
                continue;
            }
            if self.backlog.locked.contains(id) {
                continue;
            }
            if self.backlog.damaged.contains(id) {
                // Postpones the damaged execution again, because another claim would only lengthen
                // its log.
                let pause = self.backlog.damaged.next_pause(id);
                if let Err(err) = postpone_damaged(&self.context, id, pause).await {
                    warn!(execution = %id, %err, "cannot postpone a damaged execution");
                }
            } else {
                self.claim_execution(id, head.epoch);
            }
        }
        Ok(())
    }

    async fn claim_due_executions(&mut self) -> Result<Duration, StoreError> {
        let store = Arc::clone(&self.context.store);
        let poll = self.context.options.poll;
        let now = self.context.clock.now();
        let orphans = store.find_heads(HeadQuery::Orphans { now }, MAX_HEADS).await?;
        self.backlog.orphans.retain(|id, _| orphans.iter().any(|head| head.execution == *id));
        let (n_orphans, lacking) = self.claim_heads(orphans).await?;
        for head in lacking {
            release_orphan(&*store, head).await?;
        }
        let free_slots = self.slots.available_permits().min(MAX_HEADS);
        if free_slots == 0 {
            return Ok(poll);
        }
        let due = store
            .find_heads(
                HeadQuery::Due { now, turn: self.backlog.turn },
                free_slots + self.backlog.unclaimable_count.min(MAX_UNCLAIMABLE),
            )
            .await?;
        // Counts executions that this worker drives or cannot drive. The next scan reads that many
        // more heads, so that these executions do not hide other executions.
        let n_local = due.iter().filter(|head| self.local.contains(head.execution)).count();
        let has_tokens = due.iter().any(|head| head.token().is_some());
        let has_due = !due.is_empty();
        let (n_due, lacking) = self.claim_heads(due).await?;
        self.backlog.unclaimable_count = lacking.len() + n_local;
        self.backlog.turn = self.backlog.turn.wrapping_add(u32::from(has_due));
        let is_full = n_due + n_orphans >= free_slots;
        self.context.handle.set_crowded(is_full && has_tokens);
        if is_full {
            return Ok(Duration::ZERO);
        }
        if self.backlog.unclaimable_count >= MAX_UNCLAIMABLE {
            self.claim_next_page(now).await?;
        }
        let next = store.next_due_at().await?;
        let wait = next.and_then(|due| (due - self.context.clock.now()).to_std().ok());
        Ok(wait.filter(|wait| !wait.is_zero()).map_or(poll, |wait| wait.min(poll)))
    }

    /// Claims further due executions if too many of the first executions cannot be claimed. Each
    /// scan reads one more page.
    async fn claim_next_page(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let query = HeadQuery::DueAfter { now, after: self.backlog.cursor };
        let part = self.context.store.find_heads(query, MAX_HEADS).await?;
        let last = part.last().filter(|_| part.len() == MAX_HEADS);
        self.backlog.cursor =
            last.and_then(|head| Some(QueuePosition { due: head.due?, execution: head.execution }));
        self.claim_heads(part).await.map(drop)
    }

    /// Claims the executions that this worker should claim. Returns the number of new claims, and
    /// the heads of executions that it cannot drive.
    async fn claim_heads(
        &mut self,
        heads: Vec<ExecutionHead>,
    ) -> Result<(usize, Vec<ExecutionHead>), StoreError> {
        if heads.is_empty() {
            return Ok((0, Vec::new()));
        }
        let workers = self.context.store.list_workers(self.context.clock.now()).await?;
        let (mut claimed, mut lacking) = (0, Vec::new());
        for head in heads {
            if self.is_left_to_others(&head) {
                continue;
            }
            // Checks no tools for a finished execution, because it only notifies its parent or is
            // replanned.
            let needs_tools = !head.state.is_finished() && !self.local.contains(head.execution);
            if self.backlog.locked.contains(head.execution) {
                // A finished execution stays an orphan, so that a node with the key finds it.
                lacking.extend(Some(head).filter(|head| !head.state.is_finished()));
            } else if needs_tools && !self.has_tools(&head).await? {
                lacking.push(head);
            } else if self.should_claim(&head, &workers) {
                let is_new = !self.local.contains(head.execution);
                // Only a due execution and an orphan are candidates, so another owner was lost.
                let lost_worker = head.owner.filter(|owner| *owner != self.context.worker);
                let known = KnownClaim { epoch: head.epoch, lost_worker };
                claimed += usize::from(self.claim_execution(head.execution, known) && is_new);
            }
        }
        Ok((claimed, lacking))
    }

    /// Returns whether an execution can only need a replan, and this process does not replan.
    fn is_left_to_others(&self, head: &ExecutionHead) -> bool {
        let can_need_replan = head.state.is_finished() && head.parent.is_none();
        can_need_replan && self.context.replanner.get().is_none()
    }

    /// Returns whether this worker should claim an execution. Workers other than the preferred
    /// worker and the owner wait, so that workers do not race.
    fn should_claim(&mut self, head: &ExecutionHead, workers: &[WorkerId]) -> bool {
        let me = self.context.worker;
        if head.owner == Some(me)
            || preferred_worker(head.execution, workers).is_none_or(|worker| worker == me)
        {
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
            Ok(Some(_)) => self.has_required_tools(head).await,
            Ok(None) | Err(StoreError::Corrupt { .. }) => {
                error!(execution = %head.execution, plan = %head.plan, "its plan cannot be read");
                self.postpone_unreadable(head.execution).await?;
                Ok(false)
            }
            Err(err) if err.is_locked() => {
                warn!(execution = %head.execution, %err, "left to nodes with the key");
                self.note_locked(head.execution);
                Ok(false)
            }
            Err(err) => Err(err),
        }
    }

    /// Returns whether an execution can continue without a missing tool of its plan.
    async fn has_required_tools(&mut self, head: &ExecutionHead) -> Result<bool, StoreError> {
        let id = head.execution;
        if !self.backlog.required_tools.get(&id).is_some_and(|required| required.is_current(head)) {
            self.backlog.required_tools.remove(&id);
            match RequiredTools::read(&*self.context.store, head).await {
                Ok(None) => return Ok(false),
                Ok(Some(needs)) => {
                    if self.backlog.required_tools.len() >= MAX_REQUIRED_TOOLS {
                        self.backlog.required_tools.clear();
                    }
                    self.backlog.required_tools.insert(id, needs);
                }
                Err(err) if err.is_permanent() => {
                    error!(execution = %id, %err, "its log cannot be read");
                    self.postpone_unreadable(id).await?;
                    return Ok(false);
                }
                Err(err) if err.is_locked() => {
                    self.note_locked(id);
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
            .is_some_and(|required| required.is_met(&self.context.toolbox, now)))
    }

    pub(super) async fn deliver_commands(&mut self) {
        if let Err(err) = self.read_inbox().await {
            warn!(%err, "cannot read the inbox");
        }
    }

    async fn read_inbox(&mut self) -> Result<(), StoreError> {
        let store = Arc::clone(&self.context.store);
        let mut settled = Vec::new();
        let mut heads: BTreeMap<ExecutionId, Option<ExecutionHead>> = BTreeMap::new();
        let waiting = store.list_commands(None).await?;
        process_metrics().set_inbox_depth(waiting.len());
        for envelope in waiting {
            if self.local.deliver_command(&envelope) || self.scope == WorkerScope::Given {
                continue;
            }
            let id = envelope.execution;
            let head = match heads.entry(id) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(place) => place.insert(store.head(id).await?),
            };
            match head {
                Some(head) if head.state.is_finished() => settled.push(envelope.id),
                // Claims the execution even without its tools, because recording a command needs no
                // tools, and commands that stay would fill the inbox.
                Some(head) if self.is_claimable(head) && !self.backlog.is_unreadable(id) => {
                    self.claim_execution(id, head.epoch);
                }
                Some(_) => (),
                None => settled.push(envelope.id),
            }
        }
        if !settled.is_empty() {
            store.remove_commands(settled).await?;
        }
        Ok(())
    }

    fn is_claimable(&self, head: &ExecutionHead) -> bool {
        head.owner.is_none_or(|owner| owner == self.context.worker)
    }

    async fn postpone_unreadable(&mut self, id: ExecutionId) -> Result<(), StoreError> {
        let pause = self.backlog.damaged.next_pause(id);
        self.note_damage(id);
        postpone_damaged(&self.context, id, pause).await
    }

    /// Postpones a damaged execution in memory, so that a command does not make this worker claim
    /// it again.
    pub(super) fn note_damage(&mut self, id: ExecutionId) {
        self.backlog.damaged.insert(id);
    }

    /// Postpones an execution whose key this process lacks. Other nodes may have the key, so its
    /// head does not change.
    pub(super) fn note_locked(&mut self, id: ExecutionId) {
        self.backlog.locked.insert(id);
    }
}

#[cfg(test)]
mod tests;
