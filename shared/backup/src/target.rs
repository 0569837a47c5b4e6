//! Writes items into a store, or compares them with the items of the store. Equal items are
//! skipped, so that an interrupted restore or an import can run again. An item that differs is
//! never overwritten.

mod stored;

use std::{collections::BTreeSet, mem};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use shared::{
    event::RecordedEvent,
    store::{ExecutionHead, Record, RecordKind, SentCommand, Store},
};

use self::stored::{Found, Log, Transcript};
use crate::{
    error::{BackupError, ObjectList},
    replay::Item,
    report::Counts,
};

/// Maximum number of items that are written at the same time, so that the store can put several
/// items into one batch.
const MAX_JOBS: usize = 128;
/// Maximum bytes of events that are written at the same time, unless a single item has more.
const MAX_JOB_BYTES: usize = 32 << 20;
/// Bytes of events after which a part of a log is written before its end is read.
const LOG_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Only compares the items with the store, and writes nothing.
    Compare,
    /// No other process uses the store, so heads of existing logs are written again.
    Restore,
    /// Workers may own executions of the store, so the head of a log that the store already has is
    /// not written.
    Import,
}

struct FinishedJob {
    key: String,
    bytes: usize,
    counts: Counts,
    found: Found,
}

#[derive(Default)]
struct OpenLog {
    events: Vec<RecordedEvent>,
    bytes: usize,
    /// The result of the parts of this log that are already written. `None` if no part is written
    /// yet.
    found: Option<Found>,
}

pub(crate) struct Target<'a> {
    store: &'a dyn Store,
    mode: Mode,
    jobs: FuturesUnordered<BoxFuture<'a, Result<FinishedJob, BackupError>>>,
    /// The objects that running jobs write. Two jobs for one object never run at the same time.
    keys: BTreeSet<String>,
    bytes: usize,
    log: OpenLog,
    last_kind: Option<RecordKind>,
    /// Objects that the store did not have.
    new_counts: Counts,
    /// Objects that the store had.
    known_counts: Counts,
    different_objects: ObjectList,
}

/// Objects that were written, or that would be written in the mode `Compare`, and objects that the
/// store already has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) new_counts: Counts,
    pub(crate) known_counts: Counts,
    pub(crate) different_objects: ObjectList,
}

impl<'a> Target<'a> {
    pub(crate) fn new(store: &'a dyn Store, mode: Mode) -> Self {
        Self {
            store,
            mode,
            jobs: FuturesUnordered::new(),
            keys: BTreeSet::new(),
            bytes: 0,
            log: OpenLog::default(),
            last_kind: None,
            new_counts: Counts::default(),
            known_counts: Counts::default(),
            different_objects: ObjectList::default(),
        }
    }

    pub(crate) async fn put(&mut self, item: Item) -> Result<(), BackupError> {
        let (store, mode) = (self.store, self.mode);
        match item {
            Item::Transcript { request, known, transcript } => {
                let key = request.id.to_string();
                let counts = Counts { requests: u64::from(known == 0), ..Counts::default() };
                let part = Transcript { request, known, entries: transcript };
                let work = async move { part.put(store, mode).await };
                self.start_job(key, 0, counts, work.boxed()).await
            }
            Item::Plan(plan) => {
                let key = plan.id().to_string();
                let counts = Counts { plans: 1, ..Counts::default() };
                let work = async move { stored::put_plan(store, mode, &plan).await };
                self.start_job(key, 0, counts, work.boxed()).await
            }
            Item::Events { head, events } => self.put_events(*head, events).await,
            Item::LogEnd { head, commands } => self.put_log_end(*head, commands).await,
            Item::Record(record) => self.put_record(record).await,
            Item::Audit(entry) => {
                let key = entry.id.to_string();
                let counts = Counts { audit_entries: 1, ..Counts::default() };
                let work = async move { stored::put_audit_entry(store, mode, *entry).await };
                self.start_job(key, 0, counts, work.boxed()).await
            }
        }
    }

    async fn put_record(&mut self, record: Record) -> Result<(), BackupError> {
        let (store, mode, kind) = (self.store, self.mode, record.kind);
        if self.last_kind != Some(kind) {
            // Waits for the writes of the previous kind, because a record can refer to records of
            // that kind. For example, a part of a blob must not be stored before its blob.
            self.finish_all_jobs().await?;
            self.last_kind = Some(kind);
        }
        let key = format!("{} {}", kind.as_str(), record.name);
        let counts = match kind {
            RecordKind::Blob => Counts { blobs: 1, ..Counts::default() },
            RecordKind::BlobPart => Counts::default(),
            _ => Counts { records: 1, ..Counts::default() },
        };
        let bytes = if kind == RecordKind::BlobPart { LOG_BYTES } else { 0 };
        let work = async move { stored::put_record(store, mode, record).await };
        self.start_job(key, bytes, counts, work.boxed()).await?;
        // Waits for each write of a shared record, because all of them change the same counter.
        if kind.is_shared_by_nodes() { self.finish_all_jobs().await } else { Ok(()) }
    }

    pub(crate) async fn finish(mut self) -> Result<Outcome, BackupError> {
        self.finish_all_jobs().await?;
        let Self { new_counts, known_counts, different_objects, .. } = self;
        Ok(Outcome { new_counts, known_counts, different_objects })
    }

    async fn put_events(
        &mut self,
        head: ExecutionHead,
        events: Vec<RecordedEvent>,
    ) -> Result<(), BackupError> {
        self.log.bytes += events.iter().map(RecordedEvent::bytes).sum::<usize>();
        self.log.events.extend(events);
        if self.log.bytes < LOG_BYTES {
            return Ok(());
        }
        let events = mem::take(&mut self.log.events);
        self.log.bytes = 0;
        let earlier_result = self.log.found.take();
        let log = Log { head, events, commands: Vec::new(), earlier_result, is_complete: false };
        self.log.found = Some(log.put(self.store, self.mode).await?);
        Ok(())
    }

    async fn put_log_end(
        &mut self,
        head: ExecutionHead,
        commands: Vec<SentCommand>,
    ) -> Result<(), BackupError> {
        let OpenLog { events, bytes, found } = mem::take(&mut self.log);
        let counts = Counts {
            executions: 1,
            events: head.seq.0,
            commands: commands.len() as u64,
            ..Counts::default()
        };
        let (store, mode, key) = (self.store, self.mode, head.execution.to_string());
        let log = Log { head, events, commands, earlier_result: found, is_complete: true };
        let work = async move { log.put(store, mode).await };
        self.start_job(key, bytes, counts, work.boxed()).await
    }

    async fn start_job(
        &mut self,
        key: String,
        bytes: usize,
        counts: Counts,
        work: BoxFuture<'a, Result<Found, BackupError>>,
    ) -> Result<(), BackupError> {
        if self.keys.contains(&key) {
            self.finish_all_jobs().await?;
        }
        while self.jobs.len() >= MAX_JOBS || (self.bytes + bytes > MAX_JOB_BYTES && self.bytes > 0)
        {
            self.finish_job().await?;
        }
        self.keys.insert(key.clone());
        self.bytes += bytes;
        let done = move |found| FinishedJob { key, bytes, counts, found };
        self.jobs.push(work.map(|found| found.map(done)).boxed());
        Ok(())
    }

    async fn finish_all_jobs(&mut self) -> Result<(), BackupError> {
        while !self.jobs.is_empty() {
            self.finish_job().await?;
        }
        Ok(())
    }

    async fn finish_job(&mut self) -> Result<(), BackupError> {
        let Some(done) = self.jobs.next().await else { return Ok(()) };
        let FinishedJob { key, bytes, counts, found } = done?;
        self.keys.remove(&key);
        self.bytes -= bytes;
        match found {
            Found::New => self.new_counts.add(&counts),
            Found::Same => self.known_counts.add(&counts),
            Found::Different(why) if self.mode == Mode::Compare => self.different_objects.add(why),
            Found::Different(why) => return Err(BackupError::Changed(why)),
            Found::Useless => (),
        }
        Ok(())
    }
}
