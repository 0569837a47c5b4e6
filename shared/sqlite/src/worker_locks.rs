//! Lock files that show which workers' processes are alive. The kernel frees the lock when the
//! process ends, so other workers notice a dead worker before its lease expires.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use shared::id::WorkerId;

use super::connection::private_folder;

#[derive(Debug)]
pub(super) struct WorkerLocks {
    folder: PathBuf,
    locked_files: Mutex<BTreeMap<WorkerId, File>>,
}

impl WorkerLocks {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, locked_files: Mutex::default() }
    }

    /// Locks the file of a worker of this process. If that fails and the process dies, other
    /// workers notice its death only when the worker's lease expires.
    pub(super) fn acquire(&self, worker: WorkerId) {
        let mut held = self.locked_files.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains_key(&worker) {
            return;
        }
        match self.create_lock(worker) {
            Ok(file) => drop(held.insert(worker, file)),
            Err(err) => tracing::warn!(
                %err,
                %worker,
                "no lock file: if this process dies, its executions wait until its lease expires"
            ),
        }
    }

    pub(super) fn release(&self, worker: WorkerId) {
        let file = self.locked_files.lock().unwrap_or_else(PoisonError::into_inner).remove(&worker);
        if file.is_some() {
            self.remove_lock_file(worker);
        }
    }

    /// Returns `true`, and removes the lock file, if the file exists and no process holds its lock.
    /// A worker without a file may be alive.
    pub(super) fn remove_if_dead(&self, worker: WorkerId) -> bool {
        if self.locked_files.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&worker) {
            return false;
        }
        let Ok(file) = OpenOptions::new().write(true).open(self.lock_path(worker)) else {
            return false;
        };
        let is_dead = file.try_lock().is_ok();
        if is_dead {
            self.remove_lock_file(worker);
        }
        is_dead
    }

    pub(super) fn has_live_worker(&self) -> bool {
        let Ok(files) = fs::read_dir(&self.folder) else { return false };
        files.flatten().any(|file| {
            let is_lock = file.path().extension().is_some_and(|extension| extension == "lock");
            let file = OpenOptions::new().write(true).open(file.path()).ok().filter(|_| is_lock);
            file.is_some_and(|file| file.try_lock().is_err())
        })
    }

    fn create_lock(&self, worker: WorkerId) -> io::Result<File> {
        private_folder().create(&self.folder)?;
        // The file gets its final name after it is locked. Otherwise another process could see it
        // without a lock and take the worker for dead.
        let new = self.folder.join(format!("{worker}.new"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        file.try_lock().map_err(io::Error::from)?;
        fs::rename(&new, self.lock_path(worker))?;
        Ok(file)
    }

    fn remove_lock_file(&self, worker: WorkerId) {
        if let Err(err) = fs::remove_file(self.lock_path(worker))
            && err.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%err, %worker, "a lock file was not removed");
        }
    }

    fn lock_path(&self, worker: WorkerId) -> PathBuf {
        self.folder.join(format!("{worker}.lock"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_dead_when_its_process_has_closed_the_lock_file() {
        let folder = tempfile::tempdir().unwrap();
        let open = || WorkerLocks::new(folder.path().join("x-workers"));
        let (own, other) = (open(), open());
        let worker: WorkerId = "work_1_aaaaaaaaa".parse().unwrap();
        assert!(!other.remove_if_dead(worker), "it has no lock file");
        own.acquire(worker);
        assert!(!own.remove_if_dead(worker));
        assert!(!other.remove_if_dead(worker));
        assert!(other.has_live_worker());
        drop(own);
        assert!(!other.has_live_worker());
        assert!(other.remove_if_dead(worker));
        assert!(!folder.path().join("x-workers/work_1_aaaaaaaaa.lock").exists());
    }
}
