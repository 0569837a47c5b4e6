use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use crate::{
    clock::Timestamp,
    id::{ExecutionId, WorkerId},
    limits,
    store::{
        ExecutionHead, HeadQuery, Lease,
        backend::{PlaceShares, aged_places, rotate_tokens},
    },
};

type TokenQueue = BTreeMap<Reverse<i32>, BTreeSet<(Timestamp, ExecutionId)>>;

#[derive(Debug, Default)]
pub(super) struct ExecutionIndex {
    heads: BTreeMap<ExecutionId, ExecutionHead>,
    by_token: BTreeMap<Option<String>, TokenQueue>,
    /// Executions without an owner, by due time only.
    by_due_time: BTreeSet<(Timestamp, ExecutionId)>,
    by_owner: BTreeSet<(WorkerId, ExecutionId)>,
    leases: BTreeMap<WorkerId, Lease>,
}

impl ExecutionIndex {
    /// Stores a head unless it is older than the stored head.
    pub(super) fn put_head(&mut self, head: ExecutionHead) {
        let id = head.execution;
        if let Some(before) = self.heads.get(&id) {
            if head.seq < before.seq {
                return;
            }
            self.unindex_head(&before.clone());
        }
        match (head.owner, head.due) {
            (Some(owner), _) => {
                self.by_owner.insert((owner, id));
            }
            (None, Some(due)) if head.is_claimable() => {
                let queue = self.by_token.entry(head.token().map(str::to_owned)).or_default();
                queue.entry(Reverse(head.priority)).or_default().insert((due, id));
                self.by_due_time.insert((due, id));
            }
            _ => (),
        }
        self.heads.insert(id, head);
    }

    fn unindex_head(&mut self, head: &ExecutionHead) {
        let id = head.execution;
        head.owner.map(|owner| self.by_owner.remove(&(owner, id)));
        if let Some(due) = head.due {
            self.by_due_time.remove(&(due, id));
            let token = head.token().map(str::to_owned);
            let Some(queue) = self.by_token.get_mut(&token) else { return };
            let place = Reverse(head.priority);
            if let Some(same_priority) = queue.get_mut(&place) {
                same_priority.remove(&(due, id));
                if same_priority.is_empty() {
                    queue.remove(&place);
                }
            }
            if queue.is_empty() {
                self.by_token.remove(&token);
            }
        }
    }

    pub(super) fn remove_head(&mut self, id: ExecutionId) {
        if let Some(head) = self.heads.remove(&id) {
            self.unindex_head(&head);
        }
    }

    pub(super) fn head(&self, id: ExecutionId) -> Option<&ExecutionHead> {
        self.heads.get(&id)
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = &ExecutionHead> {
        self.heads.values()
    }

    pub(super) fn list_needing_person(&self, ancestors: bool) -> BTreeSet<ExecutionId> {
        let mut found = BTreeSet::new();
        for head in self.heads.values().filter(|head| head.needs_person) {
            let mut next = Some(head.execution);
            while let Some(id) = next.filter(|id| found.insert(*id) && ancestors) {
                next = self.heads.get(&id).and_then(|head| head.parent);
            }
        }
        found
    }

    pub(super) fn find_heads(&self, query: HeadQuery, most: usize) -> Vec<ExecutionHead> {
        let ids: Vec<ExecutionId> = match query {
            HeadQuery::Due { now, turn } => self.find_due(now, turn, most),
            HeadQuery::DueAfter { now, after } => {
                let after = after.map(|after| (after.due, after.execution));
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let queue = self.by_due_time.range((from, Bound::Unbounded));
                queue.take_while(|(due, _)| *due <= now).map(|(_, id)| *id).take(most).collect()
            }
            HeadQuery::Orphans { now } => {
                let is_live =
                    |id: &WorkerId| self.leases.get(id).is_some_and(|lease| lease.until > now);
                let orphans = self.by_owner.iter().filter(|(worker, _)| !is_live(worker));
                orphans.map(|(_, id)| *id).take(most).collect()
            }
            HeadQuery::OwnedBy(worker) => {
                let owned = self.by_owner.iter().filter(|(owner, _)| *owner == worker);
                owned.map(|(_, id)| *id).take(most).collect()
            }
            HeadQuery::Finished { after, until } => {
                let finished = self.heads.values().filter_map(|head| {
                    let at = head.finished_at.filter(|at| *at > after && *at <= until)?;
                    Some(((at, head.execution.to_string()), head.execution))
                });
                let finished: BTreeMap<_, _> = finished.collect();
                finished.into_values().take(most).collect()
            }
        };
        ids.iter().map(|id| self.heads[id].clone()).collect()
    }

    fn find_due(&self, now: Timestamp, turn: u32, most: usize) -> Vec<ExecutionId> {
        let places = most - aged_places(most, turn);
        let mut queues: Vec<_> = self.by_token.values().take(limits::DUE_TOKENS).collect();
        rotate_tokens(&mut queues, turn, most);
        let mut shares = PlaceShares::new(places, queues.len());
        while let Some(read) = shares.next_read() {
            shares.add_found(read, find_due_of_token(queues[read.token], now, read.most));
        }
        let mut ids = shares.into_list();
        let longest = self.by_due_time.iter().take_while(|(due, _)| *due <= now).map(|(_, id)| *id);
        let taken: BTreeSet<_> = ids.iter().copied().collect();
        ids.extend(longest.filter(|id| !taken.contains(id)).take(most - ids.len()));
        ids
    }

    pub(super) fn count_active(&self, token: &str) -> usize {
        self.heads_of_token(token).filter(|head| !head.state.is_finished()).count()
    }

    pub(super) fn sum_stored_bytes(&self, token: &str) -> u64 {
        self.heads_of_token(token).map(|head| head.stored_bytes).sum()
    }

    fn heads_of_token(&self, token: &str) -> impl Iterator<Item = &ExecutionHead> {
        self.heads.values().filter(move |head| head.token() == Some(token))
    }

    /// Returns `true` if a worker has a lease, even an expired one.
    pub(super) fn has_lease(&self, worker: WorkerId) -> bool {
        self.leases.contains_key(&worker)
    }

    pub(super) fn list_leases(&self, now: Timestamp) -> impl Iterator<Item = &Lease> {
        self.leases.values().filter(move |lease| lease.until > now)
    }

    pub(super) fn renew_lease(&mut self, lease: Lease) {
        self.leases.insert(lease.worker, lease);
    }

    pub(super) fn remove_worker(&mut self, worker: WorkerId) {
        self.leases.remove(&worker);
    }
}

fn find_due_of_token(queue: &TokenQueue, now: Timestamp, most: usize) -> Vec<ExecutionId> {
    let priorities = queue.values().take(limits::PRIORITIES);
    let due = priorities.flat_map(|queue| queue.iter().take_while(|(due, _)| *due <= now));
    due.take(most).map(|(_, id)| *id).collect()
}
