//! Files below a root that tools must not touch, because a program that can change them controls
//! Faber.
//!
//! Tools do not even open these files: closing the store's file would drop the locks that SQLite
//! holds.

mod file_ids;

use std::{
    io,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use sandbox::ResolvedPath;
use shared::tool::ToolError;

use self::file_ids::FileIdCache;
use super::{display_path, os_path};

#[derive(Debug, Default)]
pub(crate) struct ProtectedFiles {
    paths_in_root: Vec<PathBuf>,
    /// Ids of all protected files, including files outside the root, because hard links to them may
    /// exist below the root.
    file_ids: FileIdCache,
}

impl ProtectedFiles {
    /// Protects `paths` from tools that work below `root`. The root must have no symlinks.
    pub(crate) fn beneath_root(root: &Path, paths: &[PathBuf]) -> Self {
        // Leaves out the root itself, because the configuration may name a protected folder as the
        // root.
        let protected_paths: Vec<_> =
            paths.iter().flat_map(|path| resolve_ends(path)).filter(|path| path != root).collect();
        let paths_in_root = protected_paths
            .iter()
            .filter_map(|path| path.strip_prefix(root).ok())
            .map(Path::to_owned);
        Self { paths_in_root: paths_in_root.collect(), file_ids: FileIdCache::new(protected_paths) }
    }

    /// Returns whether a path without symlinks is a protected path, or is below a protected path.
    pub(crate) fn is_protected_path(&self, path: &Path) -> bool {
        self.paths_in_root.iter().any(|file| path.starts_with(file))
    }

    pub(crate) fn check_path(
        &self,
        dir: &Dir,
        path: &Path,
        caller_path: &str,
    ) -> Result<(), ToolError> {
        if self.is_empty() {
            return Ok(());
        }
        let is_protected = self.has_target_inside(dir, path)
            || self.is_alias_of_protected(dir, path, caller_path)?;
        if is_protected { Err(protected_error(caller_path)) } else { Ok(()) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.file_ids.is_empty()
    }

    /// Returns whether a file is protected, under any name.
    ///
    /// # Errors
    ///
    /// If the ids of the protected files are unknown.
    pub(crate) fn is_protected(&self, dir: &Dir, meta: &Metadata) -> io::Result<bool> {
        let is_inside = self.is_protected_inside(dir, meta);
        if is_inside || meta.nlink() == 1 {
            return Ok(is_inside);
        }
        self.file_ids.contains(file_id(meta)).map_err(|err| unknown_owner_error(&err))
    }

    /// Returns whether a file is one of the protected paths below the root.
    pub(crate) fn is_protected_inside(&self, dir: &Dir, meta: &Metadata) -> bool {
        self.inner_file_ids(dir).any(|id| id == file_id(meta))
    }

    pub(crate) fn inner_file_ids(&self, dir: &Dir) -> impl Iterator<Item = FileId> {
        self.paths_in_root.iter().filter_map(|path| Some(file_id(&dir.metadata(path).ok()?)))
    }

    /// Returns the sorted ids of all protected files.
    ///
    /// # Errors
    ///
    /// If the ids are unknown.
    pub(crate) fn all_file_ids(&self) -> io::Result<Vec<FileId>> {
        self.file_ids.sorted_ids().map_err(|err| unknown_owner_error(&err))
    }

    fn has_target_inside(&self, dir: &Dir, path: &Path) -> bool {
        let existing =
            path.ancestors().find(|ancestor| dir.symlink_metadata(os_path(ancestor)).is_ok());
        let Some(existing) = existing else { return self.is_protected_path(path) };
        let rest = path.strip_prefix(existing).unwrap_or(Path::new(""));
        let real = dir.canonicalize(os_path(existing)).unwrap_or_else(|_| existing.to_owned());
        // Drops `.`, which is the canonical path of the root.
        let real: PathBuf = real.components().filter(|part| part.as_os_str() != ".").collect();
        self.is_protected_path(&real.join(rest)) || self.is_protected_path(path)
    }

    fn is_alias_of_protected(
        &self,
        dir: &Dir,
        path: &Path,
        caller_path: &str,
    ) -> Result<bool, ToolError> {
        let Ok(meta) = dir.metadata(os_path(path)) else { return Ok(false) };
        // Compares a folder only with the protected paths below the root, because folders have no
        // hard links.
        if meta.is_dir() {
            return Ok(self.is_protected_inside(dir, &meta));
        }
        self.is_protected(dir, &meta).map_err(|err| unknown_links_error(caller_path, &err))
    }
}

/// Device and inode number of a file. They are the same under all its names.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file_id(meta: &Metadata) -> FileId {
    (meta.dev(), meta.ino())
}

/// Resolves a path. If the last part does not exist, also returns the symlinks that lead there.
fn resolve_ends(path: &Path) -> Vec<PathBuf> {
    let Ok(resolved) = ResolvedPath::resolve(path) else { return Vec::new() };
    let loose = if resolved.exists { Vec::new() } else { resolved.links };
    loose.into_iter().chain([resolved.end]).collect()
}

pub(crate) fn protected_error(caller_path: &str) -> ToolError {
    let caller_path = display_path(Path::new(caller_path));
    let text = format!(
        "Refused: Path is Faber's own: {caller_path} (its configuration, its data, or a program of its \
         tools: no tool may read or write it)"
    );
    ToolError::failed(text).without_retry()
}

/// The error for a file with several names when it is unknown which files are protected.
pub(crate) fn unknown_links_error(caller_path: &str, err: &io::Error) -> ToolError {
    ToolError::failed(format!("Refused: {}: {err}", display_path(Path::new(caller_path))))
        .without_retry()
}

fn unknown_owner_error(err: &io::Error) -> io::Error {
    io::Error::other(format!(
        "it has other names (hard links), and it is unknown whether it is Faber's own ({err}): \
         replace it by a copy (`cp -p X Y && mv Y X`)"
    ))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// Regression: a tool wrote a script into a folder that did not exist yet, and Faber then ran
    /// the script.
    #[test]
    fn a_protected_path_that_does_not_exist_yet_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("short")).unwrap();
        symlink("build/tool", root.join("tool")).unwrap();
        let protected_paths =
            ["bin/deep/run.sh", "short/faber.yaml", "tool", "../out"].map(|name| root.join(name));
        let hidden = ProtectedFiles::beneath_root(&root, &protected_paths);
        for (path, expected) in [
            ("bin/deep/run.sh", true),
            ("bin/deep/other", false),
            ("real/faber.yaml", true),
            ("real/other", false),
            ("tool", true),
            ("build/tool", true),
            ("out", false),
        ] {
            assert_eq!(hidden.is_protected_path(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn hard_links_to_protected_files_outside_the_root_are_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("work")).unwrap();
        fs::create_dir_all(root.join("data/logins")).unwrap();
        for name in ["faber.yaml", "data/logins/one", "other", "work/plain"] {
            fs::write(root.join(name), name).unwrap();
        }
        for (from, to) in [("faber.yaml", "a"), ("data/logins/one", "b"), ("other", "c")] {
            fs::hard_link(root.join(from), root.join("work").join(to)).unwrap();
        }
        let work = root.join("work");
        let hidden = ProtectedFiles::beneath_root(
            &work,
            &["faber.yaml", "data", "gone"].map(|name| root.join(name)),
        );
        let dir = Dir::open_ambient_dir(&work, cap_std::ambient_authority()).unwrap();
        for (name, expected) in [("a", true), ("b", true), ("c", false), ("plain", false)] {
            let path = Path::new(name);
            assert_eq!(hidden.check_path(&dir, path, name).is_err(), expected, "{name}");
            let meta = dir.metadata(path).unwrap();
            assert_eq!(
                hidden.all_file_ids().unwrap().contains(&file_id(&meta)),
                expected,
                "{name}"
            );
        }
    }

    /// Regression: tools read a file of a protected folder through a hard link below the root.
    #[test]
    fn hard_links_to_files_of_a_protected_folder_are_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data/logins")).unwrap();
        fs::write(root.join("data/logins/one"), "own").unwrap();
        fs::write(root.join("plain"), "").unwrap();
        fs::hard_link(root.join("data/logins/one"), root.join("twin")).unwrap();
        fs::hard_link(root.join("plain"), root.join("plain.too")).unwrap();
        let hidden = ProtectedFiles::beneath_root(&root, &[root.join("data")]);
        let dir = Dir::open_ambient_dir(&root, cap_std::ambient_authority()).unwrap();
        for (name, expected) in [("twin", true), ("plain", false), ("plain.too", false)] {
            assert_eq!(hidden.check_path(&dir, Path::new(name), name).is_err(), expected, "{name}");
        }
        assert!(!hidden.is_protected(&dir, &dir.metadata(".").unwrap()).unwrap());
    }

    #[test]
    fn a_file_with_unknown_hard_links_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data")).unwrap();
        for name in ["data/own", "two", "one"] {
            fs::write(root.join(name), "").unwrap();
        }
        fs::hard_link(root.join("two"), root.join("too")).unwrap();
        let mut hidden = ProtectedFiles::beneath_root(&root, &[root.join("data")]);
        hidden.file_ids.set_limit(0);
        let dir = Dir::open_ambient_dir(&root, cap_std::ambient_authority()).unwrap();
        let err = hidden.check_path(&dir, Path::new("two"), "two").unwrap_err().to_string();
        assert!(err.starts_with("tool.failed: Refused: two: it has other names"), "{err}");
        assert!(err.contains("more than 0 files and folders"), "{err}");
        assert!(hidden.check_path(&dir, Path::new("one"), "one").is_ok());
        assert!(hidden.all_file_ids().is_err());
    }
}
