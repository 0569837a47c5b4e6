use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use shared::secret_file::SecretFile;

use super::{MissingSecret, Redaction};

/// The path of a file with a secret, and a prefix: `{secret_file: token, prefix: "Bearer "}`.
///
/// Two values are equal only if their contents are equal, so that a reload notices a new secret in
/// the same file.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSecret {
    secret_file: String,
    #[serde(default)]
    prefix: String,
    #[serde(skip)]
    content: Content,
}

#[derive(Clone, Default, PartialEq, Eq)]
enum Content {
    /// Nothing has read the file. Toolsets that callers add stay in this state, because a caller
    /// could otherwise send any file to a server of its choice.
    #[default]
    Unread,
    Read {
        path: PathBuf,
        text: Result<String, String>,
    },
}

impl FileSecret {
    /// Reads the file. A relative path starts at `base`.
    pub(super) fn read(&mut self, base: &Path) {
        let file = SecretFile::new(self.secret_file.clone(), base);
        self.content = Content::Read { path: file.path().to_owned(), text: file.read() };
    }

    pub fn written(&self) -> &str {
        &self.secret_file
    }

    /// Returns the path, or `None` if the file was not read.
    pub fn path(&self) -> Option<&Path> {
        match &self.content {
            Content::Unread => None,
            Content::Read { path, .. } => Some(path),
        }
    }

    pub fn text(&self) -> Result<&str, MissingSecret> {
        match &self.content {
            Content::Unread => Err(MissingSecret::ForeignFile(self.secret_file.clone())),
            Content::Read { text, .. } => {
                text.as_deref().map_err(|reason| MissingSecret::File(reason.clone()))
            }
        }
    }

    pub(super) fn resolve(&self, redaction: &mut Redaction) -> Result<String, MissingSecret> {
        let text = self.text()?;
        redaction.add_secret(&self.secret_file, text);
        Ok(format!("{}{text}", self.prefix))
    }
}

impl fmt::Debug for FileSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileSecret").field(&self.secret_file).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::TextOrSecret, *};

    fn parse(written: serde_json::Value) -> Result<TextOrSecret, String> {
        serde_json::from_value(written).map_err(|err| err.to_string())
    }

    #[test]
    fn a_secret_is_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "sesame-open\n").unwrap();
        let mut text = parse(json!({ "secret_file": "key", "prefix": "Bearer " })).unwrap();
        text.read_file(folder.path());
        let mut redaction = Redaction::default();
        assert_eq!(text.resolve(&mut redaction).unwrap(), "Bearer sesame-open");
        assert_eq!(redaction.redact("a sesame-open".to_owned()), "a ***key***");
        assert!(!format!("{text:?}").contains("sesame"));
        let before = text.clone();
        std::fs::write(folder.path().join("key"), "another").unwrap();
        text.read_file(folder.path());
        assert_ne!(text, before);
        std::fs::remove_file(folder.path().join("key")).unwrap();
        text.read_file(folder.path());
        let err = text.resolve(&mut redaction).unwrap_err().to_string();
        assert!(err.starts_with("a secret is missing: `key` cannot be read"), "{err}");
    }

    #[test]
    fn a_file_that_a_caller_names_is_not_read() {
        let text = parse(json!({ "secret_file": "/etc/hostname" })).unwrap();
        let err = text.resolve(&mut Redaction::default()).unwrap_err();
        assert_eq!(err, MissingSecret::ForeignFile("/etc/hostname".to_owned()));
    }

    #[test]
    fn a_secret_has_one_source() {
        let err = parse(json!({ "secret": "A", "secret_file": "b" })).unwrap_err();
        assert!(err.contains("name one of `secret` and `secret_file`"), "{err}");
    }
}
