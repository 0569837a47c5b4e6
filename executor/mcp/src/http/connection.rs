//! The connection to one server over HTTP: its session, its headers and its tokens.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use http_client::{AddressScope, Http, HttpError, OutgoingRequest, host, parse_header};
use reqwest::{
    Method, Response, StatusCode, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use rmcp::{
    model::{JsonRpcMessage, ServerResult},
    service::{RoleClient, RxJsonRpcMessage},
};
use secrets::Redaction;
use tokio::{
    sync::{Notify, mpsc},
    time::timeout,
};

use super::events::EventStream;
use crate::{
    McpHttp,
    config::Transport,
    message::{MESSAGE_OVERHEAD, take_progress},
    oauth::{Bearer, Caller},
    redaction::Secrets,
    session::SessionState,
};

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_HEADER: HeaderName = HeaderName::from_static("last-event-id");
const ACCEPT: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// Time limit for sending a message whose response carries no answer.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait until the stream on which a server sends its requests is open.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);
const END_SESSION_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_REFUSAL_BYTES: usize = 4 << 10;

pub(super) struct Connection {
    http: Http,
    pub(super) url: Url,
    pub(super) transport: Option<Transport>,
    endpoint: OnceLock<Url>,
    stream: Mutex<Option<EventStream>>,
    headers: HeaderMap,
    bearer: Option<Bearer>,
    pub(super) host: String,
    /// Maximum size of a message in bytes.
    pub(super) max_bytes: usize,
    /// Notified when the session is initialized, because the server may send requests from then on.
    pub(super) initialized: Notify,
    /// Notified after each attempt to open the server's stream.
    pub(super) stream_tried: Notify,
    pub(super) request_accepted: Notify,
    /// `true` if the server may send requests.
    can_server_ask: bool,
    state: SessionState,
    messages: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    negotiated: Mutex<NegotiatedSession>,
}

#[derive(Default)]
struct NegotiatedSession {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
    reason: Option<String>,
}

impl Connection {
    pub(super) fn new(
        spec: &McpHttp,
        caller: Caller<'_>,
        max_bytes: usize,
        state: &mut SessionState,
        messages: mpsc::Sender<RxJsonRpcMessage<RoleClient>>,
    ) -> Result<Self, String> {
        let mut redaction = Redaction::default();
        let mut headers = configured_headers(spec, &mut redaction)?;
        headers.insert(header::ACCEPT, ACCEPT);
        state.secrets = Arc::new(Secrets::new(redaction));
        let url = spec.url.0.clone();
        let bearer = spec
            .auth
            .as_ref()
            .map(|oauth| Bearer::new(caller, &url, oauth, Arc::clone(&state.secrets)));
        Ok(Self {
            bearer,
            http: Http::default(),
            host: host(&url),
            url,
            transport: spec.transport,
            endpoint: OnceLock::new(),
            stream: Mutex::default(),
            headers,
            max_bytes: max_bytes.saturating_mul(MESSAGE_OVERHEAD),
            initialized: Notify::new(),
            stream_tried: Notify::new(),
            request_accepted: Notify::new(),
            can_server_ask: spec.elicitation.is_some() || !spec.roots.is_empty(),
            state: state.clone(),
            messages,
            negotiated: Mutex::default(),
        })
    }

    pub(super) async fn post(&self, body: Vec<u8>) -> Result<Response, HttpError> {
        // A legacy server sends the answer on its stream. The response to this request only
        // confirms the message, so its time limit is short.
        self.post_within(self.is_legacy().then_some(NOTIFICATION_TIMEOUT), body).await
    }

    async fn post_within(
        &self,
        limit: Option<Duration>,
        body: Vec<u8>,
    ) -> Result<Response, HttpError> {
        let mut request = self.new_request(Method::POST);
        let json = HeaderValue::from_static("application/json");
        request.headers.insert(header::CONTENT_TYPE, json);
        request.body = Some(body);
        if let Some(endpoint) = self.endpoint.get() {
            request.url = endpoint.clone();
        }
        self.send_authorized(request, limit).await
    }

    pub(super) fn switch_to_legacy(&self, endpoint: Url, stream: EventStream) {
        if self.endpoint.set(endpoint).is_ok() {
            *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
            self.initialized.notify_one();
        }
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.endpoint.get().is_some()
    }

    /// Returns the stream of a legacy server. Only the first caller gets the stream.
    pub(super) fn take_stream(&self) -> Option<EventStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for an attempt to open the stream for the server's requests, if the server may send
    /// requests. A request of the server would be lost before the stream is open.
    pub(super) async fn wait_for_stream(&self) {
        if self.can_server_ask && !self.is_legacy() {
            let _ = timeout(STREAM_TIMEOUT, self.stream_tried.notified()).await;
        }
    }

    /// Opens the server's stream. If `last` is the id of an event, the stream resumes after that
    /// event.
    pub(super) async fn open_stream(&self, last: Option<&str>) -> Result<Response, HttpError> {
        let mut request = self.new_request(Method::GET);
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request.headers.insert(LAST_EVENT_HEADER, last);
        }
        self.send_authorized(request, None).await
    }

    /// Sends a request, with a token if there is one. A request that is refused because of its
    /// token had no effect, so it is sent again. `limit` does not include the time to get tokens.
    async fn send_authorized(
        &self,
        mut request: OutgoingRequest,
        limit: Option<Duration>,
    ) -> Result<Response, HttpError> {
        let Some(bearer) = &self.bearer else { return self.send_once(&request, limit).await };
        let token = bearer.current_token().await?;
        if let Some(token) = &token {
            set_token(&mut request, token)?;
        }
        let mut answer = self.send_once(&request, limit).await?;
        let mut sent_token = token;
        for _ in 0..2 {
            if answer.status() != StatusCode::UNAUTHORIZED {
                break;
            }
            let other = bearer.replace_token(sent_token.as_deref(), &answer).await?;
            set_token(&mut request, &other.text)?;
            answer = self.send_once(&request, limit).await?;
            if other.is_new {
                break;
            }
            sent_token = Some(other.text);
        }
        match answer.status() {
            StatusCode::UNAUTHORIZED => Err(bearer.refusal_error(&answer).await.into()),
            StatusCode::FORBIDDEN => match bearer.missing_scope_error(&answer).await {
                Some(denied) => Err(denied.into()),
                None => Ok(answer),
            },
            status => {
                if status.is_success() {
                    self.request_accepted.notify_waiters();
                }
                Ok(answer)
            }
        }
    }

    async fn send_once(
        &self,
        request: &OutgoingRequest,
        limit: Option<Duration>,
    ) -> Result<Response, HttpError> {
        let Some(limit) = limit else { return self.http.open_response(request).await };
        let (host, seconds) = (&self.host, limit.as_secs());
        timeout(limit, self.http.open_response(request)).await.unwrap_or_else(|_| {
            Err(HttpError::Lost(format!("`{host}` did not accept a message within {seconds} s")))
        })
    }

    pub(super) async fn send_notification(&self, body: Vec<u8>) -> Result<(), String> {
        match self.post_within(Some(NOTIFICATION_TIMEOUT), body).await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(format!("`{}` answered {}", self.host, response.status())),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) async fn end_session(&self) {
        if self.lock_negotiated().session.is_some() && !self.is_closing() {
            let _ = timeout(END_SESSION_TIMEOUT, self.delete_session()).await;
        }
    }

    /// Ends the session. Uses the last token, and requests no other token.
    async fn delete_session(&self) -> Result<(), HttpError> {
        let mut request = self.new_request(Method::DELETE);
        if let Some(bearer) = &self.bearer
            && let Some(token) = bearer.last_token().await
        {
            set_token(&mut request, &token)?;
        }
        self.http.open_response(&request).await.map(drop)
    }

    fn new_request(&self, method: Method) -> OutgoingRequest {
        let mut headers = self.headers.clone();
        let negotiated = self.lock_negotiated();
        for (name, value) in
            [(SESSION_HEADER, &negotiated.session), (VERSION_HEADER, &negotiated.version)]
        {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        let url = self.url.clone();
        OutgoingRequest { method, url, headers, body: None, reach: AddressScope::Anywhere }
    }

    pub(super) fn record_session(&self, response: &Response) {
        let mut negotiated = self.lock_negotiated();
        if negotiated.session.is_none() {
            negotiated.session = response.headers().get(SESSION_HEADER).cloned();
        }
    }

    pub(super) async fn deliver_message(&self, message: RxJsonRpcMessage<RoleClient>) {
        if let JsonRpcMessage::Response(answer) = &message
            && let ServerResult::InitializeResult(initialized) = &answer.result
        {
            let version = HeaderValue::from_str(initialized.protocol_version.as_str());
            self.lock_negotiated().version = version.ok();
        }
        if let Some(message) = take_progress(message, &self.state.tokens) {
            let _ = self.messages.send(message).await;
        }
    }

    pub(super) fn has_session(&self) -> bool {
        self.is_legacy() || self.lock_negotiated().session.is_some()
    }

    pub(super) fn close_with_reason(&self, reason: String) {
        let mut negotiated = self.lock_negotiated();
        negotiated.reason.get_or_insert(reason);
        drop(negotiated);
        self.state.closing.cancel();
    }

    pub(super) fn close(&self) {
        self.state.closing.cancel();
        self.state.closed.cancel();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.closing.is_cancelled()
    }

    pub(super) async fn wait_for_closing(&self) {
        self.state.closing.cancelled().await;
    }

    pub(super) fn redact(&self, text: String) -> String {
        self.state.secrets.redact(text)
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.lock_negotiated().reason.clone()
    }

    fn lock_negotiated(&self) -> MutexGuard<'_, NegotiatedSession> {
        self.negotiated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn configured_headers(
    spec: &McpHttp,
    redaction: &mut Redaction,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, text) in &spec.headers {
        let value = text.resolve(redaction).map_err(|err| err.to_string())?;
        let (name, value) = parse_header(name, &value)?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn set_token(request: &mut OutgoingRequest, token: &str) -> Result<(), HttpError> {
    let value = HeaderValue::from_str(&format!("Bearer {token}"));
    let mut value = value.map_err(|_| {
        HttpError::Denied(
            "the granted token contains characters that a header cannot have".to_owned(),
        )
    })?;
    // Marks the header as sensitive, so that logs do not show the token.
    value.set_sensitive(true);
    request.headers.insert(header::AUTHORIZATION, value);
    Ok(())
}

pub(super) async fn read_refusal(response: &mut Response) -> String {
    let mut body = Vec::new();
    while body.len() < MAX_REFUSAL_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk[..chunk.len().min(MAX_REFUSAL_BYTES - body.len())]);
    }
    String::from_utf8_lossy(&body).trim().to_owned()
}

pub(super) fn has_media_type(response: &Response, kind: &str) -> bool {
    let written = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let written = written.unwrap_or_default().split(';').next().unwrap_or_default();
    written.trim().eq_ignore_ascii_case(kind)
}

#[cfg(test)]
pub(super) mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::{
        McpServer,
        oauth::tests::test_server::{TestServers, set},
    };

    /// Returns a connection with a login, and the messages of the server.
    pub(in super::super) fn connection(
        servers: &TestServers,
    ) -> (Arc<Connection>, mpsc::Receiver<RxJsonRpcMessage<RoleClient>>) {
        let McpServer::Http(spec) = servers.server_config(json!("oauth")) else { unreachable!() };
        let (messages, inbox) = mpsc::channel(8);
        let caller =
            Caller { set: &set(), logins: Some(&servers.logins), background: &servers.background };
        let connection =
            Connection::new(&spec, caller, 1_000, &mut SessionState::default(), messages).unwrap();
        (Arc::new(connection), inbox)
    }

    /// A request that waits for a token has not been sent, so its timeout would report a wrong
    /// failure.
    #[tokio::test]
    async fn the_request_timeout_starts_after_the_token_arrived() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        servers.behavior().holds_next_answer = true;
        let (connection, _inbox) = connection(&servers);
        connection.endpoint.set(servers.url()).unwrap();
        let mut call = Box::pin(connection.post(b"{}".to_vec()));
        tokio::select! {
            answer = &mut call => panic!("{answer:?} was not held back"),
            () = servers.gate.arrived.notified() => {}
        }
        tokio::time::pause();
        tokio::time::advance(NOTIFICATION_TIMEOUT + Duration::from_secs(1)).await;
        tokio::time::resume();
        servers.gate.opened.notify_one();
        let error = call.await.unwrap_err();
        assert!(matches!(error, HttpError::Later(_)), "{error:?}");
        assert_eq!(servers.count_requests("POST /mcp"), 0);
    }

    #[tokio::test]
    async fn an_authorized_request_counts_as_accepted_only_if_it_succeeds() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        let (connection, _inbox) = connection(&servers);
        for (path, expected) in [("/nothing", false), ("/mcp", true)] {
            let mut request_accepted = Box::pin(connection.request_accepted.notified());
            request_accepted.as_mut().enable();
            let mut request = connection.new_request(Method::GET);
            request.url.set_path(path);
            connection.send_authorized(request, None).await.unwrap();
            assert_eq!(request_accepted.now_or_never().is_some(), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn ending_a_session_requests_no_new_token() {
        let servers = TestServers::new().await;
        servers.store_expired_login(Some("refresh-0"));
        let (connection, _inbox) = connection(&servers);
        let answer = connection.post(b"{}".to_vec()).await.unwrap();
        connection.record_session(&answer);
        servers.behavior().access.clear();
        servers.behavior().requests.clear();
        connection.end_session().await;
        let heard = servers.behavior().requests.clone();
        let farewell = ("DELETE /mcp".to_owned(), "Bearer access-1".to_owned(), String::new());
        assert_eq!(heard, [farewell]);
    }
}
