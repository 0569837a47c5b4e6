//! A folder with a configuration, a tool that logs start and end of its calls, and the binary.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::binary::faber;
use tokio::process::Command;

use super::node::{Node, Process};

/// Logs the start of a call, works for `$2` seconds, and logs its end. Every line is one write to
/// the end of one file, so the order of lines is the order in time on all nodes.
const TOOL: &str = r#"
say() { printf '%s %s %s %s %s\n' "$1" "$2" "$FABER_EXECUTION_ID" "$FABER_IDEMPOTENCY_KEY" \
  "$FABER_ATTEMPT" >>"$LEDGER"; }
say begin "$1"
[ "$2" = 0 ] || sleep "$2"
say end "$1"
echo "{\"n\":$3}"
"#;

/// Default lease of these tests.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// A lease for tests in which no node may be taken for lost, in milliseconds.
pub(super) const LONG_LEASE_MS: u64 = 30_000;
pub(super) const DRAIN: Duration = Duration::from_millis(1_500);
/// Extra time for everything, because the machine may be busy.
pub(super) const MARGIN: Duration = Duration::from_secs(20);

/// Names and effects of the tools in the set `ledger`.
const TOOLS: [(&str, &str); 5] = [
    ("read", "read"),
    ("once", "once"),
    ("pair", "idempotent"),
    ("single", "idempotent"),
    ("held", "once"),
];

#[derive(Debug)]
pub(super) struct Workspace {
    folder: TempDir,
    store: String,
    processes: AtomicU32,
}

/// A line of the ledger: the start or the end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerEntry {
    /// `true` for the start of a call, `false` for its end.
    pub(super) is_start: bool,
    pub(super) tool: String,
    pub(super) execution: String,
    /// The same for all attempts of a step or an item.
    pub(super) key: String,
    pub(super) attempt: u64,
}

impl Workspace {
    pub(super) fn new(store: String, limits: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Self { folder, store, processes: AtomicU32::new(0) };
        fs::write(workspace.path("tool.sh"), TOOL).unwrap();
        fs::write(workspace.path("ledger"), "").unwrap();
        workspace.configure("faber.yaml", &[workspace.toolset_json("ledger", &TOOLS)], limits);
        let far = workspace.toolset_json("far", &TOOLS[..2]);
        workspace.configure("far.yaml", &[workspace.toolset_json("ledger", &TOOLS), far], limits);
        workspace
    }

    fn configure(&self, file: &str, sets: &[Value], limits: &Value) {
        let mut limits_json = json!({
            "lease_ms": millis(LEASE), "poll_ms": 100, "park_after_ms": 150,
            "cancel_grace_ms": 500, "drain_ms": millis(DRAIN),
        });
        for (key, value) in limits.as_object().into_iter().flatten() {
            limits_json[key] = value.clone();
        }
        let config = json!({ "store": self.store, "toolsets": sets, "limits": limits_json });
        fs::write(self.path(file), config.to_string()).unwrap();
    }

    fn toolset_json(&self, name: &str, tools: &[(&str, &str)]) -> Value {
        let tools: Vec<Value> =
            tools.iter().map(|(tool, effect)| self.tool_json(name, tool, effect)).collect();
        json!({ "name": name, "source": { "tools": tools } })
    }

    fn tool_json(&self, set: &str, name: &str, effect: &str) -> Value {
        let number = json!({ "type": "number" });
        let full = format!("{set}.{name}");
        json!({
            "name": name,
            "effect": effect,
            "parameters": {
                "type": "object",
                "properties": { "n": number, "seconds": number, "from": {} },
                "required": ["n", "seconds"],
            },
            "run": {
                "command": ["sh", self.path("tool.sh"), full, "{{seconds}}", "{{n}}"],
                "env": { "LEDGER": self.path("ledger") },
            },
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn ledger(&self) -> Vec<LedgerEntry> {
        let text = read(&self.path("ledger"));
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(LedgerEntry::read).collect()
    }

    /// Starts a server that also executes.
    pub(super) async fn start_server(&self) -> Node {
        Node::serving(self.spawn(&["serve", "--listen", "127.0.0.1:0"])).await
    }

    /// Starts a server with the set `far`, which the others lack.
    pub(super) async fn start_far_server(&self) -> Node {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--config", "far.yaml"];
        Node::serving(self.spawn(&arguments)).await
    }

    pub(super) async fn start_worker(&self) -> Node {
        Node::working(self.spawn(&["worker"])).await
    }

    pub(super) async fn start_server_with(&self, variables: &[(&str, PathBuf)]) -> Node {
        Node::serving(self.spawn_with(&["serve", "--listen", "127.0.0.1:0"], variables)).await
    }

    /// Starts the binary. Its standard error goes to a file.
    pub(super) fn spawn(&self, arguments: &[&str]) -> Process {
        self.spawn_with(arguments, &[])
    }

    fn spawn_with(&self, arguments: &[&str], variables: &[(&str, PathBuf)]) -> Process {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let said = self.path(&format!("output-{number:03}"));
        let mut command = Command::new(faber());
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        for variable in ["PATH", "FABER_LOG"] {
            command.envs(std::env::var_os(variable).map(|value| (variable, value)));
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::null()).stderr(File::create(&said).unwrap());
        Process::new(command.spawn().unwrap(), said)
    }
}

impl LedgerEntry {
    fn read(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let [what, tool, execution, key, attempt] = words[..] else {
            panic!("torn line: `{text}`")
        };
        Self {
            is_start: what == "begin",
            tool: tool.to_owned(),
            execution: execution.to_owned(),
            key: key.to_owned(),
            attempt: attempt.parse().unwrap(),
        }
    }
}

/// Reads a process's output so far, even if it is not valid UTF-8.
pub(super) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}
