//! Identifies callers with a token or a session of an OpenID provider.

mod cookies;
mod own_page;
mod routes;

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::Response,
};
use engine::access::Access;
use oidc::{SignIn, SignInError, SignedIn};

use self::{cookies::Cookie, own_page::check_own_page};
use super::{
    app::App,
    bearer::bearer_token,
    hosts::{HostAndPort, requested_host},
    path_prefix::PathPrefix,
    peer::Peer,
    refusal::Refusal,
};

/// Beginning of the paths of the sign-in, which need no caller.
const AUTH_PATH: &str = "/auth/";
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";
const MCP_PATH: &str = "/mcp";

/// The outcome of the check of a token or a session. A request without both has no such extension.
#[derive(Clone, Debug)]
pub(super) struct Identified(pub(super) Result<SignedIn, Refusal>);

#[derive(Debug)]
struct SignInState {
    sign_in: Arc<SignIn>,
    access: Access,
    path_prefix: PathPrefix,
    has_tls: bool,
}

impl From<SignInError> for Refusal {
    fn from(err: SignInError) -> Self {
        let message = err.to_string();
        match err {
            SignInError::InvalidToken(_) | SignInError::SessionEnded => {
                Self::unauthenticated(message)
            }
            SignInError::NoRule { .. } => Self::forbidden(message),
            SignInError::Unavailable(_) => {
                Self { status: StatusCode::SERVICE_UNAVAILABLE, ..Self::unauthenticated(message) }
            }
            SignInError::Busy => Self::limit_exceeded(StatusCode::TOO_MANY_REQUESTS, message),
            SignInError::Failed(_) => Self::malformed_request(message),
        }
    }
}

/// Adds the routes of the sign-in and the check of callers. Without an issuer, adds only the route
/// that tells the page so.
pub(super) fn add_sign_in(router: Router, app: &App) -> Router {
    let options = &app.options;
    let Some(sign_in) = options.sign_in.clone() else {
        let has_page = options.has_api;
        return if has_page { router.merge(routes::build_routes_without_issuer()) } else { router };
    };
    let state = Arc::new(SignInState {
        sign_in,
        access: options.access.clone(),
        path_prefix: options.path_prefix.clone(),
        has_tls: options.tls.is_some(),
    });
    let router = if options.has_api {
        router.merge(routes::build_routes(Arc::clone(&state)))
    } else {
        router
    };
    router.layer(middleware::from_fn_with_state(state, identify_by_issuer))
}

/// Identifies the caller of a bearer token. Returns `None` for a token of the configuration.
pub(super) async fn identify_token(
    sign_in: &SignIn,
    access: &Access,
    token: &str,
    peer: Peer,
) -> Option<Result<SignedIn, Refusal>> {
    if !sign_in.is_signed_token(token) {
        return None;
    }
    let outcome = sign_in.authenticate_token(token).await;
    if matches!(outcome, Err(SignInError::InvalidToken(_))) {
        access.report_bad_token(peer.0);
    }
    Some(outcome.map_err(Refusal::from))
}

async fn identify_by_issuer(
    State(state): State<Arc<SignInState>>,
    request: Request,
    next: Next,
) -> Response {
    let base_url = state.base_url(&request);
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let has_token = bearer_token(&parts.headers).is_some();
    if !path.starts_with(AUTH_PATH)
        && let Some(outcome) = state.identify(&parts, &base_url).await
    {
        parts.headers.remove(header::COOKIE);
        parts.extensions.insert(Identified(outcome));
    }
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if response.status() == StatusCode::UNAUTHORIZED {
        let challenge = format_challenge(&base_url, &path, has_token);
        if let Ok(challenge) = HeaderValue::from_str(&challenge) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
    }
    response
}

impl SignInState {
    async fn identify(&self, parts: &Parts, base_url: &str) -> Option<Result<SignedIn, Refusal>> {
        let headers = &parts.headers;
        if let Some(token) = bearer_token(headers) {
            let peer = parts.extensions.get::<Peer>().copied()?;
            return identify_token(&self.sign_in, &self.access, token, peer).await;
        }
        let cookie = Cookie::Session.read_from(headers, base_url)?;
        let session = check_own_page(&parts.method, headers, base_url)
            .and_then(|()| self.sign_in.authenticate_session(cookie).map_err(Refusal::from));
        Some(session)
    }

    /// Returns the address under which the client reaches this server, with the path prefix and
    /// without a slash at the end.
    fn base_url(&self, request: &Request) -> String {
        if let Some(url) = self.sign_in.public_url() {
            return format!("{url}{}", self.path_prefix);
        }
        let host = requested_host(request).unwrap_or_default();
        let is_loopback = HostAndPort::parse(host).is_some_and(|host| host.is_loopback());
        let scheme = if is_loopback && !self.has_tls { "http" } else { "https" };
        format!("{scheme}://{host}{}", self.path_prefix)
    }
}

/// Returns the header that leads MCP clients to the issuer (RFC 9728, RFC 6750).
fn format_challenge(base_url: &str, path: &str, has_token: bool) -> String {
    let error = if has_token { " error=\"invalid_token\"," } else { "" };
    let suffix = if path.starts_with(MCP_PATH) { MCP_PATH } else { "" };
    format!(
        "Bearer realm=\"faber\",{error} resource_metadata=\"{base_url}{METADATA_PATH}{suffix}\""
    )
}
