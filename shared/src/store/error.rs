//! What can go wrong with a store.

use std::fmt;

use crate::limits;

/// Why a store could not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store is not available now. What was asked may have happened all the same.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The identifier is taken; draw another.
    #[error("the identifier is taken")]
    Taken,
    /// More waits or is kept than may be.
    #[error("{what} is full: try again when some of it is done")]
    Full {
        /// What is full.
        what: String,
    },
    /// It can never be written: no document of a store is that large.
    #[error(
        "{bytes} bytes are more than a document of a store can have ({}): ask for less, or \
             keep it in a file and pass its name",
        limits::DOCUMENT_BYTES
    )]
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
    /// No store can keep it as it is.
    #[error("{what} cannot be kept: {why}")]
    Unfit {
        /// What.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// What the store has cannot be what it says.
    #[error("`{what}` is damaged in the store: {why}")]
    Corrupt {
        /// The identifier of the damaged thing.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store was written by a newer version.
    #[error(
        "the store has schema version {found}, this `faber` knows {known}: use a newer `faber`"
    )]
    TooNew {
        /// The version of the store.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The store's address is wrong.
    #[error("`{url}` is not a store: {why}; use `sqlite:PATH`, `mongodb://…` or `memory:`")]
    Address {
        /// The address.
        url: String,
        /// What is wrong with it.
        why: String,
    },
}

impl StoreError {
    /// Returns whether what is there cannot be read, or what is asked for cannot be written, so that it
    /// is no use to try again.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::TooLarge { .. } | Self::Unfit { .. })
    }

    /// Says that something in the store is damaged.
    pub fn corrupt(what: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Corrupt { what: what.to_string(), why: why.to_string() }
    }
}

/// Why an append failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log does not end where the append begins.
    #[error("the log has grown")]
    Conflict,
    /// The store failed. The append may have been written all the same, or the first of its
    /// documents.
    #[error(transparent)]
    Store(#[from] StoreError),
}
