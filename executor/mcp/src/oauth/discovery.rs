use std::{sync::Arc, time::Duration};

use http_client::{AddressScope, OutgoingRequest};
use reqwest::Url;
use rmcp::transport::auth::{AuthError, AuthorizationManager, AuthorizationMetadata};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    token_error::TokenError,
    web::{AuthHttp, check_secure, is_loopback, resource_url},
};

/// Time limit for the discovery. A server can name many other servers, and each of them gets a
/// request.
const DISCOVERY_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Clone, Copy)]
pub(super) struct Discovery<'a> {
    pub(super) web: &'a Arc<AuthHttp>,
    pub(super) server: &'a Url,
    /// The challenge with which the server refused a request, if there was one.
    pub(super) challenge: Option<&'a str>,
    pub(super) issuer: Option<&'a str>,
}

pub(super) struct AuthServer {
    pub(super) manager: AuthorizationManager,
    pub(super) metadata: AuthorizationMetadata,
}

impl Discovery<'_> {
    /// Finds the authorization server, and checks that secrets may be sent to it.
    pub(super) async fn discover(&self) -> Result<AuthServer, AuthError> {
        self.discover_within(DISCOVERY_TIMEOUT).await
    }

    async fn discover_within(&self, limit: Duration) -> Result<AuthServer, AuthError> {
        let (server, web) = (resource_url(self.server), Arc::clone(self.web));
        let mut manager = AuthorizationManager::new_with_oauth_http_client(server, web).await?;
        let Ok(found) = timeout(limit, self.resolve_metadata(&manager)).await else {
            let reason = "the servers that it names do not answer in time".to_owned();
            self.web.set_error(Some(TokenError::Unreachable(reason.clone())));
            return Err(AuthError::MetadataError(reason));
        };
        let metadata = found?;
        if let Some(issuer) = self.issuer
            && metadata.issuer.as_deref() != Some(issuer)
        {
            return Err(AuthError::AuthorizationServerMismatch {
                expected_issuer: issuer.to_owned(),
                received_issuer: metadata.issuer.unwrap_or_else(|| "nobody".to_owned()),
            });
        }
        let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint];
        for endpoint in endpoints.into_iter().chain(&metadata.registration_endpoint) {
            check_endpoint(self.server, endpoint).map_err(AuthError::MetadataError)?;
        }
        manager.set_metadata(metadata.clone());
        Ok(AuthServer { manager, metadata })
    }

    async fn resolve_metadata(
        &self,
        manager: &AuthorizationManager,
    ) -> Result<AuthorizationMetadata, AuthError> {
        match manager.resolve_metadata_from_challenge(self.challenge).await {
            Ok(found) => Ok(found.metadata),
            Err(AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer }) => {
                let own_metadata =
                    fetch_own_metadata(self.web, self.server, &received_issuer).await;
                own_metadata.ok_or(AuthError::AuthorizationServerMismatch {
                    expected_issuer,
                    received_issuer,
                })
            }
            Err(err) => Err(err),
        }
    }
}

/// Rejects an endpoint that a server names if Faber must not send secrets to it: the URL is not
/// secure, or it leads to this machine and the server is on another machine.
pub(super) fn check_endpoint(server: &Url, endpoint: &str) -> Result<(), String> {
    let url: Url = endpoint.parse().map_err(|_| format!("`{endpoint}` is not a URL"))?;
    check_secure(&url).map_err(|err| err.to_string())?;
    if is_loopback(&url) && !is_loopback(server) {
        return Err(format!(
            "`{endpoint}` is refused, because it is on this machine and the server that names it is not"
        ));
    }
    Ok(())
}

/// Returns the metadata of a server that grants its own tokens, as MCP allowed before June 2025.
/// All endpoints must have the server's origin, because otherwise the server could pose as another
/// issuer.
async fn fetch_own_metadata(
    web: &AuthHttp,
    server: &Url,
    issuer: &str,
) -> Option<AuthorizationMetadata> {
    let url_of = |path: &str| {
        let mut url = server.clone();
        url.set_query(None);
        url.set_path(path);
        url
    };
    let get = async |url: Url| {
        let headers = reqwest::header::HeaderMap::new();
        let request = OutgoingRequest {
            method: reqwest::Method::GET,
            url,
            headers,
            body: None,
            reach: AddressScope::Public,
        };
        web.send(request).await.ok().filter(|reply| reply.status.is_success())
    };
    if get(url_of("/.well-known/oauth-protected-resource")).await.is_some() {
        return None;
    }
    let reply = get(url_of("/.well-known/oauth-authorization-server")).await?;
    let metadata: AuthorizationMetadata = serde_json::from_slice(&reply.body).ok()?;
    let is_own = |text: &str| text.parse::<Url>().is_ok_and(|url| url.origin() == server.origin());
    let mut named = vec![issuer, &metadata.authorization_endpoint, &metadata.token_endpoint];
    named.extend(metadata.registration_endpoint.as_deref());
    let is_its_own = metadata.issuer.as_deref() == Some(issuer) && named.into_iter().all(is_own);
    is_its_own.then_some(metadata)
}

/// Adds the scope with which `OpenID` Connect servers grant a refresh token, if the server offers
/// it and other scopes are requested.
pub(super) fn add_offline_access(metadata: &AuthorizationMetadata, scopes: &mut Vec<String>) {
    const OFFLINE_SCOPE: &str = "offline_access";
    let has = |all: &[String]| all.iter().any(|scope| scope == OFFLINE_SCOPE);
    let is_offered = metadata.scopes_supported.as_deref().is_some_and(has);
    if is_offered && !scopes.is_empty() && !has(scopes) {
        scopes.push(OFFLINE_SCOPE.to_owned());
    }
}

pub(super) fn extra_endpoint<'a>(
    metadata: &'a AuthorizationMetadata,
    name: &str,
) -> Option<&'a str> {
    metadata.additional_fields.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::{Json, Router, http::StatusCode, routing::get};
    use expect_test::{Expect, expect};
    use secrets::Redaction;
    use serde_json::json;
    use tokio::{net::TcpListener, task::JoinSet};

    use super::{
        super::token_error::{MAX_ERROR_CHARACTERS, describe_auth_error},
        *,
    };

    /// A server with one document, in which `HERE` stands for its own URL.
    struct DocumentServer {
        server: Url,
        asked: Arc<AtomicUsize>,
        _tasks: JoinSet<std::io::Result<()>>,
    }

    impl DocumentServer {
        async fn new(path: &str, document: Value) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let here = format!("http://{}", listener.local_addr().unwrap());
            let document: Value =
                serde_json::from_str(&document.to_string().replace("HERE", &here)).unwrap();
            let ask_count = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&ask_count);
            let routes =
                Router::new().route(path, get(|| async { Json(document) })).fallback(move || {
                    counted.fetch_add(1, Ordering::Relaxed);
                    async { StatusCode::NOT_FOUND }
                });
            let mut tasks = JoinSet::new();
            tasks.spawn(async { axum::serve(listener, routes).await });
            Self { server: format!("{here}/mcp").parse().unwrap(), asked: ask_count, _tasks: tasks }
        }

        async fn discover(&self, issuer: Option<&str>) -> Result<AuthorizationMetadata, AuthError> {
            let (server, web) = (&self.server, Arc::new(AuthHttp::new(self.server.clone())));
            let discovery = Discovery { web: &web, server, challenge: None, issuer };
            discovery.discover().await.map(|found| found.metadata)
        }
    }

    /// Returns what discovery finds for these metadata, in which `HERE` stands for the server's
    /// URL.
    async fn discover_metadata(
        path: &str,
        metadata: Value,
    ) -> Result<AuthorizationMetadata, AuthError> {
        DocumentServer::new(path, metadata).await.discover(None).await
    }

    fn error_text(err: &AuthError) -> String {
        describe_auth_error(err, &Redaction::default())
    }

    fn metadata(issuer: &str, token: &str) -> Value {
        json!({ "issuer": issuer, "authorization_endpoint": "HERE/authorize", "token_endpoint": token })
    }

    #[tokio::test]
    async fn metadata_of_another_issuer_is_rejected() {
        let path = "/.well-known/oauth-authorization-server";
        let good = discover_metadata(path, metadata("HERE", "HERE/token")).await.unwrap();
        assert!(good.token_endpoint.ends_with("/token"));
        let below =
            discover_metadata(path, metadata("HERE/oauth", "HERE/oauth/token")).await.unwrap();
        assert!(below.token_endpoint.ends_with("/oauth/token"));
        for (issuer, token) in [
            ("https://example.com", "HERE/token"),
            ("HERE/oauth", "https://example.com/token"),
            ("HERE.example.com/oauth", "HERE/token"),
        ] {
            let err = discover_metadata(path, metadata(issuer, token)).await.unwrap_err();
            let is_other = matches!(err, AuthError::AuthorizationServerMismatch { .. });
            assert!(is_other, "{issuer} {token}: {err}");
        }
        let plain = discover_metadata(path, metadata("HERE", "http://example.com/token")).await;
        assert!(matches!(plain.unwrap_err(), AuthError::MetadataError(_)));
    }

    #[tokio::test]
    async fn metadata_about_another_resource_is_ignored() {
        let path = "/.well-known/oauth-protected-resource/mcp";
        let other = "https://example.com";
        let about = json!({ "resource": format!("{other}/mcp"), "authorization_servers": [other] });
        let metadata = discover_metadata(path, about).await.unwrap();
        for endpoint in [&metadata.authorization_endpoint, &metadata.token_endpoint] {
            assert!(endpoint.starts_with("http://127.0.0.1:"), "{endpoint}");
        }
    }

    #[tokio::test]
    async fn a_metadata_answer_above_the_size_limit_is_rejected() {
        let mut long = metadata("HERE", "HERE/token");
        long["x"] = json!("x".repeat(300 << 10));
        let err =
            discover_metadata("/.well-known/oauth-authorization-server", long).await.unwrap_err();
        assert!(
            error_text(&err).ends_with("answered more than 262144 bytes"),
            "{}",
            error_text(&err)
        );
    }

    #[tokio::test]
    async fn an_issuer_other_than_the_configured_one_is_rejected() {
        let path = "/.well-known/oauth-authorization-server";
        let server = DocumentServer::new(path, metadata("HERE", "HERE/token")).await;
        let here = server.server.origin().ascii_serialization();
        server.discover(Some(&here)).await.unwrap();
        let err = server.discover(Some("https://example.com")).await.unwrap_err();
        let expected =
            "authorization server issuer mismatch: expected https://example.com, received";
        assert_eq!(error_text(&err), format!("{expected} {here}"));
        let none = DocumentServer::new("/nothing", Value::Null).await;
        let err = none.discover(Some("https://example.com")).await.unwrap_err();
        assert_eq!(error_text(&err), format!("{expected} nobody"));
    }

    #[tokio::test]
    async fn discovery_follows_a_limited_number_of_addresses() {
        let path = "/.well-known/oauth-protected-resource/mcp";
        let many: Vec<_> = (0..1_000).map(|n| format!("HERE/as/{n}")).collect();
        let server = DocumentServer::new(
            path,
            json!({ "resource": "HERE/mcp", "authorization_servers": many }),
        );
        let server = server.await;
        let err = server.discover(None).await.unwrap_err();
        assert!(
            error_text(&err).ends_with("leads to more than 60 addresses"),
            "{}",
            error_text(&err)
        );
        assert!(server.asked.load(Ordering::Relaxed) < 60);
    }

    #[tokio::test]
    async fn discovery_of_a_silent_server_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let web = Arc::new(AuthHttp::new(server.clone()));
        let discovery = Discovery { web: &web, server: &server, challenge: None, issuer: None };
        let err = discovery.discover_within(Duration::ZERO).await.err().unwrap();
        assert_eq!(
            error_text(&err),
            "metadata error: the servers that it names do not answer in time"
        );
        assert!(
            matches!(web.take_error(), Some(TokenError::Unreachable(_))),
            "the server may answer later"
        );
    }

    #[test]
    fn control_characters_in_a_servers_error_are_removed() {
        let err = AuthError::RegistrationFailed(format!("\u{1b}[31m{}", "x".repeat(9_000)));
        let message = error_text(&err);
        assert!(
            message.contains(" [31mxxx") && message.chars().count() == MAX_ERROR_CHARACTERS,
            "{message}"
        );
    }

    #[test]
    fn a_secret_at_the_cut_of_a_message_is_redacted() {
        let mut redaction = Redaction::default();
        redaction.add_secret("REFRESH_TOKEN", "refresh-me-once");
        let text = |before: usize| format!("{}refresh-me-once", "x".repeat(before));
        for before in (MAX_ERROR_CHARACTERS - 60)..MAX_ERROR_CHARACTERS {
            let message =
                describe_auth_error(&AuthError::TokenRefreshFailed(text(before)), &redaction);
            assert!(!message.contains("refresh-m"), "{message}");
        }
    }

    #[test]
    fn an_endpoint_that_may_not_get_secrets_is_rejected() {
        let check = |server: &str, endpoint: &str, expected: Expect| {
            let result = check_endpoint(&server.parse().unwrap(), endpoint);
            expected.assert_eq(&result.err().unwrap_or_default());
        };
        check("https://a/mcp", "https://b/token", expect![""]);
        check("http://localhost:1/mcp", "http://127.0.0.1:2/token", expect![""]);
        check("https://a/mcp", "nowhere", expect![[r"`nowhere` is not a URL"]]);
        check(
            "https://a/mcp",
            "http://b/token",
            expect![
                "`http://b` is not used: Faber requests tokens by https only, or on this machine"
            ],
        );
        check(
            "https://a/mcp",
            "http://localhost:2/token",
            expect![
                "`http://localhost:2/token` is refused, because it is on this machine and the server that names it is not"
            ],
        );
        check(
            "https://a/mcp",
            "javascript:alert(1)",
            expect!["`null` is not used: Faber requests tokens by https only, or on this machine"],
        );
    }

    #[test]
    fn offline_access_is_requested_if_the_server_offers_it() {
        let offered = |scopes: Value| -> AuthorizationMetadata {
            let mut written = metadata("https://a", "https://a/token");
            written["scopes_supported"] = scopes;
            serde_json::from_value(written).unwrap()
        };
        let scopes_of = |metadata: &AuthorizationMetadata, scopes: &[&str]| {
            let mut scopes: Vec<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            add_offline_access(metadata, &mut scopes);
            scopes.join(" ")
        };
        let with = offered(json!(["a", "offline_access"]));
        assert_eq!(scopes_of(&with, &["a"]), "a offline_access");
        assert_eq!(scopes_of(&with, &["offline_access"]), "offline_access");
        assert_eq!(scopes_of(&with, &[]), "");
        assert_eq!(scopes_of(&offered(json!(["a"])), &["a"]), "a");
        assert_eq!(scopes_of(&offered(Value::Null), &["a"]), "a");
    }
}
