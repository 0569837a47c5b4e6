//! The stores of the torture tests, and their faults. A store is a file on a small disk, or a
//! replica set.

use std::{path::PathBuf, time::Duration};

use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;
use tests::faulty::Dice;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::sleep,
};

use super::{cluster::Cluster, disk::Disk};

/// SQLite's limit on the wait for a lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the disk. A full WAL alone is 64 MiB.
const DISK_BYTES: u64 = 192 << 20;

#[derive(Debug)]
pub(super) enum TorturedStore {
    Sqlite(TorturedFile),
    ReplicaSet(TorturedReplicaSet),
}

impl TorturedStore {
    pub(super) fn sqlite() -> Self {
        Self::Sqlite(TorturedFile::new())
    }

    pub(super) async fn replica_set() -> Self {
        let cluster = Cluster::lock_shared().await;
        Self::ReplicaSet(TorturedReplicaSet {
            url: cluster.new_database_url(),
            cluster: Mutex::new(cluster),
        })
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Sqlite(file) => format!("sqlite:{}", file.path().display()),
            Self::ReplicaSet(set) => set.url.clone(),
        }
    }

    pub(super) async fn inject_fault(&self, dice: &Dice) -> &'static str {
        match self {
            Self::Sqlite(file) => file.inject_fault(dice).await,
            Self::ReplicaSet(set) => set.inject_fault(dice).await,
        }
    }

    pub(super) async fn heal(&self) {
        if let Self::ReplicaSet(set) = self {
            set.cluster.lock().await.heal().await;
        }
    }
}

#[derive(Debug)]
pub(super) struct TorturedFile {
    folder: TempDir,
    disk: Option<Disk>,
}

impl TorturedFile {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), disk: Disk::mount(DISK_BYTES) }
    }

    fn path(&self) -> PathBuf {
        self.disk.as_ref().map_or(self.folder.path(), Disk::path).join("faber.db")
    }

    async fn inject_fault(&self, dice: &Dice) -> &'static str {
        match &self.disk {
            Some(disk) if dice.happens(450) => {
                disk.fill();
                sleep(Duration::from_millis(200 + dice.draw_below(1_800))).await;
                disk.free();
                "disk full"
            }
            _ => {
                let ms = if dice.happens(150) { 5_200 } else { 50 + dice.draw_below(1_500) };
                lock_file(self.path(), Duration::from_millis(ms)).await;
                "store locked"
            }
        }
    }
}

async fn lock_file(path: PathBuf, duration: Duration) {
    let holding = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(path).unwrap();
        // Many connections wait for the lock, and SQLite gives it to any of them. So this
        // connection waits longer than usual.
        connection.busy_timeout(12 * BUSY_TIMEOUT).unwrap();
        let lock = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        std::thread::sleep(duration);
        drop(lock);
    });
    holding.await.unwrap();
}

#[derive(Debug)]
pub(super) struct TorturedReplicaSet {
    url: String,
    cluster: Mutex<MutexGuard<'static, Cluster>>,
}

impl TorturedReplicaSet {
    async fn inject_fault(&self, dice: &Dice) -> &'static str {
        let mut cluster = self.cluster.lock().await;
        let primary = cluster.wait_for_primary().await;
        let secondary = (primary + 1 + dice.draw_index(2)) % 3;
        let duration = Duration::from_millis(300 + dice.draw_below(4_000));
        match dice.draw_below(100) {
            0..30 => {
                cluster.kill(primary);
                sleep(duration).await;
                cluster.restart_member(primary).await;
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
                sleep(duration).await;
                cluster.thaw(primary);
                "primary frozen"
            }
            80..90 => {
                // Without a second member there is no majority, so the store stalls.
                let other = 3 - primary - secondary;
                for number in [secondary, other] {
                    cluster.freeze(number);
                }
                sleep(duration).await;
                for number in [secondary, other] {
                    cluster.thaw(number);
                }
                "majority frozen"
            }
            _ => {
                cluster.kill(secondary);
                sleep(duration).await;
                cluster.restart_member(secondary).await;
                "secondary killed"
            }
        }
    }
}
