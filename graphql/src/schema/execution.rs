use std::sync::Arc;

use async_graphql::{Context, Enum, ID, Object, Result, SimpleObject};
use engine::{Engine, EventBudget, MAX_FINDINGS};
use serde_json::{Value, json};
use shared::{
    execution::{self, Execution},
    id::Seq,
    labels,
    trace::to_otlp_json,
};

use super::{
    actor::Actor,
    connection::check_count,
    error::{ApiError, invalid_argument},
    event::ExecutionEvent,
    finding::Finding,
    fork::{ForkPreview, StepChangeInput, make_order, preview_fork},
    loaders::Loaders,
    plan::Plan,
    request::Request,
    retry::{self, RepeatedCall, RetryMode, UndoCall},
    scalar::{DateTime, to_int},
    step::{StepError, StepStatus},
    waits::Wait,
};

const MAX_EVENTS: usize = 10_000;
/// Default of `first` for `findings`, which is also its maximum.
const DEFAULT_FINDINGS: i32 = 100;

/// State of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "execution::ExecutionState")]
pub(super) enum ExecutionState {
    /// Created, and not yet started: no worker has claimed it, or `startAt` is in the future.
    Pending,
    /// Started: steps run, or a worker can continue the execution.
    InProgress,
    /// Paused by `pauseExecution`. Starts no further step until `resumeExecution`.
    Paused,
    /// Started, but no step runs. Waits for a person, a signal, or the time of a retry.
    Waiting,
    /// Failed or cancelled. The calls that undo its successful steps are being made.
    Compensating,
    /// Finished successfully. The plan allowed every failure of a step.
    Completed,
    /// Finished with an error. See `executionResults.errors`.
    Failed,
    /// Finished after a cancellation.
    Cancelled,
}

/// Order in which steps run. Both modes lead to the same outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "execution::ExecutionMode")]
pub(super) enum ExecutionMode {
    /// Runs one step at a time, in `executionOrder`.
    Sequential,
    /// Runs every step that is ready, at most `maxParallel` at the same time.
    Parallel,
}

/// Progress of an automatic replan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "engine::Stage")]
pub(super) enum ReplanningState {
    /// Faber is making the next version of the plan, or will make it.
    Pending,
    /// The next execution has been created. See `Execution.next`.
    Begun,
    /// There will be no automatic replan. See `givenUp`.
    GivenUp,
}

/// Automatic replan of a finished execution.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Replanning {
    /// Progress of the replan.
    state: ReplanningState,
    /// Reason for the replan.
    reason: String,
    /// Reason why Faber gave up the replan. Null unless `state` is `GIVEN_UP`.
    given_up: Option<String>,
}

impl From<engine::Replanning> for Replanning {
    fn from(engine::Replanning { stage, reason, given_up }: engine::Replanning) -> Self {
        Self { state: stage.into(), reason, given_up }
    }
}

#[derive(Clone)]
pub(super) struct ApiExecution(pub(super) Arc<Execution>);

impl From<Execution> for ApiExecution {
    fn from(state: Execution) -> Self {
        Self(Arc::new(state))
    }
}

impl ApiExecution {
    async fn find_findings(
        &self,
        ctx: &Context<'_>,
        maximum: usize,
    ) -> Result<Vec<engine::Finding>> {
        let executions = &ctx.data::<Engine>()?.executions;
        let workers = ctx.data::<Loaders>()?.workers().await?;
        let found = executions.findings(&self.0, &workers, maximum).await;
        Ok(found.map_err(ApiError::from)?)
    }
}

/// One run of a plan. Its state is computed from its event log.
#[Object(name = "Execution")]
impl ApiExecution {
    /// Same as `executionId`. Identifies the object in the whole API.
    pub(super) async fn id(&self) -> ID {
        ID(self.0.id().to_string())
    }

    /// Id of the execution, `exec_…`.
    async fn execution_id(&self) -> ID {
        ID(self.0.id().to_string())
    }

    /// Id of the request that the execution belongs to, `req_…`.
    async fn request_id(&self) -> ID {
        ID(self.0.request().to_string())
    }

    /// Request that the execution belongs to.
    async fn request(&self, ctx: &Context<'_>) -> Result<Option<Request>> {
        let request = ctx.data::<Loaders>()?.request(self.0.request()).await?;
        Ok(request.map(Request))
    }

    /// Id of the plan that the execution runs, `plan_…`.
    async fn plan_id(&self) -> ID {
        ID(self.0.plan().id().to_string())
    }

    /// Trace of the execution and of its sub-plans, as an OpenTelemetry document: OTLP in JSON.
    async fn trace(&self, ctx: &Context<'_>) -> Result<Value> {
        let executions = &ctx.data::<Engine>()?.executions;
        let spans = executions.load_trace(self.0.id()).await.map_err(ApiError::from)?;
        Ok(to_otlp_json(&spans))
    }

    /// Plan that the execution runs.
    async fn plan(&self) -> Plan {
        Plan(Arc::clone(self.0.plan()))
    }

    /// State of the execution.
    async fn state(&self) -> ExecutionState {
        self.0.state().into()
    }

    /// Order in which steps run.
    async fn mode(&self) -> ExecutionMode {
        self.0.options().mode.into()
    }

    /// Priority. Workers claim executions with a higher priority first.
    async fn priority(&self) -> i32 {
        self.0.options().priority
    }

    /// Time before which no step starts. Null if the execution starts at once.
    async fn start_at(&self) -> Option<DateTime> {
        self.0.options().start_at.map(DateTime)
    }

    /// Time at which the execution fails unless it has finished. Null without `deadlineMs`, and
    /// before the start.
    async fn deadline(&self) -> Option<DateTime> {
        self.0.deadline().map(DateTime)
    }

    /// Labels, by which executions can be found and counted: an object of texts.
    async fn labels(&self) -> Value {
        json!(labels::without_token(&self.0.options().labels))
    }

    /// Time of creation.
    async fn created_at(&self) -> DateTime {
        self.0.created_at().into()
    }

    /// Actor who started the execution. Null for children, and for executions that an earlier
    /// version of Faber started.
    async fn created_by(&self) -> Option<Actor> {
        self.0.created_by().map(Actor::from)
    }

    /// Time at which a worker first claimed the execution, apart from claims before `startAt`. Null
    /// before that.
    async fn started_at(&self) -> Option<DateTime> {
        self.0.started_at().map(DateTime)
    }

    /// Time at which the execution finished. Null before that.
    async fn finished_at(&self) -> Option<DateTime> {
        self.0.finished_at().map(DateTime)
    }

    /// Name of the machine whose worker claimed the execution last. Null before the first claim.
    async fn node(&self) -> Option<&str> {
        self.0.owner().map(|owner| &*owner.node)
    }

    /// Sequence number of the last event that these values include. Pass it as `afterSeq` to
    /// `executionEvents` to get all later events.
    async fn seq(&self) -> i64 {
        to_int(self.0.seq().0)
    }

    /// Input of the execution. Templates read it as `{{input.x}}`. Null without input.
    async fn input(&self) -> Option<&Value> {
        Some(&*self.0.options().input).filter(|input| !input.is_null())
    }

    /// True if the execution only checks the plan and calls no tool.
    async fn dry_run(&self) -> bool {
        self.0.options().dry_run
    }

    /// True if Faber undoes successful steps when the execution fails or is cancelled.
    async fn compensate_on_failure(&self) -> bool {
        self.0.options().compensate_on_failure
    }

    /// Id of the parent, `exec_…`: the execution that started this execution for a step. Null for
    /// an execution without a parent.
    async fn parent_execution_id(&self) -> Option<ID> {
        self.0.parent().map(|parent| ID(parent.execution.to_string()))
    }

    /// Parent of the execution. Null without a parent.
    async fn parent(&self, ctx: &Context<'_>) -> Result<Option<Self>> {
        let Some(parent) = self.0.parent() else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.execution(parent.execution).await?.map(Self))
    }

    /// Id of the parent's step that started this execution. Null without a parent.
    async fn parent_step_id(&self) -> Option<&str> {
        self.0.parent().map(|parent| parent.step.as_str())
    }

    /// Index of the item in the `forEach` list of the step `parentStepId`, from 0. Null without a
    /// parent, or if this step has no list.
    async fn parent_index(&self) -> Option<u32> {
        self.0.parent()?.part.item
    }

    /// Id of the execution that this execution retries or continues, `exec_…`. Set by
    /// `retryExecution`, `replanExecution` and automatic replans.
    async fn retry_of(&self) -> Option<ID> {
        self.0.retry_of().map(|id| ID(id.to_string()))
    }

    /// Executions whose `retryOf` is this execution, oldest first. Only the 1000 newest executions
    /// of the plan are searched.
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

    /// Id of the execution that this execution repeats with changes, `exec_…`. Set by
    /// `forkExecution`.
    async fn forked_from(&self) -> Option<ID> {
        self.0.forked_from().map(|id| ID(id.to_string()))
    }

    /// Executions whose `forkedFrom` is this execution, oldest first. Only the 1000 newest are
    /// listed.
    async fn forks(&self, ctx: &Context<'_>) -> Result<Vec<Self>> {
        let forks = ctx.data::<Engine>()?.executions.reader.forks(self.0.id()).await;
        let executions = ctx.data::<Loaders>()?.executions(&forks.map_err(ApiError::from)?).await?;
        Ok(executions.into_iter().map(Self).collect())
    }

    /// What a fork of this execution would do. Changes nothing. Fails as `forkExecution` does.
    async fn fork_preview(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of another version of the plan, `plan_…`.")] plan_id: Option<ID>,
        #[graphql(desc = "New input, at most 1 MiB of JSON.")] input: Option<Value>,
        #[graphql(desc = "Changes of steps.")] set: Option<Vec<StepChangeInput>>,
    ) -> Result<ForkPreview> {
        preview_fork(ctx, &self.0, make_order(plan_id.as_ref(), input, set)?).await
    }

    /// Calls of `ONCE` tools that a retry would make again: calls that succeeded, and calls with an
    /// unknown outcome. Compensated calls are not listed.
    async fn repeated_calls(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Steps to run again.", default_with = "RetryMode::All")] mode: RetryMode,
        #[graphql(
            desc = "Id of the first step to run again. Only for `FROM_STEP`, which needs it."
        )]
        from_step: Option<String>,
    ) -> Result<Vec<RepeatedCall>> {
        let scope = retry::parse_scope(Some(mode), from_step.as_deref())?;
        let calls = ctx.data::<Engine>()?.executions.reader.repeated_calls(&self.0, scope).await;
        let calls = calls.map_err(ApiError::from)?;
        Ok(calls.into_iter().map(RepeatedCall::from).collect())
    }

    /// Calls that would undo the execution if it were cancelled now, in the order in which Faber
    /// makes them. Includes child executions. Empty if the execution does not compensate, or has
    /// finished.
    async fn undo_calls(&self, ctx: &Context<'_>) -> Result<Vec<UndoCall>> {
        let calls = ctx.data::<Engine>()?.executions.reader.undo_calls(&self.0).await;
        Ok(calls.map_err(ApiError::from)?.into_iter().map(UndoCall::from).collect())
    }

    /// Execution that continues this execution with the next version of the plan, after a replan.
    /// Null without a replan.
    async fn next(&self, ctx: &Context<'_>) -> Result<Option<Self>> {
        let next =
            ctx.data::<Engine>()?.executions.reader.next(&self.0).await.map_err(ApiError::from)?;
        Ok(next.map(Self))
    }

    /// Automatic replan of this execution. Null if the execution needs no automatic replan.
    async fn replanning(&self, ctx: &Context<'_>) -> Result<Option<Replanning>> {
        let found = ctx
            .data::<Engine>()?
            .executions
            .reader
            .load_replanning(&self.0)
            .await
            .map_err(ApiError::from)?;
        Ok(found.map(Replanning::from))
    }

    /// Reasons why the execution is not progressing now, such as an approval, a signal or a limit.
    /// Empty if it is progressing or has finished.
    async fn waits_for(&self, ctx: &Context<'_>) -> Result<Vec<Wait>> {
        let found = self.find_findings(ctx, MAX_FINDINGS).await?;
        Ok(found.into_iter().filter_map(Wait::from_finding).collect())
    }

    /// Findings about the execution: what happened, why, and what helps. The most severe come
    /// first, then the earliest.
    async fn findings(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "Returns only findings from the log up to the event with this `seq`. Without \
                    it, the findings also depend on workers, pending commands, limits on calls and \
                    toolsets."
        )]
        at_seq: Option<i64>,
        #[graphql(desc = "Maximum number of findings, from 1 to 100. Default: 100.")] first: Option<
            i32,
        >,
    ) -> Result<Vec<Finding>> {
        let maximum = check_count("first", first.unwrap_or(DEFAULT_FINDINGS), MAX_FINDINGS)?;
        let Some(seq) = at_seq else {
            let found = self.find_findings(ctx, maximum).await?;
            return Ok(found.into_iter().map(Finding::from).collect());
        };
        let seq = u64::try_from(seq).map(Seq);
        let seq = seq.map_err(|_| invalid_argument("`atSeq` must not be negative"))?;
        let engine = ctx.data::<Engine>()?;
        let found = engine.executions.findings_at(self.0.id(), seq, maximum).await;
        Ok(found.map_err(ApiError::from)?.into_iter().map(Finding::from).collect())
    }

    /// Number of steps.
    async fn total(&self) -> i64 {
        to_int(self.0.count_steps().total)
    }

    /// Number of steps that succeeded, including steps that were compensated later.
    async fn successful(&self) -> i64 {
        to_int(self.0.count_steps().successful)
    }

    /// Number of steps that failed.
    async fn failed(&self) -> i64 {
        to_int(self.0.count_steps().failed)
    }

    /// Number of steps that were skipped. See `StepStatus.skipReason`.
    async fn skipped(&self) -> i64 {
        to_int(self.0.count_steps().skipped)
    }

    /// Number of steps that a cancellation stopped or prevented from starting, and of loops that
    /// ended early because the execution failed.
    async fn cancelled(&self) -> i64 {
        to_int(self.0.count_steps().cancelled)
    }

    /// All steps with their current state, in execution order.
    async fn steps(&self) -> Vec<StepStatus> {
        StepStatus::list_all(&self.0)
    }

    /// One step with its current state. Null if the plan has no step with this id.
    async fn step(
        &self,
        #[graphql(desc = "Id of the step within the plan.")] step_id: String,
    ) -> Option<StepStatus> {
        StepStatus::find(&self.0, &step_id)
    }

    /// Outputs so far, as `{ stepId: output }` in execution order. A failed step with
    /// `onError: ignore` has the output null.
    async fn outputs(&self) -> Value {
        self.0.outputs()
    }

    /// Outputs, errors and variables of the execution.
    async fn execution_results(&self) -> ExecutionResults {
        ExecutionResults(Arc::clone(&self.0))
    }

    /// Events of the execution, oldest first. A page can be shorter than `first`, because one
    /// answer contains at most about 32 MiB of events.
    async fn events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Returns events after this `seq`.", default_with = "Some(0)")]
        after_seq: Option<i64>,
        #[graphql(desc = "Page size, from 1 to 10000.", default_with = "Some(1000)")] first: Option<
            i32,
        >,
    ) -> Result<Vec<ExecutionEvent>> {
        let maximum = check_count("first", first.unwrap_or(1_000), MAX_EVENTS)?;
        let after = parse_position(after_seq.unwrap_or(0))?;
        let id = self.0.id();
        let events = ctx
            .data::<Engine>()?
            .executions
            .reader
            .events(id, after, &mut EventBudget::new(maximum))
            .await;
        let events = events.map_err(ApiError::from)?;
        Ok(events.into_iter().map(|event| ExecutionEvent::new(id, event)).collect())
    }
}

pub(super) struct ExecutionResults(Arc<Execution>);

/// Results of an execution so far.
#[Object]
impl ExecutionResults {
    /// Outputs so far, as `{ stepId: output }` in execution order. A failed step with
    /// `onError: ignore` has the output null.
    async fn outputs(&self) -> Value {
        self.0.outputs()
    }

    /// Errors of failed steps, in execution order, with the errors of loop items that `onError`
    /// allows. After a missed deadline, at least one error has the code `execution.deadline`.
    async fn errors(&self) -> Vec<StepError> {
        collect_errors(&self.0)
    }

    /// Variables that the steps' `outputMapping` set, as `{ name: value }`.
    async fn variables(&self) -> Value {
        let names = self.0.plan().variables().keys();
        let filled =
            names.filter_map(|name| Some(((**name).to_owned(), self.0.variable(name)?.clone())));
        Value::Object(filled.collect())
    }
}

fn collect_errors(execution: &Arc<Execution>) -> Vec<StepError> {
    let all = StepStatus::list_all(execution);
    let mut errors: Vec<_> = all.iter().flat_map(StepStatus::list_errors).collect();
    if execution.missed_deadline() && !errors.iter().any(StepError::is_missed_deadline) {
        let late = all
            .iter()
            .find(|step| step.never_started())
            .or_else(|| all.iter().find(|step| step.has_failed()));
        errors.extend(late.map(StepStatus::deadline_error));
    }
    errors
}

pub(super) fn parse_position(after: i64) -> Result<Seq, ApiError> {
    let position = u64::try_from(after).map(Seq);
    position
        .map_err(|_| invalid_argument(format!("`afterSeq` is {after}; it must not be negative")))
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

    fn at_ms(ms: i64) -> Timestamp {
        Timestamp::from_timestamp_millis(ms).unwrap()
    }

    fn deadline_errors(effect: &str, result: Result<Value, ToolError>) -> Vec<(String, String)> {
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
        let (mut execution, _) =
            machine::create_execution_from(id, &plan, created, None, at_ms(0)).unwrap();
        let worker = "work_1_aaaaaaaaa".parse().unwrap();
        machine::decide(
            &mut execution,
            Input::Claimed { worker, node: "n".into(), commands_follow: false },
            at_ms(0),
        );
        machine::decide(&mut execution, Input::Woken, at_ms(10));
        let task = Task::from(plan.step_number(&"a".parse().unwrap()).unwrap());
        let (attempt, result) = (Attempt::FIRST, result.map(CallOutput::from));
        machine::decide(&mut execution, Input::Ended { task, attempt, result }, at_ms(11));
        assert!(execution.state().is_finished());
        collect_errors(&Arc::new(execution)).iter().map(StepError::step_and_code).collect()
    }

    /// Regression: the errors did not mention the deadline if the outcome of an effect was unknown.
    #[test]
    fn a_missed_deadline_is_reported() {
        let stopped = || ToolError::new(ErrorCode::CANCELLED, "stopped").with_unknown_outcome();
        let named = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(step, code)| ((*step).to_owned(), (*code).to_owned())).collect()
        };
        let deadline = "execution.deadline";
        assert_eq!(deadline_errors("read", Err(stopped())), named(&[("a", deadline)]));
        let unknown = ("a", "tool.outcome_unknown");
        assert_eq!(deadline_errors("once", Err(stopped())), named(&[unknown, ("b", deadline)]));
        assert_eq!(deadline_errors("once", Ok(json!(1))), named(&[("b", deadline)]));
    }
}
