//! What happened, why, and what helps, as the API tells it.

use async_graphql::{Enum, ID, SimpleObject};
use serde_json::Value;

use super::{
    plan::Severity,
    scalar::{DateTime, int},
};
use crate::engine;

/// What kind of thing a finding tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "engine::FindingKind")]
pub(super) enum FindingKind {
    /// A step or the execution failed, or was cancelled.
    Failure,
    /// The execution does not go on by itself, or not yet.
    Wait,
    /// A step did not run.
    Skip,
    /// The execution went on, and somebody should know.
    Warning,
    /// Another worker continued after a worker was lost during calls.
    Takeover,
}

/// What happened, why, and what helps.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Finding {
    /// A stable code. A failure has the code of its error, such as `tool.timeout`.
    code: String,
    /// How much it matters. `INFO` needs no action.
    severity: Severity,
    /// What kind of thing it tells.
    kind: FindingKind,
    /// The step.
    step_id: Option<String>,
    /// The item of the step's `forEach`, from 0.
    index: Option<u32>,
    /// When it happened, or since when it waits.
    at: Option<DateTime>,
    /// When a wait ends by itself.
    until: Option<DateTime>,
    /// What happened and why, in one line.
    message: String,
    /// The `seq` of the event that caused it.
    cause_seq: Option<i64>,
    /// The execution that caused it, or that it waits for, `exec_…`.
    cause_execution_id: Option<ID>,
    /// What helps, best first.
    remedies: Vec<Remedy>,
}

/// An action that helps.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Remedy {
    /// The action in a few words.
    label: String,
    /// The command line. `FILE` and `MS` stand for values of your own.
    command: Option<String>,
    /// The name of the mutation. Null where only a command does it.
    mutation: Option<&'static str>,
    /// The arguments of the mutation.
    variables: Option<Value>,
    /// Whether it may repeat an effect, or cause one that cannot be undone.
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
            cause_seq: finding.cause.map(|seq| int(seq.0)),
            cause_execution_id: finding.cause_execution.map(|id| ID(id.to_string())),
            remedies: finding.remedies.into_iter().map(Remedy::from).collect(),
        }
    }
}
