//! Identifies the caller of a request by its address and token.
//!
//! Removes the token from the request, so that later handlers do not see it.

use axum::{
    extract::Request,
    http::{HeaderMap, header, request::Parts},
};
use engine::access::{Access, Denied, Grant};
use oidc::{SignIn, SignedIn};
use serde_json::{Map, Value};
use shared::trace::SpanContext;
use tokio::time::Instant;

use super::{
    app::Caller,
    bearer::{bearer_token, strip_scheme},
    peer::Peer,
    refusal::Refusal,
    sign_in::{self, Identified},
    traced_request,
};

/// Beginning of the paths of health checks, which need no token.
const HEALTH_PATH_PREFIX: &str = "/health/";

const TOKEN_FIELDS: [&str; 3] = ["Authorization", "authorization", "token"];

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Self {
        Self::unauthenticated(denied.to_string())
    }
}

pub(super) fn is_health(path: &str) -> bool {
    path.starts_with(HEALTH_PATH_PREFIX)
}

/// Rejects other machines if callers need neither a token nor a session, except for health checks.
pub(super) fn check_peer(access: &Access, request: &Request) -> Result<(), Refusal> {
    let peer = request.extensions().get::<Peer>();
    if peer.is_some_and(|peer| access.can_connect(peer.0)) || is_health(request.uri().path()) {
        return Ok(());
    }
    Err(Refusal::forbidden(
        "this server has no access tokens, so only clients on the same machine can connect; add \
         `access.tokens` to its configuration",
    ))
}

/// Identifies the caller of a request. `identified` is the outcome of the check by an issuer.
pub(super) fn authenticate(
    access: &Access,
    headers: &HeaderMap,
    peer: Peer,
    identified: Option<&Identified>,
) -> Result<Grant, Refusal> {
    match identified {
        Some(Identified(outcome)) => outcome.clone().map(|signed_in| signed_in.grant),
        None => Ok(access.authenticate(bearer_token(headers), peer.0)?),
    }
}

pub(super) fn identify_caller(access: &Access, parts: &Parts) -> Result<Caller, Refusal> {
    let headers = remove_token(&parts.headers);
    if let Some(Identified(outcome)) = parts.extensions.get() {
        return outcome.clone().map(|signed_in| signed_in_caller(signed_in, headers, None));
    }
    let grant = authenticate(access, &parts.headers, find_peer(parts)?, None)?;
    Ok(Caller { headers, grant, ..Caller::default() })
}

fn signed_in_caller(signed_in: SignedIn, headers: HeaderMap, init: Option<Value>) -> Caller {
    let expires_at = Instant::now().checked_add(signed_in.valid_for);
    Caller { headers, init, grant: signed_in.grant, expires_at }
}

#[derive(Debug)]
pub(super) struct HandshakeCaller {
    headers: HeaderMap,
    peer: Peer,
    /// `None` if a token is required and the handshake has neither a token nor a session.
    caller: Option<Caller>,
}

/// Reads the handshake of a WebSocket. Accepts a missing token, because browsers cannot add headers
/// to the handshake and send the token in `connection_init`.
pub(super) fn read_handshake(access: &Access, parts: &Parts) -> Result<HandshakeCaller, Refusal> {
    let peer = find_peer(parts)?;
    let has_credentials = bearer_token(&parts.headers).is_some()
        || parts.extensions.get::<Identified>().is_some()
        || !access.requires_token();
    let caller = has_credentials.then(|| identify_caller(access, parts)).transpose()?;
    Ok(HandshakeCaller { headers: remove_token(&parts.headers), peer, caller })
}

impl HandshakeCaller {
    pub(super) fn read_trace_context(&self) -> Option<SpanContext> {
        traced_request::read_context(&self.headers)
    }

    /// Identifies the client by the payload of `connection_init`. Without a token in this payload,
    /// identifies the client by the handshake.
    pub(super) async fn identify_client(
        &self,
        access: &Access,
        sign_in: Option<&SignIn>,
        mut init: Option<Value>,
    ) -> Result<Caller, Refusal> {
        let headers = self.headers.clone();
        let Some(token) = access.requires_token().then(|| take_token(init.as_mut())).flatten()
        else {
            let caller = self.caller.clone().ok_or(Denied::NoToken)?;
            return Ok(Caller { init, ..caller });
        };
        let token = strip_scheme(&token);
        if let Some(sign_in) = sign_in
            && let Some(outcome) = sign_in::identify_token(sign_in, access, token, self.peer).await
        {
            return Ok(signed_in_caller(outcome?, headers, init));
        }
        let grant = access.authenticate(Some(token), self.peer.0)?;
        Ok(Caller { headers, init, grant, expires_at: None })
    }
}

fn find_peer(parts: &Parts) -> Result<Peer, Refusal> {
    let peer = parts.extensions.get::<Peer>().copied();
    peer.ok_or_else(|| Refusal::forbidden("the address of the caller is unknown"))
}

fn remove_token(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(header::AUTHORIZATION);
    headers
}

fn take_token(init: Option<&mut Value>) -> Option<String> {
    let fields: &mut Map<String, Value> = init?.as_object_mut()?;
    let taken = TOKEN_FIELDS.map(|name| fields.shift_remove(name));
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
    fn the_token_is_read_from_the_header_or_payload() {
        for (value, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic abc", None),
            ("abc", None),
            ("Bearer", None),
        ] {
            let value = HeaderValue::from_static(value);
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.clone())]);
            assert_eq!(bearer_token(&headers), expected, "{value:?}");
            assert!(remove_token(&headers).is_empty());
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
            assert_eq!(token.as_deref().map(strip_scheme), expected, "{init}");
            assert_eq!(rest, json!({ "x": 1 }), "the token is removed");
        }
    }
}
