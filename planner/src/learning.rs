//! Lessons from finished executions: tools that follow each other, and tools that succeed for a
//! query.

use serde::{Deserialize, Serialize};
use shared::{
    clock::Timestamp,
    execution::{Execution, ExecutionState, StepState},
    id::ToolName,
};

use crate::{EXPLICIT_PLANNER, select::Outcomes, toolkit::learned::Learned};

/// Error codes of failures that the tool did not cause.
const CODES_WITHOUT_BLAME: [&str; 4] =
    ["tool.cancelled", "tool.inactive", "tool.outcome_unknown", "tool.unavailable"];

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lessons {
    /// The executions that finished up to this time were read.
    pub until: Option<Timestamp>,
    /// The queries up to this time were read. Set only if the embedder failed, so that the time is
    /// earlier than `until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_until: Option<Timestamp>,
    pub learned: Learned,
    #[serde(default)]
    pub outcomes: Outcomes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolSequence {
    pub tools: Vec<ToolName>,
    /// Pairs of indexes into `tools`. The second tool follows the first tool.
    pub transitions: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryOutcome {
    pub query: String,
    pub tools: Vec<(ToolName, bool)>,
    pub at: Timestamp,
}

impl ToolSequence {
    /// Reads the calls of an execution that succeeded. `is_chosen` excludes tools that a planner
    /// did not choose, such as the tools of agents.
    pub fn read(execution: &Execution, is_chosen: impl Fn(&ToolName) -> bool) -> Self {
        if execution.state() != ExecutionState::Completed {
            return Self::default();
        }
        let steps = execution.plan().steps();
        let mut places = vec![None; steps.len()];
        let mut tools = Vec::new();
        for (index, (planned, step)) in steps.iter().zip(execution.steps()).enumerate() {
            if matches!(step.state, StepState::Succeeded(_)) && is_chosen(&planned.tool) {
                places[index] = Some(tools.len());
                tools.push(planned.tool.clone());
            }
        }
        let mut transitions = Vec::new();
        for (index, planned) in steps.iter().enumerate() {
            let Some(to) = places[index] else { continue };
            let from = planned.depends_on.iter().filter_map(|number| places[number.get()]);
            transitions.extend(from.map(|from| (from, to)));
        }
        if transitions.is_empty() {
            transitions.extend((1..tools.len()).map(|index| (index - 1, index)));
        }
        Self { tools, transitions }
    }
}

impl QueryOutcome {
    /// Reads the outcome of a plan that a planner made for a query. Returns `None` for other plans,
    /// and if no tool has an outcome.
    pub fn read(
        execution: &Execution,
        at: Timestamp,
        is_chosen: impl Fn(&ToolName) -> bool,
    ) -> Option<Self> {
        let about = execution.plan().info();
        if about.planner == EXPLICIT_PLANNER || about.query.trim().is_empty() {
            return None;
        }
        let is_completed = execution.state() == ExecutionState::Completed;
        let steps = execution.plan().steps().iter().zip(execution.steps());
        let tools: Vec<(ToolName, bool)> = steps
            .filter(|(planned, _)| is_chosen(&planned.tool))
            .filter_map(|(planned, step)| match &step.state {
                // Skips a reused step, because it counts in the execution that ran it.
                StepState::Succeeded(_) if is_completed && step.attempts > 0 => {
                    Some((planned.tool.clone(), true))
                }
                StepState::Failed(err) if is_tool_failure(err.code.as_str()) => {
                    Some((planned.tool.clone(), false))
                }
                _ => None,
            })
            .collect();
        (!tools.is_empty()).then(|| Self { query: about.query.clone(), tools, at })
    }
}

fn is_tool_failure(code: &str) -> bool {
    code.starts_with("tool.") && !CODES_WITHOUT_BLAME.contains(&code)
}
