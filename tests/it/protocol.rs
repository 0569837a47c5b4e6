//! The server's transport against real clients: npm's audit of the GraphQL over HTTP specification,
//! `graphql-ws`, `subscriptions-transport-ws` and `graphql-sse`. A raw WebSocket sends what these
//! clients never send.

use std::{path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use async_graphql::{Context, EmptyMutation, Object, Schema, Subscription};
use axum::{Router, routing::get};
use futures::{Stream, stream};
use graphql::server::{Hooks, ServerOptions, serve};
use tests::installed;
use tokio::{
    net::TcpListener,
    process::Command,
    sync::{Notify, oneshot},
    time::timeout,
};

/// Time limit of a script. The script has shorter limits of its own.
const SCRIPT_TIMEOUT: Duration = Duration::from_mins(5);

struct Query;

#[Object]
impl Query {
    async fn hello(&self, name: Option<String>) -> String {
        format!("Hello {}", name.as_deref().unwrap_or("world"))
    }

    async fn panic(&self) -> bool {
        panic_on_purpose()
    }

    async fn init(&self, context: &Context<'_>) -> Option<String> {
        let caller = context.data::<Arc<graphql::server::Caller>>().ok()?;
        Some(caller.init.as_ref()?.get("token")?.as_str()?.to_owned())
    }

    async fn refused(&self) -> async_graphql::Result<String> {
        std::future::ready(Err("no such thing".into())).await
    }
}

struct Mutation;

#[Object]
impl Mutation {
    async fn add(&self, a: i64, b: i64) -> i64 {
        a + b
    }

    /// Waits until a client calls `release`. Then `release` waits until this mutation has ended.
    async fn hold(&self, context: &Context<'_>) -> bool {
        let gate = context.data_unchecked::<Arc<HoldGate>>();
        gate.entered.notify_one();
        gate.release.notified().await;
        gate.done.notify_one();
        true
    }

    async fn release(&self, context: &Context<'_>) -> bool {
        let gate = context.data_unchecked::<Arc<HoldGate>>();
        gate.release.notify_one();
        gate.done.notified().await;
        true
    }

    async fn entered(&self, context: &Context<'_>) -> bool {
        context.data_unchecked::<Arc<HoldGate>>().entered.notified().await;
        true
    }
}

#[derive(Default)]
struct HoldGate {
    entered: Notify,
    release: Notify,
    done: Notify,
}

struct Ticks;

#[Subscription]
impl Ticks {
    async fn ticks(&self, count: u64, size: Option<usize>) -> impl Stream<Item = String> {
        let padding = "x".repeat(size.unwrap_or(0));
        stream::iter((1..=count).map(move |n| format!("{n}{padding}")))
    }

    async fn forever(&self) -> impl Stream<Item = u64> {
        stream::pending()
    }

    async fn panic_on_purpose(&self) -> impl Stream<Item = u64> {
        stream::once(async { u64::from(panic_on_purpose()) })
    }
}

/// Panics, which the server must survive.
fn panic_on_purpose() -> bool {
    panic!("a panic on purpose")
}

pub(crate) fn node_modules() -> PathBuf {
    installed::find_path("FABER_TEST_NODE_MODULES", "npm/node_modules")
}

/// Runs a script of `tests/protocol/` against a server, and checks that both end without an error.
async fn run_script(script: &str, options: ServerOptions) {
    let modules = node_modules();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("the listener is bound");
    let gate = Arc::new(HoldGate::default());
    let schema = Schema::build(Query, Mutation, Ticks).data(gate).finish();
    let hooks = Hooks {
        ready: Arc::new(|| Box::pin(async { Err("the store is unavailable".to_owned()) })),
        first_metrics: Arc::new(|| Box::pin(async { "test_figure 7".to_owned() })),
        pages: Router::new().route("/", get(async || "the page")),
        ..Hooks::default()
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = serve(listener, schema, options, hooks, async {
        let _ = stopped.await;
    });
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("protocol").join(script);
    let client = async {
        // If the script prints the line `shut down`, the server is stopped. The other lines are the
        // checks that passed.
        let mut command = Command::new(installed::find_program("node"));
        command.arg(path).arg(address.to_string()).env("FABER_TEST_NODE_MODULES", modules);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
        command.kill_on_drop(true);
        let mut child = command.spawn().expect("node starts");
        let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(
            child.stdout.take().expect("standard output is piped"),
        ));
        let (mut stop, mut passed) = (Some(stop), Vec::new());
        while let Some(line) = lines.next_line().await.expect("the script prints text") {
            if line == "shut down" {
                drop(stop.take());
            } else {
                passed.push(line);
            }
        }
        let output = child.wait_with_output().await.expect("the script ends");
        drop(stop.take());
        (passed, output)
    };
    let both = async { tokio::join!(serving, client) };
    let (served, (passed, output)) = timeout(SCRIPT_TIMEOUT, both).await.expect("the script hangs");
    served.expect("the server ends without an error");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {}, after {passed:?}\n{errors}", output.status);
}

#[tokio::test]
async fn the_graphql_over_http_audit_reports_no_problem() {
    run_script("audit.js", ServerOptions::default()).await;
}

#[tokio::test]
async fn http_requests_are_answered_and_limited() {
    run_script("http.js", ServerOptions { max_body_bytes: 10_000, ..ServerOptions::default() })
        .await;
}

#[tokio::test]
async fn the_graphql_transport_ws_protocol_works() {
    let options = ServerOptions {
        max_body_bytes: 10_000,
        max_operations: 3,
        init_timeout: Duration::from_secs(3),
        ..ServerOptions::default()
    };
    run_script("transport_ws.js", options).await;
}

#[tokio::test]
async fn the_legacy_websocket_protocol_works() {
    run_script("legacy_ws.js", ServerOptions::default()).await;
}

#[tokio::test]
async fn subscriptions_over_server_sent_events_work() {
    run_script("sse.js", ServerOptions::default()).await;
}

#[tokio::test]
async fn a_shutdown_tells_clients_and_ends() {
    run_script("shutdown.js", ServerOptions::default()).await;
}

#[tokio::test]
async fn a_shutdown_without_clients_ends_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let schema = Schema::build(Query, EmptyMutation, Ticks).finish();
    let served = serve(listener, schema, ServerOptions::default(), Hooks::default(), async {});
    timeout(Duration::from_mins(1), served).await.expect("the shutdown waits for nothing").unwrap();
}
