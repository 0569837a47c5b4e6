use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_graphql::{Request, Response, Variables};
use async_trait::async_trait;
use engine::{Engine, access::Grant, store::open_store};
use executor::{
    call_limits::CallLimits,
    control::Control,
    options::Options,
    worker::{Worker, WorkerParts, WorkerScope},
};
use futures::{Stream, StreamExt, stream::BoxStream};
use graphql::schema::{self, Limits, Schema};
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

/// Limit of every wait, long enough for busy machines. The tests need a few seconds.
const MAX_WAIT: Duration = Duration::from_mins(1);

pub(super) struct TestApi {
    pub(super) schema: Schema,
    pub(super) engine: Engine,
    _tasks: JoinSet<()>,
    folder: Option<Arc<TempDir>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessRole {
    ApiOnly,
    ApiAndWorker,
}

pub(super) async fn apis_without_server() -> [TestApi; 2] {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let url = sqlite(&folder);
    let memory = TestApi::over(&open("memory:").await, ProcessRole::ApiAndWorker, None);
    [memory, TestApi::over(&open(&url).await, ProcessRole::ApiAndWorker, Some(folder))]
}

pub(super) async fn api() -> TestApi {
    TestApi::over(&open("memory:").await, ProcessRole::ApiAndWorker, None)
}

pub(super) async fn limited(calls: CallLimits) -> TestApi {
    TestApi::limited(&open("memory:").await, ProcessRole::ApiAndWorker, None, Arc::new(calls))
}

/// Returns two APIs over one SQLite file, like two processes. Only the second has a worker.
pub(super) async fn two_processes() -> [TestApi; 2] {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let url = sqlite(&folder);
    let asking = TestApi::over(&open(&url).await, ProcessRole::ApiOnly, Some(Arc::clone(&folder)));
    [asking, TestApi::over(&open(&url).await, ProcessRole::ApiAndWorker, Some(folder))]
}

fn sqlite(folder: &Arc<TempDir>) -> String {
    format!("sqlite:{}", folder.path().join("faber.db").display())
}

async fn open(url: &str) -> Arc<dyn Store> {
    open_store(url).await.unwrap()
}

impl TestApi {
    pub(super) fn over(
        store: &Arc<dyn Store>,
        role: ProcessRole,
        folder: Option<Arc<TempDir>>,
    ) -> Self {
        Self::limited(store, role, folder, Arc::default())
    }

    fn limited(
        store: &Arc<dyn Store>,
        role: ProcessRole,
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
        let options = Options { calls: calls.into(), connect: MAX_WAIT, ..Options::default() };
        let mut tasks = JoinSet::new();
        let worker = (role == ProcessRole::ApiAndWorker).then(|| {
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
        let planner = Arc::new(LiteralPlanner);
        let engine = Engine::new(control, registry, planner, clock, options);
        let schema = schema::build(engine.clone(), Limits::default());
        Self { schema, engine, _tasks: tasks, folder }
    }

    pub(super) fn with(mut self, change: impl FnOnce(Engine) -> Engine) -> Self {
        self.engine = change(self.engine);
        self.schema = schema::build(self.engine.clone(), Limits::default());
        self
    }

    pub(super) fn file(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.path().join("faber.db"))
    }

    /// Executes an operation. Returns `{"data": …}`, with `errors` if there are any.
    /// A test with paused time must not ask for fields that a `DataLoader` finds, such as an
    /// execution's `plan` or `request`, because a loader answers from another thread, and with
    /// paused time the time limits expire before the answer.
    pub(super) async fn ask(&self, query: &str, variables: Value) -> Value {
        let request = self.schema.execute(make_request(query, variables));
        response_body(&time::timeout(MAX_WAIT, request).await.expect("an answer in time"))
    }

    /// Executes an operation that must succeed. Returns its only field.
    pub(super) async fn get(&self, query: &str, variables: Value) -> Value {
        only_field(self.ask(query, variables).await)
    }

    /// Executes an operation with the rights of a caller, as [`ask`](Self::ask) does.
    pub(super) async fn ask_as(&self, caller: &Grant, query: &str, variables: Value) -> Value {
        let request = self.schema.execute(make_request(query, variables).data(caller.clone()));
        response_body(&time::timeout(MAX_WAIT, request).await.expect("an answer in time"))
    }

    pub(super) async fn get_as(&self, caller: &Grant, query: &str, variables: Value) -> Value {
        only_field(self.ask_as(caller, query, variables).await)
    }

    /// Repeats an operation of a caller until its only field satisfies `is_expected`.
    pub(super) async fn get_as_until(
        &self,
        caller: &Grant,
        query: &str,
        variables: Value,
        is_expected: impl Fn(&Value) -> bool,
    ) -> Value {
        let asking = async {
            loop {
                let found = self.get_as(caller, query, variables.clone()).await;
                if is_expected(&found) {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        time::timeout(MAX_WAIT, asking).await.expect("the condition holds in time")
    }

    /// Subscribes with the rights of a caller, as [`subscribe`](Self::subscribe) does.
    pub(super) fn subscribe_as(
        &self,
        caller: &Grant,
        query: &str,
        variables: Value,
    ) -> BoxStream<'static, Value> {
        let request = make_request(query, variables).data(caller.clone());
        let stream = self.schema.execute_stream(request);
        stream.map(|answer| only_field(response_body(&answer))).boxed()
    }

    /// Returns the first answer of a subscription, which can be an error.
    pub(super) async fn first_answer_as(&self, caller: &Grant, query: &str) -> Value {
        let request = make_request(query, json!({})).data(caller.clone());
        response_body(&next_item(&mut self.schema.execute_stream(request)).await)
    }

    /// Repeats an operation until its only field satisfies `is_expected`.
    pub(super) async fn get_until(
        &self,
        query: &str,
        variables: Value,
        is_expected: impl Fn(&Value) -> bool,
    ) -> Value {
        let asking = async {
            loop {
                let found = self.get(query, variables.clone()).await;
                if is_expected(&found) {
                    return found;
                }
                tokio::task::yield_now().await;
            }
        };
        time::timeout(MAX_WAIT, asking).await.expect("the condition holds in time")
    }

    /// Executes an operation that must fail with one error. Returns the extensions of the error,
    /// with its message added.
    pub(super) async fn expect_error(&self, query: &str, variables: Value) -> Value {
        only_error(&self.ask(query, variables).await)
    }

    /// Subscribes. Each item of the stream is the only field of one answer.
    pub(super) fn subscribe(&self, query: &str, variables: Value) -> BoxStream<'static, Value> {
        let stream = self.schema.execute_stream(make_request(query, variables));
        stream.map(|answer| only_field(response_body(&answer))).boxed()
    }

    pub(super) async fn plan(&self, tools: Value) -> String {
        let query = "mutation ($input: PlanInput!) { createPlan(input: $input) {
            plan { planId } diagnostics { message } } }";
        let payload = self.get(query, json!({ "input": { "tools": tools } })).await;
        json_to_text(&payload["plan"]["planId"])
    }

    pub(super) async fn start(&self, tools: Value, options: Value) -> String {
        let plan = self.plan(tools).await;
        let query = "mutation ($id: ID!, $options: ExecutionOptions) {
            executePlan(planId: $id, options: $options) { executionId } }";
        let execution = self.get(query, json!({ "id": plan, "options": options })).await;
        json_to_text(&execution["executionId"])
    }

    pub(super) async fn events(&self, id: &str) -> Vec<Value> {
        self.events_after(id, 0).await
    }

    pub(super) async fn events_after(&self, id: &str, after: u64) -> Vec<Value> {
        let query = "subscription ($id: ID!, $after: Int) {
            executionEvents(executionId: $id, afterSeq: $after) {
                seq type stepId attempt executionId data } }";
        collect_all(self.subscribe(query, json!({ "id": id, "after": after }))).await
    }

    pub(super) async fn wait_for_step(&self, id: &str, step: &str, state: &str) {
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
        time::timeout(MAX_WAIT, reached).await.expect("the state in time");
    }

    pub(super) async fn execution(&self, id: &str, fields: &str) -> Value {
        self.get(&execution(fields), json!({ "id": id })).await
    }

    /// Waits until an execution satisfies `is_expected`, and returns it.
    pub(super) async fn wait_for_execution(
        &self,
        id: &str,
        fields: &str,
        is_expected: impl Fn(&Value) -> bool,
    ) -> Value {
        self.get_until(&execution(fields), json!({ "id": id }), is_expected).await
    }
}

fn execution(fields: &str) -> String {
    format!("query ($id: ID!) {{ execution(executionId: $id) {{ {fields} }} }}")
}

pub(super) async fn collect_all<T>(stream: impl Stream<Item = T>) -> Vec<T> {
    time::timeout(MAX_WAIT, stream.collect()).await.expect("the stream ends in time")
}

pub(super) async fn next_item<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> T {
    let next = time::timeout(MAX_WAIT, stream.next()).await.expect("an item in time");
    next.expect("the stream has an item")
}

pub(super) fn texts_of_field(things: &[Value], field: &str) -> Vec<String> {
    things.iter().map(|thing| json_to_text(&thing[field])).collect()
}

pub(super) fn json_to_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn make_request(query: &str, variables: Value) -> Request {
    Request::new(query).variables(Variables::from_json(variables))
}

fn response_body(response: &Response) -> Value {
    serde_json::to_value(response).unwrap()
}

fn only_field(mut body: Value) -> Value {
    assert!(body.get("errors").is_none(), "{body:#}");
    let fields = body["data"].as_object_mut().expect("data");
    assert_eq!(fields.len(), 1);
    fields.values_mut().next().unwrap().take()
}

pub(super) fn only_error(body: &Value) -> Value {
    let errors = body["errors"].as_array().unwrap_or_else(|| panic!("no errors: {body:#}"));
    assert_eq!(errors.len(), 1, "{body:#}");
    let mut extensions = errors[0]["extensions"].clone();
    extensions["message"] = errors[0]["message"].clone();
    extensions
}

/// A planner that parses the query as a draft in JSON. It finds no plan if the query is any other
/// text.
#[derive(Debug)]
struct LiteralPlanner;

#[async_trait]
impl Planner for LiteralPlanner {
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
        Err(PlanningError::NoPlan { message, nearest, is_certain: false, notes })
    }
}
