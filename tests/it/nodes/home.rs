//! A home with a configuration, a tool that writes down when its calls begin and end, and the
//! binary.

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

/// Says that a call begins, works for `$2` seconds, and says that it ends. Every line is one write
/// at the end of one file, so the order of lines is the order of time on every node.
const TOOL: &str = r#"
say() { printf '%s %s %s %s %s\n' "$1" "$2" "$FABER_EXECUTION_ID" "$FABER_IDEMPOTENCY_KEY" \
  "$FABER_ATTEMPT" >>"$LEDGER"; }
say begin "$1"
[ "$2" = 0 ] || sleep "$2"
say end "$1"
echo "{\"n\":$3}"
"#;

/// How long a worker may be silent in these tests, unless they say otherwise.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// How long a worker may be silent where nobody is to be taken for lost, in milliseconds.
pub(super) const CALM_MS: u64 = 30_000;
/// How long running steps have to end when a process is told to.
pub(super) const DRAIN: Duration = Duration::from_millis(1_500);
/// What a machine that does other things at the same time may need on top of anything.
pub(super) const MARGIN: Duration = Duration::from_secs(20);

/// The names of the tools in the set `ledger`, and what a second call of each does.
const TOOLS: [(&str, &str); 5] = [
    ("read", "read"),
    ("once", "once"),
    ("pair", "idempotent"),
    ("single", "idempotent"),
    ("held", "once"),
];

/// A home of its own, with a ledger.
#[derive(Debug)]
pub(super) struct Home {
    folder: TempDir,
    store: String,
    processes: AtomicU32,
}

/// Something that a tool said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Whether a call begins; else it ends.
    pub(super) begins: bool,
    pub(super) tool: String,
    pub(super) execution: String,
    /// The same for every attempt of a step, or of an item.
    pub(super) key: String,
    pub(super) attempt: u64,
}

impl Home {
    /// Makes a home over a store, with other limits than these tests usually have.
    pub(super) fn new(store: String, limits: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = Self { folder, store, processes: AtomicU32::new(0) };
        fs::write(home.path("tool.sh"), TOOL).unwrap();
        fs::write(home.path("ledger"), "").unwrap();
        home.configure("faber.yaml", &[home.set("ledger", &TOOLS)], limits);
        let far = home.set("far", &TOOLS[..2]);
        home.configure("far.yaml", &[home.set("ledger", &TOOLS), far], limits);
        home
    }

    fn configure(&self, file: &str, sets: &[Value], limits: &Value) {
        let mut all = json!({
            "lease_ms": millis(LEASE), "poll_ms": 100, "park_after_ms": 150,
            "cancel_grace_ms": 500, "drain_ms": millis(DRAIN),
        });
        for (key, value) in limits.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        let config = json!({ "store": self.store, "toolsets": sets, "limits": all });
        fs::write(self.path(file), config.to_string()).unwrap();
    }

    fn set(&self, name: &str, tools: &[(&str, &str)]) -> Value {
        let tools: Vec<Value> =
            tools.iter().map(|(tool, effect)| self.tool(name, tool, effect)).collect();
        json!({ "name": name, "source": { "tools": tools } })
    }

    fn tool(&self, set: &str, name: &str, effect: &str) -> Value {
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

    /// Returns everything that tools have said so far.
    pub(super) fn ledger(&self) -> Vec<Mark> {
        let text = read(&self.path("ledger"));
        // The last line may be half written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(Mark::read).collect()
    }

    /// Starts a server that works, too.
    pub(super) async fn serve(&self) -> Node {
        Node::serving(self.begin(&["serve", "--listen", "127.0.0.1:0"])).await
    }

    /// Starts one that has tools which others lack: the set `far`.
    pub(super) async fn serve_far(&self) -> Node {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--config", "far.yaml"];
        Node::serving(self.begin(&arguments)).await
    }

    /// Starts a worker without a server.
    pub(super) async fn work(&self) -> Node {
        Node::working(self.begin(&["worker"])).await
    }

    /// Starts a server whose environment has more variables.
    pub(super) async fn serve_with(&self, variables: &[(&str, PathBuf)]) -> Node {
        Node::serving(self.begin_with(&["serve", "--listen", "127.0.0.1:0"], variables)).await
    }

    /// Starts the binary; what it says goes into a file.
    pub(super) fn begin(&self, arguments: &[&str]) -> Process {
        self.begin_with(arguments, &[])
    }

    fn begin_with(&self, arguments: &[&str], variables: &[(&str, PathBuf)]) -> Process {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let said = self.path(&format!("said-{number:03}"));
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

impl Mark {
    fn read(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let [what, tool, execution, key, attempt] = words[..] else {
            panic!("torn line: `{text}`")
        };
        Self {
            begins: what == "begin",
            tool: tool.to_owned(),
            execution: execution.to_owned(),
            key: key.to_owned(),
            attempt: attempt.parse().unwrap(),
        }
    }
}

/// Reads what a process said so far, also where it is not quite text.
pub(super) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}
