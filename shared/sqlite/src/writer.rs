//! The one thread of a process that writes: group commit.
//!
//! Operations come through a bounded queue, so that whoever is faster than the disk waits. The
//! thread takes what waits into one transaction; while that is on its way to the disk others
//! gather. It answers after the commit and not before.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use shared::store::{Hints, StoreError, journal::CommitSize};
use tokio::sync::{mpsc, oneshot};

use super::{
    change::{Answer, Change, Ledger},
    connection::{failed, free_cache},
    identity::FileIdentity,
};

/// Operations that may wait; then callers do.
const QUEUE: usize = 8_192;

/// Where operations go.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is asked to do.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every message is a write")]
pub(super) enum Message {
    /// Write something and answer.
    Write(Operation),
    /// Look whether another process wrote.
    Look,
}

/// A change, and who waits for it.
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
        let (queue, messages) = mpsc::channel(QUEUE);
        // From here on, whatever another process writes is noticed.
        let mut ledger = Ledger::default();
        ledger.is_stale(&connection).map_err(|err| failed(&err))?;
        let usage = CacheUsage::default();
        let mut desk = Desk { connection, identity, ledger, hints, usage };
        let thread = thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || desk.run(messages))
            .map_err(|err| StoreError::Unavailable(format!("no thread to write: {err}")))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Writes something durably.
    pub(super) async fn write(&self, change: Change) -> Result<Answer, StoreError> {
        let (reply, answer) = oneshot::channel();
        let message = Message::Write(Operation { change, reply });
        let ended = || StoreError::Unavailable("the store is closed".to_owned());
        self.queue().ok_or_else(ended)?.send(message).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Returns the way to the thread. Whoever keeps it keeps the thread alive.
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

/// What the thread has.
struct Desk {
    connection: Connection,
    identity: FileIdentity,
    ledger: Ledger,
    hints: Arc<Hints>,
    usage: CacheUsage,
}

/// Bytes written at the heartbeats of a worker. They tell when the page cache is of no use.
#[derive(Debug, Default)]
struct CacheUsage {
    since_heartbeat: usize,
    since_freed: usize,
}

impl CacheUsage {
    /// Bytes between two heartbeats that need a warm cache.
    const BUSY_BYTES: usize = 1 << 20;
    /// Bytes after which the cache may be large.
    const LARGE_BYTES: usize = 8 << 20;

    /// Counts a batch. Returns `true` if the cache may be large and little is written now.
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

impl Desk {
    fn run(&mut self, mut messages: mpsc::Receiver<Message>) {
        let mut batch = Vec::new();
        while let Some(message) = messages.blocking_recv() {
            let mut load = CommitSize::default();
            let mut next = Some(message);
            while let Some(message) = next {
                match message {
                    Message::Write(operation) => {
                        load.add(operation.change.bytes());
                        batch.push(operation);
                    }
                    Message::Look => self.look(),
                }
                next = if load.is_full() { None } else { messages.try_recv().ok() };
            }
            if !batch.is_empty() {
                let bytes = batch.iter().map(|operation| operation.change.bytes()).sum();
                let is_heartbeat =
                    |operation: &Operation| matches!(operation.change, Change::Lease(_));
                let should_free = self.usage.should_free(bytes, batch.iter().any(is_heartbeat));
                self.commit(&mut batch);
                if should_free {
                    free_cache(&self.connection);
                }
            }
        }
    }

    /// Writes everything in one transaction, answers, and wakes whoever may wait for it.
    fn commit(&mut self, batch: &mut Vec<Operation>) {
        let written = self.identity.check().and_then(|()| {
            self.transact(batch).map_err(|err| {
                self.ledger.forget();
                failed(&err)
            })
        });
        match written {
            Ok(answers) => {
                self.hints.count_commit();
                for (operation, answer) in batch.drain(..).zip(answers) {
                    let woken = answer.as_ref().is_ok_and(Answer::is_done);
                    // Whoever went away reads again when he comes back.
                    let _ = operation.reply.send(answer);
                    if woken {
                        operation.change.wake(&self.hints);
                    }
                }
            }
            Err(err) => {
                tracing::warn!(%err, operations = batch.len(), "a commit did not happen");
                for operation in batch.drain(..) {
                    let _ = operation.reply.send(Err(err.clone()));
                }
            }
        }
    }

    fn transact(
        &mut self,
        batch: &[Operation],
    ) -> rusqlite::Result<Vec<Result<Answer, StoreError>>> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let applied = self.apply(batch);
        let end = if applied.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.connection.prepare_cached(end)?.execute([]);
        if ended.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK")?;
        }
        let answers = applied?;
        ended?;
        Ok(answers)
    }

    fn apply(&mut self, batch: &[Operation]) -> rusqlite::Result<Vec<Result<Answer, StoreError>>> {
        if self.ledger.is_stale(&self.connection)? {
            self.hints.wake_all();
        }
        let mut answers = Vec::with_capacity(batch.len());
        for operation in batch {
            let applied = operation.change.apply(&self.connection, &mut self.ledger);
            answers.push(match applied {
                Ok(answer) => Ok(answer),
                // Its own fault; the others can be written.
                Err(err) if is_refusal(&err) => Err(failed(&err)),
                Err(err) => return Err(err),
            });
        }
        Ok(answers)
    }

    fn look(&mut self) {
        match self.ledger.is_stale(&self.connection) {
            Ok(true) => self.hints.wake_all(),
            Ok(false) => (),
            Err(err) => tracing::debug!(%err, "cannot see whether another process wrote"),
        }
    }
}

/// Returns whether one operation was refused before it changed anything.
fn is_refusal(err: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{ConstraintViolation, TooBig};
    matches!(err.sqlite_error_code(), Some(ConstraintViolation | TooBig))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use shared::{
        clock::Timestamp,
        store::{Command, SentCommand},
    };
    use tempfile::TempDir;

    use super::*;
    use crate::{connection, schema};

    /// Starts the writer of a new file, on a connection that something was done to.
    fn writer(prepare: impl FnOnce(&Connection)) -> (TempDir, Writer) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faber.db");
        connection::make_file(&path).unwrap();
        let mut identity = FileIdentity::of(&path);
        let connection = connection::open_writer(&path).unwrap();
        schema::prepare(&connection, &path, |_| false).unwrap();
        identity.add_wal();
        prepare(&connection);
        (folder, Writer::start(connection, identity, Arc::default()).unwrap())
    }

    fn large(n: usize) -> Change {
        let payload = Arc::new(json!("x".repeat(64 << 10)));
        Change::Send(SentCommand {
            id: format!("cmd_1_{n:09}").parse().unwrap(),
            execution: "exec_1_aaaaaaaaa".parse().unwrap(),
            at: Timestamp::UNIX_EPOCH,
            command: Command::Signal { name: "s".to_owned(), payload },
        })
    }

    #[test]
    fn a_cache_is_freed_when_large_writes_have_ended() {
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
    async fn a_full_disk_is_said_to_be_and_room_is_used_again() {
        let (_folder, writer) = writer(|it| {
            let pages: i64 = it.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
            let most = format!("PRAGMA max_page_count = {}", pages + 200);
            it.query_row(&most, [], |_| Ok(())).unwrap();
        });
        let mut written = 0;
        let err = loop {
            match writer.write(large(written)).await {
                Ok(answer) => assert!(answer.is_done()),
                Err(err) => break err,
            }
            written += 1;
            assert!(written < 100, "the disk is never full");
        };
        assert!(written > 1, "there was room at first");
        let StoreError::Unavailable(why) = &err else { panic!("{err:?}") };
        assert!(why.contains("the disk is full: make room"), "{why}");
        assert_eq!(writer.write(large(99)).await.unwrap_err(), err, "it stays full");
        let ids = (0..written).map(|n| format!("cmd_1_{n:09}").parse().unwrap()).collect();
        assert!(writer.write(Change::Discard(ids)).await.unwrap().is_done(), "room is made");
        assert!(writer.write(large(99)).await.unwrap().is_done(), "and used");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_said_to_be() {
        let (_folder, writer) = writer(|it| it.pragma_update(None, "query_only", true).unwrap());
        let err = writer.write(large(1)).await.unwrap_err();
        let StoreError::Unavailable(why) = &err else { panic!("{err:?}") };
        assert!(why.contains("cannot be written: check the permissions"), "{why}");
    }

    #[tokio::test]
    async fn nothing_is_written_into_a_file_that_was_removed_or_replaced() {
        use std::fs;
        let (folder, writer) = writer(|_| ());
        let file = |name: &str| folder.path().join(name);
        let refused = async |n| {
            // A writer that has just looked does not look again.
            let later = std::time::Instant::now() + std::time::Duration::from_secs(5);
            loop {
                match writer.write(large(n)).await {
                    Err(StoreError::Unavailable(why)) => break why,
                    answer => assert!(std::time::Instant::now() < later, "{answer:?}"),
                }
            }
        };
        writer.write(large(0)).await.unwrap();
        for name in ["faber.db", "faber.db-wal"] {
            fs::rename(file(name), file("moved")).unwrap();
            let why = refused(1).await;
            assert!(why.contains(name) && why.contains("was removed or replaced"), "{why}");
            assert!(why.contains("move the file back, or restart Faber"), "{why}");
            fs::write(file(name), "another").unwrap();
            refused(2).await;
            fs::rename(file("moved"), file(name)).unwrap();
            writer.write(large(3)).await.expect("it is back");
        }
    }
}
