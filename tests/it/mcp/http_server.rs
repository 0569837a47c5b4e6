//! A server over streamable HTTP. A parameter of each call chooses how the server misbehaves.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse, Response},
    routing::any,
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;
use tokio::{
    net::TcpListener,
    sync::broadcast,
    task::JoinSet,
    time::{sleep, timeout},
};

pub(super) struct HttpServer {
    pub(super) address: SocketAddr,
    pub(super) state: Arc<ServerState>,
    task: JoinSet<()>,
}

pub(super) struct ServerState {
    sessions: Mutex<BTreeSet<String>>,
    pub(super) initialization_count: AtomicUsize,
    pub(super) call_count: AtomicUsize,
    pub(super) notifications: Mutex<Vec<String>>,
    added_tool_count: AtomicUsize,
    unrequested_messages: broadcast::Sender<String>,
    /// Number of times that a client opened the event stream.
    listener_count: AtomicUsize,
    /// Status of all answers. `None` if each call chooses its answer.
    forced_status: Mutex<Option<u16>>,
}

impl HttpServer {
    pub(super) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(super) async fn start_at(address: SocketAddr) -> Self {
        let state = Arc::new(ServerState {
            sessions: Mutex::default(),
            initialization_count: AtomicUsize::default(),
            call_count: AtomicUsize::default(),
            notifications: Mutex::default(),
            added_tool_count: AtomicUsize::default(),
            unrequested_messages: broadcast::channel(10).0,
            listener_count: AtomicUsize::default(),
            forced_status: Mutex::default(),
        });
        let binding = async {
            loop {
                // Tries again, because another process can use the port for a short time.
                if let Ok(listener) = TcpListener::bind(address).await {
                    return listener;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        let listener = timeout(MAX_WAIT, binding).await.expect("its port is free again");
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/mcp", any(receive)).with_state(Arc::clone(&state));
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, state, task }
    }

    pub(super) fn source(&self) -> Value {
        json!({ "mcp": { "url": format!("http://{}/mcp", self.address) } })
    }

    pub(super) fn set_status(&self, status: u16) {
        *self.state.forced_status.lock().unwrap() = Some(status);
    }

    pub(super) fn calls(&self) -> usize {
        self.state.call_count.load(Ordering::SeqCst)
    }

    pub(super) fn initializations(&self) -> usize {
        self.state.initialization_count.load(Ordering::SeqCst)
    }

    pub(super) fn has_received(&self, method: &str) -> bool {
        self.state.notifications.lock().unwrap().iter().any(|notification| notification == method)
    }

    pub(super) fn listeners(&self) -> usize {
        self.state.listener_count.load(Ordering::SeqCst)
    }

    pub(super) fn has_listener(&self) -> bool {
        self.state.unrequested_messages.receiver_count() > 0
    }

    /// Stops listening. Running answers continue.
    pub(super) async fn stop(mut self) -> SocketAddr {
        self.task.shutdown().await;
        self.address
    }
}

type Chunks = Vec<Result<Bytes, io::Error>>;

async fn receive(
    State(state): State<Arc<ServerState>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut response = answer_message(&state, &method, &headers, &body);
    // Closes the connection after each request, so that no connection outlives the listener.
    response.headers_mut().insert("connection", "close".parse().unwrap());
    response
}

fn answer_message(
    state: &Arc<ServerState>,
    method: &Method,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    if let Some(status) = *state.forced_status.lock().unwrap() {
        let status = StatusCode::from_u16(status).unwrap();
        let token = headers.get("authorization").map_or("", |value| value.to_str().unwrap());
        return (status, [("location", "/elsewhere")], format!("no, {token}")).into_response();
    }
    let session = headers.get("mcp-session-id").map(|value| value.to_str().unwrap().to_owned());
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    if message["method"] == "initialize" {
        return answer_initialize(state, &message);
    }
    let is_known = session.is_some_and(|id| state.sessions.lock().unwrap().contains(&id));
    if !is_known {
        return StatusCode::NOT_FOUND.into_response();
    }
    assert_eq!(headers["mcp-protocol-version"], "2025-06-18");
    if *method == Method::DELETE {
        state.notifications.lock().unwrap().push("DELETE".to_owned());
        return StatusCode::NO_CONTENT.into_response();
    }
    if *method == Method::GET {
        return match headers.get("last-event-id") {
            Some(id) => resume_stream(id.to_str().unwrap()),
            None => open_event_stream(state),
        };
    }
    if message.get("id").is_none() {
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        state.notifications.lock().unwrap().push(method);
        return StatusCode::ACCEPTED.into_response();
    }
    match message["method"].as_str() {
        Some("tools/list") => answer_tool_list(state, &message),
        Some("tools/call") => answer_call(state, &message),
        _ => json_response(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": {} })),
    }
}

fn answer_initialize(state: &ServerState, message: &Value) -> Response {
    let number = state.initialization_count.fetch_add(1, Ordering::SeqCst);
    let session = format!("session-{number}");
    state.sessions.lock().unwrap().insert(session.clone());
    let result = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": { "tools": { "listChanged": true } },
        "serverInfo": { "name": "trickster", "version": "1" },
    });
    let mut response = json_response(&make_reply(message, &result));
    response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
    response
}

/// Answers with two pages of tools. After a call of `grow` there is one tool more.
fn answer_tool_list(state: &ServerState, message: &Value) -> Response {
    let tool = |name: &str, reads: bool| {
        let annotations = json!({ "readOnlyHint": reads });
        json!({ "name": name, "inputSchema": { "type": "object" }, "annotations": annotations })
    };
    let page = if message["params"]["cursor"].is_null() {
        json!({ "tools": [tool("look", true)], "nextCursor": "2" })
    } else if state.added_tool_count.load(Ordering::SeqCst) > 0 {
        json!({ "tools": [tool("act", false), tool("grown", true)] })
    } else {
        json!({ "tools": [tool("act", false)] })
    };
    json_response(&make_reply(message, &page))
}

fn answer_call(state: &Arc<ServerState>, message: &Value) -> Response {
    let count = state.call_count.fetch_add(1, Ordering::SeqCst) + 1;
    let done = text_result(message, &format!("done {count}"));
    let token = &message["params"]["_meta"]["progressToken"];
    let progress = |n: u32| {
        let params = json!({ "progressToken": token, "progress": n, "total": 2 });
        format_event(
            &json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }),
        )
    };
    let broken = || Err(io::Error::other("broken"));
    match message["params"]["arguments"]["how"].as_str().unwrap_or_default() {
        "stream" => event_stream_response(vec![
            Ok(": hello\r\n\r\nevent: ping\ndata: x\n\ndata: rubbish\n\n".into()),
            Ok(progress(1).into()),
            Ok(progress(2).into()),
            Ok(format_event(&done).into()),
        ]),
        "hang" => stream_response("text/event-stream", stream::pending().boxed()),
        "drop" => event_stream_response(vec![Ok(progress(1).into()), broken()]),
        "half" => event_stream_response(vec![Ok("data: {\"jsonrpc\":\"2.0\"".into()), broken()]),
        "end" => event_stream_response(vec![]),
        "resume" => {
            let id = &message["id"];
            event_stream_response(vec![
                Ok(format!("id: {id}\nretry: 60\ndata: \n\n").into()),
                broken(),
            ])
        }
        "html" => ([("content-type", "text/html")], "<h1>Hello</h1>").into_response(),
        "garbage" => ([("content-type", "application/json")], "{]").into_response(),
        "other" => json_response(&json!({ "jsonrpc": "2.0", "id": 1_000_000, "result": {} })),
        "accepted" => StatusCode::ACCEPTED.into_response(),
        "forged" => {
            let error = json!({ "code": i32::MIN, "message": "never read" });
            json_response(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }))
        }
        "huge" => huge_body("application/json", "\""),
        "huge stream" => huge_body("text/event-stream", "data: "),
        "forget" => {
            state.sessions.lock().unwrap().clear();
            json_response(&done)
        }
        "grow" => {
            state.added_tool_count.store(1, Ordering::SeqCst);
            let method = "notifications/tools/list_changed";
            let _ = state
                .unrequested_messages
                .send(format_event(&json!({ "jsonrpc": "2.0", "method": method })));
            json_response(&done)
        }
        "rubbish unasked" => {
            for rubbish in ["\0\u{1}\ndata: {]", "event: ping\ndata: 1", "data: {\"id\":7}"] {
                let _ = state.unrequested_messages.send(format!("{rubbish}\n\n"));
            }
            let _ = state.unrequested_messages.send(format!("data: {}\n\n", "x".repeat(50 << 20)));
            json_response(&done)
        }
        status => match status.parse() {
            Ok(status) => (StatusCode::from_u16(status).unwrap(), "because").into_response(),
            Err(_) => json_response(&done),
        },
    }
}

fn huge_body(kind: &str, start: &'static str) -> Response {
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let body = stream::iter([Bytes::from(start)]).chain(stream::iter(vec![chunk; 50]));
    stream_response(kind, body.map(Ok).boxed())
}

fn resume_stream(id: &str) -> Response {
    let id: u64 = id.parse().unwrap();
    event_stream_response(vec![Ok(
        format_event(&text_result(&json!({ "id": id }), "resumed")).into()
    )])
}

fn open_event_stream(state: &ServerState) -> Response {
    state.listener_count.fetch_add(1, Ordering::SeqCst);
    let unrequested_messages =
        stream::unfold(state.unrequested_messages.subscribe(), async |mut receiver| {
            let message = receiver.recv().await.ok()?;
            Some((Ok(message.into()), receiver))
        });
    stream_response("text/event-stream", unrequested_messages.boxed())
}

fn text_result(message: &Value, text: &str) -> Value {
    make_reply(message, &json!({ "content": [{ "type": "text", "text": text }] }))
}

fn make_reply(message: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })
}

fn format_event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

fn json_response(message: &Value) -> Response {
    ([("content-type", "application/json; charset=utf-8")], message.to_string()).into_response()
}

/// Sends each chunk separately, so that a chunk arrives even if the next chunk breaks the
/// connection.
fn event_stream_response(chunks: Chunks) -> Response {
    let chunks = stream::iter(chunks).then(|chunk| async {
        tokio::task::yield_now().await;
        chunk
    });
    stream_response("text/event-stream", chunks.boxed())
}

fn stream_response(
    kind: &str,
    body: stream::BoxStream<'static, Result<Bytes, io::Error>>,
) -> Response {
    ([("content-type", kind.to_owned())], Body::from_stream(body)).into_response()
}

pub(super) async fn serve(kind: &'static str, chunks: Vec<Bytes>) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new().fallback(move || {
        let chunks = stream::iter(chunks.clone()).map(Ok).boxed();
        async move { stream_response(kind, chunks) }
    });
    let mut task = JoinSet::new();
    task.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (address, task)
}
