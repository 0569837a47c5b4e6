//! Grants of callers that an issuer identifies. No token of the configuration belongs to them.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::{Access, Grant, Limits, Token, alerts::Alerts, grant::Rights};

/// Maximum number of remembered callers. A forgotten caller gets a new grant, whose limits have no
/// uses yet.
const MAX_IDENTITIES: usize = 10_000;

type Grants = BTreeMap<(String, usize), Grant>;

/// The grants by the name of the caller and the rule that gave the rights. A caller whose claims
/// change between two rules keeps the uses of both.
#[derive(Debug, Default)]
pub(super) struct Identities(Mutex<Grants>);

impl Identities {
    fn lock(&self) -> MutexGuard<'_, Grants> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find_or_create(
        &self,
        name: &str,
        rule: usize,
        rights: &Token,
        alerts: &Arc<Alerts>,
    ) -> Grant {
        let mut grants = self.lock();
        let key = (name.to_owned(), rule);
        if let Some(grant) = grants.get(&key) {
            return grant.clone();
        }
        let token = Token { name: name.to_owned(), ..rights.clone() };
        insert_grant(&mut grants, key, token, alerts)
    }

    /// Returns the grant of an agent's caller with the limits of `token`.
    pub(super) fn find_or_create_agent(&self, token: Token, alerts: &Arc<Alerts>) -> Grant {
        let mut grants = self.lock();
        let (mut found, mut next) = (None, 0);
        for ((_, number), grant) in grants.range(keys_of(&token.name)) {
            next = number + 1;
            if grant.limits() == token.limits {
                found = Some(grant.clone());
            }
        }
        if let Some(grant) = found {
            return grant;
        }
        let key = (token.name.clone(), next);
        insert_grant(&mut grants, key, token, alerts)
    }

    pub(super) fn find(&self, name: &str) -> Option<Grant> {
        self.lock().range(keys_of(name)).next().map(|(_, grant)| grant.clone())
    }

    /// Returns the grant of a caller whose rule gives these limits.
    pub(super) fn find_with_limits(&self, name: &str, limits: Limits) -> Option<Grant> {
        let grants = self.lock();
        let mut same_name = grants.range(keys_of(name)).map(|(_, grant)| grant);
        same_name.find(|grant| grant.limits() == limits).cloned()
    }
}

/// Returns the range of all keys with a name.
fn keys_of(name: &str) -> RangeInclusive<(String, usize)> {
    (name.to_owned(), 0)..=(name.to_owned(), usize::MAX)
}

fn insert_grant(
    grants: &mut Grants,
    key: (String, usize),
    token: Token,
    alerts: &Arc<Alerts>,
) -> Grant {
    if grants.len() >= MAX_IDENTITIES {
        // A new grant has the same state as a grant without uses.
        let now = Instant::now();
        grants.retain(|_, grant| grant.is_in_use(now));
    }
    if grants.len() >= MAX_IDENTITIES {
        grants.pop_first();
    }
    let grant = Grant::from_rights(Rights::new(token, Arc::clone(alerts)));
    grants.insert(key, grant.clone());
    grant
}

impl Access {
    /// Makes callers need a token or a session, even without tokens in the configuration.
    #[must_use]
    pub fn with_identities(self) -> Self {
        // Ignores the error, because the cell then has identities already.
        let _ = self.0.identities.set(Identities::default());
        self
    }

    /// Returns the grant of a caller that an issuer has identified. Requests of the caller under
    /// the same rule share the grant, so its limits count them together.
    pub fn grant_for_identity(&self, name: &str, rule: usize, rights: &Token) -> Grant {
        let identities = self.0.identities.get_or_init(Identities::default);
        identities.find_or_create(name, rule, rights, &self.0.alerts)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use shared::store::Rate;
    use toolbox::dispatch::ToolReach;

    use super::{
        super::{Denied, Role},
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

    fn limited(calls: u32) -> Limits {
        Limits { calls: Some(Rate { calls, per_ms: 3_600_000 }), ..Limits::default() }
    }

    /// An agent outlives the process that identified its caller.
    #[test]
    fn an_agent_of_an_unknown_caller_keeps_its_limits() {
        let tool = "flow.echo".parse().unwrap();
        for access in [Access::default(), Access::default().with_identities()] {
            let reach = ToolReach { token: Some("oidc:ada".to_owned()), ..ToolReach::default() };
            let count = |limits| {
                let grant = access.find_agent_grant(&reach, limits).unwrap();
                grant.count_uses([&tool]).is_ok()
            };
            assert_eq!(
                [count(limited(2)), count(limited(2)), count(limited(2))],
                [true, true, false]
            );
            assert!(count(limited(1)), "another agent of the caller began with other limits");
            assert_eq!([count(limited(1)), count(limited(2))], [false, false]);
            assert!(access.find_agent_grant(&reach, Limits::default()).is_none());
            assert!(access.find_agent_grant(&ToolReach::default(), limited(1)).is_none());
            let is_open = !access.requires_token();
            assert_eq!(is_open, access.0.identities.get().is_none(), "agents need no sign-in");
        }
    }

    #[test]
    fn an_agent_counts_for_the_rule_of_its_caller() {
        let access = Access::default().with_identities();
        let rights = |limits| Token { limits, ..Token::new("", "", Role::Operator) };
        let first = access.grant_for_identity("oidc:ada", 0, &rights(limited(9)));
        let second = access.grant_for_identity("oidc:ada", 1, &rights(limited(1)));
        let tool = "flow.echo".parse().unwrap();
        let agent = access.find_agent_grant(&second.agent_reach(), limited(1)).unwrap();
        agent.count_uses([&tool]).unwrap();
        assert!(second.count_uses([&tool]).is_err(), "both have one limit");
        assert!(first.count_uses([&tool]).is_ok());
        // A token of the configuration has its present limits.
        let token = Token { limits: limited(1), ..Token::new("ci", "a secret", Role::Operator) };
        let access = Access::new([token]);
        let reach = ToolReach { token: Some("ci".to_owned()), ..ToolReach::default() };
        access.find_agent_grant(&reach, limited(5)).unwrap().count_uses([&tool]).unwrap();
        assert!(access.find_grant_by_name("ci").unwrap().count_uses([&tool]).is_err());
    }

    #[test]
    fn callers_without_uses_are_forgotten_first() {
        let access = Access::default().with_identities();
        let rights = Token { limits: limited(1), ..Token::new("", "", Role::Operator) };
        let grant = |n: usize| access.grant_for_identity(&format!("oidc:{n:06}"), 0, &rights);
        let tool = "flow.echo".parse().unwrap();
        grant(0).count_uses([&tool]).unwrap();
        let kept = grant(1);
        for n in 2..=MAX_IDENTITIES {
            grant(n);
        }
        assert!(grant(0).count_uses([&tool]).is_err(), "its use still counts");
        kept.count_uses([&tool]).unwrap();
        assert!(grant(1).count_uses([&tool]).is_err(), "it is the same grant");
    }
}
