//! The thread that does what nobody waits for: it looks whether another process wrote, and folds
//! the WAL into the file beside the writer, which neither stops for it nor pays for it.

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;
use shared::store::{Hints, StoreError};
use tokio::sync::mpsc::Sender;

use super::writer::{Message, Writer};

/// How soon another process's commit is noticed.
const LOOK: Duration = Duration::from_millis(50);
/// Every so many looks the WAL is folded into the file, if it has grown.
const LOOKS_PER_CHECKPOINT: u32 = 20;

/// Owns the thread.
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
        let rounds = Rounds { connection, queue, hints, folded: 0 };
        let thread = thread::Builder::new()
            .name("sqlite-watcher".to_owned())
            .spawn(move || rounds.run(&stopped))
            .map_err(|err| StoreError::Unavailable(format!("no thread to watch: {err}")))?;
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

struct Rounds {
    connection: Connection,
    queue: Sender<Message>,
    hints: Arc<Hints>,
    /// The commits that were there when the WAL was last folded.
    folded: u64,
}

impl Rounds {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let mut looks = 0;
        while stopped.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
            // A full queue means that the writer is about to look anyway.
            let _ = self.queue.try_send(Message::Look);
            looks += 1;
            if looks == LOOKS_PER_CHECKPOINT {
                looks = 0;
                self.fold();
            }
        }
    }

    fn fold(&mut self) {
        let commits = self.hints.commits();
        if commits == self.folded {
            return;
        }
        self.folded = commits;
        let checkpoint =
            self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(err) = checkpoint {
            tracing::debug!(%err, "the WAL stays as it is for now");
        }
    }
}
