//! Gets the tokens of a server from the token store or the authorization server.

use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{AuthError, OAuthClientConfig};
use secrets::Redaction;
use shared::id::ToolSetName;

use super::{
    Logins, OAuth,
    client_credentials::TokenRequest,
    config::{Client, Grant},
    discovery::{AuthServer, Discovery},
    token_error::TokenError,
    token_store::{AccessToken, LoginRecord, TokenStore},
    unix_time,
    web::AuthHttp,
};
use crate::redaction::Secrets;

pub(super) struct TokenSource {
    pub(super) set: ToolSetName,
    pub(super) server: Url,
    pub(super) oauth: OAuth,
    pub(super) store: Option<TokenStore>,
    web: AuthHttp,
    secrets: Arc<Secrets>,
}

struct TokenRefresh<'a> {
    store: &'a TokenStore,
    record: LoginRecord,
    client: Option<&'a Client>,
    is_registered: bool,
}

impl TokenSource {
    pub(super) fn new(
        set: &ToolSetName,
        server: &Url,
        oauth: &OAuth,
        logins: Option<&Logins>,
        secrets: Arc<Secrets>,
    ) -> Self {
        let company = match &oauth.grant {
            Grant::CrossApp { identity, .. } => Some(identity.token_endpoint.0.clone()),
            Grant::Person { .. } | Grant::Program { .. } => None,
        };
        Self {
            set: set.clone(),
            server: server.clone(),
            oauth: oauth.clone(),
            store: logins.map(|logins| logins.store_for(set, server)),
            web: AuthHttp::with_second_server(server.clone(), company),
            secrets,
        }
    }

    /// Returns a stored token other than `refused_token`, without a request.
    pub(super) fn stored_token(
        &self,
        refused_token: Option<&str>,
    ) -> Result<Option<AccessToken>, TokenError> {
        let Some(store) = self.store.as_ref().filter(|_| self.oauth.is_for_people()) else {
            return Ok(None);
        };
        let record = store.read().map_err(|err| self.with_set_name(TokenError::Refused(err)))?;
        let token = record.and_then(|record| usable_token(&record, refused_token));
        Ok(token.inspect(|token| self.secrets.add_token(&token.text)))
    }

    /// Returns a token from the store or from the authorization server. A token from the store is
    /// not `refused_token`.
    pub(super) async fn obtain_token(
        &self,
        refused_token: Option<&str>,
        challenge: Option<&str>,
    ) -> Result<Option<AccessToken>, TokenError> {
        let mut redaction = Redaction::default();
        let (web, server) = (self.web.for_next_token(), &self.server);
        let issuer = self.oauth.issuer.as_deref();
        let discovery = Discovery { web: &web, server, challenge, issuer };
        let token_request = TokenRequest { discovery, scopes: &self.oauth.scopes };
        let token = match &self.oauth.grant {
            Grant::Person { client, .. } => {
                self.refresh_login(client.as_ref(), refused_token, &discovery, &mut redaction).await
            }
            Grant::Program { id, proof } => {
                token_request.request_as_program(id, proof, &mut redaction).await.map(Some)
            }
            Grant::CrossApp { client, identity } => {
                token_request.request_as_employee(client, identity, &mut redaction).await.map(Some)
            }
        };
        let token = token.map_err(|denied| {
            let denied = denied.or_recorded_error(web.take_error());
            self.with_set_name(denied.map_text(|text| redaction.redact(text)))
        })?;
        Ok(token.inspect(|token| self.secrets.add_token(&token.text)))
    }

    pub(super) fn with_set_name(&self, denied: TokenError) -> TokenError {
        denied.map_text(|text| format!("no token for `{}`: {text}", self.set))
    }

    async fn refresh_login(
        &self,
        client: Option<&Client>,
        refused_token: Option<&str>,
        discovery: &Discovery<'_>,
        redaction: &mut Redaction,
    ) -> Result<Option<AccessToken>, TokenError> {
        let Some(store) = &self.store else { return Ok(None) };
        let Some(record) = store.read().map_err(TokenError::Refused)? else { return Ok(None) };
        if let Some(token) = usable_token(&record, refused_token) {
            return Ok(Some(token));
        }
        if record.refresh_token().is_none() {
            return Ok(None);
        }
        // Discovers the server before it takes the lock, so that other processes do not wait for
        // the discovery.
        let auth_server = discovery.discover().await;
        let auth_server = auth_server
            .map_err(|err| TokenError::from_auth_error(&err, redaction).into_unknown_server())?;
        let _lock = store.lock().await.map_err(TokenError::Unreachable)?;
        // Reads the store again, because another process may have stored a token since the first
        // read.
        let Some(record) = store.read().map_err(TokenError::Refused)? else { return Ok(None) };
        if let Some(token) = usable_token(&record, refused_token) {
            return Ok(Some(token));
        }
        let issuer = record.granted.as_ref().and_then(|granted| granted.issuer.as_ref());
        if issuer.is_some() && issuer != auth_server.metadata.issuer.as_ref() {
            // Warns only after a challenge, because without one the discovery may have found the
            // wrong server.
            if discovery.challenge.is_some() {
                tracing::warn!(set = %self.set, "the authorization server has changed: log in again");
            }
            return Ok(None);
        }
        let is_registered = self.is_registered(&record);
        TokenRefresh { store, record, client, is_registered }
            .refresh_token(auth_server, redaction)
            .await
    }

    fn is_registered(&self, record: &LoginRecord) -> bool {
        let Grant::Person { client: None, document, .. } = &self.oauth.grant else { return false };
        record.client.as_ref().is_some_and(|client| Some(&client.id) != document.as_ref())
    }
}

impl TokenRefresh<'_> {
    async fn refresh_token(
        self,
        auth_server: AuthServer,
        redaction: &mut Redaction,
    ) -> Result<Option<AccessToken>, TokenError> {
        let Self { store, record, client, is_registered } = self;
        let (Some(granted), Some(token)) = (&record.granted, record.refresh_token()) else {
            return Ok(None);
        };
        redaction.add_secret("REFRESH_TOKEN", token);
        let AuthServer { mut manager, .. } = auth_server;
        manager.set_credential_store(store.clone());
        let by = client_config(&record, client, &granted.client_id, redaction)?;
        manager.configure_client(by).map_err(|err| TokenError::from_auth_error(&err, redaction))?;
        match manager.refresh_token().await {
            Ok(_) => {
                Ok(store.read().map_err(TokenError::Refused)?.and_then(|record| record.token()))
            }
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => {
                // Keeps the client without the tokens, because the refresh token is no longer
                // valid.
                let ended = LoginRecord { granted: None, ..record };
                store.write(&ended).map_err(TokenError::Refused)?;
                Ok(None)
            }
            Err(err) if client.is_none() && is_unknown_client(&err) => {
                // Removes a registered client, so that the next login registers another client.
                let client = record.client.filter(|_| !is_registered);
                let ended = LoginRecord { client, granted: None, ..record };
                store.write(&ended).map_err(TokenError::Refused)?;
                Ok(None)
            }
            Err(err) => Err(TokenError::from_auth_error(&err, redaction)),
        }
    }
}

fn usable_token(record: &LoginRecord, refused_token: Option<&str>) -> Option<AccessToken> {
    let is_other = |token: &AccessToken| Some(token.text.as_str()) != refused_token;
    record.token().filter(|token| token.is_usable(unix_time()) && is_other(token))
}

/// Returns whether an authorization server has forgotten its client (RFC 6749, section 5.2).
pub(super) fn is_unknown_client(err: &AuthError) -> bool {
    let (AuthError::TokenRefreshFailed(reason) | AuthError::TokenExchangeFailed(reason)) = err
    else {
        return false;
    };
    reason.contains("invalid_client")
}

fn client_config(
    record: &LoginRecord,
    client: Option<&Client>,
    granted_to: &str,
    redaction: &mut Redaction,
) -> Result<OAuthClientConfig, TokenError> {
    let registered = record.client.as_ref();
    let (id, secret) = match (client, registered) {
        (Some(client), _) => {
            let secret = client.secret.as_ref().map(|secret| secret.resolve(redaction)).transpose();
            let secret = secret.map_err(|err| TokenError::Refused(err.to_string()))?;
            (client.id.clone(), secret)
        }
        (None, Some(registered)) => (registered.id.clone(), registered.secret.clone()),
        (None, None) => (granted_to.to_owned(), None),
    };
    if let Some(secret) = &secret {
        redaction.add_secret("CLIENT_SECRET", secret);
    }
    let redirect = registered.map_or("http://127.0.0.1/callback", |client| &client.redirect);
    let by = OAuthClientConfig::new(id, redirect);
    Ok(match secret {
        Some(secret) => by.with_client_secret(secret),
        None => by,
    })
}
