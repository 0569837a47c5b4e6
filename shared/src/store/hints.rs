//! Wake-up hints. A hint contains no data, because a reader that it wakes reads the store. So a
//! lost hint delays a reader, but the reader misses nothing.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

use super::recent::RecentEvents;
use crate::id::ExecutionId;

/// Number of watched logs at which logs without followers are dropped for the first time, and then
/// each time the number has doubled.
const FIRST_CLEANUP_LOGS: usize = 1_024;

#[derive(Debug)]
pub struct Hints {
    work_hint: watch::Sender<()>,
    inbox: watch::Sender<()>,
    records: watch::Sender<()>,
    logs: Mutex<BTreeMap<ExecutionId, WatchedLog>>,
    commits: AtomicU64,
}

#[derive(Debug, Default)]
struct WatchedLog {
    hint: watch::Sender<()>,
    recent: Arc<RecentEvents>,
}

impl WatchedLog {
    /// Wakes the followers. Returns `false` if the log has no followers.
    fn wake_followers(&self) -> bool {
        self.recent.expect_more();
        self.hint.send(()).is_ok()
    }
}

/// The hint of a log's follower, and the events that other followers have read.
#[derive(Debug)]
pub(super) struct LogHint {
    pub(super) growth: watch::Receiver<()>,
    pub(super) recent: Arc<RecentEvents>,
}

impl Drop for LogHint {
    fn drop(&mut self) {
        // Only the map and this follower still refer to the events, so no other follower reads
        // them.
        if Arc::strong_count(&self.recent) <= 2 {
            self.recent.clear();
        }
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            work_hint: watch::Sender::new(()),
            inbox: watch::Sender::new(()),
            records: watch::Sender::new(()),
            logs: Mutex::default(),
            commits: AtomicU64::new(0),
        }
    }
}

impl Hints {
    pub fn subscribe_work(&self) -> watch::Receiver<()> {
        self.work_hint.subscribe()
    }

    pub fn subscribe_inbox(&self) -> watch::Receiver<()> {
        self.inbox.subscribe()
    }

    pub fn subscribe_records(&self) -> watch::Receiver<()> {
        self.records.subscribe()
    }

    pub fn subscribe_log(&self, id: ExecutionId) -> watch::Receiver<()> {
        self.with_log(id, |log| log.hint.subscribe())
    }

    /// Returns the hint that a log has grown, and the events that other followers of the log have
    /// read.
    pub(super) fn follow_log(&self, id: ExecutionId) -> LogHint {
        self.with_log(id, |log| LogHint {
            growth: log.hint.subscribe(),
            recent: Arc::clone(&log.recent),
        })
    }

    fn with_log<T>(&self, id: ExecutionId, give: impl FnOnce(&WatchedLog) -> T) -> T {
        let mut logs = self.lock_logs();
        if logs.len() >= FIRST_CLEANUP_LOGS && logs.len().is_power_of_two() {
            logs.retain(|_, log| log.hint.receiver_count() > 0);
        }
        give(logs.entry(id).or_default())
    }

    pub fn count_commit(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub fn wake_work(&self) {
        self.work_hint.send_replace(());
    }

    pub fn wake_inbox(&self) {
        self.inbox.send_replace(());
    }

    pub fn wake_records(&self) {
        self.records.send_replace(());
    }

    /// Reports that a log has grown. Stops watching the log if it has no followers.
    pub fn wake_log(&self, id: ExecutionId) {
        let mut logs = self.lock_logs();
        if logs.get(&id).is_some_and(|log| !log.wake_followers()) {
            logs.remove(&id);
        }
    }

    pub fn wake_all(&self) {
        self.wake_work();
        self.wake_inbox();
        self.wake_records();
        self.lock_logs().retain(|_, log| log.wake_followers());
    }

    fn lock_logs(&self) -> std::sync::MutexGuard<'_, BTreeMap<ExecutionId, WatchedLog>> {
        // Ignores a panic of another thread that had the lock, because no operation leaves the map
        // half changed.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
