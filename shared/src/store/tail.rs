//! Follows a log: first its existing events, then new events, without gaps or repeats.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{Stream, stream};
use tokio::time;

use super::{Store, StoreError, hints::LogHint};
use crate::{
    event::RecordedEvent,
    id::{ExecutionId, Seq},
};

/// Follows a log from position `after` until the execution finishes or is removed. A slow reader
/// falls behind, but misses nothing.
pub fn follow_log(
    store: Arc<dyn Store>,
    id: ExecutionId,
    after: Seq,
    poll: Duration,
) -> impl Stream<Item = Result<RecordedEvent, StoreError>> + Send + use<> {
    let hint = store.hints().follow_log(id);
    let follower = LogFollower {
        store,
        id,
        after,
        poll,
        hint,
        unsent_events: VecDeque::new(),
        is_over: false,
    };
    stream::try_unfold(follower, |mut follower| async move {
        let next = follower.next().await?;
        Ok(next.map(|recorded| (recorded, follower)))
    })
}

struct LogFollower {
    store: Arc<dyn Store>,
    id: ExecutionId,
    after: Seq,
    poll: Duration,
    hint: LogHint,
    unsent_events: VecDeque<RecordedEvent>,
    is_over: bool,
}

impl LogFollower {
    async fn next(&mut self) -> Result<Option<RecordedEvent>, StoreError> {
        loop {
            if let Some(recorded) = self.unsent_events.pop_front() {
                self.after = recorded.seq;
                self.is_over = recorded.event.is_last();
                return Ok(Some(recorded));
            }
            if self.is_over {
                return Ok(None);
            }
            self.hint.growth.mark_unchanged();
            // Uses an empty result of another follower for half the poll interval at most, so that
            // a poll finds events that no hint reported.
            let (store, max_age) = (&*self.store, self.poll / 2);
            let found = self.hint.recent.read_after(store, self.id, self.after, max_age).await?;
            self.unsent_events = found.events.into();
            if self.unsent_events.is_empty() {
                let is_over = match found.is_over {
                    Some(is_over) => is_over,
                    None => self.ended_before().await?,
                };
                if is_over {
                    return Ok(None);
                }
                // Waits with a timeout, because a hint may be lost and another process gives no
                // hint.
                let _ = time::timeout(self.poll, self.hint.growth.changed()).await;
            }
        }
    }

    /// Returns `true` if the log was finished at the start position.
    async fn ended_before(&self) -> Result<bool, StoreError> {
        let Some(last) = self.after.0.checked_sub(1) else { return Ok(false) };
        let head = self.store.head(self.id).await?;
        // A missing head does not tell whether the log is finished, because either the execution
        // was removed, or its head is not written yet.
        if head.is_some_and(|head| !head.state.is_finished()) {
            return Ok(false);
        }
        // Even if the log is finished, later events can follow the start position. So only the
        // event at the start position decides.
        let events = self.store.read(self.id, Seq(last)).await?;
        Ok(events.first().is_none_or(|recorded| recorded.event.is_last()))
    }
}
