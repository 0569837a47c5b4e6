//! Agents: a model that calls tools, sees what comes of that, and goes on until it can answer.
//!
//! There is no second engine for them. An agent is a plan ([`plan`]) in which the turns are written
//! out: a step asks the model ([`turn`]), the next ones call what it asked for, one for each effect
//! ([`toolbox::dispatch`]), and the next turn is given all that was said and done
//! ([`history`]). So each turn is an event, calls of one turn run at the same time, and a crash in
//! the middle of it is a claim like any other.

mod history;
mod plan;
mod quoted;
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
    dispatch::{self, Reach},
};

pub(crate) use self::plan::draft;
use crate::access::Access;

/// Turns with tools where nothing is said.
pub(crate) const TURNS: u32 = 3;
/// The most that can be asked for: each is given all that came before it.
pub(crate) const MOST_TURNS: u32 = 32;
/// What stands behind an answer that was due before the model was done.
pub(crate) const STOPPED: &str = "(Note: Reached maximum tool execution limit)";

/// The step that asks the model.
const TURN: &str = "faber_agent.turn";
/// The step that has the answer.
const ANSWER: &str = "faber_agent.answer";

/// What the steps of agents work with.
#[derive(Debug)]
pub(crate) struct Mind {
    /// Who is asked.
    pub(crate) model: Arc<dyn Model>,
    /// The tools at hand. It holds these steps, so they must not hold it.
    pub(crate) toolbox: WeakToolbox,
    /// Whose limits calls are taken off, where this process serves.
    pub(crate) holders: Arc<OnceLock<Access>>,
    /// Whether tools are offered in the way of the provider. Otherwise in words.
    pub(crate) has_native_tools: bool,
}

/// Returns the tools that only plans of agents have.
pub(crate) fn tools(mind: &Arc<Mind>) -> Vec<Arc<dyn Tool>> {
    let mut tools = dispatch::tools();
    tools.extend(turn::tools(mind));
    tools
}

/// Returns what a plan of an agent is compiled with.
pub(crate) fn catalog(find: impl Fn(&ToolName) -> Option<Arc<dyn Tool>>) -> Catalog {
    let tools = names().filter_map(|name| find(&name));
    Catalog::new(
        tools.map(|tool| CatalogTool { definition: Arc::clone(tool.definition()), is_active: true }),
    )
}

/// Returns the names of the tools that only plans of agents have.
fn names() -> impl Iterator<Item = ToolName> {
    let own = [TURN, ANSWER]
        .into_iter()
        .map(|name| name.parse::<ToolName>().expect("tool names are literals"));
    own.chain(plan::EFFECTS.iter().map(|effect| dispatch::name(effect.1)))
}

/// Returns whether only plans of agents have a tool.
pub(crate) fn is_own(tool: &ToolName) -> bool {
    names().any(|name| name == *tool)
}

/// Returns what the agents of a plan may reach: once for each step that reaches anything.
pub(crate) fn reaches(plan: &Plan) -> impl Iterator<Item = Reach> {
    let own = plan.steps().iter().filter(|step| is_own(&step.tool) && step.tool.as_str() != ANSWER);
    own.map(|step| {
        let reach = step.parameters.get("reach").cloned().unwrap_or_default();
        serde_json::from_value(reach).unwrap_or_default()
    })
}
