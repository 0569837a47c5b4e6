//! A secret in a file, such as a file that Kubernetes or systemd provides.

use std::{
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use nix::libc;

const MAX_BYTES: u64 = 64 << 10;

/// The path of a file with a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFile {
    written: String,
    path: PathBuf,
}

impl SecretFile {
    /// Names a file. A relative path starts at `base`.
    pub fn new(written: String, base: &Path) -> Self {
        let path = base.join(&written);
        Self { written, path }
    }

    /// Returns the path as the configuration contains it.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Returns the path. It is absolute if `base` was absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the secret, without the line ends after it. The error says why there is no secret.
    pub fn read(&self) -> Result<String, String> {
        let written = &self.written;
        let complaint = |err: io::Error| format!("`{written}` cannot be read: {err}");
        // Without this flag, opening a pipe waits for a writer.
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(&self.path);
        let file = file.map_err(complaint)?;
        if !file.metadata().map_err(complaint)?.is_file() {
            return Err(format!("`{written}` is not a regular file"));
        }
        let mut text = String::new();
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(complaint)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(format!("`{written}` has more than {MAX_BYTES} bytes"));
        }
        if text.trim().is_empty() {
            return Err(format!("`{written}` is empty"));
        }
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn a_secret_is_read_without_its_last_line_ends() {
        let folder = tempfile::tempdir().unwrap();
        let file = SecretFile::new("key".to_owned(), folder.path());
        assert!(file.read().unwrap_err().starts_with("`key` cannot be read: "));
        for (text, expected) in [
            (" a secret \r\n\n".to_owned(), Ok(" a secret ".to_owned())),
            (" \n".to_owned(), Err("`key` is empty".to_owned())),
            ("x".repeat(65_537), Err("`key` has more than 65536 bytes".to_owned())),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(file.read(), expected);
        }
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let file = SecretFile::new("pipe".to_owned(), folder.path());
        nix::unistd::mkfifo(file.path(), Mode::S_IRWXU).unwrap();
        assert_eq!(file.read(), Err("`pipe` is not a regular file".to_owned()));
    }
}
