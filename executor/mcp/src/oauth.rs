//! OAuth 2.1 for MCP servers that are called over HTTP.
//!
//! Where the authorization server is, what it can do and what to ask it for is found out by rmcp
//! (RFC 9728, 8414, 7591, 8707, 9207, PKCE); every request of it goes through a `Web` of ours,
//! which has the rules of all other sources. What a person was granted is kept as
//! [`Logins`]; what a program is granted is kept nowhere.
//!
//! A [`Bearer`] has the token for each request to a server: it takes what is kept, renews it before
//! it ends or when it is refused, and otherwise says who has to do what.

mod assertion;
mod background;
mod bearer;
mod client_credentials;
mod config;
mod denied;
mod discovery;
mod login;
mod source;
#[cfg(test)]
pub(super) mod test_server;
mod token_store;
mod web;

pub(super) use self::{background::BackgroundTasks, bearer::Bearer};
pub use self::{
    config::OAuth,
    login::{LoggedIn, Login, LoginError},
    token_store::Logins,
};

/// The message for a server without a login.
pub const NEEDS_LOGIN: &str = "needs a login";

/// Rejects servers to which no token may be sent.
pub(super) fn may_be_told(server: &reqwest::Url) -> Result<(), String> {
    web::check(server).map_err(|err| err.to_string())
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "tokens end by the clock of the machine, as the server that grants them counts"
)]
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
