//! Encrypted texts for cookies. A browser can keep them, but can neither read nor change them.

use std::fmt;

use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
    rand::{SecureRandom, SystemRandom},
};

use crate::{decode, encode};

/// Maximum size of a sealed text. Browsers drop larger cookies.
pub(crate) const MAX_SEALED_BYTES: usize = 3_800;
/// Minimum size of a secret from which the key is derived. Everyone gets a sealed text by starting a
/// sign-in, can guess a short secret with it, and can then seal a session of any user.
const MIN_SECRET_BYTES: usize = 16;

pub(crate) struct Sealer {
    key: LessSafeKey,
    random: SystemRandom,
}

/// The purpose of a text. A text that was sealed for another purpose cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Login,
    Session,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Login => b"faber login",
            Self::Session => b"faber session",
        }
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(***)")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub(crate) struct NoRandomBytes;

impl Sealer {
    /// Derives the key from the secret of the client, so that a session survives a restart and is
    /// valid on every node. Without a secret, or with one that can be guessed, the key is random.
    pub(crate) fn new(secret: Option<&str>, issuer: &str) -> Result<Self, NoRandomBytes> {
        let random = SystemRandom::new();
        let mut material = [0; 32];
        random.fill(&mut material).map_err(|_| NoRandomBytes)?;
        let safe = secret.filter(|secret| secret.len() >= MIN_SECRET_BYTES);
        if secret.is_some() && safe.is_none() {
            tracing::warn!(
                "the client secret of `server.oidc` can be guessed, so sessions end with this \
                 process and are valid on this node only: use one of at least 16 characters"
            );
        }
        let material = safe.map_or(material.as_slice(), str::as_bytes);
        let salt = Salt::new(HKDF_SHA256, b"faber cookies 1").extract(material);
        let info = [issuer.as_bytes()];
        let derived = salt.expand(&info, &CHACHA20_POLY1305).map_err(|_| NoRandomBytes)?;
        Ok(Self { key: LessSafeKey::new(UnboundKey::from(derived)), random })
    }

    pub(crate) fn seal(&self, purpose: Purpose, text: &str) -> Result<String, NoRandomBytes> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).map_err(|_| NoRandomBytes)?;
        let mut bytes = text.as_bytes().to_vec();
        let aad = Aad::from(purpose.label());
        let sealed = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(sealed, aad, &mut bytes).map_err(|_| NoRandomBytes)?;
        Ok(encode(&[nonce.as_slice(), &bytes].concat()))
    }

    /// Returns `None` if the text was not sealed with this key for this purpose.
    pub(crate) fn open(&self, purpose: Purpose, sealed: &str) -> Option<String> {
        if sealed.len() > MAX_SEALED_BYTES {
            return None;
        }
        let mut bytes = decode(sealed)?;
        let mut sealed_bytes = bytes.split_off(NONCE_LEN.min(bytes.len()));
        let nonce = Nonce::try_assume_unique_for_key(&bytes).ok()?;
        let aad = Aad::from(purpose.label());
        let text = self.key.open_in_place(nonce, aad, &mut sealed_bytes).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }

    pub(crate) fn random_text(&self) -> Result<String, NoRandomBytes> {
        let mut bytes = [0; 32];
        self.random.fill(&mut bytes).map_err(|_| NoRandomBytes)?;
        Ok(encode(&bytes))
    }
}
