//! Events that are not durable yet, and the append that makes them durable.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use shared::{
    event::RecordedEvent,
    execution::{Execution, ExecutionState},
    id::{CommandId, ExecutionId, Seq},
    store::{Append, AppendError, ExecutionHead, Store, StoreError},
};
use tokio::{sync::oneshot, time};
use tracing::{debug, warn};

use super::{Context, DriveError};

/// Events that may wait for an append. Calls of reads do not wait for the disk, so they need a limit.
const EVENTS: usize = 4_096;
/// Bytes of call results that may wait for an append.
const BYTES: usize = 8 << 20;
/// Delay before the first retry of a failed append. Doubles with each retry, up to the poll interval.
const BACKOFF: Duration = Duration::from_millis(5);

/// Events that are not durable yet.
pub(super) struct Pending {
    durable: Seq,
    queue: Vec<RecordedEvent>,
    bytes: usize,
    heard: Vec<CommandId>,
    flight: Option<Flight>,
    /// The state in the last written head.
    head: Option<ExecutionState>,
    born: Option<oneshot::Sender<Result<(), AppendError>>>,
}

/// An append in flight.
struct Flight {
    events: Vec<RecordedEvent>,
    head: Option<ExecutionHead>,
    heard: Vec<CommandId>,
    future: BoxFuture<'static, Result<(), AppendError>>,
}

/// The log at the position of a failed append.
enum Fate {
    Landed,
    Prefix(usize),
    Displaced { is_ours_first: bool },
}

impl Pending {
    pub(super) fn new(durable: Seq) -> Self {
        Self {
            durable,
            queue: Vec::new(),
            bytes: 0,
            heard: Vec::new(),
            flight: None,
            head: None,
            born: None,
        }
    }

    /// Sends the result of the first append to `created_notice`.
    pub(super) fn announce(&mut self, born: oneshot::Sender<Result<(), AppendError>>) {
        self.born = Some(born);
    }

    pub(super) fn push(&mut self, events: impl IntoIterator<Item = RecordedEvent>) {
        self.queue.extend(events);
    }

    pub(super) fn weigh(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Makes the next append write the head, even if the state is unchanged.
    pub(super) fn forget_head(&mut self) {
        self.head = None;
    }

    pub(super) fn heard(&mut self, command: CommandId) {
        self.heard.push(command);
    }

    /// Returns the last durable position of the log.
    pub(super) fn durable(&self) -> Seq {
        self.durable
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flight.is_none() && self.queue.is_empty()
    }

    /// Returns whether so many events wait that the driver should take no further input.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= EVENTS || self.bytes >= BYTES
    }

    /// Sends the waiting events, unless an append is in flight.
    pub(super) fn flush(&mut self, context: &Context, execution: &Execution) {
        if self.flight.is_some() {
            return;
        }
        // Results that the machine ignored are not part of the append.
        self.bytes = 0;
        if self.queue.is_empty() && self.heard.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.queue);
        let commands = std::mem::take(&mut self.heard);
        let store = std::sync::Arc::clone(&context.store);
        if events.is_empty() {
            let (id, end) = (execution.id(), self.durable);
            // The commands have no effect here. If another worker has claimed the execution, they are
            // meant for that worker and must stay in the inbox.
            let discard = async move {
                if !store.read(id, end).await?.is_empty() {
                    return Err(AppendError::Conflict);
                }
                Ok(store.discard(commands).await?)
            };
            let future = discard.boxed();
            self.flight = Some(Flight { events, head: None, heard: Vec::new(), future });
            return;
        }
        let state = execution.state();
        let is_news = self.head != Some(state);
        let head =
            is_news.then(|| ExecutionHead::from_execution(execution, Some(context.worker), None));
        self.head = Some(state);
        let mut append = Append::new(execution.id(), self.durable, &events);
        append.head.clone_from(&head);
        append.heard.clone_from(&commands);
        let future = async move { store.append(append).await }.boxed();
        self.flight = Some(Flight { events, head, heard: commands, future });
    }

    /// Waits for the append in flight.
    pub(super) async fn appended(&mut self) -> Result<(), AppendError> {
        match &mut self.flight {
            Some(flight) => flight.future.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Handles the result of the append in flight.
    pub(super) async fn settle(
        &mut self,
        result: Result<(), AppendError>,
        context: &Context,
        id: ExecutionId,
    ) -> Result<(), DriveError> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let end = self.durable.advance_by(flight.events.len());
        let result = match result {
            Err(err) if !flight.events.is_empty() => self.recover(flight, err, context, id).await,
            Err(AppendError::Conflict) => Err(DriveError::Fenced),
            // Commands that stay in the inbox are delivered again, and have no effect then.
            _ => Ok(()),
        };
        if let Some(born) = self.born.take() {
            let answer = match &result {
                Ok(()) => Ok(()),
                Err(DriveError::Store(err)) => Err(AppendError::Store(err.clone())),
                Err(_) => Err(AppendError::Conflict),
            };
            // The receiver may be gone.
            let _ = born.send(answer);
        }
        result?;
        self.durable = end;
        Ok(())
    }

    /// Reads the log after a failed append, and appends the missing events again.
    async fn recover(
        &mut self,
        flight: Flight,
        err: AppendError,
        context: &Context,
        id: ExecutionId,
    ) -> Result<(), DriveError> {
        if let AppendError::Store(err @ StoreError::TooLarge { .. }) = err {
            // The store wrote nothing, and will refuse the same events again.
            return Err(err.into());
        }
        debug!(execution = %id, %err, "an append failed, reading the log");
        let Flight { events, head, heard, .. } = flight;
        let mut wait = BACKOFF;
        let mut last = StoreError::Unavailable(err.to_string());
        for _ in 0..context.options.store_tries {
            match fate(&*context.store, id, self.durable, &events).await {
                Ok(Fate::Landed) => match complete(&*context.store, head.as_ref(), &heard).await {
                    Ok(()) => return Ok(()),
                    Err(err) => last = err,
                },
                Ok(Fate::Displaced { is_ours_first }) => {
                    if is_ours_first && let Some(born) = self.born.take() {
                        // The execution was created, and another worker has claimed it already.
                        let _ = born.send(Ok(()));
                    }
                    return Err(DriveError::Fenced);
                }
                Ok(Fate::Prefix(n)) => {
                    let mut append = Append::new(id, self.durable.advance_by(n), &events[n..]);
                    append.head.clone_from(&head);
                    append.heard.clone_from(&heard);
                    match context.store.append(append).await {
                        Ok(()) => return Ok(()),
                        Err(AppendError::Conflict) => (),
                        Err(AppendError::Store(err)) => last = err,
                    }
                }
                Err(err) => last = err,
            }
            time::sleep(wait).await;
            wait = (wait * 2).min(context.options.poll);
        }
        warn!(execution = %id, err = %last, "gave up an execution for now");
        Err(last.into())
    }
}

/// Writes the head and removes the commands of an append whose events are in the log.
async fn complete(
    store: &dyn Store,
    head: Option<&ExecutionHead>,
    commands: &[CommandId],
) -> Result<(), StoreError> {
    if let Some(head) = head {
        store.put_head(head.clone()).await?;
    }
    if !commands.is_empty() {
        store.discard(commands.to_vec()).await?;
    }
    Ok(())
}

async fn fate(
    store: &dyn Store,
    id: ExecutionId,
    after: Seq,
    events: &[RecordedEvent],
) -> Result<Fate, StoreError> {
    let mut found = Vec::new();
    while found.len() <= events.len() {
        let more = store.read(id, after.advance_by(found.len())).await?;
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    let is_ours_first = found.starts_with(events);
    Ok(if found == events {
        Fate::Landed
    } else if is_ours_first || !events.starts_with(&found) {
        Fate::Displaced { is_ours_first }
    } else {
        Fate::Prefix(found.len())
    })
}
