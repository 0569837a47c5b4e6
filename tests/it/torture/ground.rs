//! What a store stands on, and what can happen to that: a file on a small disk, or a replica set.

use std::{path::PathBuf, time::Duration};

use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;
use tests::faulty::Dice;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::sleep,
};

use super::{cluster::Cluster, disk::Disk};

/// How long SQLite itself waits for a lock.
const BUSY: Duration = Duration::from_secs(5);
/// Room for the store of a run: a full WAL is 64 MiB.
const DISK_BYTES: u64 = 192 << 20;

/// What a store stands on.
#[derive(Debug)]
pub(super) enum Ground {
    File(FileGround),
    Set(SetGround),
}

impl Ground {
    /// Makes a file.
    pub(super) fn file() -> Self {
        Self::File(FileGround::new())
    }

    /// Borrows the replica set.
    pub(super) async fn set() -> Self {
        let cluster = Cluster::borrow().await;
        Self::Set(SetGround { url: cluster.fresh_url(), cluster: Mutex::new(cluster) })
    }

    /// Returns the address of the store.
    pub(super) fn url(&self) -> String {
        match self {
            Self::File(file) => format!("sqlite:{}", file.path().display()),
            Self::Set(set) => set.url.clone(),
        }
    }

    /// Does harm for a while, and returns which.
    pub(super) async fn harm(&self, dice: &Dice) -> &'static str {
        match self {
            Self::File(file) => file.harm(dice).await,
            Self::Set(set) => set.harm(dice).await,
        }
    }

    /// Puts everything right.
    pub(super) async fn heal(&self) {
        if let Self::Set(set) = self {
            set.cluster.lock().await.heal().await;
        }
    }
}

/// A file as a store.
#[derive(Debug)]
pub(super) struct FileGround {
    folder: TempDir,
    disk: Option<Disk>,
}

impl FileGround {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), disk: Disk::small(DISK_BYTES) }
    }

    fn path(&self) -> PathBuf {
        self.disk.as_ref().map_or(self.folder.path(), Disk::path).join("faber.db")
    }

    async fn harm(&self, dice: &Dice) -> &'static str {
        match &self.disk {
            Some(disk) if dice.happens(450) => {
                disk.fill();
                sleep(Duration::from_millis(200 + dice.below(1_800))).await;
                disk.free();
                "disk full"
            }
            _ => {
                let ms = if dice.happens(150) { 5_200 } else { 50 + dice.below(1_500) };
                hold(self.path(), Duration::from_millis(ms)).await;
                "store locked"
            }
        }
    }
}

/// Keeps a file locked for a while, as a program of somebody else would.
async fn hold(path: PathBuf, long: Duration) {
    let holding = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(path).unwrap();
        // SQLite gives a lock in no order, and everybody wants it.
        connection.busy_timeout(12 * BUSY).unwrap();
        let lock = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        std::thread::sleep(long);
        drop(lock);
    });
    holding.await.unwrap();
}

/// A replica set as a store.
#[derive(Debug)]
pub(super) struct SetGround {
    url: String,
    cluster: Mutex<MutexGuard<'static, Cluster>>,
}

impl SetGround {
    async fn harm(&self, dice: &Dice) -> &'static str {
        let mut cluster = self.cluster.lock().await;
        let primary = cluster.primary().await;
        let secondary = (primary + 1 + dice.index(2)) % 3;
        let long = Duration::from_millis(300 + dice.below(4_000));
        match dice.below(100) {
            0..30 => {
                cluster.kill(primary);
                sleep(long).await;
                cluster.start_again(primary).await;
                "primary killed"
            }
            30..60 => {
                if cluster.step_down().await {
                    "primary stepped down"
                } else {
                    "primary did not step down"
                }
            }
            60..80 => {
                cluster.freeze(primary);
                sleep(long).await;
                cluster.thaw(primary);
                "primary frozen"
            }
            80..90 => {
                // Without a second member there is no majority: the store stalls.
                let other = 3 - primary - secondary;
                for number in [secondary, other] {
                    cluster.freeze(number);
                }
                sleep(long).await;
                for number in [secondary, other] {
                    cluster.thaw(number);
                }
                "majority frozen"
            }
            _ => {
                cluster.kill(secondary);
                sleep(long).await;
                cluster.start_again(secondary).await;
                "secondary killed"
            }
        }
    }
}
