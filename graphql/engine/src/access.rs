//! Access tokens: their roles, tool patterns and limits. Faber stores only the digest of a token.

mod alerts;
mod bucket;
mod grant;
mod identities;
mod quota;
mod role;
mod see;
mod token;
mod token_changes;

use std::{
    fmt::Write as _,
    net::IpAddr,
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Instant,
};

use self::{
    alerts::{AlertKind, Alerts},
    grant::{Rights, token_of_agent},
    identities::Identities,
    role::{mutation_role, query_role},
    token::Digest,
};
use shared::actor::Actor;
use tokio_util::sync::CancellationToken;
use toolbox::dispatch::ToolReach;

pub use shared::glob::{GlobError, ToolPattern};

pub use self::{
    grant::{AccessError, Grant, Limits},
    quota::{Admission, QuotaError, Quotas},
    role::Role,
    see::See,
    token::Token,
    token_changes::TokenChanges,
};

#[derive(Clone, Debug, Default)]
pub struct Access(Arc<AccessState>);

#[derive(Debug, Default)]
struct AccessState {
    holders: RwLock<Holders>,
    alerts: Arc<Alerts>,
    identities: OnceLock<Identities>,
    /// Grants of agents' callers whose tokens this process does not know.
    agents: Identities,
}

#[derive(Debug, Default)]
struct Holders {
    grants_by_digest: Vec<(Digest, Grant)>,
    /// Cancelled when the first token is added. Callers without a token then have no access.
    tokenless: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error(
        "this server requires an access token: send `Authorization: Bearer …` as a header, or in \
         the payload of `connection_init` over a WebSocket; `faber` reads the token from \
         FABER_TOKEN"
    )]
    NoToken,
    #[error(
        "this server does not know the access token: check `access.tokens` in the server's \
         configuration"
    )]
    UnknownToken,
}

impl Access {
    /// Accepts callers with one of these tokens. Without tokens, accepts callers on this machine
    /// and gives them all rights, unless an issuer identifies callers
    /// ([`with_identities`](Self::with_identities)).
    pub fn new(tokens: impl IntoIterator<Item = Token>) -> Self {
        let alerts = Arc::new(Alerts::default());
        let holder = |token: Token| {
            let digest = token.digest;
            (digest, Grant::from_rights(Rights::new(token, Arc::clone(&alerts))))
        };
        let grants_by_digest = tokens.into_iter().map(holder).collect();
        let holders = Holders { grants_by_digest, tokenless: CancellationToken::new() };
        let (holders, identities) = (RwLock::new(holders), OnceLock::new());
        Self(Arc::new(AccessState { holders, alerts, identities, agents: Identities::default() }))
    }

    pub fn requires_token(&self) -> bool {
        !self.read_holders().grants_by_digest.is_empty() || self.0.identities.get().is_some()
    }

    /// Returns whether a peer is allowed to connect. If callers need neither a token nor a session,
    /// only a peer on this machine is allowed to connect.
    pub fn can_connect(&self, peer: IpAddr) -> bool {
        self.requires_token() || peer.to_canonical().is_loopback()
    }

    pub fn authenticate(&self, token: Option<&str>, peer: IpAddr) -> Result<Grant, Denied> {
        let holders = self.read_holders();
        if holders.grants_by_digest.is_empty() && self.0.identities.get().is_none() {
            let tokenless = holders.tokenless.clone();
            return Ok(Grant::of_actor(Actor::local()).revoked_by(tokenless));
        }
        let token = token.ok_or(Denied::NoToken)?;
        let digest = Digest::of_token(token);
        // Compares all tokens even after a match, so that the duration reveals nothing about the
        // tokens.
        let found = holders.grants_by_digest.iter().fold(None, |found, (known, grant)| {
            if known.equals_in_constant_time(&digest) { Some(grant) } else { found }
        });
        found.cloned().ok_or_else(|| {
            self.report_bad_token(peer);
            Denied::UnknownToken
        })
    }

    /// Counts a token that gives no access, for the alert about peers that try tokens.
    pub fn report_bad_token(&self, peer: IpAddr) {
        self.0.alerts.report_bad_token(peer.to_canonical(), Instant::now());
    }

    pub fn find_grant_by_name(&self, token: &str) -> Option<Grant> {
        self.find_holder(token).or_else(|| self.0.identities.get()?.find(token))
    }

    /// Returns the grant toward whose limits the calls of an agent count. `limits` are those that
    /// the caller had when it started the agent, and apply if this process does not know the
    /// caller.
    pub fn find_agent_grant(&self, reach: &ToolReach, limits: Limits) -> Option<Grant> {
        let name = reach.token.as_deref()?;
        if let Some(grant) = self.find_holder(name) {
            return Some(grant);
        }
        let identities = self.0.identities.get();
        if let Some(grant) = identities.and_then(|found| found.find_with_limits(name, limits)) {
            return Some(grant);
        }
        if limits.is_empty() {
            // The caller has no limits, or an earlier version started the agent.
            return identities?.find(name);
        }
        let token = token_of_agent(name, reach, limits);
        Some(self.0.agents.find_or_create_agent(token, &self.0.alerts))
    }

    fn find_holder(&self, token: &str) -> Option<Grant> {
        let holders = self.read_holders();
        let mut grants = holders.grants_by_digest.iter().map(|holder| &holder.1);
        grants.find(|grant| grant.name() == Some(token)).cloned()
    }

    fn read_holders(&self) -> std::sync::RwLockReadGuard<'_, Holders> {
        self.0.holders.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn format_metrics(&self) -> String {
        let mut text = "# HELP faber_alerts_total Suspicious behaviour of callers, by kind.\n\
                        # TYPE faber_alerts_total counter\n"
            .to_owned();
        for kind in AlertKind::ALL {
            let (name, count) = (kind.name(), self.0.alerts.count(kind));
            let _ = writeln!(text, "faber_alerts_total{{kind=\"{name}\"}} {count}");
        }
        text
    }
}

pub fn required_role(root: &str, field: &str) -> Role {
    match root {
        "Mutation" => mutation_role(field),
        "Query" => query_role(field),
        _ => Role::Viewer,
    }
}

#[cfg(test)]
mod tests;
