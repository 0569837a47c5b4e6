//! The embedded store: one SQLite file that a person can open.
//!
//! *Durability.* WAL with `synchronous=FULL`: what was answered is on the disk. All writes of a
//! process go through [one thread](writer) that takes whatever waits into one transaction, so that
//! many appends share one `fdatasync`; a lone append never waits for company. Checkpoints run
//! [beside it](watcher), so that commits do not pay for them.
//!
//! *Fence.* `events_fence` is unique over (log, first position), and every transaction begins with
//! `BEGIN IMMEDIATE`: between the check that a log ends at `after` and the insert nobody else
//! writes, in this process or another. A refused append leaves its neighbours alone.
//!
//! *Several processes* may share the file. `PRAGMA data_version` tells that another one wrote;
//! then everybody looks again. A process that dies lets go of its [lock files](lives), so what its
//! workers had is free at once, long before a lease runs out.

mod change;
mod connection;
mod documents;
mod identity;
mod lists;
mod lives;
mod log;
mod permits;
mod readers;
mod records;
mod removal;
mod rows;
mod schema;
mod time;
mod vectors;
mod watcher;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use shared::{
    clock::SteadyClock,
    store::{Hints, StoreError, backend::PlanCache},
};

use self::{
    change::{Answer, Change},
    identity::FileIdentity,
    lives::Lives,
    readers::Readers,
    watcher::Watcher,
    writer::Writer,
};

/// A store in one file. Dropping it writes what waits, folds the WAL into the file and ends its
/// threads.
///
/// The fields are dropped in this order: nobody may send to the writer any more, and no reader may
/// keep the file open, when the writer closes it.
#[derive(Debug)]
pub struct Sqlite {
    _watcher: Watcher,
    readers: Arc<Readers>,
    writer: Writer,
    lives: Arc<Lives>,
    /// The time that all processes over the file go by.
    time: SteadyClock,
    plans: PlanCache,
    hints: Arc<Hints>,
}

impl Sqlite {
    /// Opens the store in the file at `path`; makes it if there is none.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or written, is no store, or was written by a newer version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        connection::make_file(path)?;
        let mut identity = FileIdentity::of(path);
        let connection = connection::open_writer(path)?;
        let lives = Arc::new(Lives::new(beside(path, "-workers")));
        schema::prepare(&connection, path, |worker| lives.is_alive(worker))?;
        let time = time::agree(&connection, || lives.has_any());
        let hints = Arc::new(Hints::default());
        identity.add_wal();
        let writer = Writer::start(connection, identity.clone(), Arc::clone(&hints))?;
        let watcher = Watcher::start(connection::open_writer(path)?, &writer, Arc::clone(&hints))?;
        identity.check_now()?;
        Ok(Self {
            _watcher: watcher,
            readers: Arc::new(Readers::new(path.to_owned(), identity)),
            writer,
            lives,
            time,
            plans: PlanCache::default(),
            hints,
        })
    }

    async fn write(&self, change: Change) -> Result<Answer, StoreError> {
        self.writer.write(change).await
    }
}

/// Returns the path of what stands beside the database file.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
