//! What a caller may do with tools and plans: asked here, before anything is planned or begun.

use std::{collections::BTreeSet, sync::Arc};

use executor::toolbox::ToolSet;
use shared::{
    id::{PlanId, ToolName},
    plan::Plan,
};

use serde_json::Value;

use super::{Engine, EngineError};
use crate::{
    access::{AccessError, Grant},
    agent,
};

/// The tool that lists all sets: who may use it may see what they may use.
const LIST: &str = "ToolSet.list_toolset";

impl From<AccessError> for EngineError {
    fn from(err: AccessError) -> Self {
        match err {
            AccessError::Role { .. } | AccessError::Tool { .. } => Self::Forbidden(err.to_string()),
            AccessError::Spent { .. } => Self::LimitExceeded(err.to_string()),
        }
    }
}

impl Engine {
    /// Returns the same engine as one caller may use it.
    #[must_use]
    pub fn granted(&self, grant: Grant) -> Self {
        Self { grant, ..self.clone() }
    }

    /// Returns what whoever asks may do.
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Returns every toolset with the tools that whoever asks may use. Sets without any are not
    /// there; those that have none yet are.
    pub fn sets(&self) -> Vec<ToolSet> {
        let mut sets = self.toolbox.sets();
        if !self.grant.allows_every_tool() {
            sets.retain_mut(|set| {
                let had_none = set.tools.is_empty();
                set.tools.retain(|it| self.grant.allows(&it.definition().qualified()));
                had_none || !set.tools.is_empty()
            });
        }
        sets
    }

    /// Returns what a tool returned as far as whoever asks may see it: of a list of sets those that
    /// [`sets`](Self::sets) has.
    pub(super) fn visible(&self, tool: &str, mut result: Value) -> Value {
        if self.grant.allows_every_tool() || tool != LIST {
            return result;
        }
        let Some(listed) = result.get_mut("toolSets").and_then(Value::as_array_mut) else {
            return result;
        };
        let sets = self.sets();
        listed.retain_mut(|it| {
            let Some(set) = sets.iter().find(|set| it["name"] == set.name.as_str()) else {
                return false;
            };
            let names = set.tools.iter().map(|it| Value::from(it.definition().name.as_str()));
            it["tools"] = names.collect();
            true
        });
        result
    }

    /// Refuses a plan that calls a tool that whoever asks may not use, also in the plans that it
    /// executes.
    pub(super) async fn check_plan(&self, plan: &Arc<Plan>) -> Result<(), EngineError> {
        if self.grant.allows_every_tool() {
            return Ok(());
        }
        self.check_tools_of(plan).await.map(drop)
    }

    /// Returns the tools of a plan, if whoever asks may use all of them. Which tools an agent calls
    /// turns out later: it must reach no others than its caller does.
    async fn check_tools_of(&self, plan: &Arc<Plan>) -> Result<BTreeSet<ToolName>, EngineError> {
        let plans = self.with_below(plan).await?;
        for reach in plans.iter().flat_map(|it| agent::reaches(it)) {
            self.grant.check_reach(&reach)?;
        }
        let tools = plans.iter().flat_map(|it| it.tools());
        let is_own = |it: &&ToolName| agent::is_own(it) && self.toolbox.own(it).is_some();
        let tools: BTreeSet<ToolName> = tools.filter(|it| !is_own(it)).cloned().collect();
        self.grant.check_tools(&tools)?;
        Ok(tools)
    }

    /// Refuses plans that are not kept yet in the same way.
    pub(super) async fn check_plans(&self, plans: &[Plan]) -> Result<(), EngineError> {
        if self.grant.allows_every_tool() {
            return Ok(());
        }
        for plan in plans {
            self.check_plan(&Arc::new(plan.clone())).await?;
        }
        Ok(())
    }

    /// Does the same for a beginning, and takes it off the caller's limits.
    pub(super) async fn check_start(&self, plan: &Arc<Plan>) -> Result<(), EngineError> {
        if self.grant.name().is_none() {
            return Ok(());
        }
        let tools = self.check_tools_of(plan).await?;
        Ok(self.grant.spend(&tools)?)
    }

    /// Returns the tools of a plan and of all that it executes.
    pub(super) async fn tools_of(
        &self,
        plan: &Arc<Plan>,
    ) -> Result<BTreeSet<ToolName>, EngineError> {
        let plans = self.with_below(plan).await?;
        Ok(plans.iter().flat_map(|it| it.tools()).cloned().collect())
    }

    /// Returns a plan and all that it executes, each once.
    async fn with_below(&self, plan: &Arc<Plan>) -> Result<Vec<Arc<Plan>>, EngineError> {
        let below = self.below(plan).await?;
        let mut seen: BTreeSet<PlanId> = BTreeSet::new();
        let plans = std::iter::once(plan).chain(below.iter().flatten());
        Ok(plans.filter(|it| seen.insert(it.id())).cloned().collect())
    }
}
