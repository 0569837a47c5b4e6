use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{clock::Timestamp, id::ToolName};

const BUCKETS_PER_DOUBLING: f64 = 8.0;
/// The last bucket. It counts all durations of about thirteen days and longer.
const LAST_BUCKET: u16 = 320;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub tool: ToolName,
    /// The number of finished calls, failed ones included.
    pub calls: u64,
    pub failures: u64,
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub last: Timestamp,
    /// A histogram of durations: the number of calls by [`bucket`](Self::bucket).
    pub times: BTreeMap<u16, u64>,
}

impl Usage {
    /// Returns the bucket of a duration. Each bucket is about a tenth longer than the previous
    /// bucket.
    pub fn bucket(took: Duration) -> u16 {
        let micros = took.as_secs_f64() * 1e6;
        let bucket = (micros.max(1.0).log2() * BUCKETS_PER_DOUBLING).floor();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between zero and the last bucket"
        )]
        let bucket = bucket.min(f64::from(LAST_BUCKET)) as u16;
        bucket
    }

    /// Returns the duration that a share of the calls did not exceed, with an error of at most a
    /// tenth. Returns `None` if there are no calls.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        quantile(&self.times, share)
    }

    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.failures = self.failures.saturating_add(other.failures);
        self.last = self.last.max(other.last);
        for (bucket, n) in &other.times {
            let there = self.times.entry(*bucket).or_default();
            *there = there.saturating_add(*n);
        }
    }
}

pub(super) fn quantile(times: &BTreeMap<u16, u64>, share: f64) -> Option<Duration> {
    let all: u64 = times.values().sum();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of a count is a count"
    )]
    let wanted = ((all as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    let bucket = times.iter().find_map(|(bucket, n)| {
        seen += n;
        (seen >= wanted).then_some(*bucket)
    })?;
    let micros = ((f64::from(bucket) + 0.5) / BUCKETS_PER_DOUBLING).exp2();
    Some(Duration::from_secs_f64(micros / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_have_an_error_below_ten_percent() {
        let mut usage = Usage {
            tool: "t".parse().unwrap(),
            calls: 0,
            failures: 0,
            last: Timestamp::UNIX_EPOCH,
            times: BTreeMap::new(),
        };
        assert_eq!(usage.quantile(0.5), None);
        for millis in 1..=1_000 {
            *usage.times.entry(Usage::bucket(Duration::from_millis(millis))).or_default() += 1;
        }
        for (share, expected) in [(0.5, 0.5), (0.99, 0.99), (0.0, 0.001), (1.0, 1.0)] {
            let found = usage.quantile(share).unwrap().as_secs_f64();
            assert!((found / expected - 1.0).abs() < 0.1, "{share}: {found}");
        }
    }

    #[test]
    fn every_duration_has_a_bucket() {
        assert_eq!(Usage::bucket(Duration::ZERO), 0);
        assert_eq!(Usage::bucket(Duration::MAX), LAST_BUCKET);
        assert!(Usage::bucket(Duration::from_hours(24)) < LAST_BUCKET);
    }
}
