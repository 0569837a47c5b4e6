use std::sync::Arc;

use async_graphql::{Context, Enum, ID, Object, Result, SimpleObject};
use engine::valid_warnings;
use executor::machine;
use planner::rounded;
use serde_json::Value;
use shared::{
    event::{SkipReason, WaitReason},
    execution::{self, AttemptKind, Execution, Items, Step},
    id::{StepNumber, Task},
    plan::{OnError, ToolExecution},
    tool::{ErrorCode, ToolError},
};

use super::{
    connection::check_count,
    error::invalid_argument,
    execution::ApiExecution,
    loaders::Loaders,
    scalar::{DateTime, milliseconds_between, to_milliseconds},
    step_progress::{ItemTally, Progress},
    text_enums::{self, StepWait},
};

const MAX_ITEMS: usize = 10_000;
/// End of the node id of the call that undoes a step.
const UNDO_SUFFIX: &str = "/undo";

/// State of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(name = "StepState")]
pub(super) enum ApiStepState {
    /// The step has not started.
    Pending,
    /// An attempt is running, or items of the step's list are running.
    Running,
    /// An attempt failed or was interrupted, and another one is scheduled.
    Retrying,
    /// Waits for a person or a signal. See `waitsFor`.
    Waiting,
    /// Finished with an output.
    Succeeded,
    /// Finished with an error.
    Failed,
    /// Finished without running. See `skipReason`.
    Skipped,
    /// Stopped by a cancellation, or prevented from starting. Also a loop that ended early because
    /// the execution failed.
    Cancelled,
    /// Succeeded, and then undone.
    Compensated,
}

impl ApiStepState {
    pub(super) fn of(step: &Step) -> Self {
        match &step.state {
            execution::StepState::Pending => Self::Pending,
            execution::StepState::Gathering { .. }
                if step.items.as_deref().is_some_and(Items::only_waits) =>
            {
                Self::Waiting
            }
            execution::StepState::Running { .. } | execution::StepState::Gathering { .. } => {
                Self::Running
            }
            execution::StepState::Retrying { .. } => Self::Retrying,
            execution::StepState::Waiting(_) => Self::Waiting,
            execution::StepState::Succeeded(_) if step.is_compensated() => Self::Compensated,
            execution::StepState::Succeeded(_) => Self::Succeeded,
            execution::StepState::Failed(_) => Self::Failed,
            execution::StepState::Skipped(_) => Self::Skipped,
            execution::StepState::Cancelled => Self::Cancelled,
        }
    }
}

/// Outcome of a call, as a person settled it because the outcome was unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "shared::event::Settled")]
pub(super) enum SettledOutcome {
    /// The call took effect.
    Succeeded,
    /// The call had no effect.
    Failed,
}

/// Call that undoes a step.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct CompensatingCall {
    /// Tool, as `set.name`.
    tool_name: String,
    /// Parameters of the call, with all templates rendered.
    parameters: Value,
}

/// Error of a step.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct StepError {
    /// Id of the step within the plan.
    step_id: String,
    /// Index of the failed item in the step's `forEach` list, from 0. Null for a step without a
    /// list.
    index: Option<u32>,
    /// Tool, as `set.name`.
    tool_name: String,
    /// Stable code such as `tool.timeout`.
    code: String,
    /// Message: what happened, and what to do.
    message: String,
    /// Number of the failed attempt, from 1.
    attempt: u32,
    /// True if another attempt can succeed.
    retryable: bool,
}

impl StepError {
    pub(super) fn is_missed_deadline(&self) -> bool {
        self.code == ErrorCode::DEADLINE.as_str()
    }

    #[cfg(test)]
    pub(super) fn step_and_code(&self) -> (String, String) {
        (self.step_id.clone(), self.code.clone())
    }
}

pub(super) struct StepStatus {
    execution: Arc<Execution>,
    task: Task,
}

impl StepStatus {
    pub(super) fn list_all(execution: &Arc<Execution>) -> Vec<Self> {
        let numbers = (0..execution.steps().len()).map(StepNumber::new);
        numbers
            .map(|number| Self { execution: Arc::clone(execution), task: number.into() })
            .collect()
    }

    pub(super) fn find(execution: &Arc<Execution>, name: &str) -> Option<Self> {
        let number = execution.plan().step_number(&name.parse().ok()?)?;
        Some(Self { execution: Arc::clone(execution), task: number.into() })
    }

    /// Finds a step by the part of its node id after the id of the execution.
    pub(super) fn find_by_path(execution: &Arc<Execution>, path: &str) -> Option<Self> {
        let (place, is_undo) = match path.strip_suffix(UNDO_SUFFIX) {
            Some(place) => (place, true),
            None => (path, false),
        };
        let (step, item) = match place.strip_suffix(']').and_then(|place| place.split_once('[')) {
            Some((step, item)) => (step, Some(item.parse().ok()?)),
            None => (place, None),
        };
        let whole = Self::find(execution, step)?;
        let task = item.map_or(whole.task, |item| whole.task.for_item(item));
        let task = if is_undo { task.compensation() } else { task };
        // Other spellings of a number, such as `[03]`, are not ids.
        let found = whole.status_of(task)?;
        (found.path() == path).then_some(found)
    }

    fn path(&self) -> String {
        let item = self.task.part.item.map(|item| format!("[{item}]")).unwrap_or_default();
        let undo = if self.task.part.undo { UNDO_SUFFIX } else { "" };
        format!("{}{item}{undo}", self.planned_step().id)
    }

    pub(super) fn node_id(&self) -> String {
        format!("{}/{}", self.execution.id(), self.path())
    }

    fn status_of(&self, task: Task) -> Option<Self> {
        let execution = Arc::clone(&self.execution);
        self.execution.task(task).map(|_| Self { execution, task })
    }

    fn current_step(&self) -> &Step {
        self.execution.task(self.task).expect("only existing tasks are shown")
    }

    fn planned_step(&self) -> &ToolExecution {
        self.execution.plan().step(self.task.step)
    }

    /// Returns the error of a failed step. If `onError` allows failures of items, also returns the
    /// errors of the items.
    pub(super) fn list_errors(&self) -> Vec<StepError> {
        let step_error = self.failed_step_error().into_iter();
        let is_lenient =
            matches!(self.planned_step().policy.on_error, OnError::Ignore | OnError::Continue);
        let items = self.current_step().items.as_deref().filter(|_| is_lenient);
        let items =
            items.map_or(0, |items| u32::try_from(items.as_slice().len()).unwrap_or(u32::MAX));
        step_error
            .chain(
                (0..items).filter_map(|item| {
                    self.status_of(self.task.for_item(item))?.failed_step_error()
                }),
            )
            .collect()
    }

    /// Returns `true` if the step never started because the execution failed before.
    pub(super) fn never_started(&self) -> bool {
        matches!(
            self.current_step().state,
            execution::StepState::Skipped(SkipReason::ExecutionFailed)
        )
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.current_step().state, execution::StepState::Failed(_))
    }

    /// Returns the error of a step that did not succeed because of the execution's deadline.
    pub(super) fn deadline_error(&self) -> StepError {
        self.describe_error(&ToolError::new(
            ErrorCode::DEADLINE,
            "the deadline of the execution passed",
        ))
    }

    fn failed_step_error(&self) -> Option<StepError> {
        match &self.current_step().state {
            execution::StepState::Failed(error) => Some(self.describe_error(error)),
            _ => None,
        }
    }

    fn describe_error(&self, error: &ToolError) -> StepError {
        StepError {
            step_id: self.planned_step().id.to_string(),
            index: self.failed_index(),
            tool_name: self.planned_step().call_of_part(self.task.part).tool.to_string(),
            code: error.code.to_string(),
            message: error.message.to_string(),
            attempt: self.current_step().attempts.max(1),
            retryable: error.retryable,
        }
    }

    /// Returns the index of this item. For a whole step, returns the index of the item whose
    /// failure made the step fail.
    fn failed_index(&self) -> Option<u32> {
        let must_succeed =
            matches!(self.planned_step().policy.on_error, OnError::Fail | OnError::Wait);
        let first =
            || self.current_step().items.as_deref().filter(|_| must_succeed)?.first_failed();
        self.task.part.item.or_else(first)
    }
}

/// State of a step, of an item of its `forEach` list, or of the call that undoes the step or the
/// item.
#[Object]
impl StepStatus {
    /// Identifies the object in the whole API: `exec_…/step`, `exec_…/step[3]` for an item of its
    /// list, with `/undo` at the end for the call that undoes it.
    pub(super) async fn id(&self) -> ID {
        ID(self.node_id())
    }

    /// Id of the step within the plan.
    async fn step_id(&self) -> &str {
        self.planned_step().id.as_str()
    }

    /// Index of the item in the step's `forEach` list, from 0. Null for the step itself.
    async fn index(&self) -> Option<u32> {
        self.task.part.item
    }

    /// Tool, as `set.name`.
    async fn tool_name(&self) -> &str {
        self.planned_step().call_of_part(self.task.part).tool.as_str()
    }

    /// State of the step.
    async fn state(&self) -> ApiStepState {
        ApiStepState::of(self.current_step())
    }

    /// Number of attempts that started.
    async fn attempts(&self) -> u32 {
        self.current_step().attempts
    }

    /// Time at which the step began to wait, or its first attempt started if it did not wait. Null
    /// until then.
    async fn started_at(&self) -> Option<DateTime> {
        self.current_step().started_at.map(DateTime)
    }

    /// Time at which the step finished. Null before that.
    async fn finished_at(&self) -> Option<DateTime> {
        self.current_step().finished_at.map(DateTime)
    }

    /// Time from `startedAt` to `finishedAt` in milliseconds: attempts, waits, and delays between
    /// attempts. Null until the step has finished.
    async fn duration_ms(&self) -> Option<f64> {
        let step = self.current_step();
        Some(milliseconds_between(step.started_at?, step.finished_at?))
    }

    /// Total time of all attempts in milliseconds. Null until the step has finished.
    async fn work_ms(&self) -> Option<f64> {
        self.current_step().finished_at.map(|_| to_milliseconds(self.current_step().spent.worked))
    }

    /// Time in milliseconds for which the step waited for a person or a signal, or slept. Null
    /// until the step has finished.
    async fn waited_ms(&self) -> Option<f64> {
        self.current_step().finished_at.map(|_| to_milliseconds(self.current_step().spent.waited))
    }

    /// Parameters of the last attempt, with all templates rendered. Null before the first attempt.
    async fn resolved_parameters(&self) -> Option<&Value> {
        self.current_step().parameters.as_deref()
    }

    /// Output of the tool. For a step with `forEach`, the list of the items' outputs. For a step
    /// that runs a plan, the outputs of the child execution. Null until the step has succeeded.
    async fn output(&self) -> Option<&Value> {
        self.current_step().output()
    }

    /// Error of a failed step. While the step waits for another attempt or for a decision, the
    /// error of its last attempt. Null otherwise.
    async fn error(&self) -> Option<StepError> {
        match &self.current_step().state {
            execution::StepState::Failed(error)
            | execution::StepState::Retrying { error: Some(error), .. }
            | execution::StepState::Waiting(WaitReason::Decision { error }) => {
                Some(self.describe_error(error))
            }
            _ => None,
        }
    }

    /// Warnings about parameters and output, such as unresolved templates and numbers that 64 bits
    /// cannot hold.
    async fn warnings(&self) -> Vec<String> {
        let step = self.current_step();
        let parameters =
            step.parameters.as_deref().map(|value| rounded::output_warnings(value, "parameters"));
        let output = step.output().map(|value| rounded::output_warnings(value, "output"));
        let rounded = parameters.into_iter().chain(output).flatten();
        valid_warnings(step).iter().cloned().chain(rounded).collect()
    }

    /// True if this execution did not call the tool for the output, but took the output from the
    /// execution that it retries, or from the output cache.
    async fn reused(&self) -> bool {
        self.current_step().is_reused
    }

    /// Reason why the step did not run: `condition`, `dependency`, `execution_failed` or `dry_run`.
    /// Null unless the state is `SKIPPED`.
    async fn skip_reason(&self) -> Option<&'static str> {
        match &self.current_step().state {
            execution::StepState::Skipped(reason) => Some(super::event::skip_reason_name(*reason)),
            _ => None,
        }
    }

    /// `skipReason` as an enum. Null unless the state is `SKIPPED`.
    async fn skip_reason_enum(&self) -> Option<text_enums::SkipReason> {
        match &self.current_step().state {
            execution::StepState::Skipped(reason) => Some((*reason).into()),
            _ => None,
        }
    }

    /// Reason for the wait: `approval`, `decision`, or `signal:` followed by the name of the
    /// signal. Null unless the state is `WAITING`.
    async fn waits_for(&self) -> Option<String> {
        let execution::StepState::Waiting(reason) = &self.current_step().state else { return None };
        Some(match reason {
            WaitReason::Approval => "approval".to_owned(),
            WaitReason::Decision { .. } => "decision".to_owned(),
            WaitReason::Signal { name, .. } => format!("signal:{name}"),
        })
    }

    /// Reason for the wait as an enum, without the name of the signal. Null unless the state is
    /// `WAITING`.
    async fn waits_for_enum(&self) -> Option<StepWait> {
        match &self.current_step().state {
            execution::StepState::Waiting(reason) => Some(reason.into()),
            _ => None,
        }
    }

    /// Time of the next attempt, of the end of a sleep, or of the end of the wait for a signal.
    /// Null if there is none.
    async fn until(&self) -> Option<DateTime> {
        match &self.current_step().state {
            execution::StepState::Waiting(WaitReason::Signal { until: Some(until), .. })
            | execution::StepState::Retrying { until, .. }
            | execution::StepState::Running { how: AttemptKind::Sleeping { until }, .. } => {
                Some((*until).into())
            }
            _ => None,
        }
    }

    /// Last progress report of the current attempt. Null if the tool has reported none.
    async fn progress(&self) -> Option<Progress> {
        self.current_step().progress.as_deref().map(Progress::from)
    }

    /// Items of the step's `forEach` list, in the order of the list. Empty until the list is known.
    #[expect(clippy::unused_async, reason = "fields of the API are asynchronous")]
    async fn items(
        &self,
        #[graphql(desc = "Page size, from 1 to 10000.", default_with = "Some(10_000)")]
        first: Option<i32>,
        #[graphql(desc = "Returns items whose index is greater than this index.")]
        after_index: Option<i64>,
        #[graphql(desc = "Returns items in one of these states. Default: all states.")]
        state: Option<Vec<ApiStepState>>,
    ) -> Result<Vec<Self>> {
        let maximum = check_count("first", first.unwrap_or(10_000), MAX_ITEMS)?;
        let begin = parse_after_index(after_index)?;
        let n = self.current_step().items.as_deref().map_or(0, |items| items.as_slice().len());
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let all = (begin..n).filter_map(|item| self.status_of(self.task.for_item(item)));
        let is_wanted = |item: &Self| {
            state
                .as_ref()
                .is_none_or(|states| states.contains(&ApiStepState::of(item.current_step())))
        };
        Ok(all.filter(is_wanted).take(maximum).collect())
    }

    /// Number of items by state. Null for a step without a list, and until the list is known.
    async fn item_tally(&self) -> Option<ItemTally> {
        self.current_step().items.as_deref().map(ItemTally::of)
    }

    /// Id of the last child execution that the step started, `exec_…`. Null for a step that calls a
    /// tool.
    async fn child_execution_id(&self) -> Option<ID> {
        self.current_step().child.map(|id| ID(id.to_string()))
    }

    /// Last child execution that the step started. Null for a step that calls a tool.
    async fn child(&self, ctx: &Context<'_>) -> Result<Option<ApiExecution>> {
        let Some(id) = self.current_step().child else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.execution(id).await?.map(ApiExecution))
    }

    /// Outcome that a person recorded with `settleStep`. Null if the step was not settled. The
    /// state of a step that had failed stays `FAILED`.
    async fn settled(&self) -> Option<SettledOutcome> {
        self.current_step().settled().map(SettledOutcome::from)
    }

    /// Output that was recorded with the outcome `SUCCEEDED`. Null otherwise.
    async fn settled_output(&self) -> Option<&Value> {
        self.current_step().settlement.as_ref()?.output.as_deref()
    }

    /// Comment that was recorded with the outcome. Null without a comment.
    async fn settled_comment(&self) -> Option<&str> {
        self.current_step().settlement.as_ref()?.comment.as_deref()
    }

    /// Compensation that Faber did not call, because the execution had already undone its steps when
    /// this step was settled as `SUCCEEDED`. Null otherwise.
    async fn missing_compensation(&self) -> Option<CompensatingCall> {
        let (tool, parameters) = machine::missing_compensation(&self.execution, self.task)?;
        Some(CompensatingCall { tool_name: tool.to_string(), parameters })
    }

    /// Status of the call that undoes the step. Null until this call has started.
    async fn compensation(&self) -> Option<Self> {
        self.status_of(self.task.compensation()).filter(|_| !self.task.part.undo)
    }
}

fn parse_after_index(after: Option<i64>) -> Result<u32> {
    let Some(after) = after else { return Ok(0) };
    let begin = u32::try_from(after).ok().and_then(|index| index.checked_add(1));
    let reason =
        || invalid_argument(format!("`afterIndex` is {after}; it must be the index of an item"));
    Ok(begin.ok_or_else(reason)?)
}
