//! Connections that read. Each sees the last commit; none waits for the writer, nor it for them.
//!
//! A read that has been asked for is carried out in its turn whether or not somebody polls for its
//! answer. Whoever follows many logs polls some of them at a time, and a client that does not read
//! has nothing polled: were turns held by such futures, nobody else would ever get one.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rusqlite::Connection;
use shared::store::StoreError;
use tokio::{sync::oneshot, task::spawn_blocking};

use super::{
    connection::{free_cache, open_reader},
    identity::FileIdentity,
};

/// Reads at the same time: as many as a small machine has cores for.
const READERS: usize = 4;

/// A few connections, opened when they are first needed.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    identity: FileIdentity,
    line: Mutex<Line>,
}

/// A read, and where its answer goes.
type Read = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

/// Who reads, and who is to read next.
#[derive(Default)]
struct Line {
    idle: Vec<Connection>,
    reading: usize,
    waiting: VecDeque<Read>,
}

impl Line {
    /// Keeps a connection for later reads, unless there are enough: reads open others while the
    /// caches of these are freed.
    fn keep(&mut self, connection: Connection) {
        if self.idle.len() < READERS {
            self.idle.push(connection);
        }
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.waiting.len();
        f.debug_struct("Line")
            .field("idle", &self.idle)
            .field("reading", &self.reading)
            .field("waiting", &waiting)
            .finish()
    }
}

impl Readers {
    pub(super) fn new(path: PathBuf, identity: FileIdentity) -> Self {
        Self { path, identity, line: Mutex::default() }
    }

    /// Reads on a thread that may block. Whoever goes away before the answer leaves a read that goes
    /// on where it has begun, and that counts until it ends.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.begin(Box::new(move |connection| {
            if !answer.is_closed() {
                // Whoever goes away meanwhile wants no answer.
                let _ = answer.send(connection.and_then(read));
            }
        }));
        let broken = |_| StoreError::Unavailable("a read was broken off".to_owned());
        answered.await.map_err(broken)?
    }

    /// Begins a read, or puts it into the line where enough are under way.
    fn begin(self: &Arc<Self>, read: Read) {
        let mut line = self.line();
        if line.reading == READERS {
            line.waiting.push_back(read);
            return;
        }
        line.reading += 1;
        drop(line);
        let readers = Arc::clone(self);
        spawn_blocking(move || readers.carry_out(read));
    }

    /// Reads, and then whatever waits.
    fn carry_out(&self, first: Read) {
        let mut next = Some(first);
        while let Some(read) = next {
            let connection = self.take();
            let read = || match &connection {
                Ok(connection) => read(Ok(connection)),
                Err(err) => read(Err(err.clone())),
            };
            // A connection on which something went wrong is not used again.
            let is_well = catch_unwind(AssertUnwindSafe(read)).is_ok();
            let mut line = self.line();
            if let Some(connection) = connection.ok().filter(|_| is_well) {
                line.keep(connection);
            }
            next = line.waiting.pop_front();
            if next.is_none() {
                line.reading -= 1;
            }
        }
    }

    /// Frees the page caches of idle connections. Each holds up to 16 MiB after a large read, and the
    /// next commit makes its content worthless.
    pub(super) fn free_caches(self: &Arc<Self>) {
        let idle = std::mem::take(&mut self.line().idle);
        if idle.is_empty() {
            return;
        }
        let readers = Arc::clone(self);
        spawn_blocking(move || {
            for connection in idle {
                free_cache(&connection);
                readers.line().keep(connection);
            }
        });
    }

    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self.line().idle.pop();
        if let Some(idle) = idle {
            return Ok(idle);
        }
        let opened = open_reader(&self.path);
        // Another file must not answer for this one.
        self.identity.check_now()?;
        opened
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt;

    use super::*;

    fn readers(folder: &tempfile::TempDir) -> Arc<Readers> {
        let path = folder.path().join("faber.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (n)").unwrap();
        let identity = FileIdentity::of(&path);
        Arc::new(Readers::new(path, identity))
    }

    #[tokio::test]
    async fn a_read_that_nobody_waits_for_counts_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let readers = readers(&folder);
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let mut ends = Vec::new();
        for _ in 0..READERS {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            let begun = begun.clone();
            let read = readers.read(move |_| {
                begun.send(()).unwrap();
                Ok(ended.recv().is_ok())
            });
            tokio::select! {
                _ = read => unreachable!("it waits"),
                _ = begins.recv() => (),
            }
        }
        assert_eq!(readers.line().reading, READERS, "they still read");
        let gone = readers.read(|_| -> Result<(), _> { unreachable!("nobody wants it") });
        assert!(gone.now_or_never().is_none(), "it is in the line");
        drop(ends);
        while readers.line().reading > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(readers.line().idle.len(), READERS);
    }

    #[tokio::test]
    async fn a_connection_whose_cache_is_freed_reads_on() {
        let folder = tempfile::tempdir().unwrap();
        let readers = readers(&folder);
        let count = || readers.read(|connection| Ok(connection.is_autocommit()));
        assert_eq!(count().await, Ok(true));
        readers.free_caches();
        assert_eq!(count().await, Ok(true));
        while readers.line().reading > 0 || readers.line().idle.is_empty() {
            tokio::task::yield_now().await;
        }
        readers.free_caches();
        assert_eq!(count().await, Ok(true));
    }

    #[tokio::test]
    async fn a_read_that_is_not_polled_holds_up_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let readers = readers(&folder);
        let mut asleep: Vec<_> =
            (0..10 * READERS).map(|n| Box::pin(readers.read(move |_| Ok(n)))).collect();
        for read in &mut asleep {
            let _ = read.now_or_never();
        }
        assert_eq!(readers.read(|_| Ok("here")).await.unwrap(), "here");
    }

    #[tokio::test]
    async fn a_read_that_panics_is_broken_off_and_the_next_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let readers = readers(&folder);
        let broken = readers.read(|_| -> Result<(), _> { panic!("a test") }).await;
        assert!(matches!(broken, Err(StoreError::Unavailable(_))), "{broken:?}");
        assert_eq!(readers.read(|_| Ok(1)).await.unwrap(), 1);
    }
}
