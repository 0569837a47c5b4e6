//! What a caller may do with tools and plans: asked here, before anything is planned or begun.

use std::{collections::BTreeSet, sync::Arc};

use planner::{
    compile::Compiled,
    reuse::{RetryScope, kept_steps},
};
use serde_json::Value;
use shared::{
    execution::Execution,
    id::{PlanId, ToolName},
    plan::{Plan, StepKind},
};
use toolbox::ToolSet;

use super::{Engine, EngineError, retry::refused};
use crate::{
    access::{Access, AccessError, Grant},
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

    /// Says who may come in: what agents call is taken off the limits of who let them loose. Only
    /// the first that is said counts.
    pub fn tell_holders(&self, access: Access) {
        let _ = self.holders.set(access);
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
                set.tools.retain(|it| self.grant.allows(&it.definition().qualified_name()));
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
        let tools = plans.iter().flat_map(|it| it.called_tools());
        let is_own = |it: &&ToolName| agent::is_own(it) && self.toolbox.own(it).is_some();
        let tools: BTreeSet<ToolName> = tools.filter(|it| !is_own(it)).cloned().collect();
        self.grant.check_tools(&tools)?;
        Ok(tools)
    }

    /// Refuses plans that are not kept yet in the same way.
    pub(super) async fn check_compiled(&self, compiled: &Compiled) -> Result<(), EngineError> {
        if self.grant.allows_every_tool() {
            return Ok(());
        }
        for plan in compiled.inner.iter().chain([&compiled.plan]) {
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
        if self.grant.has_limits() {
            let plans = self.with_below(plan).await?;
            for reach in plans.iter().flat_map(|it| agent::reaches(it)) {
                self.grant.check_payer(&reach)?;
            }
        }
        Ok(self.grant.spend(&tools)?)
    }

    /// Returns the tools of a plan and of all that it executes.
    pub async fn tools_of(&self, plan: &Arc<Plan>) -> Result<BTreeSet<ToolName>, EngineError> {
        let plans = self.with_below(plan).await?;
        Ok(plans.iter().flat_map(|it| it.called_tools()).cloned().collect())
    }

    /// Returns the tools that a retry may call: those of the steps that it does again, of what undoes
    /// any step, and of all that these execute.
    pub async fn tools_of_retry(
        &self,
        ended: &Execution,
        scope: RetryScope<'_>,
    ) -> Result<BTreeSet<ToolName>, EngineError> {
        let kept = kept_steps(ended, scope).map_err(|err| refused(ended, err))?;
        let mut tools = BTreeSet::new();
        for (step, is_kept) in ended.plan().steps().iter().zip(kept) {
            let undo = step.compensate.as_ref().filter(|_| ended.options().compensate_on_failure);
            tools.extend(undo.map(|undo| undo.tool.clone()));
            if is_kept {
                continue;
            }
            tools.extend(step.called_tool().cloned());
            if let StepKind::Plan(id) = step.kind
                && let Some(plan) = self.plan(id).await?
            {
                tools.append(&mut self.tools_of(&plan).await?);
            }
        }
        Ok(tools)
    }

    /// Returns a plan and all that it executes, each once.
    async fn with_below(&self, plan: &Arc<Plan>) -> Result<Vec<Arc<Plan>>, EngineError> {
        let below = self.below(plan).await?;
        let mut seen: BTreeSet<PlanId> = BTreeSet::new();
        let plans = std::iter::once(plan).chain(below.iter().flatten());
        Ok(plans.filter(|it| seen.insert(it.id())).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use planner::draft::{Draft, DraftStep};
    use shared::tool::{Effect, ToolError};
    use toolbox::{ToolContext, function};

    use super::*;
    use crate::{
        access::{Role, Token},
        embedded::Embedded,
    };

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Given {
        #[expect(dead_code, reason = "what is missing must not hide who may not")]
        much: u32,
    }

    #[tokio::test]
    async fn a_plan_with_a_tool_of_others_is_forbidden_also_where_it_is_switched_off() {
        let make = |set: &'static str, name: &'static str| {
            let run = |_: Given, _: ToolContext| async { Ok::<_, ToolError>("done") };
            let tool = function(set, name, "Does it.", Effect::Read, run);
            ToolSet::ready(set.parse().unwrap(), "local", "", [tool])
        };
        let off = ToolSet { is_active: false, ..make("off", "hidden") };
        let faber = Embedded::open("memory:", [make("on", "seen"), off]).await.unwrap();
        let mut token = Token::new("ci", "a secret that nobody guesses", Role::Operator);
        token.tools = Some(vec!["mine.*".parse().unwrap()]);
        let access = Access::new([token]);
        let engine = faber.engine().granted(access.holder("ci").unwrap());
        for name in ["on.seen", "off.hidden", "hidden"] {
            let step = DraftStep { name: Some(name.to_owned()), ..DraftStep::default() };
            let draft = Draft { tools: vec![step], ..Draft::default() };
            for refused in [engine.create_plan(&draft).await, engine.validate(&draft).await] {
                let Err(EngineError::Forbidden(why)) = refused else {
                    panic!("{name}: {refused:?}")
                };
                let tool = name.rsplit('.').next().unwrap();
                assert!(why.contains(&format!(".{tool}`")), "{why}");
            }
        }
        let figures = access.figures();
        assert!(figures.contains("{kind=\"forbidden_tool\"} 6"), "{figures}");
        faber.close().await;
    }
}
