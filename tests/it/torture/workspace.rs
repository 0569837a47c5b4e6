//! A folder with a configuration, tools that write a ledger outside the system, and the binary.

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

use super::node::Process;

/// Writes a ledger entry, works for `$3` seconds, and ends as `$4` says: `ok`, `fail`, `odd` (fails
/// if `$2` is odd), or `flaky` (fails up to attempt `$5`).
const TOOL: &str = r#"
printf '%s %s %s %s %s\n' "$1" "$FABER_EXECUTION_ID" "$FABER_STEP_ID" "$FABER_ATTEMPT" \
  "$FABER_IDEMPOTENCY_KEY" >>"$LEDGER"
[ "$3" = 0 ] || sleep "$3"
case $4 in
  fail) echo "it always fails" >&2; exit 1 ;;
  odd) [ $(($2 % 2)) = 0 ] || { echo "it is odd" >&2; exit 1; } ;;
  flaky) [ "$FABER_ATTEMPT" -gt "$5" ] || { echo "not yet" >&2; exit 1; } ;;
esac
echo "{\"n\":$2}"
"#;

pub(super) const LEASE: Duration = Duration::from_millis(1_500);
pub(super) const DRAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Workspace {
    folder: TempDir,
    store: String,
    processes: AtomicU32,
}

/// A call that the tool really executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerEntry {
    pub(super) tool: String,
    pub(super) execution: String,
    pub(super) step: String,
    pub(super) attempt: u64,
    pub(super) key: String,
}

impl Workspace {
    pub(super) fn with_limits(store: String, limits: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Self { folder, store, processes: AtomicU32::new(0) };
        fs::write(workspace.path("tool.sh"), TOOL).unwrap();
        fs::write(workspace.path("ledger"), "").unwrap();
        let tools = ["once", "idempotent", "read"].map(|effect| workspace.tool(effect));
        let mut limits_json = json!({
            "lease_ms": millis(LEASE), "poll_ms": 100, "park_after_ms": 150,
            "cancel_grace_ms": 500, "drain_ms": millis(DRAIN),
            "calls": [
                { "tool": "ledger.idempotent", "concurrency": 6 },
                { "tool": "ledger.read", "key": "n", "rate": "100/s" },
            ],
        });
        for (key, value) in limits.as_object().into_iter().flatten() {
            limits_json[key] = value.clone();
        }
        let config = json!({
            "store": workspace.store,
            "toolsets": [{ "name": "ledger", "source": { "tools": tools } }],
            "limits": limits_json,
        });
        fs::write(workspace.path("faber.yaml"), config.to_string()).unwrap();
        workspace
    }

    pub(super) fn new(store: String) -> Self {
        Self::with_limits(store, &Value::Null)
    }

    fn tool(&self, effect: &str) -> Value {
        let (number, text) = (json!({ "type": "number" }), json!({ "type": "string" }));
        let arguments = ["{{n}}", "{{seconds}}", "{{fate}}", "{{until}}"];
        let mut command = vec![json!("sh"), json!(self.path("tool.sh")), json!(effect)];
        command.extend(arguments.map(Value::from));
        json!({
            "name": effect,
            "effect": effect,
            "parameters": {
                "type": "object",
                "properties": {
                    "n": number, "seconds": number, "fate": text, "until": number, "from": {},
                },
                "required": ["n", "seconds", "fate", "until"],
            },
            "run": { "command": command, "env": { "LEDGER": self.path("ledger") } },
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

    /// Returns the binary as a command in this folder. Dropping the process kills it.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(faber());
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        for variable in ["PATH", "FABER_LOG"] {
            command.envs(std::env::var_os(variable).map(|value| (variable, value)));
        }
        command
    }

    /// Starts the binary. Its standard error goes to a file.
    pub(super) fn spawn(&self, arguments: &[&str]) -> Process {
        let number = self.processes.fetch_add(1, Ordering::Relaxed);
        let said = self.path(&format!("output-{number:03}"));
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(File::create(&said).unwrap());
        Process::new(command.spawn().unwrap(), said)
    }

    /// Returns the standard error of every process, with its file.
    pub(super) fn outputs_of_processes(&self) -> Vec<(PathBuf, String)> {
        let count = self.processes.load(Ordering::Relaxed);
        let files = (0..count).map(|number| self.path(&format!("output-{number:03}")));
        files.map(|file| (file.clone(), read(&file))).collect()
    }

    /// Keeps the folder after the test, for debugging.
    pub(super) fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}

/// Reads a process's output so far, even if it is not valid UTF-8.
pub(super) fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

impl LedgerEntry {
    fn read(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let [tool, execution, step, attempt, key] = words[..] else {
            panic!("torn line: `{text}`")
        };
        Self {
            tool: tool.to_owned(),
            execution: execution.to_owned(),
            step: step.to_owned(),
            attempt: attempt.parse().unwrap(),
            key: key.to_owned(),
        }
    }
}
