use std::{
    collections::VecDeque,
    ffi::OsString,
    fs, io,
    path::{Component, Path, PathBuf},
};

use nix::sys::statvfs::{FsFlags, statvfs};

const MAX_LINKS: usize = 40;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct ResolvedPath {
    /// The symlinks that were followed. Their own paths have no other symlinks.
    pub links: Vec<PathBuf>,
    pub end: PathBuf,
    pub exists: bool,
}

impl ResolvedPath {
    /// Resolves a path. A relative path starts at the working directory.
    ///
    /// # Errors
    ///
    /// If symlinks form a loop, or the file system fails.
    pub fn resolve(path: &Path) -> io::Result<Self> {
        let mut resolved = Self { end: "/".into(), exists: true, ..Self::default() };
        let mut rest: VecDeque<OsString> = path_names(&std::path::absolute(path)?);
        while let Some(name) = rest.pop_front() {
            if name == ".." {
                resolved.end.pop();
                continue;
            }
            let next = resolved.end.join(name);
            let meta = match next.symlink_metadata() {
                Ok(meta) => meta,
                Err(err) if is_missing(&err) => {
                    resolved.exists = false;
                    resolved.end = next;
                    // Stops here, because a missing path has no symlinks.
                    resolved.end.extend(rest);
                    return Ok(resolved);
                }
                Err(err) => return Err(err),
            };
            if !meta.is_symlink() {
                resolved.end = next;
                continue;
            }
            if resolved.links.len() == MAX_LINKS {
                return Err(io::Error::other("its symlinks lead in a circle"));
            }
            let target = fs::read_link(&next)?;
            resolved.links.push(next);
            if target.is_absolute() {
                resolved.end = "/".into();
            }
            for name in path_names(&target).into_iter().rev() {
                rest.push_front(name);
            }
        }
        Ok(resolved)
    }

    /// Returns whether the final path does not exist and can be created.
    pub(super) fn can_be_created(&self) -> bool {
        let there = self.end.ancestors().skip(1).find(|folder| folder.exists());
        let is_fixed = |folder: &Path| {
            statvfs(folder).is_ok_and(|stat| stat.flags().contains(FsFlags::ST_RDONLY))
        };
        !self.exists && !there.is_some_and(is_fixed)
    }
}

/// Returns whether a path does not exist, or cannot be reached because of a file or a missing
/// permission in the path.
fn is_missing(err: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(err.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn path_names(path: &Path) -> VecDeque<OsString> {
    let is_name =
        |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
    path.components().filter(is_name).map(|part| part.as_os_str().to_owned()).collect()
}

/// Returns whether a path is inside one of the folders. A folder itself does not count, because the
/// configuration names it.
pub(super) fn is_within(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| path != *folder && path.starts_with(folder))
}

pub(super) fn canonical_paths(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<PathBuf> {
    paths.into_iter().filter_map(|path| path.as_ref().canonicalize().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn symlinks_are_resolved_to_their_final_target() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("deep/er")).unwrap();
        fs::write(root.join("deep/file"), "").unwrap();
        for (target, link) in [
            ("deep", "short"),
            ("../deep/file", "deep/up"),
            ("nowhere/x", "loose"),
            ("round", "round"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(root.join("short"), root.join("long")).unwrap();
        let followed = |path: &str| {
            let resolved =
                ResolvedPath::resolve(&root.join(path)).map_err(|err| err.to_string())?;
            let relative = |path: &PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
            let links: Vec<_> = resolved.links.iter().map(relative).collect();
            Ok::<_, String>((links.join(" "), relative(&resolved.end), resolved.exists))
        };
        for (path, links, end, is_there) in [
            ("deep/file", "", "deep/file", true),
            ("deep/../deep/./file", "", "deep/file", true),
            ("short/file", "short", "deep/file", true),
            ("long/up", "long short deep/up", "deep/file", true),
            ("long/new/er", "long short", "deep/new/er", false),
            ("loose", "loose", "nowhere/x", false),
            ("deep/file/x", "", "deep/file/x", false),
        ] {
            assert_eq!(followed(path), Ok((links.to_owned(), end.to_owned(), is_there)), "{path}");
        }
        assert_eq!(followed("round"), Err("its symlinks lead in a circle".to_owned()));
    }
}
