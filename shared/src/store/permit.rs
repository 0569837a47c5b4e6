//! Limits on calls, shared by all workers. A limit on *concurrency* counts its holders, and a limit
//! on *rate* uses the generic cell rate algorithm (ITU-T I.371).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{clock::Timestamp, id::WorkerId, limits};

/// The longest period of a rate, about thirty years. Longer periods are shortened to it.
const MAX_PERIOD_MS: u64 = 1_000_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitAsk {
    pub permit: Permit,
    pub limits: Vec<CallLimit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    pub holder: String,
    pub worker: WorkerId,
    pub limits: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimit {
    pub key: String,
    pub concurrency: Option<u32>,
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// The number of calls per period. After a pause, all of them can come at the same time.
    pub calls: u32,
    pub per_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Granted,
    /// The call must wait until another holder releases its permit.
    Full,
    NotBefore(Timestamp),
}

impl PermitAsk {
    /// Returns `true` if one of the limits is on concurrency. Only such limits have holders.
    pub fn has_holders(&self) -> bool {
        self.limits.iter().any(|limit| limit.concurrency.is_some())
    }

    /// Returns the limits in the order in which every store acquires them.
    ///
    /// Rate limits come first, so that every rate has counted a call that acquires the last limit.
    pub fn ordered_limits(&self) -> Vec<&CallLimit> {
        let mut limits: Vec<_> = self.limits.iter().collect();
        limits.sort_by_key(|limit| (limit.concurrency.is_some(), &limit.key));
        limits.dedup_by_key(|limit| &limit.key);
        limits
    }
}

impl CallLimit {
    pub fn places(&self) -> Option<usize> {
        self.concurrency.map(|concurrency| concurrency.min(limits::LIMIT_HOLDERS) as usize)
    }
}

impl Rate {
    /// Returns the microseconds between two calls at even intervals.
    pub fn call_interval(self) -> i64 {
        let period = self.per_ms.min(MAX_PERIOD_MS) * 1_000;
        i64::try_from(period / u64::from(self.calls.max(1))).unwrap_or(i64::MAX).max(1)
    }

    /// Returns the microseconds by which a call can be early.
    pub fn burst_tolerance(self) -> i64 {
        self.call_interval() * i64::from(self.calls.max(1) - 1)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitState {
    pub holders: BTreeMap<String, WorkerId>,
    /// The time of the next call at even intervals, in microseconds. Zero allows a call at any
    /// time.
    pub next: i64,
    /// The last holder that a limit without concurrency allowed. If this holder asks again, its
    /// call is not counted twice. A limit with concurrency knows its holders.
    pub last: String,
}

impl LimitState {
    pub fn next_call_at(&self, rate: Rate) -> Timestamp {
        let at = self.next.saturating_sub(rate.burst_tolerance());
        Timestamp::from_timestamp_micros(at).unwrap_or(Timestamp::MAX_UTC)
    }

    fn acquire_limit(&mut self, limit: &CallLimit, permit: &Permit, now: i64) -> Permission {
        if limit.places().is_some() {
            if self.holders.contains_key(&permit.holder) {
                return Permission::Granted;
            }
        } else if self.last == permit.holder {
            return Permission::Granted;
        }
        if let Some(rate) = limit.rate {
            if self.next - rate.burst_tolerance() > now {
                return Permission::NotBefore(self.next_call_at(rate));
            }
            self.next = self.next.max(now) + rate.call_interval();
        }
        if limit.places().is_some() {
            self.holders.insert(permit.holder.clone(), permit.worker);
        } else {
            self.last.clone_from(&permit.holder);
        }
        Permission::Granted
    }

    fn undo_acquire(&mut self, limit: &CallLimit, permit: &Permit) {
        self.holders.remove(&permit.holder);
        self.next -= limit.rate.map_or(0, Rate::call_interval);
        if self.last == permit.holder {
            self.last.clear();
        }
    }
}

pub type Tallies = BTreeMap<String, LimitState>;

/// Acquires all limits of a call, or none. A limit that is not in `tallies` has no holders and no
/// recent calls.
pub fn take_all(
    tallies: &mut Tallies,
    ask: &PermitAsk,
    now: Timestamp,
    is_gone: impl Fn(WorkerId) -> bool,
) -> Permission {
    let PermitAsk { permit, .. } = ask;
    let limits = ask.ordered_limits();
    let mut places =
        limits.iter().filter_map(|limit| limit.places().map(|places| (*limit, places)));
    let holds = |tallies: &Tallies, key: &str| {
        tallies.get(key).is_some_and(|tally| tally.holders.contains_key(&permit.holder))
    };
    if ask.has_holders() && places.clone().all(|(limit, _)| holds(tallies, &limit.key)) {
        return Permission::Granted;
    }
    let is_full = places.any(|(limit, places)| {
        let tally = tallies.entry(limit.key.clone()).or_default();
        if tally.holders.contains_key(&permit.holder) || tally.holders.len() < places {
            return false;
        }
        tally.holders.retain(|_, worker| !is_gone(*worker));
        tally.holders.len() >= places
    });
    if is_full {
        give_back(tallies, permit);
        return Permission::Full;
    }
    for (n, limit) in limits.iter().enumerate() {
        let tally = tallies.entry(limit.key.clone()).or_default();
        let taken = tally.acquire_limit(limit, permit, now.timestamp_micros());
        if taken != Permission::Granted {
            for limit in &limits[..n] {
                let tally = tallies.entry(limit.key.clone()).or_default();
                tally.undo_acquire(limit, permit);
            }
            give_back(tallies, permit);
            return taken;
        }
    }
    Permission::Granted
}

pub fn give_back(tallies: &mut Tallies, permit: &Permit) {
    for tally in tallies.values_mut() {
        tally.holders.remove(&permit.holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_timestamp_micros(1_704_123_456_000_000 + micros).unwrap()
    }

    fn ask(holder: &str, limits: &[CallLimit]) -> PermitAsk {
        let keys = limits.iter().map(|limit| limit.key.clone()).collect();
        let worker = "work_1_aaaaaaaaa".parse().unwrap();
        let permit = Permit { holder: holder.to_owned(), worker, limits: keys };
        PermitAsk { permit, limits: limits.to_vec() }
    }

    #[test]
    fn a_rate_allows_a_burst_and_then_single_calls_at_intervals() {
        let rate = Rate { calls: 3, per_ms: 3 };
        let limit = CallLimit { key: "k".to_owned(), concurrency: None, rate: Some(rate) };
        let mut tallies = Tallies::new();
        let mut take = |n: u32, micros| {
            let ask = ask(&n.to_string(), std::slice::from_ref(&limit));
            take_all(&mut tallies, &ask, at(micros), |_| false)
        };
        for n in 0..3 {
            assert_eq!(take(n, 0), Permission::Granted, "{n}");
        }
        assert_eq!(take(2, 0), Permission::Granted, "it was allowed already");
        assert_eq!(take(3, 0), Permission::NotBefore(at(1_000)));
        assert_eq!(take(3, 999), Permission::NotBefore(at(1_000)));
        assert_eq!(take(3, 1_000), Permission::Granted);
        assert_eq!(take(4, 1_000), Permission::NotBefore(at(2_000)));
        for n in 10..13 {
            assert_eq!(take(n, 60_000), Permission::Granted, "{n}: time has not been saved up");
        }
        assert_eq!(take(13, 60_000), Permission::NotBefore(at(61_000)));
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let extremes = [(0, 0), (0, u64::MAX), (1, u64::MAX), (u32::MAX, 0), (u32::MAX, u64::MAX)];
        for (calls, per_ms) in extremes {
            let rate = Rate { calls, per_ms };
            let limit = CallLimit { key: String::new(), concurrency: None, rate: Some(rate) };
            let mut tallies = Tallies::new();
            let mut take = |holder: &str| {
                let ask = ask(holder, std::slice::from_ref(&limit));
                take_all(&mut tallies, &ask, at(0), |_| false)
            };
            assert_eq!(take("a"), Permission::Granted, "{rate:?}");
            take("b");
        }
    }
}
