//! Where tokens for a server are granted.

use reqwest::Url;
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata};
use serde_json::Value;

use super::web::{Web, check, is_loopback};
use crate::tool::http::client::{Outgoing, Reach};

/// Letters of what a server says about a refusal.
const SAID: usize = 500;

/// Finds out who grants tokens for a server, by what the server said when it refused us, if that is
/// known; and makes sure that it may be told secrets.
pub(super) async fn discover(
    manager: &mut AuthorizationManager,
    web: &Web,
    server: &Url,
    challenge: Option<&str>,
) -> Result<AuthorizationMetadata, AuthError> {
    let metadata = match manager.resolve_metadata_from_challenge(challenge).await {
        Ok(found) => found.metadata,
        Err(AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer }) => {
            let whole = own(web, server, &received_issuer).await;
            whole.ok_or(AuthError::AuthorizationServerMismatch {
                expected_issuer,
                received_issuer,
            })?
        }
        Err(err) => return Err(err),
    };
    let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint];
    for endpoint in endpoints.into_iter().chain(&metadata.registration_endpoint) {
        may_be_told(server, endpoint).map_err(AuthError::MetadataError)?;
    }
    manager.set_metadata(metadata.clone());
    Ok(metadata)
}

fn may_be_told(server: &Url, endpoint: &str) -> Result<(), String> {
    let url: Url = endpoint.parse().map_err(|_| format!("`{endpoint}` is no URL"))?;
    check(&url).map_err(|err| err.to_string())?;
    if is_loopback(&url) && !is_loopback(server) {
        return Err(format!("`{endpoint}` is this machine, and not where the server is"));
    }
    Ok(())
}

/// Returns the metadata of a server that grants its own tokens, as servers did before June 2025,
/// and calls itself by an address below its root. It names nobody but itself, so that
/// nobody can be taken for another.
async fn own(web: &Web, server: &Url, issuer: &str) -> Option<AuthorizationMetadata> {
    let at = |path: &str| {
        let mut url = server.clone();
        url.set_query(None);
        url.set_path(path);
        url
    };
    let get = async |url: Url| {
        let headers = reqwest::header::HeaderMap::new();
        let asked = Outgoing {
            method: reqwest::Method::GET,
            url,
            headers,
            body: None,
            reach: Reach::Public,
        };
        web.ask(asked).await.ok().filter(|it| it.status.is_success())
    };
    if get(at("/.well-known/oauth-protected-resource")).await.is_some() {
        return None;
    }
    let reply = get(at("/.well-known/oauth-authorization-server")).await?;
    let metadata: AuthorizationMetadata = serde_json::from_slice(&reply.body).ok()?;
    let is_own = |text: &str| text.parse::<Url>().is_ok_and(|it| it.origin() == server.origin());
    let mut named = vec![issuer, &metadata.authorization_endpoint, &metadata.token_endpoint];
    named.extend(metadata.registration_endpoint.as_deref());
    let is_its_own = metadata.issuer.as_deref() == Some(issuer) && named.into_iter().all(is_own);
    is_its_own.then_some(metadata)
}

/// Adds the scope by which servers of `OpenID` Connect grant more than one token, where there is one.
pub(super) fn add_offline_access(metadata: &AuthorizationMetadata, scopes: &mut Vec<String>) {
    const OFFLINE: &str = "offline_access";
    let has = |all: &[String]| all.iter().any(|it| it == OFFLINE);
    let is_offered = metadata.scopes_supported.as_deref().is_some_and(has);
    if is_offered && !scopes.is_empty() && !has(scopes) {
        scopes.push(OFFLINE.to_owned());
    }
}

/// Returns an address of the metadata that rmcp does not know of.
pub(super) fn further<'a>(metadata: &'a AuthorizationMetadata, name: &str) -> Option<&'a str> {
    metadata.additional_fields.get(name).and_then(Value::as_str)
}

/// Returns what a stranger says so that a terminal and a log can have it.
pub(super) fn shown(text: &str) -> String {
    let letters = text.chars().map(|it| if it.is_control() { ' ' } else { it });
    letters.take(SAID).collect::<String>().trim().to_owned()
}

/// Says what went wrong, for whoever wants to log in or to call.
pub(super) fn told(err: &AuthError) -> String {
    shown(&sentence(err))
}

fn sentence(err: &AuthError) -> String {
    match err {
        AuthError::DiscoveryRequestFailed { source, .. } => source.to_string(),
        AuthError::HttpError(_) | AuthError::InternalError(_) => {
            "the authorization server cannot be used".to_owned()
        }
        AuthError::PkceUnsupported => {
            "the authorization server has no PKCE by S256, without which a login is not safe"
                .to_owned()
        }
        AuthError::RegistrationFailed(why) => format!(
            "the authorization server does not register clients ({why}): ask for a `client_id` and \
             write it into `auth`"
        ),
        other => {
            let text = other.to_string();
            let mut letters = text.chars();
            let first = letters.next().map(|it| it.to_lowercase().to_string());
            first.unwrap_or_default() + letters.as_str()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::{Json, Router, http::StatusCode, routing::get};
    use expect_test::{Expect, expect};
    use serde_json::json;
    use tokio::{net::TcpListener, task::JoinSet};

    use super::*;

    /// Discovers for a server whose metadata are those, with `HERE` for where it is.
    async fn discovered(at: &str, metadata: Value) -> Result<AuthorizationMetadata, AuthError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("http://{}", listener.local_addr().unwrap());
        let metadata: Value =
            serde_json::from_str(&metadata.to_string().replace("HERE", &here)).unwrap();
        let routes = Router::new()
            .route(at, get(|| async { Json(metadata) }))
            .fallback(|| async { StatusCode::NOT_FOUND });
        let mut tasks = JoinSet::new();
        tasks.spawn(async { axum::serve(listener, routes).await });
        let server: Url = format!("{here}/mcp").parse().unwrap();
        let web = Arc::new(Web::new(server.clone()));
        let client = Arc::clone(&web);
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(server.clone(), client).await.unwrap();
        discover(&mut manager, &web, &server, None).await
    }

    fn metadata(issuer: &str, token: &str) -> Value {
        json!({ "issuer": issuer, "authorization_endpoint": "HERE/authorize", "token_endpoint": token })
    }

    #[tokio::test]
    async fn who_grants_tokens_is_who_it_says() {
        let at = "/.well-known/oauth-authorization-server";
        let good = discovered(at, metadata("HERE", "HERE/token")).await.unwrap();
        assert!(good.token_endpoint.ends_with("/token"));
        let below = discovered(at, metadata("HERE/oauth", "HERE/oauth/token")).await.unwrap();
        assert!(below.token_endpoint.ends_with("/oauth/token"));
        for (issuer, token) in [
            ("https://example.com", "HERE/token"),
            ("HERE/oauth", "https://example.com/token"),
            ("HERE.example.com/oauth", "HERE/token"),
        ] {
            let err = discovered(at, metadata(issuer, token)).await.unwrap_err();
            let is_other = matches!(err, AuthError::AuthorizationServerMismatch { .. });
            assert!(is_other, "{issuer} {token}: {err}");
        }
        let plain = discovered(at, metadata("HERE", "http://example.com/token")).await;
        assert!(matches!(plain.unwrap_err(), AuthError::MetadataError(_)));
    }

    /// What is about another server leads nowhere: it is as if nothing were there.
    #[tokio::test]
    async fn metadata_are_about_the_very_server() {
        let at = "/.well-known/oauth-protected-resource/mcp";
        let other = "https://example.com";
        let about = json!({ "resource": format!("{other}/mcp"), "authorization_servers": [other] });
        let own = discovered(at, about).await.unwrap();
        for endpoint in [&own.authorization_endpoint, &own.token_endpoint] {
            assert!(endpoint.starts_with("http://127.0.0.1:"), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn answers_have_a_limit() {
        let mut long = metadata("HERE", "HERE/token");
        long["x"] = json!("x".repeat(300 << 10));
        let err = discovered("/.well-known/oauth-authorization-server", long).await.unwrap_err();
        assert!(told(&err).ends_with("answered more than 262144 bytes"), "{}", told(&err));
    }

    #[test]
    fn what_a_stranger_says_does_nothing_to_a_terminal() {
        let err = AuthError::RegistrationFailed(format!("\u{1b}[31m{}", "x".repeat(9_000)));
        let told = told(&err);
        assert!(told.contains(" [31mxxx") && told.chars().count() == SAID, "{told}");
    }

    #[test]
    fn secrets_are_told_to_whom_they_may_be() {
        let check = |server: &str, endpoint: &str, expected: Expect| {
            let told = may_be_told(&server.parse().unwrap(), endpoint);
            expected.assert_eq(&told.err().unwrap_or_default());
        };
        check("https://a/mcp", "https://b/token", expect![""]);
        check("http://localhost:1/mcp", "http://127.0.0.1:2/token", expect![""]);
        check("https://a/mcp", "nowhere", expect![[r"`nowhere` is no URL"]]);
        check(
            "https://a/mcp",
            "http://b/token",
            expect![
                "`http://b` is not asked: tokens are only asked for by https, or on this machine"
            ],
        );
        check(
            "https://a/mcp",
            "http://localhost:2/token",
            expect!["`http://localhost:2/token` is this machine, and not where the server is"],
        );
        check(
            "https://a/mcp",
            "javascript:alert(1)",
            expect!["`null` is not asked: tokens are only asked for by https, or on this machine"],
        );
    }

    #[test]
    fn more_than_one_token_is_asked_for_where_that_is_offered() {
        let offered = |scopes: Value| -> AuthorizationMetadata {
            let mut written = metadata("https://a", "https://a/token");
            written["scopes_supported"] = scopes;
            serde_json::from_value(written).unwrap()
        };
        let asked = |metadata: &AuthorizationMetadata, scopes: &[&str]| {
            let mut scopes: Vec<String> = scopes.iter().map(|it| (*it).to_owned()).collect();
            add_offline_access(metadata, &mut scopes);
            scopes.join(" ")
        };
        let with = offered(json!(["a", "offline_access"]));
        assert_eq!(asked(&with, &["a"]), "a offline_access");
        assert_eq!(asked(&with, &["offline_access"]), "offline_access");
        assert_eq!(asked(&with, &[]), "");
        assert_eq!(asked(&offered(json!(["a"])), &["a"]), "a");
        assert_eq!(asked(&offered(Value::Null), &["a"]), "a");
    }
}
