//! What was decided and is not durable yet.

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

/// The most events that reads may run ahead of the disk.
const EVENTS: usize = 4_096;
/// The most bytes that they may.
const BYTES: usize = 8 << 20;
/// The first wait after a store failed; each further wait is twice as long, up to the poll.
const BACKOFF: Duration = Duration::from_millis(5);

/// What was decided and is not durable yet.
pub(super) struct Pending {
    durable: Seq,
    queue: Vec<RecordedEvent>,
    bytes: usize,
    heard: Vec<CommandId>,
    flight: Option<Flight>,
    /// The state that the last written head says.
    head: Option<ExecutionState>,
    born: Option<oneshot::Sender<Result<(), AppendError>>>,
}

/// An append on its way.
struct Flight {
    events: Vec<RecordedEvent>,
    head: Option<ExecutionHead>,
    heard: Vec<CommandId>,
    future: BoxFuture<'static, Result<(), AppendError>>,
}

/// What a log has where an append should be.
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

    /// Will say that the first append is durable, or why not.
    pub(super) fn announce(&mut self, born: oneshot::Sender<Result<(), AppendError>>) {
        self.born = Some(born);
    }

    pub(super) fn push(&mut self, events: impl IntoIterator<Item = RecordedEvent>) {
        self.queue.extend(events);
    }

    pub(super) fn weigh(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Writes the head with the next events, whatever the last one said.
    pub(super) fn forget_head(&mut self) {
        self.head = None;
    }

    pub(super) fn heard(&mut self, command: CommandId) {
        self.heard.push(command);
    }

    /// Returns how far the log is durable.
    pub(super) fn durable(&self) -> Seq {
        self.durable
    }

    /// Returns whether nothing is on its way and nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.flight.is_none() && self.queue.is_empty()
    }

    /// Returns whether so much waits that nothing more should be decided.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= EVENTS || self.bytes >= BYTES
    }

    /// Sends what waits, unless something is on its way.
    pub(super) fn flush(&mut self, context: &Context, execution: &Execution) {
        if self.flight.is_some() {
            return;
        }
        // What the machine had no use for weighs nothing.
        self.bytes = 0;
        if self.queue.is_empty() && self.heard.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.queue);
        let commands = std::mem::take(&mut self.heard);
        let store = std::sync::Arc::clone(&context.store);
        if events.is_empty() {
            let (id, end) = (execution.id(), self.durable);
            // What changes nothing here may be what another worker waits for, who has it by now.
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

    /// Waits for what is on its way.
    pub(super) async fn appended(&mut self) -> Result<(), AppendError> {
        match &mut self.flight {
            Some(flight) => flight.future.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Notes what became of what was on its way.
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
            // Commands that are not forgotten are found again, and change nothing then.
            _ => Ok(()),
        };
        if let Some(born) = self.born.take() {
            let answer = match &result {
                Ok(()) => Ok(()),
                Err(DriveError::Store(err)) => Err(AppendError::Store(err.clone())),
                Err(_) => Err(AppendError::Conflict),
            };
            // Whoever asked may have gone.
            let _ = born.send(answer);
        }
        result?;
        self.durable = end;
        Ok(())
    }

    /// Finds out whether an append that failed was written, and offers it again if not.
    async fn recover(
        &mut self,
        flight: Flight,
        err: AppendError,
        context: &Context,
        id: ExecutionId,
    ) -> Result<(), DriveError> {
        if let AppendError::Store(err @ StoreError::TooLarge { .. }) = err {
            // Nothing of it was written, and nothing of it ever can be.
            return Err(err.into());
        }
        debug!(execution = %id, %err, "an append failed; looking what the log says");
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
                        // It was created; another worker was faster to take it.
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
        warn!(execution = %id, err = %last, "gave an execution up for now");
        Err(last.into())
    }
}

/// Does what an append does beside the events, once these are known to be there.
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
