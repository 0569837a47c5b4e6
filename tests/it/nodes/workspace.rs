//! The configuration of these tests, and a tool that logs start and end of its calls.

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};

use super::node::Node;
use crate::harness::{self, LedgerLine, to_milliseconds};

/// Logs the start of a call, works for `$2` seconds, and logs the end of the call. Every line is
/// one write to the end of one file, so the lines of all nodes are sorted by time.
const TOOL_SCRIPT: &str = r#"
say() { printf '%s %s %s %s %s\n' "$1" "$2" "$FABER_EXECUTION_ID" "$FABER_IDEMPOTENCY_KEY" \
  "$FABER_ATTEMPT" >>"$LEDGER"; }
say begin "$1"
[ "$2" = 0 ] || sleep "$2"
say end "$1"
echo "{\"n\":$3}"
"#;

/// The lease of these tests, unless a test sets another one.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// A lease in milliseconds for tests that fail if a slow node seems lost.
pub(super) const LONG_LEASE_MS: u64 = 30_000;
pub(super) const DRAIN_LIMIT: Duration = Duration::from_millis(1_500);
/// Extra time of every wait, because the machine can be busy.
pub(super) const DEFAULT_MARGIN: Duration = Duration::from_secs(20);

/// Names and effects of the tools in the set `ledger`.
const LEDGER_TOOLS: [(&str, &str); 5] = [
    ("read", "read"),
    ("once", "once"),
    ("pair", "idempotent"),
    ("single", "idempotent"),
    ("held", "once"),
];

pub(super) type Workspace = harness::Workspace<LedgerEntry>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerEntry {
    /// `true` for the start of a call, `false` for the end.
    pub(super) is_start: bool,
    pub(super) tool: String,
    pub(super) execution: String,
    /// The idempotency key, which is the same for all attempts of a step or an item.
    pub(super) key: String,
    pub(super) attempt: u64,
}

impl harness::Workspace<LedgerEntry> {
    pub(super) fn new(store: String, limits: &Value) -> Self {
        let workspace = Self::create(tempfile::tempdir().unwrap(), store, TOOL_SCRIPT);
        let usual = json!({
            "lease_ms": to_milliseconds(LEASE), "poll_ms": 100, "park_after_ms": 150,
            "cancel_grace_ms": 500, "drain_ms": to_milliseconds(DRAIN_LIMIT),
        });
        let near = workspace.describe_set("ledger", &LEDGER_TOOLS);
        let far = workspace.describe_set("far", &LEDGER_TOOLS[..2]);
        workspace.configure("faber.yaml", std::slice::from_ref(&near), usual.clone(), limits);
        workspace.configure("far.yaml", &[near, far], usual, limits);
        workspace
    }

    fn describe_set(&self, set: &str, tools: &[(&str, &str)]) -> Value {
        let number = json!({ "type": "number" });
        let parameters = json!({
            "type": "object",
            "properties": { "n": number, "seconds": number, "from": {} },
            "required": ["n", "seconds"],
        });
        let describe = |(name, effect): &(&str, &str)| {
            let full = format!("{set}.{name}");
            self.describe_tool(name, effect, &parameters, &[&full, "{{seconds}}", "{{n}}"])
        };
        let tools: Vec<Value> = tools.iter().map(describe).collect();
        json!({ "name": set, "source": { "tools": tools } })
    }

    pub(super) async fn start_server(&self) -> Node {
        self.start_server_with(&[]).await
    }

    /// Starts a server with the toolset `far`, which the other servers lack.
    pub(super) async fn start_far_server(&self) -> Node {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--config", "far.yaml"];
        Node::wait_for_server(self.spawn(&arguments)).await
    }

    pub(super) async fn start_worker(&self) -> Node {
        Node::wait_for_worker(self.spawn(&["worker"])).await
    }

    pub(super) async fn start_server_with(&self, variables: &[(&str, PathBuf)]) -> Node {
        Node::wait_for_server(self.spawn_with(&["serve", "--listen", "127.0.0.1:0"], variables))
            .await
    }
}

impl LedgerLine for LedgerEntry {
    fn from_words([kind, tool, execution, key, attempt]: [&str; 5]) -> Self {
        Self {
            is_start: kind == "begin",
            tool: tool.to_owned(),
            execution: execution.to_owned(),
            key: key.to_owned(),
            attempt: attempt.parse().unwrap(),
        }
    }
}
