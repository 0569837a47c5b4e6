//! Hints that it is worth looking again. They carry no data: whoever wakes up reads the store, so
//! there is one way to learn what happened, and a lost hint costs time, never truth.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use super::recent::RecentEvents;
use crate::id::ExecutionId;

/// From so many watched logs on, those that nobody watches any more are forgotten, each time
/// their number has doubled.
const SWEEP: usize = 1_024;

/// Wakes readers, within one process.
#[derive(Debug)]
pub struct Hints {
    work: watch::Sender<()>,
    inbox: watch::Sender<()>,
    records: watch::Sender<()>,
    logs: Mutex<BTreeMap<ExecutionId, WatchedLog>>,
}

/// A log that somebody follows in this process.
#[derive(Debug, Default)]
struct WatchedLog {
    hint: watch::Sender<()>,
    recent: Arc<RecentEvents>,
}

impl WatchedLog {
    /// Wakes the followers. Returns `false` if there are none.
    fn poke(&self) -> bool {
        self.recent.expect_more();
        self.hint.send(()).is_ok()
    }
}

/// What a follower of a log waits for, and where it finds what other followers have read.
#[derive(Debug)]
pub(super) struct LogHint {
    pub(super) grown: watch::Receiver<()>,
    pub(super) recent: Arc<RecentEvents>,
}

impl Drop for LogHint {
    fn drop(&mut self) {
        // The map has the one, this follower the other: nobody else reads what is kept.
        if Arc::strong_count(&self.recent) <= 2 {
            self.recent.clear();
        }
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self {
            work: watch::Sender::new(()),
            inbox: watch::Sender::new(()),
            records: watch::Sender::new(()),
            logs: Mutex::default(),
        }
    }
}

impl Hints {
    /// Returns a hint that there may be executions to claim.
    pub fn work(&self) -> watch::Receiver<()> {
        self.work.subscribe()
    }

    /// Returns a hint that there may be commands.
    pub fn inbox(&self) -> watch::Receiver<()> {
        self.inbox.subscribe()
    }

    /// Returns a hint that records may have changed on which all nodes must agree.
    pub fn records(&self) -> watch::Receiver<()> {
        self.records.subscribe()
    }

    /// Returns a hint that a log may have grown.
    pub fn log(&self, id: ExecutionId) -> watch::Receiver<()> {
        self.with_log(id, |log| log.hint.subscribe())
    }

    /// Returns the same for a follower, with what other followers have read.
    pub(super) fn follow(&self, id: ExecutionId) -> LogHint {
        self.with_log(id, |log| LogHint {
            grown: log.hint.subscribe(),
            recent: Arc::clone(&log.recent),
        })
    }

    fn with_log<T>(&self, id: ExecutionId, give: impl FnOnce(&WatchedLog) -> T) -> T {
        let mut logs = self.logs();
        if logs.len() >= SWEEP && logs.len().is_power_of_two() {
            logs.retain(|_, log| log.hint.receiver_count() > 0);
        }
        give(logs.entry(id).or_default())
    }

    /// Says that there may be executions to claim.
    pub fn poke_work(&self) {
        self.work.send_replace(());
    }

    /// Says that there may be commands.
    pub fn poke_inbox(&self) {
        self.inbox.send_replace(());
    }

    /// Says that records may have changed on which all nodes must agree.
    pub fn poke_records(&self) {
        self.records.send_replace(());
    }

    /// Says that a log has grown. Forgets logs that nobody watches any more.
    pub fn poke_log(&self, id: ExecutionId) {
        let mut logs = self.logs();
        if logs.get(&id).is_some_and(|log| !log.poke()) {
            logs.remove(&id);
        }
    }

    /// Says that any log may have grown, and that there may be anything else, too.
    pub fn poke_all(&self) {
        self.poke_work();
        self.poke_inbox();
        self.poke_records();
        self.logs().retain(|_, log| log.poke());
    }

    fn logs(&self) -> std::sync::MutexGuard<'_, BTreeMap<ExecutionId, WatchedLog>> {
        // A map of hints is never half changed.
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
