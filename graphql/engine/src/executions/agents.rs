//! Starts of agents. An agent is a plan like any other.

use serde_json::json;
use shared::{
    id::{ExecutionId, ToolName},
    labels::Labels,
};

use super::{Executions, Order};
use crate::{
    agent::{self, DEFAULT_TURNS, MAX_TURNS},
    error::EngineError,
    plans::check_query,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentOptions {
    /// The configured model: `model`, the name of its provider, or the name of the model.
    pub planner: Option<String>,
    pub max_tool_turns: Option<i64>,
    /// The toolsets that the agent is allowed to use. An empty list means all active toolsets.
    pub tool_sets: Vec<String>,
}

impl Executions {
    pub async fn start_agent(
        &self,
        query: &str,
        options: &AgentOptions,
    ) -> Result<ExecutionId, EngineError> {
        check_query(query)?;
        let turns = parse_max_turns(options.max_tool_turns)?;
        let model = self.plans.planners.find_model(options.planner.as_deref())?.name().to_owned();
        let (grant, inventory) = (&self.tools.grant, &self.tools.inventory);
        grant.check_start(&*self.store, grant.token_name()).await?;
        // Waits for toolsets that are still connecting, because their tools would not be offered to
        // the agent.
        inventory.wait_until_connected().await;
        let sets = self.tools.check_sets(&options.tool_sets).await?;
        let request = self.plans.new_request(query, &Labels::new()).await?;
        let mut reach = grant.agent_reach();
        // A text that the agent reads could tell it to activate a toolset that acts on this
        // machine.
        let inactive = inventory.inactive_machine_sets(&sets).into_iter();
        reach.except.extend(inactive.filter_map(|set| format!("{set}.*").parse().ok()));
        reach.sets = sets;
        let draft = agent::draft_agent(query, turns, &reach, grant.limits());
        let info = self.plans.new_info(request.id, query.to_owned(), &model);
        let find = |name: &ToolName| {
            inventory
                .toolbox()
                .find_internal_tool(name)
                .map(|internal_tool| internal_tool.tool().clone())
        };
        let plan = planner::compile::compile(&draft, info, &agent::catalog(find));
        let plan = plan.map_err(|diagnostics| EngineError::InvalidPlan {
            diagnostics,
            request: Some(request.id),
        })?;
        let plan = self.plans.store_plan(plan).await?;
        let content = json!({
            "model": model,
            "maxToolTurns": turns,
            "toolSets": options.tool_sets,
            "planId": plan.id(),
        });
        let entry = self.plans.new_entry("agent", content);
        self.store.add_transcript(request.id, &[entry]).await?;
        self.find_or_start(&plan, Order::default(), plan.id().to_string().into()).await
    }
}

fn parse_max_turns(requested: Option<i64>) -> Result<u32, EngineError> {
    let Some(requested) = requested else { return Ok(DEFAULT_TURNS) };
    let turns = u32::try_from(requested).ok().filter(|turns| *turns <= MAX_TURNS);
    turns.ok_or_else(|| {
        EngineError::InvalidArgument(format!(
            "`maxToolTurns` is {requested}; write a number from 0 to {MAX_TURNS}"
        ))
    })
}
