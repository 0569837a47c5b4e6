//! The lease of this worker.
//!
//! Claims keep the logs correct without leases. The lease prevents this worker from calling tools
//! with effects after other workers have declared it lost.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct LeaseClock {
    state: Mutex<LeaseState>,
    margin: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct LeaseState {
    valid_until: Option<Instant>,
    term: Term,
}

/// Counts the grants of the lease at a time when no lease was valid. Other workers may have claimed
/// executions that this worker claimed in an earlier term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term(u64);

impl LeaseClock {
    /// Creates a clock without a lease. The safety margin is a fifth of the lease, which is enough
    /// time to send a call.
    pub(crate) fn new(lease: Duration) -> Self {
        Self { state: Mutex::default(), margin: lease / 5 }
    }

    /// Records a lease that the store granted. The lease counts from the request at `requested_at`.
    pub(crate) fn extend(&self, requested_at: Instant, lease: Duration) {
        let mut state = self.lock_state();
        // Compares with the present, because the exact time of the grant is unknown: it is between
        // the request and now.
        if state.valid_until.is_none_or(|valid_until| valid_until <= Instant::now()) {
            state.term.0 += 1;
        }
        state.valid_until = Some(requested_at + lease);
    }

    pub(crate) fn term(&self) -> Term {
        self.lock_state().term
    }

    /// Returns whether claims of `term` are valid for long enough to start a call.
    pub(crate) fn is_safe(&self, term: Term) -> bool {
        let LeaseState { valid_until, term: current } = *self.lock_state();
        current == term
            && valid_until.is_some_and(|valid_until| Instant::now() + self.margin < valid_until)
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, LeaseState> {
        // Ignores a poisoned lock, because a panic cannot leave the two fields in an invalid state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_expired_starts_a_new_term() {
        let lease = Duration::from_secs(5);
        let clock = LeaseClock::new(lease);
        let before = clock.term();
        assert!(!clock.is_safe(before), "no lease was granted yet");
        clock.extend(Instant::now(), lease);
        let first = clock.term();
        assert!(clock.is_safe(first) && !clock.is_safe(before));
        time::advance(Duration::from_secs(3)).await;
        clock.extend(Instant::now(), lease);
        assert!(clock.is_safe(first), "the lease was renewed in time");
        time::advance(Duration::from_millis(4_001)).await;
        assert!(!clock.is_safe(first), "too little is left");
        time::advance(Duration::from_secs(1)).await;
        clock.extend(Instant::now(), lease);
        assert!(!clock.is_safe(first), "other workers may have claimed its executions");
        assert!(clock.is_safe(clock.term()));
    }
}
