use async_graphql::{Context, ID, Object, Result};
use engine::Engine;
use serde_json::Value;
use shared::store::{AuditAction, AuditTarget};

use super::{
    error::{ApiError, parse_id},
    input::PlanningOptions,
    plan::Plan,
    saved_plan::SavedPlan,
};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlanMutation;

#[Object]
impl PlanMutation {
    /// Plans a query under a new request. Faber stores the request and its transcript even if
    /// planning fails. `createPlanWithRequestId` is the older name of this mutation.
    async fn plan_query(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Purpose of the plan, in words, at most 64 KiB.")] query: String,
        #[graphql(desc = "Options of planning.")] options: Option<PlanningOptions>,
    ) -> Result<Plan> {
        plan_query(ctx.data::<Engine>()?, &query, options).await
    }

    /// Saves a plan under a name, as `savePlan` does, and returns the saved plan.
    async fn store_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name, 1 to 128 bytes. It must not be a plan id.")] name: String,
        #[graphql(desc = "Id of the plan, `plan_…`.")] plan_id: ID,
        #[graphql(desc = "Description of the input, as in `savePlan`. Default: any input.")]
        inputs: Option<Value>,
    ) -> Result<SavedPlan> {
        save_plan(ctx.data::<Engine>()?, &name, &plan_id, inputs.as_ref()).await
    }
}

pub(super) async fn plan_query(
    engine: &Engine,
    query: &str,
    options: Option<PlanningOptions>,
) -> Result<Plan> {
    let options = PlanningOptions::to_engine(options)?;
    let planned = engine.plans.plan_query(query, &options).await;
    engine.executions.record_planning(&planned).await;
    Ok(Plan(planned.map_err(ApiError::from)?))
}

pub(super) async fn save_plan(
    engine: &Engine,
    name: &str,
    plan_id: &ID,
    inputs: Option<&Value>,
) -> Result<SavedPlan> {
    let id = parse_id("plan", plan_id)?;
    let saved = engine.plans.library.save_plan(name, id, inputs).await;
    let saved = saved.map_err(ApiError::from)?;
    let target = AuditTarget { plan: Some(id), ..AuditTarget::named(name) };
    engine.executions.record_action(AuditAction::SAVE_PLAN, target, Value::Null).await;
    Ok(SavedPlan(saved))
}
