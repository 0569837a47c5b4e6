//! Limits on calls, for all workers together.
//!
//! A limit on *concurrency* counts who holds it. A limit on *rate* is the generic cell rate
//! algorithm (ITU-T I.371), which keeps a single time: when the next call would come if all came
//! evenly. A call may be early by what a burst of all calls of one period is early.

use std::collections::BTreeMap;

use crate::{clock::Timestamp, id::WorkerId, limits};

/// The longest period of a rate that is told from a longer one: thirty years.
const LONGEST_MS: u64 = 1_000_000_000_000;

/// A question for all limits of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitAsk {
    /// What there is to give back.
    pub permit: Permit,
    /// What must allow it: all of them, each key once.
    pub limits: Vec<CallLimit>,
}

/// The right to one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Whose, a different one for every attempt.
    pub holder: String,
    /// The worker that calls.
    pub worker: WorkerId,
    /// The keys of the limits that count it.
    pub limits: Vec<String>,
}

/// A limit on calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimit {
    /// Calls with the same key are counted together.
    pub key: String,
    /// So many at once.
    pub concurrency: Option<u32>,
    /// So many a time.
    pub rate: Option<Rate>,
}

/// So many calls a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// So many; also at once, after a time without any.
    pub calls: u32,
    /// In so many milliseconds.
    pub per_ms: u64,
}

/// Whether a call may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Now.
    Granted,
    /// When another holder lets go.
    Full,
    /// Not before.
    NotBefore(Timestamp),
}

impl PermitAsk {
    /// Returns whether there is a limit on concurrency: only that has holders.
    pub fn has_holders(&self) -> bool {
        self.limits.iter().any(|it| it.concurrency.is_some())
    }

    /// Returns the limits in the order in which every store takes them: those that only count
    /// first, so that who holds the last limit has been counted by all.
    pub fn in_order(&self) -> Vec<&CallLimit> {
        let mut limits: Vec<_> = self.limits.iter().collect();
        limits.sort_by_key(|it| (it.concurrency.is_some(), &it.key));
        limits.dedup_by_key(|it| &it.key);
        limits
    }
}

impl CallLimit {
    /// Returns how many may hold it at once.
    pub fn places(&self) -> Option<usize> {
        self.concurrency.map(|it| it.min(limits::HOLDERS) as usize)
    }
}

impl Rate {
    /// Returns the microseconds from one call to the next when all come evenly.
    pub fn interval(self) -> i64 {
        let period = self.per_ms.min(LONGEST_MS) * 1_000;
        i64::try_from(period / u64::from(self.calls.max(1))).unwrap_or(i64::MAX).max(1)
    }

    /// Returns by how many microseconds a call may be early.
    pub fn patience(self) -> i64 {
        self.interval() * i64::from(self.calls.max(1) - 1)
    }
}

/// What is known of one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Who holds it, and for which worker.
    pub holders: BTreeMap<String, WorkerId>,
    /// When the next call would come if all came evenly, in microseconds; zero means long ago.
    pub next: i64,
    /// Whom the rate allowed last, so that he who asks again is not counted again.
    pub last: String,
}

impl Tally {
    /// Returns when the rate allows the next call.
    pub fn not_before(&self, rate: Rate) -> Timestamp {
        let at = self.next.saturating_sub(rate.patience());
        Timestamp::from_timestamp_micros(at).unwrap_or(Timestamp::MAX_UTC)
    }

    /// Takes the limit for a holder.
    fn take(&mut self, limit: &CallLimit, permit: &Permit, now: i64) -> Permission {
        if limit.places().is_some() {
            if self.holders.contains_key(&permit.holder) {
                return Permission::Granted;
            }
        } else if self.last == permit.holder {
            return Permission::Granted;
        }
        if let Some(rate) = limit.rate {
            if self.next - rate.patience() > now {
                return Permission::NotBefore(self.not_before(rate));
            }
            self.next = self.next.max(now) + rate.interval();
        }
        if limit.places().is_some() {
            self.holders.insert(permit.holder.clone(), permit.worker);
        } else {
            self.last.clone_from(&permit.holder);
        }
        Permission::Granted
    }

    /// Takes back what [`take`](Self::take) did, now or earlier.
    fn undo(&mut self, limit: &CallLimit, permit: &Permit) {
        self.holders.remove(&permit.holder);
        self.next -= limit.rate.map_or(0, Rate::interval);
        if self.last == permit.holder {
            self.last.clear();
        }
    }
}

/// What is known of the limits of one ask.
pub type Tallies = BTreeMap<String, Tally>;

/// Takes all limits of a call or none, as far as `tallies` has them; what is not there nobody has
/// asked for lately. Workers that are gone are looked for only when there is no place.
pub fn take_all(
    tallies: &mut Tallies,
    ask: &PermitAsk,
    now: Timestamp,
    is_gone: impl Fn(WorkerId) -> bool,
) -> Permission {
    let PermitAsk { permit, .. } = ask;
    let limits = ask.in_order();
    let mut places = limits.iter().filter_map(|it| it.places().map(|places| (*it, places)));
    let holds = |it: &Tallies, key: &str| {
        it.get(key).is_some_and(|it| it.holders.contains_key(&permit.holder))
    };
    if ask.has_holders() && places.clone().all(|(it, _)| holds(tallies, &it.key)) {
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
        let taken = tally.take(limit, permit, now.timestamp_micros());
        if taken != Permission::Granted {
            for limit in &limits[..n] {
                let tally = tallies.entry(limit.key.clone()).or_default();
                tally.undo(limit, permit);
            }
            give_back(tallies, permit);
            return taken;
        }
    }
    Permission::Granted
}

/// Lets a holder go.
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
        let keys = limits.iter().map(|it| it.key.clone()).collect();
        let worker = "work_1_aaaaaaaaa".parse().unwrap();
        let permit = Permit { holder: holder.to_owned(), worker, limits: keys };
        PermitAsk { permit, limits: limits.to_vec() }
    }

    #[test]
    fn a_rate_allows_a_burst_and_then_one_at_a_time() {
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
    fn no_rate_is_beyond_arithmetic() {
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
