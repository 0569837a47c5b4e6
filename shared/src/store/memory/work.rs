//! Heads and leases in memory, indexed by what claims ask for.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    clock::Timestamp,
    id::{ExecutionId, WorkerId},
    store::{Head, Lease},
};

/// Who works on what.
#[derive(Debug, Default)]
pub(super) struct Work {
    heads: BTreeMap<ExecutionId, Head>,
    /// What nobody has, in the order in which it is taken.
    free: BTreeMap<Reverse<i32>, BTreeSet<(Timestamp, ExecutionId)>>,
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
            before.owner.map(|it| self.owned.remove(&(it, id)));
            let queue = self.free.get_mut(&Reverse(before.priority));
            queue.zip(before.due).map(|(queue, due)| queue.remove(&(due, id)));
        }
        match (head.owner, head.due) {
            (Some(owner), _) => {
                self.owned.insert((owner, id));
            }
            (None, Some(due)) => {
                self.free.entry(Reverse(head.priority)).or_default().insert((due, id));
            }
            (None, None) => (),
        }
        self.heads.insert(id, head);
    }

    pub(super) fn head(&self, id: ExecutionId) -> Option<&Head> {
        self.heads.get(&id)
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.heads.values()
    }

    pub(super) fn due(&self, now: Timestamp, most: usize) -> Vec<Head> {
        let queues = self.free.values();
        let due = queues.flat_map(|it| it.iter().take_while(|(due, _)| *due <= now));
        due.take(most).map(|(_, id)| self.heads[id].clone()).collect()
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.free.values().filter_map(|it| it.first()).map(|(due, _)| *due).min()
    }

    pub(super) fn orphans(&self, now: Timestamp, most: usize) -> Vec<Head> {
        let is_gone = |id: &WorkerId| self.leases.get(id).is_none_or(|it| it.until <= now);
        let orphans = self.owned.iter().filter(|(worker, _)| is_gone(worker));
        orphans.take(most).map(|(_, id)| self.heads[id].clone()).collect()
    }

    pub(super) fn heartbeat(&mut self, lease: Lease) {
        self.leases.insert(lease.worker, lease);
    }

    pub(super) fn retire(&mut self, worker: WorkerId) {
        self.leases.remove(&worker);
    }
}
