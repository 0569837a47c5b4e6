//! Where everything is kept.
//!
//! Two small traits. [`ExecutionLog`] keeps what happens and promises three things, which the
//! conformance suite in `tests` checks of every store:
//!
//! * **Order.** An append succeeds only if its `after` is the end of the log: all of it, or a
//!   prefix where it is too large for one document.
//! * **Durability.** What an append returned `Ok` for, every later read returns.
//! * **Honesty.** An append may fail and still have written. Callers read again.
//!
//! Fencing needs no further promise: a claim is an event, so a worker that lost its claim has a
//! stale position. [`Documents`] keeps what never changes (requests, plans) and what caches the
//! logs (heads).

mod assembly;
pub mod hints;
pub mod journal;
pub mod memory;
pub mod mongo;
mod open;
mod plan_cache;
mod search;
pub mod sqlite;
mod tail;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{hints::Hints, open::open, tail::tail};
use crate::{
    clock::Timestamp,
    event::{self, Recorded},
    execution::{Execution, ExecutionState},
    id::{CommandId, Epoch, ExecutionId, PlanId, RequestId, Seq, StepId, ToolName, WorkerId},
    limits,
    plan::Plan,
    request::{Request, TranscriptEntry},
};

/// Everything a store does.
pub trait Store: ExecutionLog + Documents {}

impl<S: ExecutionLog + Documents> Store for S {}

/// Keeps the log of every execution, and who works on it.
#[async_trait]
pub trait ExecutionLog: fmt::Debug + Send + Sync {
    /// Writes events at the end of a log, with the head and the inbox as they are afterwards.
    ///
    /// All appends of a process that wait at the same time share one commit.
    async fn append(&self, append: Append) -> Result<(), AppendError>;

    /// Writes a head without an event, as a worker does that puts an execution aside.
    ///
    /// Heads apply only if their position is not behind the one that is there.
    async fn put_head(&self, head: Head) -> Result<(), StoreError>;

    /// Returns what comes after position `after`, oldest first: at most about
    /// [`limits::READ_EVENTS`], nothing only at the end.
    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<Recorded>, StoreError>;

    /// Returns executions that nobody has and whose time has come: higher priority first, then
    /// the longest due.
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError>;

    /// Returns executions of workers that are gone. A worker is gone when its lease has run out
    /// or when the store knows that its process has ended.
    async fn orphans(&self, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError>;

    /// Returns when the next execution that nobody has comes due.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Says that a worker lives, at least until its lease runs out.
    async fn heartbeat(&self, lease: Lease) -> Result<(), StoreError>;

    /// Says that a worker has ended. Whatever it still has is free at once.
    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError>;

    /// Keeps what an outsider asks of an execution until its owner has recorded it.
    async fn send(&self, envelope: Envelope) -> Result<(), StoreError>;

    /// Returns what waits in inboxes, oldest first: of one execution, or of all.
    async fn inbox(&self, of: Option<ExecutionId>) -> Result<Vec<Envelope>, StoreError>;

    /// Forgets commands that can no longer matter.
    async fn discard(&self, commands: Vec<CommandId>) -> Result<(), StoreError>;

    /// Returns how many times this process has made something durable.
    fn commits(&self) -> u64;

    /// Returns the hints that say when it is worth looking again.
    fn hints(&self) -> &Hints;
}

/// Keeps requests, plans, transcripts and heads.
#[async_trait]
pub trait Documents: fmt::Debug + Send + Sync {
    /// Keeps a new request, or says that the identifier is [taken](StoreError::Taken).
    async fn put_request(&self, request: &Request) -> Result<(), StoreError>;

    /// Returns a request.
    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError>;

    /// Returns requests, the newest first.
    async fn requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError>;

    /// Adds to the transcript of a request.
    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError>;

    /// Returns the transcript of a request, oldest first.
    async fn transcript(&self, id: RequestId) -> Result<Vec<TranscriptEntry>, StoreError>;

    /// Keeps a new plan, or says that the identifier, or the version of its request, is
    /// [taken](StoreError::Taken).
    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError>;

    /// Returns a plan.
    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError>;

    /// Returns the plans of a request, the oldest version first.
    async fn plans_of(&self, id: RequestId) -> Result<Vec<PlanId>, StoreError>;

    /// Returns plans, the newest first.
    async fn plans(&self, filter: &PlanFilter, page: &Page) -> Result<Listing<PlanId>, StoreError>;

    /// Returns the head of an execution.
    async fn head(&self, id: ExecutionId) -> Result<Option<Head>, StoreError>;

    /// Returns heads, the newest first.
    async fn heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<Head>, StoreError>;

    /// Keeps an idempotency key, unless it is there: then returns what is.
    async fn reserve(&self, key: &Reservation) -> Result<Option<Reservation>, StoreError>;

    /// Returns what was reserved under a key.
    async fn reservation(&self, key: &str) -> Result<Option<Reservation>, StoreError>;

    /// Returns whether the store can be reached and written.
    async fn check(&self) -> Result<(), StoreError>;
}

/// Events for the end of one log, ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// Which log.
    pub execution: ExecutionId,
    /// Where its end must be.
    pub after: Seq,
    /// The documents to write, one after another; nearly always one.
    pub documents: Vec<Document>,
    /// The head afterwards, where it changes. The first append of a log has one.
    pub head: Option<Head>,
    /// The commands that the events record: they leave the inbox.
    pub heard: Vec<CommandId>,
}

/// Neighbouring events of one log as a store keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The position of the first event.
    pub first: Seq,
    /// How many events.
    pub len: usize,
    /// The events, as [`event::to_json`] writes them.
    pub json: String,
}

impl Append {
    /// Makes an append of events that follow each other.
    pub fn new(execution: ExecutionId, after: Seq, events: &[Recorded]) -> Self {
        let mut documents = Vec::with_capacity(1);
        encode(after.next(), events, &mut documents);
        Self { execution, after, documents, head: None, heard: Vec::new() }
    }

    /// Returns the end of the log afterwards.
    pub fn end(&self) -> Seq {
        self.documents.last().map_or(self.after, Document::last)
    }

    /// Returns how much there is to write.
    pub fn bytes(&self) -> usize {
        self.documents.iter().map(|it| it.json.len()).sum()
    }
}

/// Writes events as one document, or as several where one would be too large.
fn encode(first: Seq, events: &[Recorded], documents: &mut Vec<Document>) {
    let json = event::to_json(events);
    if json.len() <= limits::APPEND_BYTES || events.len() == 1 {
        documents.push(Document { first, len: events.len(), json });
        return;
    }
    let (one, other) = events.split_at(events.len() / 2);
    encode(first, one, documents);
    encode(first.plus(one.len()), other, documents);
}

impl Document {
    /// Returns the position of the last event.
    pub fn last(&self) -> Seq {
        Seq(self.first.0 + self.len as u64 - 1)
    }

    /// Returns the events.
    pub fn decode(&self, id: ExecutionId) -> Result<Vec<Recorded>, StoreError> {
        let events = event::from_json(self.first, &self.json)
            .map_err(|err| StoreError::corrupt(id, format!("event {}: {err}", self.first)))?;
        if events.len() != self.len {
            let why = format!("{} events at {}, not {}", events.len(), self.first, self.len);
            return Err(StoreError::corrupt(id, why));
        }
        Ok(events)
    }
}

/// What lists and claims need to know of an execution. A cache of the log: it may lag, it never
/// runs ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Which execution.
    pub execution: ExecutionId,
    /// The request it belongs to.
    pub request: RequestId,
    /// The plan it runs.
    pub plan: PlanId,
    /// What people call its state.
    pub state: ExecutionState,
    /// When it was created.
    pub created_at: Timestamp,
    /// The position in the log that this is a cache of.
    pub seq: Seq,
    /// The number of the last claim.
    pub epoch: Epoch,
    /// The worker that has it now.
    pub owner: Option<WorkerId>,
    /// When a worker should take it, while nobody has it. Nothing: when a command comes.
    pub due: Option<Timestamp>,
    /// Higher goes first.
    pub priority: i32,
}

impl Head {
    /// Returns the head of an execution that `owner` has.
    pub fn of(execution: &Execution, owner: Option<WorkerId>, due: Option<Timestamp>) -> Self {
        let state = execution.state();
        Self {
            execution: execution.id(),
            request: execution.request(),
            plan: execution.plan().id(),
            state,
            created_at: execution.created_at(),
            seq: execution.seq(),
            epoch: execution.epoch(),
            // One that is part of another is let go once that one was told.
            owner: owner.filter(|_| !state.is_over() || execution.parent().is_some()),
            due: due.filter(|_| !state.is_over()),
            priority: execution.options().priority,
        }
    }

    /// Returns whether a worker should take it, now or later.
    pub fn is_free(&self) -> bool {
        self.owner.is_none() && self.due.is_some()
    }
}

/// The right of a worker to the executions it claimed, for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Whose.
    pub worker: WorkerId,
    /// The name of its machine, for people.
    pub node: String,
    /// Until when.
    pub until: Timestamp,
}

/// Something an outsider asks of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// Makes it count once.
    pub id: CommandId,
    /// Which execution.
    pub execution: ExecutionId,
    /// When it was asked.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
    /// What.
    pub command: Command,
}

/// What an outsider asks of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Command {
    /// Stop.
    Cancel {
        /// Why.
        reason: Option<String>,
    },
    /// Start nothing further.
    Pause,
    /// Go on.
    Resume,
    /// Let a step that waits for a person go on, or not.
    Approve {
        /// The step.
        step: StepId,
        /// Which item of its list; all that wait, if nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<u32>,
        /// Whether it may go on.
        approved: bool,
        /// What the person said.
        comment: Option<String>,
    },
    /// Tell a step that waits for it.
    Signal {
        /// The signal's name.
        name: String,
        /// What it brings.
        payload: Arc<Value>,
    },
    /// An execution that a step of this one began is over: look what came of it.
    ChildEnded {
        /// Which.
        child: ExecutionId,
    },
}

/// An idempotency key and the execution it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The key, as the caller gave it.
    pub key: String,
    /// The execution.
    pub execution: ExecutionId,
    /// What was asked for, so that a key cannot mean two things.
    pub fingerprint: String,
}

/// Which requests to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Words of the query; case does not matter.
    pub search: Option<String>,
    /// Not before.
    pub from: Option<Timestamp>,
    /// Before.
    pub to: Option<Timestamp>,
    /// Has an execution in this state.
    pub state: Option<ExecutionState>,
}

/// Which plans to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanFilter {
    /// Of this request.
    pub request: Option<RequestId>,
    /// Words of the query; case does not matter.
    pub search: Option<String>,
}

/// Which executions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionFilter {
    /// In one of these states; empty means any.
    pub states: Vec<ExecutionState>,
    /// Of this request.
    pub request: Option<RequestId>,
    /// Of this plan.
    pub plan: Option<PlanId>,
    /// Whose plan uses this tool (`set.name`, or the plain name).
    pub tool: Option<ToolName>,
    /// Created not before.
    pub from: Option<Timestamp>,
    /// Created before.
    pub to: Option<Timestamp>,
}

/// Which part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// At most so many.
    pub first: usize,
    /// Behind this place in the order.
    pub after: Option<Cursor>,
}

/// A place in a list that is ordered by time, then by identifier, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// When the thing was created.
    pub at: Timestamp,
    /// Its identifier.
    pub id: String,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// The things, each with its place.
    pub items: Vec<(Cursor, T)>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// Why a store could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is not available now. What was asked may have happened all the same.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The identifier is taken; draw another.
    #[error("the identifier is taken")]
    Taken,
    /// What the store has cannot be what it says.
    #[error("`{what}` is damaged in the store: {why}")]
    Corrupt {
        /// The identifier of the damaged thing.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store was written by a newer version.
    #[error(
        "the store has schema version {found}, this `faber` knows {known}: use a newer `faber`"
    )]
    TooNew {
        /// The version of the store.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The store's address is wrong.
    #[error("`{url}` is not a store: {why}; use `sqlite:PATH`, `mongodb://…` or `memory:`")]
    Address {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
}

impl StoreError {
    /// Says that something in the store is damaged.
    pub fn corrupt(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string(), why: why.to_string() }
    }
}

/// Why an append failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log does not end where the append begins.
    #[error("the log has grown")]
    Conflict,
    /// The store failed. The append may have been written all the same, or the first of its
    /// documents.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.timestamp_micros(), self.id)
    }
}

impl std::str::FromStr for Cursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (at, id) = text.split_once('.').ok_or(())?;
        let at = at.parse().ok().and_then(Timestamp::from_timestamp_micros).ok_or(())?;
        Ok(Self { at, id: id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Event;

    #[test]
    fn a_large_append_becomes_several_documents() {
        let output = Arc::new(json!("x".repeat(limits::OUTPUT_BYTES)));
        let events: Vec<Recorded> = (0..20)
            .map(|n| Recorded {
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
        let decoded: Vec<Recorded> =
            append.documents.iter().flat_map(|it| it.decode(id).unwrap()).collect();
        assert_eq!(decoded, events);
        assert!(append.documents.iter().all(|it| it.json.len() <= limits::APPEND_BYTES));
    }
}
