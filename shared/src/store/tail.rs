//! Follows a log: first the past, then the present, without gap or repeat.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::{Stream, stream};
use tokio::time;

use super::{Store, StoreError, hints::LogHint};
use crate::{
    event::Recorded,
    id::{ExecutionId, Seq},
};

/// Follows a log from position `after` until the execution is over.
///
/// Subscriptions, the command line and tests all learn what happened from reads. A slow reader
/// falls behind; it never misses anything. The stream of a log that is over ends at once. Followers
/// of one log share their reads.
pub fn tail(
    store: Arc<dyn Store>,
    id: ExecutionId,
    after: Seq,
    poll: Duration,
) -> impl Stream<Item = Result<Recorded, StoreError>> + Send + use<> {
    let hint = store.hints().follow(id);
    let reader = Reader { store, id, after, poll, hint, read: VecDeque::new(), is_over: false };
    stream::try_unfold(reader, |mut reader| async move {
        let next = reader.next().await?;
        Ok(next.map(|it| (it, reader)))
    })
}

struct Reader {
    store: Arc<dyn Store>,
    id: ExecutionId,
    after: Seq,
    poll: Duration,
    hint: LogHint,
    read: VecDeque<Recorded>,
    is_over: bool,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<Recorded>, StoreError> {
        loop {
            if let Some(recorded) = self.read.pop_front() {
                self.after = recorded.seq;
                self.is_over = recorded.event.is_last();
                return Ok(Some(recorded));
            }
            if self.is_over {
                return Ok(None);
            }
            self.hint.grown.mark_unchanged();
            // Half of the time, so that a look at every poll finds what no hint told of.
            let (store, fresh) = (&*self.store, self.poll / 2);
            let found = self.hint.recent.behind(store, self.id, self.after, fresh).await?;
            self.read = found.events.into();
            if self.read.is_empty() {
                let is_over = match found.is_over {
                    Some(is_over) => is_over,
                    None => self.ended_before().await?,
                };
                if is_over {
                    return Ok(None);
                }
                // The hint may be lost, or come from another process. Hence the timeout.
                let _ = time::timeout(self.poll, self.hint.grown.changed()).await;
            }
        }
    }

    /// Returns whether the log was over at the position to begin behind.
    async fn ended_before(&self) -> Result<bool, StoreError> {
        let Some(last) = self.after.0.checked_sub(1) else { return Ok(false) };
        let head = self.store.head(self.id).await?;
        // Without a head it has been removed meanwhile, or it is so new that the head lags.
        if head.is_some_and(|it| !it.state.is_over()) {
            return Ok(false);
        }
        // A head may lag behind its log, but never runs ahead: read the event at the position
        // again. If others are behind it, they were written since, and are yet to be told.
        let events = self.store.read(self.id, Seq(last)).await?;
        Ok(events.first().is_none_or(|it| it.event.is_last()))
    }
}
