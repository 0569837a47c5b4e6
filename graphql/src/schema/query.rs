//! What anybody may ask.

use async_graphql::{Context, ID, MergedObject, Object, Result};
use shared::id::{ExecutionId, PlanId, RequestId};

use super::{
    blob::Blob,
    connection::{Part, nothing, page, part},
    error::ApiError,
    execution::Execution,
    input::{ExecutionFilter, PlanFilter, PlanInput, RequestFilter},
    loaders::Loaders,
    plan::{Plan, PlanPayload},
    request::{Request, plans_of},
    saved::SavedQuery,
    select::SelectQuery,
    tool_work::ToolQuery,
    toolkit::ToolkitQuery,
};
use crate::engine::Engine;

/// What anybody may ask.
#[derive(Clone, Copy, Debug, Default, MergedObject)]
pub struct Query(WorkQuery, ToolQuery, ToolkitQuery, SelectQuery, SavedQuery);

/// Requests, plans and executions.
#[derive(Clone, Copy, Debug, Default)]
struct WorkQuery;

/// What anybody may ask. An id that names nothing, or is none, gives null.
#[Object]
impl WorkQuery {
    /// Everything that belongs to one query. Debugging begins here.
    async fn request(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`req_…`")] request_id: ID,
    ) -> Result<Option<Request>> {
        let Ok(id) = request_id.parse() else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.request(id).await?.map(Request))
    }

    /// Requests, the newest first.
    async fn requests(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Which of them.")] filter: Option<RequestFilter>,
        #[graphql(desc = "At most so many, 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Behind the `endCursor` of another part.")] after: Option<String>,
    ) -> Result<Part<Request>> {
        let page = page::<RequestId>(first, after.as_deref())?;
        let filter = filter.unwrap_or_default().read()?;
        let listing = ctx.data::<Engine>()?.store().list_requests(&filter, &page).await;
        let listing = listing.map_err(ApiError::from)?;
        let items = listing.items.into_iter().map(|(cursor, request)| (cursor, Request(request)));
        Ok(part(&page, items, listing.has_more))
    }

    /// One plan.
    async fn plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`plan_…`")] plan_id: ID,
    ) -> Result<Option<Plan>> {
        let Ok(id) = plan_id.parse() else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.plan(id).await?.map(Plan))
    }

    /// Every version of a request's plan, oldest first.
    async fn plans_by_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`req_…`")] request_id: ID,
    ) -> Result<Vec<Plan>> {
        let Ok(id) = request_id.parse() else { return Ok(Vec::new()) };
        plans_of(ctx, id).await
    }

    /// Plans, the newest first.
    async fn plans(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Which of them.")] filter: Option<PlanFilter>,
        #[graphql(desc = "At most so many, 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Behind the `endCursor` of another part.")] after: Option<String>,
    ) -> Result<Part<Plan>> {
        let page = page::<PlanId>(first, after.as_deref())?;
        let Some(filter) = filter.unwrap_or_default().read()? else { return Ok(nothing(&page)) };
        let listing = ctx.data::<Engine>()?.store().list_plans(&filter, &page).await;
        let listing = listing.map_err(ApiError::from)?;
        let ids: Vec<_> = listing.items.iter().map(|(_, plan)| plan.id).collect();
        let plans = ctx.data::<Loaders>()?.plans(&ids).await?;
        // What is gone meanwhile is left out, so places and plans are matched by identifier.
        let mut plans = plans.into_iter().peekable();
        let items = listing.items.into_iter().filter_map(|(cursor, listed)| {
            plans.next_if(|plan| plan.id() == listed.id).map(|plan| (cursor, Plan(plan)))
        });
        Ok(part(&page, items, listing.has_more))
    }

    /// One execution as it now stands.
    async fn execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…`")] execution_id: ID,
    ) -> Result<Option<Execution>> {
        let Ok(id) = execution_id.parse() else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.execution(id).await?.map(Execution))
    }

    /// Executions, the newest first.
    async fn executions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Which of them.")] filter: Option<ExecutionFilter>,
        #[graphql(desc = "At most so many, 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Behind the `endCursor` of another part.")] after: Option<String>,
    ) -> Result<Part<Execution>> {
        let page = page::<ExecutionId>(first, after.as_deref())?;
        let Some(filter) = filter.unwrap_or_default().read() else { return Ok(nothing(&page)) };
        let listing = ctx.data::<Engine>()?.store().list_heads(&filter, &page).await;
        let listing = listing.map_err(ApiError::from)?;
        let ids: Vec<_> = listing.items.iter().map(|(_, head)| head.execution).collect();
        let (executions, looked) = ctx.data::<Loaders>()?.first_executions(&ids).await?;
        let has_more = listing.has_more || looked < ids.len();
        // A head may be there before its log is.
        let mut executions = executions.into_iter().peekable();
        let items = listing.items.into_iter().filter_map(|(cursor, head)| {
            let found = executions.next_if(|execution| execution.id() == head.execution);
            found.map(|execution| (cursor, Execution(execution)))
        });
        Ok(part(&page, items, has_more))
    }

    /// A large binary that a tool returned, and to which its output refers by `$blob`.
    async fn blob(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "`exec_…/SHA-256`, as the reference has it")] id: ID,
    ) -> Result<Option<Blob>> {
        let Ok(id) = id.parse() else { return Ok(None) };
        let found = shared::blob::get(&**ctx.data::<Engine>()?.store(), &id).await;
        Ok(found.map_err(ApiError::from)?.map(|(blob, base64)| Blob { blob, base64 }))
    }

    /// Compiles a draft and stores nothing.
    async fn validate_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The draft.")] input: PlanInput,
    ) -> Result<PlanPayload> {
        let draft = input.into_draft(ctx.data_opt());
        let verdict = ctx.data::<Engine>()?.plans.validate(&draft).await;
        Ok(PlanPayload(verdict.map_err(ApiError::from)?))
    }
}
