//! An official server over streamable HTTP.

use std::{net::TcpListener, process::Stdio};

use futures::FutureExt;
use serde_json::{Value, json};
use shared::tool::ErrorCode;
use tests::{
    installed,
    toolset::{Connected, MAX_WAIT, second_attempt},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use toolbox::{ToolContext, progress::report_channel};

use super::official_servers::server_script;

struct EverythingServer {
    child: Child,
    port: u16,
}

impl EverythingServer {
    /// Starts the server on a free port. The server cannot choose a port itself, so the test
    /// chooses one, and tries another one if a process has taken it first.
    async fn start() -> Self {
        let starting = async {
            loop {
                let free = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = free.local_addr().unwrap().port();
                drop(free);
                if let Some(server) = Self::try_start(port).await {
                    return server;
                }
            }
        };
        tokio::time::timeout(MAX_WAIT, starting).await.expect("a port is free")
    }

    async fn start_at(port: u16) -> Self {
        let starting = async {
            loop {
                if let Some(server) = Self::try_start(port).await {
                    return server;
                }
            }
        };
        tokio::time::timeout(MAX_WAIT, starting).await.expect("the port is free again")
    }

    /// Returns `None` if another process uses the port.
    async fn try_start(port: u16) -> Option<Self> {
        let mut command = Command::new(installed::find_program("node"));
        command.arg(server_script("server-everything")).arg("streamableHttp").kill_on_drop(true);
        command.env("PORT", port.to_string()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("listening") {
                return Some(Self { child, port });
            }
            if line.contains("already in use") {
                return None;
            }
        }
        panic!("the server ended");
    }

    fn source(&self) -> Value {
        json!({ "mcp": { "url": format!("http://127.0.0.1:{}/mcp", self.port) } })
    }
}

#[tokio::test]
async fn tools_of_the_official_test_server_work_over_http() {
    let server = EverythingServer::start().await;
    let everything = Connected::connect(&server.source()).await;
    let echo = everything.call("echo", json!({ "message": "Größe 🎉\n\u{2028}" })).await;
    assert_eq!(echo, Ok(json!("Echo: Größe 🎉\n\u{2028}")));
    let weather = json!({ "location": "Chicago" });
    let weather = everything.call("get-structured-content", weather).await.unwrap();
    assert!(weather["temperature"].is_number(), "{weather}");
    assert!(everything.tool("get-structured-content").definition().output_schema.is_some());
    let image = everything.call("get-tiny-image", json!({})).await.unwrap();
    assert_eq!(image[1]["type"], "image");
    assert!(image[1]["data"].as_str().unwrap().len() > 1_000);
    let resource = json!({ "resourceType": "Text", "resourceId": 1 });
    let resource = everything.call("get-resource-reference", resource).await.unwrap();
    let kinds: Vec<_> =
        resource.as_array().unwrap().iter().map(|content| &content["type"]).collect();
    assert!(kinds.contains(&&json!("resource")), "{resource}");

    let calls = (0..100).map(|n| {
        let everything = &everything;
        async move { everything.call("echo", json!({ "message": n.to_string() })).await }
    });
    for (n, answer) in futures::future::join_all(calls).await.into_iter().enumerate() {
        assert_eq!(answer, Ok(json!(format!("Echo: {n}"))));
    }
    everything.sources.close().await;
}

#[tokio::test]
async fn a_long_operation_over_http_reports_progress_and_can_be_cancelled() {
    let server = EverythingServer::start().await;
    let everything = Connected::connect(&server.source()).await;
    let (reporter, mut listener) = report_channel();
    let cx = ToolContext { reporter, ..second_attempt() };
    let quick = json!({ "duration": 1, "steps": 4 });
    let tool = "trigger-long-running-operation";
    everything.call_in(tool, quick, cx).await.unwrap();
    let last = listener.next().now_or_never().unwrap();
    assert_eq!((last.progress.progress, last.progress.total), (4.0, Some(4.0)));

    let (reporter, mut listener) = report_channel();
    let cx = ToolContext { reporter, ..second_attempt() };
    let cancel = cx.cancel.clone();
    let long = everything.call_in(tool, json!({ "duration": 600, "steps": 6000 }), cx);
    let (long, ()) = tokio::join!(long, async {
        listener.next().await;
        cancel.cancel();
    });
    assert_eq!(long.unwrap_err().code, ErrorCode::CANCELLED);
    let echo = everything.call("echo", json!({ "message": "b" })).await;
    assert_eq!(echo, Ok(json!("Echo: b")));
}

#[tokio::test]
async fn a_restarted_http_server_gets_a_new_session() {
    let mut server = EverythingServer::start().await;
    let everything = Connected::connect(&server.source()).await;
    server.child.kill().await.unwrap();
    let _again = EverythingServer::start_at(server.port).await;
    let echo = everything.call("echo", json!({ "message": "again" })).await;
    assert_eq!(echo, Ok(json!("Echo: again")));
}
