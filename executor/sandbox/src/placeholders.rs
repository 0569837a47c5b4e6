//! Placeholders for missing files of Faber.
//!
//! Landlock and mounts can protect a file, but not a path at which no file exists yet. So a
//! placeholder is created before a command runs that could create such a file.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use nix::libc;

use super::resolved_path::{ResolvedPath, canonical_paths, is_within};

const MARKING_TIME: Duration = Duration::from_secs(1);
/// The content of placeholders that people may open.
const PLACEHOLDER_TEXT: &str =
    "# Faber keeps this name while it runs, so that no command takes it.\n";
const MAX_ATTEMPTS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Placeholders(Mutex<BTreeMap<PathBuf, Placeholder>>);

#[derive(Debug)]
struct Placeholder {
    /// Locked with a shared lock. A process that gets an exclusive lock knows that it is the last
    /// user.
    file: File,
    folders: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceholderKind {
    File,
    Folder,
}

impl Placeholders {
    /// Creates placeholders for missing files that a command with the folders `write` could create.
    ///
    /// # Errors
    ///
    /// If a placeholder cannot be created. The error names the path and a remedy.
    pub(super) fn create_missing<'a>(
        &self,
        protected_paths: impl IntoIterator<Item = (&'a Path, PlaceholderKind)>,
        write: &[PathBuf],
    ) -> io::Result<()> {
        let write = canonical_paths(write);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Checks the file, because another program may have removed or used it.
        held.retain(|path, placeholder| placeholder.is_unchanged(path));
        for (path, kind) in protected_paths {
            let about = |err| unprotected_error(path, &err);
            let resolved = ResolvedPath::resolve(path).map_err(about)?;
            if held.contains_key(&resolved.end) || !is_within(&resolved.end, &write) {
                continue;
            }
            if !resolved.can_be_created() && !is_unused_placeholder(&resolved.end) {
                continue;
            }
            if let Some(placeholder) = create_or_adopt(&resolved.end, kind).map_err(about)? {
                held.insert(resolved.end, placeholder);
            }
        }
        Ok(())
    }
}

impl Drop for Placeholders {
    fn drop(&mut self) {
        let held = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        for (path, placeholder) in held {
            placeholder.remove(&path);
        }
    }
}

impl Placeholder {
    fn is_unchanged(&self, path: &Path) -> bool {
        let file_id = self.file.metadata().map(|meta| (meta.dev(), meta.ino()));
        let there = path.symlink_metadata().map(|meta| (meta.dev(), meta.ino(), is_unused(&meta)));
        matches!((file_id, there), (Ok(file_id), Ok((dev, ino, true))) if file_id == (dev, ino))
    }

    fn remove(self, path: &Path) {
        if self.file.try_lock().is_err() || !self.is_unchanged(path) {
            return;
        }
        // Ignores the error, because the next Faber process recognises a placeholder that could not
        // be removed.
        let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        for folder in self.folders.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Creates a placeholder, or shares the placeholder of another process. Returns `None` if another
/// file exists.
fn create_or_adopt(path: &Path, kind: PlaceholderKind) -> io::Result<Option<Placeholder>> {
    let mut folders = Vec::new();
    for _ in 0..MAX_ATTEMPTS {
        folders.extend(create_folders(path)?);
        let file = match create_placeholder(path, kind) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => None,
            made => Some(made?),
        };
        let Some(file) = file.map_or_else(|| open_existing(path), |file| Ok(Some(file)))? else {
            return Ok(None);
        };
        // On a file system without locks, the placeholder is not removed at the end.
        let _ = file.lock_shared();
        let held = Placeholder { file, folders };
        if held.is_unchanged(path) {
            return Ok(Some(held));
        }
        // Another process removed the placeholder before it was locked.
        folders = held.folders;
        if path.symlink_metadata().is_ok() {
            return Ok(None);
        }
    }
    Err(io::Error::other("another program keeps creating and removing it"))
}

/// Opens an existing placeholder. Does not open another file: closing the store's file would drop
/// the locks that SQLite holds on it.
fn open_existing(path: &Path) -> io::Result<Option<File>> {
    if !is_unused_placeholder(path) {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.open(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

fn create_folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let missing = path.ancestors().skip(1).take_while(|folder| folder.symlink_metadata().is_err());
    let mut missing: Vec<_> = missing.map(Path::to_owned).collect();
    missing.reverse();
    for folder in &missing {
        match fs::create_dir(folder) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err),
            _ => (),
        }
    }
    Ok(missing)
}

fn create_placeholder(path: &Path, kind: PlaceholderKind) -> io::Result<File> {
    let file = match kind {
        PlaceholderKind::Folder => {
            // Gives access only to Faber's user, as for the store.
            DirBuilder::new().mode(0o700).create(path)?;
            File::open(path)?
        }
        PlaceholderKind::File => {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
            if is_yaml(path) {
                file.write_all(PLACEHOLDER_TEXT.as_bytes())?;
            }
            file
        }
    };
    // On a file system that cannot store this time, the placeholder is not removed at the end.
    let _ = file.set_modified(SystemTime::UNIX_EPOCH + MARKING_TIME);
    Ok(file)
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn is_unused_placeholder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| is_unused(&meta))
}

/// Returns whether a file is a placeholder that no program has written to.
fn is_unused(meta: &Metadata) -> bool {
    let is_bare = meta.is_dir() || meta.len() == 0 || meta.len() == PLACEHOLDER_TEXT.len() as u64;
    let marking_seconds = i64::try_from(MARKING_TIME.as_secs()).unwrap_or_default();
    is_bare && !meta.is_symlink() && meta.mtime() == marking_seconds
}

pub(super) fn unprotected_error(path: &Path, err: &io::Error) -> io::Error {
    io::Error::other(format!(
        "commands could create Faber's own file `{}`, and this cannot be prevented ({err}): give \
         the commands a separate folder, such as `root: ./work`",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestFolder {
        folder: tempfile::TempDir,
    }

    impl TestFolder {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("root")).unwrap();
            Self { folder }
        }

        fn root(&self) -> PathBuf {
            self.folder.path().join("root")
        }

        fn create_placeholders(
            &self,
            placeholders: &Placeholders,
            protected_names: &[&str],
        ) -> io::Result<()> {
            let protected_paths: Vec<_> =
                protected_names.iter().map(|name| self.root().join(name)).collect();
            let protected_files = protected_paths.iter().map(|path| {
                let kind = if path.ends_with("data") {
                    PlaceholderKind::Folder
                } else {
                    PlaceholderKind::File
                };
                (path.as_path(), kind)
            });
            placeholders.create_missing(protected_files, &[self.root()])
        }

        fn names(&self) -> String {
            fn list(folder: &Path, below: &Path, names: &mut Vec<String>) {
                for entry in fs::read_dir(folder).unwrap().flatten() {
                    names.push(entry.path().strip_prefix(below).unwrap().display().to_string());
                    if entry.file_type().unwrap().is_dir() {
                        list(&entry.path(), below, names);
                    }
                }
            }
            let mut names = Vec::new();
            list(self.folder.path(), self.folder.path(), &mut names);
            names.sort();
            names.join(" ")
        }
    }

    #[test]
    fn missing_protected_paths_get_placeholders_until_the_end() {
        let test_folder = TestFolder::new();
        fs::write(test_folder.root().join("store.db"), "pages").unwrap();
        let protected_names =
            ["store.db", "store.db-journal", "faber.yaml", "data", "bin/x/run.sh", "../not"];
        let placeholders = Placeholders::default();
        test_folder.create_placeholders(&placeholders, &protected_names).unwrap();
        let taken = "root root/bin root/bin/x root/bin/x/run.sh root/data root/faber.yaml \
                     root/store.db root/store.db-journal";
        assert_eq!(test_folder.names(), taken);
        // The placeholder of a journal must be empty, because SQLite rolls back the contents of a
        // journal.
        assert_eq!(fs::read(test_folder.root().join("store.db-journal")).unwrap(), b"");
        assert_eq!(
            fs::read_to_string(test_folder.root().join("faber.yaml")).unwrap(),
            PLACEHOLDER_TEXT
        );
        fs::remove_file(test_folder.root().join("faber.yaml")).unwrap();
        test_folder.create_placeholders(&placeholders, &protected_names).unwrap();
        assert_eq!(test_folder.names(), taken, "a removed placeholder is created again");
        drop(placeholders);
        assert_eq!(test_folder.names(), "root root/store.db");
    }

    #[test]
    fn a_placeholder_that_got_content_stays() {
        let test_folder = TestFolder::new();
        let placeholders = Placeholders::default();
        let protected_names = ["faber.yaml", "run.sh", "data", "bin/tool"];
        test_folder.create_placeholders(&placeholders, &protected_names).unwrap();
        fs::write(test_folder.root().join("faber.yaml"), "store: memory").unwrap();
        fs::write(test_folder.root().join("data/file"), "").unwrap();
        fs::write(test_folder.root().join("bin/other"), "").unwrap();
        test_folder.create_placeholders(&placeholders, &protected_names).unwrap();
        drop(placeholders);
        let left = "root root/bin root/bin/other root/data root/data/file root/faber.yaml";
        assert_eq!(test_folder.names(), left);
    }

    #[test]
    fn the_last_process_removes_a_placeholder() {
        let test_folder = TestFolder::new();
        let (first, second) = (Placeholders::default(), Placeholders::default());
        test_folder.create_placeholders(&first, &["faber.yaml"]).unwrap();
        test_folder.create_placeholders(&second, &["faber.yaml"]).unwrap();
        drop(first);
        assert_eq!(test_folder.names(), "root root/faber.yaml");
        drop(second);
        assert_eq!(test_folder.names(), "root");
        // The placeholder of a killed process stays, and the next process recognises it.
        let killed = Placeholders::default();
        test_folder.create_placeholders(&killed, &["faber.yaml"]).unwrap();
        drop(std::mem::take(&mut *killed.0.lock().unwrap()));
        drop(killed);
        fs::write(test_folder.root().join("empty.yaml"), "").unwrap();
        let next = Placeholders::default();
        test_folder.create_placeholders(&next, &["faber.yaml", "empty.yaml"]).unwrap();
        drop(next);
        assert_eq!(test_folder.names(), "root root/empty.yaml");
    }

    #[test]
    fn a_placeholder_that_cannot_be_created_is_an_error() {
        let test_folder = TestFolder::new();
        fs::write(test_folder.root().join("file"), "").unwrap();
        let err = test_folder
            .create_placeholders(&Placeholders::default(), &["file/run.sh"])
            .unwrap_err()
            .to_string();
        assert!(err.contains("file/run.sh`, and this cannot be prevented"), "{err}");
        assert!(err.contains("root: ./work"), "{err}");
    }
}
