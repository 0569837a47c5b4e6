//! The configuration and the tools of these tests. The tools write a ledger outside the system.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{self, LedgerLine, to_milliseconds};

/// Writes a ledger entry, works for `$3` seconds, and ends as `$4` defines: `ok`, `fail`, `odd`
/// (fails if `$2` is odd), or `flaky` (fails up to attempt `$5`).
const TOOL_SCRIPT: &str = r#"
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
pub(super) const DRAIN_LIMIT: Duration = Duration::from_secs(1);

pub(super) type Workspace = harness::Workspace<LedgerEntry>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerEntry {
    pub(super) tool: String,
    pub(super) execution: String,
    pub(super) step: String,
    pub(super) attempt: u64,
    pub(super) key: String,
}

impl harness::Workspace<LedgerEntry> {
    pub(super) fn with_limits(store: String, limits: &Value) -> Self {
        let workspace = Self::create(tempfile::tempdir().unwrap(), store, TOOL_SCRIPT);
        let (number, text) = (json!({ "type": "number" }), json!({ "type": "string" }));
        let parameters = json!({
            "type": "object",
            "properties": {
                "n": number, "seconds": number, "fate": text, "until": number, "from": {},
            },
            "required": ["n", "seconds", "fate", "until"],
        });
        let tools = ["once", "idempotent", "read"].map(|effect| {
            let arguments = [effect, "{{n}}", "{{seconds}}", "{{fate}}", "{{until}}"];
            workspace.describe_tool(effect, effect, &parameters, &arguments)
        });
        let usual = json!({
            "lease_ms": to_milliseconds(LEASE), "poll_ms": 100, "park_after_ms": 150,
            "cancel_grace_ms": 500, "drain_ms": to_milliseconds(DRAIN_LIMIT),
            "calls": [
                { "tool": "ledger.idempotent", "concurrency": 6 },
                { "tool": "ledger.read", "key": "n", "rate": "100/s" },
            ],
        });
        let set = json!({ "name": "ledger", "source": { "tools": tools } });
        workspace.configure("faber.yaml", &[set], usual, limits);
        workspace
    }

    pub(super) fn new(store: String) -> Self {
        Self::with_limits(store, &Value::Null)
    }
}

impl LedgerLine for LedgerEntry {
    fn from_words([tool, execution, step, attempt, key]: [&str; 5]) -> Self {
        Self {
            tool: tool.to_owned(),
            execution: execution.to_owned(),
            step: step.to_owned(),
            attempt: attempt.parse().unwrap(),
            key: key.to_owned(),
        }
    }
}
