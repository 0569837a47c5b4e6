use async_graphql::{Context, Object, Result, connection::Edge};
use engine::Engine;
use shared::{id::CallId, store::Cursor};

use super::{
    connection::{
        DEFAULT_PAGE_SIZE, ListPage, ListTotal, MAX_PAGE_SIZE, check_count, new_page, parse_after,
    },
    error::ApiError,
    saved_plan::SavedPlan,
    tool::ToolResult,
};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordQuery;

#[Object]
impl RecordQuery {
    /// Saved plans, sorted by name, as pages. `savedPlans` returns the same plans as a list.
    async fn saved_plan_connection(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Page size, from 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Returns the items after this cursor, from `pageInfo.endCursor`.")]
        after: Option<String>,
    ) -> Result<ListPage<SavedPlan>> {
        let first = check_count("first", first.unwrap_or(DEFAULT_PAGE_SIZE), MAX_PAGE_SIZE)?;
        let library = &ctx.data::<Engine>()?.plans.library;
        let found = library.saved_plans(after.as_deref(), first + 1).await;
        let mut found = found.map_err(ApiError::from)?;
        let has_more = found.len() > first;
        found.truncate(first);
        let mut page = new_page(after.is_some(), has_more, ListTotal::SavedPlans);
        let edges = found.into_iter().map(|saved| Edge::new(saved.name.clone(), SavedPlan(saved)));
        page.edges = edges.collect();
        Ok(page)
    }

    /// Calls outside plans, newest first, as pages. `toolHistory` returns the same calls as a list.
    /// A page can be shorter than `first`, because one answer contains at most about 32 MiB of
    /// calls.
    async fn tool_history_connection(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Returns calls of this tool only, by its name or as `set.name`.")]
        tool_name: Option<String>,
        #[graphql(desc = "Page size, from 1 to 200.", default_with = "Some(20)")] first: Option<
            i32,
        >,
        #[graphql(desc = "Returns the items after this cursor, from `pageInfo.endCursor`.")]
        after: Option<String>,
    ) -> Result<ListPage<ToolResult>> {
        let first = check_count("first", first.unwrap_or(DEFAULT_PAGE_SIZE), MAX_PAGE_SIZE)?;
        let position = after.as_deref().map(parse_after::<CallId>).transpose()?;
        let tools = &ctx.data::<Engine>()?.tools;
        let listed = tools.list_calls_after(tool_name.as_deref(), position.as_ref(), first).await;
        let listed = listed.map_err(ApiError::from)?;
        let mut page = new_page(after.is_some(), listed.has_more, ListTotal::ToolCalls(tool_name));
        let edges = listed.calls.into_iter().map(|call| {
            let cursor = Cursor { at: call.at, id: call.id.clone() };
            Edge::new(cursor.to_string(), ToolResult(call))
        });
        page.edges = edges.collect();
        Ok(page)
    }
}
