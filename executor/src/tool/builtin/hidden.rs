//! What lies beneath a root and is Faber's own: its configuration, where it keeps its data, and the
//! programs that its tools run.
//!
//! Whoever may change these decides what Faber does next, and closing the store's file here would
//! drop the locks that SQLite has on it. So tools do not even open them: not by name, not behind
//! a symlink, and not by another name of the same file.

use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use shared::tool::ToolError;

use super::root::{at, shown};
use crate::confine::Way;

/// Files and folders beneath a root that tools do not touch.
#[derive(Debug, Default)]
pub(crate) struct Hidden(Vec<PathBuf>);

impl Hidden {
    /// Takes of `paths` what lies beneath `root`, which is a path without symlinks.
    pub(crate) fn beneath(root: &Path, paths: &[PathBuf]) -> Self {
        let inside = |path: PathBuf| {
            let inside = path.strip_prefix(root).ok()?.to_owned();
            // A root that somebody puts there is meant.
            (!inside.as_os_str().is_empty()).then_some(inside)
        };
        Self(paths.iter().flat_map(|it| real(it)).filter_map(inside).collect())
    }

    /// Returns whether a path without symlinks is one of them, or beneath one.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        self.0.iter().any(|it| path.starts_with(it))
    }

    /// Refuses a path that leads to one of them.
    pub(crate) fn check(&self, dir: &Dir, path: &Path, given: &str) -> Result<(), ToolError> {
        let is_one = !self.0.is_empty() && (self.leads(dir, path) || self.is_another(dir, path));
        if is_one { Err(refused(given)) } else { Ok(()) }
    }

    /// Returns whether there is anything to keep tools away from.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a file, by whatever name it was found, is one of them.
    pub(crate) fn is_own(&self, dir: &Dir, meta: &Metadata) -> bool {
        let own = mark(meta);
        self.0.iter().any(|it| dir.metadata(it).is_ok_and(|it| mark(&it) == own))
    }

    /// Returns by what they are known now, as far as they are there.
    pub(crate) fn marks(&self, dir: &Dir) -> Vec<Mark> {
        self.0.iter().filter_map(|it| Some(mark(&dir.metadata(it).ok()?))).collect()
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
        let hidden = Hidden::beneath(&root, &own);
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
}
