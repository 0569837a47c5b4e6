//! The last polls of a request, which all its followers share. Thousands of followers need no poll
//! each.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use shared::id::RequestId;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct RequestPollsById(Mutex<BTreeMap<RequestId, Weak<RequestPolls>>>);

#[derive(Debug, Default)]
pub struct RequestPolls(Mutex<LastPolls>);

#[derive(Clone, Copy, Debug, Default)]
pub struct LastPolls {
    /// The start of the poll that runs now.
    polling: Option<Instant>,
    pub executions: Option<LastPoll<usize>>,
    pub planning: Option<LastPoll<[usize; 2]>>,
}

#[derive(Clone, Copy, Debug)]
pub struct LastPoll<T> {
    pub found: T,
    pub at: Instant,
}

impl<T: PartialEq> LastPoll<T> {
    /// Returns whether a follower that knows `known` need not poll, because another one has polled
    /// after `since`.
    pub fn is_enough(&self, known: &T, since: Instant) -> bool {
        self.found == *known && self.at >= since
    }
}

impl RequestPolls {
    /// Starts a poll and returns the last results. Returns nothing if another follower polls now. A
    /// follower whose poll takes longer than `patience` counts no more: its client may have stopped
    /// reading.
    pub fn begin(
        &self,
        patience: Duration,
        executions: usize,
        planning: [usize; 2],
    ) -> Option<LastPolls> {
        let mut last = self.last();
        let is_behind = last.executions.is_some_and(|poll| poll.found != executions)
            || last.planning.is_some_and(|poll| poll.found != planning);
        if !is_behind && last.polling.is_some_and(|since| since.elapsed() < patience) {
            return None;
        }
        last.polling = Some(Instant::now());
        Some(*last)
    }

    pub fn end(&self, found: LastPolls) {
        *self.last() = LastPolls { polling: None, ..found };
    }

    fn last(&self) -> MutexGuard<'_, LastPolls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestPollsById {
    pub(super) fn of(&self, request: RequestId) -> Arc<RequestPolls> {
        let mut polls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(polls) = polls.get(&request).and_then(Weak::upgrade) {
            return polls;
        }
        polls.retain(|_, polls| polls.strong_count() > 0);
        let new = Arc::default();
        polls.insert(request, Arc::downgrade(&new));
        new
    }
}
