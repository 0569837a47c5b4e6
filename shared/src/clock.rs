//! What time it is, as an argument.

use std::fmt;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};

/// A moment, to the microsecond.
pub type Timestamp = DateTime<Utc>;

/// Tells the time. Everything that needs the time takes one, so that tests own it.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the current time, to the microsecond: what a store keeps is what memory has.
    fn now(&self) -> Timestamp;
}

/// Returns the moment right after another.
pub fn after(at: Timestamp) -> Timestamp {
    at.checked_add_signed(TimeDelta::microseconds(1)).unwrap_or(at)
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine")]
    fn now(&self) -> Timestamp {
        let now = Utc::now();
        now.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(now)
    }
}
