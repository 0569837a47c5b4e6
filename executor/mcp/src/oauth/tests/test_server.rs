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

/// Both servers, and the stored logins of a caller.
pub(crate) struct World {
    pub(crate) here: String,
    pub(crate) logins: Logins,
    pub(crate) background: BackgroundTasks,
    pub(crate) gate: Arc<Gate>,
    shared: Arc<Shared>,
    _folder: TempDir,
    _tasks: JoinSet<std::io::Result<()>>,
}

/// Holds a granted token back until the test opens it.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) arrived: Notify,
    pub(crate) opened: Notify,
}

struct Shared {
    here: String,
    gate: Arc<Gate>,
    now: Mutex<Now>,
}

/// The behaviour of the servers, which a test can change at any time.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fault of the servers")]
pub(crate) struct Now {
    /// The authorization server that the metadata name. `None` means the test server itself.
    pub(crate) issuer: Option<String>,
    /// Further fields of the metadata.
    pub(crate) more: Value,
    /// The metadata are only at the address that a rejection names.
    pub(crate) is_hidden: bool,
    /// There are no metadata at all.
    pub(crate) is_bare: bool,
    /// The server rejects every token.
    pub(crate) takes_none: bool,
    /// The server rejects tokens for its event stream.
    pub(crate) is_deaf: bool,
    /// The authorization server fails every request.
    pub(crate) is_down: bool,
    /// The next answer of the authorization server is held back.
    pub(crate) is_held: bool,
    /// The answer to the next message, as a stream that breaks off.
    pub(crate) stream: Option<String>,
    pub(crate) access: BTreeSet<String>,
    pub(crate) refresh: Option<String>,
    pub(crate) clients: BTreeSet<String>,
    /// All requests: method and path, the `Authorization` header, and the body.
    pub(crate) heard: Vec<(String, String, String)>,
    /// The expiry of the secrets of newly registered clients.
    pub(crate) secret_until: u64,
    granted: usize,
}

impl World {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = format!("http://{}", listener.local_addr().unwrap());
        let gate = Arc::new(Gate::default());
        let now = Now {
            access: ["access-0".to_owned()].into(),
            refresh: Some("refresh-0".to_owned()),
            clients: ["client-0".to_owned()].into(),
            ..Now::default()
        };
        let shared =
            Arc::new(Shared { here: here.clone(), gate: Arc::clone(&gate), now: Mutex::new(now) });
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let mut tasks = JoinSet::new();
        tasks.spawn(async { axum::serve(listener, routes).await });
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::new(folder.path().to_owned());
        let background = BackgroundTasks::default();
        Self { here, logins, background, gate, shared, _folder: folder, _tasks: tasks }
    }

    pub(crate) fn now(&self) -> MutexGuard<'_, Now> {
        self.shared.now()
    }

    /// Returns the number of requests with this method and path.
    pub(crate) fn heard(&self, what: &str) -> usize {
        self.now().heard.iter().filter(|(request, ..)| request == what).count()
    }

    pub(crate) fn url(&self) -> Url {
        format!("{}/mcp", self.here).parse().unwrap()
    }

    /// Returns the configuration of the server, with `auth`.
    pub(crate) fn configured(&self, auth: Value) -> McpServer {
        let mut server = json!({ "url": self.url() });
        server["auth"] = auth;
        serde_json::from_value(server).unwrap()
    }

    /// Returns the token source of the server, configured with `auth`.
    pub(crate) fn bearer(&self, auth: Value) -> Bearer {
        self.bearer_of(&self.url(), auth)
    }

    pub(crate) fn bearer_of(&self, server: &Url, auth: Value) -> Bearer {
        let oauth = serde_json::from_value(auth).unwrap();
        let secrets = Arc::new(Secrets::default());
        let (set, logins, background) = (&set(), Some(&self.logins), &self.background);
        Bearer::new(Caller { set, logins, background }, server, &oauth, secrets)
    }

    pub(in super::super) fn store(&self) -> TokenStore {
        self.logins.store_of(&set(), &self.url())
    }

    /// Stores an expired login, with a refresh token if there is one.
    pub(crate) fn keep(&self, refresh: Option<&str>) {
        let issuer = self.now().issuer.clone().unwrap_or_else(|| self.here.clone());
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

    /// Sends a message with a token, as a connection does.
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
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap()
    }

    fn metadata(&self) -> Value {
        let here = &self.here;
        let mut metadata = json!({
            "issuer": here,
            "authorization_endpoint": format!("{here}/authorize"),
            "token_endpoint": format!("{here}/token"),
            "registration_endpoint": format!("{here}/register"),
            "revocation_endpoint": format!("{here}/revoke"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        });
        for (name, value) in self.now().more.as_object().into_iter().flatten() {
            metadata[name] = value.clone();
        }
        metadata
    }

    fn resource(&self) -> Value {
        let issuer = self.now().issuer.clone().unwrap_or_else(|| self.here.clone());
        json!({ "resource": format!("{}/mcp", self.here), "authorization_servers": [issuer] })
    }

    fn refusal(&self) -> Response {
        let metadata = format!("Bearer resource_metadata=\"{}/metadata\"", self.here);
        let mut response = StatusCode::UNAUTHORIZED.into_response();
        let all = ["Basic realm=\"x\"", if self.now().is_bare { "Bearer" } else { &metadata }];
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
        let mut now = self.now();
        let refused = |why: &str| {
            let told = json!({ "error": why, "error_description": form });
            (StatusCode::BAD_REQUEST, Json(told)).into_response()
        };
        if now.is_down {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let kind = field("grant_type");
        let is_known = now.clients.contains(&field("client_id"));
        if !is_known && matches!(kind.as_str(), "refresh_token" | "authorization_code") {
            return refused("invalid_client");
        }
        if kind == "refresh_token" && now.refresh.as_ref() != Some(&field("refresh_token")) {
            return refused("invalid_grant");
        }
        now.granted += 1;
        let (access, refresh) =
            (format!("access-{}", now.granted), format!("refresh-{}", now.granted));
        now.access.insert(access.clone());
        now.refresh = Some(refresh.clone());
        let mut token =
            json!({ "access_token": access, "token_type": "bearer", "expires_in": 3600 });
        if kind == "refresh_token" {
            token["refresh_token"] = refresh.into();
        }
        Json(token).into_response()
    }

    /// Signs the caller's identity, as a company's identity provider does.
    fn vouch(&self) -> Response {
        let part = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let header = part(json!({ "alg": "ES256", "typ": "oauth-id-jag+jwt" }));
        let claims = part(json!({
            "iss": "https://company", "aud": self.here, "client_id": "robot",
            "sub": "somebody", "jti": "1", "iat": unix_time(), "exp": unix_time() + 60,
        }));
        let told = json!({
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag", "token_type": "N_A",
            "access_token": format!("{header}.{claims}.c2lnbmVk"), "expires_in": 60,
        });
        Json(told).into_response()
    }

    fn register(&self, body: &str) -> Response {
        let mut client: Value = serde_json::from_str(body).unwrap();
        let mut now = self.now();
        let id = format!("client-{}", now.heard.len());
        now.clients.insert(id.clone());
        client["client_id"] = id.into();
        if now.secret_until > 0 {
            client["client_secret"] = "sesame-open".into();
            client["client_secret_expires_at"] = now.secret_until.into();
        }
        (StatusCode::CREATED, Json(client)).into_response()
    }

    fn served(&self, method: &Method, who: &str, body: &str) -> Response {
        let mut now = self.now();
        let is_known = who.strip_prefix("Bearer ").is_some_and(|token| now.access.contains(token));
        let is_refused = now.takes_none || (now.is_deaf && method == Method::GET);
        if method == Method::GET && now.is_hidden {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        if !is_known || is_refused {
            drop(now);
            return self.refusal();
        }
        if method == Method::GET {
            let stream = Body::from(": heard\n\n");
            return ([(header::CONTENT_TYPE, "text/event-stream")], stream).into_response();
        }
        if let Some(stream) = now.stream.take() {
            return ([(header::CONTENT_TYPE, "text/event-stream")], stream).into_response();
        }
        let asked: Value = serde_json::from_str(body).unwrap_or_default();
        let told = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": {} });
        ([("mcp-session-id", "session")], Json(told)).into_response()
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
    let (is_hidden, is_bare) = {
        let mut now = shared.now();
        now.heard.push((format!("{method} {uri}"), who.clone(), body.clone()));
        (now.is_hidden, now.is_bare)
    };
    match uri.path() {
        "/mcp" => shared.served(&method, &who, &body),
        "/metadata" if !is_bare => Json(shared.resource()).into_response(),
        "/.well-known/oauth-protected-resource/mcp" if !is_hidden && !is_bare => {
            Json(shared.resource()).into_response()
        }
        "/as/.well-known/oauth-authorization-server"
        | "/.well-known/oauth-authorization-server/as"
            if is_hidden =>
        {
            let mut metadata = shared.metadata();
            metadata["issuer"] = format!("{}/as", shared.here).into();
            Json(metadata).into_response()
        }
        "/.well-known/oauth-authorization-server" if !is_hidden && !is_bare => {
            Json(shared.metadata()).into_response()
        }
        "/token" => {
            let answer = shared.grant(&body);
            if std::mem::take(&mut shared.now().is_held) {
                shared.gate.arrived.notify_one();
                shared.gate.opened.notified().await;
            }
            answer
        }
        "/company" => shared.vouch(),
        "/register" => shared.register(&body),
        "/revoke" => StatusCode::OK.into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
