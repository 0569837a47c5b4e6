//! The configuration and the tools of these tests. The tools write a ledger.

use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tests::toolset::MAX_WAIT;

use crate::harness::{self, LedgerLine, Process};

/// Writes a ledger entry with the size of the parameters, syncs it, works for `$3` seconds, and
/// returns `$2` plus one.
const TOOL_SCRIPT: &str = r#"
bytes=$(wc -c)
printf '%s %s %s %s %s\n' \
    "$1" "$FABER_STEP_ID" "$FABER_ATTEMPT" "$FABER_IDEMPOTENCY_KEY" "$bytes" >>"$LEDGER"
sync "$LEDGER"
sleep "$3"
echo "{\"n\":$(($2 + 1))}"
"#;

pub(super) type Workspace = harness::Workspace<LedgerEntry>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerEntry {
    pub(super) tool: String,
    pub(super) step: String,
    pub(super) attempt: u32,
    pub(super) key: String,
    /// Bytes of parameters that the tool read from standard input.
    pub(super) bytes: usize,
}

impl harness::Workspace<LedgerEntry> {
    pub(super) fn with_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("sqlite:{}", folder.path().join("faber.db").display());
        Self::in_folder(folder, store)
    }

    pub(super) fn with_store(store: String) -> Self {
        Self::in_folder(tempfile::tempdir().unwrap(), store)
    }

    fn in_folder(folder: TempDir, store: String) -> Self {
        let workspace = Self::create(folder, store, TOOL_SCRIPT);
        let number = json!({ "type": "number" });
        let parameters = json!({
            "type": "object",
            "properties": { "n": number, "seconds": number },
            "required": ["n", "seconds"],
        });
        let tools = ["once", "idempotent", "read"].map(|effect| {
            let arguments = [effect, "{{n}}", "{{seconds}}"];
            workspace.describe_tool(effect, effect, &parameters, &arguments)
        });
        let set = json!({ "name": "ledger", "source": { "tools": tools } });
        // With these limits, other workers take over soon, and an execution that sleeps longer than
        // 100 ms is parked.
        let limits = json!({ "lease_ms": 1_000, "poll_ms": 50, "park_after_ms": 100 });
        workspace.configure("faber.yaml", &[set], limits, &json!({}));
        workspace
    }

    pub(super) async fn start_server(&self) -> (Process, String) {
        let mut server = self.spawn(&["serve", "--listen", "127.0.0.1:0"]);
        match server.wait_for_address().await {
            Ok(address) => (server, address),
            Err(status) => panic!("the server ended with {status}: {}", server.output()),
        }
    }

    pub(super) async fn start_worker(&self) -> Process {
        let mut worker = self.spawn(&["worker"]);
        match worker.wait_for_worker().await {
            Ok(()) => worker,
            Err(status) => panic!("the worker ended with {status}: {}", worker.output()),
        }
    }

    pub(super) async fn kill_early(&self, life: Duration) {
        let mut server = self.spawn(&["serve", "--listen", "127.0.0.1:0"]);
        let ended = server.wait_for_exit(life).await;
        assert!(ended.is_none(), "the server ended without being killed: {ended:?}");
        server.kill().await;
    }
}

pub(super) async fn drain(mut process: Process) {
    process.drain(MAX_WAIT).await.unwrap_or_else(|error| panic!("the process {error}"));
}

impl LedgerLine for LedgerEntry {
    fn from_words([tool, step, attempt, key, bytes]: [&str; 5]) -> Self {
        let (attempt, bytes) = (attempt.parse().unwrap(), bytes.parse().unwrap());
        Self { tool: tool.to_owned(), step: step.to_owned(), attempt, key: key.to_owned(), bytes }
    }
}
