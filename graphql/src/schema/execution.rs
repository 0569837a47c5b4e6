//! Executions as their logs have them.

use std::sync::Arc;

use async_graphql::{Context, Enum, ID, Object, Result, SimpleObject};
use serde_json::Value;
use shared::{
    execution::{self, Execution as State},
    id::Seq,
};

use super::{
    connection::count,
    error::{ApiError, invalid},
    event::ExecutionEvent,
    finding::Finding,
    loaders::Loaders,
    plan::Plan,
    request::Request,
    retry::{self, RepeatedCall, RetryMode, UndoCall},
    scalar::{DateTime, int},
    step::{StepError, StepStatus},
    waits::Wait,
};
use crate::engine::{self, Engine, EventBudget, MAX_FINDINGS};

/// The most events that one field returns.
const EVENTS: usize = 10_000;
/// The findings where nobody says how many: all that there may be.
const FINDINGS: i32 = 100;

/// Where an execution is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "execution::ExecutionState")]
pub(super) enum ExecutionState {
    /// Nobody has begun.
    Pending,
    /// Steps run, or are about to.
    InProgress,
    /// Somebody paused it.
    Paused,
    /// Nothing runs: only a person, a signal or a retry's time can go on.
    Waiting,
    /// It did not end well, and what was done is undone.
    Compensating,
    /// It ended well.
    Completed,
    /// It ended badly.
    Failed,
    /// It was stopped.
    Cancelled,
}

/// One step at a time, or whatever is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "execution::ExecutionMode")]
pub(super) enum ExecutionMode {
    /// One step at a time, in `executionOrder`.
    Sequential,
    /// Whatever is ready, at most `maxParallel` steps at once.
    Parallel,
}

/// How far the planning of what goes on is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "engine::Stage")]
pub(super) enum ReplanningState {
    /// A model plans, or will.
    Pending,
    /// What goes on has begun: `next`.
    Begun,
    /// Nothing goes on by itself.
    GivenUp,
}

/// How far a model is that plans by itself how to go on.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Replanning {
    /// How far it is.
    state: ReplanningState,
    /// Why it is planned anew.
    reason: String,
    /// Why it was given up.
    given_up: Option<String>,
}

impl From<engine::Replanning> for Replanning {
    fn from(engine::Replanning { stage, reason, given_up }: engine::Replanning) -> Self {
        Self { state: stage.into(), reason, given_up }
    }
}

/// One run of a plan, as of some event.
#[derive(Clone)]
pub(super) struct Execution(pub(super) Arc<State>);

impl From<State> for Execution {
    fn from(state: State) -> Self {
        Self(Arc::new(state))
    }
}

impl Execution {
    async fn find(&self, ctx: &Context<'_>, most: usize) -> Result<Vec<engine::Finding>> {
        let executions = &ctx.data::<Engine>()?.executions;
        let workers = ctx.data::<Loaders>()?.workers().await?;
        let found = executions.findings(&self.0, &workers, most).await;
        Ok(found.map_err(ApiError::from)?)
    }
}

/// One run of a plan. Everything here is computed from its events.
#[Object]
impl Execution {
    /// The identifier, `exec_…`.
    async fn execution_id(&self) -> ID {
        ID(self.0.id().to_string())
    }

    /// The request that it belongs to, `req_…`.
    async fn request_id(&self) -> ID {
        ID(self.0.request().to_string())
    }

    /// The request that it belongs to.
    async fn request(&self, ctx: &Context<'_>) -> Result<Option<Request>> {
        let request = ctx.data::<Loaders>()?.request(self.0.request()).await?;
        Ok(request.map(Request))
    }

    /// The plan that it runs, `plan_…`.
    async fn plan_id(&self) -> ID {
        ID(self.0.plan().id().to_string())
    }

    /// The plan that it runs.
    async fn plan(&self) -> Plan {
        Plan(Arc::clone(self.0.plan()))
    }

    /// Where it is in its life.
    async fn state(&self) -> ExecutionState {
        self.0.state().into()
    }

    /// One step at a time, or whatever is ready.
    async fn mode(&self) -> ExecutionMode {
        self.0.options().mode.into()
    }

    /// Higher goes first where workers have a choice.
    async fn priority(&self) -> i32 {
        self.0.options().priority
    }

    /// The moment before which no step starts.
    async fn start_at(&self) -> Option<DateTime> {
        self.0.options().start_at.map(DateTime)
    }

    /// When its time is up. Null where it has no limit or has not started.
    async fn deadline(&self) -> Option<DateTime> {
        self.0.deadline().map(DateTime)
    }

    /// When it was asked for.
    async fn created_at(&self) -> DateTime {
        self.0.created_at().into()
    }

    /// When a worker first took it.
    async fn started_at(&self) -> Option<DateTime> {
        self.0.started_at().map(DateTime)
    }

    /// When it ended.
    async fn finished_at(&self) -> Option<DateTime> {
        self.0.finished_at().map(DateTime)
    }

    /// The machine that has it, or had it last.
    async fn node(&self) -> Option<&str> {
        self.0.owner().map(|owner| &*owner.node)
    }

    /// The `seq` of the last event that this is computed from: subscribe behind it to miss
    /// nothing.
    async fn seq(&self) -> i64 {
        int(self.0.seq().0)
    }

    /// What the plan is given: `{{input.x}}`.
    async fn input(&self) -> Option<&Value> {
        Some(&*self.0.options().input).filter(|input| !input.is_null())
    }

    /// Whether everything was checked and nothing called.
    async fn dry_run(&self) -> bool {
        self.0.options().dry_run
    }

    /// Whether what succeeded is undone where it does not end well.
    async fn compensate_on_failure(&self) -> bool {
        self.0.options().compensate_on_failure
    }

    /// The execution that has it as a step, `exec_…`. Null where it stands for itself.
    async fn parent_execution_id(&self) -> Option<ID> {
        self.0.parent().map(|parent| ID(parent.execution.to_string()))
    }

    /// The execution that has it as a step.
    async fn parent(&self, ctx: &Context<'_>) -> Result<Option<Self>> {
        let Some(parent) = self.0.parent() else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.execution(parent.execution).await?.map(Self))
    }

    /// The step of that execution that it is.
    async fn parent_step_id(&self) -> Option<&str> {
        self.0.parent().map(|parent| parent.step.as_str())
    }

    /// The item of that step's `forEach` that it is, from 0.
    async fn parent_index(&self) -> Option<u32> {
        self.0.parent()?.part.item
    }

    /// The execution that it does again or goes on after, `exec_…`: `retryExecution` or
    /// `replanExecution` made it, or it was planned anew by itself.
    async fn retry_of(&self) -> Option<ID> {
        self.0.retry_of().map(|id| ID(id.to_string()))
    }

    /// The executions that `retryExecution` or `replanExecution` made of it, oldest first: among the
    /// 1000 newest of its plan.
    async fn retries(&self, ctx: &Context<'_>) -> Result<Vec<Self>> {
        let retries = ctx
            .data::<Engine>()?
            .executions
            .reader
            .retries(&self.0)
            .await
            .map_err(ApiError::from)?;
        let executions = ctx.data::<Loaders>()?.executions(&retries).await?;
        Ok(executions.into_iter().map(Self).collect())
    }

    /// The calls of tools with the effect `ONCE` that were made, or may have been, and that a retry
    /// would make again. A call that was compensated does not count.
    async fn repeated_calls(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "How much the retry would do.", default_with = "RetryMode::All")]
        mode: RetryMode,
        #[graphql(desc = "The step to begin with, for `FROM_STEP`.")] from_step: Option<String>,
    ) -> Result<Vec<RepeatedCall>> {
        let scope = retry::scope(Some(mode), from_step.as_deref())?;
        let calls = ctx.data::<Engine>()?.executions.reader.repeated_calls(&self.0, scope).await;
        let calls = calls.map_err(ApiError::from)?;
        Ok(calls.into_iter().map(RepeatedCall::from).collect())
    }

    /// The calls that undo it if it is cancelled now, the first one first, also in executions of
    /// its sub-plans. Empty if it does not compensate, or has ended.
    async fn undo_calls(&self, ctx: &Context<'_>) -> Result<Vec<UndoCall>> {
        let calls = ctx.data::<Engine>()?.executions.reader.undo_calls(&self.0).await;
        Ok(calls.map_err(ApiError::from)?.into_iter().map(UndoCall::from).collect())
    }

    /// The execution that goes on after it with the next version of its plan: it was planned anew, by
    /// itself or because somebody asked.
    async fn next(&self, ctx: &Context<'_>) -> Result<Option<Self>> {
        let next =
            ctx.data::<Engine>()?.executions.reader.next(&self.0).await.map_err(ApiError::from)?;
        Ok(next.map(Self))
    }

    /// How far a model is that plans by itself how to go on. Null where nothing is to be planned.
    async fn replanning(&self, ctx: &Context<'_>) -> Result<Option<Replanning>> {
        let found = ctx
            .data::<Engine>()?
            .executions
            .reader
            .replanning(&self.0)
            .await
            .map_err(ApiError::from)?;
        Ok(found.map(Replanning::from))
    }

    /// Why it does not go on by itself now: which step waits for whose consent, for which signal,
    /// until when, for which execution, behind which limit. Empty for one that is over.
    async fn waits_for(&self, ctx: &Context<'_>) -> Result<Vec<Wait>> {
        let found = self.find(ctx, MAX_FINDINGS).await?;
        Ok(found.into_iter().filter_map(Wait::of).collect())
    }

    /// What happened, why, and what helps: the most severe first, then by time. At most 100.
    async fn findings(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "Only what the log said when it ended with this event. Without it, what \
                          this node knows besides counts, too: workers, commands, limits, tools."
        )]
        at_seq: Option<i64>,
        #[graphql(desc = "At most so many, 1 to 100.")] first: Option<i32>,
    ) -> Result<Vec<Finding>> {
        let most = count("first", first.unwrap_or(FINDINGS), MAX_FINDINGS)?;
        let Some(at) = at_seq else {
            let found = self.find(ctx, most).await?;
            return Ok(found.into_iter().map(Finding::from).collect());
        };
        let at = u64::try_from(at).map(Seq);
        let at = at.map_err(|_| invalid("`atSeq` must not be negative"))?;
        let engine = ctx.data::<Engine>()?;
        let found = engine.executions.findings_at(self.0.id(), at, most).await;
        Ok(found.map_err(ApiError::from)?.into_iter().map(Finding::from).collect())
    }

    /// How many steps there are.
    async fn total(&self) -> i64 {
        int(self.0.count_steps().total)
    }

    /// How many steps succeeded, those included that were undone afterwards.
    async fn successful(&self) -> i64 {
        int(self.0.count_steps().successful)
    }

    /// How many steps failed.
    async fn failed(&self) -> i64 {
        int(self.0.count_steps().failed)
    }

    /// How many steps did not run: another failed, or their condition did not hold.
    async fn skipped(&self) -> i64 {
        int(self.0.count_steps().skipped)
    }

    /// How many steps were stopped, or did not run because the execution was.
    async fn cancelled(&self) -> i64 {
        int(self.0.count_steps().cancelled)
    }

    /// Every step as it now stands, in execution order.
    async fn steps(&self) -> Vec<StepStatus> {
        StepStatus::all(&self.0)
    }

    /// One step as it now stands.
    async fn step(
        &self,
        #[graphql(desc = "The step's name within the plan.")] step_id: String,
    ) -> Option<StepStatus> {
        StepStatus::find(&self.0, &step_id)
    }

    /// The outputs so far, as `{ stepId: output }` in execution order; null for a step whose
    /// failure is ignored.
    async fn outputs(&self) -> Value {
        self.0.outputs()
    }

    /// Outputs, errors and variables together.
    async fn execution_results(&self) -> ExecutionResults {
        ExecutionResults(Arc::clone(&self.0))
    }

    /// What happened, oldest first.
    async fn events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Only events behind this one.", default_with = "Some(0)")]
        after_seq: Option<i64>,
        #[graphql(desc = "At most so many, 1 to 10000.", default_with = "Some(1000)")]
        first: Option<i32>,
    ) -> Result<Vec<ExecutionEvent>> {
        let most = count("first", first.unwrap_or(1_000), EVENTS)?;
        let after = position(after_seq.unwrap_or(0))?;
        let id = self.0.id();
        let events = ctx
            .data::<Engine>()?
            .executions
            .reader
            .events(id, after, &mut EventBudget::new(most))
            .await;
        let events = events.map_err(ApiError::from)?;
        Ok(events.into_iter().map(|event| ExecutionEvent::new(id, event)).collect())
    }
}

/// What an execution gave.
pub(super) struct ExecutionResults(Arc<State>);

/// What an execution gave, so far.
#[Object]
impl ExecutionResults {
    /// The outputs, as `{ stepId: output }` in execution order.
    async fn outputs(&self) -> Value {
        self.0.outputs()
    }

    /// One error for each step that failed, in execution order; also one for each item whose
    /// failure its step's `onError` lets pass. Where the time was up and no step's error says so,
    /// the last is `execution.deadline` at the first step that did not succeed.
    async fn errors(&self) -> Vec<StepError> {
        errors(&self.0)
    }

    /// What the steps' `outputMapping` put into variables.
    async fn variables(&self) -> Value {
        let names = self.0.plan().variables().keys();
        let filled =
            names.filter_map(|name| Some(((**name).to_owned(), self.0.variable(name)?.clone())));
        Value::Object(filled.collect())
    }
}

fn errors(execution: &Arc<State>) -> Vec<StepError> {
    let all = StepStatus::all(execution);
    let mut errors: Vec<_> = all.iter().flat_map(StepStatus::failures).collect();
    if execution.missed_deadline() && !errors.iter().any(StepError::is_deadline) {
        let late = all
            .iter()
            .find(|step| step.is_left_out())
            .or_else(|| all.iter().find(|step| step.has_failed()));
        errors.extend(late.map(StepStatus::overdue));
    }
    errors
}

/// Reads a position in a log.
pub(super) fn position(after: i64) -> Result<Seq, ApiError> {
    let position = u64::try_from(after).map(Seq);
    position.map_err(|_| invalid(format!("`afterSeq` is {after}; it must not be negative")))
}

#[cfg(test)]
mod tests {
    use executor::machine::{self, CallOutput, Input};
    use serde_json::json;
    use shared::{
        clock::Timestamp,
        event::Created,
        id::{Attempt, Task},
        plan::Plan,
        tool::{ErrorCode, ToolError},
    };

    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_timestamp_millis(ms).unwrap()
    }

    /// Returns the errors of an execution whose time was up while its first step was called.
    fn told(effect: &str, result: Result<Value, ToolError>) -> Vec<(String, String)> {
        let step = |id: &str, on: &[&str]| {
            json!({ "id": id, "tool": "set.tool", "parameters": {}, "depends_on": on,
                "policy": { "effect": effect } })
        };
        let plan = json!({
            "about": { "id": "plan_1_aaaaaaaaa", "request": "req_1_aaaaaaaaa", "version": 1,
                "query": "", "planner": "explicit", "created_at": 0 },
            "steps": [step("a", &[]), step("b", &["a"])],
        });
        let plan = Arc::new(Plan::from_json(&plan.to_string()).unwrap());
        let options = shared::execution::ExecutionOptions {
            deadline_ms: Some(10),
            ..shared::execution::ExecutionOptions::default()
        };
        let created = Created::new(plan.id(), plan.info().request, options);
        let id = "exec_1_aaaaaaaaa".parse().unwrap();
        let (mut execution, _) = machine::create_execution_from(id, &plan, created, at(0)).unwrap();
        let worker = "work_1_aaaaaaaaa".parse().unwrap();
        machine::decide(&mut execution, Input::Claimed { worker, node: "n".into() }, at(0));
        machine::decide(&mut execution, Input::Woken, at(10));
        let task = Task::from(plan.step_number(&"a".parse().unwrap()).unwrap());
        let (attempt, result) = (Attempt::FIRST, result.map(CallOutput::from));
        machine::decide(&mut execution, Input::Ended { task, attempt, result }, at(11));
        assert!(execution.state().is_finished());
        errors(&Arc::new(execution)).iter().map(StepError::named).collect()
    }

    /// Nothing said that the time had been up where an effect's outcome was unknown.
    #[test]
    fn an_execution_whose_time_was_up_says_so() {
        let stopped = || ToolError::new(ErrorCode::CANCELLED, "stopped").with_unknown_outcome();
        let named = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(step, code)| ((*step).to_owned(), (*code).to_owned())).collect()
        };
        let deadline = "execution.deadline";
        assert_eq!(told("read", Err(stopped())), named(&[("a", deadline)]));
        let unknown = ("a", "tool.outcome_unknown");
        assert_eq!(told("once", Err(stopped())), named(&[unknown, ("b", deadline)]));
        assert_eq!(told("once", Ok(json!(1))), named(&[("b", deadline)]));
    }
}
