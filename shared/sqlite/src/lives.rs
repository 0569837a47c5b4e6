//! Which workers' processes live: a locked file for each.
//!
//! The kernel lets go of a lock when its process ends, however it ends. So a worker that was killed
//! is known to be gone at once, where a lease would keep its executions waiting. Leases remain the
//! floor: where locks do not work, time does.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use shared::id::WorkerId;

use super::connection::private_folder;

/// The lock files of one database.
#[derive(Debug)]
pub(super) struct Lives {
    folder: PathBuf,
    held: Mutex<BTreeMap<WorkerId, File>>,
}

impl Lives {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, held: Mutex::default() }
    }

    /// Holds a worker's lock from now on. If that cannot be, its lease must do.
    pub(super) fn hold(&self, worker: WorkerId) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains_key(&worker) {
            return;
        }
        match self.lock(worker) {
            Ok(file) => drop(held.insert(worker, file)),
            Err(err) => tracing::warn!(%err, %worker, "no lock file: its lease must do"),
        }
    }

    /// Lets go of a worker's lock.
    pub(super) fn release(&self, worker: WorkerId) {
        let file = self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
        if file.is_some() {
            self.remove(worker);
        }
    }

    /// Returns whether a worker is known to be dead: its lock file is there and nobody holds it.
    /// Removes the file then.
    pub(super) fn is_dead(&self, worker: WorkerId) -> bool {
        if self.held.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&worker) {
            return false;
        }
        let Ok(file) = OpenOptions::new().write(true).open(self.path(worker)) else { return false };
        let is_dead = file.try_lock().is_ok();
        if is_dead {
            self.remove(worker);
        }
        is_dead
    }

    /// Returns `true` if a process holds the worker's lock. Leaves the file alone, because the file
    /// of a dead worker tells others that its executions are free.
    pub(super) fn is_alive(&self, worker: WorkerId) -> bool {
        let file = OpenOptions::new().write(true).open(self.path(worker));
        file.is_ok_and(|file| file.try_lock().is_err())
    }

    /// Returns whether some worker lives.
    pub(super) fn has_any(&self) -> bool {
        let Ok(files) = fs::read_dir(&self.folder) else { return false };
        files.flatten().any(|file| {
            let is_lock = file.path().extension().is_some_and(|it| it == "lock");
            let file = OpenOptions::new().write(true).open(file.path()).ok().filter(|_| is_lock);
            file.is_some_and(|file| file.try_lock().is_err())
        })
    }

    fn lock(&self, worker: WorkerId) -> io::Result<File> {
        private_folder().create(&self.folder)?;
        // Another process may see the file before it is locked and take it for a dead worker's:
        // so it gets its name when it is locked.
        let new = self.folder.join(format!("{worker}.new"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        file.try_lock().map_err(io::Error::from)?;
        fs::rename(&new, self.path(worker))?;
        Ok(file)
    }

    fn remove(&self, worker: WorkerId) {
        if let Err(err) = fs::remove_file(self.path(worker))
            && err.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%err, %worker, "a lock file stays behind");
        }
    }

    fn path(&self, worker: WorkerId) -> PathBuf {
        self.folder.join(format!("{worker}.lock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_dies_with_its_process() {
        let folder = tempfile::tempdir().unwrap();
        let of = || Lives::new(folder.path().join("x-workers"));
        let (mine, other) = (of(), of());
        let worker: WorkerId = "work_1_aaaaaaaaa".parse().unwrap();
        assert!(!other.is_dead(worker), "nothing is known of it");
        mine.hold(worker);
        assert!(!mine.is_dead(worker));
        assert!(!other.is_dead(worker));
        assert!(other.has_any());
        drop(mine);
        assert!(!other.has_any());
        assert!(other.is_dead(worker));
        assert!(!folder.path().join("x-workers/work_1_aaaaaaaaa.lock").exists());
    }
}
