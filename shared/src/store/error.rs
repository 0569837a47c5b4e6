//! Errors of stores.

use std::fmt;

use crate::limits;

/// The reason why a store operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is not available. The operation may have happened nevertheless.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The id is taken. The caller must draw another one.
    #[error("the identifier is taken")]
    Taken,
    /// A limit on waiting or stored items is reached.
    #[error("{what} is full: try again when some of it is done")]
    Full {
        /// The full container.
        what: String,
    },
    /// A document is larger than any store can write.
    #[error(
        "{bytes} bytes are more than a document of a store can have ({}): ask for less, or \
             keep it in a file and pass its name",
        limits::DOCUMENT_BYTES
    )]
    TooLarge {
        /// The document's size.
        bytes: usize,
    },
    /// The data does not meet the rules of stores.
    #[error("{what} cannot be kept: {why}")]
    Unfit {
        /// The data.
        what: String,
        /// The problem with it.
        why: String,
    },
    /// Stored data is invalid.
    #[error("`{what}` is damaged in the store: {why}")]
    Corrupt {
        /// The id of the damaged data.
        what: String,
        /// The problem with it.
        why: String,
    },
    /// A newer version wrote the store.
    #[error(
        "the store has schema version {found}, this `faber` knows {known}: use a newer `faber`"
    )]
    TooNew {
        /// The version of the store.
        found: u32,
        /// The newest known version.
        known: u32,
    },
    /// The store's address is invalid.
    #[error("`{url}` is not a store: {why}; use `sqlite:PATH`, `mongodb://…` or `memory:`")]
    Address {
        /// The address.
        url: String,
        /// The problem with it.
        why: String,
    },
}

impl StoreError {
    /// Returns `true` if a retry cannot help, because stored data cannot be read or the given data
    /// cannot be written.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::TooLarge { .. } | Self::Unfit { .. })
    }

    /// Makes the error for invalid stored data.
    pub fn corrupt(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string(), why: why.to_string() }
    }
}

/// Leaves out damaged data, so that one damaged item does not hide a list.
pub fn skip_damaged<T>(item: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match item {
        Ok(item) => Ok(Some(item)),
        Err(err @ StoreError::Corrupt { .. }) => {
            tracing::warn!(%err, "left out of a list");
            Ok(None)
        }
        Err(err) => Err(err),
    }
}

/// The reason why an append failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log does not end at the append's position.
    #[error("the log has grown")]
    Conflict,
    /// The store failed. The append, or its first documents, may have been written nevertheless.
    #[error(transparent)]
    Store(#[from] StoreError),
}
