//! The token that a server is shown.

use std::{fmt, sync::Arc};

use reqwest::{Response, Url, header::WWW_AUTHENTICATE};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, OAuthClientConfig, WWWAuthenticateParams,
};
use shared::id::ToolSetName;
use tokio::sync::Mutex;

use super::{
    Logins, NEEDS_LOGIN, OAuth,
    config::{Client, Grant},
    discovery::{discover, told},
    kept::{Kept, Record, Token},
    machine::Wish,
    now,
    web::Web,
};
use crate::{
    secret::Redaction,
    tool::{http::client::Broken, mcp::secrets::Secrets},
};

/// Has the token for each request to a server.
pub(in crate::tool::mcp) struct Bearer {
    set: ToolSetName,
    server: Url,
    oauth: OAuth,
    kept: Option<Kept>,
    web: Arc<Web>,
    secrets: Arc<Secrets>,
    /// What was shown last. Whoever renews it has it until that is done: one renewal is enough.
    held: Mutex<Option<Token>>,
}

/// Why a request is not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tool::mcp) enum Denied {
    /// Somebody has to log in, or to correct something.
    Refused(String),
    /// Who grants tokens cannot be asked now.
    Unreachable(String),
}

impl Denied {
    /// Says why nothing was granted.
    pub(super) fn of(err: &AuthError) -> Self {
        let text = told(err);
        match err {
            AuthError::DiscoveryRequestFailed { .. } | AuthError::HttpError(_) => {
                Self::Unreachable(text)
            }
            _ => Self::Refused(text),
        }
    }

    fn map(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Refused(text) => Self::Refused(change(text)),
            Self::Unreachable(text) => Self::Unreachable(change(text)),
        }
    }
}

impl From<Denied> for Broken {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Refused(text) => Self::Denied(text),
            Denied::Unreachable(text) => Self::Unsent(text),
        }
    }
}

impl Bearer {
    pub(in crate::tool::mcp) fn new(
        (set, server): (&ToolSetName, &Url),
        oauth: &OAuth,
        logins: Option<&Logins>,
        secrets: Arc<Secrets>,
    ) -> Self {
        Self {
            set: set.clone(),
            server: server.clone(),
            oauth: oauth.clone(),
            kept: logins.map(|it| it.of(set, server)),
            web: Arc::new(Web::new(server.clone())),
            secrets,
            held: Mutex::default(),
        }
    }

    /// Returns the token to show, if there is one: a server may answer without.
    pub(in crate::tool::mcp) async fn token(&self) -> Result<Option<String>, Denied> {
        let mut held = self.held.lock().await;
        if held.as_ref().is_none_or(|it| !is_good(it)) {
            *held = self.get(None, None).await?;
        }
        Ok(held.as_ref().map(|it| it.text.clone()))
    }

    /// Returns another token than the one that was refused, or says why there is none.
    pub(in crate::tool::mcp) async fn another(
        &self,
        refused: Option<&str>,
        answer: &Response,
    ) -> Result<String, Denied> {
        let challenge = challenge(answer);
        let mut held = self.held.lock().await;
        let is_other = |it: &Token| Some(it.text.as_str()) != refused;
        if !held.as_ref().is_some_and(|it| is_other(it) && is_good(it)) {
            *held = None;
            *held = self.get(refused, challenge.as_deref()).await?.filter(is_other);
        }
        match &*held {
            Some(token) => Ok(token.text.clone()),
            None => Err(self.denied(challenge.as_deref()).await),
        }
    }

    /// Says what to do where a server refuses every token.
    pub(in crate::tool::mcp) async fn refused(&self, answer: &Response) -> Denied {
        // What was granted is of no use.
        *self.held.lock().await = None;
        self.denied(challenge(answer).as_deref()).await
    }

    /// Says why a server forbids something, where that is because too little was granted.
    pub(in crate::tool::mcp) async fn too_little(&self, answer: &Response) -> Option<Denied> {
        let challenge = challenge(answer)?;
        let params = WWWAuthenticateParams::parse(&challenge, &self.server);
        if !params.is_insufficient_scope() {
            return None;
        }
        Some(self.denied(Some(&challenge)).await)
    }

    /// Says who has to do what. What the server wants is noted for the next login.
    async fn denied(&self, challenge: Option<&str>) -> Denied {
        let set = &self.set;
        let params = challenge.map(|it| WWWAuthenticateParams::parse(it, &self.server));
        let params = params.unwrap_or_default();
        let more = match &params.scope {
            Some(scope) if params.is_insufficient_scope() => format!(" that allows `{scope}`"),
            _ => String::new(),
        };
        let text = match &self.kept {
            _ if !self.oauth.is_for_people() => {
                format!(
                    "`{set}` does not take the token that was granted{more}: look at its `auth`"
                )
            }
            None => format!("`{set}` {NEEDS_LOGIN}, and there is no place to keep one"),
            Some(kept) => {
                if let Some(scope) = &params.scope
                    && let Err(why) = kept.want(scope).await
                {
                    tracing::warn!(%set, %why, "the scopes that the server wants are not noted");
                }
                format!("`{set}` {NEEDS_LOGIN}{more}: type `faber login {set}`")
            }
        };
        Denied::Refused(text)
    }

    /// Gets a token that was not `refused`, from where it is kept or from whoever grants it.
    async fn get(
        &self,
        refused: Option<&str>,
        challenge: Option<&str>,
    ) -> Result<Option<Token>, Denied> {
        let mut seen = Redaction::default();
        let (web, server, scopes) = (&self.web, &self.server, self.oauth.scopes.as_slice());
        let wish = Wish { web, server, challenge, scopes };
        let got = match &self.oauth.grant {
            Grant::Person { client, .. } => {
                self.of_person(client.as_ref(), refused, &mut seen).await
            }
            Grant::Program { id, proof } => wish.as_program(id, proof, &mut seen).await.map(Some),
            Grant::CrossApp { client, identity } => {
                wish.as_employee(client, identity, &mut seen).await.map(Some)
            }
        };
        let got = got.map_err(|denied| {
            let denied = match self.web.trouble() {
                Some(trouble) => Denied::Unreachable(trouble),
                None => denied,
            };
            denied.map(|it| format!("no token for `{}`: {}", self.set, seen.clean(it)))
        })?;
        if let Some(token) = &got {
            self.secrets.note(&token.text);
        }
        Ok(got)
    }

    async fn of_person(
        &self,
        client: Option<&Client>,
        refused: Option<&str>,
        seen: &mut Redaction,
    ) -> Result<Option<Token>, Denied> {
        let Some(kept) = &self.kept else { return Ok(None) };
        let usable = |record: &Record| {
            record.token().filter(|it| is_good(it) && Some(it.text.as_str()) != refused)
        };
        let Some(record) = kept.read().map_err(Denied::Refused)? else { return Ok(None) };
        if let Some(token) = usable(&record) {
            return Ok(Some(token));
        }
        if record.refresh_token().is_none() {
            return Ok(None);
        }
        let _lock = kept.lock().await.map_err(Denied::Refused)?;
        // Another process may have been faster.
        let Some(record) = kept.read().map_err(Denied::Refused)? else { return Ok(None) };
        match usable(&record) {
            Some(token) => Ok(Some(token)),
            None => self.renew(kept, record, client, seen).await,
        }
    }

    /// Gets a new token for the one that is kept.
    async fn renew(
        &self,
        kept: &Kept,
        record: Record,
        client: Option<&Client>,
        seen: &mut Redaction,
    ) -> Result<Option<Token>, Denied> {
        if let Some(token) = record.refresh_token() {
            seen.note("REFRESH_TOKEN", token);
        }
        let web = Arc::clone(&self.web);
        let manager =
            AuthorizationManager::new_with_oauth_http_client(self.server.clone(), web).await;
        let mut manager = manager.map_err(|err| Denied::of(&err))?;
        manager.set_credential_store(kept.clone());
        let metadata = discover(&mut manager, &self.web, &self.server, None).await;
        let metadata = metadata.map_err(|err| Denied::of(&err))?;
        let Some(granted) = &record.granted else { return Ok(None) };
        if granted.issuer.is_some() && granted.issuer != metadata.issuer {
            tracing::warn!(set = %self.set, "another server grants tokens now: the login has ended");
            return Ok(None);
        }
        let by = by(&record, client, &granted.client_id, seen)?;
        manager.configure_client(by).map_err(|err| Denied::of(&err))?;
        match manager.refresh_token().await {
            Ok(_) => Ok(kept.read().map_err(Denied::Refused)?.and_then(|it| it.token())),
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => {
                // Nobody needs to ask again.
                let ended = Record { granted: None, ..record };
                kept.write(&ended).map_err(Denied::Refused)?;
                Ok(None)
            }
            Err(err) => Err(Denied::of(&err)),
        }
    }
}

/// Returns the client by which a login was granted.
fn by(
    record: &Record,
    client: Option<&Client>,
    granted_to: &str,
    seen: &mut Redaction,
) -> Result<OAuthClientConfig, Denied> {
    let registered = record.client.as_ref();
    let (id, secret) = match (client, registered) {
        (Some(client), _) => {
            let secret = client.secret.as_ref().map(|it| it.resolve(seen)).transpose();
            let secret = secret.map_err(|err| Denied::Refused(err.to_string()))?;
            (client.id.clone(), secret)
        }
        (None, Some(registered)) => (registered.id.clone(), registered.secret.clone()),
        (None, None) => (granted_to.to_owned(), None),
    };
    if let Some(secret) = &secret {
        seen.note("CLIENT_SECRET", secret);
    }
    let redirect = registered.map_or("http://127.0.0.1/callback", |it| &it.redirect);
    let by = OAuthClientConfig::new(id, redirect);
    Ok(match secret {
        Some(secret) => by.with_client_secret(secret),
        None => by,
    })
}

fn is_good(token: &Token) -> bool {
    token.is_good(now())
}

/// Returns how a server says which tokens it wants.
fn challenge(answer: &Response) -> Option<String> {
    let all = answer.headers().get_all(WWW_AUTHENTICATE).iter();
    let mut all = all.filter_map(|it| it.to_str().ok());
    let is_bearer = |it: &&str| it.get(..6).is_some_and(|it| it.eq_ignore_ascii_case("bearer"));
    all.find(is_bearer).map(ToOwned::to_owned)
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").field("set", &self.set).finish_non_exhaustive()
    }
}
