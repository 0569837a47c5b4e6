//! Agents: begun like any plan.

use serde_json::json;
use shared::{
    glob::ToolPattern,
    id::{ExecutionId, ToolName, ToolSetName},
};
use toolbox::ToolSet;

use super::{Engine, EngineError, Order, planning::check_query};
use crate::agent::{self, MOST_TURNS, TURNS};

/// How an agent is let loose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentOptions {
    /// Which model: `model`, its provider's name, or its own.
    pub planner: Option<String>,
    /// How often it may call tools and see what comes of it.
    pub max_tool_turns: Option<i64>,
    /// Only tools of these sets; empty means all.
    pub tool_sets: Vec<String>,
}

impl Engine {
    /// Lets a model do what a query asks, with the tools that whoever asks may use, and returns
    /// once that is durable.
    pub async fn run_agent(
        &self,
        query: &str,
        options: &AgentOptions,
    ) -> Result<ExecutionId, EngineError> {
        check_query(query)?;
        let turns = turns(options.max_tool_turns)?;
        let model = self.planners.find_model(options.planner.as_deref())?.name().to_owned();
        self.grant.check_room()?;
        // Tools of sets that are connecting are not offered yet.
        self.settled().await;
        let sets = self.known_sets(&options.tool_sets).await?;
        let request = self.new_request(query).await?;
        let mut reach = self.grant.reach();
        reach.except.extend(self.machine_sets(&sets));
        reach.sets = sets;
        let draft = agent::draft(query, turns, &reach);
        let about = self.about(request.id, 1, query.to_owned(), &model);
        let own = |name: &ToolName| self.toolbox.own(name).map(|it| it.tool().clone());
        let plan = planner::compile::compile(&draft, about, &agent::catalog(own));
        let plan = plan.map_err(|diagnostics| EngineError::InvalidPlan {
            diagnostics,
            request: Some(request.id),
        })?;
        let plan = self.keep(plan).await?;
        let told = json!({
            "model": model,
            "maxToolTurns": turns,
            "toolSets": options.tool_sets,
            "planId": plan.id(),
        });
        self.store.add_transcript(request.id, &[self.entry("agent", told)]).await?;
        let subject = plan.id().to_string().into();
        let order = Order::default();
        self.begin(&plan, order, subject).await
    }
}

impl Engine {
    /// Returns what stands for the sets that act on this machine and are switched off. An agent may
    /// switch other sets on; these only a person does, or names them for the agent: what it reads
    /// may tell it to. That it switches none of them on is seen to at the call, whenever they were
    /// switched off; these it does not reach either, whoever switches them on meanwhile.
    fn machine_sets(&self, named: &[ToolSetName]) -> impl Iterator<Item = ToolPattern> {
        let is_off = |it: &&ToolSet| it.acts_here && !it.is_active && !named.contains(&it.name);
        let sets = self.toolbox.sets();
        let off: Vec<_> = sets.iter().filter(is_off).collect();
        let globs: Vec<_> =
            off.iter().filter_map(|it| format!("{}.*", it.name).parse().ok()).collect();
        globs.into_iter()
    }
}

fn turns(wanted: Option<i64>) -> Result<u32, EngineError> {
    let Some(wanted) = wanted else { return Ok(TURNS) };
    let turns = u32::try_from(wanted).ok().filter(|it| *it <= MOST_TURNS);
    turns.ok_or_else(|| {
        EngineError::InvalidArgument(format!(
            "`maxToolTurns` is {wanted}; write a number from 0 to {MOST_TURNS}"
        ))
    })
}
