//! Steps of an execution, and how they failed.

use std::sync::Arc;

use async_graphql::{Enum, Object, SimpleObject};
use serde_json::Value;
use shared::{
    event::WaitReason,
    execution::{self, Execution, Step},
    id::StepIx,
    plan::ToolExecution,
    tool::ToolError,
};

use super::scalar::{DateTime, milliseconds};

/// Where a step is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub(super) enum StepState {
    /// Not begun.
    Pending,
    /// An attempt is under way.
    Running,
    /// An attempt failed or was interrupted; another will begin.
    Retrying,
    /// It waits for a person or a signal.
    Waiting,
    /// Over: the tool returned an output.
    Succeeded,
    /// Over: the last attempt failed.
    Failed,
    /// Over: it did not run.
    Skipped,
    /// Over: it was stopped, or did not run because the execution was.
    Cancelled,
}

impl From<&execution::StepState> for StepState {
    fn from(state: &execution::StepState) -> Self {
        match state {
            execution::StepState::Pending => Self::Pending,
            execution::StepState::Running { .. } | execution::StepState::Gathering { .. } => {
                Self::Running
            }
            execution::StepState::Retrying { .. } => Self::Retrying,
            execution::StepState::Waiting(_) => Self::Waiting,
            execution::StepState::Succeeded(_) => Self::Succeeded,
            execution::StepState::Failed(_) => Self::Failed,
            execution::StepState::Skipped(_) => Self::Skipped,
            execution::StepState::Cancelled => Self::Cancelled,
        }
    }
}

/// How a step failed.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct StepError {
    /// The step.
    step_id: String,
    /// Its tool, as `set.name`.
    tool_name: String,
    /// A stable code such as `tool.timeout`.
    code: String,
    /// What happened and what to do.
    message: String,
    /// Which try it was, from 1.
    attempt: u32,
    /// Whether another try can help.
    retryable: bool,
}

/// A step as it now stands.
pub(super) struct StepStatus {
    execution: Arc<Execution>,
    number: StepIx,
}

impl StepStatus {
    /// Returns every step, in plan order.
    pub(super) fn all(execution: &Arc<Execution>) -> Vec<Self> {
        let numbers = (0..execution.steps().len()).map(StepIx::new);
        numbers.map(|number| Self { execution: Arc::clone(execution), number }).collect()
    }

    /// Returns the step called `name`, if there is one.
    pub(super) fn find(execution: &Arc<Execution>, name: &str) -> Option<Self> {
        let number = execution.plan().number(&name.parse().ok()?)?;
        Some(Self { execution: Arc::clone(execution), number })
    }

    fn now(&self) -> &Step {
        self.execution.step(self.number)
    }

    fn planned(&self) -> &ToolExecution {
        self.execution.plan().step(self.number)
    }

    /// Returns how it failed, if it is over and did.
    pub(super) fn failure(&self) -> Option<StepError> {
        match &self.now().state {
            execution::StepState::Failed(error) => Some(self.described(error)),
            _ => None,
        }
    }

    fn described(&self, error: &ToolError) -> StepError {
        StepError {
            step_id: self.planned().id.to_string(),
            tool_name: self.planned().tool.to_string(),
            code: error.code.to_string(),
            message: error.message.to_string(),
            attempt: self.now().attempts.max(1),
            retryable: error.retryable,
        }
    }
}

/// A step as it now stands.
#[Object]
impl StepStatus {
    /// Its name within the plan.
    async fn step_id(&self) -> &str {
        self.planned().id.as_str()
    }

    /// The tool, as `set.name`.
    async fn tool_name(&self) -> &str {
        self.planned().tool.as_str()
    }

    /// Where it is in its life.
    async fn state(&self) -> StepState {
        StepState::from(&self.now().state)
    }

    /// How many attempts began.
    async fn attempts(&self) -> u32 {
        self.now().attempts
    }

    /// When the first attempt, or the wait before it, began.
    async fn started_at(&self) -> Option<DateTime> {
        self.now().started_at.map(DateTime)
    }

    /// When it was over.
    async fn finished_at(&self) -> Option<DateTime> {
        self.now().finished_at.map(DateTime)
    }

    /// How long it took in all, waits between attempts included, in milliseconds. Null until it
    /// is over.
    async fn duration_ms(&self) -> Option<f64> {
        let step = self.now();
        Some(milliseconds(step.started_at?, step.finished_at?))
    }

    /// The parameters of the last attempt, with every template filled in.
    async fn resolved_parameters(&self) -> Option<&Value> {
        self.now().parameters.as_deref()
    }

    /// What the tool returned.
    async fn output(&self) -> Option<&Value> {
        match &self.now().state {
            execution::StepState::Succeeded(output) => Some(output),
            _ => None,
        }
    }

    /// How it failed; while it waits for another try or for a decision, how the last attempt did.
    async fn error(&self) -> Option<StepError> {
        match &self.now().state {
            execution::StepState::Failed(error)
            | execution::StepState::Retrying { error: Some(error), .. }
            | execution::StepState::Waiting(WaitReason::Decision { error }) => {
                Some(self.described(error))
            }
            _ => None,
        }
    }

    /// What is worth knowing about its parameters: templates that found nothing.
    async fn warnings(&self) -> &[String] {
        &self.now().warnings
    }
}
