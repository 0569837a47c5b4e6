//! Clocks. Code that needs the time takes a clock as an argument.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use nix::time::{ClockId, clock_gettime};

/// A point in time. Clocks return whole microseconds, the precision of the stores.
pub type Timestamp = DateTime<Utc>;

/// Tells the time. Tests pass their own clock.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the current time, cut to microseconds, the precision that stores keep.
    fn now(&self) -> Timestamp;

    /// Moves this clock towards a reference in corrections that are too small to affect a lease.
    /// Does nothing by default.
    fn approach(&self, _reference: Timestamp) {}
}

/// Returns the time one microsecond later.
pub fn next_moment(at: Timestamp) -> Timestamp {
    at.checked_add_signed(TimeDelta::microseconds(1)).unwrap_or(at)
}

/// A clock that does not jump when an administrator changes the machine's clock. It adds an offset
/// to the time since boot, and the offset changes only slowly, by [`approach`](Clock::approach).
#[derive(Debug)]
pub struct SteadyClock(Mutex<SteadyState>);

#[derive(Clone, Copy, Debug)]
struct SteadyState {
    offset: i64,
    /// The time since boot at the last call of `approach`.
    last_approach: i64,
}

/// A steady clock corrects its time by at most the elapsed time divided by this number.
const CORRECTION_DIVISOR: i64 = 100;

impl SteadyClock {
    /// Makes a clock that starts at `now`.
    pub fn starting_at(now: Timestamp) -> Self {
        Self::with_offset(now.timestamp_micros() - micros_since_boot())
    }

    /// Makes a clock that adds `offset` microseconds to the time since boot.
    pub fn with_offset(offset: i64) -> Self {
        Self(Mutex::new(SteadyState { offset, last_approach: micros_since_boot() }))
    }

    /// Returns the offset in microseconds.
    pub fn offset(&self) -> i64 {
        self.lock_state().offset
    }

    fn lock_state(&self) -> std::sync::MutexGuard<'_, SteadyState> {
        // Ignores a panic of another thread that had the lock, because the two numbers are valid at
        // any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        let micros = micros_since_boot().saturating_add(self.offset());
        Timestamp::from_timestamp_micros(micros).unwrap_or(Timestamp::MAX_UTC)
    }

    fn approach(&self, reference: Timestamp) {
        let mut state = self.lock_state();
        let boot = micros_since_boot();
        let maximum = (boot - state.last_approach).max(0) / CORRECTION_DIVISOR;
        let away = reference.timestamp_micros().saturating_sub(boot.saturating_add(state.offset));
        state.offset = state.offset.saturating_add(away.clamp(-maximum, maximum));
        state.last_approach = boot;
    }
}

/// Largest difference between two clocks that is not reported.
const MIN_REPORTED_DIFFERENCE: TimeDelta = TimeDelta::seconds(5);

/// Describes the difference between the time of a store and the machine's clock, if it is large.
pub fn describe_difference(store: Timestamp, machine: Timestamp) -> Option<String> {
    let difference = machine - store;
    let side = if difference > TimeDelta::zero() { "behind" } else { "ahead of" };
    (difference.abs() > MIN_REPORTED_DIFFERENCE).then(|| {
        format!(
            "the clock of the store is {} s {side} the clock of this machine; `startAt` and the \
             times of events use the store's clock",
            difference.num_seconds().abs()
        )
    })
}

/// Returns the microseconds since boot, suspensions included.
fn micros_since_boot() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux tells the time since boot");
    time.tv_sec().saturating_mul(1_000_000).saturating_add(time.tv_nsec() / 1_000)
}

/// The clock of this machine, which an administrator can change.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "only this function reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let now = Utc::now();
        now.duration_trunc(TimeDelta::microseconds(1)).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_difference_is_described_only_above_five_seconds() {
        let store = Timestamp::from_timestamp(4_000_000_000, 0).unwrap();
        let describe = |seconds| describe_difference(store, store + TimeDelta::seconds(seconds));
        assert_eq!((describe(0), describe(5), describe(-5)), (None, None, None));
        assert!(describe(86_400).unwrap().contains("is 86400 s behind the clock"));
        assert!(describe(-6).unwrap().contains("is 6 s ahead of the clock"));
    }

    #[test]
    fn a_steady_clock_continues_from_its_start_time() {
        let began = Timestamp::from_timestamp(4_000_000_000, 0).unwrap();
        let clock = SteadyClock::starting_at(began);
        let first = clock.now();
        assert!(first >= began && first - began < TimeDelta::minutes(1), "{first}");
        assert!(clock.now() >= first);
    }

    #[test]
    fn a_steady_clock_approaches_its_reference_slowly() {
        let clock = SteadyClock::starting_at(WallClock.now());
        let before = clock.offset();
        // Sets the last call of `approach` to a hundred seconds ago.
        clock.lock_state().last_approach -= 100_000_000;
        clock.approach(WallClock.now() + TimeDelta::days(365));
        let moved = clock.offset() - before;
        assert!((1_000_000..1_100_000).contains(&moved), "{moved}");
        clock.approach(WallClock.now() - TimeDelta::days(365));
        assert!(before + moved - clock.offset() < 100_000, "little time has passed since");
        clock.lock_state().last_approach -= 1_000_000_000_000;
        clock.approach(WallClock.now());
        assert!((clock.now() - WallClock.now()).abs() < TimeDelta::seconds(10));
    }
}
