//! Remembers a position of each event log at which a document ends, so that most appends need no
//! query. Documents never change, so no code has to invalidate an entry.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use shared::id::{ExecutionId, Seq};
use tokio::time::{Duration, Instant};

/// Maximum number of entries. It exceeds the number of logs that grow at the same time.
const MAX_KNOWN_ENDS: usize = 65_536;

/// Maximum age of an entry. It is shorter than the time after which a finished execution can be
/// pruned. A worker that was frozen for longer queries the log and finds that the log was removed.
const MAX_END_AGE: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct KnownEnds(Mutex<BTreeMap<ExecutionId, KnownEnd>>);

#[derive(Debug)]
struct KnownEnd {
    position: Seq,
    seen_at: Instant,
}

impl KnownEnds {
    /// Returns `true` if a document of the log ends at `position`. The start of a log counts as
    /// such an end.
    pub(super) fn contains(&self, id: ExecutionId, position: Seq) -> bool {
        let ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known =
            |end: &KnownEnd| end.position == position && end.seen_at.elapsed() < MAX_END_AGE;
        position == Seq::START || ends.get(&id).is_some_and(is_known)
    }

    pub(super) fn insert(&self, id: ExecutionId, position: Seq) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() >= MAX_KNOWN_ENDS {
            ends.clear();
        }
        ends.insert(id, KnownEnd { position, seen_at: Instant::now() });
    }

    pub(super) fn remove(&self, id: ExecutionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}
