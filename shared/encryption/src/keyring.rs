//! Keys, and the encryption of one value by XChaCha20-Poly1305. Its nonces have 24 bytes, so random
//! nonces never repeat in practice, and processes need no common counter.
//!
//! A value that somebody moved to another field cannot be decrypted there.

use std::{collections::BTreeMap, fmt};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use shared::sealed::{self, SealedText};

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
/// Authenticated with each value, so that a value of another program or of a later format cannot be
/// decrypted as a value of this format.
const DOMAIN: &str = "faber 1";

/// A key of 32 bytes.
#[derive(Clone)]
pub struct Key(XChaCha20Poly1305);

#[derive(Clone, Default)]
pub struct Keyring {
    keys: BTreeMap<String, Key>,
    /// The id of the key that encrypts new values. If it is `None`, no value can be written.
    active_id: Option<String>,
    encrypts_queries: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a key has 32 bytes in base64, as `openssl rand -base64 32` prints them")]
    Form,
    #[error(
        "`{0}` is not a key id: a key id has 1 to 64 characters, which are ASCII letters, digits, \
         `.`, `_` or `-`"
    )]
    Id(String),
    #[error("two keys have the id `{0}`")]
    Repeated(String),
    #[error("the active key `{0}` is not among the keys")]
    NotActive(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// This process does not have the key with this id.
    KeyMissing(String),
    /// The value was changed, or moved from another field or document.
    Damaged,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) collection: &'static str,
    pub(crate) document: &'a str,
    pub(crate) field: &'a str,
}

impl Key {
    /// Parses a key of 32 bytes in base64. Ignores white space around it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| KeyError::Form)?;
        let bytes: [u8; KEY_BYTES] = bytes.try_into().map_err(|_| KeyError::Form)?;
        Ok(Self(XChaCha20Poly1305::new(&bytes.into())))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("keys", &self.keys.keys())
            .field("active", &self.active_id)
            .field("encrypts_queries", &self.encrypts_queries)
            .finish()
    }
}

impl Keyring {
    /// Joins keys with their ids. A key is `None` if this process cannot get it. Queries are
    /// encrypted only if `encrypts_queries` is set, because lists search them.
    pub fn new(
        keys: Vec<(String, Option<Key>)>,
        active_id: &str,
        encrypts_queries: bool,
    ) -> Result<Self, KeyError> {
        let mut all = BTreeMap::new();
        for (id, key) in keys {
            if !sealed::is_key_id(&id) {
                return Err(KeyError::Id(id));
            }
            if all.insert(id.clone(), key).is_some() {
                return Err(KeyError::Repeated(id));
            }
        }
        let active_key =
            all.get(active_id).ok_or_else(|| KeyError::NotActive(active_id.to_owned()))?;
        let active_id = active_key.as_ref().map(|_| active_id.to_owned());
        let keys = all.into_iter().filter_map(|(id, key)| Some((id, key?))).collect();
        Ok(Self { keys, active_id, encrypts_queries })
    }

    #[cfg(test)]
    pub(crate) fn with_encrypted_queries(self) -> Self {
        Self { encrypts_queries: true, ..self }
    }

    pub(crate) fn active_id(&self) -> Option<&str> {
        self.active_id.as_deref()
    }

    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.keys.contains_key(id)
    }

    pub(crate) fn encrypts_queries(&self) -> bool {
        self.encrypts_queries
    }

    /// Removes a key whose id belongs to another key of the store. Values with this id then stay
    /// hidden. If the removed key is active, no value can be written.
    pub(crate) fn remove_key(&mut self, id: &str) {
        self.keys.remove(id);
        self.active_id.take_if(|active| active == id);
    }

    /// Encrypts a value with the active key. Returns `None` if there is no active key or no
    /// randomness.
    pub(crate) fn seal(&self, place: Place<'_>, content: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).ok()?;
        self.seal_with_nonce(nonce, place, content)
    }

    /// Two values with the same nonce would reveal their content, so each call needs a new nonce.
    pub(crate) fn seal_with_nonce(
        &self,
        nonce: [u8; NONCE_BYTES],
        place: Place<'_>,
        content: &[u8],
    ) -> Option<String> {
        let id = self.active_id.as_deref()?;
        let Key(cipher) = self.keys.get(id)?;
        let aad = place.associated_data(id);
        let payload = Payload { msg: content, aad: &aad };
        let encrypted = cipher.encrypt(&XNonce::from(nonce), payload).ok()?;
        let mut text = format!("{}{id}:", sealed::PREFIX);
        URL_SAFE_NO_PAD.encode_string([nonce.as_slice(), &encrypted].concat(), &mut text);
        Some(text)
    }

    pub(crate) fn open(
        &self,
        place: Place<'_>,
        sealed: SealedText<'_>,
    ) -> Result<Vec<u8>, OpenError> {
        let Some(Key(cipher)) = self.keys.get(sealed.key) else {
            return Err(OpenError::KeyMissing(sealed.key.to_owned()));
        };
        let data = URL_SAFE_NO_PAD.decode(sealed.data).map_err(|_| OpenError::Damaged)?;
        let (nonce, encrypted) = data.split_first_chunk().ok_or(OpenError::Damaged)?;
        let aad = place.associated_data(sealed.key);
        let payload = Payload { msg: encrypted, aad: &aad };
        cipher
            .decrypt(&XNonce::from(*nonce as [u8; NONCE_BYTES]), payload)
            .map_err(|_| OpenError::Damaged)
    }
}

impl Place<'_> {
    /// Returns the bytes that are authenticated with a value. The length of each part comes before
    /// the part, so that two places never give the same bytes.
    fn associated_data(self, key: &str) -> Vec<u8> {
        let parts = [DOMAIN, key, self.collection, self.document, self.field];
        let mut bytes = Vec::with_capacity(128);
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}
