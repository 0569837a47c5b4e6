//! An MCP client without Faber, for comparison.

use std::{collections::BTreeMap, process::Stdio};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::BenchError;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    pub(crate) command: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
}

pub(crate) struct Bare {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    asked: u64,
}

impl Start {
    pub(crate) fn source(&self) -> Value {
        json!({ "mcp": { "command": self.command, "args": self.args, "env": self.env } })
    }
}

impl Bare {
    pub(crate) async fn start(start: &Start) -> Result<Self, BenchError> {
        let failed = |err: std::io::Error| {
            BenchError::Usage(format!("`{}` cannot be started: {err}", start.command))
        };
        let program = match start.command.as_str() {
            "faber" => std::env::current_exe().map_err(failed)?,
            other => other.into(),
        };
        let mut child = Command::new(program)
            .args(&start.args)
            .envs(&start.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(BenchError::Engine("the streams of a server are piped".to_owned()));
        };
        let output = BufReader::new(output).lines();
        let mut bare = Self { _child: child, input, output, asked: 0 };
        let client = json!({ "name": "bench", "version": "1" });
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client,
        });
        bare.ask("initialize", hello).await?;
        bare.tell(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        bare.ask("tools/list", json!({})).await?;
        Ok(bare)
    }

    pub(crate) async fn call(&mut self, name: &str) -> Result<Value, BenchError> {
        self.ask("tools/call", json!({ "name": name, "arguments": {} })).await
    }

    async fn ask(&mut self, method: &str, params: Value) -> Result<Value, BenchError> {
        self.asked += 1;
        let id = self.asked;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.tell(request).await?;
        let lost = || BenchError::Engine(format!("a server does not answer `{method}`"));
        loop {
            let line = self.output.next_line().await.map_err(|_| lost())?.ok_or_else(lost)?;
            // Other lines are notifications or accidental output.
            let answer: Value = serde_json::from_str(&line).unwrap_or_default();
            if answer["id"] == id && answer.get("method").is_none() {
                return Ok(answer);
            }
        }
    }

    async fn tell(&mut self, message: Value) -> Result<(), BenchError> {
        let line = format!("{message}\n");
        let written = self.input.write_all(line.as_bytes()).await;
        written.map_err(|err| BenchError::Engine(format!("a server does not listen: {err}")))
    }
}
