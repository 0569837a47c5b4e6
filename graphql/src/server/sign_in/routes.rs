use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    extract::{Path, Query, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use oidc::SignInError;
use serde_json::json;

use super::super::refusal::Refusal;
use super::{
    MCP_PATH, METADATA_PATH, SignInState,
    cookies::{Cookie, base_path},
    own_page::check_own_page,
};

const CALLBACK_PATH: &str = "/auth/callback";
const STATUS_PATH: &str = "/auth/status";

type Parameters = Query<BTreeMap<String, String>>;

pub(super) fn build_routes(state: Arc<SignInState>) -> Router {
    Router::new()
        .route("/auth/login", get(start_login))
        .route(CALLBACK_PATH, get(finish_login))
        .route("/auth/logout", post(end_session))
        .route(STATUS_PATH, get(report_status))
        .route(METADATA_PATH, get(describe_server))
        .route(&format!("{METADATA_PATH}/{{*path}}"), get(describe_resource))
        .with_state(state)
}

pub(super) fn build_routes_without_issuer() -> Router {
    let report = || async { Json(json!({ "canSignIn": false, "caller": null })) };
    Router::new().route(STATUS_PATH, get(report))
}

async fn start_login(
    State(state): State<Arc<SignInState>>,
    Query(parameters): Parameters,
    request: Request,
) -> Response {
    let base_url = state.base_url(&request);
    let return_to = parameters.get("return_to").map_or(base_path(&base_url), String::as_str);
    match state.sign_in.start(&format!("{base_url}{CALLBACK_PATH}"), return_to).await {
        Ok(started) => {
            let cookie = Cookie::Login.format(&started.cookie, started.max_age, &base_url);
            redirect(&started.url, &[cookie])
        }
        Err(err) => show_failure(err, &base_url),
    }
}

async fn finish_login(
    State(state): State<Arc<SignInState>>,
    Query(parameters): Parameters,
    request: Request,
) -> Response {
    let base_url = state.base_url(&request);
    let cookie = Cookie::Login.read_from(request.headers(), &base_url);
    let redirect_url = format!("{base_url}{CALLBACK_PATH}");
    match state.sign_in.finish(&redirect_url, &parameters, cookie).await {
        Ok(finished) => {
            let session = Cookie::Session.format(&finished.cookie, finished.max_age, &base_url);
            redirect(&finished.return_to, &[session, Cookie::Login.format_removal(&base_url)])
        }
        Err(err) => show_failure(err, &base_url),
    }
}

async fn end_session(State(state): State<Arc<SignInState>>, request: Request) -> Response {
    let base_url = state.base_url(&request);
    if let Err(refusal) = check_own_page(request.method(), request.headers(), &base_url) {
        return refusal.into_response();
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    add_cookies(&mut response, &[Cookie::Session.format_removal(&base_url)]);
    response
}

async fn report_status(State(state): State<Arc<SignInState>>, request: Request) -> Response {
    let base_url = state.base_url(&request);
    let cookie = Cookie::Session.read_from(request.headers(), &base_url);
    let is_own = check_own_page(request.method(), request.headers(), &base_url).is_ok();
    let session = cookie.filter(|_| is_own);
    let signed_in = session.and_then(|cookie| state.sign_in.authenticate_session(cookie).ok());
    let caller = signed_in.as_ref().and_then(|signed_in| signed_in.grant.name());
    let status = json!({ "canSignIn": state.sign_in.has_client(), "caller": caller });
    ([(header::CACHE_CONTROL, "no-store")], Json(status)).into_response()
}

async fn describe_server(State(state): State<Arc<SignInState>>, request: Request) -> Response {
    let resource = state.base_url(&request);
    state.metadata(&resource)
}

/// Describes `/mcp`. Clients put the path of the resource behind the path of the metadata, with or
/// without the path prefix.
async fn describe_resource(
    State(state): State<Arc<SignInState>>,
    Path(path): Path<String>,
    request: Request,
) -> Response {
    let base_url = state.base_url(&request);
    let path = format!("/{path}");
    let path = path.strip_prefix(base_path(&base_url).trim_end_matches('/')).unwrap_or(&path);
    match path {
        "" => state.metadata(&base_url),
        MCP_PATH => state.metadata(&format!("{base_url}{MCP_PATH}")),
        _ => Refusal::invalid_request(StatusCode::NOT_FOUND, "there is no such resource")
            .into_response(),
    }
}

impl SignInState {
    fn metadata(&self, resource: &str) -> Response {
        Json(json!({
            "resource": resource,
            "authorization_servers": [self.sign_in.issuer()],
            "bearer_methods_supported": ["header"],
            "resource_name": "Faber",
        }))
        .into_response()
    }
}

fn redirect(target: &str, cookies: &[String]) -> Response {
    let Ok(location) = HeaderValue::from_str(target) else {
        return Refusal::malformed_request(
            "the address of the redirect has characters that an HTTP header cannot contain",
        )
        .into_response();
    };
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    let mut response = (StatusCode::SEE_OTHER, headers).into_response();
    add_cookies(&mut response, cookies);
    response
}

fn add_cookies(response: &mut Response, cookies: &[String]) {
    for cookie in cookies {
        if let Ok(mut value) = HeaderValue::from_str(cookie) {
            value.set_sensitive(true);
            response.headers_mut().append(header::SET_COOKIE, value);
        }
    }
}

fn show_failure(err: SignInError, base_url: &str) -> Response {
    let Refusal { status, message, .. } = err.into();
    let prefix = base_path(base_url).trim_end_matches('/');
    let page = format!(
        "<!doctype html><html lang=\"en\"><title>Sign-in</title><h1>No access</h1><p>{}</p>\
         <p><a href=\"{prefix}/auth/login\">Sign in again</a></p></html>",
        escape_html(&message)
    );
    let headers: [(HeaderName, &str); 3] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ];
    let mut response = (status, headers, page).into_response();
    add_cookies(&mut response, &[Cookie::Login.format_removal(base_url)]);
    response
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
