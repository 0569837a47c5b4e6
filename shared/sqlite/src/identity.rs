//! Detects a database file that is removed or replaced while a process has it open, because the
//! process would continue to write into the old file, which no other process can find.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use shared::store::StoreError;

use super::add_suffix;

/// Shortest time between two checks, because a busy writer commits thousands of times a second.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The paths of the database file and its WAL, and the device and inode that each path had when the
/// store was opened.
#[derive(Clone, Debug)]
pub(super) struct FileIdentity {
    files: Vec<(PathBuf, FileId)>,
    checked_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// Returns the identity of the file at `path`. Call it before the file is opened, and
    /// [`check_now`](Self::check_now) after that.
    pub(super) fn of(path: &Path) -> Self {
        let id = file_id(path).ok();
        Self { files: id.map(|id| (path.to_owned(), id)).into_iter().collect(), checked_at: None }
    }

    /// Adds the WAL, which exists as long as a connection is open.
    pub(super) fn add_wal(&mut self) {
        // SQLite puts the WAL beside the file that a symbolic link leads to.
        let wal = self.files.first().and_then(|(path, _)| fs::canonicalize(path).ok());
        let wal = wal.map(|path| add_suffix(&path, "-wal"));
        self.files.extend(wal.and_then(|path| Some((path.clone(), file_id(&path).ok()?))));
    }

    /// Like [`check_now`](Self::check_now), but does nothing if it succeeded less than 10 ms ago.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        if self.checked_at.is_some_and(|at| at.elapsed() < MIN_CHECK_INTERVAL) {
            return Ok(());
        }
        self.check_now()?;
        self.checked_at = Some(Instant::now());
        Ok(())
    }

    /// Fails if the path no longer leads to the file that was opened.
    pub(super) fn check_now(&self) -> Result<(), StoreError> {
        let is_same = |(path, id): &(PathBuf, FileId)| match file_id(path) {
            Ok(found) => found == *id,
            // Another error, such as a folder that cannot be read, does not prove that the file is
            // gone.
            Err(err) => err.kind() != io::ErrorKind::NotFound,
        };
        match self.files.iter().find(|file| !is_same(file)) {
            None => Ok(()),
            Some((path, _)) => Err(StoreError::Unavailable(format!(
                "`{}` was removed or replaced while it was open, so further changes would be lost: \
                 move the file back, or restart Faber to use the present file",
                path.display()
            ))),
        }
    }
}

#[cfg(unix)]
fn file_id(path: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map(|file| FileId { device: file.dev(), inode: file.ino() })
}

/// Returns the same identity for every file, because systems other than Unix do not allow the
/// removal of an open file.
#[cfg(not(unix))]
fn file_id(path: &Path) -> io::Result<FileId> {
    fs::metadata(path).map(|_| FileId { device: 0, inode: 0 })
}
