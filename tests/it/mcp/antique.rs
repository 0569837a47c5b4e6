//! A server from before March 2025 that plays tricks.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::channel::mpsc;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

type Chunk = Result<Bytes, io::Error>;
type Stream = mpsc::UnboundedSender<Chunk>;

/// The server; it ends with this.
pub(super) struct Antique {
    pub(super) address: SocketAddr,
    scene: Arc<Scene>,
    _task: JoinSet<()>,
}

struct Scene {
    /// What each stream begins with.
    opening: &'static str,
    /// The stream of each session that there is.
    sessions: Mutex<Vec<Option<Stream>>>,
    /// Streams of sessions that are forgotten; they stay open.
    forgotten: Mutex<Vec<Stream>>,
    calls: AtomicUsize,
}

impl Antique {
    /// Starts one that says by its first event where it is told things.
    pub(super) async fn start() -> Self {
        Self::opening_with("event: endpoint\r\ndata: /message?session=SESSION\r\n\r\n").await
    }

    /// Starts one whose streams begin like this, and with the number of the `SESSION`.
    pub(super) async fn opening_with(opening: &'static str) -> Self {
        let (sessions, forgotten) = (Mutex::default(), Mutex::default());
        let calls = AtomicUsize::default();
        let scene = Arc::new(Scene { opening, sessions, forgotten, calls });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new()
            .route("/sse", get(open))
            .route("/message", post(hear))
            .with_state(Arc::clone(&scene));
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, scene, _task: task }
    }

    pub(super) fn source(&self) -> Value {
        json!({ "mcp": { "url": format!("http://{}/sse", self.address) } })
    }

    pub(super) fn sessions(&self) -> usize {
        self.scene.sessions.lock().unwrap().len()
    }

    pub(super) fn calls(&self) -> usize {
        self.scene.calls.load(Ordering::SeqCst)
    }
}

async fn open(State(scene): State<Arc<Scene>>) -> Response {
    let (stream, said) = mpsc::unbounded();
    let mut sessions = scene.sessions.lock().unwrap();
    let opening = scene.opening.replace("SESSION", &sessions.len().to_string());
    stream.unbounded_send(Ok(opening.into())).unwrap();
    sessions.push(Some(stream));
    ([("content-type", "text/event-stream; charset=utf-8")], Body::from_stream(said))
        .into_response()
}

async fn hear(
    State(scene): State<Arc<Scene>>,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    let session: usize = query["session"].parse().unwrap();
    let Some(stream) = scene.sessions.lock().unwrap()[session].clone() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let message: Value = serde_json::from_slice(&body).unwrap();
    let say = |chunk: Chunk| drop(stream.unbounded_send(chunk));
    let answer = |result: &Value| {
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        say(Ok(format!("event: message\r\ndata: {answer}\r\n\r\n").into()));
    };
    match message["method"].as_str() {
        Some("initialize") => answer(&json!({
            "protocolVersion": "2024-11-05",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "antique", "version": "1" },
        })),
        Some("tools/list") => {
            let schema = json!({ "type": "object" });
            let look = json!({ "name": "look", "inputSchema": schema, "annotations": { "readOnlyHint": true } });
            answer(&json!({ "tools": [look, { "name": "act", "inputSchema": schema }] }));
        }
        Some("tools/call") => {
            let call = scene.calls.fetch_add(1, Ordering::SeqCst) + 1;
            let done = || {
                answer(&json!({ "content": [{ "type": "text", "text": format!("done {call}") }] }));
            };
            match message["params"]["arguments"]["how"].as_str().unwrap_or_default() {
                "hang" => {}
                "rubbish" => {
                    say(Ok("data: {]\n\n\0\u{1}\nevent: ping\ndata: x\n\nid\n\n".into()));
                    say(Ok("event: endpoint\ndata: /elsewhere\n\n".into()));
                    done();
                }
                "die" => say(Err(io::Error::other("broken"))),
                "half" => {
                    say(Ok("data: {\"jsonrpc\":\"2.0\"".into()));
                    say(Err(io::Error::other("broken")));
                }
                "huge" => {
                    huge(&message["id"]).for_each(|part| say(Ok(part)));
                }
                "forget" => {
                    done();
                    let stream = scene.sessions.lock().unwrap()[session].take();
                    scene.forgotten.lock().unwrap().extend(stream);
                }
                "refuse" => return (StatusCode::SERVICE_UNAVAILABLE, "because").into_response(),
                _ => done(),
            }
        }
        _ => {}
    }
    (StatusCode::ACCEPTED, "Accepted").into_response()
}

/// An answer of 50 MB.
fn huge(id: &Value) -> impl Iterator<Item = Bytes> {
    let begin = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[\"");
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let chunks = std::iter::repeat_n(chunk, 50);
    std::iter::once(Bytes::from(begin)).chain(chunks).chain([Bytes::from("\"]}}\n\n")])
}
