use async_graphql::{Enum, ID, SimpleObject};
use planner::reuse::RetryScope;

use super::{
    error::{ApiResult, invalid_argument},
    finding::Remedy,
    scalar::to_int,
};

/// Steps that a retry runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub(super) enum RetryMode {
    /// Runs steps that did not succeed or were compensated. Reuses the outputs of all other steps.
    Failed,
    /// Runs `fromStep`, every later step in execution order, earlier steps without an output to
    /// reuse, and their dependents. Reuses the outputs of all other steps.
    FromStep,
    /// Runs every step.
    All,
}

pub(super) fn parse_scope(
    mode: Option<RetryMode>,
    from_step: Option<&str>,
) -> ApiResult<RetryScope<'_>> {
    match (mode, from_step) {
        (None | Some(RetryMode::All), None) => Ok(RetryScope::All),
        (Some(RetryMode::Failed), None) => Ok(RetryScope::Failed),
        (None | Some(RetryMode::FromStep), Some(step)) => Ok(RetryScope::FromStep(step)),
        (Some(RetryMode::FromStep), None) => {
            Err(invalid_argument("`mode: FROM_STEP` needs `fromStep`, the first step to run again"))
        }
        (Some(RetryMode::Failed | RetryMode::All), Some(_)) => Err(invalid_argument(
            "`fromStep` needs `mode: FROM_STEP`: change `mode`, or remove `fromStep`",
        )),
    }
}

/// Calls of a `ONCE` tool that a retry would make again. Calls of one step with the same tool and
/// outcome are counted together.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct RepeatedCall {
    /// Id of the step. Calls of a child execution are listed under the step that started it.
    step_id: String,
    /// Tool, as `set.name`.
    tool_name: String,
    /// Number of calls. Each item of a `forEach` list counts.
    calls: i64,
    /// True if it is unknown whether these calls took effect (`tool.outcome_unknown`).
    outcome_unknown: bool,
    /// Ways to settle the first of these calls instead of repeating it. Empty if its outcome is
    /// known, if an execution before the retried execution made it, or if its execution was pruned.
    remedies: Vec<Remedy>,
}

impl From<engine::RepeatedCall> for RepeatedCall {
    fn from(call: engine::RepeatedCall) -> Self {
        Self {
            step_id: call.step.to_string(),
            tool_name: call.tool.to_string(),
            calls: to_int(call.calls),
            outcome_unknown: call.outcome_unknown,
            remedies: call.remedies.into_iter().map(Remedy::from).collect(),
        }
    }
}

/// Call that undoes a step.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct UndoCall {
    /// Id of the execution that has the step, `exec_…`.
    execution_id: ID,
    /// Id of the step that the call undoes.
    step_id: String,
    /// Index of the item in the step's `forEach` list, from 0. Null for a step without a list.
    index: Option<u32>,
    /// Tool that undoes the step, as `set.name`.
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
