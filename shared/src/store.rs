//! The traits that every store implements, and the types that they use.
//!
//! [`Log`] keeps the logs and makes three promises, which the conformance suite in `tests` checks
//! for every store:
//!
//! * **Order.** An append succeeds only if its `after` is the end of the log. An append that is too
//!   large for one document can write its first events and then fail.
//! * **Durability.** Until the log is removed, every later read returns the events of an append
//!   that returned `Ok`.
//! * **Honesty.** An append may return an error although it has written. Callers must read again.
//!
//! Fencing needs no further promise. A claim is an event, so a worker that lost its claim appends
//! at a stale position, and its append fails.

mod assembly;
mod audit;
pub mod commit_size;
mod count;
mod error;
mod fair_share;
mod head;
pub mod hints;
mod inbox;
mod layout;
mod list;
mod load;
pub mod memory;
mod permit;
mod plan_cache;
mod recent;
mod record;
mod restore_marker;
mod retention;
mod rewrite;
mod search;
mod settlements;
mod tail;
mod typed;
mod usage;
mod vector;

/// Parts that every store is built from, so that all stores behave alike.
pub mod backend {
    pub use super::{
        assembly::Assembly,
        count::{CountFields, CountTable, Durations, Tally, bucket_micros},
        error::{count_unreadable, skip_damaged},
        fair_share::{PlaceShares, TokenRead, add_longest_due, aged_places, rotate_tokens},
        inbox::inbox_full_error,
        layout::{
            CONVERTED_LAYOUT, LAYOUT, MigrationReport, OLDEST_LAYOUT, REQUEST_LABELS_LAYOUT,
            check_layout, store_in_use_error,
        },
        permit::{LimitState, Tallies, give_back, take_all},
        plan_cache::{Cached, PlanCache},
        record::Span,
        search::{fold_case, search_words, searched_tools},
        vector::{check_vectors, decode_vector, encode_vector},
    };
}

use std::{fmt, sync::Arc};

use async_trait::async_trait;

pub use self::{
    audit::{AuditAction, AuditEntry, AuditFilter, AuditLog, AuditTarget},
    count::{CountGroup, CountQuery, ExecutionCount},
    error::{AppendError, StoreError},
    head::{ExecutionHead, HeadError},
    hints::Hints,
    inbox::{Command, SentCommand},
    list::{
        Cursor, ExecutionFilter, HeadQuery, LabelFilter, Listing, Page, PlanFilter, PlanVersion,
        QueuePosition, RequestFilter,
    },
    load::load_execution,
    permit::{CallLimit, Permission, Permit, PermitAsk, Rate},
    record::{Record, RecordKind, RecordPage, SecretField, SecretParts, WriteCondition},
    restore_marker::RestoreMarker,
    retention::{Pruned, Removable, sub_plans},
    rewrite::{Rewrite, StoredContent, StoredDocument, StoredKey, StoredPage, StoredPart},
    search::search_words,
    settlements::{ChildPath, FinishedCallId, settlement_prefix},
    tail::follow_log,
    typed::{Reservation, SavedPlan},
    usage::Usage,
    vector::TextHash,
};
use crate::{
    clock::{SteadyClock, Timestamp},
    event::{self, RecordedEvent},
    id::{CommandId, ExecutionId, PlanId, RequestId, Seq, WorkerId},
    limits,
    plan::Plan,
    request::{Request, TranscriptEntry},
};

#[async_trait]
pub trait Store: Log + Inbox + Permits + Documents + KeyValue + Vectors + AuditLog {
    /// Removes finished data that is older than `before`, at most `most` of each kind.
    ///
    /// It removes finished executions first: log, head, inbox, idempotency keys and settlements. A
    /// child stays as long as its parent runs. When no such execution is left, it removes plans
    /// without references. Then it removes requests without plans and executions, with their
    /// transcripts.
    ///
    /// If `most` is 0, it removes only old records (expired outputs, and calls outside plans) and
    /// permits of unknown workers.
    ///
    /// A concurrent reader may or may not find the data. `before` should be at least a minute in
    /// the past, so that a frozen worker has lost its lease.
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError>;

    /// Removes objects that nothing needs, whatever their age. Keeps objects that are needed, by
    /// the same rules as [`prune`](Self::prune). Returns the number of removed objects.
    ///
    /// The caller ensures that the executions finished at least a minute ago.
    async fn remove_unused(&self, objects: &Removable) -> Result<usize, StoreError>;

    /// Returns the time that all processes over this store share, whatever their machines' clocks
    /// show.
    async fn shared_time(&self) -> Result<Timestamp, StoreError>;

    /// Returns the bytes that data and indexes occupy on the disks of a database server. Returns
    /// `None` for a store in this process, which has no server.
    async fn stored_bytes(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    fn hints(&self) -> &Hints;

    async fn count_stored(&self, _part: StoredPart) -> Result<u64, StoreError> {
        Err(not_rewritable())
    }

    /// Returns the documents of a part after a key. A page has a bounded number of bytes.
    async fn list_stored(
        &self,
        _part: StoredPart,
        _after: Option<StoredKey>,
    ) -> Result<StoredPage, StoreError> {
        Err(not_rewritable())
    }

    /// Replaces documents of one part, each in a transaction of its own or several in one. Returns
    /// how many were replaced.
    ///
    /// A document that was removed meanwhile stays removed, and a head whose texts have changed
    /// stays as it is.
    async fn replace_stored(&self, _rewrites: Vec<Rewrite>) -> Result<u64, StoreError> {
        Err(not_rewritable())
    }
}

fn not_rewritable() -> StoreError {
    StoreError::Unavailable("this store cannot replace its documents".to_owned())
}

#[async_trait]
pub trait Log: fmt::Debug + Send + Sync {
    /// Appends events to a log, and updates the head, the inbox and the audit entries with them.
    ///
    /// Appends of a process that wait at the same time can share one commit.
    async fn append(&self, append: Append) -> Result<(), AppendError>;

    /// Returns the events after a position, oldest first.
    ///
    /// Returns about [`limits::READ_EVENTS`] at most, and an empty list only at the end of the log.
    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError>;

    /// Writes a head without an event, as a worker does when it parks an execution.
    ///
    /// The store keeps the head only if its position is not before the position of the stored head.
    /// A head without a log is dropped, because its execution was removed.
    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError>;

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError>;

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError>;

    /// Removes the lease of a worker. Other workers can claim its executions and acquire its
    /// permits from now on.
    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError>;

    /// Returns the leases that have not expired, in order of the ids of their workers.
    async fn list_leases(&self, now: Timestamp) -> Result<Vec<Lease>, StoreError>;

    /// Returns the workers whose lease has not expired, in order of their ids.
    async fn list_workers(&self, now: Timestamp) -> Result<Vec<WorkerId>, StoreError> {
        let leases = self.list_leases(now).await?;
        Ok(leases.into_iter().map(|lease| lease.worker).collect())
    }
}

#[async_trait]
pub trait Inbox: fmt::Debug + Send + Sync {
    /// Keeps a command until the execution's owner has handled it.
    ///
    /// At most [`limits::INBOX_COMMANDS`] commands wait for one execution. Further commands are
    /// refused as [full](StoreError::Full). The audit entry of the command is stored with it.
    async fn send_command(&self, command: SentCommand) -> Result<(), StoreError>;

    /// Returns waiting commands, oldest first, of one execution or of all.
    ///
    /// For all executions it returns at most [`limits::INBOX_POLL_COMMANDS`] commands and about
    /// [`limits::INBOX_POLL_BYTES`].
    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError>;

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError>;
}

/// Limits calls across all workers.
///
/// Permits protect tools. The safety of executions does not depend on them.
#[async_trait]
pub trait Permits: fmt::Debug + Send + Sync {
    /// Acquires all permits of a call, or none.
    ///
    /// A holder whose worker is gone does not count. A holder is allowed to acquire its permits
    /// again, because an answer may have been lost. Its permits count once, but a rate counts the
    /// call again if another call came between. A refused holder keeps no permit.
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError>;

    /// Releases permits and wakes workers. Permits that no longer exist are ignored. A limit on
    /// rate still counts the calls of released permits.
    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError>;
}

#[async_trait]
pub trait Documents: fmt::Debug + Send + Sync {
    /// Stores a new request. Fails with [taken](StoreError::Taken) if its id exists.
    async fn put_request(&self, request: &Request) -> Result<(), StoreError>;

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError>;

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError>;

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError>;

    /// Returns the transcript without its first `known` entries, oldest entry first. The known
    /// entries are not read again.
    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError>;

    /// Stores a new plan. Fails with [taken](StoreError::Taken) if its id, or its version of the
    /// request, exists.
    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError>;

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError>;

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError>;

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError>;

    /// Lists heads, newest first.
    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError>;

    /// Returns the numbers of executions by group. Children and dry runs are not counted.
    async fn count_executions(&self, query: &CountQuery)
    -> Result<Vec<ExecutionCount>, StoreError>;

    /// Returns the number of unfinished executions that belong to a token, children included.
    async fn count_active(&self, token: &str) -> Result<u64, StoreError>;

    /// Returns the sum of [`ExecutionHead::stored_bytes`] of the executions that belong to a token.
    async fn sum_stored_bytes(&self, token: &str) -> Result<u64, StoreError>;

    async fn count_heads(&self, filter: &ExecutionFilter) -> Result<u64, StoreError>;

    async fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError>;

    async fn count_plans(&self, filter: &PlanFilter) -> Result<u64, StoreError>;
}

#[async_trait]
pub trait KeyValue: fmt::Debug + Send + Sync {
    async fn find_record(&self, kind: RecordKind, name: &str)
    -> Result<Option<Record>, StoreError>;

    /// Writes a record. Returns `false` if the condition `unless` prevented it.
    ///
    /// A record that no store can keep is refused as [too large](StoreError::TooLarge) or
    /// [unfit](StoreError::Unfit). If a store finds more records of a kind than its
    /// [limit](RecordKind::max_records), it removes those with the earliest times.
    async fn put_record(&self, record: &Record, unless: WriteCondition)
    -> Result<bool, StoreError>;

    /// Returns records of a kind, in byte order of their names. Skips damaged records.
    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError>;

    /// Removes a record. Returns `false` if no such record exists.
    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError>;

    /// Returns a number that grows with each change of records on which [all nodes must
    /// agree](RecordKind::is_shared_by_nodes), and only then.
    ///
    /// A caller that reads the number before the records misses no change.
    async fn records_revision(&self) -> Result<u64, StoreError>;
}

/// Keeps the vectors of texts by model, many at a time.
///
/// A model's vector of a text never changes, so a store keeps the first vector that it gets.
#[async_trait]
pub trait Vectors: fmt::Debug + Send + Sync {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError>;

    /// Stores vectors of at most [`limits::VECTOR_LEN`] numbers.
    ///
    /// Large batches are split, so a failed call may have stored a part.
    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError>;
}

/// Returns a clock for a process that uses a store. It starts at the store's time and ignores
/// changes of the machine's clock.
///
/// # Errors
///
/// If the store does not answer.
pub async fn shared_clock(store: &dyn Store) -> Result<SteadyClock, StoreError> {
    Ok(SteadyClock::starting_at(store.shared_time().await?))
}

#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    pub execution: ExecutionId,
    /// The position of the last event in the log. The append fails if the log ends elsewhere.
    pub after: Seq,
    /// The documents to write, one after another. Nearly every append has one document.
    pub documents: Vec<EventDocument>,
    /// The new head, if it changes. The first append of a log has a head.
    pub head: Option<ExecutionHead>,
    /// The commands that the driver has applied, including commands without an event. The append
    /// removes them from the inbox.
    pub handled_commands: Vec<CommandId>,
    /// The audit entry, if the events start an execution for an actor.
    pub audit: Option<Box<AuditEntry>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDocument {
    pub first: Seq,
    pub len: usize,
    pub json: String,
}

impl Append {
    pub fn new(execution: ExecutionId, after: Seq, events: &[RecordedEvent]) -> Self {
        let mut documents = Vec::with_capacity(1);
        encode_documents(after.next(), events, &mut documents);
        let first = events.first().filter(|_| after == Seq::START);
        let audit = first.and_then(|first| AuditEntry::of_start(execution, first));
        Self { execution, after, documents, head: None, handled_commands: Vec::new(), audit }
    }

    pub fn end(&self) -> Seq {
        self.documents.last().map_or(self.after, EventDocument::last)
    }

    pub fn check(&self) -> Result<(), StoreError> {
        let largest =
            self.documents.iter().map(|document| document.json.len()).max().unwrap_or_default();
        if largest > limits::DOCUMENT_BYTES {
            return Err(StoreError::TooLarge { bytes: largest });
        }
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        self.documents.iter().map(|document| document.json.len()).sum()
    }
}

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
    pub fn last(&self) -> Seq {
        Seq(self.first.0 + self.len as u64 - 1)
    }

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub worker: WorkerId,
    pub node: String,
    pub until: Timestamp,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::Event;

    #[test]
    fn an_event_larger_than_a_document_is_rejected() {
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
                by: None,
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
