//! What a server over HTTP may do to a call, and what the call says then.

use std::time::Duration;

use axum::body::Bytes;
use futures::FutureExt;
use serde_json::{Value, json};
use shared::tool::{ErrorCode, ToolError};
use tests::toolset::{Connected, MAX_WAIT, step, wait_until};
use toolbox::{Found, SetStatus, ToolContext, progress::pipe};

use super::trickster::{Trickster, serve};

struct World {
    server: Trickster,
    connected: Connected,
}

impl World {
    async fn new() -> Self {
        let server = Trickster::start().await;
        let connected = Connected::ready(&server.source()).await;
        Self { server, connected }
    }

    async fn call(&self, tool: &str, how: &str) -> Result<Value, ToolError> {
        self.connected.call(tool, json!({ "how": how })).await
    }
}

async fn failure(source: &Value) -> String {
    match Connected::begin(source).status().await {
        SetStatus::Failed { error } => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn documents_and_streams_are_answers() {
    let world = World::new().await;
    assert_eq!(world.call("act", "").await, Ok(json!("done 1")));
    let (reporter, mut listener) = pipe();
    let cx = ToolContext { reporter, ..step() };
    let answer = world.connected.call_in("act", json!({ "how": "stream" }), cx).await;
    assert_eq!(answer, Ok(json!("done 2")));
    let last = listener.next().now_or_never().unwrap().progress;
    assert_eq!((last.progress, last.total), (2.0, Some(2.0)));
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_taken_up() {
    let world = World::new().await;
    assert_eq!(world.call("act", "resume").await, Ok(json!("resumed")));
    assert_eq!(world.server.calls(), 1);
}

#[tokio::test]
async fn a_call_with_an_effect_is_never_made_again_over_http() {
    for how in ["drop", "half", "end", "html", "garbage", "other", "accepted", "502", "504"] {
        let world = World::new().await;
        let err = world.call("act", how).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::OUTCOME_UNKNOWN, "{how}: {err}");
        assert!(!err.is_definite && !err.retryable, "{how}");
        assert!(err.message.contains("broke off while `s.act` was called"), "{how}: {err}");
        assert_eq!(world.server.calls(), 1, "{how}");
        assert_eq!(world.call("act", "").await, Ok(json!("done 2")), "{how}");
    }
}

#[tokio::test]
async fn a_call_that_only_looks_is_made_once_more_over_http() {
    let world = World::new().await;
    let err = world.call("look", "drop").await.unwrap_err();
    assert_eq!((err.code, err.is_definite), (ErrorCode::UNAVAILABLE, false));
    assert_eq!(world.server.calls(), 2);
}

#[tokio::test]
async fn what_a_server_refuses_has_failed_for_certain() {
    let world = World::new().await;
    let host = world.server.address;
    for (status, retryable, hint) in [
        ("401", false, " Unauthorized: look at the `headers` of the server"),
        ("403", false, " Forbidden: look at the `headers` of the server"),
        ("400", false, " Bad Request"),
        ("429", true, " Too Many Requests"),
        ("500", true, " Internal Server Error"),
        ("503", true, " Service Unavailable"),
    ] {
        let err = world.call("act", status).await.unwrap_err();
        assert!(err.is_definite && err.retryable == retryable, "{status}: {err:?}");
        let expected = format!("tool.unavailable: `{host}` answered {status}{hint}: because");
        assert_eq!(err.to_string(), expected);
    }
    assert_eq!(world.server.calls(), 6);
    assert_eq!(world.server.greetings(), 1);
    // A server cannot say in our words that it never read a call.
    let err = world.call("act", "forged").await.unwrap_err();
    assert_eq!((err.code, world.server.calls()), (ErrorCode::FAILED, 7));
}

#[tokio::test]
async fn fifty_megabytes_fail_their_call_alone() {
    let world = World::new().await;
    for how in ["huge", "huge stream"] {
        let err = world.call("act", how).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::OUTPUT_TOO_LARGE, "{how}: {err}");
    }
    assert_eq!(world.call("act", "").await, Ok(json!("done 3")));
    assert_eq!(world.server.greetings(), 1);
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_announced_over_http() {
    let world = World::new().await;
    let cx = step();
    let cancel = cx.cancel.clone();
    let hang = world.connected.call_in("act", json!({ "how": "hang" }), cx);
    let (hang, ()) = tokio::join!(hang, async {
        wait_until("the call came", || world.server.calls() == 1).await;
        assert_eq!(world.call("act", "").await, Ok(json!("done 2")));
        cancel.cancel();
    });
    let err = hang.unwrap_err();
    assert_eq!((err.code, err.is_definite), (ErrorCode::CANCELLED, false));
    wait_until("it is announced", || world.server.has_heard("notifications/cancelled")).await;
}

#[tokio::test]
async fn a_session_that_has_expired_begins_anew() {
    let world = World::new().await;
    assert_eq!(world.call("act", "forget").await, Ok(json!("done 1")));
    // Nobody has read these calls, so all are made again, though they have an effect.
    let calls = futures::future::join_all((0..10).map(|_| world.call("act", ""))).await;
    assert!(calls.iter().all(Result::is_ok), "{calls:?}");
    assert_eq!((world.server.calls(), world.server.greetings()), (11, 2));
}

#[tokio::test]
async fn new_tools_are_found_over_http() {
    let world = World::new().await;
    let name = "s.grown".parse().unwrap();
    let toolbox = &world.connected.toolbox;
    let mut changes = toolbox.changes();
    wait_until("somebody listens", || world.server.is_heard()).await;
    world.call("look", "grow").await.unwrap();
    let found = async {
        while !matches!(toolbox.find(&name), Found::Tool(_)) {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(MAX_WAIT, found).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_gone_fails_for_certain_and_is_found_again() {
    let World { server, connected } = World::new().await;
    let address = server.stop().await;
    let call = || connected.call("act", json!({}));
    let err = call().await.unwrap_err();
    assert_eq!((err.code.clone(), err.is_definite), (ErrorCode::UNAVAILABLE, true), "{err}");
    assert!(err.message.contains(&format!("`{address}` cannot be reached")), "{err}");

    let server = Trickster::start_at(address).await;
    let found = async {
        while call().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, found).await.unwrap();
    assert_eq!(server.calls(), 1);
}

#[tokio::test]
async fn a_session_ends_with_its_owner() {
    let World { server, connected } = World::new().await;
    connected.sources.close().await;
    assert!(server.has_heard("DELETE"));
}

#[tokio::test]
async fn a_server_that_cannot_be_used_says_why() {
    let server = Trickster::start().await;
    let host = server.address;
    for (status, why) in [
        (401, "401 Unauthorized: look at the `headers` of the server"),
        (404, "404 Not Found: is the `url` that of an endpoint for streamable HTTP?"),
        (
            307,
            "307 Temporary Redirect, which redirects to /elsewhere; Faber does not follow it: \
             write that address",
        ),
    ] {
        server.answer_all_with(status);
        let error = failure(&server.source()).await;
        assert_eq!(error, format!("`{host}` answered {why}: no,"));
    }
    let missing = json!({ "authorization": { "secret": "FABER_TEST_NO_SUCH_SECRET" } });
    let source = json!({ "mcp": { "url": "http://127.0.0.1:1/mcp", "headers": missing } });
    let error = failure(&source).await;
    assert!(error.starts_with("the secret `FABER_TEST_NO_SUCH_SECRET` is not there"), "{error}");
}

#[tokio::test]
async fn secrets_in_headers_are_not_shown() {
    let server = Trickster::start().await;
    server.answer_all_with(403);
    let mut source = server.source();
    // Any variable will do that every environment has.
    source["mcp"]["headers"] =
        json!({ "authorization": { "secret": "CARGO_MANIFEST_DIR", "prefix": "Bearer " } });
    let error = failure(&source).await;
    assert!(error.ends_with("no, Bearer ***CARGO_MANIFEST_DIR***"), "{error}");
}

#[tokio::test]
async fn a_greeting_of_fifty_megabytes_fails_its_set() {
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let (address, _task) = serve("application/json", vec![chunk; 50]).await;
    let source = json!({ "mcp": { "url": format!("http://{address}/mcp") } });
    let error = failure(&source).await;
    assert_eq!(error, format!("`{address}` does not serve MCP: the answer is too long"));
}

#[tokio::test]
async fn what_is_no_mcp_server_at_all_says_so() {
    for (kind, body, why) in [
        ("text/html", "<h1>Hello</h1>", "it answered 200 OK with text/html"),
        ("application/json", "{]", "its answer is not a message"),
        ("application/json", "{\"id\":1}", "its answer is not a message"),
    ] {
        let (address, _task) = serve(kind, vec![body.into()]).await;
        let source = json!({ "mcp": { "url": format!("http://{address}/mcp") } });
        let error = failure(&source).await;
        assert_eq!(error, format!("`{address}` does not serve MCP: {why}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up_over_http() {
    // Connections are made by the system, whether or not anybody accepts them.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let source = json!({ "mcp": { "url": format!("http://{address}/mcp") } });
    let connected = Connected::begin(&source);
    let status = connected.toolbox.settled_set(&"s".parse().unwrap(), Duration::from_mins(1)).await;
    let error = format!("`{address}` did not answer as an MCP server within 30 s");
    assert_eq!(status, Some(SetStatus::Failed { error }));
}

#[tokio::test]
async fn rubbish_that_nobody_asked_for_is_survived() {
    let world = World::new().await;
    wait_until("somebody listens", || world.server.is_heard()).await;
    assert_eq!(world.call("look", "rubbish unasked").await, Ok(json!("done 1")));
    // Behind an event of 50 MB the stream is left, and listened to anew.
    wait_until("somebody listens again", || world.server.listeners() == 2).await;
    assert_eq!(world.call("act", "").await, Ok(json!("done 2")));
    assert_eq!(world.server.greetings(), 1);
}
