use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    ops::ControlFlow,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::outermost_paths;

/// Maximum number of files and folders to visit. A visit of so many files takes seconds.
const MAX_ENTRIES: usize = 1_000_000;

/// Device and inode number of a file. They are the same under all its names.
type FileId = (u64, u64);

/// Returns the hard links in `folders` to files in `protected_paths`. Paths must have no symlinks.
///
/// # Errors
///
/// If the visited folders have more than [`MAX_ENTRIES`] files and folders.
pub(super) fn find_hard_links(
    protected_paths: &[PathBuf],
    folders: &[PathBuf],
) -> io::Result<Vec<PathBuf>> {
    find_links_within(protected_paths, folders, MAX_ENTRIES)
}

fn find_links_within(
    protected_paths: &[PathBuf],
    folders: &[PathBuf],
    mut entries_left: usize,
) -> io::Result<Vec<PathBuf>> {
    let protected_paths = outermost_paths(protected_paths.to_vec());
    // Number of names that are not yet found, by file.
    let mut wanted: BTreeMap<FileId, u64> = BTreeMap::new();
    for path in &protected_paths {
        visit_files(path, &mut entries_left, |_, meta| {
            if meta.nlink() > 1 {
                let names = wanted.entry(file_id(meta)).or_insert(meta.nlink());
                *names = names.saturating_sub(1);
            }
            ControlFlow::Continue(())
        })?;
    }
    wanted.retain(|_, names| *names > 0);
    let mut found = Vec::new();
    for folder in folders {
        if wanted.is_empty() {
            break;
        }
        visit_files(folder, &mut entries_left, |path, meta| {
            let is_own = || protected_paths.iter().any(|own_path| path.starts_with(own_path));
            if let Some(names) = wanted.get_mut(&file_id(meta)).filter(|_| !is_own()) {
                found.push(path.to_owned());
                *names = names.saturating_sub(1);
                wanted.retain(|_, names| *names > 0);
            }
            if wanted.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
    }
    Ok(found)
}

/// Visits a file, or all files in a folder. Skips unreadable folders, because the command cannot
/// read them either.
fn visit_files(
    folder: &Path,
    entries_left: &mut usize,
    mut visit: impl FnMut(&Path, &Metadata) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut next = vec![folder.to_owned()];
    while let Some(path) = next.pop() {
        let Ok(meta) = path.symlink_metadata() else { continue };
        if meta.is_dir() {
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                *entries_left = entries_left.checked_sub(1).ok_or_else(too_many_error)?;
                next.push(entry.path());
            }
        } else if visit(&path, &meta).is_break() {
            break;
        }
    }
    Ok(())
}

fn file_id(meta: &Metadata) -> FileId {
    (meta.dev(), meta.ino())
}

fn too_many_error() -> io::Error {
    io::Error::other(format!(
        "a file of Faber has other names (hard links) that were not found among {MAX_ENTRIES} files: \
         replace it by a copy (`cp -p X Y && mv Y X`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_links_to_protected_files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = |name: &str| folder.path().join(name);
        fs::create_dir_all(path_of("root/deep")).unwrap();
        fs::create_dir_all(path_of("data")).unwrap();
        for own in ["faber.yaml", "root/run.sh", "data/faber.db", "alone"] {
            fs::write(path_of(own), own).unwrap();
        }
        for (from, to) in [
            ("faber.yaml", "root/deep/hard.yaml"),
            ("data/faber.db", "root/copy.db"),
            ("root/run.sh", "elsewhere"),
            ("data/faber.db", "data/twice.db"),
        ] {
            fs::hard_link(path_of(from), path_of(to)).unwrap();
        }
        let protected_paths = ["faber.yaml", "root/run.sh", "data", "alone"].map(path_of);
        let mut found = find_hard_links(&protected_paths, &[path_of("root")]).unwrap();
        found.sort();
        assert_eq!(found, [path_of("root/copy.db"), path_of("root/deep/hard.yaml")]);
        // Some files are listed twice, because the store is in the data folder.
        let twice =
            ["data/faber.db", "faber.yaml", "data", "faber.yaml", "data/twice.db"].map(path_of);
        let mut found = find_hard_links(&twice, &[path_of("root")]).unwrap();
        found.sort();
        assert_eq!(found, [path_of("root/copy.db"), path_of("root/deep/hard.yaml")]);
        let named = ["data", "root"].map(path_of);
        assert_eq!(
            find_hard_links(&protected_paths[2..], &named).unwrap(),
            [path_of("root/copy.db")]
        );
        assert_eq!(find_hard_links(&protected_paths[3..], &named).unwrap(), [] as [PathBuf; 0]);
        let err = find_links_within(&protected_paths, &named, 3).unwrap_err().to_string();
        assert!(err.contains("hard links"), "{err}");
        // A file without other names needs no visit.
        assert!(find_links_within(&protected_paths[3..], &named, 0).is_ok());
    }
}
