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
    permits: Semaphore,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, idle: Mutex::default(), permits: Semaphore::new(READERS) }
    }

    /// Reads on a thread that may block.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _permit = self.permits.acquire().await.expect("nobody closes the semaphore");
        let readers = Arc::clone(self);
        let reading = spawn_blocking(move || {
            let connection = readers.take()?;
            let result = read(&connection);
            readers.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
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
