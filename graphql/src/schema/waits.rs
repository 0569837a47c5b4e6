//! Waits: the findings of kind `WAIT`, in the form of earlier versions of the API.

use async_graphql::{ID, SimpleObject};
use engine::{Finding, FindingKind};

use super::scalar::DateTime;

/// Reason why an execution is not progressing now. `Execution.findings` has more details.
#[derive(Clone, Debug, SimpleObject)]
#[graphql(complex)]
pub(super) struct Wait {
    /// Kind of the wait: `approval`, `decision`, `signal`, `retry`, `sleep`, `child`, `limit`,
    /// `call`, `items`, `paused`, `start`, `tool` or `worker`.
    pub(super) kind: String,
    /// Id of the waiting step. Null if the whole execution waits.
    step_id: Option<String>,
    /// Index of the item in the step's `forEach` list, from 0. Null if the step itself waits.
    index: Option<u32>,
    /// Name of the awaited signal or tool, or key of the limit on calls. Null if the wait has none
    /// of these.
    name: Option<String>,
    /// Id of the awaited child execution, `exec_…`. Null if the wait is not for a child.
    execution_id: Option<ID>,
    /// Time at which the wait ends without an action. Null if there is no such time.
    until: Option<DateTime>,
    /// Explanation of the wait, in one line.
    message: String,
}

impl Wait {
    /// Returns `None` for findings that are not waits.
    pub(super) fn from_finding(finding: Finding) -> Option<Self> {
        let kind = finding.code.strip_prefix("wait.")?.to_owned();
        (finding.kind == FindingKind::Wait).then(|| Self {
            kind,
            step_id: finding.step.map(|step| step.to_string()),
            index: finding.index,
            name: finding.awaited,
            execution_id: finding.cause_execution.map(|id| ID(id.to_string())),
            until: finding.until.map(DateTime),
            message: finding.message,
        })
    }
}
