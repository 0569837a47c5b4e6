//! The secrets that a server knows. Tokens change while the server is up.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use secrets::Redaction;

/// Tokens that are removed from texts. Older ones are no longer valid.
const MAX_TOKENS: usize = 4;
/// The placeholder for a removed token.
const PLACEHOLDER: &str = "ACCESS_TOKEN";

/// The secrets that a server knows.
#[derive(Default)]
pub(super) struct Secrets(RwLock<Known>);

#[derive(Default)]
struct Known {
    fixed: Redaction,
    tokens: VecDeque<String>,
    all: Arc<Redaction>,
}

impl Secrets {
    /// Creates the secrets from those that do not change.
    pub(super) fn new(fixed: Redaction) -> Self {
        let all = Arc::new(fixed.clone());
        Self(RwLock::new(Known { fixed, tokens: VecDeque::new(), all }))
    }

    /// Returns all current secrets.
    pub(super) fn redaction(&self) -> Arc<Redaction> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).all)
    }

    /// Adds a token.
    pub(super) fn add_token(&self, token: &str) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.tokens.iter().any(|other| other == token) {
            return;
        }
        known.tokens.push_back(token.to_owned());
        if known.tokens.len() > MAX_TOKENS {
            known.tokens.pop_front();
        }
        let mut all = known.fixed.clone();
        known.tokens.iter().for_each(|token| all.note(PLACEHOLDER, token));
        known.all = Arc::new(all);
    }

    /// Removes the secrets from a text.
    pub(super) fn clean(&self, text: String) -> String {
        self.redaction().clean(text)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redaction().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_taken_out_as_they_come() {
        let mut fixed = Redaction::default();
        fixed.note("KEY", "the key");
        let secrets = Secrets::new(fixed);
        secrets.add_token("token-0");
        assert_eq!(secrets.clean("token-0 the key".to_owned()), "***ACCESS_TOKEN*** ***KEY***");
        (1..=MAX_TOKENS).for_each(|n| secrets.add_token(&format!("token-{n}")));
        let said = secrets.clean("token-0 token-1 token-4 the key".to_owned());
        assert_eq!(said, "token-0 ***ACCESS_TOKEN*** ***ACCESS_TOKEN*** ***KEY***");
        assert!(!format!("{secrets:?}").contains("token-"));
    }
}
