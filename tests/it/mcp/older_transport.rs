//! The transport from before March 2025: one event stream, and messages to another address.

use std::process::Stdio;

use serde_json::{Value, json};
use shared::tool::{ErrorCode, ToolError};
use tests::{
    installed,
    toolset::{Connected, second_attempt},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    task::JoinSet,
};
use toolbox::{SetStatus, ToolContext, progress::report_channel};

use super::{official_servers::server_script, old_server::OldServer};
use crate::mongod::free_port;

struct EverythingServer {
    url: String,
    child: Child,
    _log: JoinSet<()>,
}

impl EverythingServer {
    async fn start() -> Self {
        // The server cannot report its port, so the test chooses a free one.
        let port = free_port();
        let mut command = Command::new(installed::find_program("node"));
        command.arg(server_script("server-everything")).arg("sse").env("PORT", port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        while !lines
            .next_line()
            .await
            .unwrap()
            .expect("the server starts")
            .contains("running on port")
        {}
        let mut log = JoinSet::new();
        log.spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { url: format!("http://127.0.0.1:{port}/sse"), child, _log: log }
    }
}

#[tokio::test]
async fn the_older_transport_is_detected_and_used() {
    let server = EverythingServer::start().await;
    for transport in [json!(null), json!("sse")] {
        let mcp = json!({ "url": server.url, "transport": transport });
        let set = Connected::connect(&json!({ "mcp": mcp })).await;
        let echo = set.call("echo", json!({ "message": "Größe\n" })).await;
        assert_eq!(echo, Ok(json!("Echo: Größe\n")), "{transport}");
        let calls = (0..50).map(|n| set.call("get-sum", json!({ "a": n, "b": 1 })));
        let sums = futures::future::join_all(calls).await;
        assert!(sums.iter().all(Result::is_ok), "{sums:?}");
        set.sources.close().await;
    }
    let mcp = json!({ "url": server.url, "transport": "http" });
    let strict = Connected::start_connecting(&json!({ "mcp": mcp })).status().await;
    let SetStatus::Failed { error } = strict else { panic!("{strict:?}") };
    assert!(error.contains("404 Not Found"), "{error}");
}

#[tokio::test]
async fn calls_over_the_older_transport_report_progress_and_can_be_cancelled() {
    let server = EverythingServer::start().await;
    let set = Connected::connect(&json!({ "mcp": { "url": server.url } })).await;
    let (reporter, mut listener) = report_channel();
    let cx = ToolContext { reporter, ..second_attempt() };
    let cancel = cx.cancel.clone();
    let parameters = json!({ "duration": 600, "steps": 6_000 });
    let long = set.call_in("trigger-long-running-operation", parameters, cx);
    let (long, ()) = tokio::join!(long, async {
        assert_eq!(listener.next().await.progress.total, Some(6_000.0));
        cancel.cancel();
    });
    assert_eq!(long.unwrap_err().code, ErrorCode::CANCELLED);
    assert!(set.call("echo", json!({ "message": "b" })).await.is_ok());
}

#[tokio::test]
async fn calls_of_a_dead_older_server_fail_and_its_successor_is_used() {
    let mut server = EverythingServer::start().await;
    let set = Connected::connect(&json!({ "mcp": { "url": server.url } })).await;
    let (reporter, mut listener) = report_channel();
    let cx = ToolContext { reporter, ..second_attempt() };
    let parameters = json!({ "duration": 600, "steps": 6_000 });
    let long = set.call_in("trigger-long-running-operation", parameters, cx);
    let (long, ()) = tokio::join!(long, async {
        listener.next().await;
        server.child.kill().await.unwrap();
    });
    // Faber repeats the read once. When the call is repeated, the server has stopped, so the
    // repetition fails, too.
    assert_eq!(long.unwrap_err().code, ErrorCode::UNAVAILABLE);
    let err = set.call("echo", json!({ "message": "b" })).await.unwrap_err();
    assert_eq!((err.code.clone(), err.is_definite), (ErrorCode::UNAVAILABLE, true), "{err}");
}

async fn connect_old_server() -> (OldServer, Connected) {
    let server = OldServer::start().await;
    let connected = Connected::connect(&server.source()).await;
    (server, connected)
}

async fn call_with(set: &Connected, tool: &str, behaviour: &str) -> Result<Value, ToolError> {
    set.call(tool, json!({ "how": behaviour })).await
}

#[tokio::test]
async fn garbage_in_an_older_event_stream_is_ignored() {
    let (server, set) = connect_old_server().await;
    assert_eq!(call_with(&set, "act", "rubbish").await, Ok(json!("done 1")));
    assert_eq!(call_with(&set, "act", "").await, Ok(json!("done 2")));
    assert_eq!(server.sessions(), 1);
}

#[tokio::test]
async fn a_huge_answer_fails_only_its_call_on_a_shared_stream() {
    let (server, set) = connect_old_server().await;
    let (huge, other) = tokio::join!(call_with(&set, "act", "huge"), call_with(&set, "act", ""));
    assert_eq!(huge.unwrap_err().code, ErrorCode::OUTPUT_TOO_LARGE);
    assert!(other.is_ok(), "{other:?}");
    assert_eq!(server.sessions(), 1);
}

#[tokio::test]
async fn a_broken_stream_gives_once_calls_an_unknown_outcome() {
    for behaviour in ["die", "half"] {
        let (server, set) = connect_old_server().await;
        let (broken, hanging) =
            tokio::join!(call_with(&set, "act", behaviour), call_with(&set, "act", "hang"));
        for err in [broken.unwrap_err(), hanging.unwrap_err()] {
            assert_eq!(err.code, ErrorCode::OUTCOME_UNKNOWN, "{behaviour}: {err}");
        }
        assert_eq!(call_with(&set, "act", "").await, Ok(json!("done 3")), "{behaviour}");
        let err = call_with(&set, "look", behaviour).await.unwrap_err();
        assert_eq!((err.code, err.is_definite), (ErrorCode::UNAVAILABLE, false), "{behaviour}");
        assert_eq!(server.calls(), 5, "{behaviour}: a read is repeated once");
    }
}

#[tokio::test]
async fn a_forgotten_session_of_an_older_server_is_renewed() {
    let (server, set) = connect_old_server().await;
    assert_eq!(call_with(&set, "act", "forget").await, Ok(json!("done 1")));
    assert_eq!(call_with(&set, "act", "").await, Ok(json!("done 2")));
    assert_eq!((server.calls(), server.sessions()), (2, 2));
}

#[tokio::test]
async fn a_call_that_an_older_server_refuses_fails_for_certain() {
    let (server, set) = connect_old_server().await;
    let err = call_with(&set, "act", "refuse").await.unwrap_err();
    assert!(err.is_definite && err.retryable, "{err:?}");
    assert!(err.message.ends_with("answered 503 Service Unavailable: because"), "{err}");
    assert_eq!((server.calls(), server.sessions()), (1, 1));
}

#[tokio::test]
async fn an_unusable_older_server_fails_with_the_reason() {
    for (opening, reason) in [
        (
            "event: endpoint\ndata: http://127.0.0.2:9/steal\n\n",
            "named the URL of another server for messages: `http://127.0.0.2:9`",
        ),
        ("data: hello\n\n", "does not name its URL for messages in the first event"),
    ] {
        let server = OldServer::start_with_first_event(opening).await;
        let mut source = server.source();
        source["mcp"]["transport"] = json!("sse");
        let status = Connected::start_connecting(&source).status().await;
        assert_eq!(status, SetStatus::Failed { error: format!("`{}` {reason}", server.address) });
        // If the source does not name the transport, Faber tries the current transport first, and
        // the error contains the answer to this first attempt.
        let SetStatus::Failed { error } =
            Connected::start_connecting(&server.source()).status().await
        else {
            panic!("the server must be unusable")
        };
        assert!(error.contains("answered 405 Method Not Allowed"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_server_without_a_first_event_fails_after_10_seconds() {
    let server = OldServer::start_with_first_event(": wait\n\n").await;
    let mut source = server.source();
    source["mcp"]["transport"] = json!("sse");
    let status = Connected::start_connecting(&source).status().await;
    let error = format!("`{}` did not name its URL for messages within 10 s", server.address);
    assert_eq!(status, SetStatus::Failed { error });
}
