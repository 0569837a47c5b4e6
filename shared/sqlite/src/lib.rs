//! The embedded store: one SQLite file that people can open with the usual tools.
//!
//! The file is in WAL mode with `synchronous=FULL`, so a write that returned is on the disk.
//!
//! The index `events_fence` is unique over log and first position, and every transaction begins
//! with `BEGIN IMMEDIATE`. So no process can write between the check that a log ends at `after` and
//! the insert.

mod audit;
mod change;
mod connection;
mod counts;
mod documents;
mod due;
mod identity;
mod lists;
mod log;
mod migration;
mod permits;
mod readers;
mod records;
mod removal;
mod rewrite;
mod rows;
mod schema;
mod time;
mod unused;
mod vectors;
mod watcher;
mod worker_locks;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use shared::{
    clock::SteadyClock,
    store::{
        Hints, StoreError,
        backend::{LAYOUT, PlanCache},
    },
};

use self::{
    change::{Answer, Change},
    identity::FileIdentity,
    readers::Readers,
    watcher::Watcher,
    worker_locks::WorkerLocks,
    writer::Writer,
};

/// A store in one file. The fields are dropped in this order, because the watcher must no longer
/// send to the writer, and readers must no longer hold the file open, when the writer closes it.
#[derive(Debug)]
pub struct Sqlite {
    _watcher: Watcher,
    readers: Arc<Readers>,
    writer: Writer,
    locks: Arc<WorkerLocks>,
    /// The clock that all processes with this file share.
    time: SteadyClock,
    plans: PlanCache,
    hints: Arc<Hints>,
    layout: u32,
}

impl Sqlite {
    /// Opens the store in the file at `path`, or creates the file. Converts a file of an earlier
    /// layout, which can take minutes.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or written, is no store, can be used by a newer version only,
    /// or is to be upgraded while a worker of an earlier version uses it. Also if the folder does
    /// not exist, because that is more likely a typing error.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_as(path, LAYOUT)
    }

    /// Opens the store as a node that uses the store layout `layout` does, for tests. Such a node
    /// neither upgrades the file beyond this layout nor writes what a later layout added.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open).
    pub fn open_as(path: &Path, layout: u32) -> Result<Self, StoreError> {
        connection::create_file(path)?;
        let mut identity = FileIdentity::of(path);
        let connection = connection::open_writer(path)?;
        let locks = Arc::new(WorkerLocks::new(add_suffix(path, "-workers")));
        schema::prepare_schema(&connection, path, layout, || locks.has_live_worker())?;
        counts::prepare_counts(&connection)?;
        audit::prepare_audit(&connection)?;
        lists::prepare_token_index(&connection, layout)?;
        let time = time::open_clock(&connection, || locks.has_live_worker());
        let hints = Arc::new(Hints::default());
        identity.add_wal();
        let writer = Writer::start(connection, identity.clone(), Arc::clone(&hints))?;
        let watcher = Watcher::start(connection::open_writer(path)?, &writer, Arc::clone(&hints))?;
        identity.check_now()?;
        Ok(Self {
            _watcher: watcher,
            readers: Arc::new(Readers::new(path.to_owned(), identity)),
            writer,
            locks,
            time,
            plans: PlanCache::default(),
            hints,
            layout,
        })
    }

    async fn write(&self, change: Change) -> Result<Answer, StoreError> {
        self.writer.write(change).await
    }
}

fn add_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
