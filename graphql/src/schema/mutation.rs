//! What anybody may do.

use std::str::FromStr;

use async_graphql::{Context, Enum, ID, MergedObject, Object, Result};
use serde_json::Value;
use shared::id::ExecutionId;

use super::{
    ClientGone,
    error::{ApiError, ApiResult, not_found},
    execution::Execution,
    house::HouseMutation,
    input::{AgentOptions, ExecutionFilter, ExecutionOptions, PlanInput, PlanningOptions, given},
    plan::{Plan, PlanPayload},
    retry::{self, RetryMode},
    scalar::int,
    step::SettledOutcome,
    tool_work::ToolMutation,
    toolkit::ToolkitMutation,
};
use crate::engine::{Engine, EngineError, SettleOrder};

/// What anybody may do.
#[derive(Clone, Copy, Debug, Default, MergedObject)]
pub struct Mutation(WorkMutation, ToolMutation, ToolkitMutation, HouseMutation);

/// Plans and executions.
#[derive(Clone, Copy, Debug, Default)]
struct WorkMutation;

/// What anybody may do. Those that execute return at once: watch with a subscription, or ask
/// `execution`.
#[Object]
impl WorkMutation {
    /// Plans a query under a new request. The request and its transcript are kept even when no
    /// plan comes of it.
    async fn create_plan_with_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What is to be done, in words.")] query: String,
        #[graphql(desc = "How the plan is made.")] options: Option<PlanningOptions>,
    ) -> Result<Plan> {
        let plan = ctx.data::<Engine>()?.plans.plan_query(&query, &options.into()).await;
        Ok(Plan(plan.map_err(ApiError::from)?))
    }

    /// Keeps an explicit plan. Problems come back as data, and then nothing is stored.
    async fn create_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The draft.")] input: PlanInput,
    ) -> Result<PlanPayload> {
        let draft = input.into_draft(ctx.data_opt());
        let verdict = ctx.data::<Engine>()?.plans.create_plan(&draft).await;
        Ok(PlanPayload(verdict.map_err(ApiError::from)?))
    }

    /// Keeps an explicit plan as the next version under a plan's request.
    async fn revise_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`plan_…`, any version.")] plan_id: ID,
        #[graphql(desc = "The draft.")] input: PlanInput,
    ) -> Result<PlanPayload> {
        let id = known("plan", &plan_id)?;
        let draft = input.into_draft(ctx.data_opt());
        let verdict = ctx.data::<Engine>()?.plans.revise(id, &draft).await;
        Ok(PlanPayload(verdict.map_err(ApiError::from)?))
    }

    /// Starts an execution of a plan.
    async fn execute_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`plan_…`")] plan_id: ID,
        #[graphql(desc = "How it is carried out.")] options: Option<ExecutionOptions>,
    ) -> Result<Execution> {
        let engine = ctx.data::<Engine>()?;
        let order = ExecutionOptions::order(options)?;
        let id = engine.executions.start_plan(known("plan", &plan_id)?, order).await;
        started(engine, id).await
    }

    /// Starts an execution of the newest plan of a request.
    async fn execute_by_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`req_…`")] request_id: ID,
        #[graphql(desc = "How it is carried out.")] options: Option<ExecutionOptions>,
    ) -> Result<Execution> {
        let engine = ctx.data::<Engine>()?;
        let order = ExecutionOptions::order(options)?;
        let id = engine.executions.start_request(known("request", &request_id)?, order).await;
        started(engine, id).await
    }

    /// Plans a query and starts an execution of the plan.
    async fn run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What is to be done, in words.")] query: String,
        #[graphql(desc = "How the plan is made.")] planning: Option<PlanningOptions>,
        #[graphql(desc = "How it is carried out.")] execution: Option<ExecutionOptions>,
    ) -> Result<Execution> {
        let engine = ctx.data::<Engine>()?;
        let order = ExecutionOptions::order(execution)?;
        let id = engine.executions.plan_and_start(&query, &planning.into(), order).await;
        started(engine, id).await
    }

    /// Lets the configured model do what a query asks: it calls tools, sees what comes of that, and
    /// goes on until it can answer or has had its turns. The step `answer` has the answer.
    async fn run_agent(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What is to be done, in words.")] query: String,
        #[graphql(desc = "How it is done.")] options: Option<AgentOptions>,
    ) -> Result<Execution> {
        let engine = ctx.data::<Engine>()?;
        let id = engine.executions.start_agent(&query, &options.into()).await;
        started(engine, id).await
    }

    /// Asks an execution to stop. Running steps are told; one that has ended stays as it is.
    async fn cancel_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
        #[graphql(desc = "Why, for those who look at it later.")] reason: Option<String>,
    ) -> Result<Execution> {
        told(ctx.data::<Engine>()?.executions.cancel(execution(&execution_id)?, reason).await)
    }

    /// Asks an execution to begin no further step. Running ones end and are recorded.
    async fn pause_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
    ) -> Result<Execution> {
        told(ctx.data::<Engine>()?.executions.pause(execution(&execution_id)?).await)
    }

    /// Asks an execution that was paused to go on.
    async fn resume_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
    ) -> Result<Execution> {
        told(ctx.data::<Engine>()?.executions.resume(execution(&execution_id)?).await)
    }

    /// Does an ended execution again, as a new one of the same plan with the same options. `mode`
    /// says how much; without `mode` and `fromStep` all of it is done again. From a step on, what
    /// succeeded before that step in execution order and was not compensated is taken over.
    async fn retry_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`; it must have ended.")] execution_id: ID,
        #[graphql(desc = "The step to begin with, for `FROM_STEP`.")] from_step: Option<String>,
        #[graphql(desc = "How much is done again.")] mode: Option<RetryMode>,
    ) -> Result<Execution> {
        let engine = ctx.data::<Engine>()?;
        let scope = retry::scope(mode, from_step.as_deref())?;
        let id = engine.executions.retry(execution(&execution_id)?, scope).await;
        started(engine, id).await
    }

    /// Lets the configured model plan anew what an ended execution did not get done, knowing what
    /// came of each step, and carries that out: version n+1 of the plan, as a new execution with the
    /// same options. What succeeded and stands in the new version as it was is not done again.
    async fn replan_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`; it must have ended, and not well.")] execution_id: ID,
        #[graphql(desc = "How the plan is made.")] options: Option<PlanningOptions>,
    ) -> Result<Execution> {
        let engine = ctx.data::<Engine>()?;
        let id = engine.executions.replan(execution(&execution_id)?, &options.into()).await;
        started(engine, id).await
    }

    /// Gives a plan a name, in the place of what had it: `runSavedPlan` runs it, and a step can
    /// execute it. `inputs` says what it is given as `{{input.x}}`: a JSON Schema, or
    /// `{"x": {"type": "string"}, "n": {"type": "integer", "default": 1}}`, where those without a
    /// `default` are required.
    async fn save_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The name: 1 to 128 bytes, not the id of a plan.")] name: String,
        #[graphql(desc = "`plan_…`")] plan_id: ID,
        #[graphql(desc = "What it is given. Anything where it is left out.")] inputs: Option<Value>,
    ) -> Result<bool> {
        let id = known("plan", &plan_id)?;
        let saved = ctx.data::<Engine>()?.plans.library.save_plan(&name, id, inputs.as_ref()).await;
        saved.map_err(ApiError::from)?;
        Ok(true)
    }

    /// Takes a name away from its plan, which stays. False where nothing has it.
    async fn remove_saved_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The name.")] name: String,
    ) -> Result<bool> {
        Ok(ctx
            .data::<Engine>()?
            .plans
            .library
            .remove_saved_plan(&name)
            .await
            .map_err(ApiError::from)?)
    }

    /// Starts an execution of the plan that was saved under a name. The input must fit what
    /// `savePlan` said of it; what is left out gets its default.
    async fn run_saved_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The name.")] name: String,
        #[graphql(desc = "What the plan is given: `{{input.x}}`.")] input: Option<Value>,
        #[graphql(desc = "How it is carried out.")] options: Option<ExecutionOptions>,
    ) -> Result<Execution> {
        let engine = ctx.data::<Engine>()?;
        let order = ExecutionOptions::order(options)?;
        let id = engine.executions.start_saved_plan(&name, Some(given(input)?), order).await;
        started(engine, id).await
    }

    /// Does something to every execution that matches and that it fits, the newest last, and
    /// returns how many there were. CANCEL and PAUSE fit what has not ended, RESUME what is
    /// paused, RETRY what has ended (as `retryExecution` with `mode: FAILED`); what is created meanwhile
    /// is left alone. RETRY leaves out executions that would repeat a call whose outcome is unknown,
    /// and logs how many. A filter that says nothing matches every execution.
    async fn bulk_control(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Which executions.")] filter: ExecutionFilter,
        #[graphql(desc = "What is done.")] action: BulkAction,
        #[graphql(
            desc = "At most so many a second, more than 0. RETRY returns at once, and spreads the \
                    new executions by their `startAt`; the others are spread while the client \
                    waits, and end when it leaves."
        )]
        per_second: Option<f64>,
    ) -> Result<i64> {
        let Some(filter) = filter.read() else { return Ok(0) };
        let left = ctx.data_opt::<ClientGone>().map(|gone| gone.0.clone()).unwrap_or_default();
        let engine = ctx.data::<Engine>()?;
        let done = engine.executions.steer_all(&filter, action.into(), per_second, &left).await;
        Ok(int(done.map_err(ApiError::from)?))
    }

    /// Lets a step that waits for a person go on, or not: before it starts, or after it failed.
    async fn approve_step(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
        #[graphql(
            desc = "The step's name within the plan: with `forEach` that means all items that \
                    wait, and `step[3]` one of them."
        )]
        step_id: String,
        #[graphql(desc = "Whether it may go on.")] approved: bool,
        #[graphql(desc = "Why, for those who look at it later.")] comment: Option<String>,
    ) -> Result<Execution> {
        let id = execution(&execution_id)?;
        told(ctx.data::<Engine>()?.executions.approve(id, &step_id, approved, comment).await)
    }

    /// Records what became of a call whose outcome is unknown (`tool.outcome_unknown`). A step that
    /// waits goes on with the output, or fails. Of a step that failed, the decision is kept beside
    /// the log: a retry of what failed reuses the output. The same answer twice changes nothing.
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the mutation")]
    async fn settle_step(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
        #[graphql(desc = "The step's name within the plan; `step[3]` is one item of a `forEach`.")]
        step_id: String,
        #[graphql(desc = "The item of the step's `forEach`, from 0.")] item: Option<u32>,
        #[graphql(desc = "What became of the call.")] outcome: SettledOutcome,
        #[graphql(
            desc = "What the call returned, for SUCCEEDED. Null where it is left out; it must fit \
                    the tool's `outputSchema`."
        )]
        output: Option<Value>,
        #[graphql(desc = "Why, for those who look at it later.")] comment: Option<String>,
    ) -> Result<Execution> {
        let id = execution(&execution_id)?;
        let order = SettleOrder { step: step_id, item, outcome: outcome.into(), output, comment };
        told(ctx.data::<Engine>()?.executions.settle(id, order).await)
    }

    /// Tells an execution what a `flow.wait` step waits for, or will wait for later.
    async fn signal_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
        #[graphql(desc = "The signal's name.")] name: String,
        #[graphql(desc = "What it brings: the output of the step that waits for it.")]
        payload: Option<Value>,
    ) -> Result<Execution> {
        let id = execution(&execution_id)?;
        let payload = payload.unwrap_or_default();
        told(ctx.data::<Engine>()?.executions.signal(id, name, payload).await)
    }
}

/// What is done to many executions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "crate::engine::BulkAction")]
pub(super) enum BulkAction {
    /// They are asked to stop.
    Cancel,
    /// They are asked to begin no further step.
    Pause,
    /// They are asked to go on.
    Resume,
    /// Those that have ended are retried: of each, the steps that did not succeed.
    Retry,
}

fn known<Id: FromStr>(what: &str, id: &ID) -> ApiResult<Id> {
    id.parse().map_err(|_| not_found(what, id))
}

fn execution(id: &ID) -> ApiResult<ExecutionId> {
    known("execution", id)
}

/// Returns an execution that has just begun as it now stands.
async fn started(engine: &Engine, id: Result<ExecutionId, EngineError>) -> Result<Execution> {
    let id = id.map_err(ApiError::from)?;
    let execution = engine.executions.reader.load(id).await.map_err(ApiError::from)?;
    let execution = execution.ok_or_else(|| not_found("execution", &id.to_string()))?;
    Ok(execution.into())
}

fn told(execution: Result<shared::execution::Execution, EngineError>) -> Result<Execution> {
    Ok(execution.map_err(ApiError::from)?.into())
}
