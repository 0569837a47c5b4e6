//! Steps of an execution, their items, and what undoes them.

use std::sync::Arc;

use async_graphql::{Context, Enum, ID, Object, Result, SimpleObject};
use executor::machine;
use serde_json::Value;
use shared::{
    event::{SkipReason, WaitReason},
    execution::{self, AttemptKind, Execution as State, Items, Step},
    id::{StepNumber, Task},
    plan::{OnError, ToolExecution},
    tool::{self, ErrorCode, ToolError},
};

use super::{
    connection::count,
    error::invalid,
    execution::Execution,
    loaders::Loaders,
    rounded,
    scalar::{DateTime, in_milliseconds, int, milliseconds},
};
use crate::engine::warnings_of;

/// The most items that one field returns.
const ITEMS: usize = 10_000;

/// Where a step is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub(super) enum StepState {
    /// Not begun.
    Pending,
    /// An attempt is under way, or items of its list are.
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
    /// Over: it succeeded, and then it was undone.
    Compensated,
}

impl StepState {
    fn of(step: &Step) -> Self {
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

/// What a person said became of a call whose outcome was unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "shared::event::Settled")]
pub(super) enum SettledOutcome {
    /// The call took effect.
    Succeeded,
    /// The call had no effect.
    Failed,
}

/// A call that undoes a step.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct CompensatingCall {
    /// The tool, as `set.name`.
    tool_name: String,
    /// The parameters, with every template filled in.
    parameters: Value,
}

/// How a step failed.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct StepError {
    /// The step.
    step_id: String,
    /// Which item of its `forEach` it was, from 0. Null where the step has no items.
    index: Option<u32>,
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

impl StepError {
    /// Returns whether it is that the execution's time was up.
    pub(super) fn is_deadline(&self) -> bool {
        self.code == ErrorCode::DEADLINE.as_str()
    }

    /// Returns the step and the code.
    #[cfg(test)]
    pub(super) fn named(&self) -> (String, String) {
        (self.step_id.clone(), self.code.clone())
    }
}

/// How far a tool is, by its own account.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Progress {
    /// How much is done, in a measure of the tool's own.
    #[graphql(name = "progress")]
    done: f64,
    /// How much there is to do, where the tool knows.
    total: Option<f64>,
    /// What it is doing, in words.
    message: Option<String>,
}

impl From<&tool::Progress> for Progress {
    fn from(progress: &tool::Progress) -> Self {
        let message = progress.message.as_deref().map(ToOwned::to_owned);
        Self { done: progress.progress, total: progress.total, message }
    }
}

/// How many items of a `forEach` are where.
#[derive(Clone, Copy, Debug, Default, SimpleObject)]
pub(super) struct ItemTally {
    /// All of them.
    total: i64,
    /// Not begun.
    pending: i64,
    /// Under way, or to be tried again.
    running: i64,
    /// Waiting for a person or a signal.
    waiting: i64,
    /// Those that returned something.
    successful: i64,
    /// Those whose last attempt failed.
    failed: i64,
    /// Those that did not run because another failed.
    skipped: i64,
    /// Those that were stopped, or did not run because the execution was.
    cancelled: i64,
}

impl ItemTally {
    fn of(items: &Items) -> Self {
        let mut tally = Self { total: int(items.as_slice().len()), ..Self::default() };
        for item in items.as_slice() {
            let place = match StepState::of(item) {
                StepState::Pending => &mut tally.pending,
                StepState::Running | StepState::Retrying => &mut tally.running,
                StepState::Waiting => &mut tally.waiting,
                StepState::Succeeded | StepState::Compensated => &mut tally.successful,
                StepState::Failed => &mut tally.failed,
                StepState::Skipped => &mut tally.skipped,
                StepState::Cancelled => &mut tally.cancelled,
            };
            *place += 1;
        }
        tally
    }
}

/// A step as it now stands, an item of one, or what undoes either.
pub(super) struct StepStatus {
    execution: Arc<State>,
    task: Task,
}

impl StepStatus {
    /// Returns every step, in plan order.
    pub(super) fn all(execution: &Arc<State>) -> Vec<Self> {
        let numbers = (0..execution.steps().len()).map(StepNumber::new);
        numbers
            .map(|number| Self { execution: Arc::clone(execution), task: number.into() })
            .collect()
    }

    /// Returns the step called `name`, if there is one.
    pub(super) fn find(execution: &Arc<State>, name: &str) -> Option<Self> {
        let number = execution.plan().step_number(&name.parse().ok()?)?;
        Some(Self { execution: Arc::clone(execution), task: number.into() })
    }

    fn of(&self, task: Task) -> Option<Self> {
        let execution = Arc::clone(&self.execution);
        self.execution.task(task).map(|_| Self { execution, task })
    }

    fn now(&self) -> &Step {
        self.execution.task(self.task).expect("only tasks that are there are shown")
    }

    fn planned(&self) -> &ToolExecution {
        self.execution.plan().step(self.task.step)
    }

    /// Returns how it failed, if it is over and did; then how its items did where that does not
    /// fail the step.
    pub(super) fn failures(&self) -> Vec<StepError> {
        let own = self.failure().into_iter();
        let is_lenient =
            matches!(self.planned().policy.on_error, OnError::Ignore | OnError::Continue);
        let items = self.now().items.as_deref().filter(|_| is_lenient);
        let items =
            items.map_or(0, |items| u32::try_from(items.as_slice().len()).unwrap_or(u32::MAX));
        own.chain((0..items).filter_map(|item| self.of(self.task.for_item(item))?.failure()))
            .collect()
    }

    /// Returns whether the step never began, because the execution came to its end before.
    pub(super) fn is_left_out(&self) -> bool {
        matches!(self.now().state, execution::StepState::Skipped(SkipReason::ExecutionFailed))
    }

    /// Returns whether the step failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.now().state, execution::StepState::Failed(_))
    }

    /// Says of the step that the execution's time was up.
    pub(super) fn overdue(&self) -> StepError {
        self.described(&ToolError::new(ErrorCode::DEADLINE, "the execution's time was up"))
    }

    fn failure(&self) -> Option<StepError> {
        match &self.now().state {
            execution::StepState::Failed(error) => Some(self.described(error)),
            _ => None,
        }
    }

    fn described(&self, error: &ToolError) -> StepError {
        StepError {
            step_id: self.planned().id.to_string(),
            index: self.failed_index(),
            tool_name: self.planned().call_of_part(self.task.part).tool.to_string(),
            code: error.code.to_string(),
            message: error.message.to_string(),
            attempt: self.now().attempts.max(1),
            retryable: error.retryable,
        }
    }

    /// Returns which item an error is about: this one, or the one that failed the step.
    fn failed_index(&self) -> Option<u32> {
        let must_succeed = matches!(self.planned().policy.on_error, OnError::Fail | OnError::Wait);
        let first = || self.now().items.as_deref().filter(|_| must_succeed)?.first_failed();
        self.task.part.item.or_else(first)
    }
}

/// A step as it now stands; also an item of its `forEach`, and the call that undoes either.
#[Object]
impl StepStatus {
    /// The step's name within the plan.
    async fn step_id(&self) -> &str {
        self.planned().id.as_str()
    }

    /// Which item of the step's `forEach` it is, from 0. Null for the step itself.
    async fn index(&self) -> Option<u32> {
        self.task.part.item
    }

    /// The tool, as `set.name`.
    async fn tool_name(&self) -> &str {
        self.planned().call_of_part(self.task.part).tool.as_str()
    }

    /// Where it is in its life.
    async fn state(&self) -> StepState {
        StepState::of(self.now())
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

    /// The milliseconds from `startedAt` to `finishedAt`: work, waits and the pauses between
    /// attempts. Null until it is over.
    async fn duration_ms(&self) -> Option<f64> {
        let step = self.now();
        Some(milliseconds(step.started_at?, step.finished_at?))
    }

    /// The milliseconds that its attempts took together. Null until it is over.
    async fn work_ms(&self) -> Option<f64> {
        self.now().finished_at.map(|_| in_milliseconds(self.now().spent.worked))
    }

    /// The milliseconds that it waited for a person or a signal. Null until it is over.
    async fn waited_ms(&self) -> Option<f64> {
        self.now().finished_at.map(|_| in_milliseconds(self.now().spent.waited))
    }

    /// The parameters of the last attempt, with every template filled in.
    async fn resolved_parameters(&self) -> Option<&Value> {
        self.now().parameters.as_deref()
    }

    /// What the tool returned: for a step with `forEach`, the list of what it returned for its
    /// items; for one that executes a plan, that execution's outputs.
    async fn output(&self) -> Option<&Value> {
        self.now().output()
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

    /// What is worth knowing about its parameters and its output: templates that found nothing,
    /// numbers beyond 64 bits.
    async fn warnings(&self) -> Vec<String> {
        let now = self.now();
        let parameters =
            now.parameters.as_deref().map(|value| rounded::warnings(value, "parameters"));
        let output = now.output().map(|value| rounded::warnings(value, "output"));
        let rounded = parameters.into_iter().chain(output).flatten();
        warnings_of(now).iter().cloned().chain(rounded).collect()
    }

    /// Whether its output is not of a call of its own: it was taken over from the execution that
    /// this one does again, or an earlier call with the same parameters had returned it.
    async fn reused(&self) -> bool {
        self.now().is_reused
    }

    /// Why it did not run: `condition`, `dependency`, `execution_failed` or `dry_run`. Null unless
    /// it is SKIPPED.
    async fn skip_reason(&self) -> Option<&'static str> {
        match &self.now().state {
            execution::StepState::Skipped(reason) => Some(super::event::skipped(*reason)),
            _ => None,
        }
    }

    /// What it waits for: `approval`, `decision`, or the name of a signal behind `signal:`. Null
    /// unless it is WAITING.
    async fn waits_for(&self) -> Option<String> {
        let execution::StepState::Waiting(reason) = &self.now().state else { return None };
        Some(match reason {
            WaitReason::Approval => "approval".to_owned(),
            WaitReason::Decision { .. } => "decision".to_owned(),
            WaitReason::Signal { name, .. } => format!("signal:{name}"),
        })
    }

    /// When it goes on: the next attempt, or the end of a sleep. Null where no time is known.
    async fn until(&self) -> Option<DateTime> {
        match &self.now().state {
            execution::StepState::Waiting(WaitReason::Signal { until: Some(until), .. })
            | execution::StepState::Retrying { until, .. }
            | execution::StepState::Running { how: AttemptKind::Sleeping { until }, .. } => {
                Some((*until).into())
            }
            _ => None,
        }
    }

    /// How far the tool says the last attempt is. Null where it says nothing.
    async fn progress(&self) -> Option<Progress> {
        self.now().progress.as_deref().map(Progress::from)
    }

    /// The items of its `forEach`, in order, once the list is known.
    #[expect(clippy::unused_async, reason = "fields of the API are asynchronous")]
    async fn items(
        &self,
        #[graphql(desc = "At most so many, 1 to 10000.", default_with = "Some(10_000)")]
        first: Option<i32>,
        #[graphql(desc = "Only items behind this one.")] after_index: Option<i64>,
        #[graphql(desc = "Only items in one of these states.")] state: Option<Vec<StepState>>,
    ) -> Result<Vec<Self>> {
        let most = count("first", first.unwrap_or(10_000), ITEMS)?;
        let begin = begin_behind(after_index)?;
        let n = self.now().items.as_deref().map_or(0, |items| items.as_slice().len());
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let all = (begin..n).filter_map(|item| self.of(self.task.for_item(item)));
        let is_wanted = |item: &Self| {
            state.as_ref().is_none_or(|states| states.contains(&StepState::of(item.now())))
        };
        Ok(all.filter(is_wanted).take(most).collect())
    }

    /// How many items of its `forEach` are where. Null where it has none, or none yet.
    async fn item_tally(&self) -> Option<ItemTally> {
        self.now().items.as_deref().map(ItemTally::of)
    }

    /// The execution that it began last, `exec_…`, where it executes a plan.
    async fn child_execution_id(&self) -> Option<ID> {
        self.now().child.map(|id| ID(id.to_string()))
    }

    /// The execution that it began last, where it executes a plan.
    async fn child(&self, ctx: &Context<'_>) -> Result<Option<Execution>> {
        let Some(id) = self.now().child else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.execution(id).await?.map(Execution))
    }

    /// What a person said became of its call, whose outcome was unknown. In an execution that had
    /// ended, the state of the step stays as it was.
    async fn settled(&self) -> Option<SettledOutcome> {
        self.now().settled().map(SettledOutcome::from)
    }

    /// The output that a person gave when the step was settled as SUCCEEDED.
    async fn settled_output(&self) -> Option<&Value> {
        self.now().settlement.as_ref()?.output.as_deref()
    }

    /// The comment of the person who settled the step.
    async fn settled_comment(&self) -> Option<&str> {
        self.now().settlement.as_ref()?.comment.as_deref()
    }

    /// The call that would undo it and that was not made, because the step was settled as SUCCEEDED
    /// after its execution had compensated.
    async fn missing_compensation(&self) -> Option<CompensatingCall> {
        let (tool, parameters) = machine::missing_compensation(&self.execution, self.task)?;
        Some(CompensatingCall { tool_name: tool.to_string(), parameters })
    }

    /// The call that undoes it. Null until that has begun.
    async fn compensation(&self) -> Option<Self> {
        self.of(self.task.compensation()).filter(|_| !self.task.part.undo)
    }
}

/// Returns the first index behind another.
fn begin_behind(after: Option<i64>) -> Result<u32> {
    let Some(after) = after else { return Ok(0) };
    let begin = u32::try_from(after).ok().and_then(|index| index.checked_add(1));
    let why = || invalid(format!("`afterIndex` is {after}; it must be the index of an item"));
    Ok(begin.ok_or_else(why)?)
}
