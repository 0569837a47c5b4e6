//! Planners, plans, executions and tools as one thing: what the API, the command line and tests
//! talk to.

mod access;
mod agents;
mod clock_watch;
mod dry;
mod error;
mod export;
mod inputs;
mod learning;
mod missing_tools;
mod named_locks;
mod plan_cache;
mod planners;
mod planning;
mod pruning;
mod repeated_calls;
mod replan;
mod request_looks;
mod retry;
mod saved;
mod select;
mod steering;
mod sub_plans;
mod tool_sets;
mod toolkit;
mod tools;
mod transcript;
mod watching;

use std::sync::{Arc, Mutex, OnceLock};

use executor::{
    call_limits::CallLimits,
    control::{Control, IdempotencyKey, Start},
    options::Options,
};
use planner::{
    Planner,
    catalog::Catalog,
    embed::{Embedders, Source},
};
use serde_json::Value;
use shared::{
    clock::Clock,
    execution::{Execution, ExecutionOptions},
    id::{ExecutionId, PlanId, RequestId},
    plan::Plan,
    store::{self, Store, StoreError},
};
use toolbox::Toolbox;
use toolsets::registry::Registry;

pub(crate) use self::learning::forget_queries;
pub(crate) use self::pruning::{before, prune_some};
pub(crate) use self::request_looks::{LastLook, RequestLook};
pub use planner::plan_cache::PlanCache;

pub use self::{
    agents::AgentOptions,
    error::EngineError,
    export::{as_file, as_input},
    missing_tools::MissingTool,
    planning::{PlanningOptions, Verdict},
    repeated_calls::RepeatedCall,
    replan::{Replanning, Stage},
    retry::BulkAction,
    select::{Chosen, Colliding, SELECTED, Wanted},
    toolkit::{Link, NewAction, ToolkitChange},
    tools::DirectCall,
    watching::Room,
};
use crate::access::{Access, Grant};

/// Planners, plans, executions and tools as one thing.
#[derive(Clone)]
pub struct Engine {
    store: Arc<dyn Store>,
    control: Control,
    toolbox: Toolbox,
    registry: Registry,
    planners: planners::Planners,
    selection: select::ToolSelection,
    /// The rule for queries without one.
    plan_cache: PlanCache,
    clock: Arc<dyn Clock>,
    options: Arc<Options>,
    /// Which tools go with which actions.
    kit: Arc<toolkit::Kit>,
    /// What executions have taught.
    learning: Arc<learning::Learning>,
    /// The catalog of every tool, with the toolbox's number that it was made at.
    catalog: Arc<Mutex<Option<(u64, Catalog)>>>,
    /// Who may come in, once that is known: agents ask it.
    holders: Arc<OnceLock<Access>>,
    locks: Arc<named_locks::NamedLocks>,
    /// What those who follow requests found last.
    request_looks: Arc<request_looks::RequestLooks>,
    /// Which execution retries which.
    retry_links: Arc<repeated_calls::RetryLinks>,
    /// What whoever asks may do.
    grant: Grant,
}

/// How an execution is asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    /// How it is to be carried out.
    pub options: ExecutionOptions,
    /// The key under which it is asked for at most once.
    pub idempotency_key: Option<String>,
}

impl Engine {
    /// Puts the parts together. The options are those of the worker, if there is one.
    pub fn new(
        control: Control,
        registry: Registry,
        planner: Arc<dyn Planner>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Self {
        let store = Arc::clone(control.store());
        let embedders = Embedders::new(vec![Source::Builtin], Arc::clone(&store) as _);
        Self {
            store,
            control,
            toolbox: registry.toolbox().clone(),
            registry,
            planners: planners::Planners::new(planner),
            selection: select::ToolSelection::new(Arc::new(embedders)),
            plan_cache: PlanCache::default(),
            clock,
            options: Arc::new(options),
            kit: Arc::default(),
            learning: Arc::default(),
            catalog: Arc::default(),
            holders: Arc::default(),
            locks: Arc::default(),
            request_looks: Arc::default(),
            retry_links: Arc::default(),
            grant: Grant::default(),
        }
    }

    /// Returns the engine with other embedders than the built-in one.
    #[must_use]
    pub fn with_embedders(self, wanted: Vec<Source>) -> Self {
        let embedders = Embedders::new(wanted, Arc::clone(&self.store) as _);
        self.sharing(Arc::new(embedders))
    }

    /// Returns the engine with embedders that others use as well, such as its planner.
    #[must_use]
    pub fn sharing(self, embedders: Arc<Embedders>) -> Self {
        Self { selection: self.selection.with_embedders(embedders), ..self }
    }

    /// Returns the engine with another rule for queries that were planned before.
    #[must_use]
    pub fn with_plan_cache(self, plan_cache: PlanCache) -> Self {
        Self { plan_cache, ..self }
    }

    /// Returns what turns texts into vectors.
    pub fn embedders(&self) -> &Embedders {
        self.selection.embedders()
    }

    /// Returns how often tools may be called.
    pub fn limits(&self) -> &CallLimits {
        &self.options.calls
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns what starts executions and tells them things.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns every tool at hand.
    pub fn toolbox(&self) -> &Toolbox {
        &self.toolbox
    }

    /// Returns the clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Returns a plan, if there is one.
    pub async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, EngineError> {
        Ok(self.store.plan(id).await?)
    }

    /// Returns an execution as its log has it now, if there is one.
    pub async fn execution(&self, id: ExecutionId) -> Result<Option<Execution>, EngineError> {
        let loaded = store::load_execution(&*self.store, id).await;
        if let Ok(Some(execution)) = &loaded
            && execution.state().is_finished()
        {
            return Ok(loaded?);
        }
        // What is being removed loses its head first: then this is the half of it, or damage that
        // is none.
        if self.store.head(id).await?.is_none() {
            return Ok(None);
        }
        match loaded? {
            Some(execution) => Ok(Some(execution)),
            None => Err(StoreError::corrupt(id, "its log is not in the store").into()),
        }
    }

    /// Starts an execution of a plan. It returns once that is durable.
    pub async fn execute(&self, id: PlanId, order: Order) -> Result<ExecutionId, EngineError> {
        let Some(plan) = self.plan(id).await? else {
            return Err(EngineError::not_found("plan", id));
        };
        self.begin(&plan, order, IdempotencyKey::plan_subject(id)).await
    }

    /// Starts an execution of the newest plan of a request.
    pub async fn execute_request(
        &self,
        id: RequestId,
        order: Order,
    ) -> Result<ExecutionId, EngineError> {
        if self.store.request(id).await?.is_none() {
            return Err(EngineError::not_found("request", id));
        }
        let plans = self.store.plan_versions(id).await?;
        let Some(newest) = plans.last() else {
            return Err(EngineError::Conflict(format!("the request `{id}` has no plan")));
        };
        // What was asked for under a key stays what it was, also where a newer version is there.
        let before = match &order.idempotency_key {
            Some(key) => self.control.find_plan(key, &plans, &order.options).await?,
            None => None,
        };
        self.execute(before.unwrap_or(*newest), order).await
    }

    /// Plans a query and starts an execution of the plan.
    ///
    /// Under a key that was used before, nothing is planned: the same key gives the same
    /// execution.
    pub async fn run(
        &self,
        query: &str,
        planning: &PlanningOptions,
        order: Order,
    ) -> Result<ExecutionId, EngineError> {
        let subject = Value::String(query.to_owned());
        let mut _lock = None;
        if let Some(key) = &order.idempotency_key {
            // A concurrent request under the key waits for this plan.
            _lock = Some(self.locks.lock(format!("key {key}")).await);
            let key = IdempotencyKey { key: key.clone(), subject: subject.clone() };
            if let Some(id) = self.control.find_by_key(&key, &order.options).await? {
                return Ok(id);
            }
        }
        let mut order = order;
        self.check_replans(None, &mut order.options)?;
        // Sets that are not there are refused where the query is planned: that is kept.
        order.options.replans.sets = match self.known_sets(&planning.tool_sets).await {
            Ok(sets) => sets,
            Err(EngineError::InvalidArgument(_)) => Vec::new(),
            Err(err) => return Err(err),
        };
        // Planning is work, too, and what it leaves behind is kept.
        self.grant.check_room()?;
        let is_last = order.options.replans.left == 0;
        let planning = &PlanningOptions { is_last, ..planning.clone() };
        let plan = self.plan_query(query, planning).await?;
        self.begin(&plan, order, subject).await
    }

    pub(super) async fn begin(
        &self,
        plan: &Arc<Plan>,
        order: Order,
        subject: Value,
    ) -> Result<ExecutionId, EngineError> {
        self.check_plan(plan).await?;
        let Order { mut options, idempotency_key } = order;
        let key = idempotency_key.map(|key| IdempotencyKey { key, subject });
        if let Some(key) = &key
            && let Some(id) = self.control.find_by_key(key, &options).await?
        {
            // Nothing begins, so nothing is taken off the limits.
            return Ok(id);
        }
        self.check_replans(Some(plan), &mut options)?;
        self.check_start(plan).await?;
        let is_dry_run = options.dry_run;
        let start = Start { key, ..Start::new(plan, options) };
        if is_dry_run {
            return self.dry_run(start).await;
        }
        Ok(self.control.start(start).await?.id)
    }
}
