//! The source of a server's tokens: the token store or the authorization server.

use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{AuthError, OAuthClientConfig};
use secrets::Redaction;
use shared::id::ToolSetName;

use super::{
    Logins, OAuth,
    client_credentials::Wish,
    config::{Client, Grant},
    denied::Denied,
    discovery::{Found, Sought},
    now,
    token_store::{Record, Token, TokenStore},
    web::Web,
};
use crate::secrets::Secrets;

/// The source of one server's tokens: the token store or the authorization server.
pub(super) struct Source {
    pub(super) set: ToolSetName,
    pub(super) server: Url,
    pub(super) oauth: OAuth,
    pub(super) kept: Option<TokenStore>,
    web: Web,
    secrets: Arc<Secrets>,
}

/// A login and the client that refreshes it.
struct Renewal<'a> {
    kept: &'a TokenStore,
    record: Record,
    /// The configured client.
    client: Option<&'a Client>,
    /// `true` if the client was registered for this login.
    is_registered: bool,
}

impl Source {
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
            kept: logins.map(|logins| logins.of(set, server)),
            web: Web::with_also(server.clone(), company),
            secrets,
        }
    }

    /// Returns a stored token other than `refused`, without a request.
    pub(super) fn at_hand(&self, refused: Option<&str>) -> Result<Option<Token>, Denied> {
        let Some(kept) = self.kept.as_ref().filter(|_| self.oauth.is_for_people()) else {
            return Ok(None);
        };
        let record = kept.read().map_err(|err| self.without(Denied::Refused(err)))?;
        let token = record.and_then(|record| usable(&record, refused));
        Ok(token.inspect(|token| self.secrets.note(&token.text)))
    }

    /// Returns a token other than `refused`, from the store or from the authorization server.
    pub(super) async fn get(
        &self,
        refused: Option<&str>,
        challenge: Option<&str>,
    ) -> Result<Option<Token>, Denied> {
        let mut seen = Redaction::default();
        let (web, server) = (self.web.anew(), &self.server);
        let issuer = self.oauth.issuer.as_deref();
        let sought = Sought { web: &web, server, challenge, issuer };
        let wish = Wish { sought, scopes: &self.oauth.scopes };
        let got = match &self.oauth.grant {
            Grant::Person { client, .. } => {
                self.of_person(client.as_ref(), refused, &sought, &mut seen).await
            }
            Grant::Program { id, proof } => wish.as_program(id, proof, &mut seen).await.map(Some),
            Grant::CrossApp { client, identity } => {
                wish.as_employee(client, identity, &mut seen).await.map(Some)
            }
        };
        let got = got.map_err(|denied| {
            let denied = denied.because(web.trouble());
            self.without(denied.map(|text| seen.clean(text)))
        })?;
        Ok(got.inspect(|token| self.secrets.note(&token.text)))
    }

    /// Adds the toolset's name to the error.
    pub(super) fn without(&self, denied: Denied) -> Denied {
        denied.map(|text| format!("no token for `{}`: {text}", self.set))
    }

    async fn of_person(
        &self,
        client: Option<&Client>,
        refused: Option<&str>,
        sought: &Sought<'_>,
        seen: &mut Redaction,
    ) -> Result<Option<Token>, Denied> {
        let Some(kept) = &self.kept else { return Ok(None) };
        let Some(record) = kept.read().map_err(Denied::Refused)? else { return Ok(None) };
        if let Some(token) = usable(&record, refused) {
            return Ok(Some(token));
        }
        if record.refresh_token().is_none() {
            return Ok(None);
        }
        // The discovery comes before the lock, so that other processes do not wait for it.
        let found = sought.find().await;
        let found = found.map_err(|err| Denied::of(&err, seen).unfound())?;
        let _lock = kept.lock().await.map_err(Denied::Unreachable)?;
        // Another process may have been faster.
        let Some(record) = kept.read().map_err(Denied::Refused)? else { return Ok(None) };
        if let Some(token) = usable(&record, refused) {
            return Ok(Some(token));
        }
        let issuer = record.granted.as_ref().and_then(|granted| granted.issuer.as_ref());
        if issuer.is_some() && issuer != found.metadata.issuer.as_ref() {
            // Without a challenge, the discovery may have found the wrong server.
            if sought.challenge.is_some() {
                tracing::warn!(set = %self.set, "another server grants tokens now: the login has ended");
            }
            return Ok(None);
        }
        let is_registered = self.is_registered(&record);
        Renewal { kept, record, client, is_registered }.run(found, seen).await
    }

    /// Returns whether the client of a login was registered for it.
    fn is_registered(&self, record: &Record) -> bool {
        let Grant::Person { client: None, document, .. } = &self.oauth.grant else { return false };
        record.client.as_ref().is_some_and(|client| Some(&client.id) != document.as_ref())
    }
}

impl Renewal<'_> {
    /// Refreshes the stored token.
    async fn run(self, found: Found, seen: &mut Redaction) -> Result<Option<Token>, Denied> {
        let Self { kept, record, client, is_registered } = self;
        let (Some(granted), Some(token)) = (&record.granted, record.refresh_token()) else {
            return Ok(None);
        };
        seen.note("REFRESH_TOKEN", token);
        let Found { mut manager, .. } = found;
        manager.set_credential_store(kept.clone());
        let by = by(&record, client, &granted.client_id, seen)?;
        manager.configure_client(by).map_err(|err| Denied::of(&err, seen))?;
        match manager.refresh_token().await {
            Ok(_) => Ok(kept.read().map_err(Denied::Refused)?.and_then(|record| record.token())),
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => {
                // The refresh token is no longer valid.
                let ended = Record { granted: None, ..record };
                kept.write(&ended).map_err(Denied::Refused)?;
                Ok(None)
            }
            Err(err) if client.is_none() && knows_no_client(&err) => {
                // The next login registers another client.
                let client = record.client.filter(|_| !is_registered);
                let ended = Record { client, granted: None, ..record };
                kept.write(&ended).map_err(Denied::Refused)?;
                Ok(None)
            }
            Err(err) => Err(Denied::of(&err, seen)),
        }
    }
}

/// Returns the stored token, if it is valid and was not refused.
fn usable(record: &Record, refused: Option<&str>) -> Option<Token> {
    let is_other = |token: &Token| Some(token.text.as_str()) != refused;
    record.token().filter(|token| token.is_good(now()) && is_other(token))
}

/// Returns whether an authorization server has forgotten its client (RFC 6749, section 5.2).
pub(super) fn knows_no_client(err: &AuthError) -> bool {
    let (AuthError::TokenRefreshFailed(why) | AuthError::TokenExchangeFailed(why)) = err else {
        return false;
    };
    why.contains("invalid_client")
}

/// Returns the client of a login.
fn by(
    record: &Record,
    client: Option<&Client>,
    granted_to: &str,
    seen: &mut Redaction,
) -> Result<OAuthClientConfig, Denied> {
    let registered = record.client.as_ref();
    let (id, secret) = match (client, registered) {
        (Some(client), _) => {
            let secret = client.secret.as_ref().map(|secret| secret.resolve(seen)).transpose();
            let secret = secret.map_err(|err| Denied::Refused(err.to_string()))?;
            (client.id.clone(), secret)
        }
        (None, Some(registered)) => (registered.id.clone(), registered.secret.clone()),
        (None, None) => (granted_to.to_owned(), None),
    };
    if let Some(secret) = &secret {
        seen.note("CLIENT_SECRET", secret);
    }
    let redirect = registered.map_or("http://127.0.0.1/callback", |client| &client.redirect);
    let by = OAuthClientConfig::new(id, redirect);
    Ok(match secret {
        Some(secret) => by.with_client_secret(secret),
        None => by,
    })
}
