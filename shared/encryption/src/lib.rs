//! Encryption of a store's values.
//!
//! [`EncryptedStore`] stands in front of a store. It encrypts parameters, inputs, outputs and texts
//! before the store sees them, and decrypts them on reads. The machine, the engine and the stores
//! do not know about it. An encrypted value is a text that replaces the value, so that documents
//! keep their form. So lists, counts and backups work without the key.
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
