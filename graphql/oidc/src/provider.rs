//! The metadata and keys of a provider (OpenID Connect Discovery 1.0), and requests to it.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use http_client::{AddressScope, Http, OutgoingRequest};
use reqwest::{
    Method, Url,
    header::{self, HeaderMap, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::key_set::{Algorithm, KeySet};

const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
const MAX_ANSWER_BYTES: usize = 512 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time between two fetches. A caller can invent key ids, and must not cause more requests.
const FETCH_INTERVAL: Duration = Duration::from_mins(1);
/// Minimum time between two fetches while no fetch has succeeded.
const FIRST_FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// Keys of this age are fetched again, so that a withdrawn key becomes invalid.
const MAX_KEY_AGE: Duration = Duration::from_hours(1);

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    issuer: String,
    jwks_uri: Url,
    pub(crate) authorization_endpoint: Option<Url>,
    pub(crate) token_endpoint: Option<Url>,
    pub(crate) userinfo_endpoint: Option<Url>,
    #[serde(default)]
    pub(crate) token_endpoint_auth_methods_supported: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct ProviderState {
    pub(crate) metadata: Metadata,
    pub(crate) keys: KeySet,
    fetched_at: Instant,
}

#[derive(Debug)]
pub(crate) struct Provider {
    http: Http,
    issuer: String,
    state: RwLock<Option<Arc<ProviderState>>>,
    /// Locked while a caller waits for a fetch, so that only one fetch runs at a time.
    fetches: Mutex<Fetches>,
    #[cfg(test)]
    fetch_count: std::sync::atomic::AtomicUsize,
}

#[derive(Debug, Default)]
struct Fetches {
    started_at: Option<Instant>,
    failure: Option<String>,
    /// The running fetch. It is a task, because a caller that disconnects must not stop the fetch
    /// for which others wait.
    running: JoinSet<Result<ProviderState, String>>,
}

impl Provider {
    pub(crate) fn new(issuer: String) -> Self {
        Self {
            http: Http::default(),
            issuer,
            state: RwLock::default(),
            fetches: Mutex::default(),
            #[cfg(test)]
            fetch_count: std::sync::atomic::AtomicUsize::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn with_keys(issuer: &str, keys: KeySet) -> Self {
        let url: Url = format!("{issuer}/keys").parse().unwrap();
        let metadata = Metadata {
            issuer: issuer.to_owned(),
            jwks_uri: url.clone(),
            authorization_endpoint: Some(url),
            token_endpoint: None,
            userinfo_endpoint: None,
            token_endpoint_auth_methods_supported: Vec::new(),
        };
        let provider = Self::new(issuer.to_owned());
        let state = ProviderState { metadata, keys, fetched_at: Instant::now() };
        *provider.state.write().unwrap() = Some(Arc::new(state));
        provider
    }

    #[cfg(test)]
    pub(crate) fn fetches(&self) -> usize {
        self.fetch_count.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the metadata and keys. Fetches them first if none are known.
    pub(crate) async fn state(self: &Arc<Self>) -> Result<Arc<ProviderState>, String> {
        match self.known_state() {
            Some(state) => Ok(state),
            None => self.fetch_after(None).await,
        }
    }

    /// Like [`state`](Self::state), but also fetches the keys if they are old, or if none has this
    /// id. The keys may still lack this id afterwards.
    pub(crate) async fn state_with_key(
        self: &Arc<Self>,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<ProviderState>, String> {
        match self.known_state() {
            // While a fetch runs, known keys stay valid. So a provider that does not answer delays
            // only the caller that waits for the fetch.
            Some(state)
                if state.keys.has_key(id, algorithm)
                    && (state.fetched_at.elapsed() < MAX_KEY_AGE
                        || self.fetches.try_lock().is_err()) =>
            {
                Ok(state)
            }
            state => self.fetch_after(state.as_deref()).await,
        }
    }

    fn known_state(&self) -> Option<Arc<ProviderState>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches metadata and keys, unless another task has fetched them after `seen`, or the last
    /// attempt is too recent. If the fetch fails, the old keys stay valid, so that users can still
    /// sign in.
    async fn fetch_after(
        self: &Arc<Self>,
        seen: Option<&ProviderState>,
    ) -> Result<Arc<ProviderState>, String> {
        let mut fetches = self.fetches.lock().await;
        let known = self.known_state();
        let is_newer =
            known.as_ref().map(|state| state.fetched_at) != seen.map(|state| state.fetched_at);
        let must_wait = known.is_some() || !fetches.running.is_empty();
        let interval = if must_wait { FETCH_INTERVAL } else { FIRST_FETCH_INTERVAL };
        let is_recent = fetches.started_at.is_some_and(|at| at.elapsed() < interval);
        if !is_newer && !is_recent {
            let provider = Arc::clone(self);
            let mut running = JoinSet::new();
            running.spawn(async move { provider.fetch().await });
            *fetches = Fetches { started_at: Some(Instant::now()), failure: None, running };
        }
        // Also waits for a fetch whose first caller has disconnected.
        let outcome = if is_newer { None } else { fetches.running.join_next().await };
        match outcome.map(|joined| joined.unwrap_or_else(|err| Err(err.to_string()))) {
            Some(Ok(state)) => {
                let state = Arc::new(state);
                let mut current = self.state.write().unwrap_or_else(PoisonError::into_inner);
                *current = Some(Arc::clone(&state));
                return Ok(state);
            }
            Some(Err(reason)) => {
                let issuer = &self.issuer;
                tracing::warn!(issuer, reason, "the issuer's keys cannot be fetched");
                fetches.failure = Some(reason);
            }
            None => {}
        }
        let failure = fetches.failure.clone();
        known.ok_or_else(|| failure.unwrap_or_else(|| "its keys are not fetched yet".to_owned()))
    }

    async fn fetch(&self) -> Result<ProviderState, String> {
        #[cfg(test)]
        if self.fetch_count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < usize::MAX {
            return Err("tests have no provider".to_owned());
        }
        let url = format!("{}{DISCOVERY_PATH}", self.issuer.trim_end_matches('/'));
        let url: Url = url.parse().map_err(|_| format!("`{url}` is not a URL"))?;
        let metadata: Metadata = self.get(&url, AddressScope::Anywhere, None).await?;
        if metadata.issuer != self.issuer {
            return Err(format!(
                "`{url}` describes the issuer `{}`: set `server.oidc.issuer` to it",
                metadata.issuer
            ));
        }
        let document: Value = self.get(&metadata.jwks_uri, AddressScope::Near, None).await?;
        let keys = KeySet::read(&document)
            .ok_or_else(|| format!("`{}` has no list `keys`", metadata.jwks_uri))?;
        tracing::info!(issuer = self.issuer, keys = keys.len(), "fetched the issuer's keys");
        Ok(ProviderState { metadata, keys, fetched_at: Instant::now() })
    }

    pub(crate) async fn fetch_user(&self, url: &Url, access_token: &str) -> Result<Value, String> {
        self.get(url, AddressScope::Near, Some(&format!("Bearer {access_token}"))).await
    }

    pub(crate) async fn post_form(
        &self,
        url: &Url,
        form: String,
        authorization: Option<&str>,
    ) -> Result<(u16, Value), String> {
        let mut headers = make_headers(authorization)?;
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, kind);
        let body = Some(form.into_bytes());
        let request = OutgoingRequest {
            method: Method::POST,
            url: url.clone(),
            headers,
            body,
            reach: AddressScope::Near,
        };
        self.send(request).await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        url: &Url,
        reach: AddressScope,
        authorization: Option<&str>,
    ) -> Result<T, String> {
        let headers = make_headers(authorization)?;
        let request =
            OutgoingRequest { method: Method::GET, url: url.clone(), headers, body: None, reach };
        let (status, answer) = self.send(request).await?;
        if status != 200 {
            return Err(format!("`{url}` answered with the status {status}"));
        }
        serde_json::from_value(answer).map_err(|err| format!("`{url}` has a wrong answer: {err}"))
    }

    /// Sends a request without following redirects, because a redirect could leave the provider.
    async fn send(&self, request: OutgoingRequest) -> Result<(u16, Value), String> {
        if request.url.scheme() != "https" && !self.issuer.starts_with("http://") {
            return Err(format!("`{}` is not an `https` address", request.url));
        }
        let sending = self.http.send_without_redirects(&request, MAX_ANSWER_BYTES);
        let reply = timeout(REQUEST_TIMEOUT, sending).await;
        let reply = reply
            .map_err(|_| {
                format!("`{}` did not answer within {} s", request.url, REQUEST_TIMEOUT.as_secs())
            })?
            .map_err(|err| err.to_string())?;
        if reply.is_cut {
            return Err(format!("the answer of `{}` is too large", request.url));
        }
        let answer = serde_json::from_slice(&reply.body).unwrap_or_default();
        Ok((reply.status.as_u16(), answer))
    }
}

fn make_headers(authorization: Option<&str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(text) = authorization {
        let (name, value) = http_client::parse_header("authorization", text)?;
        headers.insert(name, value);
    }
    Ok(headers)
}
