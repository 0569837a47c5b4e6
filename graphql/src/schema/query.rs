use async_graphql::{Context, ID, MergedObject, Object, Result};
use engine::Engine;
use shared::id::{ExecutionId, PlanId, RequestId};

use super::{
    audit::AuditQuery,
    blob::Blob,
    caller::CallerQuery,
    connection::{ListPage, ListTotal, PageArguments, empty_page, make_page},
    counts::{CountArguments, ExecutionCount, ExecutionGroup},
    error::ApiError,
    execution::ApiExecution,
    input::{ExecutionFilter, PlanFilter, PlanInput, RequestFilter},
    loaders::Loaders,
    node::NodeQuery,
    plan::{Plan, PlanPayload},
    record_lists::RecordQuery,
    request::{Request, load_plans},
    saved_plan::SavedQuery,
    select::SelectQuery,
    tool_operations::ToolQuery,
    toolkit::ToolkitQuery,
    workers::WorkerQuery,
};

/// Queries. An unknown id returns null or an empty list.
#[derive(Clone, Copy, Debug, Default, MergedObject)]
pub(crate) struct Query(
    WorkQuery,
    ToolQuery,
    ToolkitQuery,
    SelectQuery,
    SavedQuery,
    AuditQuery,
    RecordQuery,
    NodeQuery,
    CallerQuery,
    WorkerQuery,
);

#[derive(Clone, Copy, Debug, Default)]
struct WorkQuery;

#[Object]
impl WorkQuery {
    /// One request, with its plans, executions and transcript. Start here to debug a query.
    async fn request(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the request, `req_…`.")] request_id: ID,
    ) -> Result<Option<Request>> {
        let Ok(id) = request_id.parse() else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.request(id).await?.map(Request))
    }

    /// Requests, newest first.
    #[expect(clippy::too_many_arguments, reason = "they are the arguments of the API")]
    async fn requests(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Filter. Default: all requests.")] filter: Option<RequestFilter>,
        #[graphql(desc = "Page size, from 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Returns the items after this cursor, from `pageInfo.endCursor`.")]
        after: Option<String>,
        #[graphql(desc = "Number of items from the end of the list, from 1 to 200. Not together \
                          with `first`.")]
        last: Option<i32>,
        #[graphql(desc = "Returns the items before this cursor, from `pageInfo.startCursor`.")]
        before: Option<String>,
    ) -> Result<ListPage<Request>> {
        let page = PageArguments { first, after, last, before }.parse::<RequestId>(ctx)?;
        let filter = filter.unwrap_or_default().into_store_filter()?;
        let listing = ctx.data::<Engine>()?.store().list_requests(&filter, &page).await;
        let listing = listing.map_err(ApiError::from)?;
        let items = listing.items.into_iter().map(|(cursor, request)| (cursor, Request(request)));
        Ok(make_page(&page, items, listing.has_more, ListTotal::Requests(filter)))
    }

    /// One plan, with its steps and its executions.
    async fn plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the plan, `plan_…`.")] plan_id: ID,
    ) -> Result<Option<Plan>> {
        let Ok(id) = plan_id.parse() else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.plan(id).await?.map(Plan))
    }

    /// All versions of a request's plan, oldest first.
    async fn plans_by_request_id(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the request, `req_…`.")] request_id: ID,
    ) -> Result<Vec<Plan>> {
        let Ok(id) = request_id.parse() else { return Ok(Vec::new()) };
        load_plans(ctx, id).await
    }

    /// Plans, newest first.
    #[expect(clippy::too_many_arguments, reason = "they are the arguments of the API")]
    async fn plans(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Filter. Default: all plans.")] filter: Option<PlanFilter>,
        #[graphql(desc = "Page size, from 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Returns the items after this cursor, from `pageInfo.endCursor`.")]
        after: Option<String>,
        #[graphql(desc = "Number of items from the end of the list, from 1 to 200. Not together \
                          with `first`.")]
        last: Option<i32>,
        #[graphql(desc = "Returns the items before this cursor, from `pageInfo.startCursor`.")]
        before: Option<String>,
    ) -> Result<ListPage<Plan>> {
        let page = PageArguments { first, after, last, before }.parse::<PlanId>(ctx)?;
        let Some(filter) = filter.unwrap_or_default().into_store_filter()? else {
            return Ok(empty_page(&page));
        };
        let listing = ctx.data::<Engine>()?.store().list_plans(&filter, &page).await;
        let listing = listing.map_err(ApiError::from)?;
        let ids: Vec<_> = listing.items.iter().map(|(_, plan)| plan.id).collect();
        let plans = ctx.data::<Loaders>()?.plans(&ids).await?;
        // A plan that was pruned after the page was read is missing, so cursors and plans are
        // matched by id.
        let mut plans = plans.into_iter().peekable();
        let items = listing.items.into_iter().filter_map(|(cursor, listed)| {
            plans.next_if(|plan| plan.id() == listed.id).map(|plan| (cursor, Plan(plan)))
        });
        Ok(make_page(&page, items, listing.has_more, ListTotal::Plans(filter)))
    }

    /// One execution with its current state.
    async fn execution(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the execution, `exec_…`.")] execution_id: ID,
    ) -> Result<Option<ApiExecution>> {
        let Ok(id) = execution_id.parse() else { return Ok(None) };
        Ok(ctx.data::<Loaders>()?.execution(id).await?.map(ApiExecution))
    }

    /// Executions, newest first. A page can be shorter than `first` or `last`, because one answer
    /// contains at most about 32 MiB of executions.
    #[expect(clippy::too_many_arguments, reason = "they are the arguments of the API")]
    async fn executions(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Filter. Default: all executions.")] filter: Option<ExecutionFilter>,
        #[graphql(desc = "Page size, from 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Returns the items after this cursor, from `pageInfo.endCursor`.")]
        after: Option<String>,
        #[graphql(desc = "Number of items from the end of the list, from 1 to 200. Not together \
                          with `first`.")]
        last: Option<i32>,
        #[graphql(desc = "Returns the items before this cursor, from `pageInfo.startCursor`.")]
        before: Option<String>,
    ) -> Result<ListPage<ApiExecution>> {
        let page = PageArguments { first, after, last, before }.parse::<ExecutionId>(ctx)?;
        let Some(filter) = filter.unwrap_or_default().into_store_filter()? else {
            return Ok(empty_page(&page));
        };
        let listing = ctx.data::<Engine>()?.store().list_heads(&filter, &page).await;
        let listing = listing.map_err(ApiError::from)?;
        let mut ids: Vec<_> = listing.items.iter().map(|(_, head)| head.execution).collect();
        if page.from_end {
            // If the page is too large, it keeps the items at the end of its range.
            ids.reverse();
        }
        let (mut executions, looked) = ctx.data::<Loaders>()?.first_executions(&ids).await?;
        if page.from_end {
            executions.reverse();
        }
        let has_more = listing.has_more || looked < ids.len();
        // A head can be stored before the log of its execution. Such an execution is left out.
        let mut executions = executions.into_iter().peekable();
        let items = listing.items.into_iter().filter_map(|(cursor, head)| {
            let found = executions.next_if(|execution| execution.id() == head.execution);
            found.map(|execution| (cursor, ApiExecution(execution)))
        });
        Ok(make_page(&page, items, has_more, ListTotal::Executions(filter)))
    }

    /// Numbers of executions by one or two keys. The largest groups come first, or with `BUCKET` the
    /// newest buckets. Child executions and dry runs are not counted.
    #[expect(clippy::too_many_arguments, reason = "they are the arguments of the API")]
    async fn execution_counts(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Filter. Default: all executions.")] filter: Option<ExecutionFilter>,
        #[graphql(desc = "One or two different keys.")] group_by: Vec<ExecutionGroup>,
        #[graphql(
            desc = "Length of an interval in milliseconds, at least 1. Required for `BUCKET`, and allowed only with it."
        )]
        bucket_ms: Option<i64>,
        #[graphql(desc = "Key of the label. Required for `LABEL`.")] label: Option<String>,
        #[graphql(desc = "Maximum number of groups, from 1 to 1000.", default_with = "Some(100)")]
        first: Option<i32>,
    ) -> Result<Vec<ExecutionCount>> {
        let first = first.unwrap_or(100);
        let arguments = CountArguments { filter, group_by, bucket_ms, label, first };
        let Some(query) = arguments.into_query()? else { return Ok(Vec::new()) };
        let counts = ctx.data::<Engine>()?.store().count_executions(&query).await;
        Ok(counts.map_err(ApiError::from)?.into_iter().map(ExecutionCount::from).collect())
    }

    /// One large binary that a tool returned. Outputs refer to it by `$blob`.
    async fn blob(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of the blob, from the `$blob` field of an output.")] id: ID,
    ) -> Result<Option<Blob>> {
        let Ok(id) = id.parse() else { return Ok(None) };
        let found = shared::blob::load_blob(&**ctx.data::<Engine>()?.store(), &id).await;
        Ok(found.map_err(ApiError::from)?.map(|(blob, base64)| Blob { blob, base64 }))
    }

    /// Compiles a draft without storing anything.
    async fn validate_plan(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Draft to compile.")] input: PlanInput,
    ) -> Result<PlanPayload> {
        let draft = input.into_draft(ctx.data_opt());
        let verdict = ctx.data::<Engine>()?.plans.validate(&draft).await;
        Ok(PlanPayload(verdict.map_err(ApiError::from)?))
    }
}
