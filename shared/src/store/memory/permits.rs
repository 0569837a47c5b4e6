use crate::{
    clock::Timestamp,
    id::WorkerId,
    store::{
        Permission, Permit, PermitAsk,
        permit::{Tallies, give_back, take_all},
    },
};

/// Number of limits at which idle limits are dropped for the first time, and then each time the
/// number has doubled.
const FIRST_CLEANUP_LIMITS: usize = 1_024;

/// Limits with holders or recent calls. Idle limits are dropped from time to time.
#[derive(Debug)]
pub(super) struct StoredPermits {
    tallies: Tallies,
    next_cleanup_limits: usize,
}

impl Default for StoredPermits {
    fn default() -> Self {
        Self { tallies: Tallies::new(), next_cleanup_limits: FIRST_CLEANUP_LIMITS }
    }
}

impl StoredPermits {
    pub(super) fn acquire(
        &mut self,
        ask: &PermitAsk,
        now: Timestamp,
        is_gone: impl Fn(WorkerId) -> bool,
    ) -> Permission {
        let keys = ask.limits.iter().map(|limit| limit.key.as_str());
        let mut tallies = self.take_tallies(keys);
        let permission = take_all(&mut tallies, ask, now, is_gone);
        self.tallies.append(&mut tallies);
        if self.tallies.len() >= self.next_cleanup_limits {
            let now = now.timestamp_micros();
            self.tallies.retain(|_, tally| !tally.holders.is_empty() || tally.next > now);
            self.next_cleanup_limits = FIRST_CLEANUP_LIMITS.max(2 * self.tallies.len());
        }
        permission
    }

    pub(super) fn release(&mut self, permits: &[Permit]) {
        for permit in permits {
            let mut tallies = self.take_tallies(permit.limits.iter().map(String::as_str));
            give_back(&mut tallies, permit);
            self.tallies.append(&mut tallies);
        }
    }

    pub(super) fn remove_worker(&mut self, gone: WorkerId) {
        for tally in self.tallies.values_mut() {
            tally.holders.retain(|_, worker| *worker != gone);
        }
    }

    pub(super) fn drop_unknown_workers(&mut self, is_known: impl Fn(WorkerId) -> bool) {
        for tally in self.tallies.values_mut() {
            tally.holders.retain(|_, worker| is_known(*worker));
        }
    }

    fn take_tallies<'a>(&mut self, keys: impl Iterator<Item = &'a str>) -> Tallies {
        keys.filter_map(|key| self.tallies.remove_entry(key)).collect()
    }
}
