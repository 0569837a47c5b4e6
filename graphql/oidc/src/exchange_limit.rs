//! The limit of requests to the token endpoint. Too many invented codes could make the issuer
//! refuse Faber's own requests.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of requests that begin within [`PERIOD`].
pub(crate) const MAX_EXCHANGES: usize = 16;
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// The times at which requests of the last period began.
#[derive(Debug, Default)]
pub(crate) struct ExchangeLimit(Mutex<VecDeque<Instant>>);

impl ExchangeLimit {
    /// Counts a request that begins now. Returns `false` if it would exceed the limit.
    pub(crate) fn count_exchange(&self, now: Instant) -> bool {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        begun.retain(|at| now.saturating_duration_since(*at) < PERIOD);
        if begun.len() >= MAX_EXCHANGES {
            return false;
        }
        begun.push_back(now);
        true
    }
}
