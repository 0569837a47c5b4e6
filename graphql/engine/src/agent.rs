//! Agents: a model calls tools in turns until it can answer. An agent is a plan that contains each
//! turn as steps, so a crash needs no special recovery.

mod history;
mod plan;
mod quoted_calls;
mod search;
#[cfg(test)]
pub(crate) mod tests;
mod turn;

use std::sync::{Arc, OnceLock};

use planner::{
    catalog::{Catalog, CatalogTool},
    model::Model,
};
use shared::{id::ToolName, plan::Plan};
use toolbox::{
    Tool, WeakToolbox,
    dispatch::{self, ToolReach},
};

pub(crate) use self::plan::draft_agent;
use crate::access::Access;

pub(crate) const DEFAULT_TURNS: u32 = 3;
/// Maximum number of turns. Each turn gets the text of all earlier turns, so more turns would be
/// expensive.
pub(crate) const MAX_TURNS: u32 = 32;
/// Note that is added to an answer if the model still requested calls in its last turn.
pub(crate) const STOPPED_NOTE: &str = "(Note: Reached maximum tool execution limit)";

const TURN_TOOL: &str = "faber_agent.turn";
const ANSWER_TOOL: &str = "faber_agent.answer";

#[derive(Debug)]
pub(crate) struct AgentContext {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) toolbox: WeakToolbox,
    /// Access tokens, toward whose limits the calls of agents count. Only `faber serve` sets this
    /// field.
    pub(crate) server_access: Arc<OnceLock<Access>>,
    /// Counts the calls of agents in a process without access tokens, such as `faber worker`.
    pub(crate) own_access: Access,
    /// True if Faber sends the tools to the model in the provider's format. Otherwise the prompt
    /// describes the tools.
    pub(crate) has_native_tools: bool,
}

pub(crate) fn tools(agent_context: &Arc<AgentContext>) -> Vec<Arc<dyn Tool>> {
    let mut tools = dispatch::dispatch_tools();
    tools.extend(turn::model_steps(agent_context));
    tools
}

pub(crate) fn catalog(find: impl Fn(&ToolName) -> Option<Arc<dyn Tool>>) -> Catalog {
    let tools = agent_tool_names().filter_map(|name| find(&name));
    Catalog::new(
        tools
            .map(|tool| CatalogTool { definition: Arc::clone(tool.definition()), is_active: true }),
    )
}

fn agent_tool_names() -> impl Iterator<Item = ToolName> {
    let own_tools = [TURN_TOOL, ANSWER_TOOL]
        .into_iter()
        .map(|name| name.parse::<ToolName>().expect("tool names are literals"));
    own_tools.chain(plan::NAMED_EFFECTS.iter().map(|effect| dispatch::dispatch_tool_name(effect.1)))
}

/// Returns `true` for a tool that only plans of agents use.
pub fn is_agent_tool(tool: &ToolName) -> bool {
    agent_tool_names().any(|name| name == *tool)
}

pub(crate) fn list_reaches(plan: &Plan) -> impl Iterator<Item = ToolReach> {
    let turns = plan
        .steps()
        .iter()
        .filter(|step| is_agent_tool(&step.tool) && step.tool.as_str() != ANSWER_TOOL);
    turns.map(|step| {
        let reach = step.parameters.get("reach").cloned().unwrap_or_default();
        serde_json::from_value(reach).unwrap_or_default()
    })
}
