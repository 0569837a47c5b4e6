//! For tests: an MCP server that requires a token, and its authorization server.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::Url;
use serde_json::{Value, json};
use shared::id::ToolSetName;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};

use super::super::{
    BackgroundTasks, Bearer, Caller, Logins,
    token_store::{LoginRecord, TokenStore},
    unix_time,
};
use crate::{McpServer, redaction::Secrets};

pub(crate) struct TestServers {
    pub(crate) base_url: String,
    pub(crate) logins: Logins,
    pub(crate) background: BackgroundTasks,
    pub(crate) gate: Arc<Gate>,
    shared: Arc<Shared>,
    _folder: TempDir,
    _tasks: JoinSet<std::io::Result<()>>,
}

#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) arrived: Notify,
    pub(crate) opened: Notify,
}

struct Shared {
    base_url: String,
    gate: Arc<Gate>,
    behavior: Mutex<ServerBehavior>,
}

/// The behaviour of the servers, which a test can change at any time.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fault of the servers")]
pub(crate) struct ServerBehavior {
    pub(crate) issuer: Option<String>,
    pub(crate) more: Value,
    /// The metadata are only at the address that a rejection names.
    pub(crate) is_hidden: bool,
    pub(crate) has_no_metadata: bool,
    pub(crate) rejects_every_token: bool,
    pub(crate) rejects_stream: bool,
    pub(crate) fails_every_request: bool,
    pub(crate) holds_next_answer: bool,
    /// The answer to the next message, as a stream that breaks off.
    pub(crate) stream: Option<String>,
    pub(crate) access: BTreeSet<String>,
    pub(crate) refresh: Option<String>,
    pub(crate) clients: BTreeSet<String>,
    /// All requests: method and path, the `Authorization` header, and the body.
    pub(crate) requests: Vec<(String, String, String)>,
    /// The expiry of the secrets of newly registered clients.
    pub(crate) secret_until: u64,
    granted: usize,
}

impl TestServers {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}", listener.local_addr().unwrap());
        let gate = Arc::new(Gate::default());
        let behavior = ServerBehavior {
            access: ["access-0".to_owned()].into(),
            refresh: Some("refresh-0".to_owned()),
            clients: ["client-0".to_owned()].into(),
            ..ServerBehavior::default()
        };
        let shared = Arc::new(Shared {
            base_url: base_url.clone(),
            gate: Arc::clone(&gate),
            behavior: Mutex::new(behavior),
        });
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let mut tasks = JoinSet::new();
        tasks.spawn(async { axum::serve(listener, routes).await });
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().to_owned());
        let background = BackgroundTasks::default();
        Self { base_url, logins, background, gate, shared, _folder: folder, _tasks: tasks }
    }

    pub(crate) fn behavior(&self) -> MutexGuard<'_, ServerBehavior> {
        self.shared.behavior()
    }

    pub(crate) fn count_requests(&self, request_line: &str) -> usize {
        self.behavior().requests.iter().filter(|(request, ..)| request == request_line).count()
    }

    pub(crate) fn url(&self) -> Url {
        format!("{}/mcp", self.base_url).parse().unwrap()
    }

    pub(crate) fn server_config(&self, auth: Value) -> McpServer {
        let mut server = json!({ "url": self.url() });
        server["auth"] = auth;
        serde_json::from_value(server).unwrap()
    }

    pub(crate) fn bearer(&self, auth: Value) -> Bearer {
        self.bearer_for(&self.url(), auth)
    }

    pub(crate) fn bearer_for(&self, server: &Url, auth: Value) -> Bearer {
        let oauth = serde_json::from_value(auth).unwrap();
        let secrets = Arc::new(Secrets::default());
        let (set, logins, background) = (&set(), Some(&self.logins), &self.background);
        Bearer::new(Caller { set, logins, background }, server, &oauth, secrets)
    }

    pub(in super::super) fn store(&self) -> TokenStore {
        self.logins.store_for(&set(), &self.url())
    }

    pub(crate) fn store_expired_login(&self, refresh: Option<&str>) {
        let issuer = self.behavior().issuer.clone().unwrap_or_else(|| self.base_url.clone());
        let record: LoginRecord = serde_json::from_value(json!({
            "client": { "id": "client-0", "redirect": "http://127.0.0.1:1/callback", "issuer": issuer },
            "granted": {
                "client_id": "client-0", "granted_scopes": [], "token_received_at": 1, "issuer": issuer,
                "token_response": {
                    "access_token": "access-0", "token_type": "bearer", "expires_in": 60,
                    "refresh_token": refresh,
                },
            },
        }))
        .unwrap();
        self.store().write(&record).unwrap();
    }

    pub(crate) async fn post(&self, token: Option<&str>) -> reqwest::Response {
        let request = reqwest::Client::builder().no_proxy().build().unwrap().post(self.url());
        let request = token.iter().fold(request, reqwest::RequestBuilder::bearer_auth);
        request.body("{}").send().await.unwrap()
    }
}

pub(crate) fn set() -> ToolSetName {
    "s".parse().unwrap()
}

impl Shared {
    fn behavior(&self) -> MutexGuard<'_, ServerBehavior> {
        self.behavior.lock().unwrap()
    }

    fn metadata(&self) -> Value {
        let base_url = &self.base_url;
        let mut metadata = json!({
            "issuer": base_url,
            "authorization_endpoint": format!("{base_url}/authorize"),
            "token_endpoint": format!("{base_url}/token"),
            "registration_endpoint": format!("{base_url}/register"),
            "revocation_endpoint": format!("{base_url}/revoke"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        });
        for (name, value) in self.behavior().more.as_object().into_iter().flatten() {
            metadata[name] = value.clone();
        }
        metadata
    }

    fn resource(&self) -> Value {
        let issuer = self.behavior().issuer.clone().unwrap_or_else(|| self.base_url.clone());
        json!({ "resource": format!("{}/mcp", self.base_url), "authorization_servers": [issuer] })
    }

    fn refusal(&self) -> Response {
        let metadata = format!("Bearer resource_metadata=\"{}/metadata\"", self.base_url);
        let mut response = StatusCode::UNAUTHORIZED.into_response();
        let all = [
            "Basic realm=\"x\"",
            if self.behavior().has_no_metadata { "Bearer" } else { &metadata },
        ];
        for one in all {
            response.headers_mut().append(header::WWW_AUTHENTICATE, one.parse().unwrap());
        }
        response
    }

    /// Grants a token and a new refresh token. The old refresh token becomes invalid.
    fn grant(&self, form: &str) -> Response {
        let field = |name: &str| {
            let field = form.split('&').find_map(|field| field.strip_prefix(&format!("{name}=")));
            field.unwrap_or_default().to_owned()
        };
        let mut behavior = self.behavior();
        let refused = |reason: &str| {
            let answer = json!({ "error": reason, "error_description": form });
            (StatusCode::BAD_REQUEST, Json(answer)).into_response()
        };
        if behavior.fails_every_request {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let kind = field("grant_type");
        let is_known = behavior.clients.contains(&field("client_id"));
        if !is_known && matches!(kind.as_str(), "refresh_token" | "authorization_code") {
            return refused("invalid_client");
        }
        if kind == "refresh_token" && behavior.refresh.as_ref() != Some(&field("refresh_token")) {
            return refused("invalid_grant");
        }
        behavior.granted += 1;
        let (access, refresh) =
            (format!("access-{}", behavior.granted), format!("refresh-{}", behavior.granted));
        behavior.access.insert(access.clone());
        behavior.refresh = Some(refresh.clone());
        let mut token =
            json!({ "access_token": access, "token_type": "bearer", "expires_in": 3600 });
        if kind == "refresh_token" {
            token["refresh_token"] = refresh.into();
        }
        Json(token).into_response()
    }

    fn sign_identity(&self) -> Response {
        let part = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let header = part(json!({ "alg": "ES256", "typ": "oauth-id-jag+jwt" }));
        let claims = part(json!({
            "iss": "https://company", "aud": self.base_url, "client_id": "robot",
            "sub": "somebody", "jti": "1", "iat": unix_time(), "exp": unix_time() + 60,
        }));
        let answer = json!({
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag", "token_type": "N_A",
            "access_token": format!("{header}.{claims}.c2lnbmVk"), "expires_in": 60,
        });
        Json(answer).into_response()
    }

    fn register(&self, body: &str) -> Response {
        let mut client: Value = serde_json::from_str(body).unwrap();
        let mut behavior = self.behavior();
        let id = format!("client-{}", behavior.requests.len());
        behavior.clients.insert(id.clone());
        client["client_id"] = id.into();
        if behavior.secret_until > 0 {
            client["client_secret"] = "sesame-open".into();
            client["client_secret_expires_at"] = behavior.secret_until.into();
        }
        (StatusCode::CREATED, Json(client)).into_response()
    }

    fn serve_mcp(&self, method: &Method, who: &str, body: &str) -> Response {
        let mut behavior = self.behavior();
        let is_known =
            who.strip_prefix("Bearer ").is_some_and(|token| behavior.access.contains(token));
        let is_refused =
            behavior.rejects_every_token || (behavior.rejects_stream && method == Method::GET);
        if method == Method::GET && behavior.is_hidden {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        if !is_known || is_refused {
            drop(behavior);
            return self.refusal();
        }
        if method == Method::GET {
            let stream = Body::from(": heard\n\n");
            return ([(header::CONTENT_TYPE, "text/event-stream")], stream).into_response();
        }
        if let Some(stream) = behavior.stream.take() {
            return ([(header::CONTENT_TYPE, "text/event-stream")], stream).into_response();
        }
        let request: Value = serde_json::from_str(body).unwrap_or_default();
        let answer = json!({ "jsonrpc": "2.0", "id": request["id"], "result": {} });
        ([("mcp-session-id", "session")], Json(answer)).into_response()
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    (method, uri, headers): (Method, Uri, HeaderMap),
    request: Request,
) -> Response {
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let who = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let who = who.unwrap_or_default().to_owned();
    let (is_hidden, has_no_metadata) = {
        let mut behavior = shared.behavior();
        behavior.requests.push((format!("{method} {uri}"), who.clone(), body.clone()));
        (behavior.is_hidden, behavior.has_no_metadata)
    };
    match uri.path() {
        "/mcp" => shared.serve_mcp(&method, &who, &body),
        "/metadata" if !has_no_metadata => Json(shared.resource()).into_response(),
        "/.well-known/oauth-protected-resource/mcp" if !is_hidden && !has_no_metadata => {
            Json(shared.resource()).into_response()
        }
        "/as/.well-known/oauth-authorization-server"
        | "/.well-known/oauth-authorization-server/as"
            if is_hidden =>
        {
            let mut metadata = shared.metadata();
            metadata["issuer"] = format!("{}/as", shared.base_url).into();
            Json(metadata).into_response()
        }
        "/.well-known/oauth-authorization-server" if !is_hidden && !has_no_metadata => {
            Json(shared.metadata()).into_response()
        }
        "/token" => {
            let answer = shared.grant(&body);
            if std::mem::take(&mut shared.behavior().holds_next_answer) {
                shared.gate.arrived.notify_one();
                shared.gate.opened.notified().await;
            }
            answer
        }
        "/company" => shared.sign_identity(),
        "/register" => shared.register(&body),
        "/revoke" => StatusCode::OK.into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
