//! Events that are not durable yet, and the append that makes them durable.

use std::time::Duration;

use futures::{FutureExt, future::BoxFuture};
use shared::{
    event::RecordedEvent,
    execution::{Execution, ExecutionState},
    id::{CommandId, ExecutionId, Seq},
    metrics::process_metrics,
    store::{Append, AppendError, ExecutionHead, Store, StoreError},
};
use tokio::{
    sync::oneshot,
    time::{self, Instant},
};
use tracing::{debug, warn};

use super::{DriveError, WorkerContext, failed_appends::is_unconfirmed};

/// Number of waiting events from which the driver reads no further input. The limit is needed
/// because calls of reads do not wait for the disk.
const MAX_EVENTS: usize = 4_096;
/// Bytes of waiting call results from which the driver reads no further input.
const MAX_BYTES: usize = 8 << 20;
/// Delay before the first retry of a failed append. Doubles with each retry, up to the poll
/// interval.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(5);
/// Growth of a log after which its head is written again, so that quotas see its bytes.
const HEAD_BYTES_STEP: u64 = 1 << 20;

pub(super) struct PendingEvents {
    durable: Seq,
    queue: Vec<RecordedEvent>,
    bytes: usize,
    handled_commands: Vec<CommandId>,
    in_flight: Option<InFlightAppend>,
    /// The last sent head: its state, `true` if it needs a person, and `true` if it has an error.
    head: Option<(ExecutionState, bool, bool)>,
    head_bytes: u64,
    created_notice: Option<oneshot::Sender<Result<(), AppendError>>>,
}

struct InFlightAppend {
    batch: AppendBatch,
    sent_at: Instant,
    future: BoxFuture<'static, Result<(), AppendError>>,
}

/// The content of an append, which a retry needs again.
struct AppendBatch {
    events: Vec<RecordedEvent>,
    head: Option<ExecutionHead>,
    handled_commands: Vec<CommandId>,
}

impl AppendBatch {
    fn send(
        self,
        append: impl Future<Output = Result<(), AppendError>> + Send + 'static,
    ) -> InFlightAppend {
        InFlightAppend { batch: self, sent_at: Instant::now(), future: append.boxed() }
    }
}

enum LogState {
    Complete,
    Prefix(usize),
    Displaced { has_our_events: bool },
}

impl WorkerContext {
    fn note_append(&self, id: ExecutionId, took: Duration, result: &Result<(), AppendError>) {
        let is_unconfirmed = is_unconfirmed(result);
        process_metrics().count_append(took, !is_unconfirmed);
        // Does not note appends if the worker belongs to a single command of `faber`, because the
        // command shows its progress itself.
        if !self.is_alone {
            self.slow_store.note_append(took);
            if let Err(err) = result
                && is_unconfirmed
            {
                self.failed_appends.note_failure(id, err);
            }
        }
    }
}

impl PendingEvents {
    pub(super) fn new(durable: Seq) -> Self {
        Self {
            durable,
            queue: Vec::new(),
            bytes: 0,
            handled_commands: Vec::new(),
            in_flight: None,
            head: None,
            head_bytes: 0,
            created_notice: None,
        }
    }

    pub(super) fn set_created_notice(&mut self, notice: oneshot::Sender<Result<(), AppendError>>) {
        self.created_notice = Some(notice);
    }

    pub(super) fn push(&mut self, events: impl IntoIterator<Item = RecordedEvent>) {
        self.queue.extend(events);
    }

    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Makes the next append write the head, even if the state is unchanged.
    pub(super) fn rewrite_head(&mut self) {
        self.head = None;
    }

    pub(super) fn mark_handled(&mut self, command: CommandId) {
        self.handled_commands.push(command);
    }

    pub(super) fn durable_seq(&self) -> Seq {
        self.durable
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_none() && self.queue.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_EVENTS || self.bytes >= MAX_BYTES
    }

    pub(super) fn send_append(&mut self, context: &WorkerContext, execution: &Execution) {
        if self.in_flight.is_some() {
            return;
        }
        // Resets the counter, because results that the machine ignored are not part of the append.
        self.bytes = 0;
        if self.queue.is_empty() && self.handled_commands.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.queue);
        let commands = std::mem::take(&mut self.handled_commands);
        let store = std::sync::Arc::clone(&context.store);
        if events.is_empty() {
            let (id, end) = (execution.id(), self.durable);
            // The commands caused no event. They stay in the inbox if another worker has claimed
            // the execution, because that worker needs them.
            let discard = async move {
                if !store.read(id, end).await?.is_empty() {
                    return Err(AppendError::Conflict);
                }
                Ok(store.remove_commands(commands).await?)
            };
            let batch = AppendBatch { events, head: None, handled_commands: Vec::new() };
            self.in_flight = Some(batch.send(discard));
            return;
        }
        let has_failed = execution.history().first_error.is_some();
        let state = (execution.state(), execution.needs_person(), has_failed);
        let bytes = execution.stored_bytes();
        let has_grown = bytes.saturating_sub(self.head_bytes) >= HEAD_BYTES_STEP;
        let is_news = self.head != Some(state) || has_grown;
        let head =
            is_news.then(|| ExecutionHead::from_execution(execution, Some(context.worker), None));
        self.head = Some(state);
        if is_news {
            self.head_bytes = bytes;
        }
        let mut append = Append::new(execution.id(), self.durable, &events);
        append.head.clone_from(&head);
        append.handled_commands.clone_from(&commands);
        let batch = AppendBatch { events, head, handled_commands: commands };
        self.in_flight = Some(batch.send(async move { store.append(append).await }));
    }

    pub(super) async fn wait_for_append(&mut self) -> Result<(), AppendError> {
        match &mut self.in_flight {
            Some(flight) => flight.future.as_mut().await,
            None => std::future::pending().await,
        }
    }

    /// Handles the answer of the store. Returns the events that are durable now.
    pub(super) async fn finish_append(
        &mut self,
        result: Result<(), AppendError>,
        context: &WorkerContext,
        id: ExecutionId,
    ) -> Result<Vec<RecordedEvent>, DriveError> {
        let Some(InFlightAppend { batch, sent_at, .. }) = self.in_flight.take() else {
            return Ok(Vec::new());
        };
        if !batch.events.is_empty() {
            context.note_append(id, sent_at.elapsed(), &result);
        }
        let end = self.durable.advance_by(batch.events.len());
        let result = match result {
            Err(err) if !batch.events.is_empty() => {
                self.recover_append(&batch, err, context, id).await
            }
            Err(AppendError::Conflict) => Err(DriveError::Fenced),
            // Ignores the error, because commands that stay in the inbox are delivered again and
            // have no effect then.
            _ => Ok(()),
        };
        if let Some(notice) = self.created_notice.take() {
            let answer = match &result {
                Ok(()) => Ok(()),
                Err(DriveError::Store(err)) => Err(AppendError::Store(err.clone())),
                Err(_) => Err(AppendError::Conflict),
            };
            let _ = notice.send(answer);
        }
        result?;
        self.durable = end;
        Ok(batch.events)
    }

    async fn recover_append(
        &mut self,
        batch: &AppendBatch,
        err: AppendError,
        context: &WorkerContext,
        id: ExecutionId,
    ) -> Result<(), DriveError> {
        if let AppendError::Store(err @ StoreError::TooLarge { .. }) = err {
            // Gives up, because the store would refuse the same events again.
            return Err(err.into());
        }
        debug!(execution = %id, %err, "an append failed, so the log is read again");
        let AppendBatch { events, head, handled_commands } = batch;
        let mut wait = MIN_RETRY_DELAY;
        let mut last = StoreError::Unavailable(err.to_string());
        for _ in 0..context.options.store_tries {
            match compare_log(&*context.store, id, self.durable, events).await {
                Ok(LogState::Complete) => {
                    match complete_append(&*context.store, head.as_ref(), handled_commands).await {
                        Ok(()) => return Ok(()),
                        Err(err) => last = err,
                    }
                }
                Ok(LogState::Displaced { has_our_events }) => {
                    if has_our_events && let Some(notice) = self.created_notice.take() {
                        // Reports success, because the execution was created, and another worker
                        // has claimed it already.
                        let _ = notice.send(Ok(()));
                    }
                    return Err(DriveError::Fenced);
                }
                Ok(LogState::Prefix(n)) => {
                    let mut append = Append::new(id, self.durable.advance_by(n), &events[n..]);
                    append.head.clone_from(head);
                    append.handled_commands.clone_from(handled_commands);
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
        warn!(execution = %id, err = %last, "stopped driving an execution, because the store does \
            not accept its events");
        Err(last.into())
    }
}

/// Writes the head and removes the commands of an append whose events are in the log.
async fn complete_append(
    store: &dyn Store,
    head: Option<&ExecutionHead>,
    commands: &[CommandId],
) -> Result<(), StoreError> {
    if let Some(head) = head {
        store.put_head(head.clone()).await?;
    }
    if !commands.is_empty() {
        store.remove_commands(commands.to_vec()).await?;
    }
    Ok(())
}

async fn compare_log(
    store: &dyn Store,
    id: ExecutionId,
    after: Seq,
    events: &[RecordedEvent],
) -> Result<LogState, StoreError> {
    let mut found = Vec::new();
    while found.len() <= events.len() {
        let more = store.read(id, after.advance_by(found.len())).await?;
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    let has_our_events = found.starts_with(events);
    Ok(if found == events {
        LogState::Complete
    } else if has_our_events || !events.starts_with(&found) {
        LogState::Displaced { has_our_events }
    } else {
        LogState::Prefix(found.len())
    })
}
