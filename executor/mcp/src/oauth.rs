//! OAuth 2.1 for MCP servers over HTTP.
//!
//! rmcp finds the authorization server and its features, and makes the requests (RFC 9728, 8414,
//! 7591, 8707, 9207, PKCE). An `AuthHttp` of this crate sends them, so that the network rules of all
//! other sources apply. [`Logins`] stores the tokens of people. Tokens of programs are not stored.
//!
//! A [`Bearer`] provides the token for each request to a server. It takes a stored token, refreshes
//! it before it expires or when the server refuses it, and otherwise reports what the user must do.

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

use shared::id::ToolSetName;

pub(super) use self::{background::BackgroundTasks, bearer::Bearer};
pub use self::{
    config::OAuth,
    login::{LoggedIn, Login, LoginError},
    token_store::Logins,
};

/// The message for a server without a login.
pub const NEEDS_LOGIN: &str = "needs a login";

/// The caller of a server.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) set: &'a ToolSetName,
    /// The logins of people.
    pub(crate) logins: Option<&'a Logins>,
    /// Runs the requests for tokens.
    pub(crate) background: &'a BackgroundTasks,
}

/// Rejects servers to which no token may be sent.
pub(super) fn check_server(server: &reqwest::Url) -> Result<(), String> {
    web::check_secure(server).map_err(|err| err.to_string())
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "tokens end by the clock of the machine, as the server that grants them counts"
)]
fn unix_time() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
