//! Encryption of a store's values. [`EncryptedStore`] stands in front of a store, so that the
//! machine, the engine and the stores do not know about it.
//!
//! `docs/design/encryption.md` says what is protected and what is not.

mod edit;
mod keyring;
mod leaves;
mod open;
mod store;
#[cfg(test)]
mod tests;

pub use self::{
    keyring::{Key, KeyError, Keyring},
    open::{protect, protect_copies, rekey},
    store::{EncryptedStore, LeftValues, RekeyProgress, RekeyReport},
};
