//! The folder that file tools see.
//!
//! Every path is resolved below an open descriptor of that folder, so that no path leads out of it
//! even if another process swaps files at the same time.

mod call_queue;
mod canonical;
mod git;
mod ignore_rules;
mod output_text;
mod protected_files;
#[cfg(test)]
mod tests;
mod walk;
mod write_target;

use std::{
    fmt, fs, io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, FileTypeExt, Metadata, OpenOptions, OpenOptionsExt},
};
use nix::libc::{O_NOCTTY, O_NONBLOCK};
use serde::Deserialize;
use shared::tool::ToolError;
use tokio::sync::Semaphore;

use self::protected_files::{FileId, ProtectedFiles, file_id};
pub(crate) use self::{
    call_queue::{Queue, StopReason, StopSignal, ToolEntry},
    output_text::{OutputLines, clip_line, display_path},
    walk::{CutReason, Entry, EntryKind, Walk, WalkRules},
    write_target::WriteTarget,
};

#[derive(Clone)]
pub struct Root(Arc<RootState>, Option<Arc<SearchCache>>);

struct SearchCache {
    protected_inside: Vec<FileId>,
    /// Sorted ids of all protected files, or the reason why they are unknown. Computed when the
    /// search finds the first file that has several names.
    all_protected: OnceLock<Result<Vec<FileId>, String>>,
    /// The folder of the last file. The next file usually has the same folder.
    last_folder: Mutex<Option<(PathBuf, Arc<Dir>)>>,
}

/// Permission to change files in `.git`. Git runs the programs that hooks and settings in `.git`
/// name, as the user who calls Git.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitWrites {
    #[default]
    Refused,
    Allowed,
}

struct RootState {
    dir: Dir,
    git_writes: GitWrites,
    protected: ProtectedFiles,
    /// Path without symlinks.
    canonical_path: PathBuf,
    configured_path: PathBuf,
    /// Locked while a file changes, so that concurrent edits by this process do not overwrite each
    /// other.
    write_lock: Mutex<()>,
    file_permits: Arc<Semaphore>,
    search_permits: Arc<Semaphore>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open the project root `{}`: {reason}: create the folder, or name another one",
    path.display()
)]
pub struct RootError {
    path: PathBuf,
    reason: io::Error,
}

#[derive(Clone, Debug)]
pub(crate) struct RootPath {
    pub(crate) caller_path: String,
    /// Relative to the root, without `.` and `..`. Empty for the root itself.
    pub(crate) path: PathBuf,
    /// Metadata of the target after symlinks are followed. `None` if the path does not exist.
    pub(crate) meta: Option<Metadata>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Root").field(&self.0.canonical_path).finish()
    }
}

impl Root {
    /// Opens a folder and refuses changes in `.git`.
    ///
    /// # Errors
    ///
    /// If the folder cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RootError> {
        Self::open_with(path, GitWrites::default())
    }

    /// Opens a folder. `git_writes` decides whether tools may change files in its `.git`.
    ///
    /// # Errors
    ///
    /// If the folder cannot be opened.
    pub fn open_with(path: impl AsRef<Path>, git_writes: GitWrites) -> Result<Self, RootError> {
        let path = path.as_ref();
        let open = || {
            let real = path.canonicalize()?;
            let dir = Dir::open_ambient_dir(&real, ambient_authority())?;
            Ok((dir, real, std::path::absolute(path)?))
        };
        let (dir, real, called) =
            open().map_err(|reason| RootError { path: path.to_owned(), reason })?;
        let inner = RootState {
            dir,
            git_writes,
            protected: ProtectedFiles::default(),
            configured_path: normalize_path(&called).unwrap_or(called),
            canonical_path: real,
            write_lock: Mutex::new(()),
            file_permits: Arc::new(Semaphore::new(call_queue::MAX_FILE_CALLS)),
            search_permits: Arc::new(Semaphore::new(call_queue::MAX_SEARCH_CALLS)),
        };
        Ok(Self(Arc::new(inner), None))
    }

    /// Protects `paths` from all tools. Must be called before the root is cloned.
    #[must_use]
    pub fn with_protected(mut self, paths: &[PathBuf]) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.protected = ProtectedFiles::beneath_root(&inner.canonical_path, paths);
        }
        self
    }

    fn for_search(&self) -> Self {
        let own_file_ids = self.protected_files().inner_file_ids(self.dir()).collect();
        let seen = SearchCache {
            protected_inside: own_file_ids,
            all_protected: OnceLock::new(),
            last_folder: Mutex::default(),
        };
        Self(Arc::clone(&self.0), Some(Arc::new(seen)))
    }

    pub(crate) fn protected_files(&self) -> &ProtectedFiles {
        &self.0.protected
    }

    pub fn path(&self) -> &Path {
        &self.0.canonical_path
    }

    pub(crate) fn path_prefixes(&self) -> [String; 2] {
        let prefix = |path: &Path| format!("{}/", path.to_string_lossy().trim_end_matches('/'));
        [prefix(&self.0.configured_path), prefix(&self.0.canonical_path)]
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// Until the guard is dropped, no other call of this process changes a file.
    pub(crate) fn lock_writes(&self) -> MutexGuard<'_, ()> {
        self.0.write_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn resolve_path(&self, caller_path: &str) -> Result<RootPath, ToolError> {
        let target_path = self.resolve_inside_root(caller_path)?;
        self.protected_files().check_path(self.dir(), &target_path.path, caller_path)?;
        Ok(target_path)
    }

    fn resolve_inside_root(&self, caller_path: &str) -> Result<RootPath, ToolError> {
        let path = self.relative_path(caller_path).ok_or_else(|| outside_error(caller_path))?;
        let target_path =
            |path, meta| RootPath { caller_path: display_path(Path::new(caller_path)), path, meta };
        match self.dir().metadata(os_path(&path)) {
            Ok(meta) => Ok(target_path(path, Some(meta))),
            Err(err) if is_outside_error(&err) => {
                let path = self
                    .follow_absolute_symlink(&path)
                    .ok_or_else(|| outside_error(caller_path))?;
                let meta =
                    self.dir().metadata(os_path(&path)).map_err(|_| outside_error(caller_path))?;
                Ok(target_path(path, Some(meta)))
            }
            Err(err) if is_missing_error(&err) => Ok(target_path(path, None)),
            Err(err) => Err(io_failure("look at", caller_path, &err)),
        }
    }

    /// Like [`Self::resolve_path`]. The path must exist and defaults to the root.
    pub(crate) fn resolve_existing(
        &self,
        caller_path: Option<&str>,
    ) -> Result<RootPath, ToolError> {
        let target_path = self.resolve_path(caller_path.unwrap_or("."))?;
        match target_path.meta {
            Some(_) => Ok(target_path),
            None => Err(ToolError::failed(format!("Path not found: {}", target_path.caller_path))),
        }
    }

    pub(crate) fn resolve_folder(&self, caller_path: Option<&str>) -> Result<RootPath, ToolError> {
        let target_path = self.resolve_existing(caller_path)?;
        if target_path.meta.as_ref().is_some_and(Metadata::is_dir) {
            return Ok(target_path);
        }
        Err(ToolError::failed(format!("Not a folder: {}", target_path.caller_path)).without_retry())
    }

    pub(crate) fn open_regular(
        &self,
        target_path: &RootPath,
    ) -> Result<(fs::File, Metadata), ToolError> {
        target_path.regular_file()?;
        self.open_file(&target_path.path)
            .map_err(|err| io_failure("read", &target_path.caller_path, &err))
    }

    /// Opens a regular file for reading, by its path inside the root. Never blocks on a FIFO.
    pub(crate) fn open_file(&self, path: &Path) -> io::Result<(fs::File, Metadata)> {
        if self.protected_files().is_empty() {
            return self.open_canonical(path);
        }
        self.open_canonical(&self.canonical_path(path)?)
    }

    fn relative_path(&self, caller_path: &str) -> Option<PathBuf> {
        let path = normalize_path(Path::new(caller_path))?;
        if !path.is_absolute() {
            return Some(path);
        }
        let inside = path
            .strip_prefix(&self.0.configured_path)
            .or_else(|_| path.strip_prefix(&self.0.canonical_path));
        inside.ok().map(Path::to_owned)
    }

    pub(crate) fn target_metadata(&self, path: &Path) -> Option<Metadata> {
        match self.dir().metadata(os_path(path)) {
            Err(err) if is_outside_error(&err) => {
                self.dir().metadata(os_path(&self.follow_absolute_symlink(path)?)).ok()
            }
            found => found.ok(),
        }
    }

    /// Resolves a path through absolute symlinks that lead inside the root, because the descriptor
    /// rejects every absolute symlink. The caller opens the returned path below the descriptor.
    fn follow_absolute_symlink(&self, path: &Path) -> Option<PathBuf> {
        let real = self.0.canonical_path.join(path).canonicalize().ok()?;
        real.strip_prefix(&self.0.canonical_path).ok().map(Path::to_owned)
    }
}

impl RootPath {
    pub(crate) fn regular_file(&self) -> Result<&Metadata, ToolError> {
        let Some(meta) = &self.meta else {
            return Err(ToolError::failed(format!("File not found: {}", self.caller_path)));
        };
        if meta.is_file() && self.caller_path.ends_with('/') {
            return Err(trailing_slash_error(&self.caller_path));
        }
        if meta.is_file() {
            return Ok(meta);
        }
        let text = format!("Not a file: {} (it is {})", self.caller_path, kind_name(meta));
        Err(ToolError::failed(text).without_retry())
    }
}

fn trailing_slash_error(caller_path: &str) -> ToolError {
    ToolError::failed(format!("Not a file: {caller_path} (it ends in `/`)")).without_retry()
}

pub(crate) fn kind_name(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_file() {
        "a file"
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a symlink"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Converts an error of the file system. `action` completes "Cannot …".
pub(crate) fn io_failure(action: &str, caller_path: &str, err: &io::Error) -> ToolError {
    if is_outside_error(err) {
        return outside_error(caller_path);
    }
    if err.kind() == io::ErrorKind::NotFound {
        return ToolError::failed(format!("File not found: {caller_path}"));
    }
    ToolError::failed(format!("Cannot {action} {}: {err}", display_path(Path::new(caller_path))))
}

pub(crate) fn outside_error(caller_path: &str) -> ToolError {
    let caller_path = display_path(Path::new(caller_path));
    ToolError::failed(format!("Refused: Path outside project root: {caller_path}")).without_retry()
}

/// Sets flags so that opening never blocks and never takes a controlling terminal.
pub(crate) fn set_nonblocking(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(O_NONBLOCK | O_NOCTTY)
}

/// Returns `.` for the root itself, because the system calls need a path that is not empty.
pub(crate) fn os_path(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Returns whether an error reports a path that leads outside the root. The folder's descriptor
/// reports such a path without an error number.
fn is_outside_error(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::PermissionDenied && err.raw_os_error().is_none()
}

fn is_missing_error(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Removes `.` and `..` without reading the file system. Returns `None` if the path leads above its
/// start.
fn normalize_path(path: &Path) -> Option<PathBuf> {
    let mut folded = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if folded.pop() => {}
            Component::ParentDir => return None,
            part => folded.push(part),
        }
    }
    Some(folded)
}
