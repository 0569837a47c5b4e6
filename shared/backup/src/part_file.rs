use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use crate::error::BackupError;

/// A file under a temporary name, which is removed unless the file is finished.
pub(crate) struct PartFile {
    path: PathBuf,
    part: PathBuf,
    is_finished: bool,
}

impl PartFile {
    /// Creates the file, readable by its owner only. Fails if another process writes it.
    pub(crate) fn create(path: &Path) -> Result<(Self, BufWriter<File>), BackupError> {
        let part = add_suffix(path, ".part");
        let failed = |err| BackupError::file(&part, "written", err);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&part).map_err(failed)?;
        file.try_lock().map_err(|err| failed(err.into()))?;
        file.set_len(0).map_err(failed)?;
        let file = BufWriter::with_capacity(1 << 16, file);
        Ok((Self { path: path.to_owned(), part, is_finished: false }, file))
    }

    pub(crate) fn spool_path(&self) -> PathBuf {
        add_suffix(&self.part, ".list")
    }

    /// Flushes the file to the disk, and renames it to its final name.
    pub(crate) fn finish(mut self, file: BufWriter<File>) -> Result<(), BackupError> {
        let write = || -> io::Result<()> {
            let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            fs::rename(&self.part, &self.path)?;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|err| BackupError::file(&self.path, "written", err))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // Ignores a failure, because the next writer empties a file that remains.
            let _ = fs::remove_file(&self.part);
        }
    }
}

fn add_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
