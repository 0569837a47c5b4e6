//! Where everything is kept.
//!
//! Four small traits. [`ExecutionLog`] keeps what happens and promises three things, which the
//! conformance suite in `tests` checks of every store:
//!
//! * **Order.** An append succeeds only if its `after` is the end of the log: all of it, or a
//!   prefix where it is too large for one document.
//! * **Durability.** What an append returned `Ok` for, every later read returns.
//! * **Honesty.** An append may fail and still have written. Callers read again.
//!
//! Fencing needs no further promise: a claim is an event, so a worker that lost its claim has a
//! stale position. [`Documents`] keeps what never changes (requests, plans) and what caches the
//! logs (heads). [`Records`] keeps small documents that do change: what was registered, what tools
//! remember. [`Vectors`] keeps what models made of texts.

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
        inbox::full_inbox,
        permit::{Tallies, Tally, give_back, take_all},
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
    inbox::{Command, Envelope},
    list::{Cursor, ExecutionFilter, Listing, Page, PlanFilter, RequestFilter},
    load::load,
    permit::{CallLimit, Permission, Permit, PermitAsk, Rate},
    record::{Record, RecordKind, RecordPage, Records, Unless},
    retention::{Pruned, sub_plans},
    search::search_words,
    tail::tail,
    usage::Usage,
    vector::{TextHash, Vectors},
};
use crate::{
    clock::{Clock as _, SteadyClock, Timestamp, WallClock},
    event::{self, Recorded},
    execution::{Execution, ExecutionState},
    id::{CommandId, Epoch, ExecutionId, PlanId, RequestId, Seq, WorkerId},
    limits,
    plan::Plan,
    request::{Request, TranscriptEntry},
};

/// Everything a store does.
pub trait Store: ExecutionLog + Documents + Records + Vectors {}

impl<S: ExecutionLog + Documents + Records + Vectors> Store for S {}

/// Keeps the log of every execution, and who works on it.
#[async_trait]
pub trait ExecutionLog: fmt::Debug + Send + Sync {
    /// Writes events at the end of a log, with the head and the inbox as they are afterwards.
    ///
    /// All appends of a process that wait at the same time share one commit.
    async fn append(&self, append: Append) -> Result<(), AppendError>;

    /// Writes a head without an event, as a worker does that puts an execution aside.
    ///
    /// Heads apply only if their position is not behind the one that is there. One without a log is
    /// of something that was removed meanwhile, and is not kept.
    async fn put_head(&self, head: Head) -> Result<(), StoreError>;

    /// Returns what comes after position `after`, oldest first: at most about
    /// [`limits::READ_EVENTS`], nothing only at the end.
    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<Recorded>, StoreError>;

    /// Returns the first event of a log, without the rest of it.
    async fn read_first(&self, id: ExecutionId) -> Result<Option<Recorded>, StoreError> {
        Ok(self.read(id, Seq::START).await?.into_iter().next())
    }

    /// Returns executions that are not over, that nobody has, and whose time has come.
    ///
    /// Higher priority first, then the longest due. But one place in eight, and one at least where
    /// there are two, goes to the longest due whatever its priority: nobody waits for ever. Those
    /// come last. Where there are more than [`limits::PRIORITIES`], of what is due or will be, only
    /// the highest so many are told apart, and the rest comes by its time.
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError>;

    /// Returns the same, the longest due first whatever its priority, behind a place in that order:
    /// so that who cannot use what comes first gets to see the rest.
    async fn due_after(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, ExecutionId)>,
        most: usize,
    ) -> Result<Vec<Head>, StoreError>;

    /// Returns executions of workers that are gone, also those that are over: somebody may have to
    /// be told. A worker is gone when its lease has run out or when the store knows that its
    /// process has ended.
    async fn orphans(&self, now: Timestamp, most: usize) -> Result<Vec<Head>, StoreError>;

    /// Returns executions that a worker has, by their heads.
    async fn owned(&self, worker: WorkerId, most: usize) -> Result<Vec<Head>, StoreError>;

    /// Returns when the next execution that nobody has comes due.
    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Says that a worker lives, at least until its lease runs out.
    async fn heartbeat(&self, lease: Lease) -> Result<(), StoreError>;

    /// Says that a worker has ended. Whatever it still has is free at once.
    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError>;

    /// Returns the workers that live: those whose lease has not run out, in order.
    async fn workers(&self, now: Timestamp) -> Result<Vec<WorkerId>, StoreError>;

    /// Takes all limits of a call, or none.
    ///
    /// Permits spare tools; no execution's safety rests on them. A holder whose worker is gone
    /// holds nothing. Who has what he asks for gets it again, and it counts once: an answer that
    /// was lost may be asked for again. Who is refused holds nothing.
    async fn acquire(&self, ask: &PermitAsk, now: Timestamp) -> Result<Permission, StoreError>;

    /// Gives permits back; those that are gone already do not matter. It is worth looking for work
    /// then. What a rate has counted stays counted.
    async fn release(&self, permits: Vec<Permit>) -> Result<(), StoreError>;

    /// Returns what a call returned under this key, if that may still be used.
    async fn cached(&self, key: &str, now: Timestamp) -> Result<Option<Arc<Value>>, StoreError>;

    /// Keeps what a call returned, until its time, or until [`limits::CACHE_ENTRIES`] later ones
    /// need the place: what expires the soonest goes first.
    async fn cache(&self, key: &str, output: &Value, until: Timestamp) -> Result<(), StoreError>;

    /// Removes what is over and older than `before`, at most `most` of a kind, and says whether
    /// there is more.
    ///
    /// First executions that finished before, if their parent is over too: log, head, inbox, and
    /// idempotency key. When there are no more of them, plans that nothing refers to; then requests
    /// without plans and executions, with their transcripts. Whoever reads what is being removed
    /// finds it or does not find it. `before` should lie further back than a frozen worker may
    /// come back from: a minute at least.
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError>;

    /// Keeps what an outsider asks of an execution until its owner has recorded it. At most
    /// [`limits::INBOX`] commands wait for one execution; one more is refused as
    /// [full](StoreError::Full).
    async fn send(&self, envelope: Envelope) -> Result<(), StoreError>;

    /// Returns what waits in inboxes, oldest first: of one execution, or of all; of all at most
    /// [`limits::INBOX_LOOK`], and about [`limits::INBOX_BYTES`].
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
    async fn transcript(&self, id: RequestId) -> Result<Vec<TranscriptEntry>, StoreError> {
        self.transcript_after(id, 0).await
    }

    /// Returns what is behind the first `known` entries of a transcript, oldest first. Those are not
    /// read again.
    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError>;

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

    /// Returns the first few executions that ended after a moment and not after another, in the order
    /// in which they ended.
    async fn ended(
        &self,
        after: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> Result<Vec<Head>, StoreError>;

    /// Keeps an idempotency key, unless it is there: then returns what is.
    async fn reserve(&self, key: &Reservation) -> Result<Option<Reservation>, StoreError>;

    /// Returns what was reserved under a key.
    async fn reservation(&self, key: &str) -> Result<Option<Reservation>, StoreError>;

    /// Gives a plan a name, in the place of what had it.
    async fn save_plan(&self, saved: &SavedPlan) -> Result<(), StoreError>;

    /// Returns what was saved under a name.
    async fn saved_plan(&self, name: &str) -> Result<Option<SavedPlan>, StoreError>;

    /// Returns the first few saved plans behind a name, in the order of their names' bytes.
    async fn saved_plans(
        &self,
        after: Option<&str>,
        first: usize,
    ) -> Result<Vec<SavedPlan>, StoreError>;

    /// Takes a name away from its plan, which stays. Returns whether it had one.
    async fn remove_saved_plan(&self, name: &str) -> Result<bool, StoreError>;

    /// Returns the time that all processes over the store go by, whatever their machines' clocks say.
    async fn time(&self) -> Result<Timestamp, StoreError> {
        Ok(WallClock.now())
    }

    /// Returns whether the store can be reached and written.
    async fn check(&self) -> Result<(), StoreError>;
}

/// Returns a clock for a process that works over a store: it begins with the store's time, and no
/// change of the machine's clock moves it.
///
/// # Errors
///
/// If the store does not answer.
pub async fn clock_of(store: &dyn Store) -> Result<SteadyClock, StoreError> {
    Ok(SteadyClock::starting_at(store.time().await?))
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

    /// Refuses what no store can ever write.
    pub fn check(&self) -> Result<(), StoreError> {
        let largest = self.documents.iter().map(|it| it.json.len()).max().unwrap_or_default();
        if largest > limits::DOCUMENT_BYTES {
            return Err(StoreError::TooLarge { bytes: largest });
        }
        Ok(())
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
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The execution of which it is a step.
    pub parent: Option<ExecutionId>,
}

impl Head {
    /// Returns the head of an execution that `owner` has. One that is over keeps its owner until its
    /// parent is told, and until what goes on after it has begun.
    pub fn of(execution: &Execution, owner: Option<WorkerId>, due: Option<Timestamp>) -> Self {
        let (state, parent) = (execution.state(), execution.parent().map(|it| it.execution));
        Self {
            execution: execution.id(),
            request: execution.request(),
            plan: execution.plan().id(),
            state,
            created_at: execution.created_at(),
            seq: execution.seq(),
            epoch: execution.epoch(),
            // Whoever is lost before that is done leaves it to be found.
            owner: owner.filter(|_| !state.is_over() || execution.leaves_something()),
            due: due.filter(|_| !state.is_over()),
            priority: execution.options().priority,
            finished_at: execution.finished_at(),
            parent,
        }
    }

    /// Returns whether a worker should take it, now or later.
    pub fn is_free(&self) -> bool {
        self.owner.is_none() && self.due.is_some() && !self.state.is_over()
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

/// A plan under a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedPlan {
    /// The name.
    pub name: String,
    /// The plan.
    pub plan: PlanId,
    /// The JSON Schema of what an execution of it is given.
    pub inputs: Option<Value>,
    /// When it was saved.
    #[serde(with = "chrono::serde::ts_microseconds")]
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Event;

    #[test]
    fn what_no_document_can_hold_is_refused() {
        let append = |bytes| {
            let json = "x".repeat(bytes);
            let document = Document { first: Seq(1), len: 1, json };
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
