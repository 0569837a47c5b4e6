use async_graphql::{Context, Enum, ID, MergedObject, Object, Result};
use engine::{Engine, EngineError, SettleOrder, Verdict};
use serde_json::Value;
use shared::{
    id::ExecutionId,
    store::{AuditAction, AuditTarget},
};

use super::{
    ClientGone,
    error::{ApiError, ApiResult, not_found, parse_id},
    execution::ApiExecution,
    fork::{StepChangeInput, make_order},
    input::{
        AgentOptions, ExecutionFilter, ExecutionOptions, PlanInput, PlanningOptions, check_input,
    },
    plan::{Plan, PlanPayload},
    plan_mutation::{self, PlanMutation},
    prune::PruneMutation,
    retry::{self, RetryMode},
    scalar::to_int,
    step::SettledOutcome,
    tool_operations::ToolMutation,
    toolkit::ToolkitMutation,
};

/// Mutations. A mutation that starts an execution returns when the execution is stored. Use a
/// subscription or `execution` to follow it.
#[derive(Clone, Copy, Debug, Default, MergedObject)]
pub(crate) struct Mutation(
    WorkMutation,
    ToolMutation,
    ToolkitMutation,
    PruneMutation,
    PlanMutation,
);

#[derive(Clone, Copy, Debug, Default)]
struct WorkMutation;

#[Object]
impl WorkMutation {
    /// Plans a query under a new request. Faber stores the request and its transcript even if
    /// planning fails.
    async fn create_plan_with_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Purpose of the plan, in words, at most 64 KiB.")] query: String,
        #[graphql(desc = "Options of planning.")] options: Option<PlanningOptions>,
    ) -> Result<Plan> {
        plan_mutation::plan_query(ctx.data::<Engine>()?, &query, options).await
    }

    /// Stores an explicit plan. If a diagnostic is an `ERROR`, nothing is stored, and the payload
    /// has the diagnostics.
    async fn create_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Draft of the plan.")] input: PlanInput,
    ) -> Result<PlanPayload> {
        let draft = input.into_draft(ctx.data_opt());
        let engine = ctx.data::<Engine>()?;
        let verdict = engine.plans.create_plan(&draft).await.map_err(ApiError::from)?;
        record_plan(engine, &verdict).await;
        Ok(PlanPayload(verdict))
    }

    /// Stores an explicit plan as the next version of an existing plan, under the same request. If
    /// a diagnostic is an `ERROR`, nothing is stored.
    async fn revise_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of any version of the plan, `plan_…`.")] plan_id: ID,
        #[graphql(desc = "Draft of the next version.")] input: PlanInput,
    ) -> Result<PlanPayload> {
        let id = parse_id("plan", &plan_id)?;
        let draft = input.into_draft(ctx.data_opt());
        let engine = ctx.data::<Engine>()?;
        let verdict = engine.plans.revise(id, &draft).await.map_err(ApiError::from)?;
        record_plan(engine, &verdict).await;
        Ok(PlanPayload(verdict))
    }

    /// Starts an execution of a plan.
    async fn execute_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the plan, `plan_…`.")] plan_id: ID,
        #[graphql(desc = "Options of the execution.")] options: Option<ExecutionOptions>,
    ) -> Result<ApiExecution> {
        let engine = ctx.data::<Engine>()?;
        let order = ExecutionOptions::to_order(options)?;
        let id = engine.executions.start_plan(parse_id("plan", &plan_id)?, order).await;
        load_started(engine, id).await
    }

    /// Starts an execution of the newest plan of a request.
    async fn execute_by_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the request, `req_…`.")] request_id: ID,
        #[graphql(desc = "Options of the execution.")] options: Option<ExecutionOptions>,
    ) -> Result<ApiExecution> {
        let engine = ctx.data::<Engine>()?;
        let order = ExecutionOptions::to_order(options)?;
        let id = engine.executions.start_request(parse_id("request", &request_id)?, order).await;
        load_started(engine, id).await
    }

    /// Plans a query under a new request, and starts an execution of the plan.
    async fn run(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Purpose of the plan, in words, at most 64 KiB.")] query: String,
        #[graphql(desc = "Options of planning.")] planning: Option<PlanningOptions>,
        #[graphql(desc = "Options of the execution.")] execution: Option<ExecutionOptions>,
    ) -> Result<ApiExecution> {
        let engine = ctx.data::<Engine>()?;
        let planning = PlanningOptions::to_engine(planning)?;
        let order = ExecutionOptions::to_order(execution)?;
        let id = engine.executions.plan_and_start(&query, &planning, order).await;
        load_started(engine, id).await
    }

    /// Starts an agent: the configured model calls tools, reads the results, and continues until it
    /// can answer or has used its turns. The output of the step `answer` has the answer.
    async fn run_agent(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Task of the agent, in words, at most 64 KiB.")] query: String,
        #[graphql(desc = "Options of the agent.")] options: Option<AgentOptions>,
    ) -> Result<ApiExecution> {
        let engine = ctx.data::<Engine>()?;
        let id = engine.executions.start_agent(&query, &or_default(options)).await;
        load_started(engine, id).await
    }

    /// Cancels an execution: running steps are asked to stop, and no further step starts. A
    /// finished execution stays as it is.
    async fn cancel_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the execution, `exec_…`.")] execution_id: ID,
        #[graphql(desc = "Reason to store, at most 4096 bytes.")] reason: Option<String>,
    ) -> Result<ApiExecution> {
        to_execution(
            ctx.data::<Engine>()?
                .executions
                .cancel(parse_execution_id(&execution_id)?, reason)
                .await,
        )
    }

    /// Pauses an execution: no further step starts, and running steps finish. Fails with `CONFLICT`
    /// if the execution has finished.
    async fn pause_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the execution, `exec_…`.")] execution_id: ID,
    ) -> Result<ApiExecution> {
        to_execution(
            ctx.data::<Engine>()?.executions.pause(parse_execution_id(&execution_id)?).await,
        )
    }

    /// Resumes a paused execution. Fails with `CONFLICT` if the execution has finished.
    async fn resume_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the execution, `exec_…`.")] execution_id: ID,
    ) -> Result<ApiExecution> {
        to_execution(
            ctx.data::<Engine>()?.executions.resume(parse_execution_id(&execution_id)?).await,
        )
    }

    /// Starts a new execution that retries a finished execution, with the same plan, input and
    /// options, but without `startAt` and idempotency key. A step that was compensated is never
    /// reused.
    async fn retry_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of a finished execution, `exec_…`. Fails with `CONFLICT` if the \
            execution has not finished.")]
        execution_id: ID,
        #[graphql(
            desc = "Id of the first step to run again. Only for `FROM_STEP`, which needs it."
        )]
        from_step: Option<String>,
        #[graphql(desc = "Steps to run again. Default: `ALL`, or `FROM_STEP` with `fromStep`.")]
        mode: Option<RetryMode>,
    ) -> Result<ApiExecution> {
        let engine = ctx.data::<Engine>()?;
        let scope = retry::parse_scope(mode, from_step.as_deref())?;
        let id = engine.executions.retry(parse_execution_id(&execution_id)?, scope).await;
        load_started(engine, id).await
    }

    /// Starts a new execution that repeats a finished execution with changes. Keeps the output of
    /// each step that is unchanged, whose rendered parameters are unchanged, and whose earlier
    /// steps are unchanged. Changed parameters become a new version of the plan. `forkPreview` says
    /// what a fork would do. Fails with `INVALID_ARGUMENT` if `set` names an unknown step.
    async fn fork_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of a finished execution, `exec_…`. Fails with `CONFLICT` if the \
            execution has not finished.")]
        execution_id: ID,
        #[graphql(desc = "Id of another version of the plan, `plan_…`. Default: the plan of the \
            execution.")]
        plan_id: Option<ID>,
        #[graphql(desc = "New input, at most 1 MiB of JSON. Default: the input of the execution.")]
        input: Option<Value>,
        #[graphql(desc = "Changes of steps.")] set: Option<Vec<StepChangeInput>>,
    ) -> Result<ApiExecution> {
        let engine = ctx.data::<Engine>()?;
        let order = make_order(plan_id.as_ref(), input, set)?;
        let id = engine.executions.fork(parse_execution_id(&execution_id)?, order).await;
        load_started(engine, id).await
    }

    /// Lets a planner write the next version of the plan of an execution that failed, was
    /// cancelled, or ended after a `flow.replan` step. The `offline` planner replans only its own
    /// plans. Starts an execution of this version with the same options, except that `startAt` is
    /// removed and `replans` is one less. Faber reuses a step that succeeded and is unchanged in
    /// the new version, unless it depends on a step that runs again. Fails with `CONFLICT` if the
    /// execution was replanned before, is a child execution, or belongs to an agent.
    async fn replan_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the finished execution, `exec_…`.")] execution_id: ID,
        #[graphql(desc = "Options of planning.")] options: Option<PlanningOptions>,
    ) -> Result<ApiExecution> {
        let engine = ctx.data::<Engine>()?;
        let options = PlanningOptions::to_engine(options)?;
        let id = engine.executions.replan(parse_execution_id(&execution_id)?, &options).await;
        load_started(engine, id).await
    }

    /// Saves a plan under a name, so that `runSavedPlan` and steps of other plans can run it. If
    /// another plan had the name, the name now means this plan. Always returns true.
    async fn save_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name, 1 to 128 bytes. It must not be a plan id.")] name: String,
        #[graphql(desc = "Id of the plan, `plan_…`.")] plan_id: ID,
        #[graphql(desc = "Description of the input: a JSON Schema, or a short form such as \
                    `{\"x\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\", \"default\": 1}}`. \
                    In the short form, fields without a `default` are required. Default: any \
                    input.")]
        inputs: Option<Value>,
    ) -> Result<bool> {
        let engine = ctx.data::<Engine>()?;
        plan_mutation::save_plan(engine, &name, &plan_id, inputs.as_ref()).await?;
        Ok(true)
    }

    /// Removes the name of a saved plan. The plan itself stays. Returns false if no plan has the
    /// name.
    async fn remove_saved_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the saved plan.")] name: String,
    ) -> Result<bool> {
        let engine = ctx.data::<Engine>()?;
        let removed = engine.plans.library.remove_saved_plan(&name).await;
        let removed = removed.map_err(ApiError::from)?;
        if removed {
            let (action, target) = (AuditAction::REMOVE_SAVED_PLAN, AuditTarget::named(&name));
            engine.executions.record_action(action, target, Value::Null).await;
        }
        Ok(removed)
    }

    /// Starts an execution of a saved plan. Faber checks the input against the plan's `inputs`, and
    /// fills in defaults.
    async fn run_saved_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the saved plan.")] name: String,
        #[graphql(desc = "Input, at most 1 MiB of JSON. Templates read it as `{{input.x}}`.")]
        input: Option<Value>,
        #[graphql(desc = "Options of the execution.")] options: Option<ExecutionOptions>,
    ) -> Result<ApiExecution> {
        let engine = ctx.data::<Engine>()?;
        let order = ExecutionOptions::to_order(options)?;
        let id = engine.executions.start_saved_plan(&name, Some(check_input(input)?), order).await;
        load_started(engine, id).await
    }

    /// Applies an action to all executions that match a filter, oldest first. Skips executions that
    /// the action cannot change, and executions that are created after this mutation has started.
    /// Returns the number of changed executions.
    async fn bulk_control(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Executions to change. An empty filter matches all executions.")]
        filter: ExecutionFilter,
        #[graphql(desc = "Action to apply.")] action: BulkAction,
        #[graphql(
            desc = "Maximum number of executions per second, at least one a day. `RETRY` does not \
                    wait: it gives the new executions a later `startAt`. Other actions run while the \
                    client waits, and stop if it disconnects. Default: no limit."
        )]
        per_second: Option<f64>,
    ) -> Result<i64> {
        let Some(filter) = filter.into_store_filter()? else { return Ok(0) };
        let client_gone =
            ctx.data_opt::<ClientGone>().map(|gone| gone.0.clone()).unwrap_or_default();
        let engine = ctx.data::<Engine>()?;
        let done =
            engine.executions.steer_all(&filter, action.into(), per_second, &client_gone).await;
        Ok(to_int(done.map_err(ApiError::from)?))
    }

    /// Approves or rejects a step that waits for an approval, or decides whether a step that waits
    /// after a failure is tried again.
    async fn approve_step(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the execution, `exec_…`.")] execution_id: ID,
        #[graphql(desc = "Id of the step, or `step[3]` for one item of a loop. The id of a loop \
            means all its waiting items.")]
        step_id: String,
        #[graphql(desc = "True starts the step, or tries it again. False fails it.")]
        approved: bool,
        #[graphql(desc = "Comment to store, at most 4096 bytes.")] comment: Option<String>,
    ) -> Result<ApiExecution> {
        let id = parse_execution_id(&execution_id)?;
        to_execution(
            ctx.data::<Engine>()?.executions.approve(id, &step_id, approved, comment).await,
        )
    }

    /// Records the outcome of a call that ended with `tool.outcome_unknown`. A waiting step then
    /// succeeds or fails. A failed step stays `FAILED`, but if its call succeeded, a retry reuses
    /// the recorded output. A second call with the same outcome changes nothing.
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the mutation")]
    async fn settle_step(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the execution, `exec_…`.")] execution_id: ID,
        #[graphql(desc = "Id of the step within the plan, or `step[3]` for one item of a loop.")]
        step_id: String,
        #[graphql(
            desc = "Index of the item of a loop, from 0. Required for a loop, unless `stepId` \
                contains it."
        )]
        item: Option<u32>,
        #[graphql(desc = "Outcome of the call.")] outcome: SettledOutcome,
        #[graphql(desc = "Output for `SUCCEEDED`. It must fit `outputSchema`. Default: null.")]
        output: Option<Value>,
        #[graphql(desc = "Comment to store, at most 4096 bytes.")] comment: Option<String>,
    ) -> Result<ApiExecution> {
        let id = parse_execution_id(&execution_id)?;
        let order = SettleOrder { step: step_id, item, outcome: outcome.into(), output, comment };
        to_execution(ctx.data::<Engine>()?.executions.settle(id, order).await)
    }

    /// Sends a signal to an execution. A `flow.wait` step that waits for the signal continues. A
    /// signal that arrives before a step waits for it is stored, at most 1000 for each execution.
    /// Fails with `CONFLICT` if the execution has finished.
    async fn signal_execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the execution, `exec_…`.")] execution_id: ID,
        #[graphql(desc = "Name of the signal, at most 4096 bytes.")] name: String,
        #[graphql(desc = "Output of the `flow.wait` step, at most 1 MiB of JSON. Default: null.")]
        payload: Option<Value>,
    ) -> Result<ApiExecution> {
        let id = parse_execution_id(&execution_id)?;
        let payload = payload.unwrap_or_default();
        to_execution(ctx.data::<Engine>()?.executions.signal(id, name, payload).await)
    }
}

/// Action for many executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "engine::BulkAction")]
pub(super) enum BulkAction {
    /// Cancels executions that have not finished.
    Cancel,
    /// Pauses executions that have not finished.
    Pause,
    /// Resumes paused executions.
    Resume,
    /// Retries finished executions with `mode: FAILED`, except child executions. Leaves out
    /// executions that would repeat a call with an unknown outcome, and logs the number of these
    /// executions.
    Retry,
}

fn or_default<Input: Into<Output>, Output: Default>(input: Option<Input>) -> Output {
    input.map(Into::into).unwrap_or_default()
}

fn parse_execution_id(id: &ID) -> ApiResult<ExecutionId> {
    parse_id("execution", id)
}

async fn record_plan(engine: &Engine, verdict: &Verdict) {
    if let Some(plan) = &verdict.plan {
        engine.executions.record_plan(plan).await;
    }
}

async fn load_started(
    engine: &Engine,
    id: Result<ExecutionId, EngineError>,
) -> Result<ApiExecution> {
    let id = id.map_err(ApiError::from)?;
    let execution = engine.executions.reader.load(id).await.map_err(ApiError::from)?;
    let execution = execution.ok_or_else(|| not_found("execution", &id.to_string()))?;
    Ok(execution.into())
}

fn to_execution(
    execution: Result<shared::execution::Execution, EngineError>,
) -> Result<ApiExecution> {
    Ok(execution.map_err(ApiError::from)?.into())
}
