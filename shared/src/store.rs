//! Stores.
//!
//! A store implements four traits. [`ExecutionLog`] keeps the logs and makes three promises. The
//! conformance suite in `tests` checks them for every store:
//!
//! * **Order.** An append succeeds only if its `after` is the end of the log. It may write only a
//!   prefix if it is too large for one document.
//! * **Durability.** Every later read returns the events of an append that returned `Ok`.
//! * **Honesty.** An append may return an error although it has written. Callers must read again.
//!
//! Fencing needs no further promise. A claim is an event, so a worker that lost its claim appends
//! at a stale position.
//!
//! [`Documents`] keeps requests and plans, which never change, and heads, which are a cache of the
//! logs. [`Records`] keeps small documents that change, such as registered tools and the memory of
//! tools. [`Vectors`] keeps embeddings of texts.

mod assembly;
mod error;
pub mod hints;
mod inbox;
pub mod journal;
mod list;
mod load;
pub mod memory;
mod permit;
mod plan_cache;
mod recent;
mod record;
mod retention;
mod search;
mod tail;
mod usage;
mod vector;

/// Parts that every store is built from, so that all of them behave alike.
pub mod backend {
    pub use super::{
        assembly::Assembly,
        inbox::inbox_full_error,
        permit::{LimitState, Tallies, give_back, take_all},
        plan_cache::{Cached, PlanCache},
        record::Span,
        search::{fold_case, search_words, searched_tools},
        vector::{check_vectors, decode_vector, encode_vector},
    };

    /// Returns how many of the places for what is due go to the longest due.
    pub fn aged_places(most: usize) -> usize {
        if most < 2 { 0 } else { (most / 8).max(1) }
    }
}

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    error::{AppendError, StoreError},
    hints::Hints,
    inbox::{Command, SentCommand},
    list::{Cursor, ExecutionFilter, Listing, Page, PlanFilter, RequestFilter},
    load::load_execution,
    permit::{CallLimit, Permission, Permit, PermitAsk, Rate},
    record::{Record, RecordKind, RecordPage, Records, WriteCondition},
    retention::{Pruned, sub_plans},
    search::search_words,
    tail::follow_log,
    usage::Usage,
    vector::{TextHash, Vectors},
};
use crate::{
    clock::{Clock as _, SteadyClock, Timestamp, WallClock},
    event::{self, RecordedEvent},
    execution::{Execution, ExecutionState},
    id::{CommandId, Epoch, ExecutionId, PlanId, RequestId, Seq, WorkerId},
    limits,
    plan::Plan,
    request::{Request, TranscriptEntry},
};

/// All traits of a store.
pub trait Store: ExecutionLog + Documents + Records + Vectors {}

impl<S: ExecutionLog + Documents + Records + Vectors> Store for S {}

/// Keeps the logs of executions, and their claims.
#[async_trait]
pub trait ExecutionLog: fmt::Debug + Send + Sync {
    /// Appends events to a log, and updates the head and the inbox with them.
    ///
    /// Appends of a process that wait at the same time share one commit.
    async fn append(&self, append: Append) -> Result<(), AppendError>;

    /// Writes a head without an event, as a worker does when it parks an execution.
    ///
    /// A head applies only if its position is not before the stored head's. A head without a log is
    /// dropped, because its execution was removed.
    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError>;

    /// Returns the events after a position, oldest first.
    ///
    /// Returns about [`limits::READ_EVENTS`] at most, and an empty list only at the end of the log.
    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError>;

    /// Returns the first event of a log, without the rest of it.
    async fn read_first(&self, id: ExecutionId) -> Result<Option<RecordedEvent>, StoreError> {
        Ok(self.read(id, Seq::START).await?.into_iter().next())
    }

    /// Returns unfinished executions without an owner that are due.
    ///
    /// Higher priorities come first, and in a priority the longest due. So that none waits for
    /// ever, an eighth of the places (at least one of two) is reserved for the longest due of any
    /// priority. These come last.
    ///
    /// Only the highest [`limits::PRIORITIES`] priorities of waiting executions are distinguished.
    /// All others are ordered by due time.
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<ExecutionHead>, StoreError>;

    /// Returns due executions by due time only, starting after a position in this order.
    ///
    /// A worker that cannot run the first executions uses it to see the others.
    async fn due_after(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, ExecutionId)>,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError>;

    /// Returns executions whose worker is gone, finished ones included.
    ///
    /// A finished one may still have work to do, such as a message to its parent. A worker is gone
    /// if its lease expired or if the store knows that its process ended.
    async fn orphans(&self, now: Timestamp, most: usize) -> Result<Vec<ExecutionHead>, StoreError>;

    /// Returns executions that a worker owns, according to their heads.
    async fn owned(&self, worker: WorkerId, most: usize) -> Result<Vec<ExecutionHead>, StoreError>;

    /// Returns the earliest due time of executions without an owner.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Starts or renews a worker's lease.
    async fn heartbeat(&self, lease: Lease) -> Result<(), StoreError>;

    /// Ends a worker. Its executions and permits are free at once.
    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError>;

    /// Returns the workers whose lease has not expired, in order.
    async fn workers(&self, now: Timestamp) -> Result<Vec<WorkerId>, StoreError>;

    /// Acquires all permits of a call, or none.
    ///
    /// Permits protect tools. The safety of executions does not depend on them. A holder whose
    /// worker is gone counts as no holder. Asking again for held permits succeeds and counts once,
    /// in case an answer was lost. A refused holder keeps nothing.
    async fn acquire(&self, ask: &PermitAsk, now: Timestamp) -> Result<Permission, StoreError>;

    /// Releases permits and wakes workers. Permits that no longer exist are ignored. Calls that a
    /// rate has counted stay counted.
    async fn release(&self, permits: Vec<Permit>) -> Result<(), StoreError>;

    /// Returns the cached output for a key, if it has not expired.
    async fn cached(&self, key: &str, now: Timestamp) -> Result<Option<Arc<Value>>, StoreError>;

    /// Caches an output until a time.
    ///
    /// If there are more than [`limits::CACHE_ENTRIES`], the entries that expire first are removed.
    async fn cache(&self, key: &str, output: &Value, until: Timestamp) -> Result<(), StoreError>;

    /// Removes finished data that is older than `before`, at most `most` of each kind.
    ///
    /// It removes finished executions first: log, head, inbox and idempotency key. A child stays as
    /// long as its parent runs. When none is left, it removes plans without references. Then it
    /// removes requests without plans and executions, with their transcripts.
    ///
    /// A concurrent reader finds the data or does not. `before` should be at least a minute in the
    /// past, so that a frozen worker has lost its lease.
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError>;

    /// Keeps a command until the execution's owner has recorded it.
    ///
    /// At most [`limits::INBOX`] commands wait for one execution. Further ones are refused as
    /// [full](StoreError::Full).
    async fn send(&self, envelope: SentCommand) -> Result<(), StoreError>;

    /// Returns waiting commands, oldest first, of one execution or of all.
    ///
    /// For all executions it returns at most [`limits::INBOX_LOOK`] commands and about
    /// [`limits::INBOX_BYTES`].
    async fn inbox(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError>;

    /// Removes commands that have been handled.
    async fn discard(&self, commands: Vec<CommandId>) -> Result<(), StoreError>;

    /// Returns the number of durable commits of this process.
    fn commits(&self) -> u64;

    /// Returns the hints that wake readers.
    fn hints(&self) -> &Hints;
}

/// Keeps requests, plans, transcripts and heads.
#[async_trait]
pub trait Documents: fmt::Debug + Send + Sync {
    /// Stores a new request. Fails with [taken](StoreError::Taken) if its id exists.
    async fn put_request(&self, request: &Request) -> Result<(), StoreError>;

    /// Returns a request.
    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError>;

    /// Lists requests, newest first.
    async fn requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError>;

    /// Appends entries to the transcript of a request.
    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError>;

    /// Returns the transcript of a request, oldest entry first.
    async fn transcript(&self, id: RequestId) -> Result<Vec<TranscriptEntry>, StoreError> {
        self.transcript_after(id, 0).await
    }

    /// Returns the transcript without its first `known` entries, which are not read again.
    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError>;

    /// Stores a new plan. Fails with [taken](StoreError::Taken) if its id, or its version of the
    /// request, exists.
    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError>;

    /// Returns a plan.
    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError>;

    /// Returns the plans of a request, oldest version first.
    async fn plans_of(&self, id: RequestId) -> Result<Vec<PlanId>, StoreError>;

    /// Lists plans, newest first.
    async fn plans(&self, filter: &PlanFilter, page: &Page) -> Result<Listing<PlanId>, StoreError>;

    /// Returns the head of an execution.
    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError>;

    /// Lists heads, newest first.
    async fn heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError>;

    /// Returns executions that finished after `after` and not after `until`, in this order.
    async fn ended(
        &self,
        after: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError>;

    /// Stores an idempotency key. Returns the stored reservation if the key exists already.
    async fn reserve(&self, key: &Reservation) -> Result<Option<Reservation>, StoreError>;

    /// Returns the reservation of a key.
    async fn reservation(&self, key: &str) -> Result<Option<Reservation>, StoreError>;

    /// Saves a plan under a name, and replaces an earlier plan of this name.
    async fn save_plan(&self, saved: &SavedPlan) -> Result<(), StoreError>;

    /// Returns the plan with a name.
    async fn saved_plan(&self, name: &str) -> Result<Option<SavedPlan>, StoreError>;

    /// Returns saved plans after a name, in byte order of their names.
    async fn saved_plans(
        &self,
        after: Option<&str>,
        first: usize,
    ) -> Result<Vec<SavedPlan>, StoreError>;

    /// Removes the name of a saved plan. The plan stays. Returns `false` if there is no such name.
    async fn remove_saved_plan(&self, name: &str) -> Result<bool, StoreError>;

    /// Returns the time that all processes over this store share, whatever their machines' clocks
    /// show.
    async fn time(&self) -> Result<Timestamp, StoreError> {
        Ok(WallClock.now())
    }

    /// Checks that the store can be reached and written.
    async fn check(&self) -> Result<(), StoreError>;
}

/// Returns a clock for a process that uses a store. It starts at the store's time and ignores
/// changes of the machine's clock.
///
/// # Errors
///
/// If the store does not answer.
pub async fn shared_clock(store: &dyn Store) -> Result<SteadyClock, StoreError> {
    Ok(SteadyClock::starting_at(store.time().await?))
}

/// Encoded events to append to one log.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The execution.
    pub execution: ExecutionId,
    /// The required end of the log.
    pub after: Seq,
    /// The documents to write in order. There is nearly always one.
    pub documents: Vec<EventDocument>,
    /// The new head, if it changes. The first append of a log has one.
    pub head: Option<ExecutionHead>,
    /// The commands that the events record. They leave the inbox.
    pub heard: Vec<CommandId>,
}

/// Consecutive events of one log, as a store keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDocument {
    /// The position of the first event.
    pub first: Seq,
    /// The number of events.
    pub len: usize,
    /// The events, as [`event::to_json`] writes them.
    pub json: String,
}

impl Append {
    /// Encodes consecutive events.
    pub fn new(execution: ExecutionId, after: Seq, events: &[RecordedEvent]) -> Self {
        let mut documents = Vec::with_capacity(1);
        encode_documents(after.next(), events, &mut documents);
        Self { execution, after, documents, head: None, heard: Vec::new() }
    }

    /// Returns the end of the log after the append.
    pub fn end(&self) -> Seq {
        self.documents.last().map_or(self.after, EventDocument::last)
    }

    /// Refuses an append that no store can write.
    pub fn check(&self) -> Result<(), StoreError> {
        let largest =
            self.documents.iter().map(|document| document.json.len()).max().unwrap_or_default();
        if largest > limits::DOCUMENT_BYTES {
            return Err(StoreError::TooLarge { bytes: largest });
        }
        Ok(())
    }

    /// Returns the number of bytes to write.
    pub fn bytes(&self) -> usize {
        self.documents.iter().map(|document| document.json.len()).sum()
    }
}

/// Splits events into documents that are small enough.
fn encode_documents(first: Seq, events: &[RecordedEvent], documents: &mut Vec<EventDocument>) {
    let json = event::encode_events(events);
    if json.len() <= limits::APPEND_BYTES || events.len() == 1 {
        documents.push(EventDocument { first, len: events.len(), json });
        return;
    }
    let (one, other) = events.split_at(events.len() / 2);
    encode_documents(first, one, documents);
    encode_documents(first.advance_by(one.len()), other, documents);
}

impl EventDocument {
    /// Returns the position of the last event.
    pub fn last(&self) -> Seq {
        Seq(self.first.0 + self.len as u64 - 1)
    }

    /// Returns the events.
    pub fn decode(&self, id: ExecutionId) -> Result<Vec<RecordedEvent>, StoreError> {
        let events = event::decode_events(self.first, &self.json)
            .map_err(|err| StoreError::corrupt(id, format!("event {}: {err}", self.first)))?;
        if events.len() != self.len {
            let why = format!("{} events at {}, not {}", events.len(), self.first, self.len);
            return Err(StoreError::corrupt(id, why));
        }
        Ok(events)
    }
}

/// A summary of an execution for lists and claims.
///
/// It is a cache of the log: it may be behind the log, but never ahead of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionHead {
    /// The execution.
    pub execution: ExecutionId,
    /// The request that it belongs to.
    pub request: RequestId,
    /// The plan that it runs.
    pub plan: PlanId,
    /// The state that people see.
    pub state: ExecutionState,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The position in the log that this head was made at.
    pub seq: Seq,
    /// The number of the last claim.
    pub epoch: Epoch,
    /// The worker that owns the execution.
    pub owner: Option<WorkerId>,
    /// The time when a worker should claim it, if it has no owner. `None` if only a command can
    /// continue it.
    pub due: Option<Timestamp>,
    /// The priority. Higher ones are claimed first.
    pub priority: i32,
    /// The time when the execution finished.
    pub finished_at: Option<Timestamp>,
    /// The parent execution, if it is a child.
    pub parent: Option<ExecutionId>,
}

impl ExecutionHead {
    /// Makes the head of an execution.
    ///
    /// A finished execution keeps its owner until its parent has its message and its replan has
    /// started.
    pub fn from_execution(
        execution: &Execution,
        owner: Option<WorkerId>,
        due: Option<Timestamp>,
    ) -> Self {
        let (state, parent) =
            (execution.state(), execution.parent().map(|parent| parent.execution));
        Self {
            execution: execution.id(),
            request: execution.request(),
            plan: execution.plan().id(),
            state,
            created_at: execution.created_at(),
            seq: execution.seq(),
            epoch: execution.epoch(),
            // If the owner is lost before that, another worker finds the execution as an orphan.
            owner: owner.filter(|_| !state.is_finished() || execution.has_follow_up()),
            due: due.filter(|_| !state.is_finished()),
            priority: execution.options().priority,
            finished_at: execution.finished_at(),
            parent,
        }
    }

    /// Returns `true` if a worker should claim the execution, now or later.
    pub fn is_claimable(&self) -> bool {
        self.owner.is_none() && self.due.is_some() && !self.state.is_finished()
    }
}

/// A worker's right to the executions that it claimed, for a limited time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The worker.
    pub worker: WorkerId,
    /// The name of the worker's machine, for people.
    pub node: String,
    /// The end of the lease.
    pub until: Timestamp,
}

/// An idempotency key and its execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The key, as the caller gave it.
    pub key: String,
    /// The execution.
    pub execution: ExecutionId,
    /// A fingerprint of the request. The same key with another request is refused.
    pub fingerprint: String,
}

/// A plan with a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedPlan {
    /// The name.
    pub name: String,
    /// The plan.
    pub plan: PlanId,
    /// The JSON Schema of the plan's inputs.
    pub inputs: Option<Value>,
    /// The time when it was saved.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Event;

    #[test]
    fn events_larger_than_a_document_are_refused() {
        let append = |bytes| {
            let json = "x".repeat(bytes);
            let document = EventDocument { first: Seq(1), len: 1, json };
            let id = "exec_1_aaaaaaaaa".parse().unwrap();
            Append { documents: vec![document], ..Append::new(id, Seq(0), &[]) }
        };
        assert_eq!(append(limits::DOCUMENT_BYTES).check(), Ok(()));
        let bytes = limits::DOCUMENT_BYTES + 1;
        assert_eq!(append(bytes).check(), Err(StoreError::TooLarge { bytes }));
    }

    #[test]
    fn a_large_append_becomes_several_documents() {
        let output = Arc::new(json!("x".repeat(limits::OUTPUT_BYTES)));
        let events: Vec<RecordedEvent> = (0..20)
            .map(|n| RecordedEvent {
                seq: Seq(6 + n),
                at: Timestamp::UNIX_EPOCH,
                event: Event::SignalReceived {
                    name: n.to_string(),
                    payload: Arc::clone(&output),
                    command: "cmd_1_aaaaaaaaa".parse().unwrap(),
                },
            })
            .collect();
        let id = "exec_1_aaaaaaaaa".parse().unwrap();
        let append = Append::new(id, Seq(5), &events);
        assert!(append.documents.len() >= 3);
        assert_eq!(append.end(), Seq(25));
        let decoded: Vec<RecordedEvent> =
            append.documents.iter().flat_map(|document| document.decode(id).unwrap()).collect();
        assert_eq!(decoded, events);
        assert!(
            append.documents.iter().all(|document| document.json.len() <= limits::APPEND_BYTES)
        );
    }
}
