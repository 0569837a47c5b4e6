//! What an execution waits for: the findings of this kind, in the form of earlier versions.

use async_graphql::{ID, SimpleObject};

use super::scalar::DateTime;
use crate::engine::{Finding, FindingKind};

/// A reason why an execution does not go on by itself, now. `findings` has more of it.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Wait {
    /// What kind of reason: `approval`, `decision`, `signal`, `retry`, `sleep`, `child`, `limit`,
    /// `call`, `items`, `paused`, `start`, `tool` or `worker`.
    kind: String,
    /// The step that waits.
    step_id: Option<String>,
    /// The item of its `forEach`, from 0.
    index: Option<u32>,
    /// What it waits for: the name of a signal, or the key of a limit.
    name: Option<String>,
    /// The execution that it waits for, `exec_…`.
    execution_id: Option<ID>,
    /// Until when, where that is known.
    until: Option<DateTime>,
    /// All of it in words.
    message: String,
}

impl Wait {
    /// Returns the wait that a finding tells, if it tells one.
    pub(super) fn of(finding: Finding) -> Option<Self> {
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
