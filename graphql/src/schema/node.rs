//! Objects with an id in the whole API, as the Relay specification defines them, so that clients
//! can keep each object once.

use std::slice;

use async_graphql::{Context, ID, Interface, Object, Result};
use engine::Engine;
use shared::id::{ExecutionId, PlanId, RequestId, ToolName};
use toolbox::ToolLookup;

use super::{
    error::ApiError,
    execution::ApiExecution,
    loaders::Loaders,
    plan::Plan,
    request::Request,
    step::StepStatus,
    tool::{TOOL_PREFIX, TOOL_SET_PREFIX, Tool, ToolSet},
    toolkit,
};

/// Object that `node` finds by its id.
#[derive(Interface)]
#[graphql(field(name = "id", ty = "ID", desc = "Identifies the object in the whole API."))]
pub(super) enum Node {
    Request(Request),
    Plan(Plan),
    Execution(ApiExecution),
    StepStatus(StepStatus),
    Tool(Tool),
    ToolSet(ToolSet),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeQuery;

#[Object]
impl NodeQuery {
    /// Object with an id that a field `id` returned. Null if there is no such object, or if the
    /// caller does not see it.
    async fn node(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Id of a request, plan, execution, step, tool or toolset.")] id: ID,
    ) -> Result<Option<Node>> {
        let engine = ctx.data::<Engine>()?;
        if let Some(name) = id.strip_prefix(TOOL_PREFIX) {
            return Ok(find_tool(engine, name, &id).await?.map(Node::from));
        }
        if let Some(name) = id.strip_prefix(TOOL_SET_PREFIX) {
            return Ok(find_tool_set(engine, name).await.map(Node::from));
        }
        let loaders = ctx.data::<Loaders>()?;
        if let Some((execution, path)) = id.split_once('/') {
            let Ok(execution) = execution.parse() else { return Ok(None) };
            let Some(execution) = loaders.execution(execution).await? else { return Ok(None) };
            return Ok(StepStatus::find_by_path(&execution, path).map(Node::from));
        }
        if let Ok(id) = id.parse::<ExecutionId>() {
            return Ok(loaders.execution(id).await?.map(|found| ApiExecution(found).into()));
        }
        if let Ok(id) = id.parse::<PlanId>() {
            return Ok(loaders.plan(id).await?.map(|found| Plan(found).into()));
        }
        let Ok(id) = id.parse::<RequestId>() else { return Ok(None) };
        Ok(loaders.request(id).await?.map(|found| Request(found).into()))
    }
}

/// Finds a tool by its qualified name, also a tool that only the toolkit names.
async fn find_tool(engine: &Engine, name: &str, node_id: &str) -> Result<Option<Tool>> {
    let Ok(name) = name.parse::<ToolName>() else { return Ok(None) };
    engine.tools.inventory.wait_for_tools(slice::from_ref(&name)).await;
    let toolbox = engine.tools.inventory.toolbox();
    if let ToolLookup::Tool(found) | ToolLookup::Inactive(found) = toolbox.find_planned(&name) {
        let definition = found.definition();
        let tool = toolbox.set(&definition.set).map(|set| Tool::new(definition, &set));
        return Ok(tool.filter(|tool| engine.grant().allows(&tool.qualified_tool_name())));
    }
    let graph = engine.selection.toolkit().await.map_err(ApiError::from)?;
    let mut tools = toolkit::list_tools(engine, &graph).into_iter();
    Ok(tools.find(|tool| tool.is_unregistered() && tool.node_id() == node_id))
}

async fn find_tool_set(engine: &Engine, name: &str) -> Option<ToolSet> {
    engine.tools.inventory.read_changes().await;
    engine.tools.sets().into_iter().find(|set| set.name.as_str() == name).map(ToolSet)
}
