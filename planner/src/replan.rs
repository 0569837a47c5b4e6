//! Replanning: the next version of a plan that did not complete.

mod carry_over;
mod detour;
pub mod repeat_guard;

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use shared::{
    execution::{Execution, ExecutionState, Step, StepState},
    id::ExecutionId,
    plan::ToolExecution,
    request::TranscriptEntry,
    tool::{Effect, ToolError},
};

pub use self::{
    carry_over::carry_over,
    detour::{Detour, Failure, failures_of, find_detour},
    repeat_guard::RepeatGuard,
};
use crate::draft::Draft;

const MAX_SHOWN_ITEMS: usize = 256;
/// The transcript entry of a replan. An automatic replan stores it before the model is asked.
pub const ATTEMPT: &str = "replan";
pub const GIVEN_UP: &str = "replan_given_up";

#[derive(Clone, Debug, PartialEq)]
pub struct EarlierPlan {
    pub draft: Draft,
    pub results: Vec<StepResult>,
    pub reason: String,
    /// `true` if the execution completed and one of its steps asked for the replan.
    pub is_requested: bool,
    /// The calls that only read and failed permanently, in this version and in earlier versions.
    pub failures: Vec<Failure>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepResult {
    pub step: String,
    /// `succeeded`, `failed`, `unknown` (the outcome is unknown), `skipped`, `cancelled`, `undone`,
    /// or `undoing_failed`.
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<&'static str>,
    /// The error with the effect of the tool. A model gets only the text of the error.
    #[serde(skip)]
    pub failure: Option<(Effect, ToolError)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    pub started: usize,
    pub given_up: Option<String>,
}

impl EarlierPlan {
    pub fn of(ended: &Execution) -> Self {
        let plan = ended.plan();
        let steps = plan.steps().iter().zip(ended.steps());
        Self {
            draft: Draft::for_export(plan),
            results: steps.map(|(planned, step)| step_result(planned, step)).collect(),
            reason: reason(ended),
            is_requested: ended.state() == ExecutionState::Completed,
            failures: failures_of(ended),
        }
    }
}

impl Attempts {
    pub fn read(transcript: &[TranscriptEntry], id: ExecutionId) -> Self {
        let id = id.to_string();
        let mut attempts = Self::default();
        for entry in transcript.iter().filter(|entry| entry.content["executionId"] == id) {
            match entry.kind.as_str() {
                ATTEMPT if entry.content["automatic"] == true => attempts.started += 1,
                GIVEN_UP => {
                    let message = entry.content["message"].as_str().unwrap_or_default();
                    attempts.given_up = Some(message.to_owned());
                }
                _ => (),
            }
        }
        attempts
    }
}

/// Returns the id of the execution that continues a finished execution. The id is derived, so two
/// replans of one execution start the same execution.
pub fn next_execution(ended: &Execution) -> ExecutionId {
    let at = ended.finished_at().unwrap_or_else(|| ended.created_at());
    ExecutionId::derive_child(at, &format!("{}/replan", ended.id()))
}

pub fn reason(ended: &Execution) -> String {
    if ended.state() == ExecutionState::Completed
        && let Some((step, returned)) = ended.replan_request()
    {
        return match returned.get("goal").and_then(Value::as_str) {
            Some(goal) => format!("`{step}` asks for it: {goal}"),
            None => format!("`{step}` asks for it"),
        };
    }
    let steps = ended.plan().steps().iter().zip(ended.steps());
    let mut failed = steps.filter_map(|(planned, step)| match &step.state {
        StepState::Failed(error) if !step.has_started_compensation() => Some((&planned.id, error)),
        _ => None,
    });
    match failed.next() {
        Some((step, error)) => format!("`{step}` failed: {}: {}", error.code, error.message),
        None if ended.missed_deadline() => "its time was up".to_owned(),
        None => format!("it is {}", ended.state().as_str()),
    }
}

fn step_result(planned: &ToolExecution, step: &Step) -> StepResult {
    let (mut output, mut error, mut failure) = (None, None, None);
    let state = match &step.state {
        _ if step.is_compensated() => "undone",
        _ if step.has_started_compensation() => "undoing_failed",
        StepState::Succeeded(returned) => {
            output = Some(Arc::clone(returned));
            "succeeded"
        }
        StepState::Failed(err) => {
            error = Some(format!("{}: {}", err.code, err.message));
            failure = Some((planned.policy.effect, err.clone()));
            if err.is_definite { "failed" } else { "unknown" }
        }
        StepState::Skipped(_) => "skipped",
        _ => "cancelled",
    };
    let items = step.items.iter().flat_map(|items| items.as_slice());
    let items = items.take(MAX_SHOWN_ITEMS).map(|item| step_result(planned, item).state).collect();
    StepResult { step: planned.id.to_string(), state, output, error, items, failure }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::clock::Timestamp;

    use super::*;

    #[test]
    fn attempts_count_only_replans_of_one_execution() {
        let id: ExecutionId = "exec_1_aaaaaaaaa".parse().unwrap();
        let entry = |kind: &str, content: Value| TranscriptEntry {
            at: Timestamp::UNIX_EPOCH,
            kind: kind.to_owned(),
            content,
        };
        let with_own = |more: Value| {
            let mut content = json!({ "executionId": id });
            shared::json::apply_merge_patch(&mut content, &more);
            content
        };
        let transcript = [
            entry(ATTEMPT, with_own(json!({}))),
            entry(ATTEMPT, with_own(json!({ "automatic": true }))),
            entry(ATTEMPT, json!({ "executionId": "exec_2_aaaaaaaaa", "automatic": true })),
            entry(GIVEN_UP, json!({ "executionId": "exec_2_aaaaaaaaa", "message": "m" })),
        ];
        assert_eq!(Attempts::read(&transcript, id), Attempts { started: 1, given_up: None });
        let other = "exec_2_aaaaaaaaa".parse().unwrap();
        assert_eq!(
            Attempts::read(&transcript, other),
            Attempts { started: 1, given_up: Some("m".to_owned()) }
        );
    }
}
