//! Access by canonical paths without following symlinks.
//!
//! A path is first resolved and checked, and then opened. Another process may put a symlink into
//! the path between these two steps, so opening must not follow symlinks.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use cap_fs_ext::{DirExt as _, FollowSymlinks, OpenOptionsFollowExt as _};
use cap_std::fs::{Dir, File, Metadata, MetadataExt as _, OpenOptions};

use super::{Root, file_id, kind_name, os_path, set_nonblocking};

impl Root {
    /// Resolves the symlinks of a path, and returns the path relative to the root. The last part
    /// need not exist.
    pub(crate) fn canonical_path(&self, path: &Path) -> io::Result<PathBuf> {
        let real = match self.dir().canonicalize(os_path(path)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound && !self.is_symlink(path) => {
                let folder = path.parent().unwrap_or(Path::new(""));
                self.dir().canonicalize(os_path(folder))?.join(path.file_name().unwrap_or_default())
            }
            real => real?,
        };
        // Drops `.`, which is the canonical path of the root.
        Ok(real.components().filter(|part| part.as_os_str() != ".").collect())
    }

    fn is_symlink(&self, path: &Path) -> bool {
        self.dir().symlink_metadata(os_path(path)).is_ok_and(|meta| meta.is_symlink())
    }

    pub(crate) fn open_folder(&self, path: &Path) -> io::Result<Dir> {
        let mut folder = self.dir().try_clone()?;
        for name in path {
            folder = folder.open_dir_nofollow(name)?;
        }
        Ok(folder)
    }

    /// Opens a regular file for reading, by its canonical path. Never blocks on a FIFO.
    pub(crate) fn open_canonical(&self, path: &Path) -> io::Result<(fs::File, Metadata)> {
        let (file, meta) = if self.protected_files().is_empty() {
            let file = self
                .dir()
                .open_with(os_path(path), set_nonblocking(OpenOptions::new().read(true)))?;
            let meta = file.metadata()?;
            (file, meta)
        } else {
            if self.protected_files().is_protected_path(path) {
                return Err(protected_io_error());
            }
            let folder = self.parent_folder(path)?;
            let name = path.file_name().unwrap_or(OsStr::new("."));
            self.open_in_folder(&folder, name, OpenOptions::new().read(true))?
        };
        if !meta.is_file() {
            return Err(io::Error::other(format!("it is {}", kind_name(&meta))));
        }
        Ok((file.into_std(), meta))
    }

    /// Opens a file in an open folder. Rejects a hard link to a protected file.
    pub(super) fn open_in_folder(
        &self,
        folder: &Dir,
        name: &OsStr,
        options: &mut OpenOptions,
    ) -> io::Result<(File, Metadata)> {
        // A protected file must not be opened, because closing it would drop SQLite's locks.
        let found = folder.symlink_metadata(name).ok();
        let is_link_or_search = |meta: &Metadata| meta.nlink() > 1 || self.1.is_some();
        if let Some(found) = found.filter(is_link_or_search)
            && self.is_protected_file(&found)?
        {
            return Err(protected_io_error());
        }
        let options = set_nonblocking(options).clone().follow(FollowSymlinks::No).clone();
        let file = folder.open_with(name, &options)?;
        let meta = file.metadata()?;
        if self.is_protected_file(&meta)? {
            return Err(protected_io_error());
        }
        Ok((file, meta))
    }

    /// Returns whether a file is protected. A file with only one name is not a hard link to another
    /// file.
    fn is_protected_file(&self, meta: &Metadata) -> io::Result<bool> {
        let hidden = self.protected_files();
        let Some(seen) = &self.1 else { return hidden.is_protected(self.dir(), meta) };
        let is_inside = seen.protected_inside.contains(&file_id(meta));
        if is_inside || meta.nlink() == 1 {
            return Ok(is_inside);
        }
        let all =
            seen.all_protected.get_or_init(|| hidden.all_file_ids().map_err(|err| err.to_string()));
        let all = all.as_ref().map_err(|err| io::Error::other(err.clone()))?;
        Ok(all.binary_search(&file_id(meta)).is_ok()
            || hidden.is_protected_inside(self.dir(), meta))
    }

    /// Opens the folder of a file, or returns the folder that the search has cached.
    fn parent_folder(&self, path: &Path) -> io::Result<Arc<Dir>> {
        let path = path.parent().unwrap_or(Path::new(""));
        let Some(seen) = &self.1 else { return Ok(Arc::new(self.open_folder(path)?)) };
        let mut last = seen.last_folder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, folder)) = last.as_ref().filter(|(of, _)| of == path) {
            return Ok(Arc::clone(folder));
        }
        let folder = Arc::new(self.open_folder(path)?);
        *last = Some((path.to_owned(), Arc::clone(&folder)));
        Ok(folder)
    }
}

fn protected_io_error() -> io::Error {
    io::Error::other("it is Faber's own")
}
