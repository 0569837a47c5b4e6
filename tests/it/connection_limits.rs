//! Connections to the server: limits, health checks, incomplete and large requests, slow readers,
//! and many subscribers.

use std::{
    sync::{
        Mutex,
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use async_graphql::{Context, EmptyMutation, Object, Schema, Subscription};
use futures::{Stream, stream};
use graphql::server::{Hooks, ServerOptions, serve};
use tests::toolset::MAX_WAIT;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::timeout,
};

const LARGE_BYTES: usize = 20_000_000;

struct Query;

#[Object]
impl Query {
    async fn hello(&self) -> &'static str {
        "Hello"
    }

    /// Blocks until the test sends a message. Returns `false` if no message arrives in 20 seconds.
    async fn compute(&self, ctx: &Context<'_>, text: String) -> bool {
        let end_computation = ctx.data_unchecked::<Mutex<Receiver<()>>>();
        let is_enough =
            end_computation.lock().unwrap().recv_timeout(Duration::from_secs(20)).is_ok();
        is_enough && !text.is_empty()
    }

    /// Returns more bytes than fit into the buffers on both sides of a connection, so that a client
    /// that does not read delays the answer.
    async fn large(&self) -> String {
        "a".repeat(LARGE_BYTES)
    }
}

struct EndlessSubscription;

#[Subscription]
impl EndlessSubscription {
    async fn forever(&self) -> impl Stream<Item = u64> {
        stream::pending()
    }
}

struct LimitedServer {
    address: String,
    /// Each message ends one call of `compute`.
    end_computation: Sender<()>,
    _task: JoinSet<()>,
}

impl LimitedServer {
    async fn start(options: ServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (end_computation, receiver) = mpsc::channel();
        let schema = Schema::build(Query, EmptyMutation, EndlessSubscription)
            .data(Mutex::new(receiver))
            .finish();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let forever = std::future::pending();
            serve(listener, schema, options, Hooks::default(), forever).await.unwrap();
        });
        Self { address, end_computation, _task: task }
    }

    async fn send(&self, text: &str) -> TcpStream {
        let connecting = async {
            let mut connection = TcpStream::connect(&self.address).await.unwrap();
            connection.write_all(text.as_bytes()).await.unwrap();
            connection
        };
        timeout(MAX_WAIT, connecting).await.expect("the server accepts the connection")
    }

    async fn fetch(&self, line: &str, body: &str) -> String {
        let mut connection = self.send(&self.request(line, body, "connection: close\r\n")).await;
        let mut answer = String::new();
        let reading = connection.read_to_string(&mut answer);
        timeout(MAX_WAIT, reading).await.expect("the server answers").unwrap();
        answer
    }

    fn request(&self, line: &str, body: &str, headers: &str) -> String {
        format!(
            "{line} HTTP/1.1\r\nhost: {}\r\n{headers}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
    }

    async fn subscribe_times(&self, count: usize) -> Vec<TcpStream> {
        let request = self.request(
            "POST /graphql",
            r#"{"query":"subscription { forever }"}"#,
            "accept: text/event-stream\r\n",
        );
        let mut connections = Vec::new();
        for _ in 0..count {
            connections.push(self.send(&request).await);
        }
        for connection in &mut connections {
            let mut start = [0; 15];
            let reading = connection.read_exact(&mut start);
            timeout(MAX_WAIT, reading).await.expect("the subscription is answered").unwrap();
            assert_eq!(&start, b"HTTP/1.1 200 OK");
        }
        connections
    }

    async fn is_live(&self) -> bool {
        self.fetch("GET /health/live", "").await.starts_with("HTTP/1.1 200")
    }

    async fn answers_hello(&self) -> bool {
        self.fetch("POST /graphql", r#"{"query":"{ hello }"}"#).await.contains("Hello")
    }
}

#[tokio::test]
async fn incomplete_requests_do_not_block_new_connections() {
    let options = ServerOptions { max_connections: 100, ..ServerOptions::default() };
    let server = LimitedServer::start(options).await;
    let head = format!("GET /health/live HTTP/1.1\r\nhost: {}\r\nx: ", server.address);
    let body = server.request("POST /graphql", r#"{"query":"{ hello }"}"#, "");
    let body = &body[..body.len() - 5];
    let mut connections = Vec::new();
    for _ in 0..600 {
        connections.push(server.send(&head).await);
        connections.push(server.send(body).await);
    }
    assert!(server.is_live().await && server.answers_hello().await);
    // The server must have closed the oldest connections to accept new ones.
    let mut first = String::new();
    timeout(MAX_WAIT, connections[0].read_to_string(&mut first))
        .await
        .expect("the connection is closed")
        .unwrap();
    assert_eq!(first, "");
    assert!(server.answers_hello().await);
}

#[tokio::test]
async fn a_server_at_its_connection_limit_answers_health_checks() {
    let options = ServerOptions { max_connections: 20, ..ServerOptions::default() };
    let server = LimitedServer::start(options).await;
    let mut held = server.subscribe_times(20).await;
    assert!(server.is_live().await);
    let refused = server.fetch("POST /graphql", r#"{"query":"{ hello }"}"#).await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("LIMIT_EXCEEDED"), "{refused}");
    assert!(refused.contains("limits.connections"), "{refused}");
    // Even with many incomplete requests, the server must answer a health check.
    for _ in 0..100 {
        held.push(server.send("GET /health/live HTTP/1.1\r\nx: ").await);
    }
    assert!(server.is_live().await);
    drop(held);
    let freed = async {
        while !server.answers_hello().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(MAX_WAIT, freed).await.expect("a connection becomes free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_large_request_does_not_block_other_requests() {
    let server = LimitedServer::start(ServerOptions::default()).await;
    let text = "a".repeat(300 << 10);
    let query = format!(
        r#"{{"query":"query($t: String!) {{ compute(text: $t) }}","variables":{{"t":"{text}"}}}}"#
    );
    let mut large =
        server.send(&server.request("POST /graphql", &query, "connection: close\r\n")).await;
    for _ in 0..10 {
        assert!(server.answers_hello().await);
    }
    server.end_computation.send(()).unwrap();
    let mut answer = String::new();
    let reading = large.read_to_string(&mut answer);
    timeout(MAX_WAIT, reading).await.expect("the server answers").unwrap();
    assert!(answer.contains(r#""compute":true"#), "other requests waited for it: {answer}");
}

#[tokio::test]
async fn a_slow_reader_gets_its_whole_answer_at_the_connection_limit() {
    let options = ServerOptions { max_connections: 16, ..ServerOptions::default() };
    let server = LimitedServer::start(options).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut slow = socket.connect(server.address.parse().unwrap()).await.unwrap();
    let request = server.request("POST /graphql", r#"{"query":"{ large }"}"#, "");
    slow.write_all(request.as_bytes()).await.unwrap();
    let mut start = [0; 15];
    timeout(MAX_WAIT, slow.read_exact(&mut start)).await.expect("the server answers").unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    let mut crowd = Vec::new();
    for _ in 0..20 {
        crowd.push(server.send("GET /health/live HTTP/1.1\r\nx: ").await);
    }
    assert!(server.is_live().await);
    let (mut read, mut buffer) = (0, vec![0; 65_536]);
    let reading = async {
        while read < LARGE_BYTES {
            let more = slow.read(&mut buffer).await.unwrap();
            assert!(more > 0, "the answer ends after {read} bytes");
            read += more;
        }
    };
    timeout(MAX_WAIT, reading).await.expect("the whole answer arrives");
}

#[tokio::test]
async fn one_address_can_have_hundreds_of_subscribers() {
    let options = ServerOptions { max_new_connections: 10, ..ServerOptions::default() };
    let server = LimitedServer::start(options).await;
    let _held = server.subscribe_times(400).await;
    assert!(server.answers_hello().await);
}
