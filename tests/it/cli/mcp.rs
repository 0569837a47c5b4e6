//! Faber as an MCP server, used by the official client over stdio and HTTP.

mod conformance;
mod http;
mod stdio;

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tests::{binary::faber, installed};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::workspace::Workspace;

/// Limit of the wait for one answer. The script `client.mjs` gives up a little earlier, and prints
/// the reason.
const MAX_WAIT: Duration = Duration::from_mins(5);

const WAITING_PLAN: &str =
    r#"{"tools":[{"id":"w","name":"flow.wait","parameters":{"name":"go"}}]}"#;

fn node_modules() -> PathBuf {
    installed::find_path("FABER_TEST_MCP_MODULES", "mcp/node_modules")
}

pub(super) struct Client {
    _process: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// The server's answer to `initialize`, or the reason why the connection failed.
    server_info: Value,
}

impl Client {
    pub(super) async fn start_in(workspace: &Workspace, arguments: &[&str]) -> Self {
        let arguments: Vec<&str> = ["mcp"].iter().chain(arguments).copied().collect();
        let place = workspace.path(".");
        let environment = json!({ "HOME": place, "FABER_LOG": "info" });
        Self::connect(&json!({
            "command": faber(), "args": arguments, "cwd": place, "env": environment,
        }))
        .await
    }

    async fn connect(server: &Value) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/cli/mcp/client.mjs");
        let mut command = Command::new(installed::find_program("node"));
        command.arg(script).arg(node_modules());
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let requests = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut client = Self { _process: process, requests, answers, server_info: Value::Null };
        client.server_info = client.ask(server).await;
        client
    }

    async fn ask(&mut self, question: &Value) -> Value {
        self.requests.write_all(format!("{question}\n").as_bytes()).await.unwrap();
        let answer = timeout(MAX_WAIT, self.answers.next_line()).await;
        let answer = answer.unwrap_or_else(|_| panic!("no answer to {question}")).unwrap();
        serde_json::from_str(&answer.expect("the client is alive")).unwrap()
    }

    /// Calls a tool. Returns the result and the progress reports.
    async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.ask(&json!({ "do": "call", "name": name, "arguments": arguments })).await
    }

    /// Calls a tool that must succeed. Returns its structured content and its text.
    pub(super) async fn call_ok(&mut self, name: &str, arguments: Value) -> (Value, String) {
        let answer = self.call(name, arguments).await;
        assert_eq!(answer["result"]["isError"], false, "{answer:#}");
        (answer["result"]["structuredContent"].clone(), text(&answer))
    }

    /// Calls a tool that must fail. Returns the error and its text.
    async fn call_refused(&mut self, name: &str, arguments: Value) -> (Value, String) {
        let answer = self.call(name, arguments).await;
        assert_eq!(answer["result"]["isError"], true, "{answer:#}");
        (answer["result"]["structuredContent"]["error"].clone(), text(&answer))
    }

    async fn create_plan(&mut self, plan: &str) -> String {
        let plan: Value = serde_json::from_str(plan).unwrap();
        let (plan, _) = self.call_ok("create_plan", json!({ "plan": plan })).await;
        plan["planId"].as_str().unwrap().to_owned()
    }
}

fn text(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

/// Returns the progress of each report. The values must increase, because clients drop other
/// reports.
fn progress_values(answer: &Value) -> Vec<f64> {
    let reports = answer["reports"].as_array().unwrap();
    let far: Vec<f64> = reports.iter().map(|report| report["progress"].as_f64().unwrap()).collect();
    assert!(far.windows(2).all(|pair| pair[0] < pair[1]), "{reports:#?}");
    far
}
