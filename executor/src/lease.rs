//! Whether this worker may still act. Claims keep executions safe; this keeps tools from being
//! called by a worker that others already think dead.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The end of this worker's lease, by its own monotonic clock.
#[derive(Debug)]
pub(crate) struct LeaseClock {
    state: Mutex<State>,
    margin: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    until: Option<Instant>,
    term: Term,
}

/// Counts the times that the lease began anew. A lease that ran out and was granted again says
/// nothing of what was claimed before: others may have claimed it in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Term(u64);

impl LeaseClock {
    /// Makes a clock without a lease. The margin is a fifth: time for a call to be sent.
    pub(crate) fn new(lease: Duration) -> Self {
        Self { state: Mutex::default(), margin: lease / 5 }
    }

    /// Notes a lease that the store granted and that was asked for at `asked`.
    pub(crate) fn extend(&self, asked: Instant, lease: Duration) {
        let mut state = self.state();
        // When it was granted is unknown; at the latest now.
        if state.until.is_none_or(|it| it <= Instant::now()) {
            state.term.0 += 1;
        }
        state.until = Some(asked + lease);
    }

    /// Returns the term in which something is claimed now.
    pub(crate) fn term(&self) -> Term {
        self.state().term
    }

    /// Returns whether what was claimed in `term` is still this worker's, for long enough to begin
    /// something.
    pub(crate) fn is_safe(&self, term: Term) -> bool {
        let State { until, term: current } = *self.state();
        current == term && until.is_some_and(|it| Instant::now() + self.margin < it)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Two numbers are never half changed for long.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_ran_out_begins_anew() {
        let lease = Duration::from_secs(5);
        let clock = LeaseClock::new(lease);
        let before = clock.term();
        assert!(!clock.is_safe(before), "nothing was granted yet");
        clock.extend(Instant::now(), lease);
        let first = clock.term();
        assert!(clock.is_safe(first) && !clock.is_safe(before));
        time::advance(Duration::from_secs(3)).await;
        clock.extend(Instant::now(), lease);
        assert!(clock.is_safe(first), "it was renewed in time");
        time::advance(Duration::from_millis(4_001)).await;
        assert!(!clock.is_safe(first), "too little is left");
        time::advance(Duration::from_secs(1)).await;
        clock.extend(Instant::now(), lease);
        assert!(!clock.is_safe(first), "others may have claimed what was claimed before");
        assert!(clock.is_safe(clock.term()));
    }
}
