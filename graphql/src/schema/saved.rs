//! Plans under a name, and plans written down.

use async_graphql::{Context, ID, Object, Result};
use serde_json::Value;
use shared::store;

use super::{
    connection::{MOST, count},
    error::ApiError,
    loaders::Loaders,
    plan::Plan,
    scalar::DateTime,
};
use crate::engine::{Engine, as_input};

/// The saved plans of one list where nobody says.
const FIRST: i32 = 100;

/// A plan under a name.
pub(super) struct SavedPlan(store::SavedPlan);

/// A plan under a name: `runSavedPlan` runs it, and a step can execute it.
#[Object]
impl SavedPlan {
    /// The name.
    async fn name(&self) -> &str {
        &self.0.name
    }

    /// The plan that it means, `plan_…`.
    async fn plan_id(&self) -> ID {
        ID(self.0.plan.to_string())
    }

    /// The plan that it means.
    async fn plan(&self, ctx: &Context<'_>) -> Result<Option<Plan>> {
        Ok(ctx.data::<Loaders>()?.plan(self.0.plan).await?.map(Plan))
    }

    /// The JSON Schema of what it is given as `{{input.x}}`. Null where that is anything.
    async fn inputs(&self) -> Option<&Value> {
        self.0.inputs.as_ref()
    }

    /// When it was saved.
    async fn saved_at(&self) -> DateTime {
        self.0.at.into()
    }
}

/// What anybody may ask of saved plans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SavedQuery;

/// What anybody may ask of saved plans.
#[Object]
impl SavedQuery {
    /// The plans that were saved under a name, by name.
    async fn saved_plans(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "At most so many, 1 to 200.", default_with = "Some(100)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Behind this name.")] after: Option<String>,
    ) -> Result<Vec<SavedPlan>> {
        let first = count("first", first.unwrap_or(FIRST), MOST)?;
        let found = ctx.data::<Engine>()?.plans.library.saved_plans(after.as_deref(), first).await;
        Ok(found.map_err(ApiError::from)?.into_iter().map(SavedPlan).collect())
    }

    /// The plan that was saved under a name. Null where there is none.
    async fn saved_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The name, to the letter.")] name: String,
    ) -> Result<Option<SavedPlan>> {
        let found = ctx.data::<Engine>()?.plans.library.saved_plan(&name).await;
        Ok(found.map_err(ApiError::from)?.map(SavedPlan))
    }

    /// A plan written down as `createPlan` reads it, here or elsewhere: what it executes is written
    /// inside. Null where there is no such plan.
    async fn export_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`plan_…`")] plan_id: ID,
    ) -> Result<Option<Value>> {
        let Ok(id) = plan_id.parse() else { return Ok(None) };
        let draft = ctx.data::<Engine>()?.plans.library.export(id).await.map_err(ApiError::from)?;
        let Some(draft) = draft else { return Ok(None) };
        let mut input = serde_json::to_value(&draft)?;
        as_input(&mut input);
        Ok(Some(input))
    }
}
