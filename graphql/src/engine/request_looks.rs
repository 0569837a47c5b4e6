//! What the followers of a request found when they looked last, so that thousands of them do not
//! all ask the store.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use shared::id::RequestId;
use tokio::time::Instant;

use super::Engine;

/// The requests that somebody follows.
#[derive(Debug, Default)]
pub(super) struct RequestLooks(Mutex<BTreeMap<RequestId, Weak<RequestLook>>>);

/// The last looks at one request.
#[derive(Debug, Default)]
pub(crate) struct RequestLook(Mutex<LastLooks>);

/// What was found last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastLooks {
    /// Since when somebody looks.
    looking: Option<Instant>,
    /// How many executions there were.
    pub(crate) executions: Option<LastLook<usize>>,
    /// How many transcript entries and how many plans there were.
    pub(crate) planning: Option<LastLook<[usize; 2]>>,
}

/// What one look found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastLook<T> {
    /// How much there was.
    pub(crate) found: T,
    /// When the store was asked.
    pub(crate) at: Instant,
}

impl<T: PartialEq> LastLook<T> {
    /// Returns whether somebody who knows so much need not look, since others did after a moment.
    pub(crate) fn is_enough(&self, known: &T, since: Instant) -> bool {
        self.found == *known && self.at >= since
    }
}

impl RequestLook {
    /// Returns what was found last, unless another follower is looking now and may find nothing
    /// new. One that has been looking for long may have a client that takes nothing, so that it is
    /// not polled: it counts no more.
    pub(crate) fn begin(
        &self,
        patience: Duration,
        executions: usize,
        planning: [usize; 2],
    ) -> Option<LastLooks> {
        let mut last = self.last();
        let is_behind = last.executions.is_some_and(|look| look.found != executions)
            || last.planning.is_some_and(|look| look.found != planning);
        if !is_behind && last.looking.is_some_and(|since| since.elapsed() < patience) {
            return None;
        }
        last.looking = Some(Instant::now());
        Some(*last)
    }

    /// Notes what a look found.
    pub(crate) fn end(&self, found: LastLooks) {
        *self.last() = LastLooks { looking: None, ..found };
    }

    fn last(&self) -> MutexGuard<'_, LastLooks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Returns what others who follow a request share.
    pub(crate) fn request_look(&self, id: RequestId) -> Arc<RequestLook> {
        let mut looks = self.request_looks.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = looks.get(&id).and_then(Weak::upgrade) {
            return look;
        }
        looks.retain(|_, look| look.strong_count() > 0);
        let look = Arc::default();
        looks.insert(id, Arc::downgrade(&look));
        look
    }
}
