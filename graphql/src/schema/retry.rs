//! How much a retry does again, the calls that it would repeat, and the calls that undo an execution.

use async_graphql::{Enum, ID, SimpleObject};
use planner::reuse::RetryScope;

use super::{
    error::{ApiResult, invalid},
    scalar::int,
};
use crate::engine;

/// How much of an ended execution a retry does again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub(super) enum RetryMode {
    /// The steps that did not succeed, and those that were compensated. The outputs of all others are
    /// taken over.
    Failed,
    /// `fromStep` and everything behind it.
    FromStep,
    /// Every step.
    All,
}

/// Reads how much a retry does again.
pub(super) fn scope(mode: Option<RetryMode>, from_step: Option<&str>) -> ApiResult<RetryScope<'_>> {
    match (mode, from_step) {
        (None | Some(RetryMode::All), None) => Ok(RetryScope::All),
        (Some(RetryMode::Failed), None) => Ok(RetryScope::Failed),
        (None | Some(RetryMode::FromStep), Some(step)) => Ok(RetryScope::FromStep(step)),
        (Some(RetryMode::FromStep), None) => {
            Err(invalid("`mode: FROM_STEP` needs `fromStep`: the step to begin with"))
        }
        (Some(RetryMode::Failed | RetryMode::All), Some(_)) => {
            Err(invalid("`fromStep` goes with `mode: FROM_STEP` only: leave one of them out"))
        }
    }
}

/// Calls of a tool with the effect `ONCE` that were made, or may have been, and that a retry would
/// make again: one entry for each step, tool and outcome.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct RepeatedCall {
    /// The step of the execution. Calls of a sub-plan stand under the step that executes it.
    step_id: String,
    /// The tool that would be called, as `set.name`.
    tool_name: String,
    /// How many calls: one for each item of a `forEach`.
    calls: i64,
    /// Whether nobody knows if these calls took effect (`tool.outcome_unknown`).
    outcome_unknown: bool,
}

impl From<engine::RepeatedCall> for RepeatedCall {
    fn from(call: engine::RepeatedCall) -> Self {
        Self {
            step_id: call.step.to_string(),
            tool_name: call.tool.to_string(),
            calls: int(call.calls),
            outcome_unknown: call.outcome_unknown,
        }
    }
}

/// A call that undoes a step.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct UndoCall {
    /// The execution of the step, `exec_…`.
    execution_id: ID,
    /// The step.
    step_id: String,
    /// The item of its `forEach`, from 0.
    index: Option<u32>,
    /// The tool that undoes it, as `set.name`.
    tool_name: String,
}

impl From<engine::UndoCall> for UndoCall {
    fn from(call: engine::UndoCall) -> Self {
        Self {
            execution_id: ID(call.execution.to_string()),
            step_id: call.step.to_string(),
            index: call.item,
            tool_name: call.tool.to_string(),
        }
    }
}
