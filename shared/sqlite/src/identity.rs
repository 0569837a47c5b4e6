//! Detects a database file that is removed or replaced while a process has it open.
//!
//! The process would go on writing into the old file, which no other process can find, and
//! everything that it acknowledges would be lost when it ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use shared::store::StoreError;

use super::beside;

/// A writer under load looks at most this often.
const INTERVAL: Duration = Duration::from_millis(10);

/// The database file and its WAL, as they were when they were opened.
#[derive(Clone, Debug)]
pub(super) struct FileIdentity {
    files: Vec<(PathBuf, FileId)>,
    checked_at: Option<Instant>,
}

/// The device and the inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileIdentity {
    /// Returns the identity of the file at `path`. Call it before the file is opened, and
    /// [`check_now`](Self::check_now) after that.
    pub(super) fn of(path: &Path) -> Self {
        let id = file_id(path).ok();
        Self { files: id.map(|id| (path.to_owned(), id)).into_iter().collect(), checked_at: None }
    }

    /// Adds the WAL, which is there as long as a connection is open.
    pub(super) fn add_wal(&mut self) {
        // SQLite puts it beside the file that a symbolic link leads to.
        let wal = self.files.first().and_then(|(path, _)| fs::canonicalize(path).ok());
        let wal = wal.map(|path| beside(&path, "-wal"));
        self.files.extend(wal.and_then(|path| Some((path.clone(), file_id(&path).ok()?))));
    }

    /// Refuses a file that is no longer the one that was opened. Does nothing if the last check was
    /// a moment ago.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        if self.checked_at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Ok(());
        }
        self.check_now()?;
        self.checked_at = Some(Instant::now());
        Ok(())
    }

    /// Refuses a file that is no longer the one that was opened.
    pub(super) fn check_now(&self) -> Result<(), StoreError> {
        let is_same = |(path, id): &(PathBuf, FileId)| match file_id(path) {
            Ok(found) => found == *id,
            // A folder that cannot be searched at the moment is no proof.
            Err(err) => err.kind() != io::ErrorKind::NotFound,
        };
        match self.files.iter().find(|file| !is_same(file)) {
            None => Ok(()),
            Some((path, _)) => Err(StoreError::Unavailable(format!(
                "`{}` was removed or replaced while it was open, so further changes would be lost: \
                 move the file back, or restart Faber to use the one that is there now",
                path.display()
            ))),
        }
    }
}

#[cfg(unix)]
fn file_id(path: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map(|file| FileId(file.dev(), file.ino()))
}

/// Other systems do not let a file be removed that is open.
#[cfg(not(unix))]
fn file_id(path: &Path) -> io::Result<FileId> {
    fs::metadata(path).map(|_| FileId(0, 0))
}
