//! Opening what a path without symlinks leads to, without following any: where a path was looked
//! at and found to be nobody's, somebody may put a symlink in its way before it is opened.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _};
use cap_std::fs::{Dir, File, Metadata, MetadataExt as _, OpenOptions};

use super::{Root, at, guarded, kind};

impl Root {
    /// Returns where a path leads, without symlinks and relative to the root. What is last in it
    /// need not be there.
    pub(crate) fn settled(&self, path: &Path) -> io::Result<PathBuf> {
        let real = match self.dir().canonicalize(at(path)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound && !self.is_symlink(path) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                self.dir().canonicalize(at(folder))?.join(path.file_name().unwrap_or_default())
            }
            real => real?,
        };
        // The root itself is `.`.
        Ok(real.components().filter(|it| it.as_os_str() != ".").collect())
    }

    fn is_symlink(&self, path: &Path) -> bool {
        self.dir().symlink_metadata(at(path)).is_ok_and(|it| it.is_symlink())
    }

    /// Opens a folder by its settled path.
    pub(crate) fn open_folder(&self, path: &Path) -> io::Result<Dir> {
        let mut folder = self.dir().try_clone()?;
        for name in path {
            folder = folder.open_dir_nofollow(name)?;
        }
        Ok(folder)
    }

    /// Opens a regular file to read, by its settled path. What is none is not waited for.
    pub(crate) fn open_settled(&self, path: &Path) -> io::Result<(fs::File, Metadata)> {
        let (file, meta) = if self.hidden().is_empty() {
            let file = self.dir().open_with(at(path), guarded(OpenOptions::new().read(true)))?;
            let meta = file.metadata()?;
            (file, meta)
        } else {
            if self.hidden().covers(path) {
                return Err(own());
            }
            let folder = self.open_folder(path.parent().unwrap_or(Path::new("")))?;
            let name = path.file_name().unwrap_or(OsStr::new("."));
            self.open_in(&folder, name, OpenOptions::new().read(true))?
        };
        if !meta.is_file() {
            return Err(io::Error::other(format!("it is {}", kind(&meta))));
        }
        Ok((file.into_std(), meta))
    }

    /// Opens a file in a folder that is held open, unless it is Faber's own by another name.
    pub(super) fn open_in(
        &self,
        folder: &Dir,
        name: &OsStr,
        options: &mut OpenOptions,
    ) -> io::Result<(File, Metadata)> {
        // Not opened at all, where that is known: closing it would drop the locks on it.
        let found = folder.symlink_metadata(name).ok();
        let linked = found.filter(|it| it.nlink() > 1);
        if linked.is_some_and(|it| self.hidden().is_own(self.dir(), &it)) {
            return Err(own());
        }
        let options = guarded(options).clone().follow(FollowSymlinks::No).clone();
        let file = folder.open_with(name, &options)?;
        let meta = file.metadata()?;
        if self.hidden().is_own(self.dir(), &meta) {
            return Err(own());
        }
        Ok((file, meta))
    }
}

fn own() -> io::Error {
    io::Error::other("it is Faber's own")
}
