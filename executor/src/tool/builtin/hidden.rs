//! What lies beneath a root and is Faber's own: its configuration, where it keeps its data, and the
//! programs that its tools run.
//!
//! Whoever may change these decides what Faber does next, and closing the store's file here would
//! drop the locks that SQLite has on it. So tools do not even open them: not by name, not behind
//! a symlink, and not by another name of the same file.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use shared::tool::ToolError;

use super::root::{at, shown};
use crate::confine::Way;

/// Files and folders of which tools that work beneath a root touch nothing.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// Those beneath the root, as paths from there.
    inside: Vec<PathBuf>,
    /// The others. A file there may have another name beneath the root.
    outside: Vec<PathBuf>,
}

/// How many files and folders outside of a root are looked at.
const ENTRIES: usize = 1_000_000;

impl Hidden {
    /// Keeps tools that work beneath `root`, which is a path without symlinks, away from `paths`.
    pub(crate) fn from(root: &Path, paths: &[PathBuf]) -> Self {
        let mut hidden = Self::default();
        for path in paths.iter().flat_map(|it| real(it)) {
            match path.strip_prefix(root) {
                // A root that somebody puts there is meant.
                Ok(inside) if inside.as_os_str().is_empty() => (),
                Ok(inside) => hidden.inside.push(inside.to_owned()),
                Err(_) => hidden.outside.push(path),
            }
        }
        hidden
    }

    /// Returns whether a path without symlinks is one of them, or beneath one.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        self.inside.iter().any(|it| path.starts_with(it))
    }

    /// Refuses a path that leads to one of them.
    pub(crate) fn check(&self, dir: &Dir, path: &Path, given: &str) -> Result<(), ToolError> {
        let is_one = !self.is_empty() && (self.leads(dir, path) || self.is_another(dir, path));
        if is_one { Err(refused(given)) } else { Ok(()) }
    }

    /// Returns whether there is anything to keep tools away from.
    pub(crate) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.outside.is_empty()
    }

    /// Returns whether a file, by whatever name it was found, is one of them.
    pub(crate) fn is_own(&self, dir: &Dir, meta: &Metadata) -> bool {
        let is_outside = || meta.nlink() > 1 && self.marks_outside().contains(&mark(meta));
        self.is_own_inside(dir, meta) || is_outside()
    }

    /// Returns whether it is one of those beneath the root.
    pub(crate) fn is_own_inside(&self, dir: &Dir, meta: &Metadata) -> bool {
        let own = mark(meta);
        self.inside.iter().any(|it| dir.metadata(it).is_ok_and(|it| mark(&it) == own))
    }

    /// Returns by what they are known now, as far as they are there and could be met beneath the root.
    pub(crate) fn marks(&self, dir: &Dir) -> Vec<Mark> {
        let inside = self.inside.iter().filter_map(|it| Some(mark(&dir.metadata(it).ok()?)));
        inside.chain(self.marks_outside()).collect()
    }

    /// Returns by what those are known that lie elsewhere and have more than one name.
    fn marks_outside(&self) -> Vec<Mark> {
        let (mut marks, mut next) = (Vec::new(), self.outside.clone());
        let mut left = ENTRIES;
        while let Some(path) = next.pop() {
            let Ok(meta) = path.symlink_metadata() else { continue };
            if meta.is_dir() {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten().take(left);
                let before = next.len();
                next.extend(entries.map(|it| it.path()));
                left -= next.len() - before;
            } else if meta.nlink() > 1 {
                marks.push((meta.dev(), meta.ino()));
            }
        }
        marks
    }

    /// Returns whether a path leads to one of them, as far as it is there.
    fn leads(&self, dir: &Dir, path: &Path) -> bool {
        let there = path.ancestors().find(|it| dir.symlink_metadata(at(it)).is_ok());
        let Some(there) = there else { return self.covers(path) };
        let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
        let real = dir.canonicalize(at(there)).unwrap_or_else(|_| there.to_owned());
        // The root itself is `.`.
        let real: PathBuf = real.components().filter(|it| it.as_os_str() != ".").collect();
        self.covers(&real.join(rest)) || self.covers(path)
    }

    /// Returns whether a file is one of them by another name.
    fn is_another(&self, dir: &Dir, path: &Path) -> bool {
        dir.metadata(at(path)).is_ok_and(|it| self.is_own(dir, &it))
    }
}

/// By what a file is known, whatever it is called: its device, and its number there.
pub(crate) type Mark = (u64, u64);

/// Returns by what a file is known.
pub(crate) fn mark(meta: &Metadata) -> Mark {
    (meta.dev(), meta.ino())
}

/// Returns what a path leads to, without symlinks, also where nothing is there yet: then the symlinks
/// that lead to nothing, too.
fn real(path: &Path) -> Vec<PathBuf> {
    let Ok(way) = Way::of(path) else { return Vec::new() };
    let loose = if way.is_there { Vec::new() } else { way.links };
    loose.into_iter().chain([way.end]).collect()
}

/// Makes the error of a path that leads to one of them.
pub(crate) fn refused(given: &str) -> ToolError {
    let given = shown(Path::new(given));
    let text = format!(
        "Refused: Path is Faber's own: {given} (its configuration, where it keeps its data, or what \
         its tools run: no tool reads or writes that)"
    );
    ToolError::failed(text).terminal()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A script in a folder that was not there yet could be written, and was run.
    #[test]
    fn what_is_not_there_yet_is_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("short")).unwrap();
        symlink("build/tool", root.join("tool")).unwrap();
        let own = ["bin/deep/run.sh", "short/faber.yaml", "tool", "../out"].map(|it| root.join(it));
        let hidden = Hidden::from(&root, &own);
        for (path, expected) in [
            ("bin/deep/run.sh", true),
            ("bin/deep/other", false),
            ("real/faber.yaml", true),
            ("real/other", false),
            ("tool", true),
            ("build/tool", true),
            ("out", false),
        ] {
            assert_eq!(hidden.covers(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn what_lies_elsewhere_is_known_by_its_other_names() {
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
        let hidden = Hidden::from(&work, &["faber.yaml", "data", "gone"].map(|it| root.join(it)));
        let dir = Dir::open_ambient_dir(&work, cap_std::ambient_authority()).unwrap();
        for (name, expected) in [("a", true), ("b", true), ("c", false), ("plain", false)] {
            let path = Path::new(name);
            assert_eq!(hidden.check(&dir, path, name).is_err(), expected, "{name}");
            let meta = dir.metadata(path).unwrap();
            assert_eq!(hidden.marks(&dir).contains(&mark(&meta)), expected, "{name}");
        }
    }
}
