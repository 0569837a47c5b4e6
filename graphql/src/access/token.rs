//! A token as the server keeps it: never itself, only its digest.

use std::hint::black_box;

use sha2::{Digest as _, Sha256};

use super::{Limits, Role, ToolPattern};

/// What a token is known by.
#[derive(Clone, Copy)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares in a time that does not depend on what is compared.
    pub(super) fn is(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        black_box(differences) == 0
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(***)")
    }
}

/// A token, and what whoever shows it may do.
#[derive(Clone, Debug)]
pub struct Token {
    /// What people call it.
    pub name: String,
    /// What its holder may do.
    pub role: Role,
    /// The tools that its holder may use; all, where nothing is said.
    pub tools: Option<Vec<ToolPattern>>,
    /// How often its holder may do so.
    pub limits: Limits,
    pub(super) digest: Digest,
}

impl Token {
    /// Makes one that allows its role everything; the secret itself is forgotten.
    pub fn new(name: impl Into<String>, secret: &str, role: Role) -> Self {
        let digest = Digest::of(secret);
        Self { name: name.into(), role, tools: None, limits: Limits::default(), digest }
    }

    /// Returns whether two tokens are the same secret, so that nobody could tell them apart.
    pub fn is_same_secret(&self, other: &Self) -> bool {
        self.digest.is(&other.digest)
    }
}
