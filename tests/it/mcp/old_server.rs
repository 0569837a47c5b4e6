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

/// A server with the older transport. It is stopped when this value is dropped.
pub(super) struct OldServer {
    pub(super) address: SocketAddr,
    state: Arc<ServerState>,
    _task: JoinSet<()>,
}

struct ServerState {
    first_event: &'static str,
    sessions: Mutex<Vec<Option<Stream>>>,
    forgotten_streams: Mutex<Vec<Stream>>,
    call_count: AtomicUsize,
}

impl OldServer {
    pub(super) async fn start() -> Self {
        Self::start_with_first_event("event: endpoint\r\ndata: /message?session=SESSION\r\n\r\n")
            .await
    }

    pub(super) async fn start_with_first_event(first_event: &'static str) -> Self {
        let (sessions, forgotten_streams) = (Mutex::default(), Mutex::default());
        let call_count = AtomicUsize::default();
        let state = Arc::new(ServerState { first_event, sessions, forgotten_streams, call_count });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new()
            .route("/sse", get(open_stream))
            .route("/message", post(receive))
            .with_state(Arc::clone(&state));
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, state, _task: task }
    }

    pub(super) fn source(&self) -> Value {
        json!({ "mcp": { "url": format!("http://{}/sse", self.address) } })
    }

    pub(super) fn sessions(&self) -> usize {
        self.state.sessions.lock().unwrap().len()
    }

    pub(super) fn calls(&self) -> usize {
        self.state.call_count.load(Ordering::SeqCst)
    }
}

async fn open_stream(State(state): State<Arc<ServerState>>) -> Response {
    let (stream, messages) = mpsc::unbounded();
    let mut sessions = state.sessions.lock().unwrap();
    let first_event = state.first_event.replace("SESSION", &sessions.len().to_string());
    stream.unbounded_send(Ok(first_event.into())).unwrap();
    sessions.push(Some(stream));
    ([("content-type", "text/event-stream; charset=utf-8")], Body::from_stream(messages))
        .into_response()
}

async fn receive(
    State(state): State<Arc<ServerState>>,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    let session: usize = query["session"].parse().unwrap();
    let Some(stream) = state.sessions.lock().unwrap()[session].clone() else {
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
            let call = state.call_count.fetch_add(1, Ordering::SeqCst) + 1;
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
                    huge_answer(&message["id"]).for_each(|part| say(Ok(part)));
                }
                "forget" => {
                    done();
                    let stream = state.sessions.lock().unwrap()[session].take();
                    state.forgotten_streams.lock().unwrap().extend(stream);
                }
                "refuse" => return (StatusCode::SERVICE_UNAVAILABLE, "because").into_response(),
                _ => done(),
            }
        }
        _ => {}
    }
    (StatusCode::ACCEPTED, "Accepted").into_response()
}

fn huge_answer(id: &Value) -> impl Iterator<Item = Bytes> {
    let begin = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[\"");
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let chunks = std::iter::repeat_n(chunk, 50);
    std::iter::once(Bytes::from(begin)).chain(chunks).chain([Bytes::from("\"]}}\n\n")])
}
