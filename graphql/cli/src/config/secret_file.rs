//! A secret in a file, such as a file that Kubernetes or systemd provides.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

const MAX_BYTES: u64 = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretFile {
    written: String,
    path: PathBuf,
}

impl SecretFile {
    /// Names a file. A relative path starts at `base`.
    pub(super) fn new(written: String, base: &Path) -> Self {
        let path = base.join(&written);
        Self { written, path }
    }

    /// Returns the path as the configuration contains it.
    pub(super) fn written(&self) -> &str {
        &self.written
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the secret, without white space around it. The error says why there is none.
    pub(super) fn read(&self) -> Result<String, String> {
        let complaint = |err: std::io::Error| format!("`{}` cannot be read: {err}", self.written);
        let mut text = String::new();
        let file = File::open(&self.path).map_err(complaint)?;
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(complaint)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(format!("`{}` has more than {MAX_BYTES} bytes", self.written));
        }
        match text.trim() {
            "" => Err(format!("`{}` is empty", self.written)),
            secret => Ok(secret.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_without_white_space() {
        let folder = tempfile::tempdir().unwrap();
        let file = SecretFile::new("key".to_owned(), folder.path());
        assert!(file.read().unwrap_err().starts_with("`key` cannot be read: "));
        for (text, expected) in [
            (" secret\n".to_owned(), Ok("secret".to_owned())),
            ("\n".to_owned(), Err("`key` is empty".to_owned())),
            ("x".repeat(65_537), Err("`key` has more than 65536 bytes".to_owned())),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(file.read(), expected);
        }
    }
}
