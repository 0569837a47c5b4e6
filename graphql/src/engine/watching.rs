//! Follows executions. Everybody who watches reads the log; nobody is told anything else.

use std::sync::Arc;

use futures::{FutureExt, Stream, StreamExt, stream, stream::BoxStream};
use shared::{
    event::{Event, RecordedEvent},
    execution::Execution,
    id::{ExecutionId, RequestId, Seq},
    limits,
    store::{self, Cursor, ExecutionFilter, ExecutionHead, Page, StoreError},
};

use super::{Engine, EngineError, steering::apply};

/// Heads that one look at a list takes.
const LOOK: usize = 64;

/// How much more an answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    events: usize,
    bytes: usize,
}

impl Room {
    /// Makes room for so many events, and not more than [`limits::ANSWER_BYTES`] of them.
    pub fn new(events: usize) -> Self {
        Self { events, bytes: limits::ANSWER_BYTES }
    }

    /// Returns whether nothing more may come.
    pub fn is_full(&self) -> bool {
        self.events == 0 || self.bytes == 0
    }

    /// Takes the room of an event, if there is any left.
    fn take(&mut self, event: &RecordedEvent) -> bool {
        if self.is_full() {
            return false;
        }
        self.events -= 1;
        self.bytes = self.bytes.saturating_sub(event.bytes());
        true
    }
}

impl Engine {
    /// Returns events of a log behind a position, oldest first, as many as there is room for. Where
    /// there is room for one there is room for a large one.
    pub async fn events(
        &self,
        id: ExecutionId,
        after: Seq,
        room: &mut Room,
    ) -> Result<Vec<RecordedEvent>, EngineError> {
        let mut events: Vec<RecordedEvent> = Vec::new();
        while !room.is_full() {
            let end = events.last().map_or(after, |it| it.seq);
            let read = self.store.read(id, end).await?;
            if read.is_empty() {
                break;
            }
            events.extend(read.into_iter().take_while(|it| room.take(it)));
        }
        Ok(events)
    }

    /// Follows a log from a position until the execution is over.
    pub fn tail(
        &self,
        id: ExecutionId,
        after: Seq,
    ) -> impl Stream<Item = Result<RecordedEvent, StoreError>> + Send + use<> {
        store::follow_log(Arc::clone(&self.store), id, after, limits::POLL)
    }

    /// Returns an execution at once, and again at every change of its state or that of a step: each
    /// is seen, however fast they come. Of progress what comes together is seen together.
    pub fn watch(
        &self,
        execution: Execution,
    ) -> impl Stream<Item = Result<Arc<Execution>, EngineError>> + Send + use<> {
        let log = self.tail(execution.id(), execution.seq()).fuse().boxed();
        let watcher = Watcher { execution: Arc::new(execution), log, is_new: true };
        stream::try_unfold(watcher, |mut watcher| async move {
            let next = watcher.next().await?;
            Ok(next.map(|it| (it, watcher)))
        })
    }

    /// Returns the newest executions of a request, oldest first: all of them, or the last `most`.
    pub async fn executions_of(
        &self,
        request: RequestId,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, EngineError> {
        let filter = ExecutionFilter { request: Some(request), ..ExecutionFilter::default() };
        self.newest(&filter, most, |_| true).await
    }

    /// Returns the newest executions of a request that no step of another one began, oldest first:
    /// the last `most` of them.
    pub async fn roots_of(
        &self,
        request: RequestId,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, EngineError> {
        let filter =
            ExecutionFilter { request: Some(request), is_root: true, ..ExecutionFilter::default() };
        self.newest(&filter, most, |_| true).await
    }

    /// Returns the heads that match, the newest of them, oldest first. It stops looking behind a
    /// part of the list in which `is_new` says no of every head.
    pub async fn newest(
        &self,
        filter: &ExecutionFilter,
        most: usize,
        is_new: impl Fn(&ExecutionHead) -> bool,
    ) -> Result<Vec<ExecutionHead>, EngineError> {
        let mut heads: Vec<ExecutionHead> = Vec::new();
        let mut after: Option<Cursor> = None;
        while heads.len() < most {
            let first = LOOK.min(most - heads.len());
            let page = self.store.list_heads(filter, &Page { first, after }).await?;
            let before = heads.len();
            after = page.items.last().map(|(cursor, _)| cursor.clone());
            heads.extend(page.items.into_iter().map(|(_, head)| head).filter(|it| is_new(it)));
            if !page.has_more || heads.len() == before {
                break;
            }
        }
        heads.reverse();
        Ok(heads)
    }
}

/// What an event changes that is worth seeing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Nothing,
    /// How far a step is.
    Progress,
    /// The state of the execution, of a step or of a part of one.
    State,
}

struct Watcher {
    execution: Arc<Execution>,
    log: BoxStream<'static, Result<RecordedEvent, StoreError>>,
    is_new: bool,
}

impl Watcher {
    async fn next(&mut self) -> Result<Option<Arc<Execution>>, EngineError> {
        let mut is_worth = std::mem::take(&mut self.is_new);
        while !is_worth {
            let Some(next) = self.log.next().await else { return Ok(None) };
            let mut change = self.apply(&next?)?;
            while change != Change::State
                && let Some(Some(next)) = self.log.next().now_or_never()
            {
                change = change.max(self.apply(&next?)?);
            }
            is_worth = change != Change::Nothing;
        }
        Ok(Some(Arc::clone(&self.execution)))
    }

    /// Moves past an event. Returns what it changed that is worth seeing.
    fn apply(&mut self, recorded: &RecordedEvent) -> Result<Change, StoreError> {
        let execution = Arc::make_mut(&mut self.execution);
        let before = execution.state();
        apply(execution, recorded)?;
        Ok(match &recorded.event {
            Event::StepProgress { .. } => Change::Progress,
            event if event.step().is_some() || execution.state() != before => Change::State,
            _ => Change::Nothing,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use shared::clock::Timestamp;

    use super::*;

    fn event(bytes: usize) -> RecordedEvent {
        let payload = Arc::new(Value::from("x".repeat(bytes)));
        let command = "cmd_1_aaaaaaaaa".parse().unwrap();
        let event = Event::SignalReceived { name: "s".to_owned(), payload, command };
        RecordedEvent { seq: Seq(1), at: Timestamp::UNIX_EPOCH, event }
    }

    #[test]
    fn an_answer_has_room_for_so_many_events_and_so_many_bytes() {
        let mut room = Room::new(2);
        assert!(room.take(&event(1)) && room.take(&event(1)) && !room.take(&event(1)));
        let mut room = Room::new(1_000);
        let large = event(limits::ANSWER_BYTES / 4);
        let taken = (0..1_000_000).take_while(|_| room.take(&large)).count();
        assert_eq!(taken, 4);
        assert!(Room::new(1).take(&event(limits::ANSWER_BYTES * 2)), "one at least");
    }
}
