//! The folder that the tools see.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, OpenOptions, OpenOptionsExt as _},
};
use nix::fcntl::OFlag;
use shared::tool::ToolError;

use crate::tool::builtin::hidden::Hidden;

/// Faber's own folder below the root: logs of commands, their temporary files.
const OWN: &str = ".faber";

/// A root, and the one way to what is below it: neither `..` nor a link leads out.
#[derive(Debug)]
pub(super) struct Place {
    root: PathBuf,
    dir: Dir,
    hidden: Hidden,
}

impl Place {
    /// Opens a root, beneath which what is `hidden` is nobody's.
    pub(super) fn new(root: &Path, hidden: &[PathBuf]) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let dir = Dir::open_ambient_dir(&root, ambient_authority())?;
        let hidden = Hidden::beneath(&root, hidden);
        Ok(Self { root, dir, hidden })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder for a command to run in: the root, or one below it.
    pub(super) fn folder(&self, given: Option<&str>) -> Result<PathBuf, ToolError> {
        let Some(given) = given.filter(|it| !it.is_empty()) else { return Ok(self.root.clone()) };
        let inside = self.inside(given)?;
        let found = self.dir.canonicalize(&inside).and_then(|it| Ok((self.dir.metadata(&it)?, it)));
        match found {
            Ok((metadata, path)) if metadata.is_dir() => Ok(self.root.join(path)),
            Err(err) if is_escape(&err) => Err(refused(given)),
            _ => Err(ToolError::failed(format!("Directory not found: {given}"))),
        }
    }

    /// Opens a file below the root to read it. Nothing but a file: the rest may never end.
    pub(super) fn open(&self, given: &str) -> Result<File, ToolError> {
        let inside = self.inside(given)?;
        self.hidden.check(&self.dir, &inside, given)?;
        let mut options = OpenOptions::new();
        // A pipe that nobody writes to would keep us.
        options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let opened = self.dir.open_with(&inside, &options).and_then(|it| Ok((it.metadata()?, it)));
        match opened {
            Ok((metadata, file)) if metadata.is_file() => Ok(file.into_std()),
            Ok(_) => Err(ToolError::failed(format!("Not a file: {given}"))),
            Err(err) if is_escape(&err) => Err(refused(given)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                Err(ToolError::failed(format!("Log file not found: {given}")))
            }
            Err(err) => Err(ToolError::failed(format!("{given} cannot be read: {err}"))),
        }
    }

    /// Makes a folder of Faber's own below the root, which version control does not see.
    pub(super) fn own_folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = Path::new(OWN).join(name);
        self.dir.create_dir_all(&folder)?;
        let ignore = Path::new(OWN).join(".gitignore");
        if !self.dir.try_exists(&ignore)? {
            self.dir.write(&ignore, "*\n")?;
        }
        Ok(self.root.join(folder))
    }

    /// Makes a new file in a folder of Faber's own and returns it with its path below the root.
    /// Its name is the first free number from `from` on.
    pub(super) fn own_file(&self, folder: &str, from: usize) -> io::Result<(File, PathBuf)> {
        /// Names that are tried: more logs than that are somebody else's business.
        const TRIES: usize = 100_000;
        self.own_folder(folder)?;
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        for number in from..from.saturating_add(TRIES) {
            let path = Path::new(OWN).join(folder).join(format!("{number}.log"));
            match self.dir.open_with(&path, &options) {
                Ok(file) => return Ok((file.into_std(), path)),
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => (),
                Err(err) => return Err(err),
            }
        }
        Err(io::Error::other(format!("`{OWN}/{folder}` is full: remove old files")))
    }

    /// Reads a path as given, against the root.
    fn inside(&self, given: &str) -> Result<PathBuf, ToolError> {
        let path = Path::new(given);
        if path.is_relative() {
            return Ok(path.to_owned());
        }
        match path.strip_prefix(&self.root) {
            Ok(rest) if rest.as_os_str().is_empty() => Ok(PathBuf::from(".")),
            Ok(rest) => Ok(rest.to_owned()),
            Err(_) => Err(refused(given)),
        }
    }
}

fn refused(given: &str) -> ToolError {
    ToolError::failed(format!("Refused: Path outside project root: {given}")).terminal()
}

/// A path that led outside; the system itself has a number for its own refusals.
fn is_escape(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::PermissionDenied && err.raw_os_error().is_none()
}
