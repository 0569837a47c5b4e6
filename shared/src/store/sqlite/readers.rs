//! Connections that read. Each sees the last commit; none waits for the writer, nor it for them.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use rusqlite::Connection;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::connection::open_reader;
use crate::store::StoreError;

/// Reads at the same time: as many as a small machine has cores for.
const READERS: usize = 4;

/// A few connections, opened when they are first needed.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default(), permits: Arc::new(Semaphore::new(READERS)) }
    }

    /// Reads on a thread that may block. Whoever goes away before the answer leaves a read that goes
    /// on, and that counts until it ends.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.expect("nobody closes the semaphore");
        let readers = Arc::clone(self);
        let reading = spawn_blocking(move || {
            let connection = readers.take()?;
            let result = read(&connection);
            readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(permit);
            result
        });
        let ended = |err| StoreError::Unavailable(format!("a read was broken off: {err}"));
        reading.await.map_err(ended)?
    }

    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| open_reader(&self.path), Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_read_that_nobody_waits_for_counts_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faber.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (n)").unwrap();
        let readers = Arc::new(Readers::new(path));
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
        assert_eq!(readers.permits.available_permits(), 0, "they still read");
        drop(ends);
        let all = readers.permits.acquire_many(u32::try_from(READERS).unwrap()).await;
        assert_eq!(readers.idle.lock().unwrap().len(), READERS);
        drop(all);
    }
}
