use async_graphql::{Context, ID, Object, Result};
use engine::{Engine, to_api_form};
use serde_json::Value;
use shared::store;

use super::{
    connection::{MAX_PAGE_SIZE, check_count},
    error::ApiError,
    loaders::Loaders,
    plan::Plan,
    scalar::DateTime,
};

const DEFAULT_SAVED_PLANS: i32 = 100;

pub(super) struct SavedPlan(pub(super) store::SavedPlan);

/// Plan with a name. `runSavedPlan` runs it, and steps of other plans can run it.
#[Object]
impl SavedPlan {
    /// Name of the saved plan.
    async fn name(&self) -> &str {
        &self.0.name
    }

    /// Id of the plan, `plan_…`.
    async fn plan_id(&self) -> ID {
        ID(self.0.plan.to_string())
    }

    /// Plan that has the name. Null if the plan was removed meanwhile.
    async fn plan(&self, ctx: &Context<'_>) -> Result<Option<Plan>> {
        Ok(ctx.data::<Loaders>()?.plan(self.0.plan).await?.map(Plan))
    }

    /// JSON Schema of the plan's input. Null if any input is allowed.
    async fn inputs(&self) -> Option<&Value> {
        self.0.inputs.as_ref()
    }

    /// Time at which the plan was saved under the name.
    async fn saved_at(&self) -> DateTime {
        self.0.at.into()
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SavedQuery;

#[Object]
impl SavedQuery {
    /// Saved plans, sorted by name.
    async fn saved_plans(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Page size, from 1 to 200.", default_with = "Some(100)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Returns the plans whose names come after this name.")] after: Option<
            String,
        >,
    ) -> Result<Vec<SavedPlan>> {
        let first = check_count("first", first.unwrap_or(DEFAULT_SAVED_PLANS), MAX_PAGE_SIZE)?;
        let found = ctx.data::<Engine>()?.plans.library.saved_plans(after.as_deref(), first).await;
        Ok(found.map_err(ApiError::from)?.into_iter().map(SavedPlan).collect())
    }

    /// One saved plan. Null if no plan has the name.
    async fn saved_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the saved plan. Case matters.")] name: String,
    ) -> Result<Option<SavedPlan>> {
        let found = ctx.data::<Engine>()?.plans.library.saved_plan(&name).await;
        Ok(found.map_err(ApiError::from)?.map(SavedPlan))
    }

    /// Draft from which `createPlan` makes the same plan, on this or another installation.
    /// Sub-plans are written inline. Null if there is no such plan.
    async fn export_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the plan, `plan_…`.")] plan_id: ID,
    ) -> Result<Option<Value>> {
        let Ok(id) = plan_id.parse() else { return Ok(None) };
        let draft = ctx.data::<Engine>()?.plans.library.export(id).await.map_err(ApiError::from)?;
        let Some(draft) = draft else { return Ok(None) };
        let mut input = serde_json::to_value(&draft)?;
        to_api_form(&mut input);
        Ok(Some(input))
    }
}
