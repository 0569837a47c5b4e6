use std::{sync::Arc, time::Duration};

use http_client::{AddressScope, OutgoingRequest};
use oauth2::TokenResponse as _;
use reqwest::{
    Method, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata,
    OAuthClientConfig,
};
use secrets::Redaction;
use serde_json::json;
use shared::id::ToolSetName;

use super::{
    Logins,
    bearer::bearer_challenge,
    client_credentials::post_form,
    config::{Client, Grant},
    discovery::{AuthServer, Discovery, add_offline_access, check_endpoint, extra_endpoint},
    source::is_unknown_client,
    token_error::{TokenError, describe_auth_error, to_printable},
    token_store::{LoginRecord, RegisteredClient, TokenStore},
    unix_time,
    web::AuthHttp,
};
use crate::{McpHttp, McpServer, http::configured_headers};

const CLIENT_NAME: &str = "Faber";

pub struct Login {
    manager: AuthorizationManager,
    store: TokenStore,
    client: RegisteredClient,
    /// `true` if the client is configured, so no other client may be registered.
    is_configured: bool,
    url: String,
    state: String,
    redaction: Redaction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    pub issuer: Option<String>,
    pub scopes: Vec<String>,
    /// The lifetime of the access token, if it is known.
    pub lifetime: Option<Duration>,
    /// `true` if there is a refresh token.
    pub has_refresh_token: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The toolset does not support logins.
    #[error("{0}")]
    NotForPeople(String),
    /// The callback does not belong to this login, which continues.
    #[error("this is not an answer to the current login")]
    UnrelatedCallback,
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    NotStored(String),
}

struct LoginTarget<'a> {
    store: TokenStore,
    server: &'a McpHttp,
    scopes: &'a [String],
    issuer: Option<&'a str>,
    client: Option<&'a Client>,
    document: Option<&'a str>,
    port: Option<u16>,
}

fn login_target<'a>(
    logins: &Logins,
    set: &ToolSetName,
    server: &'a McpServer,
) -> Result<LoginTarget<'a>, LoginError> {
    let reason = |cause: &str| LoginError::NotForPeople(format!("`{set}` has no login: {cause}"));
    let McpServer::Http(server) = server else {
        return Err(reason("Faber starts it as a command"));
    };
    let Some(oauth) = &server.auth else { return Err(reason("its source has no `auth: oauth`")) };
    let Grant::Person { client, document, port } = &oauth.grant else {
        return Err(reason("its `grant` is for programs"));
    };
    Ok(LoginTarget {
        store: logins.store_for(set, &server.url.0),
        server,
        scopes: &oauth.scopes,
        issuer: oauth.issuer.as_deref(),
        client: client.as_ref(),
        document: document.as_deref(),
        port: *port,
    })
}

impl Logins {
    /// Returns the preferred port of the redirect URI: the configured port, or the port of the last
    /// login.
    pub fn preferred_port(
        &self,
        set: &ToolSetName,
        server: &McpServer,
    ) -> Result<Option<u16>, LoginError> {
        let to = login_target(self, set, server)?;
        let record = to.store.read().map_err(LoginError::NotStored)?;
        let before = record.and_then(|record| record.client?.redirect.parse::<Url>().ok()?.port());
        Ok(to.port.or(before))
    }

    /// Removes a login, and revokes its tokens if the server supports that. Returns whether a login
    /// existed.
    pub async fn log_out(&self, set: &ToolSetName, server: &McpServer) -> Result<bool, LoginError> {
        let to = login_target(self, set, server)?;
        let lock = to.store.lock().await.map_err(LoginError::NotStored)?;
        let record = to.store.read();
        let is_removed = to.store.remove().map_err(LoginError::NotStored)?;
        drop(lock);
        let Ok(Some(record)) = record else { return Ok(is_removed) };
        if let Err(error) = to.revoke_tokens(&record).await {
            tracing::debug!(%set, why = ?error, "the tokens could not be revoked");
        }
        Ok(record.granted.is_some())
    }
}

impl LoginTarget<'_> {
    async fn revoke_tokens(&self, record: &LoginRecord) -> Result<(), LoginError> {
        let Some(granted) = &record.granted else { return Ok(()) };
        let access = record.token().map(|token| token.text);
        // Revokes the access token, too, because not every server revokes it together with the
        // refresh token.
        let tokens =
            [(record.refresh_token(), "refresh_token"), (access.as_deref(), "access_token")];
        let mut redaction = Redaction::default();
        for token in tokens.iter().filter_map(|entry| entry.0) {
            redaction.add_secret("TOKEN", token);
        }
        let web = Arc::new(AuthHttp::new(self.server.url.0.clone()));
        let challenge = self.request_challenge(&web).await?;
        let AuthServer { metadata, .. } =
            self.discover(&web, challenge.as_deref(), &redaction).await?;
        if granted.issuer.is_some() && granted.issuer != metadata.issuer {
            let reason =
                "the authorization server has changed, so Faber does not send it the tokens";
            return Err(LoginError::Refused(reason.to_owned()));
        }
        let Some(endpoint) = extra_endpoint(&metadata, "revocation_endpoint") else {
            return Ok(());
        };
        check_endpoint(&self.server.url.0, endpoint).map_err(LoginError::Refused)?;
        let secret = match (self.client, &record.client) {
            (Some(client), _) => {
                client.secret.as_ref().and_then(|secret| secret.resolve(&mut redaction).ok())
            }
            (None, registered) => {
                registered.as_ref().and_then(|registered| registered.secret.clone())
            }
        };
        let id = granted.client_id.as_str();
        let client = secret.as_deref().map(|secret| (id, secret));
        for (token, kind) in tokens {
            let Some(token) = token else { continue };
            let fields = [("token", token), ("token_type_hint", kind), ("client_id", id)];
            let response = post_form(&web, endpoint, &fields, client, &redaction).await;
            response.map_err(|denied| LoginError::Refused(denied.into_text()))?;
        }
        Ok(())
    }

    async fn discover(
        &self,
        web: &Arc<AuthHttp>,
        challenge: Option<&str>,
        redaction: &Redaction,
    ) -> Result<AuthServer, LoginError> {
        let (server, issuer) = (&self.server.url.0, self.issuer);
        let found = Discovery { web, server, challenge, issuer }.discover().await;
        found.map_err(|err| login_error(web, &err, redaction))
    }

    /// Sends a request without a token. Returns the challenge of the server's refusal, which may
    /// name the authorization server.
    async fn request_challenge(&self, web: &AuthHttp) -> Result<Option<String>, LoginError> {
        let mut redaction = Redaction::default();
        let given = configured_headers(self.server, &mut redaction).map_err(LoginError::Refused)?;
        let mut all = given.clone();
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        all.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let version = "2025-11-25";
        let greeting = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {
                "protocolVersion": version, "capabilities": {},
                "clientInfo": { "name": "faber", "version": env!("CARGO_PKG_VERSION") },
            },
        });
        let url = self.server.url.0.clone();
        let body = Some(greeting.to_string().into_bytes());
        let request = OutgoingRequest {
            method: Method::POST,
            url,
            headers: all,
            body,
            reach: AddressScope::Anywhere,
        };
        let reply = web.send(request.clone()).await;
        let reply = reply.map_err(|err| LoginError::from(TokenError::from_http_error(&err)))?;
        if let Some(session) = reply.headers.get("mcp-session-id") {
            // Ends the session that the answer may have started, because it is not needed.
            let mut headers = given;
            headers.insert("mcp-session-id", session.clone());
            let request =
                OutgoingRequest { method: Method::DELETE, headers, body: None, ..request };
            let _ = web.send(request).await;
        }
        Ok(bearer_challenge(&reply.headers).filter(|_| reply.status == 401))
    }

    /// Returns the scopes to request: the scopes of the configuration or of the server. If scopes
    /// were missing before, adds these and the scopes of the last login.
    async fn select_scopes(
        &self,
        manager: &AuthorizationManager,
        metadata: &AuthorizationMetadata,
        before: &LoginRecord,
    ) -> Vec<String> {
        let mut scopes = match self.scopes {
            [] => manager.select_initial_scopes(&[]).await,
            some => some.to_vec(),
        };
        if !before.wanted.is_empty() {
            let granted = before.granted.iter().flat_map(|granted| &granted.granted_scopes);
            scopes.extend(before.wanted.iter().chain(granted).cloned());
        }
        add_offline_access(metadata, &mut scopes);
        let mut seen = std::collections::BTreeSet::new();
        scopes.retain(|scope| seen.insert(scope.clone()));
        scopes
    }

    /// Returns the client of the login if one is configured or known. Otherwise,
    /// [`register_client`] must register a client.
    fn known_client(
        &self,
        metadata: &AuthorizationMetadata,
        before: &LoginRecord,
        redirect: &str,
    ) -> Option<RegisteredClient> {
        if let Some(client) = self.client {
            return Some(new_client(metadata, redirect, &client.id));
        }
        let reads = metadata.additional_fields.get("client_id_metadata_document_supported");
        if let Some(document) = self.document
            && reads.and_then(serde_json::Value::as_bool) == Some(true)
        {
            return Some(new_client(metadata, redirect, document));
        }
        let is_usable = |client: &&RegisteredClient| {
            client.redirect == redirect
                && client.issuer == metadata.issuer
                && client.secret_until.is_none_or(|until| unix_time() < until)
        };
        before.client.as_ref().filter(is_usable).cloned()
    }

    /// Removes the registered client of an expired login until the new login succeeds, because a
    /// server that has forgotten the client may report this only in the browser.
    async fn forget_ended_client(&self, client: &RegisteredClient) -> Result<(), LoginError> {
        if self.client.is_some() || self.document == Some(client.id.as_str()) {
            return Ok(());
        }
        let _lock = self.store.lock().await.map_err(LoginError::NotStored)?;
        match self.store.read().map_err(LoginError::NotStored)? {
            Some(record)
                if record.has_expired(unix_time())
                    && record.client.as_ref().is_some_and(|known| known.id == client.id) =>
            {
                self.store
                    .write(&LoginRecord { client: None, ..record })
                    .map_err(LoginError::NotStored)
            }
            _ => Ok(()),
        }
    }

    fn client_secret(
        &self,
        client: &RegisteredClient,
        redaction: &mut Redaction,
    ) -> Result<Option<String>, LoginError> {
        let secret = match self.client {
            None => Ok(client.secret.clone()),
            Some(client) => {
                client.secret.as_ref().map(|secret| secret.resolve(redaction)).transpose()
            }
        };
        let secret = secret.map_err(|err| LoginError::Refused(err.to_string()))?;
        if let Some(secret) = &secret {
            redaction.add_secret("CLIENT_SECRET", secret);
        }
        Ok(secret)
    }
}

impl Login {
    /// Starts a login. The browser returns to `redirect`.
    pub async fn start(
        logins: &Logins,
        set: &ToolSetName,
        server: &McpServer,
        redirect: &str,
    ) -> Result<Self, LoginError> {
        let to = login_target(logins, set, server)?;
        let before = to.store.read().map_err(LoginError::NotStored)?.unwrap_or_default();
        let mut redaction = Redaction::default();
        let web = Arc::new(AuthHttp::new(to.server.url.0.clone()));
        let challenge = to.request_challenge(&web).await?;
        let AuthServer { mut manager, metadata } =
            to.discover(&web, challenge.as_deref(), &redaction).await?;
        let scopes = to.select_scopes(&manager, &metadata, &before).await;
        let client = match to.known_client(&metadata, &before, redirect) {
            Some(client) => client,
            None => register_client(&web, &mut manager, &metadata, redirect, &scopes)
                .await
                .map_err(|err| login_error(&web, &err, &redaction))?,
        };
        to.forget_ended_client(&client).await?;
        let mut by = OAuthClientConfig::new(&client.id, redirect);
        if let Some(secret) = to.client_secret(&client, &mut redaction)? {
            by = by.with_client_secret(secret);
        }
        manager.configure_client(by).map_err(|err| login_error(&web, &err, &redaction))?;
        manager.set_credential_store(to.store.clone());
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = manager.get_authorization_url(&scopes).await;
        let url = url.map_err(|err| login_error(&web, &err, &redaction))?;
        let state = query_parameter(&url, "state").unwrap_or_default();
        let is_configured = to.client.is_some();
        Ok(Self { manager, store: to.store, client, is_configured, url, state, redaction })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn finish(&self, callback: &str) -> Result<LoggedIn, LoginError> {
        if query_parameter(callback, "state").as_deref() != Some(&self.state) {
            return Err(LoginError::UnrelatedCallback);
        }
        if let Some(error) = query_parameter(callback, "error") {
            let reason = query_parameter(callback, "error_description").unwrap_or_default();
            let error_text = to_printable(&format!("{error} {reason}"));
            return Err(LoginError::Refused(format!("the login was refused: {error_text}")));
        }
        let callback_parts = AuthorizationCallback::from_redirect_url(callback);
        let callback_parts = callback_parts.map_err(|_| LoginError::UnrelatedCallback)?;
        let _lock = self.store.lock().await.map_err(LoginError::NotStored)?;
        let issuer = callback_parts.issuer.as_deref();
        let granted = self.manager.exchange_code_for_token_with_issuer(
            &callback_parts.code,
            &callback_parts.csrf_token,
            issuer,
        );
        let granted = match granted.await {
            Ok(granted) => granted,
            Err(err) => return Err(self.exchange_error(&err, &callback_parts.code)),
        };
        let scopes = self.manager.get_current_scopes().await;
        let client = Some(self.client.clone());
        let earlier = self.store.read().map_err(LoginError::NotStored)?.unwrap_or_default();
        let record = LoginRecord { client, granted: earlier.granted, wanted: Vec::new() };
        self.store.write(&record).map_err(LoginError::NotStored)?;
        Ok(LoggedIn {
            issuer: self.client.issuer.clone(),
            scopes,
            lifetime: granted.expires_in(),
            has_refresh_token: granted.refresh_token().is_some(),
        })
    }

    /// Converts the error of a token request. Removes a registered client that the server has
    /// forgotten, so that the next login registers another client. The caller must hold the lock.
    fn exchange_error(&self, err: &AuthError, code: &str) -> LoginError {
        if !self.is_configured
            && is_unknown_client(err)
            && let Ok(Some(record)) = self.store.read()
            && let Err(error) = self.store.write(&LoginRecord { client: None, ..record })
        {
            return LoginError::NotStored(error);
        }
        let mut redaction = self.redaction.clone();
        redaction.add_secret("CODE", code);
        convert_error(err, &redaction)
    }
}

fn new_client(metadata: &AuthorizationMetadata, redirect: &str, id: &str) -> RegisteredClient {
    RegisteredClient {
        id: id.to_owned(),
        secret: None,
        secret_until: None,
        redirect: redirect.to_owned(),
        issuer: metadata.issuer.clone(),
    }
}

async fn register_client(
    web: &AuthHttp,
    manager: &mut AuthorizationManager,
    metadata: &AuthorizationMetadata,
    redirect: &str,
    scopes: &[String],
) -> Result<RegisteredClient, AuthError> {
    let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let client = manager.register_client(CLIENT_NAME, redirect, &scopes).await?;
    let (secret, secret_until) = (client.client_secret, web.secret_until());
    Ok(RegisteredClient {
        secret,
        secret_until,
        ..new_client(metadata, redirect, &client.client_id)
    })
}

fn query_parameter(url: &str, name: &str) -> Option<String> {
    let url: Url = url.parse().ok()?;
    let (_, value) = url.query_pairs().find(|(key, _)| key == name)?;
    Some(value.into_owned())
}

fn login_error(web: &AuthHttp, err: &AuthError, redaction: &Redaction) -> LoginError {
    web.take_error().map_or_else(|| convert_error(err, redaction), LoginError::from)
}

impl From<TokenError> for LoginError {
    fn from(denied: TokenError) -> Self {
        match denied {
            TokenError::Unreachable(text) => Self::Unreachable(text),
            TokenError::Refused(text) | TokenError::UnknownServer(text) => Self::Refused(text),
        }
    }
}

fn convert_error(err: &AuthError, redaction: &Redaction) -> LoginError {
    match err {
        AuthError::CredentialStoreError(reason) => LoginError::NotStored(reason.clone()),
        err => LoginError::Refused(describe_auth_error(err, redaction)),
    }
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("store", &self.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::test_server::{TestServers, set},
        *,
    };

    const REDIRECT_URL: &str = "http://127.0.0.1:1/callback";

    async fn start_login(servers: &TestServers) -> Login {
        let server = servers.server_config(json!("oauth"));
        Login::start(&servers.logins, &set(), &server, REDIRECT_URL).await.unwrap()
    }

    #[tokio::test]
    async fn a_logout_revokes_tokens_only_at_their_issuer() {
        for is_other in [false, true] {
            let (servers, other) = (TestServers::new().await, TestServers::new().await);
            servers.store_expired_login(Some("refresh-0"));
            if is_other {
                servers.behavior().issuer = Some(other.base_url.clone());
            }
            let server = servers.server_config(json!("oauth"));
            assert!(servers.logins.log_out(&set(), &server).await.unwrap());
            assert!(servers.store().read().unwrap().is_none());
            // The two requests revoke the refresh token and the access token.
            assert_eq!(servers.count_requests("POST /revoke"), if is_other { 0 } else { 2 });
            let request_count = other
                .behavior()
                .requests
                .iter()
                .filter(|(request, ..)| request.starts_with("POST"))
                .count();
            assert_eq!(request_count, 0, "{:?}", other.behavior().requests);
        }
    }

    #[tokio::test]
    async fn a_forgotten_client_is_replaced_at_the_next_login() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        let login = start_login(&servers).await;
        assert_eq!(query_parameter(login.url(), "client_id").as_deref(), Some("client-0"));
        servers.behavior().clients.clear();
        let callback = format!("{REDIRECT_URL}?code=code-0&state={}", login.state);
        let error = login.finish(&callback).await.unwrap_err().to_string();
        assert!(error.contains("invalid_client") && !error.contains("code-0"), "{error}");
        let login = start_login(&servers).await;
        assert_ne!(query_parameter(login.url(), "client_id").as_deref(), Some("client-0"));
        let callback = format!("{REDIRECT_URL}?code=code-0&state={}", login.state);
        login.finish(&callback).await.unwrap();
        assert!(servers.store().read().unwrap().unwrap().token().is_some());
    }

    fn client_id_of(login: &Login) -> String {
        query_parameter(login.url(), "client_id").unwrap()
    }

    #[tokio::test]
    async fn the_client_of_an_expired_login_is_tried_once() {
        let servers = TestServers::new().await;
        servers.store_expired_login(None);
        let login = start_login(&servers).await;
        assert_eq!(client_id_of(&login), "client-0");
        login.finish(&format!("{REDIRECT_URL}?code=code-0&state={}", login.state)).await.unwrap();
        let client = || servers.store().read().unwrap().unwrap().client.map(|client| client.id);
        assert_eq!(client().as_deref(), Some("client-0"), "a client that worked is kept");
        servers.store_expired_login(None);
        start_login(&servers).await;
        assert_eq!(client(), None);
        let login = start_login(&servers).await;
        assert_ne!(
            client_id_of(&login),
            "client-0",
            "the server may have forgotten the old client"
        );
        assert_eq!(servers.count_requests("POST /register"), 1);
        // Keeps the client, because a refresh token works only with the client that it was issued
        // to.
        servers.store_expired_login(Some("refresh-0"));
        for _ in 0..2 {
            assert_eq!(client_id_of(&start_login(&servers).await), "client-0");
        }
    }

    #[tokio::test]
    async fn a_client_with_an_expired_secret_is_replaced() {
        let servers = TestServers::new().await;
        servers.behavior().secret_until = 7;
        assert_eq!(start_login(&servers).await.client.secret_until, Some(7));
        for (until, expected) in [(None, true), (Some(u64::MAX), true), (Some(1), false)] {
            servers.store_expired_login(Some("refresh-0"));
            let mut record = servers.store().read().unwrap().unwrap();
            record.client.as_mut().unwrap().secret_until = until;
            servers.store().write(&record).unwrap();
            let client = client_id_of(&start_login(&servers).await);
            assert_eq!(client == "client-0", expected, "{until:?}");
        }
    }

    #[tokio::test]
    async fn a_rejection_may_list_other_schemes_before_bearer() {
        let servers = TestServers::new().await;
        servers.behavior().is_hidden = true;
        servers.behavior().issuer = Some(format!("{}/as", servers.base_url));
        let login = start_login(&servers).await;
        assert_eq!(login.client.issuer, Some(format!("{}/as", servers.base_url)));
    }
}
