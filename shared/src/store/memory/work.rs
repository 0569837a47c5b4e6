//! Heads and leases in memory, indexed by what claims ask for.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use crate::{
    clock::Timestamp,
    id::{ExecutionId, WorkerId},
    limits,
    store::{Head, Lease, backend::aged_places},
};

/// Who works on what.
#[derive(Debug, Default)]
pub(super) struct Work {
    heads: BTreeMap<ExecutionId, Head>,
    /// What nobody has, in the order in which it is taken.
    free: BTreeMap<Reverse<i32>, BTreeSet<(Timestamp, ExecutionId)>>,
    /// The same, the longest due first.
    queue: BTreeSet<(Timestamp, ExecutionId)>,
    /// What somebody has.
    owned: BTreeSet<(WorkerId, ExecutionId)>,
    leases: BTreeMap<WorkerId, Lease>,
}

impl Work {
    /// Keeps a head unless it is older than the one that is there.
    pub(super) fn put_head(&mut self, head: Head) {
        let id = head.execution;
        if let Some(before) = self.heads.get(&id) {
            if head.seq < before.seq {
                return;
            }
            self.forget_place(&before.clone());
        }
        match (head.owner, head.due) {
            (Some(owner), _) => {
                self.owned.insert((owner, id));
            }
            (None, Some(due)) if head.is_free() => {
                self.free.entry(Reverse(head.priority)).or_default().insert((due, id));
                self.queue.insert((due, id));
            }
            _ => (),
        }
        self.heads.insert(id, head);
    }

    fn forget_place(&mut self, head: &Head) {
        let id = head.execution;
        head.owner.map(|it| self.owned.remove(&(it, id)));
        if let Some(due) = head.due {
            self.queue.remove(&(due, id));
            let place = Reverse(head.priority);
            if let Some(queue) = self.free.get_mut(&place) {
                queue.remove(&(due, id));
                if queue.is_empty() {
                    self.free.remove(&place);
                }
            }
        }
    }

    /// Forgets an execution.
    pub(super) fn remove(&mut self, id: ExecutionId) {
        if let Some(head) = self.heads.remove(&id) {
            self.forget_place(&head);
        }
    }

    pub(super) fn head(&self, id: ExecutionId) -> Option<&Head> {
        self.heads.get(&id)
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.heads.values()
    }

    pub(super) fn due(&self, now: Timestamp, most: usize) -> Vec<Head> {
        let aged = aged_places(most);
        let queues = self.free.values().take(limits::PRIORITIES);
        let due = queues.flat_map(|it| it.iter().take_while(|(due, _)| *due <= now));
        let mut ids: Vec<_> = due.take(most - aged).map(|(_, id)| *id).collect();
        let longest = self.queue.iter().take_while(|(due, _)| *due <= now).map(|(_, id)| *id);
        let taken: BTreeSet<_> = ids.iter().copied().collect();
        ids.extend(longest.filter(|it| !taken.contains(it)).take(most - ids.len()));
        ids.iter().map(|id| self.heads[id].clone()).collect()
    }

    pub(super) fn due_after(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, ExecutionId)>,
        most: usize,
    ) -> Vec<Head> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let queue = self.queue.range((from, Bound::Unbounded));
        let due = queue.take_while(|(due, _)| *due <= now).take(most);
        due.map(|(_, id)| self.heads[id].clone()).collect()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// Returns whether a worker has said that it lives, and not yet that it has ended.
    pub(super) fn knows(&self, worker: WorkerId) -> bool {
        self.leases.contains_key(&worker)
    }

    /// Returns the workers whose lease has not run out.
    pub(super) fn workers(&self, now: Timestamp) -> Vec<WorkerId> {
        let live = self.leases.values().filter(|it| it.until > now);
        live.map(|it| it.worker).collect()
    }

    pub(super) fn orphans(&self, now: Timestamp, most: usize) -> Vec<Head> {
        let is_gone = |id: &WorkerId| self.leases.get(id).is_none_or(|it| it.until <= now);
        let orphans = self.owned.iter().filter(|(worker, _)| is_gone(worker));
        orphans.take(most).map(|(_, id)| self.heads[id].clone()).collect()
    }

    pub(super) fn owned(&self, worker: WorkerId, most: usize) -> Vec<Head> {
        let owned = self.owned.iter().filter(|(owner, _)| *owner == worker);
        owned.take(most).map(|(_, id)| self.heads[id].clone()).collect()
    }

    pub(super) fn heartbeat(&mut self, lease: Lease) {
        self.leases.insert(lease.worker, lease);
    }

    pub(super) fn retire(&mut self, worker: WorkerId) {
        self.leases.remove(&worker);
    }
}
