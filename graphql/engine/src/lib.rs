//! The engine that the API, the command line and embedding programs use.
//!
//! It has four parts, each with its own state: [`Tools`], [`Selection`], [`Plans`] and
//! [`Executions`]. A part uses only the parts before it in this list.

pub mod access;
pub mod age;
pub mod agent;
pub mod embedded;
mod error;
mod executions;
mod named_locks;
mod plans;
pub mod retention;
mod selection;
pub mod store;
mod tools;
mod visible_store;
pub mod yaml;

use std::sync::Arc;

use executor::{control::Control, options::Options};
use planner::{
    Planner,
    embed::{ConfiguredEmbedder, Source},
    model::{ModelError, Settings},
    toolkit::Toolkit,
};
use shared::{clock::Clock, store::Store};
use toolsets::registry::Registry;

pub use planner::plan_cache::PlanCache;

pub use self::{
    error::EngineError,
    executions::{
        Executions, Order,
        agents::AgentOptions,
        audit::record_entry,
        bulk_control::BulkAction,
        findings::{
            Finding, FindingKind, MAX_FINDINGS, Remedy, find_cause_line, find_planning_findings,
            quote_for_shell, valid_warnings,
        },
        forks::{Change, ForkOrder, ForkPreview, OnceCall, StepChange},
        pruning::{prune, prune_batch, time_before},
        reader::{EventBudget, ExecutionReader},
        repeated_calls::RepeatedCall,
        replan::{Replanning, Stage},
        settling::SettleOrder,
        undo_calls::UndoCall,
    },
    plans::{
        PlanningOptions, Plans,
        drafts::Verdict,
        export::{to_api_form, to_file_form},
        guard::Guard,
        library::PlanLibrary,
    },
    selection::{
        CollidingTools, MAX_SELECTED, SelectedTool, Selection, SelectionQuery,
        learning::Learning,
        toolkit::{NewAction, ToolkitChange, WeightedEdge},
    },
    tools::{
        Tools,
        calls::CallReport,
        history::{CallListing, DirectCall},
        inventory::{Inventory, MissingTool},
    },
};
use crate::access::{Access, Grant};

#[derive(Clone)]
pub struct Engine {
    pub tools: Arc<Tools>,
    pub selection: Arc<Selection>,
    pub plans: Arc<Plans>,
    pub executions: Arc<Executions>,
}

impl Engine {
    /// Joins the parts. `options` are the options of this process's worker. A process without a
    /// worker passes them, too, because they contain the limits on calls.
    pub fn new(
        control: Control,
        registry: Registry,
        planner: Arc<dyn Planner>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Self {
        let store = Arc::clone(control.store());
        let embedder = ConfiguredEmbedder::new(Some(Source::Builtin), Arc::clone(&store) as _);
        let worker = control.worker().cloned();
        let tools = Tools::new(registry, worker, Arc::clone(&store), Arc::clone(&clock), options);
        let tools = Arc::new(tools);
        let selection = Arc::new(Selection::new(Arc::clone(&tools), embedder));
        let plans = Arc::new(Plans::new(Arc::clone(&tools), selection, planner));
        Self::from_executions(Executions::new(control, clock, tools, plans))
    }

    fn from_executions(executions: Executions) -> Self {
        let plans = Arc::clone(&executions.plans);
        Self {
            tools: Arc::clone(&executions.tools),
            selection: Arc::clone(&plans.selection),
            plans,
            executions: Arc::new(executions),
        }
    }

    fn with_selection(self, selection: Selection) -> Self {
        self.with_plans(|plans| plans.selection = Arc::new(selection))
    }

    fn with_plans(self, change: impl FnOnce(&mut Plans)) -> Self {
        let mut executions = (*self.executions).clone();
        change(Arc::make_mut(&mut executions.plans));
        Self::from_executions(executions)
    }

    /// Returns the engine with another source of embeddings. `None` turns embeddings off.
    #[must_use]
    pub fn with_embedder(self, source: Option<Source>) -> Self {
        let embedder = ConfiguredEmbedder::new(source, Arc::clone(self.store()) as _);
        let selection = (*self.selection).clone().with_embedder(embedder);
        self.with_selection(selection)
    }

    /// Returns the engine with another margin for hits. For `CENTROID`, a tool is a hit if the
    /// cosine of the query to the tool's centroid is at least the cosine of its least similar
    /// example plus this margin.
    #[must_use]
    pub fn with_margin(self, margin: f64) -> Self {
        let mut selection = (*self.selection).clone();
        selection.margin = margin;
        self.with_selection(selection)
    }

    /// Returns the engine with learning from executions switched on or off.
    #[must_use]
    pub fn with_learning(self, is_on: bool) -> Self {
        let selection = (*self.selection).clone().with_learning(is_on);
        self.with_selection(selection)
    }

    /// Returns the engine with the configured graph as toolkit. Stored changes are applied to it.
    #[must_use]
    pub fn with_toolkit(self, configured: Toolkit) -> Self {
        let tools = (*self.tools).clone().with_toolkit(configured);
        Self::from_executions(self.executions.with_tools(tools))
    }

    /// Returns the engine with another default rule of the plan cache. A query can override it.
    #[must_use]
    pub fn with_plan_cache(self, plan_cache: PlanCache) -> Self {
        self.with_plans(|plans| plans.plan_cache = plan_cache)
    }

    /// Returns the engine with another rule for calls that a query does not ask for, or whose
    /// values it does not contain.
    #[must_use]
    pub fn with_guard(self, guard: Guard) -> Self {
        self.with_plans(|plans| plans.guard = guard)
    }

    /// Returns the engine with a model, which plans by default, repairs each plan up to `repairs`
    /// times, and drives agents.
    pub fn with_model(self, settings: &Settings, repairs: u32) -> Result<Self, ModelError> {
        let planners = self.plans.planners.clone();
        let planners = planners.with_model(settings, repairs, self.tools.inventory.toolbox())?;
        Ok(self.with_plans(|plans| plans.planners = planners))
    }

    #[cfg(test)]
    pub(crate) fn with_planner(self, planner: Arc<planner::writer::ModelPlanner>) -> Self {
        let planners = self.plans.planners.clone().with_planner(planner);
        self.with_plans(|plans| plans.planners = planners)
    }

    #[must_use]
    pub fn with_grant(&self, grant: Grant) -> Self {
        Self::from_executions(self.executions.with_grant(grant))
    }

    /// Sets the access tokens, so that calls of agents count toward the limits of their callers.
    /// Only the first call of this function has an effect.
    pub fn set_access(&self, access: Access) {
        self.plans.planners.set_access(access);
    }

    pub fn grant(&self) -> &Grant {
        &self.tools.grant
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.tools.store
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.tools.clock
    }
}
