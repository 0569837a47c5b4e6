//! A schema over a store, with a worker that carries out what is asked.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_graphql::{Request, Response, Variables};
use async_trait::async_trait;
use executor::{
    call_limits::CallLimits,
    control::Control,
    options::Options,
    worker::{Worker, WorkerParts, WorkerScope},
};
use futures::{Stream, StreamExt, stream::BoxStream};
use graphql::{
    engine::Engine,
    schema::{self, Limits, Schema},
    store::open_store,
};
use planner::{
    Note, PlanCompiler, Planner, PlanningError, Proposal, ProposedPlan, catalog::Catalog,
    compile::parse,
};
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    id::WorkerId,
    limits,
    store::Store,
};
use tempfile::TempDir;
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use toolbox::Toolbox;
use toolsets::{
    registry::{self, Registry},
    sources::Sources,
};

/// How long anything may take. Nothing here needs more than a few seconds.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) struct World {
    pub(super) schema: Schema,
    pub(super) engine: Engine,
    /// Ends the worker when the world does.
    _tasks: JoinSet<()>,
    /// Where the store's file is.
    folder: Option<Arc<TempDir>>,
}

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It only asks.
    Asks,
    /// It asks, and carries out whatever there is.
    Works,
}

/// Returns a world with a worker, over each store that needs no server.
pub(super) async fn worlds() -> [World; 2] {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let url = sqlite(&folder);
    let memory = World::over(&open("memory:").await, Role::Works, None);
    [memory, World::over(&open(&url).await, Role::Works, Some(folder))]
}

/// Returns a world with a worker, over the store in memory.
pub(super) async fn world() -> World {
    World::over(&open("memory:").await, Role::Works, None)
}

/// Returns a world with a worker that keeps to limits, over the store in memory.
pub(super) async fn limited(calls: CallLimits) -> World {
    World::limited(&open("memory:").await, Role::Works, None, Arc::new(calls))
}

/// Returns two processes over one file: one without a worker, and one with.
pub(super) async fn two_processes() -> [World; 2] {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let url = sqlite(&folder);
    let asking = World::over(&open(&url).await, Role::Asks, Some(Arc::clone(&folder)));
    [asking, World::over(&open(&url).await, Role::Works, Some(folder))]
}

fn sqlite(folder: &Arc<TempDir>) -> String {
    format!("sqlite:{}", folder.path().join("faber.db").display())
}

async fn open(url: &str) -> Arc<dyn Store> {
    open_store(url).await.unwrap()
}

impl World {
    pub(super) fn over(store: &Arc<dyn Store>, role: Role, folder: Option<Arc<TempDir>>) -> Self {
        Self::limited(store, role, folder, Arc::default())
    }

    fn limited(
        store: &Arc<dyn Store>,
        role: Role,
        folder: Option<Arc<TempDir>>,
        calls: Arc<CallLimits>,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        let toolbox = Toolbox::default();
        let registry = Registry::new(registry::Parts {
            sources: Sources::new(&toolbox, limits::OUTPUT_BYTES),
            toolbox: toolbox.clone(),
            store: Arc::clone(store),
            clock: Arc::clone(&clock),
            configured: Vec::new(),
            contexts: BTreeMap::new(),
            base: PathBuf::from("/"),
            secrets: Some(BTreeSet::new()),
        });
        let options = Options { calls, connect: PATIENCE, ..Options::default() };
        let mut tasks = JoinSet::new();
        let worker = (role == Role::Works).then(|| {
            let parts = WorkerParts {
                node: "here".to_owned(),
                store: Arc::clone(store),
                toolbox: toolbox.clone(),
                clock: Arc::clone(&clock),
                options: options.clone(),
                scope: WorkerScope::Everything,
            };
            let id = WorkerId::draw(clock.now());
            let (worker, handle) = Worker::new(parts, id, CancellationToken::new());
            tasks.spawn(worker.run());
            handle
        });
        let control = Control::new(Arc::clone(store), Arc::clone(&clock), worker);
        let planner = Arc::new(Literal);
        let engine = Engine::new(control, registry, planner, clock, options);
        let schema = schema::build(engine.clone(), Limits::default());
        Self { schema, engine, _tasks: tasks, folder }
    }

    /// Returns the same world with another engine.
    pub(super) fn with(mut self, change: impl FnOnce(Engine) -> Engine) -> Self {
        self.engine = change(self.engine);
        self.schema = schema::build(self.engine.clone(), Limits::default());
        self
    }

    /// Returns where the store's file is, if it is one.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.path().join("faber.db"))
    }

    /// Executes an operation. Returns `{"data": …}`, with `errors` if there are any.
    ///
    /// Where time is paused it must not ask for what a `DataLoader` finds, such as an execution's
    /// `plan` or `request`: that waits on a thread of its own, for which paused time does not wait.
    pub(super) async fn ask(&self, query: &str, variables: Value) -> Value {
        let asked = self.schema.execute(request(query, variables));
        body(&time::timeout(PATIENCE, asked).await.expect("an answer in time"))
    }

    /// Executes an operation that must succeed. Returns its only field.
    pub(super) async fn get(&self, query: &str, variables: Value) -> Value {
        only_field(self.ask(query, variables).await)
    }

    /// Executes an operation again and again, until its only field is as somebody wants it.
    pub(super) async fn get_until(
        &self,
        query: &str,
        variables: Value,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let asking = async {
            loop {
                let found = self.get(query, variables.clone()).await;
                if is_so(&found) {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        time::timeout(PATIENCE, asking).await.expect("it is so in time")
    }

    /// Executes an operation that must fail with one error. Returns its extensions, with its
    /// message among them.
    pub(super) async fn refused(&self, query: &str, variables: Value) -> Value {
        refusal(&self.ask(query, variables).await)
    }

    /// Subscribes. Every item is the only field of what comes.
    pub(super) fn subscribe(&self, query: &str, variables: Value) -> BoxStream<'static, Value> {
        let stream = self.schema.execute_stream(request(query, variables));
        stream.map(|answer| only_field(body(&answer))).boxed()
    }

    /// Keeps a plan. Returns its identifier.
    pub(super) async fn plan(&self, tools: Value) -> String {
        let query = "mutation ($input: PlanInput!) { createPlan(input: $input) {
            plan { planId } diagnostics { message } } }";
        let payload = self.get(query, json!({ "input": { "tools": tools } })).await;
        text(&payload["plan"]["planId"])
    }

    /// Keeps a plan and starts an execution of it. Returns its identifier.
    pub(super) async fn start(&self, tools: Value, options: Value) -> String {
        let plan = self.plan(tools).await;
        let query = "mutation ($id: ID!, $options: ExecutionOptions) {
            executePlan(planId: $id, options: $options) { executionId } }";
        let execution = self.get(query, json!({ "id": plan, "options": options })).await;
        text(&execution["executionId"])
    }

    /// Waits until an execution has ended. Returns its events.
    pub(super) async fn events(&self, id: &str) -> Vec<Value> {
        self.events_behind(id, 0).await
    }

    pub(super) async fn events_behind(&self, id: &str, after: u64) -> Vec<Value> {
        let query = "subscription ($id: ID!, $after: Int) {
            executionEvents(executionId: $id, afterSeq: $after) {
                seq type stepId attempt executionId data } }";
        all(self.subscribe(query, json!({ "id": id, "after": after }))).await
    }

    /// Waits until a step is in a state.
    pub(super) async fn until(&self, id: &str, step: &str, state: &str) {
        let query = "subscription ($id: ID!, $step: String!) {
            executionStatus(executionId: $id) { step(stepId: $step) { state } } }";
        let mut states = self.subscribe(query, json!({ "id": id, "step": step }));
        let reached = async {
            while let Some(now) = states.next().await {
                if now["step"]["state"] == state {
                    return;
                }
            }
            panic!("`{step}` was never {state}");
        };
        time::timeout(PATIENCE, reached).await.expect("the state in time");
    }

    /// Returns an execution as it now stands.
    pub(super) async fn execution(&self, id: &str, fields: &str) -> Value {
        self.get(&execution(fields), json!({ "id": id })).await
    }

    /// Returns an execution once it is as somebody wants it.
    pub(super) async fn execution_until(
        &self,
        id: &str,
        fields: &str,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        self.get_until(&execution(fields), json!({ "id": id }), is_so).await
    }
}

fn execution(fields: &str) -> String {
    format!("query ($id: ID!) {{ execution(executionId: $id) {{ {fields} }} }}")
}

/// Returns everything a stream gives until it ends.
pub(super) async fn all<T>(stream: impl Stream<Item = T>) -> Vec<T> {
    time::timeout(PATIENCE, stream.collect()).await.expect("the end in time")
}

/// Returns what comes next.
pub(super) async fn next<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> T {
    let next = time::timeout(PATIENCE, stream.next()).await.expect("something in time");
    next.expect("something")
}

/// Returns one field of each of several things, as text.
pub(super) fn pluck(things: &[Value], field: &str) -> Vec<String> {
    things.iter().map(|thing| text(&thing[field])).collect()
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn request(query: &str, variables: Value) -> Request {
    Request::new(query).variables(Variables::from_json(variables))
}

fn body(response: &Response) -> Value {
    serde_json::to_value(response).unwrap()
}

fn only_field(mut body: Value) -> Value {
    assert!(body.get("errors").is_none(), "{body:#}");
    let fields = body["data"].as_object_mut().expect("data");
    assert_eq!(fields.len(), 1);
    fields.values_mut().next().unwrap().take()
}

pub(super) fn refusal(body: &Value) -> Value {
    let errors = body["errors"].as_array().unwrap_or_else(|| panic!("no errors: {body:#}"));
    assert_eq!(errors.len(), 1, "{body:#}");
    let mut extensions = errors[0]["extensions"].clone();
    extensions["message"] = errors[0]["message"].clone();
    extensions
}

/// Reads the query as a draft; of other words it cannot make a plan.
#[derive(Debug)]
struct Literal;

#[async_trait]
impl Planner for Literal {
    fn name(&self) -> &'static str {
        "literal"
    }

    async fn plan(
        &self,
        query: &str,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        let note = Note {
            kind: "candidates",
            content: json!(catalog.tools().len()),
            after: Duration::ZERO,
        };
        let notes = vec![note];
        if query == "a planner that is away" {
            let message = "the planner is away".to_owned();
            return Err(PlanningError::Unavailable { message, notes });
        }
        if let Ok(draft) = parse(query) {
            let proposal = Proposal { draft, notes, warnings: Vec::new(), author: None };
            return proposal.compile(self.name(), compiler).await;
        }
        let message = format!("no tool does `{query}`");
        let nearest = vec!["flow.echo".to_owned()];
        Err(PlanningError::NoPlan { message, nearest, notes })
    }
}
