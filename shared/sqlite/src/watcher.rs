//! A thread that polls for writes of other processes and checkpoints the WAL, so that no commit
//! waits for a checkpoint.

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;
use shared::store::{Hints, StoreError};
use tokio::sync::mpsc::Sender;

use super::writer::{Message, Writer};

/// Time after which a commit of another process is noticed at the latest.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLLS_PER_CHECKPOINT: u32 = 20;

/// Ends the thread when it is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(super) fn start(
        connection: Connection,
        writer: &Writer,
        hints: Arc<Hints>,
    ) -> Result<Self, StoreError> {
        let (stop, stopped) = mpsc::channel();
        let closed = || StoreError::Unavailable("the store is closed".to_owned());
        let queue = writer.queue().ok_or_else(closed)?.clone();
        let poller = Poller { connection, queue, hints, checkpointed_commits: 0 };
        let thread = thread::Builder::new()
            .name("sqlite-watcher".to_owned())
            .spawn(move || poller.run(&stopped))
            .map_err(|err| StoreError::Unavailable(format!("cannot start a thread: {err}")))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches has panicked");
        }
    }
}

struct Poller {
    connection: Connection,
    queue: Sender<Message>,
    hints: Arc<Hints>,
    checkpointed_commits: u64,
}

impl Poller {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let mut polls = 0;
        while stopped.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            // A full queue needs no message, because the writer checks for writes of other
            // processes with each batch.
            let _ = self.queue.try_send(Message::CheckOtherProcesses);
            polls += 1;
            if polls == POLLS_PER_CHECKPOINT {
                polls = 0;
                self.checkpoint();
            }
        }
    }

    fn checkpoint(&mut self) {
        let commits = self.hints.commits();
        if commits == self.checkpointed_commits {
            return;
        }
        self.checkpointed_commits = commits;
        let checkpoint =
            self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(err) = checkpoint {
            tracing::debug!(%err, "a checkpoint failed");
        }
    }
}
