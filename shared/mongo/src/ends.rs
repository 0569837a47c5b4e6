//! Positions at which a document is known to end.
//!
//! Documents are never changed, and removed only long after the end of their log. So what was true
//! once is true for a while: this memory needs no validation, and forgetting costs one question.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use shared::id::{ExecutionId, Seq};
use tokio::time::{Duration, Instant};

/// Logs that are remembered: more than grow at the same time.
const LOGS: usize = 65_536;

/// How long an end is trusted: less than anybody waits before he removes what is over. A worker
/// that was frozen for longer asks, and finds that its log is gone.
const TRUST: Duration = Duration::from_secs(10);

/// The last known end of each log.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<BTreeMap<ExecutionId, (Seq, Instant)>>);

impl Ends {
    /// Returns whether a document of the log is known to end at a position; the beginning is one.
    pub(super) fn knows(&self, id: ExecutionId, end: Seq) -> bool {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |(it, at): &(Seq, Instant)| *it == end && at.elapsed() < TRUST;
        end == Seq::START || ends.get(&id).is_some_and(is_known)
    }

    /// Remembers that a document of the log ends at a position.
    pub(super) fn note(&self, id: ExecutionId, end: Seq) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() >= LOGS {
            ends.clear();
        }
        ends.insert(id, (end, Instant::now()));
    }

    /// Forgets a log that is over.
    pub(super) fn forget(&self, id: ExecutionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}
