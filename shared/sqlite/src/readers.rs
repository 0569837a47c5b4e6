//! A pool of connections that read. A read runs on a blocking thread, because reads of callers that
//! do not poll would otherwise keep their connections.

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

/// Maximum number of reads at the same time, which is the number of cores of a small machine.
const MAX_READERS: usize = 4;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    identity: FileIdentity,
    pool: Mutex<Pool>,
}

type Read = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

#[derive(Default)]
struct Pool {
    idle_connections: Vec<Connection>,
    running_count: usize,
    waiting_reads: VecDeque<Read>,
}

impl Pool {
    /// Drops the connection if the pool is full. That happens when reads open connections while
    /// [`Readers::free_caches`] holds the other connections.
    fn put_back(&mut self, connection: Connection) {
        if self.idle_connections.len() < MAX_READERS {
            self.idle_connections.push(connection);
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = self.waiting_reads.len();
        f.debug_struct("Pool")
            .field("idle", &self.idle_connections)
            .field("running", &self.running_count)
            .field("waiting", &waiting)
            .finish()
    }
}

impl Readers {
    pub(super) fn new(path: PathBuf, identity: FileIdentity) -> Self {
        Self { path, identity, pool: Mutex::default() }
    }

    /// Runs a query on a blocking thread. If the caller is cancelled, a query that waits is
    /// skipped, and a query that runs counts as running until it ends.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, result) = oneshot::channel();
        self.start_or_queue(Box::new(move |connection| {
            if !sender.is_closed() {
                // Ignores a failed send, because the caller may have been cancelled while the query
                // ran.
                let _ = sender.send(connection.and_then(read));
            }
        }));
        let panicked = |_| StoreError::Unavailable("a read was interrupted".to_owned());
        result.await.map_err(panicked)?
    }

    fn start_or_queue(self: &Arc<Self>, read: Read) {
        let mut pool = self.lock_pool();
        if pool.running_count == MAX_READERS {
            pool.waiting_reads.push_back(read);
            return;
        }
        pool.running_count += 1;
        drop(pool);
        let readers = Arc::clone(self);
        spawn_blocking(move || readers.run_reads(read));
    }

    fn run_reads(&self, first: Read) {
        let mut next = Some(first);
        while let Some(read) = next {
            let connection = self.take_connection();
            let read = || match &connection {
                Ok(connection) => read(Ok(connection)),
                Err(err) => read(Err(err.clone())),
            };
            // A panic may leave the connection inside a statement, so it is not used again.
            let is_usable = catch_unwind(AssertUnwindSafe(read)).is_ok();
            let mut pool = self.lock_pool();
            if let Some(connection) = connection.ok().filter(|_| is_usable) {
                pool.put_back(connection);
            }
            next = pool.waiting_reads.pop_front();
            if next.is_none() {
                pool.running_count -= 1;
            }
        }
    }

    /// Frees the page caches of idle connections. A cache can hold 4 MiB after a large read, and
    /// the next commit makes its content outdated.
    pub(super) fn free_caches(self: &Arc<Self>) {
        let idle = std::mem::take(&mut self.lock_pool().idle_connections);
        if idle.is_empty() {
            return;
        }
        let readers = Arc::clone(self);
        spawn_blocking(move || {
            for connection in idle {
                free_cache(&connection);
                readers.lock_pool().put_back(connection);
            }
        });
    }

    fn take_connection(&self) -> Result<Connection, StoreError> {
        let idle = self.lock_pool().idle_connections.pop();
        if let Some(idle) = idle {
            return Ok(idle);
        }
        let opened = open_reader(&self.path);
        // Checks the path after the file was opened, because another file may have replaced the
        // file just before.
        self.identity.check_now()?;
        opened
    }

    fn lock_pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt;

    use super::*;

    fn open_readers(folder: &tempfile::TempDir) -> Arc<Readers> {
        let path = folder.path().join("faber.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (n)").unwrap();
        let identity = FileIdentity::of(&path);
        Arc::new(Readers::new(path, identity))
    }

    #[tokio::test]
    async fn a_cancelled_read_counts_as_running_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let readers = open_readers(&folder);
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let mut ends = Vec::new();
        for _ in 0..MAX_READERS {
            let (end, ended) = mpsc::channel::<()>();
            ends.push(end);
            let started = started.clone();
            let read = readers.read(move |_| {
                started.send(()).unwrap();
                Ok(ended.recv().is_ok())
            });
            tokio::select! {
                _ = read => unreachable!("it waits"),
                _ = starts.recv() => (),
            }
        }
        assert_eq!(readers.lock_pool().running_count, MAX_READERS, "they still read");
        let cancelled = readers.read(|_| -> Result<(), _> { unreachable!("it was cancelled") });
        assert!(cancelled.now_or_never().is_none(), "it waits");
        drop(ends);
        while readers.lock_pool().running_count > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(readers.lock_pool().idle_connections.len(), MAX_READERS);
    }

    #[tokio::test]
    async fn a_connection_can_read_after_its_cache_was_freed() {
        let folder = tempfile::tempdir().unwrap();
        let readers = open_readers(&folder);
        let count = || readers.read(|connection| Ok(connection.is_autocommit()));
        assert_eq!(count().await, Ok(true));
        readers.free_caches();
        assert_eq!(count().await, Ok(true));
        while readers.lock_pool().running_count > 0
            || readers.lock_pool().idle_connections.is_empty()
        {
            tokio::task::yield_now().await;
        }
        readers.free_caches();
        assert_eq!(count().await, Ok(true));
    }

    #[tokio::test]
    async fn reads_that_are_not_polled_do_not_block_other_reads() {
        let folder = tempfile::tempdir().unwrap();
        let readers = open_readers(&folder);
        let mut unpolled: Vec<_> =
            (0..10 * MAX_READERS).map(|n| Box::pin(readers.read(move |_| Ok(n)))).collect();
        for read in &mut unpolled {
            let _ = read.now_or_never();
        }
        assert_eq!(readers.read(|_| Ok("here")).await.unwrap(), "here");
    }

    #[tokio::test]
    async fn a_read_that_panics_fails_and_the_next_one_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let readers = open_readers(&folder);
        let broken = readers.read(|_| -> Result<(), _> { panic!("a test") }).await;
        assert!(matches!(broken, Err(StoreError::Unavailable(_))), "{broken:?}");
        assert_eq!(readers.read(|_| Ok(1)).await.unwrap(), 1);
    }
}
