//! Who may do what: access tokens, their roles, the tools that they may use, and how often.
//!
//! A token is known by its digest only. Whoever shows one holds its [`Grant`]; what runs inside
//! this process, and whoever connects from this machine where no tokens are configured, holds one
//! that allows everything. The server asks [`Access`] who comes in, the schema asks the grant
//! about roles, and the engine about tools.

mod alerts;
mod bucket;
mod grant;
mod role;
mod token;

use std::{fmt::Write as _, net::IpAddr, sync::Arc, time::Instant};

use self::{
    alerts::{Alerts, Kind},
    grant::Rights,
    role::{mutation_role, query_role},
    token::Digest,
};
pub use shared::glob::{GlobError, ToolPattern};

pub use self::{
    grant::{AccessError, Grant, Limits},
    role::Role,
    token::Token,
};

/// Says who may come in.
#[derive(Clone, Debug, Default)]
pub struct Access(Arc<Doors>);

#[derive(Debug, Default)]
struct Doors {
    holders: Vec<(Digest, Grant)>,
    alerts: Arc<Alerts>,
}

/// Why somebody may not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No token was shown.
    #[error(
        "this server wants an access token: send `Authorization: Bearer …`, over a WebSocket in \
         the payload of `connection_init`; `faber` takes it from FABER_TOKEN"
    )]
    NoToken,
    /// A token was shown that nobody has.
    #[error("the access token is not one of this server's: look at `access.tokens` there")]
    UnknownToken,
}

impl Access {
    /// Lets in whoever holds one of these tokens. Without any, this machine may connect, and may do
    /// everything.
    pub fn new(tokens: impl IntoIterator<Item = Token>) -> Self {
        let alerts = Arc::new(Alerts::default());
        let holder = |token: Token| {
            let digest = token.digest;
            (digest, Grant::of(Rights::new(token, Arc::clone(&alerts))))
        };
        let holders = tokens.into_iter().map(holder).collect();
        Self(Arc::new(Doors { holders, alerts }))
    }

    /// Returns whether tokens are wanted.
    pub fn wants_token(&self) -> bool {
        !self.0.holders.is_empty()
    }

    /// Returns whether a peer may connect at all: without tokens, only this machine.
    pub fn admits(&self, peer: IpAddr) -> bool {
        self.wants_token() || peer.to_canonical().is_loopback()
    }

    /// Returns what a caller may do.
    pub fn enter(&self, token: Option<&str>, peer: IpAddr) -> Result<Grant, Denied> {
        if !self.wants_token() {
            return Ok(Grant::default());
        }
        let token = token.ok_or(Denied::NoToken)?;
        let digest = Digest::of(token);
        // Every token is looked at, so that the time says nothing about which one is near.
        let found =
            self.0.holders.iter().fold(
                None,
                |found, (known, grant)| {
                    if known.is(&digest) { Some(grant) } else { found }
                },
            );
        found.cloned().ok_or_else(|| {
            self.0.alerts.bad_token(peer.to_canonical(), Instant::now());
            Denied::UnknownToken
        })
    }

    /// Returns what the holder of a token may do, for what goes on when nobody asks any more.
    pub fn holder(&self, token: &str) -> Option<Grant> {
        let mut holders = self.0.holders.iter().map(|holder| &holder.1);
        holders.find(|grant| grant.name() == Some(token)).cloned()
    }

    /// Writes how often something was suspicious in the text format of `/metrics`.
    pub fn figures(&self) -> String {
        let mut text = "# HELP faber_alerts_total What was suspicious about callers, by kind.\n\
                        # TYPE faber_alerts_total counter\n"
            .to_owned();
        for kind in Kind::ALL {
            let (name, count) = (kind.name(), self.0.alerts.count(kind));
            let _ = writeln!(text, "faber_alerts_total{{kind=\"{name}\"}} {count}");
        }
        text
    }
}

/// What a field of an operation's root needs, where that is more than any caller has.
pub fn needed(root: &str, field: &str) -> Role {
    match root {
        "Mutation" => mutation_role(field),
        "Query" => query_role(field),
        _ => Role::Viewer,
    }
}

#[cfg(test)]
mod tests;
