use std::sync::{Arc, PoisonError};

use tokio_util::sync::CancellationToken;

use super::{Access, Grant, Token, grant::Rights};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenChanges {
    pub added: Vec<String>,
    /// Tokens whose secret or rights differ from before.
    pub changed: Vec<String>,
    pub removed: Vec<String>,
}

impl TokenChanges {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl Access {
    /// Replaces the tokens. An unchanged token keeps its grant, and the grants of changed and
    /// removed tokens are revoked.
    pub fn replace_tokens(&self, tokens: Vec<Token>) -> TokenChanges {
        let mut holders = self.0.holders.write().unwrap_or_else(PoisonError::into_inner);
        let mut changes = TokenChanges::default();
        let mut old = std::mem::take(&mut holders.grants_by_digest);
        for token in tokens {
            let place = old.iter().position(|(_, grant)| grant.name() == Some(&*token.name));
            let before = place.map(|index| old.swap_remove(index));
            if let Some(same) = before.as_ref().filter(|(_, grant)| grant.has_token(&token)) {
                holders.grants_by_digest.push(same.clone());
                continue;
            }
            let list = if before.is_some() { &mut changes.changed } else { &mut changes.added };
            list.push(token.name.clone());
            if let Some((_, grant)) = before {
                grant.revoke();
            }
            let digest = token.digest;
            let rights = Rights::new(token, Arc::clone(&self.0.alerts));
            holders.grants_by_digest.push((digest, Grant::from_rights(rights)));
        }
        for (_, grant) in old {
            changes.removed.extend(grant.name().map(str::to_owned));
            grant.revoke();
        }
        changes.removed.sort();
        if !holders.grants_by_digest.is_empty() {
            std::mem::replace(&mut holders.tokenless, CancellationToken::new()).cancel();
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::FutureExt as _;

    use super::{
        super::{Denied, Limits, Role},
        *,
    };
    use shared::store::Rate;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn token(name: &str, secret: &str, role: Role) -> Token {
        Token::new(name, secret, role)
    }

    fn is_revoked(grant: &Grant) -> bool {
        grant.wait_until_revoked().now_or_never().is_some()
    }

    #[test]
    fn changed_and_removed_tokens_are_revoked_and_others_keep_their_uses() {
        let limits = Limits { calls: Some(Rate { calls: 1, per_ms: 3_600_000 }), per_tool: None };
        let kept = Token { limits, ..token("kept", "secret a", Role::Operator) };
        let access = Access::new([
            kept.clone(),
            token("rotated", "secret b", Role::Viewer),
            token("promoted", "secret c", Role::Viewer),
            token("gone", "secret d", Role::Viewer),
        ]);
        let grant = |secret| access.authenticate(Some(secret), PEER);
        let before = ["secret a", "secret b", "secret c", "secret d"].map(|s| grant(s).unwrap());
        let tool = "flow.echo".parse().unwrap();
        before[0].count_uses([&tool]).unwrap();
        let changes = access.replace_tokens(vec![
            kept,
            token("rotated", "secret e", Role::Viewer),
            token("promoted", "secret c", Role::Admin),
            token("new", "secret f", Role::Viewer),
        ]);
        assert_eq!(changes.added, ["new"]);
        assert_eq!(changes.changed, ["rotated", "promoted"]);
        assert_eq!(changes.removed, ["gone"]);
        assert_eq!(before.each_ref().map(is_revoked), [false, true, true, true]);
        assert!(grant("secret a").unwrap().count_uses([&tool]).is_err(), "the use still counts");
        for gone in ["secret b", "secret d"] {
            assert_eq!(grant(gone).unwrap_err(), Denied::UnknownToken, "{gone}");
        }
        assert!(grant("secret c").unwrap().check_field("Mutation", "registerTool").is_ok());
        assert!(!is_revoked(&grant("secret f").unwrap()));
    }

    #[test]
    fn the_first_token_revokes_callers_without_a_token() {
        let access = Access::default();
        let local = access.authenticate(None, PEER).unwrap();
        assert!(access.replace_tokens(Vec::new()).is_empty());
        assert!(!is_revoked(&local));
        access.replace_tokens(vec![token("a", "secret a", Role::Viewer)]);
        assert!(is_revoked(&local));
        assert_eq!(access.authenticate(None, PEER).unwrap_err(), Denied::NoToken);
        access.replace_tokens(Vec::new());
        assert!(!is_revoked(&access.authenticate(None, PEER).unwrap()));
    }
}
