//! What lies beneath a root and is Faber's own: its configuration, and where it keeps its data.
//!
//! Whoever may change these decides what Faber does next, and closing the store's file here would
//! drop the locks that SQLite has on it. So tools do not even open them: not by name, not behind
//! a symlink, and not by another name of the same file.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use cap_std::fs::{Dir, Metadata, MetadataExt as _};
use shared::tool::ToolError;

use super::root::{at, shown};

/// Files and folders beneath a root that tools do not touch.
#[derive(Debug, Default)]
pub(crate) struct Hidden(Vec<PathBuf>);

impl Hidden {
    /// Takes of `paths` what lies beneath `root`, which is a path without symlinks.
    pub(crate) fn beneath(root: &Path, paths: &[PathBuf]) -> Self {
        let inside = |path: &PathBuf| {
            let inside = real(path)?.strip_prefix(root).ok()?.to_owned();
            // A root that somebody puts there is meant.
            (!inside.as_os_str().is_empty()).then_some(inside)
        };
        Self(paths.iter().filter_map(inside).collect())
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

    /// Refuses to open a file that is one of them, by a path whose folders are no symlinks.
    pub(crate) fn check_open(&self, dir: &Dir, path: &Path) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let meta = dir.symlink_metadata(at(path))?;
        let may_be_another = meta.is_symlink() || meta.nlink() > 1;
        if self.covers(path) || (may_be_another && self.is_another(dir, path)) {
            return Err(io::Error::other("it is Faber's own"));
        }
        Ok(())
    }

    /// Refuses a file that is to change in a folder that is held open, wherever that is by now.
    pub(crate) fn check_in(
        &self,
        (root, folder, name): (&Dir, &Dir, &Path),
        given: &str,
    ) -> Result<(), ToolError> {
        let held = folder.dir_metadata().ok().map(|it| mark(&it));
        let is_there = |it: &&PathBuf| {
            let above = it.parent().unwrap_or(Path::new(""));
            it.file_name() == name.file_name()
                && root.metadata(at(above)).ok().map(|it| mark(&it)) == held
        };
        if self.0.iter().any(|it| is_there(&it)) { Err(refused(given)) } else { Ok(()) }
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
        let Some(own) = dir.metadata(at(path)).ok().map(|it| mark(&it)) else { return false };
        self.0.iter().any(|it| dir.metadata(it).is_ok_and(|it| mark(&it) == own))
    }
}

fn mark(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Returns a path without symlinks, also where there is nothing yet.
fn real(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = fs::canonicalize(path) {
        return Some(real);
    }
    Some(fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?))
}

fn refused(given: &str) -> ToolError {
    let given = shown(Path::new(given));
    let text = format!(
        "Refused: Path is Faber's own: {given} (its configuration, or where it keeps its data, which \
         no tool reads or writes)"
    );
    ToolError::failed(text).terminal()
}
