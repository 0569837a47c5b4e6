//! What a store stands on, and what can happen to that: here a file on a small disk.

use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;
use tests::faulty::Dice;
use tokio::time::sleep;

use super::disk::Disk;

/// How long SQLite itself waits for a lock.
const BUSY: Duration = Duration::from_secs(5);
/// Room for the store of a run: a full WAL is 64 MiB.
const DISK_BYTES: u64 = 192 << 20;

/// A file as a store.
#[derive(Debug)]
pub(super) struct FileGround {
    folder: TempDir,
    disk: Option<Disk>,
}

impl FileGround {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), disk: Disk::small(DISK_BYTES) }
    }

    pub(super) fn path(&self) -> std::path::PathBuf {
        self.disk.as_ref().map_or(self.folder.path(), Disk::path).join("faber.db")
    }

    pub(super) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Keeps the file locked for a while, as a program of somebody else would.
    pub(super) async fn stall(&self, dice: &Dice) {
        let ms = if dice.happens(200) { 5_200 } else { 50 + dice.below(1_500) };
        let path = self.path();
        let hold = Duration::from_millis(ms);
        let locking = tokio::task::spawn_blocking(move || {
            let mut connection = Connection::open(path).unwrap();
            connection.busy_timeout(4 * BUSY).unwrap();
            // Nothing is written: where even the lock fails, the disk is full, and that is a fault, too.
            if let Ok(lock) = connection.transaction_with_behavior(TransactionBehavior::Immediate) {
                std::thread::sleep(hold);
                drop(lock);
            }
        });
        locking.await.unwrap();
    }

    /// Leaves no byte free for a while.
    pub(super) async fn fill(&self, dice: &Dice) {
        let Some(disk) = &self.disk else { return };
        disk.fill();
        sleep(Duration::from_millis(200 + dice.below(1_800))).await;
        disk.free();
    }
}
