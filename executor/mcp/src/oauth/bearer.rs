//! The bearer token of the requests to a server.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{
    Response, Url,
    header::{HeaderMap, WWW_AUTHENTICATE},
};
use rmcp::transport::auth::WWWAuthenticateParams;
use tokio::{sync::Mutex, time::Instant};

use super::{
    BackgroundTasks, Caller, NEEDS_LOGIN, OAuth,
    source::TokenSource,
    token_error::{TokenError, to_printable},
    token_store::AccessToken,
    unix_time,
};
use crate::redaction::Secrets;

/// Delay after a failed token request. Until then, calls that need a new token fail with the same
/// error and send no token request.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);
const LOGOUT_POLL_INTERVAL: Duration = Duration::from_secs(30);

pub(crate) struct Bearer {
    source: Arc<TokenSource>,
    /// Locked while a token is requested, so that concurrent calls cause one refresh.
    state: Mutex<TokenState>,
    background: BackgroundTasks,
}

#[derive(Default)]
struct TokenState {
    token: Option<AccessToken>,
    last_failure: Option<(Instant, TokenError)>,
    challenge: Option<String>,
    /// The time of the last check for a logout.
    checked_at: Option<Instant>,
}

pub(crate) struct ReplacementToken {
    pub(crate) text: String,
    /// `true` if the token was granted now. A stored token is not new, and the server may refuse
    /// it, too.
    pub(crate) is_new: bool,
}

impl TokenState {
    fn valid_token(&self) -> Option<&AccessToken> {
        self.token.as_ref().filter(|token| token.is_usable(unix_time()))
    }

    fn check_recent_failure(&self) -> Result<(), TokenError> {
        match &self.last_failure {
            Some((since, denied)) if since.elapsed() < FAILURE_PAUSE => Err(denied.clone()),
            _ => Ok(()),
        }
    }

    fn record_failure(&mut self, denied: &TokenError) {
        self.last_failure = Some((Instant::now(), denied.clone()));
    }

    fn store_result(
        &mut self,
        result: Result<Option<AccessToken>, TokenError>,
    ) -> Result<Option<&AccessToken>, TokenError> {
        let token = result.inspect_err(|denied| self.record_failure(denied))?;
        self.last_failure = None;
        self.token = token;
        Ok(self.token.as_ref())
    }
}

impl Bearer {
    pub(crate) fn new(
        caller: Caller<'_>,
        server: &Url,
        oauth: &OAuth,
        secrets: Arc<Secrets>,
    ) -> Self {
        let Caller { set, logins, background } = caller;
        let source = Arc::new(TokenSource::new(set, server, oauth, logins, secrets));
        Self { source, state: Mutex::default(), background: background.clone() }
    }

    /// Returns the token of the next request, or `None` to send the request without a token.
    pub(crate) async fn current_token(&self) -> Result<Option<String>, TokenError> {
        let mut held = self.state.lock().await;
        if held.valid_token().is_none() {
            held.token = self.source.stored_token(None)?;
        } else if self.source.oauth.is_for_people()
            && held.checked_at.is_none_or(|time| time.elapsed() >= LOGOUT_POLL_INTERVAL)
        {
            held.checked_at = Some(Instant::now());
            // Reads the store again, because another process may have logged out.
            if let Ok(None) = self.source.stored_token(None) {
                held.token = None;
            }
        }
        if held.token.is_none() {
            held.check_recent_failure()?;
            let challenge = held.challenge.clone();
            match self.request_token(None, challenge.as_deref()).await {
                // Sends the request without a token, because the refusal may name the authorization
                // server.
                Err(TokenError::UnknownServer(_)) if challenge.is_none() => {}
                result => held.store_result(result).map(drop)?,
            }
        }
        Ok(held.token.as_ref().map(|token| token.text.clone()))
    }

    /// Returns the token that was sent last. Requests no other token.
    pub(crate) async fn last_token(&self) -> Option<String> {
        self.state.lock().await.token.as_ref().map(|token| token.text.clone())
    }

    /// Returns a token to use instead of `refused_token`, or an error.
    pub(crate) async fn replace_token(
        &self,
        refused_token: Option<&str>,
        answer: &Response,
    ) -> Result<ReplacementToken, TokenError> {
        let challenge = bearer_challenge(answer.headers());
        let mut held = self.state.lock().await;
        if challenge.is_some() {
            held.challenge.clone_from(&challenge);
        }
        let is_other = |token: &&AccessToken| Some(token.text.as_str()) != refused_token;
        if let Some(token) = held.valid_token().filter(is_other) {
            return Ok(ReplacementToken { text: token.text.clone(), is_new: false });
        }
        let (result, is_new) = if let Some(token) = self.source.stored_token(refused_token)? {
            (Ok(Some(token)), false)
        } else {
            held.check_recent_failure()?;
            (self.request_token(refused_token, challenge.as_deref()).await, true)
        };
        if let Some(token) = held.store_result(result)?.filter(is_other) {
            return Ok(ReplacementToken { text: token.text.clone(), is_new });
        }
        let denied = self.describe_denial(challenge.as_deref()).await;
        if !self.source.oauth.is_for_people() {
            held.record_failure(&denied);
        }
        Err(denied)
    }

    pub(crate) async fn refusal_error(&self, answer: &Response) -> TokenError {
        let denied = self.describe_denial(bearer_challenge(answer.headers()).as_deref()).await;
        // Makes the next calls fail without a token request, because the server would refuse
        // another token, too.
        self.state.lock().await.record_failure(&denied);
        denied
    }

    pub(crate) async fn missing_scope_error(&self, answer: &Response) -> Option<TokenError> {
        let challenge = bearer_challenge(answer.headers())?;
        let params = WWWAuthenticateParams::parse(&challenge, &self.source.server);
        if !params.is_insufficient_scope() {
            return None;
        }
        Some(self.describe_denial(Some(&challenge)).await)
    }

    /// Describes what the user has to do. Records the wanted scopes for the next login.
    async fn describe_denial(&self, challenge: Option<&str>) -> TokenError {
        let TokenSource { set, server, oauth, store, .. } = &*self.source;
        let params = challenge.map(|challenge| WWWAuthenticateParams::parse(challenge, server));
        let params = params.unwrap_or_default();
        let more = match &params.scope {
            Some(scope) if params.is_insufficient_scope() => {
                format!(" that allows `{}`", to_printable(scope))
            }
            _ => String::new(),
        };
        let text = match store {
            _ if !oauth.is_for_people() => {
                format!("`{set}` rejects the token that was granted for it{more}: check its `auth`")
            }
            None => format!("`{set}` {NEEDS_LOGIN}, but Faber has no folder to store it"),
            Some(store) => {
                if let Some(scope) = &params.scope
                    && let Err(error) = store.add_wanted_scopes(scope).await
                {
                    tracing::warn!(%set, why = %error, "cannot store the scopes that the server requires");
                }
                format!("`{set}` {NEEDS_LOGIN}{more}: run `faber login {set}`")
            }
        };
        TokenError::Refused(text)
    }

    /// Requests a token other than `refused_token`. The request continues if the call is cancelled,
    /// because the request may use up a refresh token and the new token would be lost.
    async fn request_token(
        &self,
        refused_token: Option<&str>,
        challenge: Option<&str>,
    ) -> Result<Option<AccessToken>, TokenError> {
        let source = Arc::clone(&self.source);
        let (refused_token, challenge) =
            (refused_token.map(ToOwned::to_owned), challenge.map(ToOwned::to_owned));
        let request = async move {
            source.obtain_token(refused_token.as_deref(), challenge.as_deref()).await
        };
        self.background.run_task(request).await.unwrap_or_else(|| {
            let reason =
                "too many token requests are running, or the server is stopping: try again later";
            Err(self.source.with_set_name(TokenError::Unreachable(reason.to_owned())))
        })
    }
}

pub(super) fn bearer_challenge(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(WWW_AUTHENTICATE).iter();
    let mut all = all.filter_map(|value| value.to_str().ok());
    let is_bearer =
        |value: &&str| value.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("bearer"));
    all.find(is_bearer).map(ToOwned::to_owned)
}

impl fmt::Debug for ReplacementToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplacementToken").field("is_new", &self.is_new).finish_non_exhaustive()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").field("set", &self.source.set).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http_client::HttpError;
    use serde_json::{Value, json};

    use super::{super::tests::test_server::TestServers, *};

    fn person_auth() -> Value {
        json!("oauth")
    }

    fn program_auth() -> Value {
        let secret = json!({ "secret": "CARGO_PKG_NAME" });
        json!({ "grant": "client_credentials", "client_id": "robot", "client_secret": secret })
    }

    /// Sends a request as a connection does. Returns the token that the server accepted.
    async fn call(servers: &TestServers, bearer: &Bearer) -> Result<String, TokenError> {
        let mut token = bearer.current_token().await?;
        let mut answer = servers.post(token.as_deref()).await;
        while answer.status() != 200 {
            let other = bearer.replace_token(token.as_deref(), &answer).await?;
            answer = servers.post(Some(&other.text)).await;
            if answer.status() != 200 && other.is_new {
                return Err(bearer.refusal_error(&answer).await);
            }
            token = Some(other.text);
        }
        Ok(token.unwrap())
    }

    fn needs_login_error() -> TokenError {
        TokenError::Refused("`s` needs a login: run `faber login s`".to_owned())
    }

    #[tokio::test]
    async fn a_refreshed_token_is_stored_after_its_caller_is_cancelled() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        servers.behavior().holds_next_answer = true;
        let bearer = servers.bearer(person_auth());
        let mut call = Box::pin(bearer.current_token());
        tokio::select! {
            token = &mut call => panic!("{token:?} was not held back"),
            () = servers.gate.arrived.notified() => {}
        }
        drop(call);
        servers.gate.opened.notify_one();
        assert_eq!(bearer.current_token().await.unwrap().as_deref(), Some("access-1"));
        assert_eq!(servers.count_requests("POST /token"), 1);
    }

    /// Regression: the user was told to log in, although the login could be refreshed.
    #[tokio::test]
    async fn a_rejected_token_that_another_process_renewed_is_renewed_again() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        let bearer = servers.bearer(person_auth());
        let first = call(&servers, &bearer).await.unwrap();
        // Another process logs in, and then the server drops every token.
        let record = serde_json::to_string(&servers.store().read().unwrap().unwrap()).unwrap();
        let record = record.replace(&first, "of-another-process");
        servers.store().write(&serde_json::from_str(&record).unwrap()).unwrap();
        servers.behavior().access.clear();
        servers.behavior().requests.clear();
        let renewed = call(&servers, &bearer).await.unwrap();
        assert_ne!(renewed, first);
        assert_eq!(servers.count_requests("POST /token"), 1);
    }

    /// Regression: after a logout, the token was still sent until it expired.
    #[tokio::test]
    async fn a_token_is_not_sent_after_a_logout() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        let bearer = servers.bearer(person_auth());
        call(&servers, &bearer).await.unwrap();
        servers.store().remove().unwrap();
        bearer.state.lock().await.checked_at = None;
        assert_eq!(bearer.current_token().await, Ok(None));
        assert_eq!(call(&servers, &bearer).await, Err(needs_login_error()));
    }

    #[tokio::test]
    async fn a_forgotten_client_needs_a_new_login() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        servers.behavior().clients.clear();
        let bearer = servers.bearer(person_auth());
        assert_eq!(call(&servers, &bearer).await, Err(needs_login_error()));
        let record = servers.store().read().unwrap().unwrap();
        assert!(record.client.is_none() && record.granted.is_none());
        assert_eq!(call(&servers, &bearer).await, Err(needs_login_error()));
        assert_eq!(servers.count_requests("POST /token"), 1, "no second token is requested");
    }

    #[tokio::test]
    async fn a_refreshed_token_is_stored_after_its_connection_is_dropped() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        servers.behavior().holds_next_answer = true;
        let bearer = servers.bearer(person_auth());
        let mut call = Box::pin(bearer.current_token());
        tokio::select! {
            token = &mut call => panic!("{token:?} was not held back"),
            () = servers.gate.arrived.notified() => {}
        }
        drop(call);
        drop(bearer);
        servers.gate.opened.notify_one();
        servers.background.finish_all().await;
        assert_eq!(servers.store().read().unwrap().unwrap().token().unwrap().text, "access-1");
    }

    #[tokio::test]
    async fn an_expired_login_keeps_its_client_for_the_next_login() {
        let servers = TestServers::new().await;
        servers.store_expired_login(None);
        servers.behavior().access.clear();
        let bearer = servers.bearer(person_auth());
        assert_eq!(call(&servers, &bearer).await, Err(needs_login_error()));
        assert!(servers.store().read().unwrap().unwrap().client.is_some());
    }

    #[tokio::test]
    async fn a_failed_token_server_is_asked_once_for_all_callers() {
        let servers = TestServers::new().await;
        for auth in [person_auth(), program_auth()] {
            servers.store_expired_login(Some("refresh-0"));
            servers.behavior().fails_every_request = true;
            servers.behavior().requests.clear();
            let bearer = servers.bearer(auth);
            let down = bearer.current_token().await.unwrap_err();
            assert!(
                matches!(&down, TokenError::Unreachable(text) if text.ends_with("503 Service Unavailable"))
            );
            let all = futures::future::join_all((0..100).map(|_| bearer.current_token())).await;
            assert!(all.iter().all(|answer| answer.as_ref() == Err(&down)));
            assert_eq!(servers.count_requests("POST /token"), 1);
        }
        assert!(matches!(TokenError::Unreachable(String::new()).into(), HttpError::Later(_)));
    }

    /// Asserts that the token was renewed once, or at most once per pause on a machine so slow that
    /// the calls took longer than one pause. The first token counts, too.
    fn assert_renewed_once_in_a_pause(servers: &TestServers, started_at: Instant) {
        let pauses = started_at.elapsed().as_secs() / FAILURE_PAUSE.as_secs();
        let renewals = servers.count_requests("POST /token") as u64;
        assert!((2..=2 + pauses).contains(&renewals), "{renewals} renewals in {pauses} pauses");
    }

    #[tokio::test]
    async fn a_server_that_rejects_every_token_causes_no_endless_renewal() {
        let servers = TestServers::new().await;
        servers.behavior().rejects_every_token = true;
        servers.store_expired_login(Some("refresh-0"));
        let bearer = servers.bearer(person_auth());
        let started_at = Instant::now();
        for _ in 0..20 {
            assert_eq!(call(&servers, &bearer).await, Err(needs_login_error()));
        }
        assert_renewed_once_in_a_pause(&servers, started_at);
        let bearer = servers.bearer(program_auth());
        servers.behavior().requests.clear();
        let started_at = Instant::now();
        for _ in 0..20 {
            let error = call(&servers, &bearer).await.unwrap_err().into_text();
            assert!(error.starts_with("`s` rejects the token"), "{error}");
        }
        assert_renewed_once_in_a_pause(&servers, started_at);
        // A new login is used immediately.
        servers.behavior().rejects_every_token = false;
        let bearer = servers.bearer(person_auth());
        servers.behavior().access.clear();
        servers.behavior().refresh = None;
        assert_eq!(call(&servers, &bearer).await, Err(needs_login_error()));
        servers.store_expired_login(Some("refresh-8"));
        servers.behavior().refresh = Some("refresh-8".to_owned());
        call(&servers, &bearer).await.unwrap();
    }

    #[tokio::test]
    async fn the_authorization_server_may_be_named_only_in_a_rejection() {
        let servers = TestServers::new().await;
        servers.behavior().is_hidden = true;
        servers.behavior().issuer = Some(format!("{}/as", servers.base_url));
        servers.store_expired_login(Some("refresh-0"));
        servers.behavior().access.clear();
        let bearer = servers.bearer(person_auth());
        assert_eq!(call(&servers, &bearer).await.unwrap(), "access-1");
        let bearer = servers.bearer(program_auth());
        assert_eq!(call(&servers, &bearer).await.unwrap(), "access-2");
        // The second call needs no rejection, because the first call has found the authorization
        // server.
        servers.behavior().access.clear();
        servers.behavior().requests.clear();
        assert_eq!(call(&servers, &bearer).await.unwrap(), "access-3");
        assert_eq!(
            (servers.count_requests("POST /mcp"), servers.count_requests("POST /token")),
            (2, 1)
        );
    }

    #[tokio::test]
    async fn the_scopes_of_a_rejection_are_shown_shortened() {
        let servers = TestServers::new().await;
        let text = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", "x".repeat(9_000));
        let denied = servers.bearer(person_auth()).describe_denial(Some(&text)).await.into_text();
        assert!(denied.len() < 600, "{denied}");
        assert!(servers.store().read().unwrap().is_none());
    }
}
