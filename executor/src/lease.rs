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
    until: Mutex<Option<Instant>>,
    margin: Duration,
}

impl LeaseClock {
    /// Makes a clock without a lease. The margin is a fifth: time for a call to be sent.
    pub(crate) fn new(lease: Duration) -> Self {
        Self { until: Mutex::new(None), margin: lease / 5 }
    }

    /// Notes a lease that the store granted and that was asked for at `asked`.
    pub(crate) fn extend(&self, asked: Instant, lease: Duration) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(asked + lease);
    }

    /// Returns whether the lease lasts long enough to begin something.
    pub(crate) fn is_safe(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|it| Instant::now() + self.margin < it)
    }
}
