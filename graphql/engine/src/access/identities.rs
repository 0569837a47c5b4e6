//! Grants of callers that an issuer identifies. No token of the configuration belongs to them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Access, Grant, Token, alerts::Alerts, grant::Rights};

/// Maximum number of remembered callers. A forgotten caller gets a new grant, whose limits have no
/// uses yet.
const MAX_IDENTITIES: usize = 10_000;

/// The grants by the name of the caller and the rule that gave the rights. A caller whose claims
/// change between two rules keeps the uses of both.
#[derive(Debug, Default)]
pub(super) struct Identities(Mutex<BTreeMap<(String, usize), Grant>>);

impl Identities {
    fn find_or_create(
        &self,
        name: &str,
        rule: usize,
        rights: &Token,
        alerts: &Arc<Alerts>,
    ) -> Grant {
        let mut grants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), rule);
        if let Some(grant) = grants.get(&key) {
            return grant.clone();
        }
        if grants.len() >= MAX_IDENTITIES {
            grants.pop_first();
        }
        let token = Token { name: name.to_owned(), ..rights.clone() };
        let grant = Grant::from_rights(Rights::new(token, Arc::clone(alerts)));
        grants.insert(key, grant.clone());
        grant
    }

    pub(super) fn find(&self, name: &str) -> Option<Grant> {
        let grants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut same_name = grants.range((name.to_owned(), 0)..=(name.to_owned(), usize::MAX));
        same_name.next().map(|(_, grant)| grant.clone())
    }
}

impl Access {
    /// Makes callers need a token or a session, even without tokens in the configuration.
    #[must_use]
    pub fn with_identities(self) -> Self {
        // Cannot fail: nobody else sets the cell.
        let _ = self.0.identities.set(Identities::default());
        self
    }

    /// Returns the grant of a caller that an issuer has identified, with the rights of a rule.
    /// Requests of the caller under the same rule share the grant, so its limits count them
    /// together, until the grant is forgotten.
    pub fn grant_for_identity(&self, name: &str, rule: usize, rights: &Token) -> Grant {
        let identities = self.0.identities.get_or_init(Identities::default);
        identities.find_or_create(name, rule, rights, &self.0.alerts)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use shared::store::Rate;

    use super::{
        super::{Denied, Limits, Role},
        *,
    };

    #[test]
    fn a_caller_of_an_issuer_keeps_its_uses_and_others_need_a_token() {
        let access = Access::default().with_identities();
        let peer = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(access.authenticate(None, peer).unwrap_err(), Denied::NoToken);
        assert!(access.can_connect(IpAddr::from([10, 0, 0, 1])));
        let limits =
            Limits { calls: Some(Rate { calls: 1, per_ms: 3_600_000 }), ..Limits::default() };
        let rights = Token { limits, ..Token::new("", "", Role::Operator) };
        let grant = || access.grant_for_identity("oidc:ada", 0, &rights);
        let tool = "flow.echo".parse().unwrap();
        grant().count_uses([&tool]).unwrap();
        assert!(grant().count_uses([&tool]).is_err(), "the next request counts, too");
        assert!(access.grant_for_identity("oidc:bob", 0, &rights).count_uses([&tool]).is_ok());
        assert_eq!(access.find_grant_by_name("oidc:ada").unwrap().name(), Some("oidc:ada"));
        assert!(access.find_grant_by_name("oidc:eve").is_none());
        assert_eq!(access.authenticate(Some(""), peer).unwrap_err(), Denied::UnknownToken);
    }
}
