//! A folder with a configuration, tools that write a ledger, and the binary that tests kill.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{binary::faber, toolset::MAX_WAIT};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr},
    task::JoinSet,
    time::timeout,
};

/// Writes a ledger entry with the size of the parameters, syncs it, works for `$3` seconds, and
/// returns `$2` plus one.
const TOOL: &str = r#"
bytes=$(wc -c)
printf '%s %s %s %s %s\n' \
    "$1" "$FABER_STEP_ID" "$FABER_ATTEMPT" "$FABER_IDEMPOTENCY_KEY" "$bytes" >>"$LEDGER"
sync "$LEDGER"
sleep "$3"
echo "{\"n\":$(($2 + 1))}"
"#;

#[derive(Debug)]
pub(super) struct Workspace {
    folder: TempDir,
    store: String,
}

/// A call that the tool really executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerEntry {
    pub(super) tool: String,
    pub(super) step: String,
    pub(super) attempt: u32,
    pub(super) key: String,
    /// Bytes of parameters that the tool read from standard input.
    pub(super) bytes: usize,
}

impl Workspace {
    /// Creates a workspace whose store is a SQLite file in it.
    pub(super) fn with_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("faber.db").display());
        Self::create(folder, store)
    }

    pub(super) fn with_store(store: String) -> Self {
        Self::create(tempfile::tempdir().unwrap(), store)
    }

    fn create(folder: TempDir, store: String) -> Self {
        let workspace = Self { folder, store };
        fs::write(workspace.path("tool.sh"), TOOL).unwrap();
        fs::write(workspace.path("ledger"), "").unwrap();
        let tools = ["once", "idempotent", "read"].map(|effect| workspace.tool(effect));
        let config = json!({
            "store": workspace.store,
            "toolsets": [{ "name": "ledger", "source": { "tools": tools } }],
            // Other workers take over soon, and long sleeps are parked.
            "limits": { "lease_ms": 1_000, "poll_ms": 50, "park_after_ms": 100 },
        });
        fs::write(workspace.path("faber.yaml"), config.to_string()).unwrap();
        workspace
    }

    fn tool(&self, effect: &str) -> Value {
        let script = self.path("tool.sh");
        let number = json!({ "type": "number" });
        json!({
            "name": effect,
            "effect": effect,
            "parameters": {
                "type": "object",
                "properties": { "n": number, "seconds": number },
                "required": ["n", "seconds"],
            },
            "run": {
                "command": ["sh", script, effect, "{{n}}", "{{seconds}}"],
                "env": { "LEDGER": self.path("ledger") },
            },
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn store(&self) -> &str {
        &self.store
    }

    pub(super) fn ledger(&self) -> Vec<LedgerEntry> {
        let text = fs::read_to_string(self.path("ledger")).unwrap();
        text.lines().map(LedgerEntry::read).collect()
    }

    /// Starts a server and waits until it listens. Returns it with its address.
    pub(super) async fn start_server(&self) -> (Process, String) {
        let mut server = self.spawn(&["serve", "--listen", "127.0.0.1:0"]);
        let line = server.wait_for_line("listening on http://").await;
        let address = line.rsplit('/').next().unwrap().to_owned();
        server.print_later_output();
        (server, address)
    }

    pub(super) async fn start_worker(&self) -> Process {
        let mut worker = self.spawn(&["worker"]);
        worker.wait_for_line("working on ").await;
        worker.print_later_output();
        worker
    }

    /// Starts a server and kills it about when it begins to listen.
    pub(super) async fn kill_early(&self, life: Duration) {
        let mut server = self.spawn(&["serve", "--listen", "127.0.0.1:0"]);
        let ended = timeout(life, server.child.wait()).await;
        assert!(ended.is_err(), "the server ended without being killed: {ended:?}");
        server.kill().await;
    }

    fn spawn(&self, arguments: &[&str]) -> Process {
        let mut command = tokio::process::Command::new(faber());
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).envs(inherited("PATH"));
        command.envs(inherited("FABER_LOG"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Process { child, lines: Some(lines), reading: JoinSet::new() }
    }
}

fn inherited(variable: &'static str) -> Option<(&'static str, OsString)> {
    std::env::var_os(variable).map(|value| (variable, value))
}

impl LedgerEntry {
    fn read(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let [tool, step, attempt, key, bytes] = words[..] else { panic!("torn line: `{text}`") };
        let (attempt, bytes) = (attempt.parse().unwrap(), bytes.parse().unwrap());
        Self { tool: tool.to_owned(), step: step.to_owned(), attempt, key: key.to_owned(), bytes }
    }
}

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    lines: Option<Lines<BufReader<ChildStderr>>>,
    /// Prints later output. An unread pipe would block the process.
    reading: JoinSet<()>,
}

impl Process {
    async fn wait_for_line(&mut self, part: &str) -> String {
        let lines = self.lines.as_mut().unwrap();
        let found = async {
            loop {
                let line = lines.next_line().await.unwrap();
                let line =
                    line.unwrap_or_else(|| panic!("the process ended before it printed `{part}`"));
                if line.contains(part) {
                    return line;
                }
            }
        };
        timeout(MAX_WAIT, found)
            .await
            .unwrap_or_else(|_| panic!("the process does not print `{part}`"))
    }

    fn print_later_output(&mut self) {
        let mut lines = self.lines.take().unwrap();
        self.reading.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("faber: {line}");
            }
        });
    }

    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub(super) fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Sends SIGTERM and waits for the end.
    pub(super) async fn drain(mut self) {
        self.signal("-TERM");
        let status = timeout(MAX_WAIT, self.child.wait()).await.expect("the process ends").unwrap();
        assert!(status.success(), "{status}");
    }
}
