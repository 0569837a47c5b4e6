use std::{fmt, io, path::Path};

use serde::Serialize;
use shared::store::StoreError;

/// Maximum number of objects that one message names.
const MAX_SHOWN_OBJECTS: usize = 10;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("`{path}` cannot be {action}: {err}")]
    File { path: String, action: &'static str, err: io::Error },
    #[error("`{path}` exists and is not a backup of Faber: name another file")]
    Occupied { path: String },
    #[error("`{path}` is not a backup of Faber")]
    NotBackup { path: String },
    #[error("`{path}` is damaged: {why}")]
    Damaged { path: String, why: String },
    #[error(
        "`{path}` has the backup format {found}, and this `faber` knows formats up to \
         {newest_known}: use a newer `faber`"
    )]
    TooNew { path: String, found: u32, newest_known: u32 },
    #[error("the store is not empty: it has {what}; restore into an empty store")]
    NotEmpty { what: &'static str },
    #[error(
        "the store holds a part of another backup, whose restore did not finish (SHA-256 \
         {sha256}): restore that file again, or name an empty store"
    )]
    OtherRestore { sha256: String },
    #[error("the store has other content for {0}: nothing was written")]
    Different(ObjectList),
    /// Another process wrote the same objects at the same time.
    #[error("the store has other content for {0}: the objects before it were written")]
    Changed(String),
}

/// The first objects of a kind, each with a reason, and the number of all such objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObjectList {
    pub shown: Vec<String>,
    pub total: u64,
}

impl BackupError {
    pub(crate) fn file(path: &Path, action: &'static str, err: io::Error) -> Self {
        Self::File { path: path.display().to_string(), action, err }
    }

    pub(crate) fn damaged(path: &Path, why: impl fmt::Display) -> Self {
        Self::Damaged { path: path.display().to_string(), why: why.to_string() }
    }
}

impl ObjectList {
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    pub(crate) fn add(&mut self, object: String) {
        self.total += 1;
        if self.shown.len() < MAX_SHOWN_OBJECTS {
            self.shown.push(object);
        }
    }
}

impl fmt::Display for ObjectList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown.join("; "))?;
        match self.total - self.shown.len() as u64 {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
