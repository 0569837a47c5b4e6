use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use cap_std::fs::{Metadata, OpenOptions, Permissions, PermissionsExt as _};
use shared::tool::ToolError;

use crate::root::Root;

/// Faber's folder below the root, for logs and temporary files of commands.
const FABER_FOLDER: &str = ".faber";

#[derive(Debug)]
pub(super) struct SystemRoot(Root);

impl SystemRoot {
    pub(super) fn new(root: &Path, protected_paths: &[PathBuf]) -> io::Result<Self> {
        Ok(Self(Root::open(root).map_err(io::Error::other)?.with_protected(protected_paths)))
    }

    pub(super) fn root_path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn command_folder(&self, caller_path: Option<&str>) -> Result<PathBuf, ToolError> {
        let Some(caller_path) = caller_path.filter(|folder| !folder.is_empty()) else {
            return Ok(self.root_path().to_owned());
        };
        let target_path = self.0.resolve_path(caller_path)?;
        let path = self.0.canonical_path(&target_path.path);
        match path {
            Ok(path) if target_path.meta.as_ref().is_some_and(Metadata::is_dir) => {
                Ok(self.root_path().join(path))
            }
            _ => Err(ToolError::failed(format!("Directory not found: {caller_path}"))),
        }
    }

    /// Opens a regular file for reading. Rejects other kinds, because reading such a file may never
    /// end.
    pub(super) fn open(&self, caller_path: &str) -> Result<File, ToolError> {
        let target_path = self.0.resolve_path(caller_path)?;
        match target_path.meta {
            None => return Err(ToolError::failed(format!("Log file not found: {caller_path}"))),
            Some(meta) if !meta.is_file() => {
                return Err(ToolError::failed(format!("Not a file: {caller_path}")));
            }
            Some(_) => {}
        }
        let opened = self.0.open_file(&target_path.path);
        let (file, _) = opened
            .map_err(|err| ToolError::failed(format!("{caller_path} cannot be read: {err}")))?;
        Ok(file)
    }

    /// Creates a folder in Faber's folder. Version control ignores it.
    pub(super) fn create_own_folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = Path::new(FABER_FOLDER).join(name);
        self.ensure_folder(Path::new(FABER_FOLDER))?;
        self.ensure_folder(&folder)?;
        let faber_folder = self.0.open_folder(Path::new(FABER_FOLDER))?;
        match faber_folder.open_with(".gitignore", OpenOptions::new().write(true).create_new(true))
        {
            Ok(mut ignore) => ignore.write_all(b"*\n")?,
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
        Ok(self.root_path().join(folder))
    }

    /// Lets every user write into a folder, and remove only their own files, because a command may
    /// run as another user.
    pub(super) fn make_writable_by_all(&self, name: &str) -> io::Result<()> {
        let folder = Path::new(FABER_FOLDER).join(name);
        self.0.dir().set_permissions(folder, Permissions::from_mode(0o1777))
    }

    /// Creates a folder, even if a command has put a file or a symlink at its path, because then no
    /// command could run.
    fn ensure_folder(&self, folder: &Path) -> io::Result<()> {
        const MAX_ATTEMPTS: usize = 100;
        let dir = self.0.dir();
        match dir.symlink_metadata(folder) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => return Err(err),
            Ok(meta) if meta.is_dir() => {
                // The owner may lack the permission to enter the folder.
                let mode = meta.permissions().mode();
                if mode & 0o700 != 0o700 {
                    dir.set_permissions(folder, Permissions::from_mode(mode | 0o700))?;
                }
                return Ok(());
            }
            Ok(meta) if meta.is_file() => {
                let free = (1..=MAX_ATTEMPTS)
                    .map(|number| PathBuf::from(format!("{}.{number}", folder.display())))
                    .find(|path| dir.symlink_metadata(path).is_err());
                let free = free.ok_or_else(|| {
                    let path = folder.display();
                    io::Error::other(format!(
                        "`{path}` is a file: remove it, with `{path}.1` and so on"
                    ))
                })?;
                dir.rename(folder, dir, free)?;
            }
            Ok(_) => dir.remove_file(folder)?,
        }
        match dir.create_dir(folder) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => Err(err),
            _ => Ok(()),
        }
    }

    /// Creates a log file in a folder of Faber, and returns it with its path below the root. The
    /// name is the first free number from `from` on.
    pub(super) fn create_log_file(&self, folder: &str, from: usize) -> io::Result<(File, PathBuf)> {
        const MAX_ATTEMPTS: usize = 100_000;
        self.create_own_folder(folder)?;
        let held = self.0.open_folder(&Path::new(FABER_FOLDER).join(folder))?;
        let mut options = OpenOptions::new();
        options.append(true).create_new(true);
        for number in from..from.saturating_add(MAX_ATTEMPTS) {
            let name = format!("{number}.log");
            match held.open_with(&name, &options) {
                Ok(file) => {
                    let path = Path::new(FABER_FOLDER).join(folder).join(name);
                    return Ok((file.into_std(), path));
                }
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => (),
                Err(err) => return Err(err),
            }
        }
        Err(io::Error::other(format!("`{FABER_FOLDER}/{folder}` is full: remove old files")))
    }
}
