use std::time::{Duration, Instant};

use shared::store::Rate;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    rate: Rate,
    uses_left: f64,
    filled_at: Instant,
}

impl Bucket {
    pub(super) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, uses_left: f64::from(rate.calls), filled_at: now }
    }

    fn window_seconds(&self) -> f64 {
        Duration::from_millis(self.rate.per_ms.max(1)).as_secs_f64()
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        let maximum = f64::from(self.rate.calls);
        self.uses_left = (self.uses_left + passed * maximum / self.window_seconds()).min(maximum);
        self.filled_at = self.filled_at.max(now);
    }

    /// Returns the time until the next use, or `None` if a use is possible now.
    pub(super) fn time_until_use(&mut self, now: Instant) -> Option<Duration> {
        self.refill(now);
        // Treats a missing share below a thousandth of a use as zero, because rounding causes it.
        let missing = 1.0 - self.uses_left;
        if missing < 1e-3 {
            return None;
        }
        let rate = f64::from(self.rate.calls.max(1));
        Some(Duration::from_secs_f64(missing * self.window_seconds() / rate))
    }

    pub(super) fn take_use(&mut self) {
        self.uses_left = (self.uses_left - 1.0).max(0.0);
    }

    /// Returns whether all uses are available again. Such a limiter can be dropped, because a new
    /// one has the same state.
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.uses_left >= f64::from(self.rate.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_with_calls_and_refills_with_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate { calls: 2, per_ms: 10_000 }, start);
        for _ in 0..2 {
            assert_eq!(bucket.time_until_use(start), None);
            bucket.take_use();
        }
        assert_eq!(bucket.time_until_use(start), Some(Duration::from_secs(5)));
        assert!(bucket.time_until_use(start + Duration::from_secs(4)).is_some());
        assert_eq!(bucket.time_until_use(start + Duration::from_secs(5)), None);
        bucket.take_use();
        assert!(!bucket.is_full(start + Duration::from_secs(6)));
        assert!(bucket.is_full(start + Duration::from_hours(1)));
        assert_eq!(bucket.time_until_use(start), None, "a clock that goes back removes no token");
    }
}
