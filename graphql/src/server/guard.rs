//! Rejects requests with foreign hosts and origins, for all routes and for WebSockets.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use engine::access::Access;

use super::{
    entry,
    hosts::{HostAndPort, HostPolicy, Origin, requested_host},
    metrics::Metrics,
    refusal::Refusal,
    refusal_log::RefusedRequest,
};

/// Time in seconds for which a browser caches a preflight.
const PREFLIGHT_MAX_AGE: HeaderValue = HeaderValue::from_static("600");

const EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("date, mcp-session-id, retry-after, www-authenticate");

#[derive(Debug)]
pub(super) struct GuardState {
    pub(super) policy: HostPolicy,
    pub(super) access: Access,
    pub(super) metrics: Arc<Metrics>,
}

pub(super) async fn check_hosts_and_origins(
    State(guard_state): State<Arc<GuardState>>,
    request: Request,
    next: Next,
) -> Response {
    let admitted = entry::check_peer(&guard_state.access, &request)
        .and_then(|()| check_origin(&guard_state.policy, &request));
    let origin = match admitted {
        Ok(origin) => origin,
        Err(refusal) => {
            guard_state.metrics.count_refusal(&refusal, &RefusedRequest::from(&request));
            return refusal.into_response();
        }
    };
    let mut response = match answer_preflight(&request) {
        Some(response) => response,
        None => next.run(request).await,
    };
    add_headers(response.headers_mut(), origin);
    response
}

fn check_origin(policy: &HostPolicy, request: &Request) -> Result<Option<HeaderValue>, Refusal> {
    let name = requested_host(request)?;
    let host =
        HostAndPort::parse(name).filter(|host| policy.accepts_host(host)).ok_or_else(|| {
            Refusal::forbidden(format!(
                "host `{name}` is not allowed: use the address that the server listens on, or add \
                 the name to `server.allowed_hosts` in the server's configuration"
            ))
        })?;
    let Some(value) = request.headers().get(header::ORIGIN) else {
        return check_not_loaded_by_other_site(request.headers()).map(|()| None);
    };
    let page = value.to_str().unwrap_or_default();
    match Origin::parse(page).filter(|origin| policy.accepts_origin(origin, &host)) {
        Some(_) => Ok(Some(value.clone())),
        None => Err(Refusal::forbidden(format!(
            "origin `{page}` is not allowed: only pages from the server's own address and from \
             this machine may use the server; add other origins to `server.allowed_origins` in the \
             server's configuration"
        ))),
    }
}

/// Rejects requests without `Origin` that a foreign page causes, such as for an image. Links to
/// this server are allowed, because the foreign page cannot read the page that the browser opens.
fn check_not_loaded_by_other_site(headers: &HeaderMap) -> Result<(), Refusal> {
    let has_header =
        |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
    if has_header("sec-fetch-site", "cross-site") && !has_header("sec-fetch-mode", "navigate") {
        return Err(Refusal::forbidden(
            "other sites are not allowed to load anything from this \
            server",
        ));
    }
    Ok(())
}

fn answer_preflight(request: &Request) -> Option<Response> {
    let headers = request.headers();
    let asks = request.method() == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if !asks {
        return None;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    let answer = response.headers_mut();
    answer.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static("GET, POST, DELETE, OPTIONS"),
    );
    answer.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(
            "accept, authorization, content-type, last-event-id, mcp-method, mcp-name, \
             mcp-protocol-version, mcp-session-id, traceparent, tracestate",
        ),
    );
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE);
    if headers.contains_key("access-control-request-private-network") {
        answer.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
    }
    Some(response)
}

fn add_headers(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    }
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
}
