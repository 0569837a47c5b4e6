//! A home with a configuration, tools that keep a ledger, and the binary that is killed in it.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{binary::faber, toolset::PATIENCE};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr},
    task::JoinSet,
    time::timeout,
};

/// Writes down that it was called, with the size of its parameters, makes that durable, works for
/// `$3` seconds, and adds one.
const TOOL: &str = r#"
bytes=$(wc -c)
printf '%s %s %s %s %s\n' \
    "$1" "$FABER_STEP_ID" "$FABER_ATTEMPT" "$FABER_IDEMPOTENCY_KEY" "$bytes" >>"$LEDGER"
sync "$LEDGER"
sleep "$3"
echo "{\"n\":$(($2 + 1))}"
"#;

/// A home of its own, with a store and a ledger.
#[derive(Debug)]
pub(super) struct Home {
    folder: TempDir,
    store: String,
}

/// A call that really happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) tool: String,
    pub(super) step: String,
    pub(super) attempt: u32,
    pub(super) key: String,
    /// Bytes of its parameters that it read from standard input.
    pub(super) bytes: usize,
}

impl Home {
    /// Makes a home whose store is the file in it.
    pub(super) fn with_file() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("faber.db").display());
        Self::furnish(folder, store)
    }

    /// Makes a home whose store is elsewhere.
    pub(super) fn with_store(store: String) -> Self {
        Self::furnish(tempfile::tempdir().unwrap(), store)
    }

    fn furnish(folder: TempDir, store: String) -> Self {
        let home = Self { folder, store };
        fs::write(home.path("tool.sh"), TOOL).unwrap();
        fs::write(home.path("ledger"), "").unwrap();
        let tools = ["once", "idempotent", "read"].map(|effect| home.tool(effect));
        let config = json!({
            "store": home.store,
            "toolsets": [{ "name": "ledger", "source": { "tools": tools } }],
            // Others take over soon, and whatever sleeps for long is put aside.
            "limits": { "lease_ms": 1_000, "poll_ms": 50, "park_after_ms": 100 },
        });
        fs::write(home.path("faber.yaml"), config.to_string()).unwrap();
        home
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

    /// Returns the address of the store.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// Returns every call that happened.
    pub(super) fn ledger(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.path("ledger")).unwrap();
        text.lines().map(Line::read).collect()
    }

    /// Starts a server and waits until it listens. Returns its address, too.
    pub(super) async fn serve(&self) -> (Process, String) {
        let mut server = self.begin(&["serve", "--listen", "127.0.0.1:0"]);
        let line = server.line("listening on http://").await;
        let address = line.rsplit('/').next().unwrap().to_owned();
        server.go_on_reading();
        (server, address)
    }

    /// Starts a worker and waits until it works.
    pub(super) async fn work(&self) -> Process {
        let mut worker = self.begin(&["worker"]);
        worker.line("working on ").await;
        worker.go_on_reading();
        worker
    }

    /// Starts a server and kills it so soon that it hardly listens.
    pub(super) async fn stillborn(&self, life: Duration) {
        let mut server = self.begin(&["serve", "--listen", "127.0.0.1:0"]);
        let ended = timeout(life, server.child.wait()).await;
        assert!(ended.is_err(), "it ended by itself: {ended:?}");
        server.kill().await;
    }

    fn begin(&self, arguments: &[&str]) -> Process {
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

impl Line {
    fn read(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let [tool, step, attempt, key, bytes] = words[..] else { panic!("torn line: `{text}`") };
        let (attempt, bytes) = (attempt.parse().unwrap(), bytes.parse().unwrap());
        Self { tool: tool.to_owned(), step: step.to_owned(), attempt, key: key.to_owned(), bytes }
    }
}

/// The binary at work.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    lines: Option<Lines<BufReader<ChildStderr>>>,
    /// Reads what it says later: a pipe that nobody reads would hold it up.
    reading: JoinSet<()>,
}

impl Process {
    async fn line(&mut self, part: &str) -> String {
        let lines = self.lines.as_mut().unwrap();
        let found = async {
            loop {
                let line = lines.next_line().await.unwrap();
                let line = line.unwrap_or_else(|| panic!("it ended before it said `{part}`"));
                if line.contains(part) {
                    return line;
                }
            }
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("it does not say `{part}`"))
    }

    fn go_on_reading(&mut self) {
        let mut lines = self.lines.take().unwrap();
        self.reading.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                eprintln!("faber: {line}");
            }
        });
    }

    /// Kills it, and waits until it is dead.
    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends a signal.
    pub(super) fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Tells it to end, and waits until it has.
    pub(super) async fn end(mut self) {
        self.signal("-TERM");
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        assert!(status.success(), "{status}");
    }
}
