use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::limits;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is not available. The operation may have happened nevertheless.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The id, or another unique value such as a plan's version, is taken.
    #[error("the identifier is taken")]
    Taken,
    /// A limit on waiting or stored items is reached.
    #[error("{what} is full: try again later")]
    Full { what: String },
    #[error(
        "{bytes} bytes are more than a document of a store can have ({}): request less, or put \
         the data into a file and pass its name",
        limits::DOCUMENT_BYTES
    )]
    TooLarge { bytes: usize },
    #[error("{what} cannot be kept: {why}")]
    Unfit { what: String, why: String },
    #[error("`{what}` is damaged in the store: {why}")]
    Corrupt { what: String, why: String },
    #[error(
        "the store has schema version {found}, this `faber` knows {newest_known}: use a newer \
         `faber`"
    )]
    TooNew { found: u32, newest_known: u32 },
    #[error(
        "the store holds a part of the backup `{file}` only, because its restore did not finish: \
         run `faber restore` with this file again, or use another store"
    )]
    Incomplete { file: String },
    #[error(
        "{what} is encrypted with the key `{key}`, which this process does not have: add the key to \
         `encryption.keys`"
    )]
    Locked { what: String, key: String },
    /// The store is encrypted, and this process cannot encrypt.
    #[error(
        "the store is encrypted, and this process has no key for new values: configure \
         `encryption` as on the other nodes"
    )]
    KeyMissing,
    #[error(
        "{what} cannot be searched, because the store is encrypted: filter by state, error code, \
         tool, label or time"
    )]
    NotSearchable { what: &'static str },
    #[error("`{url}` is not a store: {why}; use `sqlite:PATH`, `mongodb://…` or `memory:`")]
    Address { url: String, why: String },
}

impl StoreError {
    /// Returns `true` if a retry cannot help, because stored data cannot be read or the given data
    /// cannot be written.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::TooLarge { .. } | Self::Unfit { .. })
    }

    /// Returns `true` if this process lacks the key that the operation needs. Another process may
    /// have it.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::KeyMissing)
    }

    pub fn corrupt(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string(), why: why.to_string() }
    }
}

static UNREADABLE: AtomicU64 = AtomicU64::new(0);

/// Returns the number of damaged items that lists of this process left out. A backup reports how
/// much the number grew while the backup ran.
pub fn count_unreadable() -> u64 {
    UNREADABLE.load(Ordering::Relaxed)
}

/// Returns `None` for a damaged item, so that one damaged item does not make a whole list
/// unreadable.
pub fn skip_damaged<T>(item: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match item {
        Ok(item) => Ok(Some(item)),
        Err(err @ StoreError::Corrupt { .. }) => {
            UNREADABLE.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%err, "left out of a list");
            Ok(None)
        }
        Err(err) => Err(err),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    #[error("the log has grown")]
    Conflict,
    /// The store failed. The append, or its first documents, may have been written nevertheless.
    #[error(transparent)]
    Store(#[from] StoreError),
}
