//! A model on this machine. A script replaces llama.cpp's server.

use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use axum::{Router, routing::get};
use serde_json::json;
use tests::toolset::MAX_WAIT;
use tokio::{net::TcpListener, process::Command, task::JoinSet, time};

use super::super::{
    running_command::RunningCommand,
    workspace::{DEMO_QUERY, Workspace},
};
use super::demo_plan;

/// Writes its process id into the file `starts`, and answers each question with the same plan.
const SERVER_SCRIPT: &str = r#"#!/usr/bin/env python3
import http.server, json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
option = lambda name: sys.argv[sys.argv.index(name) + 1]
assert open(option("--model"), "rb").read(4) == b"GGUF"
with open(folder + "/starts", "a") as starts:
    starts.write(f"{os.getpid()}\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        assert self.headers["authorization"] == "Bearer " + os.environ["LLAMA_API_KEY"]
        self.answer({"data": [{"id": option("--alias")}]})
    def do_POST(self):
        assert self.headers["authorization"] == "Bearer " + os.environ["LLAMA_API_KEY"]
        asked = self.rfile.read(int(self.headers["content-length"]))
        with open(folder + "/asked", "wb") as file:
            file.write(asked)
        content = open(folder + "/plan").read()
        self.answer({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]})
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer((option("--host"), int(option("--port"))), Handler).serve_forever()
"#;

struct LocalModelTest {
    workspace: Workspace,
    path: OsString,
}

impl LocalModelTest {
    fn new() -> Self {
        let workspace = Workspace::new();
        let programs = workspace.path("bin");
        fs::create_dir(&programs).unwrap();
        let server = workspace.file("bin/llama-server", SERVER_SCRIPT);
        fs::set_permissions(server, fs::Permissions::from_mode(0o755)).unwrap();
        workspace.file("bin/plan", &demo_plan("alice@test.com"));
        // Faber must start its own server, because a server that already runs on this machine does
        // not have the model `faber-planner`.
        workspace.file(
            "faber.yaml",
            "store: sqlite:./faber.db\nplanner: { provider: local, model: faber-planner }\n",
        );
        let usual = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(programs).chain(std::env::split_paths(&usual));
        let path = std::env::join_paths(folders).unwrap();
        Self { workspace, path }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.workspace.command(arguments);
        command.env("PATH", &self.path);
        command
    }

    async fn json(&self, arguments: &[&str], status: i32) -> serde_json::Value {
        let output = self.command(arguments).arg("--json").output();
        let output = time::timeout(MAX_WAIT, output).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn started_processes(&self) -> Vec<String> {
        let starts = fs::read_to_string(self.workspace.path("bin/starts")).unwrap_or_default();
        starts.lines().map(str::to_owned).collect()
    }
}

async fn wait_for_end(process: &str) {
    let path = format!("/proc/{process}");
    let ended = async {
        while Path::new(&path).exists() {
            time::sleep(Duration::from_millis(20)).await;
        }
    };
    time::timeout(MAX_WAIT, ended).await.expect("the model server ends with Faber");
}

async fn pull_model(test: &LocalModelTest) {
    let app = Router::new().route("/tiny.gguf", get(|| async { "GGUF and the weights" }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tiny.gguf", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, app).await });
    let pull = ["models", "pull", "planner", "--url", &url];
    let refused = test.json(&pull, 2).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("--yes"), "{refused}");
    let pulled = test.json(&[&pull[..], &["--yes"]].concat(), 0).await;
    assert_eq!((&pulled["name"], &pulled["isNew"]), (&json!("planner"), &json!(true)));
    let listed = test.json(&["models", "list"], 0).await;
    assert_eq!(listed[0]["name"], "planner");
}

#[tokio::test]
async fn a_missing_local_model_names_the_command_that_downloads_one() {
    let test = LocalModelTest::new();
    let failed = test.json(&["plan", DEMO_QUERY], 3).await;
    assert_eq!(failed["error"]["code"], "PLANNER_UNAVAILABLE");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.contains("faber models pull planner"), "{message}");
    assert!(message.contains("`--planner offline`"), "the draft is offered: {message}");
    assert!(test.started_processes().is_empty());
}

#[tokio::test]
async fn faber_starts_one_server_for_the_downloaded_model_and_ends_it() {
    let test = LocalModelTest::new();
    pull_model(&test).await;
    let mut server =
        RunningCommand::new(test.command(&["serve", "--listen", "127.0.0.1:0"]).spawn().unwrap());
    let line = server.wait_for_line("listening on").await;
    let url = line.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
    let made = test.json(&["plan", DEMO_QUERY, "--server", &url], 0).await;
    assert_eq!(made["planner"], "local/faber-planner");
    // Another Faber process uses the model server that is already running.
    let made = test.json(&["plan", "list all authors", "--cache", "off"], 0).await;
    assert_eq!(made["planner"], "local/faber-planner");
    let starts = test.started_processes();
    assert_eq!(starts.len(), 1, "{starts:?}");
    let request = fs::read_to_string(test.workspace.path("bin/asked")).unwrap();
    let request: serde_json::Value = serde_json::from_str(&request).unwrap();
    let schema = &request["response_format"]["json_schema"]["schema"];
    assert!(schema["$defs"]["copied"]["enum"].to_string().contains("authors"), "{schema}");
    // When Faber is killed, its model server ends, too.
    server.signal("-KILL");
    wait_for_end(&starts[0]).await;
    let made = test.json(&["plan", "show every author", "--cache", "off"], 0).await;
    assert_eq!(made["planner"], "local/faber-planner");
    let starts = test.started_processes();
    assert_eq!(starts.len(), 2, "{starts:?}");
    wait_for_end(&starts[1]).await;
}
