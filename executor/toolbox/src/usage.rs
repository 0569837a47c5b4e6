//! Counts of tool calls, failures and durations. Durations are a histogram, so that counts of
//! several nodes can be added.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::TimeDelta;
use futures::future::join_all;
use shared::{
    clock::Timestamp,
    id::ToolName,
    store::{Store, StoreError, Usage},
};

/// Counts that are not in the store yet.
#[derive(Debug, Default)]
pub struct Meter {
    tallies: Mutex<BTreeMap<ToolName, Tally>>,
    /// Locked while counts are added, so that a later reader finds them in the store.
    flush_lock: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Tally {
    call_count: u64,
    failure_count: u64,
    last: Instant,
    times: BTreeMap<u16, u64>,
}

impl Meter {
    /// Counts a finished call.
    pub fn count(&self, name: &ToolName, duration: Duration, is_failure: bool) {
        let last = Instant::now();
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        if !tallies.contains_key(name) {
            let empty_tally =
                Tally { call_count: 0, failure_count: 0, last, times: BTreeMap::new() };
            tallies.insert(name.clone(), empty_tally);
        }
        if let Some(tally) = tallies.get_mut(name) {
            tally.call_count += 1;
            tally.failure_count += u64::from(is_failure);
            tally.last = last;
            *tally.times.entry(Usage::bucket(duration)).or_default() += 1;
        }
    }

    /// Adds the counts to the store. After an error, the counts remain for the next flush.
    pub async fn flush(&self, store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
        let _adding = self.flush_lock.lock().await;
        let taken =
            std::mem::take(&mut *self.tallies.lock().unwrap_or_else(PoisonError::into_inner));
        if taken.is_empty() {
            return Ok(());
        }
        let additions = taken.into_iter().map(|(tool, tally)| async move {
            let added = store.add_usage(&tally.as_usage(&tool, now)).await;
            if added.is_err() {
                self.put_back(tool, tally);
            }
            added
        });
        // Adds all counts at the same time, so that they share commits.
        join_all(additions).await.into_iter().collect()
    }

    fn put_back(&self, tool: ToolName, mut tally: Tally) {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newer) = tallies.remove(&tool) {
            tally.call_count += newer.call_count;
            tally.failure_count += newer.failure_count;
            tally.last = newer.last;
            for (bucket, n) in newer.times {
                *tally.times.entry(bucket).or_default() += n;
            }
        }
        tallies.insert(tool, tally);
    }
}

impl Tally {
    fn as_usage(&self, tool: &ToolName, now: Timestamp) -> Usage {
        let ago = TimeDelta::from_std(self.last.elapsed()).unwrap_or_default();
        Usage {
            tool: tool.clone(),
            calls: self.call_count,
            failures: self.failure_count,
            last: now - ago,
            times: self.times.clone(),
        }
    }
}
