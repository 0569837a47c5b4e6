//! Who sends a request: where it comes from, and the token that it shows.
//!
//! The token stays here: nobody behind sees the header, or the field of `connection_init`, that
//! it came in.

use axum::{
    extract::Request,
    http::{HeaderMap, header, request::Parts},
};
use serde_json::{Map, Value};

use super::{
    app::{Caller, Peer},
    refusal::Refusal,
};
use crate::access::{Access, Denied, Grant};

/// How the pages begin that everybody may ask: whether the server is well.
const HEALTH: &str = "/health/";

/// What the payload of `connection_init` may call the token.
const FIELDS: [&str; 3] = ["Authorization", "authorization", "token"];

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        Self::unauthenticated(denied.to_string())
    }
}

/// Returns whether everybody may ask for a page: whether the server is well.
pub(super) fn is_health(path: &str) -> bool {
    path.starts_with(HEALTH)
}

/// Refuses other machines where there are no tokens by which to know them.
pub(super) fn admit(access: &Access, request: &Request) -> Result<(), Refusal> {
    let peer = request.extensions().get::<Peer>();
    if peer.is_some_and(|peer| access.admits(peer.0)) || is_health(request.uri().path()) {
        return Ok(());
    }
    Err(Refusal::forbidden(
        "this server has no access tokens, so that only its own machine may connect; add \
         `access.tokens` to its configuration",
    ))
}

/// Returns what the sender of a request may do.
pub(super) fn enter(access: &Access, headers: &HeaderMap, peer: Peer) -> Result<Grant, Refusal> {
    Ok(access.enter(bearer(headers), peer.0)?)
}

/// Returns who sends a request.
pub(super) fn caller(access: &Access, parts: &Parts) -> Result<Caller, Refusal> {
    let grant = enter(access, &parts.headers, peer(parts)?)?;
    Ok(Caller { headers: without_token(&parts.headers), init: None, grant })
}

/// What the handshake of a WebSocket says of the client.
#[derive(Debug)]
pub(super) struct Opening {
    headers: HeaderMap,
    peer: Peer,
    grant: Option<Grant>,
}

/// Reads the handshake of a WebSocket. Pages cannot send headers with it, so that one without a
/// token is no mistake yet; a wrong token is one.
pub(super) fn opening(access: &Access, parts: &Parts) -> Result<Opening, Refusal> {
    let peer = peer(parts)?;
    let grant = match access.enter(bearer(&parts.headers), peer.0) {
        Ok(grant) => Some(grant),
        Err(Denied::NoToken) => None,
        Err(denied) => return Err(denied.into()),
    };
    Ok(Opening { headers: without_token(&parts.headers), peer, grant })
}

impl Opening {
    /// Returns who the client is, by the payload of `connection_init` or else by the handshake.
    pub(super) fn greet(
        &self,
        access: &Access,
        mut init: Option<Value>,
    ) -> Result<Caller, Refusal> {
        let headers = self.headers.clone();
        let Some(token) = access.wants_token().then(|| take_token(init.as_mut())).flatten() else {
            let grant = self.grant.clone().ok_or(Denied::NoToken)?;
            return Ok(Caller { headers, init, grant });
        };
        let grant = access.enter(Some(without_scheme(&token)), self.peer.0)?;
        Ok(Caller { headers, init, grant })
    }
}

/// A server that does not know where a request comes from trusts nobody.
fn peer(parts: &Parts) -> Result<Peer, Refusal> {
    let peer = parts.extensions.get::<Peer>().copied();
    peer.ok_or_else(|| Refusal::forbidden("it is not known where this request comes from"))
}

/// Returns the token of a request. Other schemes are for whoever stands before this server.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    values.find_map(|value| scheme(value.to_str().ok()?))
}

fn scheme(text: &str) -> Option<&str> {
    let (scheme, token) = text.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Clients write the token into the payload with the scheme, and without.
fn without_scheme(text: &str) -> &str {
    scheme(text).unwrap_or(text.trim())
}

fn without_token(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(header::AUTHORIZATION);
    headers
}

/// Takes the token out of the payload of `connection_init`.
fn take_token(init: Option<&mut Value>) -> Option<String> {
    let fields: &mut Map<String, Value> = init?.as_object_mut()?;
    let taken = FIELDS.map(|name| fields.shift_remove(name));
    taken.into_iter().flatten().find_map(|field| match field {
        Value::String(secret) if !secret.trim().is_empty() => Some(secret),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_token_is_found_where_clients_put_it() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("abc", None),
            ("Bearer", None),
        ] {
            let value = HeaderValue::from_static(value);
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.clone())]);
            assert_eq!(bearer(&headers), expected, "{value:?}");
            assert!(without_token(&headers).is_empty());
        }
        for (init, expected) in [
            (json!({ "Authorization": "Bearer abc", "x": 1 }), Some("abc")),
            (json!({ "authorization": "abc", "x": 1 }), Some("abc")),
            (json!({ "token": "bearer abc", "x": 1 }), Some("abc")),
            (json!({ "token": "", "x": 1 }), None),
            (json!({ "token": 7, "x": 1 }), None),
            (json!({ "x": 1 }), None),
        ] {
            let mut rest = init.clone();
            let token = take_token(Some(&mut rest));
            assert_eq!(token.as_deref().map(without_scheme), expected, "{init}");
            assert_eq!(rest, json!({ "x": 1 }), "nobody else sees it");
        }
    }
}
