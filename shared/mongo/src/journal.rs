//! Group commit: collects appends into a batch while earlier batches are sent.
//!
//! At any time, at most one append of each event log is being written. Otherwise MongoDB could
//! reject the first of two appends and store the second after the events of another worker.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use mongodb::{
    Database,
    bson::{RawArrayBuf, RawDocumentBuf, rawdoc},
};
use shared::{
    id::ExecutionId,
    limits,
    store::{
        Append, AppendError, ExecutionHead, Hints, StoreError, commit_size::COMMIT_OPERATIONS,
    },
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    audit,
    commands::{self, Replacement, Safety},
    rows,
};

/// Maximum number of appends in the queue. Further callers wait until there is room.
const QUEUE_LEN: usize = 8_192;
/// Maximum number of batches that are sent at the same time: the server works on one batch while
/// the other batch is sent to it.
const MAX_BATCHES: usize = 2;
/// A batch of this size is sent, even if more appends wait.
const TARGET_BATCH_BYTES: usize = 4 << 20;
/// Maximum bytes of a batch, unless it has only one append. The command stays below 16 MiB, the
/// limit of a document.
const MAX_BATCH_BYTES: usize = limits::DOCUMENT_BYTES;

type AppendResult = Result<(), AppendError>;

#[derive(Debug)]
pub(super) struct Journal {
    queue: mpsc::Sender<Entry>,
    writer_name: String,
}

#[derive(Debug)]
struct Entry {
    append: Append,
    /// The documents of the append, as they are stored.
    rows: Vec<RawDocumentBuf>,
    reply: oneshot::Sender<AppendResult>,
}

impl Entry {
    fn first_len(&self) -> usize {
        self.rows.first().map_or(0, |row| row.as_bytes().len())
    }
}

impl Journal {
    pub(super) fn start(
        tasks: &mut JoinSet<()>,
        database: Database,
        hints: Arc<Hints>,
        writer_name: &str,
    ) -> Self {
        let (queue, entries) = mpsc::channel(QUEUE_LEN);
        let writer = BatchWriter { database, hints, writer_name: writer_name.to_owned() };
        tasks.spawn(run_journal(entries, Arc::new(writer)));
        Self { queue, writer_name: writer_name.to_owned() }
    }

    /// Returns when a majority has stored the events, and the head and the inbox are written.
    pub(super) async fn append(&self, append: Append) -> AppendResult {
        let (reply, result) = oneshot::channel();
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        // Converts the events here, so that callers do it in parallel and the journal only sends
        // them.
        let id = append.execution.to_string();
        let rows = append
            .documents
            .iter()
            .map(|document| rows::event_row(&id, document, &self.writer_name));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        self.queue.send(Entry { append, rows, reply }).await.map_err(|_| closed())?;
        result.await.map_err(|_| closed())?
    }
}

struct StepResult {
    /// Logs whose appends are finished, so that their next append can be sent.
    finished: BTreeSet<ExecutionId>,
    /// Appends whose events are written, but whose heads, inbox commands or audit entries are not.
    without_heads: Vec<Entry>,
}

async fn run_journal(mut entries: mpsc::Receiver<Entry>, writer: Arc<BatchWriter>) {
    let (mut waiting, mut busy_logs) = (VecDeque::new(), BTreeSet::new());
    let mut event_tasks: JoinSet<StepResult> = JoinSet::new();
    let mut head_tasks: JoinSet<StepResult> = JoinSet::new();
    loop {
        let ended_task = tokio::select! {
            entry = entries.recv(), if waiting.len() < QUEUE_LEN => match entry {
                Some(entry) => {
                    waiting.push_back(entry);
                    None
                }
                None => return,
            },
            Some(ended) = event_tasks.join_next() => Some(ended),
            Some(ended) = head_tasks.join_next() => Some(ended),
        };
        match ended_task {
            Some(Ok(StepResult { finished, without_heads })) => {
                busy_logs.retain(|log| !finished.contains(log));
                if !without_heads.is_empty() {
                    let writer = Arc::clone(&writer);
                    head_tasks.spawn(async move { writer.write_heads(without_heads).await });
                }
            }
            Some(Err(err)) => {
                tracing::error!(%err, "a batch was lost");
                return;
            }
            None => (),
        }
        while waiting.len() < QUEUE_LEN
            && let Ok(entry) = entries.try_recv()
        {
            waiting.push_back(entry);
        }
        while event_tasks.len() < MAX_BATCHES {
            let batch = take_batch(&mut waiting, &mut busy_logs);
            if batch.is_empty() {
                break;
            }
            let writer = Arc::clone(&writer);
            event_tasks.spawn(async move { writer.write_batch(batch).await });
        }
    }
}

/// Removes appends of logs that are not busy from the queue, oldest first, and marks their logs as
/// busy.
fn take_batch(waiting: &mut VecDeque<Entry>, busy_logs: &mut BTreeSet<ExecutionId>) -> Vec<Entry> {
    let (mut batch, mut skipped, mut bytes) = (Vec::new(), VecDeque::new(), 0);
    while let Some(entry) = waiting.pop_front() {
        let len = entry.first_len();
        if !batch.is_empty() && bytes + len > MAX_BATCH_BYTES {
            skipped.push_back(entry);
            break;
        }
        if !busy_logs.insert(entry.append.execution) {
            skipped.push_back(entry);
            continue;
        }
        bytes += len;
        batch.push(entry);
        if batch.len() >= COMMIT_OPERATIONS || bytes >= TARGET_BATCH_BYTES {
            break;
        }
    }
    skipped.append(waiting);
    *waiting = skipped;
    batch
}

#[derive(Debug)]
struct BatchWriter {
    database: Database,
    hints: Arc<Hints>,
    writer_name: String,
}

impl BatchWriter {
    /// Writes the events of a batch. Answers appends that failed or consist of events only.
    async fn write_batch(&self, batch: Vec<Entry>) -> StepResult {
        let mut results = match self.put_events(&batch).await {
            Ok(results) => results,
            Err(err) => batch.iter().map(|_| Err(err.clone().into())).collect(),
        };
        self.hints.count_commit();
        for (entry, result) in batch.iter().zip(&mut results) {
            if result.is_ok() {
                *result = self.put_more_events(entry).await;
            }
        }
        let (mut finished, mut without_heads) = (BTreeSet::new(), Vec::new());
        for (entry, result) in batch.into_iter().zip(results) {
            let Append { head, handled_commands, audit, .. } = &entry.append;
            let has_more = head.is_some() || !handled_commands.is_empty() || audit.is_some();
            if result.is_ok() && has_more {
                without_heads.push(entry);
            } else {
                finished.insert(entry.append.execution);
                self.send_result(entry, result);
            }
        }
        StepResult { finished, without_heads }
    }

    /// Writes the heads, inbox changes and audit entries of appends whose events are written. In
    /// this order a head is never ahead of its log, even if the process dies between the two
    /// writes.
    async fn write_heads(&self, entries: Vec<Entry>) -> StepResult {
        let appends: Vec<&Append> = entries.iter().map(|entry| &entry.append).collect();
        let result = self.put_heads_and_inbox(&appends).await;
        let finished = appends.iter().map(|append| append.execution).collect();
        for entry in entries {
            self.send_result(entry, result.clone().map_err(AppendError::from));
        }
        StepResult { finished, without_heads: Vec::new() }
    }

    fn send_result(&self, Entry { append, reply, .. }: Entry, result: AppendResult) {
        let is_written = result.is_ok();
        // Ignores a caller that was cancelled, because it reads the log before its next append.
        let _ = reply.send(result);
        if is_written {
            self.hints.wake_log(append.execution);
            if append.head.as_ref().is_some_and(ExecutionHead::is_claimable) {
                self.hints.wake_work();
            }
        }
    }

    /// Writes the first document of each append. If another document has the same position, the
    /// append is a conflict.
    async fn put_events(&self, entries: &[Entry]) -> Result<Vec<AppendResult>, StoreError> {
        let mut rows = RawArrayBuf::new();
        let mut indexes = Vec::with_capacity(entries.len());
        for (n, entry) in entries.iter().enumerate() {
            if let Some(row) = entry.rows.first() {
                rows.push(&**row);
                indexes.push(n);
            }
        }
        let mut results = vec![Ok(()); entries.len()];
        if indexes.is_empty() {
            return Ok(results);
        }
        let insert = commands::insert_command("events", rows);
        for duplicate in commands::run_write(&self.database, insert).await? {
            if let Some(result) = indexes.get(duplicate).and_then(|n| results.get_mut(*n)) {
                *result = Err(AppendError::Conflict);
            }
        }
        Ok(results)
    }

    /// Writes the other documents of a large append, one after another.
    async fn put_more_events(&self, entry: &Entry) -> AppendResult {
        for row in entry.rows.iter().skip(1) {
            let mut rows = RawArrayBuf::new();
            rows.push(&**row);
            let insert = commands::insert_command("events", rows);
            if !commands::run_write(&self.database, insert).await?.is_empty() {
                return Err(AppendError::Conflict);
            }
        }
        Ok(())
    }

    /// Inserts the heads of new logs. Returns the executions whose head was already stored.
    async fn put_first_heads(
        &self,
        appends: &[&Append],
    ) -> Result<BTreeSet<ExecutionId>, StoreError> {
        let mut rows = RawArrayBuf::new();
        let mut new = Vec::new();
        for append in appends.iter().filter(|append| is_first(append)) {
            if let Some(head) = &append.head {
                rows.push(rows::head_row(head, &self.writer_name));
                new.push(append.execution);
            }
        }
        if new.is_empty() {
            return Ok(BTreeSet::new());
        }
        let insert = commands::insert_command("executions", rows);
        let duplicates = commands::run_write(&self.database, insert).await?;
        Ok(duplicates.into_iter().filter_map(|n| new.get(n).copied()).collect())
    }

    async fn put_heads_and_inbox(&self, appends: &[&Append]) -> Result<(), StoreError> {
        let handled =
            appends.iter().flat_map(|append| &append.handled_commands).map(ToString::to_string);
        let handled: Vec<String> = handled.collect();
        let remove_handled = async {
            if handled.is_empty() {
                return Ok(());
            }
            let remove = commands::remove_command("inbox", handled);
            commands::run_write(&self.database, remove).await.map(drop)
        };
        let audit = appends.iter().filter_map(|append| append.audit.as_deref());
        let put_audit = audit::put_entries(&self.database, audit);
        let (put, removed, audited) =
            tokio::join!(self.put_all_heads(appends), remove_handled, put_audit);
        put.and(removed).and(audited).map(drop)
    }

    async fn put_all_heads(&self, appends: &[&Append]) -> Result<(), StoreError> {
        let later_appends = appends.iter().filter(|append| !is_first(append));
        let later_heads = later_appends.filter_map(|append| append.head.as_ref()).collect();
        let (existing, put) = tokio::join!(
            self.put_first_heads(appends),
            put_heads(&self.database, later_heads, &self.writer_name)
        );
        let existing = existing?;
        // These heads exist, because another process read the new log and wrote its head first.
        let to_replace = appends
            .iter()
            .filter(|append| is_first(append) && existing.contains(&append.execution))
            .filter_map(|append| append.head.as_ref());
        put.and(put_heads(&self.database, to_replace.collect(), &self.writer_name).await)
    }
}

fn is_first(append: &Append) -> bool {
    append.after == shared::id::Seq::START
}

/// Inserts or replaces heads. Keeps a stored head that is newer.
pub(super) async fn put_heads(
    database: &Database,
    heads: Vec<&ExecutionHead>,
    writer_name: &str,
) -> Result<(), StoreError> {
    if heads.is_empty() {
        return Ok(());
    }
    let safety = required_safety(&heads);
    let replacements = heads.into_iter().map(|head| to_replacement(head, writer_name));
    for part in commands::split_replacements(replacements, TARGET_BATCH_BYTES) {
        let command = commands::upsert_command("executions", part, safety);
        commands::run_write(database, command).await?;
    }
    Ok(())
}

/// Replaces a stored head that is not newer. Returns `false` if there is no such head.
pub(super) async fn replace_head(
    database: &Database,
    head: &ExecutionHead,
) -> Result<bool, StoreError> {
    let replacements = [to_replacement(head, "")];
    let command = commands::replace_command("executions", replacements, required_safety(&[head]));
    commands::run_counted_write(database, command).await.map(|found| found > 0)
}

/// Heads of finished executions can be lost, because their logs contain the same data. Without the
/// head of an unfinished execution, no worker would find it.
fn required_safety(heads: &[&ExecutionHead]) -> Safety {
    let are_finished = heads.iter().all(|head| head.state.is_finished());
    if are_finished { Safety::Cached } else { Safety::Durable }
}

/// Makes a replacement whose query finds no newer head. An upsert then tries to insert and fails,
/// because the id exists.
fn to_replacement(head: &ExecutionHead, writer_name: &str) -> Replacement {
    let (id, seq) = (head.execution.to_string(), head.seq.0.cast_signed());
    let query = rawdoc! { "_id": id, "seq": { "$lte": seq } };
    Replacement { query, document: rows::head_row(head, writer_name) }
}
