//! Changes of files, which are atomic except for an append.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read, Write as _},
    os::{fd::AsFd as _, unix::fs::fchown},
    path::{Path, PathBuf},
};

use cap_std::fs::{
    Dir, File, Metadata, MetadataExt as _, OpenOptions, Permissions, PermissionsExt as _,
};
use cap_tempfile::TempFile;
use shared::tool::ToolError;

use super::{
    Root, RootPath, display_path, io_failure, kind_name, os_path,
    protected_files::{protected_error, unknown_links_error},
    trailing_slash_error,
};

#[derive(Debug)]
pub(crate) struct WriteTarget {
    root: Root,
    caller_path: String,
    dir: Dir,
    name: OsString,
    path: PathBuf,
    old_metadata: Option<Metadata>,
}

impl Root {
    pub(crate) fn create_target(&self, target_path: &RootPath) -> Result<WriteTarget, ToolError> {
        if target_path.caller_path.ends_with('/') {
            return Err(trailing_slash_error(&target_path.caller_path));
        }
        self.check_git_writes(&target_path.caller_path, &target_path.path)?;
        if let Some(folder) = target_path.path.parent().filter(|_| target_path.meta.is_none()) {
            let creation = self.dir().create_dir_all(os_path(folder));
            creation
                .map_err(|err| io_failure("make the folder of", &target_path.caller_path, &err))?;
        }
        self.open_target(target_path)
    }

    pub(crate) fn open_target(&self, target_path: &RootPath) -> Result<WriteTarget, ToolError> {
        if target_path.meta.is_some() {
            target_path.regular_file()?;
        }
        let fail = |err: io::Error| io_failure("write", &target_path.caller_path, &err);
        let path = self.canonical_path(&target_path.path).map_err(|err| match err.kind() {
            io::ErrorKind::NotFound => {
                let text = format!("{} is a symlink to a missing file", target_path.caller_path);
                ToolError::failed(text).without_retry()
            }
            _ => io_failure("follow", &target_path.caller_path, &err),
        })?;
        self.check_git_writes(&target_path.caller_path, &path)?;
        if self.protected_files().is_protected_path(&path) {
            return Err(protected_error(&target_path.caller_path));
        }
        let name = path.file_name().unwrap_or_default().to_owned();
        let dir = self.open_folder(path.parent().unwrap_or(Path::new(""))).map_err(fail)?;
        let old_metadata = match dir.symlink_metadata(&name) {
            Ok(meta) => Some(meta),
            Err(err) if err.kind() == io::ErrorKind::NotFound => None,
            Err(err) => return Err(fail(err)),
        };
        let target = WriteTarget {
            root: self.clone(),
            caller_path: target_path.caller_path.clone(),
            dir,
            name,
            path,
            old_metadata,
        };
        target.check_writable()?;
        Ok(target)
    }
}

impl WriteTarget {
    pub(crate) fn display(&self) -> String {
        display_path(&self.path)
    }

    pub(crate) fn exists(&self) -> bool {
        self.old_metadata.is_some()
    }

    pub(crate) fn read(&self, max_bytes: u64) -> Result<Vec<u8>, ToolError> {
        let read = || {
            let (file, _) = self.open(OpenOptions::new().read(true))?;
            let mut bytes = Vec::new();
            file.take(max_bytes + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes: Vec<u8> = read().map_err(|err| io_failure("read", &self.caller_path, &err))?;
        if bytes.len() as u64 > max_bytes {
            let text =
                format!("File too large: {} (more than {max_bytes} bytes)", self.caller_path);
            return Err(ToolError::failed(text).without_retry());
        }
        Ok(bytes)
    }

    /// Replaces the content. Fails if another program has changed the file since it was read.
    pub(crate) fn replace_content(&self, content: &[u8]) -> Result<(), ToolError> {
        if !self.is_unchanged() {
            let text = format!(
                "another program changed {} after it was read: read it again",
                self.caller_path
            );
            return Err(ToolError::failed(text));
        }
        self.write_new_file(&self.name, content)
            .map_err(|err| io_failure("write", &self.caller_path, &err))
    }

    /// Saves content beside the file as `FILE.bak`, and returns that path.
    pub(crate) fn back_up(&self, content: &[u8]) -> Result<String, ToolError> {
        let mut name = self.name.clone();
        name.push(".bak");
        if self.root.protected_files().is_protected_path(&self.path.with_file_name(&name)) {
            return Err(protected_error(&format!("{}.bak", self.caller_path)));
        }
        self.write_new_file(&name, content)
            .map_err(|err| io_failure("back up", &self.caller_path, &err))?;
        Ok(display_path(&self.path.with_file_name(name)))
    }

    /// Appends content. On an error, part of it may be written.
    pub(crate) fn append(&self, content: &[u8]) -> Result<(), ToolError> {
        let fail = |err: io::Error| io_failure("append to", &self.caller_path, &err);
        let opened = self.open(OpenOptions::new().append(true).create(true));
        let (mut file, meta) = opened.map_err(fail)?;
        if !meta.is_file() {
            return Err(self.not_regular_error(&meta));
        }
        let written = file.write_all(content).and_then(|()| file.sync_all());
        written.map_err(|err| fail(err).with_unknown_outcome())?;
        self.sync_folder();
        Ok(())
    }

    /// Rejects a read-only file. The system would let a process replace it, because that needs only
    /// write permission for the folder.
    fn check_writable(&self) -> Result<(), ToolError> {
        let Some(meta) = &self.old_metadata else { return Ok(()) };
        if !meta.is_file() {
            return Err(self.not_regular_error(meta));
        }
        if meta.mode() & 0o222 == 0 {
            let text = format!("Cannot write {}: it is read-only", self.caller_path);
            return Err(ToolError::failed(text));
        }
        let is_protected_file = self.root.protected_files().is_protected(self.root.dir(), meta);
        if is_protected_file.map_err(|err| unknown_links_error(&self.caller_path, &err))? {
            return Err(protected_error(&self.caller_path));
        }
        let opened = self.open(OpenOptions::new().write(true));
        opened.map(drop).map_err(|err| io_failure("write", &self.caller_path, &err))
    }

    fn open(&self, options: &mut OpenOptions) -> io::Result<(File, Metadata)> {
        self.root.open_in_folder(&self.dir, &self.name, options)
    }

    fn not_regular_error(&self, meta: &Metadata) -> ToolError {
        let text = format!("Not a file: {} (it is {})", self.caller_path, kind_name(meta));
        ToolError::failed(text).without_retry()
    }

    fn is_unchanged(&self) -> bool {
        let now = self.dir.symlink_metadata(&self.name).ok();
        let mark = |meta: &Metadata| {
            (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec())
        };
        now.as_ref().map(mark) == self.old_metadata.as_ref().map(mark)
    }

    fn write_new_file(&self, name: &OsStr, content: &[u8]) -> io::Result<()> {
        let mut file = TempFile::new(&self.dir)?;
        file.write_all(content)?;
        if let Some(old_metadata) = &self.old_metadata {
            copy_owner(file.as_file(), old_metadata)?;
        }
        file.as_file().sync_all()?;
        file.replace(name)?;
        self.sync_folder();
        Ok(())
    }

    /// Syncs the folder if the file system supports it, so that the change survives a crash of the
    /// machine.
    fn sync_folder(&self) {
        let _ = self.dir.open(".").and_then(|folder| folder.sync_all());
    }
}

/// Copies permissions. Also copies the owner if Faber may change it.
fn copy_owner(file: &File, old_metadata: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (old_metadata.uid(), old_metadata.gid()) {
        let _ = fchown(file.as_fd(), Some(old_metadata.uid()), Some(old_metadata.gid()));
    }
    file.set_permissions(Permissions::from_mode(old_metadata.mode() & 0o777))
}
