//! Faber as a library: a store, the program's own toolsets, and a worker that drives executions.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use executor::{
    control::Control,
    options::Options,
    worker::{Worker, WorkerParts, WorkerScope},
};
use futures::StreamExt;
use offline::Offline;
use planner::compile;
use serde_json::Value;
use shared::{
    clock::Clock,
    execution::Execution,
    id::{ExecutionId, WorkerId},
    plan::Plan,
    store::{self, Store},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use toolbox::{ToolSet, Toolbox, dispatch, flow, tool_names::TOOL_SET};
use toolsets::{
    registry::{self, Registry},
    sources::Sources,
};

use crate::{Engine, EngineError, Order, PlanningOptions, store::open_store};

/// An engine with a worker inside another program.
///
/// If this value is dropped, running steps are interrupted as in a crash. Call
/// [`close`](Self::close) to wait for short steps first.
pub struct Embedded {
    engine: Engine,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Embedded {
    /// Opens a store, such as `sqlite:./faber.db`, `mongodb://…` or `memory:`, and starts a worker.
    /// The worker also continues executions of earlier processes.
    pub async fn open(
        url: &str,
        sets: impl IntoIterator<Item = ToolSet>,
    ) -> Result<Self, EngineError> {
        Self::open_over(open_store(url).await?, sets, Options::default()).await
    }

    pub async fn open_over(
        store: Arc<dyn Store>,
        sets: impl IntoIterator<Item = ToolSet>,
        options: Options,
    ) -> Result<Self, EngineError> {
        Self::open_configured(store, sets, options, |engine| engine).await
    }

    /// Like [`open_over`](Self::open_over). `configure` changes the engine before the worker
    /// starts.
    pub(crate) async fn open_configured(
        store: Arc<dyn Store>,
        sets: impl IntoIterator<Item = ToolSet>,
        options: Options,
        configure: impl FnOnce(Engine) -> Engine,
    ) -> Result<Self, EngineError> {
        let clock: Arc<dyn Clock> = Arc::new(store::shared_clock(&*store).await?);
        let toolbox = Toolbox::default();
        for set in sets {
            // A built-in toolset would replace a toolset with one of these names, so such a toolset
            // is rejected.
            if [flow::SET, TOOL_SET, dispatch::SET].contains(&set.name.as_str()) {
                let name = &set.name;
                let reason =
                    format!("the toolset `{name}` is Faber's own: give yours another name");
                return Err(EngineError::Conflict(reason));
            }
            let named = |err: toolbox::SetExists| {
                EngineError::Conflict(format!("{err}: give the toolset another name"))
            };
            toolbox.register_set(set).map_err(named)?;
        }
        let registry = Registry::new(registry::Parts {
            sources: Sources::new(&toolbox, options.output_bytes)
                .with_store(Arc::clone(&store), Arc::clone(&clock)),
            toolbox: toolbox.clone(),
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            configured: Vec::new(),
            contexts: BTreeMap::new(),
            base: PathBuf::from("."),
            secrets: None,
        });
        registry.sync().await?;
        let stop = CancellationToken::new();
        let parts = WorkerParts {
            node: "embedded".to_owned(),
            store: Arc::clone(&store),
            toolbox,
            clock: Arc::clone(&clock),
            options: options.clone(),
            scope: WorkerScope::Everything,
        };
        let (worker, handle) = Worker::new(parts, WorkerId::draw(clock.now()), stop.clone());
        let control = Control::new(store, Arc::clone(&clock), Some(handle));
        let engine =
            Engine::new(control, registry.clone(), Arc::new(Offline::default()), clock, options);
        let engine = configure(engine);
        worker.set_replanner(engine.executions.replanner());
        let mut tasks = JoinSet::new();
        tasks.spawn(worker.run());
        tasks.spawn(registry.watch(stop.clone()));
        tasks.spawn(Arc::clone(&engine.tools).flush_usage_regularly(stop.clone()));
        Ok(Self { engine, stop, tasks })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Plans a query, executes the plan, and waits until the execution is finished.
    pub async fn run(&self, query: &str) -> Result<Arc<Execution>, EngineError> {
        let planning = PlanningOptions::default();
        let id = self.engine.executions.plan_and_start(query, &planning, Order::default()).await?;
        self.ended(id).await
    }

    /// Compiles a draft, executes the plan, and waits until the execution is finished.
    pub async fn run_plan(&self, plan: Value) -> Result<Arc<Execution>, EngineError> {
        let plan = self.plan(plan).await?;
        let id = self.engine.executions.start_plan(plan.id(), Order::default()).await?;
        self.ended(id).await
    }

    /// Compiles a draft and stores the plan.
    pub async fn plan(&self, plan: Value) -> Result<Arc<Plan>, EngineError> {
        let invalid = |diagnostics| EngineError::InvalidPlan { diagnostics, request: None };
        let draft = compile::parse_value(plan).map_err(invalid)?;
        let verdict = self.engine.plans.create_plan(&draft).await?;
        verdict.plan.ok_or_else(|| invalid(verdict.diagnostics))
    }

    /// Waits until an execution is finished, even if another process drives it.
    pub async fn ended(&self, id: ExecutionId) -> Result<Arc<Execution>, EngineError> {
        let missing = || EngineError::not_found("execution", id);
        let execution = self.engine.executions.reader.load(id).await?.ok_or_else(missing)?;
        let mut states = std::pin::pin!(self.engine.executions.reader.watch(execution));
        let mut last = None;
        while let Some(state) = states.next().await {
            last = Some(state?);
        }
        last.ok_or_else(missing)
    }

    /// Waits for short steps and stops the worker. The next process that opens the store continues
    /// the executions.
    pub async fn close(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.engine.tools.inventory.registry().sources().close().await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::execution::ExecutionState;

    use super::*;

    #[tokio::test]
    async fn an_embedded_engine_runs_plans_with_its_own_tools() {
        let faber = Embedded::open("memory:", []).await.unwrap();
        let plan = json!({ "tools": [
            { "name": "flow.echo", "id": "a", "parameters": { "n": 1 } },
            { "name": "flow.echo", "id": "b", "parameters": { "n": "{{a.n}}" } },
        ] });
        let ended = faber.run_plan(plan).await.unwrap();
        assert_eq!(ended.state(), ExecutionState::Completed);
        assert_eq!(ended.outputs(), json!({ "a": { "n": 1 }, "b": { "n": 1 } }));
        let wrong = faber.run_plan(json!({ "tools": [{ "name": "nothing" }] })).await.unwrap_err();
        assert_eq!(wrong.code(), "INVALID_PLAN");
        let wrong = faber.plan(json!({ "tools": 1 })).await.unwrap_err();
        assert_eq!(wrong.code(), "INVALID_PLAN");
        faber.close().await;
    }

    #[tokio::test]
    async fn two_sets_with_one_name_are_rejected() {
        let own_set = |name: &str| ToolSet::ready(name.parse().unwrap(), "local", "d", []);
        let taken = ["flow", "ToolSet", "faber_agent"].map(|name| vec![own_set(name)]);
        for sets in taken.into_iter().chain([vec![own_set("a"), own_set("a")]]) {
            let refused = Embedded::open("memory:", sets).await;
            assert_eq!(refused.err().map(|err| err.code()), Some("CONFLICT"));
        }
    }

    #[tokio::test]
    async fn embedded_sets_can_be_activated_and_deactivated() {
        let own_set = ToolSet::ready("own".parse().unwrap(), "local", "d", []);
        let faber = Embedded::open("memory:", [own_set]).await.unwrap();
        let name = "own".parse().unwrap();
        for on in [false, true] {
            let switched =
                faber.engine().tools.inventory.switch(&["own".to_owned()], on).await.unwrap();
            assert_eq!(switched.changed, ["own"]);
            assert_eq!(faber.engine().tools.inventory.toolbox().set(&name).unwrap().is_active, on);
        }
        faber.close().await;
    }
}
