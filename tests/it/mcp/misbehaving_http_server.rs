//! Faults of an HTTP server during a call, and the errors of the call.

use std::time::Duration;

use axum::body::Bytes;
use futures::FutureExt;
use serde_json::{Value, json};
use shared::tool::{ErrorCode, ToolError};
use tests::toolset::{Connected, MAX_WAIT, second_attempt, wait_until};
use toolbox::{SetStatus, ToolContext, ToolLookup, progress::report_channel};

use super::http_server::{HttpServer, serve};

struct ServerTest {
    server: HttpServer,
    connected: Connected,
}

impl ServerTest {
    async fn new() -> Self {
        let server = HttpServer::start().await;
        let connected = Connected::connect(&server.source()).await;
        Self { server, connected }
    }

    async fn call(&self, tool: &str, behaviour: &str) -> Result<Value, ToolError> {
        self.connected.call(tool, json!({ "how": behaviour })).await
    }
}

async fn connection_error(source: &Value) -> String {
    match Connected::start_connecting(source).status().await {
        SetStatus::Failed { error } => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn json_documents_and_event_streams_are_accepted_as_answers() {
    let test = ServerTest::new().await;
    assert_eq!(test.call("act", "").await, Ok(json!("done 1")));
    let (reporter, mut listener) = report_channel();
    let cx = ToolContext { reporter, ..second_attempt() };
    let answer = test.connected.call_in("act", json!({ "how": "stream" }), cx).await;
    assert_eq!(answer, Ok(json!("done 2")));
    let last = listener.next().now_or_never().unwrap().progress;
    assert_eq!((last.progress, last.total), (2.0, Some(2.0)));
}

#[tokio::test]
async fn a_broken_event_stream_is_resumed() {
    let test = ServerTest::new().await;
    assert_eq!(test.call("act", "resume").await, Ok(json!("resumed")));
    assert_eq!(test.server.calls(), 1);
}

#[tokio::test]
async fn a_once_call_over_http_is_never_repeated() {
    for behaviour in ["drop", "half", "end", "html", "garbage", "other", "accepted", "502", "504"] {
        let test = ServerTest::new().await;
        let err = test.call("act", behaviour).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::OUTCOME_UNKNOWN, "{behaviour}: {err}");
        assert!(!err.is_definite && !err.retryable, "{behaviour}");
        assert!(err.message.contains("broke off while `s.act` was called"), "{behaviour}: {err}");
        assert_eq!(test.server.calls(), 1, "{behaviour}");
        assert_eq!(test.call("act", "").await, Ok(json!("done 2")), "{behaviour}");
    }
}

#[tokio::test]
async fn a_read_call_over_http_is_repeated_once() {
    let test = ServerTest::new().await;
    let err = test.call("look", "drop").await.unwrap_err();
    assert_eq!((err.code, err.is_definite), (ErrorCode::UNAVAILABLE, false));
    assert_eq!(test.server.calls(), 2);
}

#[tokio::test]
async fn a_call_that_a_server_refuses_fails_for_certain() {
    let test = ServerTest::new().await;
    let host = test.server.address;
    for (status, retryable, hint) in [
        ("401", false, " Unauthorized: check the `headers` of the server"),
        ("403", false, " Forbidden: check the `headers` of the server"),
        ("400", false, " Bad Request"),
        ("429", true, " Too Many Requests"),
        ("500", true, " Internal Server Error"),
        ("503", true, " Service Unavailable"),
    ] {
        let err = test.call("act", status).await.unwrap_err();
        assert!(err.is_definite && err.retryable == retryable, "{status}: {err:?}");
        let expected = format!("tool.unavailable: `{host}` answered {status}{hint}: because");
        assert_eq!(err.to_string(), expected);
    }
    assert_eq!(test.server.calls(), 6);
    assert_eq!(test.server.initializations(), 1);
    // The answer has the error code that Faber itself uses for a call that no server has read.
    // Faber must not accept it from a server.
    let err = test.call("act", "forged").await.unwrap_err();
    assert_eq!((err.code, test.server.calls()), (ErrorCode::FAILED, 7));
}

#[tokio::test]
async fn a_huge_answer_fails_only_its_call() {
    let test = ServerTest::new().await;
    for behaviour in ["huge", "huge stream"] {
        let err = test.call("act", behaviour).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::OUTPUT_TOO_LARGE, "{behaviour}: {err}");
    }
    assert_eq!(test.call("act", "").await, Ok(json!("done 3")));
    assert_eq!(test.server.initializations(), 1);
}

#[tokio::test]
async fn the_server_is_told_about_cancelled_calls_over_http() {
    let test = ServerTest::new().await;
    let cx = second_attempt();
    let cancel = cx.cancel.clone();
    let hang = test.connected.call_in("act", json!({ "how": "hang" }), cx);
    let (hang, ()) = tokio::join!(hang, async {
        wait_until("the call came", || test.server.calls() == 1).await;
        assert_eq!(test.call("act", "").await, Ok(json!("done 2")));
        cancel.cancel();
    });
    let err = hang.unwrap_err();
    assert_eq!((err.code, err.is_definite), (ErrorCode::CANCELLED, false));
    wait_until("the cancellation arrives", || test.server.has_received("notifications/cancelled"))
        .await;
}

#[tokio::test]
async fn an_expired_session_is_renewed_and_its_calls_are_repeated() {
    let test = ServerTest::new().await;
    assert_eq!(test.call("act", "forget").await, Ok(json!("done 1")));
    // The server read none of these calls, so all are repeated, even with effects.
    let calls = futures::future::join_all((0..10).map(|_| test.call("act", ""))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!((test.server.calls(), test.server.initializations()), (11, 2));
}

#[tokio::test]
async fn tools_that_an_http_server_adds_are_found() {
    let test = ServerTest::new().await;
    let name = "s.grown".parse().unwrap();
    let toolbox = &test.connected.toolbox;
    let mut changes = toolbox.subscribe_changes();
    wait_until("the client listens", || test.server.has_listener()).await;
    test.call("look", "grow").await.unwrap();
    let found = async {
        while !matches!(toolbox.find(&name), ToolLookup::Tool(_)) {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(MAX_WAIT, found).await.unwrap();
}

#[tokio::test]
async fn calls_to_a_stopped_server_fail_for_certain_until_it_returns() {
    let ServerTest { server, connected } = ServerTest::new().await;
    let address = server.stop().await;
    let call = || connected.call("act", json!({}));
    let err = call().await.unwrap_err();
    assert_eq!((err.code.clone(), err.is_definite), (ErrorCode::UNAVAILABLE, true), "{err}");
    assert!(err.message.contains(&format!("`{address}` cannot be reached")), "{err}");

    let server = HttpServer::start_at(address).await;
    let found = async {
        while call().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, found).await.unwrap();
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn a_session_is_deleted_with_its_toolset() {
    let ServerTest { server, connected } = ServerTest::new().await;
    connected.sources.close().await;
    assert!(server.has_received("DELETE"));
}

#[tokio::test]
async fn an_unusable_http_server_fails_with_the_reason() {
    let server = HttpServer::start().await;
    let host = server.address;
    for (status, reason) in [
        (401, "401 Unauthorized: check the `headers` of the server"),
        (404, "404 Not Found: check that the `url` is an endpoint for streamable HTTP"),
        (
            307,
            "307 Temporary Redirect, a redirect to /elsewhere that Faber does not follow: \
             configure that address",
        ),
    ] {
        server.set_status(status);
        let error = connection_error(&server.source()).await;
        assert_eq!(error, format!("`{host}` answered {reason}: no,"));
    }
    let missing = json!({ "authorization": { "secret": "FABER_TEST_NO_SUCH_SECRET" } });
    let source = json!({ "mcp": { "url": "http://127.0.0.1:1/mcp", "headers": missing } });
    let error = connection_error(&source).await;
    assert!(error.starts_with("the secret `FABER_TEST_NO_SUCH_SECRET` is not set"), "{error}");
}

#[tokio::test]
async fn secrets_in_headers_are_masked_in_errors() {
    let server = HttpServer::start().await;
    server.set_status(403);
    let mut source = server.source();
    // The test uses this variable as a secret, because it is always set in tests.
    source["mcp"]["headers"] =
        json!({ "authorization": { "secret": "CARGO_MANIFEST_DIR", "prefix": "Bearer " } });
    let error = connection_error(&source).await;
    assert!(error.ends_with("no, Bearer ***CARGO_MANIFEST_DIR***"), "{error}");
}

#[tokio::test]
async fn a_huge_initialize_answer_fails_the_toolset() {
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let (address, _task) = serve("application/json", vec![chunk; 50]).await;
    let source = json!({ "mcp": { "url": format!("http://{address}/mcp") } });
    let error = connection_error(&source).await;
    assert_eq!(error, format!("`{address}` does not serve MCP: the answer is too long"));
}

#[tokio::test]
async fn an_http_server_without_mcp_fails_with_the_reason() {
    for (kind, body, reason) in [
        ("text/html", "<h1>Hello</h1>", "it answered 200 OK with text/html"),
        ("application/json", "{]", "its answer is not a message"),
        ("application/json", "{\"id\":1}", "its answer is not a message"),
    ] {
        let (address, _task) = serve(kind, vec![body.into()]).await;
        let source = json!({ "mcp": { "url": format!("http://{address}/mcp") } });
        let error = connection_error(&source).await;
        assert_eq!(error, format!("`{address}` does not serve MCP: {reason}"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_http_server_that_does_not_answer_fails_after_30_seconds() {
    // The system accepts connections to this port, although no program reads from them.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let source = json!({ "mcp": { "url": format!("http://{address}/mcp") } });
    let connected = Connected::start_connecting(&source);
    let status =
        connected.toolbox.wait_for_set(&"s".parse().unwrap(), Duration::from_mins(1)).await;
    let error = format!("`{address}` did not answer as an MCP server within 30 s");
    assert_eq!(status, Some(SetStatus::Failed { error }));
}

#[tokio::test]
async fn garbage_in_the_event_stream_does_not_break_calls() {
    let test = ServerTest::new().await;
    wait_until("the client listens", || test.server.has_listener()).await;
    assert_eq!(test.call("look", "rubbish unasked").await, Ok(json!("done 1")));
    // The client closes the stream after an event of 50 MB, and opens it again.
    wait_until("the client listens again", || test.server.listeners() == 2).await;
    assert_eq!(test.call("act", "").await, Ok(json!("done 2")));
    assert_eq!(test.server.initializations(), 1);
}
