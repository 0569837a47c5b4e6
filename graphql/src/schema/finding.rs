use async_graphql::{Enum, ID, SimpleObject};
use serde_json::Value;

use super::{
    plan::Severity,
    scalar::{DateTime, to_int},
};

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "engine::FindingKind")]
pub(super) enum FindingKind {
    /// A step or the execution failed, or was cancelled.
    Failure,
    /// The execution waits, or no worker continues it.
    Wait,
    /// A step did not run.
    Skip,
    /// The execution continued, but a person should check it.
    Warning,
    /// The worker of the execution was lost during calls, and another worker continued the
    /// execution.
    Takeover,
}

/// Reason why an execution failed, waits or skipped a step, or a warning about it.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Finding {
    /// Code, which later versions do not change, such as `wait.approval`. A finding about a failed
    /// step has the code of the step's error, such as `tool.timeout`.
    code: String,
    /// Severity. `INFO` needs no action.
    severity: Severity,
    /// Kind of the finding.
    kind: FindingKind,
    /// Id of the step. Null if the finding is about the whole execution.
    step_id: Option<String>,
    /// Index of the item in the step's `forEach` list, from 0. Null if the finding is about the
    /// step itself.
    index: Option<u32>,
    /// Time of the failure, skip, warning or takeover. For a wait, the time at which the wait
    /// began.
    at: Option<DateTime>,
    /// Time at which a wait ends without an action. Null for other findings, and if there is no
    /// such time.
    until: Option<DateTime>,
    /// Message in one line: what happened, and why.
    message: String,
    /// Sequence number of the event that caused the finding. Null if no event caused it.
    cause_seq: Option<i64>,
    /// Id of the execution that caused the finding, or of the child execution that the execution
    /// waits for, `exec_…`. Null otherwise.
    cause_execution_id: Option<ID>,
    /// Actions that help, best first.
    remedies: Vec<Remedy>,
}

/// Action that helps with a finding.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Remedy {
    /// Short name of the action.
    label: String,
    /// Command line that performs the action. Replace placeholders such as `FILE` and `MS` with
    /// your own values. Null if only a mutation can perform the action.
    command: Option<String>,
    /// Name of the mutation that performs the action. Null if only a command can perform the
    /// action.
    mutation: Option<&'static str>,
    /// Arguments of the mutation. Null without a mutation.
    variables: Option<Value>,
    /// True if the action can repeat an effect, or can cause an effect that cannot be undone.
    is_dangerous: bool,
}

impl From<engine::Remedy> for Remedy {
    fn from(remedy: engine::Remedy) -> Self {
        let engine::Remedy { label, command, mutation, variables, is_dangerous } = remedy;
        Self { label, command, mutation, variables, is_dangerous }
    }
}

impl From<engine::Finding> for Finding {
    fn from(finding: engine::Finding) -> Self {
        Self {
            code: finding.code.into_owned(),
            severity: finding.severity.into(),
            kind: finding.kind.into(),
            step_id: finding.step.map(|step| step.to_string()),
            index: finding.index,
            at: finding.at.map(DateTime),
            until: finding.until.map(DateTime),
            message: finding.message,
            cause_seq: finding.cause.map(|seq| to_int(seq.0)),
            cause_execution_id: finding.cause_execution.map(|id| ID(id.to_string())),
            remedies: finding.remedies.into_iter().map(Remedy::from).collect(),
        }
    }
}
