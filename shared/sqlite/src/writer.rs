//! All writes of a process. They use one connection and group commit.
//!
//! If one operation comes after another, the queue only costs time. [`Writer::commit_in_place`]
//! then commits in the thread of the caller.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rusqlite::Connection;
use shared::store::{Hints, StoreError, commit_size::CommitSize};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{mpsc, oneshot},
    task::coop,
};

use super::{
    change::{Answer, Change, LogCache},
    connection::{BUSY_TIMEOUT, free_cache, to_store_error},
    identity::FileIdentity,
};

/// Maximum number of operations in the queue. Further callers wait until there is room.
const QUEUE_LEN: usize = 8_192;
/// Number of single commits, one after another, after which the next operation is committed in
/// place. If several callers write at the same time, a commit in place would split their operations
/// into several commits.
const MIN_SINGLE_COMMITS: u32 = 16;
/// Longest commit after which the next operation may be committed in place. A commit in place stops
/// the other tasks of its thread, so a slow disk gets a thread of its own.
const MAX_TIME_IN_PLACE: Duration = Duration::from_millis(2);
/// Size of an operation above which it is not committed in place.
const MAX_BYTES_IN_PLACE: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    committer: Arc<Mutex<Committer>>,
    single_commits: Arc<SingleCommits>,
}

/// Counts the commits since the last commit with several operations, or since the last slow commit.
#[derive(Debug, Default)]
struct SingleCommits(AtomicU32);

impl SingleCommits {
    fn record(&self, operations: usize, time: Duration) {
        if operations == 1 && time <= MAX_TIME_IN_PLACE {
            // The number cannot overflow, because it stops growing when it is large enough.
            self.0.fetch_add(u32::from(!self.has_enough()), Ordering::Relaxed);
        } else {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    fn has_enough(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= MIN_SINGLE_COMMITS
    }
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every message is a write")]
pub(super) enum Message {
    Write(Operation),
    CheckOtherProcesses,
}

#[derive(Debug)]
pub(super) struct Operation {
    change: Change,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        identity: FileIdentity,
        hints: Arc<Hints>,
    ) -> Result<Self, StoreError> {
        let (queue, messages) = mpsc::channel(QUEUE_LEN);
        let mut logs = LogCache::default();
        // Remembers the version of the data, so that every later write of another process is
        // noticed.
        logs.clear_if_stale(&connection).map_err(|err| to_store_error(&err))?;
        let usage = CacheUsage::default();
        let committer = Committer { connection, identity, logs, hints, usage };
        let committer = Arc::new(Mutex::new(committer));
        let single_commits = Arc::new(SingleCommits::default());
        let writer = WriterThread {
            committer: Arc::clone(&committer),
            single_commits: Arc::clone(&single_commits),
        };
        let thread = thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || writer.run(messages))
            .map_err(|err| StoreError::Unavailable(format!("no thread to write: {err}")))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), committer, single_commits })
    }

    /// Returns when the change is on the disk.
    pub(super) async fn write(&self, change: Change) -> Result<Answer, StoreError> {
        if let Some(written) = self.commit_in_place(&change) {
            // A commit in place does not wait, so a caller in a loop would otherwise let no other
            // task run.
            coop::consume_budget().await;
            return written;
        }
        let (reply, answer) = oneshot::channel();
        let message = Message::Write(Operation { change, reply });
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        self.queue().ok_or_else(closed)?.send(message).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Commits the change in the thread of the caller. Returns `None` if the change must go through
    /// the queue.
    fn commit_in_place(&self, change: &Change) -> Option<Result<Answer, StoreError>> {
        let has_waiting = self.queue().is_none_or(|queue| queue.capacity() < queue.max_capacity());
        let may_commit = self.single_commits.has_enough()
            && !has_waiting
            && change.bytes() <= MAX_BYTES_IN_PLACE
            && !matches!(change, Change::Prune(_) | Change::Rewrite(_))
            && has_several_threads();
        if !may_commit {
            return None;
        }
        // If another thread holds the lock, or has panicked with it, the change goes through the
        // queue.
        let Ok(mut committer) = self.committer.try_lock() else { return None };
        let started_at = Instant::now();
        let written = committer.commit_now(change);
        self.single_commits.record(1, started_at.elapsed());
        written
    }

    /// Returns the queue. The thread ends after the last clone of the queue is dropped.
    pub(super) fn queue(&self) -> Option<&mpsc::Sender<Message>> {
        self.queue.as_ref()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes has panicked");
        }
    }
}

/// Returns `true` in a runtime whose other threads can run tasks while this thread commits.
fn has_several_threads() -> bool {
    Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread
            && runtime.metrics().num_workers() > 1
    })
}

struct WriterThread {
    committer: Arc<Mutex<Committer>>,
    single_commits: Arc<SingleCommits>,
}

/// The connection that writes, with everything that belongs to its transactions.
#[derive(Debug)]
struct Committer {
    connection: Connection,
    identity: FileIdentity,
    logs: LogCache,
    hints: Arc<Hints>,
    usage: CacheUsage,
}

/// Counts written bytes, to free a large page cache when writes have become rare.
#[derive(Debug, Default)]
struct CacheUsage {
    since_heartbeat: usize,
    since_freed: usize,
}

impl CacheUsage {
    /// Bytes written between two heartbeats above which the page cache is kept, because it speeds
    /// writes up.
    const BUSY_BYTES: usize = 1 << 20;
    /// Bytes written since the last release above which the page cache can be large.
    const LARGE_BYTES: usize = 8 << 20;

    /// Counts the bytes of a batch. Returns `true` at a heartbeat if the page cache should be
    /// freed.
    fn record_batch(&mut self, bytes: usize, has_heartbeat: bool) -> bool {
        self.since_heartbeat = self.since_heartbeat.saturating_add(bytes);
        self.since_freed = self.since_freed.saturating_add(bytes);
        if !has_heartbeat {
            return false;
        }
        let is_quiet = std::mem::take(&mut self.since_heartbeat) < Self::BUSY_BYTES;
        let should_free = is_quiet && self.since_freed > Self::LARGE_BYTES;
        if should_free {
            self.since_freed = 0;
        }
        should_free
    }
}

impl WriterThread {
    fn run(&self, mut messages: mpsc::Receiver<Message>) {
        let mut batch = Vec::new();
        while let Some(message) = messages.blocking_recv() {
            // If a thread has panicked with the lock, this thread ends, and callers get the error
            // that the store is closed.
            let Ok(mut committer) = self.committer.lock() else { return };
            let mut size = CommitSize::default();
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    Message::Write(operation) => {
                        size.add(operation.change.bytes());
                        batch.push(operation);
                    }
                    Message::CheckOtherProcesses => committer.check_other_processes(),
                }
                next = if size.is_full() { None } else { messages.try_recv().ok() };
            }
            if !batch.is_empty() {
                let (operations, started_at) = (batch.len(), Instant::now());
                committer.commit_batch(&mut batch);
                self.single_commits.record(operations, started_at.elapsed());
            }
        }
    }
}

impl Committer {
    /// Commits a batch, and frees a large page cache when writes have become rare.
    fn commit_batch(&mut self, batch: &mut Vec<Operation>) {
        let should_free = self.count_usage(batch.iter().map(|operation| &operation.change));
        self.commit(batch);
        if should_free {
            free_cache(&self.connection);
        }
    }

    fn count_usage<'change>(&mut self, changes: impl Iterator<Item = &'change Change>) -> bool {
        let (mut bytes, mut has_heartbeat) = (0, false);
        for change in changes {
            bytes += change.bytes();
            has_heartbeat |= matches!(change, Change::PutLease(..));
        }
        self.usage.record_batch(bytes, has_heartbeat)
    }

    /// Commits one change. Returns `None` if another process writes or the file has a fault. The
    /// change must then go through the queue, and the writer's thread waits or reports the fault.
    fn commit_now(&mut self, change: &Change) -> Option<Result<Answer, StoreError>> {
        if self.identity.check().is_err() || !self.begin_without_waiting() {
            return None;
        }
        let should_free = self.count_usage(std::iter::once(change));
        let written = self.finish_transaction(&[change]);
        let answer = written.and_then(|mut answers| answers.pop().unwrap_or(Ok(Answer::Done)));
        if answer.is_ok() {
            self.hints.count_commit();
        }
        if answer.as_ref().is_ok_and(Answer::is_done) {
            change.send_hints(&self.hints);
        }
        if should_free {
            free_cache(&self.connection);
        }
        Some(answer)
    }

    fn commit(&mut self, batch: &mut Vec<Operation>) {
        let changes: Vec<&Change> = batch.iter().map(|operation| &operation.change).collect();
        let written = self.identity.check().and_then(|()| {
            self.begin().map_err(|err| to_store_error(&err))?;
            self.finish_transaction(&changes)
        });
        match written {
            Ok(answers) => {
                self.hints.count_commit();
                for (operation, answer) in batch.drain(..).zip(answers) {
                    let is_done = answer.as_ref().is_ok_and(Answer::is_done);
                    // Ignores a failed send, because a caller that was cancelled reads the store
                    // before its next write.
                    let _ = operation.reply.send(answer);
                    if is_done {
                        operation.change.send_hints(&self.hints);
                    }
                }
            }
            Err(err) => {
                tracing::warn!(%err, operations = batch.len(), "a commit failed");
                for operation in batch.drain(..) {
                    let _ = operation.reply.send(Err(err.clone()));
                }
            }
        }
    }

    fn begin(&self) -> rusqlite::Result<()> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(drop)
    }

    /// Returns `false` if the transaction did not begin.
    fn begin_without_waiting(&self) -> bool {
        let connection = &self.connection;
        let begun = connection.busy_timeout(Duration::ZERO).and_then(|()| self.begin());
        connection.busy_timeout(BUSY_TIMEOUT).is_ok() && begun.is_ok()
    }

    fn finish_transaction(
        &mut self,
        changes: &[&Change],
    ) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        let applied = self.apply_changes(changes);
        self.end_transaction(applied).map_err(|err| {
            self.logs.clear();
            to_store_error(&err)
        })
    }

    fn end_transaction<T>(&self, applied: rusqlite::Result<T>) -> rusqlite::Result<T> {
        let end = if applied.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.connection.prepare_cached(end)?.execute([]);
        if ended.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        let answers = applied?;
        ended?;
        Ok(answers)
    }

    fn apply_changes(
        &mut self,
        changes: &[&Change],
    ) -> rusqlite::Result<Vec<Result<Answer, StoreError>>> {
        if self.logs.clear_if_stale(&self.connection)? {
            self.hints.wake_all();
        }
        let mut answers = Vec::with_capacity(changes.len());
        for change in changes {
            let applied = change.apply(&self.connection, &mut self.logs);
            answers.push(match applied {
                Ok(answer) => Ok(answer),
                // Only this operation is wrong, so the other operations can be written.
                Err(err) if is_rejection(&err) => Err(to_store_error(&err)),
                Err(err) => return Err(err),
            });
        }
        self.logs.write_counts(&self.connection)?;
        Ok(answers)
    }

    fn check_other_processes(&mut self) {
        match self.logs.clear_if_stale(&self.connection) {
            Ok(true) => self.hints.wake_all(),
            Ok(false) => (),
            Err(err) => tracing::debug!(%err, "cannot check if another process wrote"),
        }
    }
}

/// Returns `true` if SQLite rejected one statement, which then has changed nothing.
fn is_rejection(err: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, TooBig};
    matches!(err.sqlite_error_code(), Some(ConstraintViolation | TooBig))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use shared::{
        clock::Timestamp,
        store::{Command, SentCommand, backend::LAYOUT},
    };
    use tempfile::TempDir;

    use super::*;
    use crate::{change::RequestRow, connection, counts, schema};

    fn start_writer(prepare: impl FnOnce(&Connection)) -> (TempDir, Writer) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faber.db");
        connection::create_file(&path).unwrap();
        let mut identity = FileIdentity::of(&path);
        let connection = connection::open_writer(&path).unwrap();
        schema::prepare_schema(&connection, &path, LAYOUT, || false).unwrap();
        counts::prepare_counts(&connection).unwrap();
        identity.add_wal();
        prepare(&connection);
        (folder, Writer::start(connection, identity, Arc::default()).unwrap())
    }

    fn large_change(n: usize) -> Change {
        let payload = Arc::new(json!("x".repeat(64 << 10)));
        Change::SendCommand(SentCommand {
            id: format!("cmd_1_{n:09}").parse().unwrap(),
            execution: "exec_1_aaaaaaaaa".parse().unwrap(),
            at: Timestamp::UNIX_EPOCH,
            by: None,
            command: Command::Signal { name: "s".to_owned(), payload },
        })
    }

    fn allow_commits_in_place(writer: &Writer) {
        for _ in 0..MIN_SINGLE_COMMITS {
            writer.single_commits.record(1, MAX_TIME_IN_PLACE);
        }
    }

    fn small_change(n: usize) -> Change {
        Change::RemoveCommands(vec![format!("cmd_1_{n:09}").parse().unwrap()])
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn after_many_single_commits_the_caller_commits_in_place() {
        let (_folder, writer) = start_writer(|_| ());
        assert!(writer.commit_in_place(&small_change(0)).is_none(), "nothing was committed yet");
        allow_commits_in_place(&writer);
        assert!(writer.single_commits.has_enough());
        let commits = writer.committer.lock().unwrap().hints.commits();
        let written = writer.commit_in_place(&small_change(0)).expect("it is committed in place");
        assert!(written.unwrap().is_done());
        assert_eq!(writer.committer.lock().unwrap().hints.commits(), commits + 1);
        let (id, query) = ("req_1_aaaaaaaaa".to_owned(), "x".repeat(MAX_BYTES_IN_PLACE + 1));
        let (created_at, folded_query) = (0, String::new());
        let large =
            Change::PutRequest(RequestRow { id, created_at, query, folded_query, labels: None });
        assert!(writer.commit_in_place(&large).is_none(), "it is large");
        allow_commits_in_place(&writer);
        writer.single_commits.record(2, Duration::ZERO);
        assert!(writer.commit_in_place(&small_change(0)).is_none(), "others came at the same time");
        allow_commits_in_place(&writer);
        writer.single_commits.record(1, MAX_TIME_IN_PLACE * 2);
        assert!(writer.commit_in_place(&small_change(0)).is_none(), "the disk is slow");
    }

    #[tokio::test]
    async fn a_runtime_with_one_thread_commits_nothing_in_place() {
        let (_folder, writer) = start_writer(|_| ());
        allow_commits_in_place(&writer);
        assert!(writer.commit_in_place(&small_change(0)).is_none());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_change_that_meets_a_writing_process_goes_through_the_queue() {
        let (folder, writer) = start_writer(|_| ());
        allow_commits_in_place(&writer);
        let other = Connection::open(folder.path().join("faber.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(writer.commit_in_place(&small_change(0)).is_none(), "it would wait for the other");
        let written = writer.write(small_change(0));
        other.execute_batch("COMMIT").unwrap();
        assert!(written.await.unwrap().is_done());
        allow_commits_in_place(&writer);
        assert!(writer.commit_in_place(&small_change(0)).is_some(), "nobody else writes any more");
    }

    #[test]
    fn the_page_cache_is_freed_at_the_first_quiet_heartbeat_after_large_writes() {
        let mut usage = CacheUsage::default();
        let mut beat = |bytes| usage.record_batch(bytes, true);
        assert!(!beat(100), "little was written");
        assert!(!beat(20 << 20), "it is busy");
        assert!(!beat(2 << 20), "it is busy");
        assert!(beat(100));
        assert!(!beat(100), "it was freed");
        assert!(!usage.record_batch(20 << 20, false));
        assert!(!usage.record_batch(0, true), "it was busy since the last heartbeat");
        assert!(usage.record_batch(0, true));
    }

    #[tokio::test]
    async fn a_write_to_a_full_disk_fails_and_succeeds_after_rows_were_removed() {
        let (_folder, writer) = start_writer(|connection| {
            let count = "PRAGMA page_count";
            let pages: i64 = connection.query_row(count, [], |row| row.get(0)).unwrap();
            let limit = format!("PRAGMA max_page_count = {}", pages + 200);
            connection.query_row(&limit, [], |_| Ok(())).unwrap();
        });
        let mut written = 0;
        let err = loop {
            match writer.write(large_change(written)).await {
                Ok(answer) => assert!(answer.is_done()),
                Err(err) => break err,
            }
            written += 1;
            assert!(written < 100, "the disk is never full");
        };
        assert!(written > 1, "there was room at first");
        let StoreError::Unavailable(why) = &err else { panic!("{err:?}") };
        assert!(why.contains("the disk is full: make room"), "{why}");
        assert_eq!(writer.write(large_change(99)).await.unwrap_err(), err, "it stays full");
        let ids = (0..written).map(|n| format!("cmd_1_{n:09}").parse().unwrap()).collect();
        assert!(writer.write(Change::RemoveCommands(ids)).await.unwrap().is_done(), "room is made");
        assert!(writer.write(large_change(99)).await.unwrap().is_done(), "and used");
    }

    #[tokio::test]
    async fn a_write_to_a_read_only_file_fails_with_advice() {
        let (_folder, writer) = start_writer(|connection| {
            connection.pragma_update(None, "query_only", true).unwrap();
        });
        let err = writer.write(large_change(1)).await.unwrap_err();
        let StoreError::Unavailable(why) = &err else { panic!("{err:?}") };
        assert!(why.contains("cannot be written: check the permissions"), "{why}");
    }

    #[tokio::test]
    async fn a_write_fails_while_the_file_or_its_wal_is_removed_or_replaced() {
        use std::fs;
        let (folder, writer) = start_writer(|_| ());
        let file = |name: &str| folder.path().join(name);
        let write_until_refused = async |n| {
            // Writes again for some seconds, because the writer checks the file only every 10 ms.
            let later = std::time::Instant::now() + std::time::Duration::from_secs(5);
            loop {
                match writer.write(large_change(n)).await {
                    Err(StoreError::Unavailable(why)) => break why,
                    answer => assert!(std::time::Instant::now() < later, "{answer:?}"),
                }
            }
        };
        writer.write(large_change(0)).await.unwrap();
        for name in ["faber.db", "faber.db-wal"] {
            fs::rename(file(name), file("moved")).unwrap();
            let why = write_until_refused(1).await;
            assert!(why.contains(name) && why.contains("was removed or replaced"), "{why}");
            assert!(why.contains("move the file back, or restart Faber"), "{why}");
            fs::write(file(name), "another").unwrap();
            write_until_refused(2).await;
            fs::rename(file("moved"), file(name)).unwrap();
            writer.write(large_change(3)).await.expect("it is back");
        }
    }
}
