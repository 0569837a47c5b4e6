use std::hint::black_box;

use sha2::{Digest as _, Sha256};

use super::{Limits, Quotas, Role, See, ToolPattern};

#[derive(Clone, Copy)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of_token(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares all bytes even after a difference, so that the duration does not reveal how many
    /// bytes match.
    pub(super) fn equals_in_constant_time(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(&other.0).fold(0, |all, (a, b)| all | (a ^ b));
        black_box(differences) == 0
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Digest(***)")
    }
}

#[derive(Clone, Debug)]
pub struct Token {
    pub name: String,
    pub role: Role,
    /// Patterns of the tools that the token allows. `None` means all tools.
    pub tools: Option<Vec<ToolPattern>>,
    pub limits: Limits,
    pub quotas: Quotas,
    /// An admin sees all, whatever this field says.
    pub see: See,
    pub(super) digest: Digest,
}

impl Token {
    /// Creates a token with all tools, no limits and no quotas, which shows all executions. Keeps
    /// only the digest of the secret.
    pub fn new(name: impl Into<String>, secret: &str, role: Role) -> Self {
        let digest = Digest::of_token(secret);
        Self {
            name: name.into(),
            role,
            tools: None,
            limits: Limits::default(),
            quotas: Quotas::default(),
            see: See::All,
            digest,
        }
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        // Names every field, so that a new one cannot be forgotten.
        let Self { name, role, tools, limits, quotas, see, digest: _ } = self;
        (name, role, tools) == (&other.name, &other.role, &other.tools)
            && (limits, quotas, see) == (&other.limits, &other.quotas, &other.see)
            && self.is_same_secret(other)
    }

    pub fn is_same_secret(&self, other: &Self) -> bool {
        self.digest.equals_in_constant_time(&other.digest)
    }
}
