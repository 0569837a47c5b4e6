//! The one folder that file tools see.
//!
//! Every path is resolved beneath an open descriptor of that folder, by the kernel where it can
//! (`openat2`): neither `..`, nor an absolute path, nor a symlink, nor one that somebody swaps in at
//! the wrong moment leads out of it. Nothing here opens by a path of the machine, and nothing
//! opens what is no regular file, so that a FIFO blocks nobody.

mod git;
mod hidden;
mod ignored;
mod lines;
mod replace;
mod settled;
#[cfg(test)]
mod tests;
mod walk;
mod work;

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

use self::hidden::{Hidden, Mark, mark};
pub(crate) use self::{
    lines::{Lines, clipped, shown},
    replace::Target,
    walk::{Cut, Entry, Kind, Rules, Walk},
    work::{Halt, Lane, Stop, ToolEntry},
};

/// A folder, and the right to what is in it. Clones share it.
#[derive(Clone)]
pub struct Root(Arc<Inner>, Option<Arc<Seen>>);

/// What one search need not look at again for each of its files.
struct Seen {
    /// What beneath the root is Faber's own.
    own: Vec<Mark>,
    /// Which files are Faber's own, wherever they lie, in order, or why nobody knows. Found out when
    /// the first file with several names is met.
    all: OnceLock<Result<Vec<Mark>, String>>,
    /// The folder of the last file: the next one lies in it, too, most of the time.
    folder: Mutex<Option<(PathBuf, Arc<Dir>)>>,
}

/// Whether what lies in `.git` may be changed: hooks and settings there run programs, as whoever
/// next uses Git.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitWrites {
    /// It may not.
    #[default]
    Refused,
    /// It may, like anything else.
    Allowed,
}

struct Inner {
    dir: Dir,
    git: GitWrites,
    hidden: Hidden,
    /// Where the folder is, without symlinks.
    real: PathBuf,
    /// Where the folder is, as its owner calls it.
    called: PathBuf,
    /// Held while a file is changed, so that no edit of this process is lost to another one.
    writing: Mutex<()>,
    files: Arc<Semaphore>,
    searches: Arc<Semaphore>,
}

/// A project root that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the project root `{}`: {reason}: create the folder, or name another", path.display())]
pub struct RootError {
    path: PathBuf,
    reason: io::Error,
}

/// A path that a caller gave, inside the root.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// As it was given.
    pub(crate) given: String,
    /// Relative to the root, without `.` and `..`; empty for the root itself.
    pub(crate) path: PathBuf,
    /// What is there, behind symlinks.
    pub(crate) meta: Option<Metadata>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Root").field(&self.0.real).finish()
    }
}

impl Root {
    /// Opens a folder, in which nothing changes what lies in `.git`.
    ///
    /// # Errors
    ///
    /// If it is not there, is no folder, or may not be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, RootError> {
        Self::open_with(path, GitWrites::default())
    }

    /// Opens a folder.
    ///
    /// # Errors
    ///
    /// If it is not there, is no folder, or may not be read.
    pub fn open_with(path: impl AsRef<Path>, git: GitWrites) -> Result<Self, RootError> {
        let path = path.as_ref();
        Self::opened(path, git).map_err(|reason| RootError { path: path.to_owned(), reason })
    }

    fn opened(path: &Path, git: GitWrites) -> io::Result<Self> {
        let real = path.canonicalize()?;
        let called = std::path::absolute(path)?;
        let inner = Inner {
            dir: Dir::open_ambient_dir(&real, ambient_authority())?,
            git,
            hidden: Hidden::default(),
            called: folded(&called).unwrap_or(called),
            real,
            writing: Mutex::new(()),
            files: Arc::new(Semaphore::new(work::FILES)),
            searches: Arc::new(Semaphore::new(work::SEARCHES)),
        };
        Ok(Self(Arc::new(inner), None))
    }

    /// Keeps tools away from what is Faber's own. Must come before the folder is shared.
    #[must_use]
    pub fn hiding(mut self, paths: &[PathBuf]) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.hidden = Hidden::from(&inner.real, paths);
        }
        self
    }

    /// Returns the folder for one search.
    fn searched(&self) -> Self {
        let own = self.hidden().marks_inside(self.dir()).collect();
        let seen = Seen { own, all: OnceLock::new(), folder: Mutex::default() };
        Self(Arc::clone(&self.0), Some(Arc::new(seen)))
    }

    /// Returns what tools are kept away from.
    pub(crate) fn hidden(&self) -> &Hidden {
        &self.0.hidden
    }

    /// Returns where the folder is, without symlinks.
    pub fn path(&self) -> &Path {
        &self.0.real
    }

    /// Returns what absolute paths of what is inside begin with.
    pub(crate) fn prefixes(&self) -> [String; 2] {
        let prefix = |path: &Path| format!("{}/", path.to_string_lossy().trim_end_matches('/'));
        [prefix(&self.0.called), prefix(&self.0.real)]
    }

    /// Returns the open folder, beneath which everything is resolved.
    pub(crate) fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// Waits for the right to change files.
    pub(crate) fn writing(&self) -> MutexGuard<'_, ()> {
        self.0.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds out what a caller means by a path, and looks what is there.
    pub(crate) fn place(&self, given: &str) -> Result<Place, ToolError> {
        let place = self.looked_up(given)?;
        self.hidden().check(self.dir(), &place.path, given)?;
        Ok(place)
    }

    fn looked_up(&self, given: &str) -> Result<Place, ToolError> {
        let path = self.relative(given).ok_or_else(|| refused(given))?;
        let place = |path, meta| Place { given: shown(Path::new(given)), path, meta };
        match self.dir().metadata(at(&path)) {
            Ok(meta) => Ok(place(path, Some(meta))),
            Err(err) if is_escape(&err) => {
                let path = self.by_absolute_symlink(&path).ok_or_else(|| refused(given))?;
                let meta = self.dir().metadata(at(&path)).map_err(|_| refused(given))?;
                Ok(place(path, Some(meta)))
            }
            Err(err) if is_absence(&err) => Ok(place(path, None)),
            Err(err) => Err(failure("look at", given, &err)),
        }
    }

    /// Like [`Self::place`], for a path that may be left out, and that must be there.
    pub(crate) fn start(&self, given: Option<&str>) -> Result<Place, ToolError> {
        let place = self.place(given.unwrap_or("."))?;
        match place.meta {
            Some(_) => Ok(place),
            None => Err(ToolError::failed(format!("Path not found: {}", place.given))),
        }
    }

    /// Like [`Self::start`], for a folder.
    pub(crate) fn folder(&self, given: Option<&str>) -> Result<Place, ToolError> {
        let place = self.start(given)?;
        if place.meta.as_ref().is_some_and(Metadata::is_dir) {
            return Ok(place);
        }
        Err(ToolError::failed(format!("Not a folder: {}", place.given)).without_retry())
    }

    /// Opens a file to read.
    pub(crate) fn read(&self, place: &Place) -> Result<(fs::File, Metadata), ToolError> {
        place.file()?;
        self.open_file(&place.path).map_err(|err| failure("read", &place.given, &err))
    }

    /// Opens a regular file to read, by its path inside the root. What is none is not waited for.
    pub(crate) fn open_file(&self, path: &Path) -> io::Result<(fs::File, Metadata)> {
        if self.hidden().is_empty() {
            return self.open_settled(path);
        }
        self.open_settled(&self.settled(path)?)
    }

    /// Makes a path relative to the root, without looking.
    fn relative(&self, given: &str) -> Option<PathBuf> {
        let path = folded(Path::new(given))?;
        if !path.is_absolute() {
            return Some(path);
        }
        let inside = path.strip_prefix(&self.0.called).or_else(|_| path.strip_prefix(&self.0.real));
        inside.ok().map(Path::to_owned)
    }

    /// Returns what is behind a symlink that stays inside.
    pub(crate) fn behind(&self, path: &Path) -> Option<Metadata> {
        match self.dir().metadata(at(path)) {
            Err(err) if is_escape(&err) => {
                self.dir().metadata(at(&self.by_absolute_symlink(path)?)).ok()
            }
            found => found.ok(),
        }
    }

    /// Returns where a path leads by absolute symlinks, if that is inside. The descriptor refuses
    /// all of those; where this one leads is opened beneath it like anything else.
    fn by_absolute_symlink(&self, path: &Path) -> Option<PathBuf> {
        let real = self.0.real.join(path).canonicalize().ok()?;
        real.strip_prefix(&self.0.real).ok().map(Path::to_owned)
    }
}

impl Place {
    /// Returns what is there if it is a regular file, and says what else it is if not.
    pub(crate) fn file(&self) -> Result<&Metadata, ToolError> {
        let Some(meta) = &self.meta else {
            return Err(ToolError::failed(format!("File not found: {}", self.given)));
        };
        if meta.is_file() && self.given.ends_with('/') {
            return Err(ends_in_slash(&self.given));
        }
        if meta.is_file() {
            return Ok(meta);
        }
        let text = format!("Not a file: {} (it is {})", self.given, kind(meta));
        Err(ToolError::failed(text).without_retry())
    }
}

/// Makes the error of a path of a file that is written as that of a folder.
fn ends_in_slash(given: &str) -> ToolError {
    ToolError::failed(format!("Not a file: {given} (it ends in `/`)")).without_retry()
}

/// Says what something is, for people.
pub(crate) fn kind(meta: &Metadata) -> &'static str {
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

/// Makes an error of something that the machine said.
pub(crate) fn failure(what: &str, given: &str, err: &io::Error) -> ToolError {
    if is_escape(err) {
        return refused(given);
    }
    if err.kind() == io::ErrorKind::NotFound {
        return ToolError::failed(format!("File not found: {given}"));
    }
    ToolError::failed(format!("Cannot {what} {}: {err}", shown(Path::new(given))))
}

/// Makes the error of a path that leads out.
pub(crate) fn refused(given: &str) -> ToolError {
    let given = shown(Path::new(given));
    ToolError::failed(format!("Refused: Path outside project root: {given}")).without_retry()
}

/// Adds what keeps an open from waiting, and from making a terminal ours.
pub(crate) fn guarded(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(O_NONBLOCK | O_NOCTTY)
}

/// Returns the path as the machine takes it: the root itself is `.`.
pub(crate) fn at(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// The error of a path that leads out has no number of the machine's.
fn is_escape(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::PermissionDenied && err.raw_os_error().is_none()
}

fn is_absence(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Takes `.` and `..` out of a path, as a person reads it; nothing if it leads above its start.
fn folded(path: &Path) -> Option<PathBuf> {
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
