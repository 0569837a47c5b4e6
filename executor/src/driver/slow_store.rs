//! Warns when the store is slow. Slow appends come in large numbers, so one log line reports many
//! of them.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::warn;

/// Duration above which an append counts as slow, because people notice such a delay.
const SLOW_APPEND: Duration = Duration::from_secs(1);
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct SlowStoreLog(Mutex<SlowAppends>);

#[derive(Debug, Default)]
struct SlowAppends {
    count: u64,
    slowest: Duration,
    warned_at: Option<Instant>,
}

impl SlowStoreLog {
    pub(crate) fn note_append(&self, took: Duration) {
        if let Some(SlowAppends { count, slowest, .. }) = self.add_append(took, Instant::now()) {
            warn!(
                target: "faber::store",
                appends = count,
                slowest_ms = u64::try_from(slowest.as_millis()).unwrap_or(u64::MAX),
                "the store is slow: executions wait until their events are durable"
            );
        }
    }

    /// Adds an append. If a warning is due, returns the slow appends since the last warning.
    fn add_append(&self, took: Duration, now: Instant) -> Option<SlowAppends> {
        if took < SLOW_APPEND {
            return None;
        }
        let mut slow = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slow.count += 1;
        slow.slowest = slow.slowest.max(took);
        if slow.warned_at.is_some_and(|at| now.duration_since(at) < WARNING_INTERVAL) {
            return None;
        }
        let warned = SlowAppends { warned_at: Some(now), ..SlowAppends::default() };
        Some(std::mem::replace(&mut *slow, warned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_slow_appends_share_one_warning() {
        let log = SlowStoreLog::default();
        let now = Instant::now();
        let add = |seconds, after| {
            let slow =
                log.add_append(Duration::from_secs(seconds), now + Duration::from_secs(after));
            slow.map(|slow| (slow.count, slow.slowest.as_secs()))
        };
        assert_eq!(add(0, 0), None);
        assert_eq!(add(2, 0), Some((1, 2)));
        assert_eq!(add(5, 1), None);
        assert_eq!(add(3, 9), None);
        assert_eq!(add(1, 11), Some((3, 5)));
        assert_eq!(add(1, 22), Some((1, 1)));
    }
}
