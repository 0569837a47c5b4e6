//! Ids of the files in some folders, cached by folder.
//!
//! Adding or removing an entry changes the change time (`ctime`) of the folder. So a folder with
//! the same time is not listed again.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, Metadata},
    io, mem,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use super::FileId;

/// Maximum number of files and folders. It limits memory, because each id takes 16 bytes.
const MAX_ENTRIES: usize = 1_000_000;
/// A folder that changed within this time may change again without a new time stamp. This is more
/// than the resolution of any file system.
const SETTLING_SECONDS: i64 = 2;

pub(super) struct FileIdCache {
    /// Files and folders, without symlinks.
    paths: Vec<PathBuf>,
    max_entries: usize,
    /// A folder's listing is cached if the folder has not changed for this many seconds.
    settling_seconds: i64,
    folders: Mutex<CachedFolders>,
}

type CachedFolders = BTreeMap<PathBuf, CachedFolder>;

struct CachedFolder {
    state: FolderState,
    /// `true` if every later change gives the folder another time stamp.
    is_settled: bool,
    /// `true` if the listing stopped at the limit.
    is_cut: bool,
    files: Vec<FileId>,
    folders: Vec<PathBuf>,
}

type FolderState = (FileId, i64, i64);

impl FileIdCache {
    /// Covers the files in `paths`, and all files in the folders in `paths`.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            max_entries: MAX_ENTRIES,
            settling_seconds: SETTLING_SECONDS,
            folders: Mutex::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    #[cfg(test)]
    pub(super) fn set_limit(&mut self, max_entries: usize) {
        self.max_entries = max_entries;
    }

    /// Returns whether the file with this id is in `paths` or in a folder of `paths`.
    ///
    /// # Errors
    ///
    /// If the limit is exceeded or a folder cannot be read.
    pub(super) fn contains(&self, id: FileId) -> io::Result<bool> {
        let mut has = false;
        self.for_each_list(|files| has |= files.binary_search(&id).is_ok())?;
        Ok(has)
    }

    /// Returns all ids, sorted.
    ///
    /// # Errors
    ///
    /// If the limit is exceeded or a folder cannot be read.
    pub(super) fn sorted_ids(&self) -> io::Result<Vec<FileId>> {
        let mut all = Vec::new();
        self.for_each_list(|files| all.extend_from_slice(files))?;
        all.sort_unstable();
        Ok(all)
    }

    fn for_each_list(&self, on_list: impl FnMut(&[FileId])) -> io::Result<()> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = mem::take(&mut *folders);
        let seen = self.walk_folders(&mut before, &mut folders, on_list);
        if seen.is_err() {
            // Keeps the cached listings of the folders that the walk did not reach.
            folders.append(&mut before);
        }
        seen
    }

    fn walk_folders(
        &self,
        before: &mut CachedFolders,
        now: &mut CachedFolders,
        mut on_list: impl FnMut(&[FileId]),
    ) -> io::Result<()> {
        let (mut left, mut next) = (self.max_entries, Vec::new());
        for path in &self.paths {
            match ignore_missing(path.metadata())? {
                Some(meta) if meta.is_dir() => next.push(path.clone()),
                Some(meta) => on_list(&[file_id(&meta)]),
                None => (),
            }
        }
        while let Some(path) = next.pop() {
            let meta = ignore_missing(path.metadata())?.filter(Metadata::is_dir);
            let Some(meta) = meta.filter(|_| !now.contains_key(&path)) else { continue };
            let read = before.remove(&path).filter(|folder| folder.is_current(&meta, left));
            let folder = read.map_or_else(|| self.read(&path, &meta, left), Ok)?;
            let fits = left.checked_sub(folder.len());
            next.extend_from_slice(&folder.folders);
            on_list(&folder.files);
            now.insert(path, folder);
            left = fits.ok_or_else(|| too_many_error(self.max_entries))?;
        }
        Ok(())
    }

    /// Lists a folder. Reads at most one entry more than the limit, so that the caller can detect
    /// that the limit is exceeded.
    #[expect(clippy::disallowed_methods, reason = "file times use the same clock")]
    fn read(&self, path: &Path, meta: &Metadata, max_entries: usize) -> io::Result<CachedFolder> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or_default();
        let mut folder = CachedFolder {
            state: folder_state(meta),
            is_settled: now.saturating_sub(meta.ctime()) > self.settling_seconds,
            is_cut: false,
            files: Vec::new(),
            folders: Vec::new(),
        };
        let entries = ignore_missing(fs::read_dir(path))?;
        for entry in entries.into_iter().flatten() {
            if folder.len() > max_entries {
                folder.is_cut = true;
                break;
            }
            let Some(entry) = ignore_missing(entry)? else { continue };
            match ignore_missing(entry.metadata())? {
                Some(meta) if meta.is_dir() => folder.folders.push(entry.path()),
                Some(meta) => folder.files.push(file_id(&meta)),
                None => (),
            }
        }
        folder.files.sort_unstable();
        Ok(folder)
    }
}

impl CachedFolder {
    /// Returns whether the cached listing can be used: the folder has not changed, and a listing
    /// that was cut has more than the `left` entries that the limit still allows.
    fn is_current(&self, meta: &Metadata, left: usize) -> bool {
        let is_whole = !self.is_cut || self.len() > left;
        self.is_settled && self.state == folder_state(meta) && is_whole
    }

    fn len(&self) -> usize {
        self.files.len() + self.folders.len()
    }
}

impl Default for FileIdCache {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl fmt::Debug for FileIdCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Known").field(&self.paths).finish()
    }
}

fn file_id(meta: &Metadata) -> FileId {
    (meta.dev(), meta.ino())
}

fn folder_state(meta: &Metadata) -> FolderState {
    (file_id(meta), meta.ctime(), meta.ctime_nsec())
}

/// Returns `None` for a missing path, and for a path that Faber is not allowed to read, because
/// Faber cannot have files there.
fn ignore_missing<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match found {
        Err(err) if matches!(err.kind(), NotFound | NotADirectory | PermissionDenied) => Ok(None),
        found => found.map(Some),
    }
}

fn too_many_error(max_entries: usize) -> io::Error {
    io::Error::other(format!("Faber's own folders have more than {max_entries} files and folders"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct ProtectedFolder {
        folder: tempfile::TempDir,
        file_ids: FileIdCache,
    }

    impl ProtectedFolder {
        fn new(files: &[&str], protected_names: &[&str], settling_seconds: i64) -> Self {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                let path = folder.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, file).unwrap();
            }
            let protected_paths =
                protected_names.iter().map(|name| folder.path().join(name)).collect();
            Self {
                file_ids: FileIdCache { settling_seconds, ..FileIdCache::new(protected_paths) },
                folder,
            }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.folder.path().join(path)
        }

        fn is_protected(&self, path: &str) -> bool {
            let id = file_id(&self.path(path).metadata().unwrap());
            let has = self.file_ids.contains(id).unwrap();
            assert_eq!(self.file_ids.sorted_ids().unwrap().contains(&id), has, "{path}");
            has
        }

        /// Changes folders and makes sure that their time stamps change, even on a file system with
        /// a coarse clock.
        fn change(&self, folders: &[&str], change: impl FnOnce(&Self)) {
            let state =
                |name: &&str| self.path(name).metadata().ok().map(|meta| folder_state(&meta));
            let before: Vec<_> = folders.iter().map(state).collect();
            change(self);
            for (folder, before) in folders.iter().zip(before) {
                while before.is_some() && state(folder) == before {
                    let path = self.path(folder).join("tick");
                    fs::write(&path, "").unwrap();
                    fs::remove_file(path).unwrap();
                }
            }
        }
    }

    const SETTLED_AT_ONCE: i64 = -1;
    const NEVER_SETTLED: i64 = i64::MAX;

    #[test]
    fn protected_file_ids_stay_correct_after_links_and_renames() {
        for settling_seconds in [SETTLED_AT_ONCE, NEVER_SETTLED] {
            let files = ["data/a", "data/deep/b", "data/deep/er/c", "own.yaml", "other/d", "e"];
            let protected = ProtectedFolder::new(
                &files,
                &["data", "data/deep", "own.yaml", "gone"],
                settling_seconds,
            );
            let check = |more: &[&str]| {
                for file in files {
                    let is_protected = file.starts_with("data") || file == "own.yaml";
                    assert_eq!(
                        protected.is_protected(file),
                        is_protected || more.contains(&file),
                        "{file}"
                    );
                }
            };
            let link = |from: &str, to: &str| {
                fs::hard_link(protected.path(from), protected.path(to)).unwrap();
            };
            let rename = |from: &str, to: &str| {
                fs::rename(protected.path(from), protected.path(to)).unwrap();
            };
            check(&[]);
            check(&[]);
            protected.change(&["data/deep/er"], |_| link("other/d", "data/deep/er/d"));
            check(&["other/d"]);
            protected.change(&["data", "data/deep"], |_| rename("data/deep/er", "data/moved"));
            protected.change(&["data/moved"], |protected| {
                link("e", "data/moved/e");
                fs::remove_file(protected.path("data/moved/d")).unwrap();
            });
            assert!(
                protected.is_protected("e")
                    && protected.is_protected("data/moved/c")
                    && !protected.is_protected("other/d")
            );
            fs::write(protected.path("new"), "own").unwrap();
            rename("new", "own.yaml");
            assert!(protected.is_protected("own.yaml"));
            fs::create_dir(protected.path("gone")).unwrap();
            assert!(!protected.is_protected("other/d"));
            protected.change(&["gone"], |_| link("other/d", "gone/x"));
            assert!(protected.is_protected("other/d"));
            rename("own.yaml", "real.yaml");
            symlink("real.yaml", protected.path("own.yaml")).unwrap();
            assert!(protected.is_protected("real.yaml"), "Faber reads the current files");
        }
    }

    /// Regression: each file with two names caused a walk through all of Faber's folders.
    #[test]
    fn unchanged_folders_are_not_read_again() {
        let protected =
            ProtectedFolder::new(&["data/a", "data/deep/b"], &["data"], SETTLED_AT_ONCE);
        // A listing that is still cached has the same address in memory.
        let lists = || {
            assert!(protected.is_protected("data/deep/b"));
            let folders = protected.file_ids.folders.lock().unwrap();
            folders.values().map(|folder| folder.files.as_ptr()).collect::<Vec<_>>()
        };
        let before = lists();
        assert_eq!(lists(), before);
        protected.change(&["data"], |protected| fs::write(protected.path("data/c"), "").unwrap());
        assert!(protected.is_protected("data/c"));
        assert_eq!(lists()[1], before[1], "only the folder that has changed is read");
    }

    /// Regression: files beyond the limit were not protected.
    #[test]
    fn more_protected_files_than_the_limit_are_an_error() {
        let files = ["data/a", "data/b", "data/deep/c", "data/deep/d"];
        for settling_seconds in [SETTLED_AT_ONCE, NEVER_SETTLED] {
            let mut protected = ProtectedFolder::new(&files, &["data"], settling_seconds);
            for max_entries in 0..5 {
                protected.file_ids.set_limit(max_entries);
                for _ in 0..2 {
                    let err = protected.file_ids.contains((0, 0)).unwrap_err().to_string();
                    assert!(err.contains("more than"), "{err}");
                }
            }
            protected.file_ids.set_limit(5);
            assert!(protected.is_protected("data/deep/d"));
            protected.file_ids.set_limit(4);
            assert!(protected.file_ids.sorted_ids().is_err());
            protected.change(&["data/deep"], |protected| {
                fs::remove_file(protected.path("data/deep/c")).unwrap();
            });
            assert!(protected.is_protected("data/deep/d"));
        }
    }
}
