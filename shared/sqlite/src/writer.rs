//! The only thread of a process that writes. It does group commit.
//!
//! Operations come through a bounded queue, so callers that are faster than the disk wait. The
//! thread writes all waiting operations in one transaction and answers after the commit. Meanwhile
//! the next operations collect in the queue.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use shared::store::{Hints, StoreError, commit_size::CommitSize};
use tokio::sync::{mpsc, oneshot};

use super::{
    change::{Answer, Change, LogCache},
    connection::{free_cache, to_store_error},
    identity::FileIdentity,
};

/// Operations that may wait. Further callers wait until there is room.
const QUEUE_LEN: usize = 8_192;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every message is a write")]
pub(super) enum Message {
    Write(Operation),
    /// Check if another process wrote.
    CheckOthers,
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
        let mut writer = WriterThread { connection, identity, logs, hints, usage };
        let thread = thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || writer.run(messages))
            .map_err(|err| StoreError::Unavailable(format!("no thread to write: {err}")))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Returns when the change is on the disk.
    pub(super) async fn write(&self, change: Change) -> Result<Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        let message = Message::Write(Operation { change, reply });
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        self.queue().ok_or_else(closed)?.send(message).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// The thread ends after the last clone of the queue is dropped.
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

struct WriterThread {
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

    /// Counts a batch. Returns `true` at a heartbeat if little was written since the last one and
    /// much was written since the cache was freed.
    fn should_free(&mut self, bytes: usize, has_heartbeat: bool) -> bool {
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
    fn run(&mut self, mut messages: mpsc::Receiver<Message>) {
        let mut batch = Vec::new();
        while let Some(message) = messages.blocking_recv() {
            let mut size = CommitSize::default();
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    Message::Write(operation) => {
                        size.add(operation.change.bytes());
                        batch.push(operation);
                    }
                    Message::CheckOthers => self.check_others(),
                }
                next = if size.is_full() { None } else { messages.try_recv().ok() };
            }
            if !batch.is_empty() {
                let bytes = batch.iter().map(|operation| operation.change.bytes()).sum();
                let is_heartbeat =
                    |operation: &Operation| matches!(operation.change, Change::PutLease(..));
                let should_free = self.usage.should_free(bytes, batch.iter().any(is_heartbeat));
                self.commit(&mut batch);
                if should_free {
                    free_cache(&self.connection);
                }
            }
        }
    }

    /// Writes a batch in one transaction, answers, and sends hints.
    fn commit(&mut self, batch: &mut Vec<Operation>) {
        let written = self.identity.check().and_then(|()| {
            self.run_transaction(batch).map_err(|err| {
                self.logs.clear();
                to_store_error(&err)
            })
        });
        match written {
            Ok(answers) => {
                self.hints.count_commit();
                for (operation, answer) in batch.drain(..).zip(answers) {
                    let is_done = answer.as_ref().is_ok_and(Answer::is_done);
                    // A caller that was cancelled reads the store before its next write.
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

    fn run_transaction(
        &mut self,
        batch: &[Operation],
    ) -> rusqlite::Result<Vec<Result<Answer, StoreError>>> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let applied = self.apply_changes(batch);
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
        batch: &[Operation],
    ) -> rusqlite::Result<Vec<Result<Answer, StoreError>>> {
        if self.logs.clear_if_stale(&self.connection)? {
            self.hints.wake_all();
        }
        let mut answers = Vec::with_capacity(batch.len());
        for operation in batch {
            let applied = operation.change.apply(&self.connection, &mut self.logs);
            answers.push(match applied {
                Ok(answer) => Ok(answer),
                // Only this operation is wrong, so the others can be written.
                Err(err) if is_rejection(&err) => Err(to_store_error(&err)),
                Err(err) => return Err(err),
            });
        }
        self.logs.write_counts(&self.connection)?;
        Ok(answers)
    }

    fn check_others(&mut self) {
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
    use crate::{connection, counts, schema};

    /// Starts the writer of a new file. `prepare` may change its connection first.
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

    #[test]
    fn the_page_cache_is_freed_at_the_first_quiet_heartbeat_after_large_writes() {
        let mut usage = CacheUsage::default();
        let mut beat = |bytes| usage.should_free(bytes, true);
        assert!(!beat(100), "little was written");
        assert!(!beat(20 << 20), "it is busy");
        assert!(!beat(2 << 20), "it is busy");
        assert!(beat(100));
        assert!(!beat(100), "it was freed");
        assert!(!usage.should_free(20 << 20, false));
        assert!(!usage.should_free(0, true), "it was busy since the last heartbeat");
        assert!(usage.should_free(0, true));
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
            // The writer checks the file every 10 ms only.
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
