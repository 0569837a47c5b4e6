use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use client::failure::Failure;
use engine::{
    Engine,
    store::{Keyring, sqlite_path},
};
use executor::{
    call_limits::CurrentCallLimits,
    control::Control,
    options::Options,
    worker::{Worker, WorkerHandle, WorkerParts, WorkerScope},
};
use graphql::schema::{self, Limits, Schema};
use offline::Offline;
use planner::model::{Settings, local::SharedStarter};
use sandbox::Launcher;
use shared::{
    actor::Actor,
    clock::{Clock, WallClock, describe_difference},
    id::WorkerId,
    store::{self, Store},
    trace::SpanSink,
};
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use toolbox::Toolbox;
use toolsets::{
    registry::{self, Registry},
    sources::{SetConfig, Sources, with_builtin},
};

use crate::{
    config::{Config, Environment, ModelConfig, Origin},
    model_server::ModelServer,
};

const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub(crate) config: &'a Config,
    pub(crate) environment: &'a Environment,
    pub(crate) span_sink: Option<&'a Arc<dyn SpanSink>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Store,
    /// Tools without a worker. A toolset starts when its tools are needed.
    Tools,
    /// A worker without tools that drives only the executions that it is given. It can stop an
    /// execution.
    Stopping,
    /// A worker with tools that drives only the executions that it is given.
    Driving,
    Everything,
}

impl Need {
    fn has_tools(self) -> bool {
        !matches!(self, Self::Store | Self::Stopping)
    }
}

pub(crate) struct LocalEngine {
    pub(crate) engine: Engine,
    pub(crate) schema: Schema,
    pub(crate) has_tools: bool,
    pub(crate) call_limits: CurrentCallLimits,
    stop: CancellationToken,
    background_tasks: JoinSet<()>,
    running_worker: Option<RunningWorker>,
}

struct RunningWorker {
    handle: WorkerHandle,
    drain: CancellationToken,
    /// `None` after the drain of the worker has started.
    tasks: Mutex<Option<JoinSet<()>>>,
}

impl LocalEngine {
    pub(crate) async fn open(setup: Setup<'_>, need: Need) -> Result<Self, Failure> {
        Self::open_over(setup, need, open_store(setup).await?).await
    }

    pub(crate) async fn open_over(
        setup: Setup<'_>,
        need: Need,
        store: Arc<dyn Store>,
    ) -> Result<Self, Failure> {
        let config = setup.config;
        let toolbox = Toolbox::default();
        let clock: Arc<dyn Clock> = Arc::new(store::shared_clock(&*store).await?);
        let has_tools = need.has_tools();
        let options = config.limits.options();
        let call_limits = options.calls.clone();
        let registry = build_registry(setup, need, &toolbox, &store, &clock)?;
        if has_tools {
            // Also adds the toolsets that were added through the API.
            registry.sync().await?;
        }
        let scope = match need {
            Need::Store | Need::Tools => None,
            Need::Stopping | Need::Driving => Some(WorkerScope::Given),
            Need::Everything => Some(WorkerScope::Everything),
        };
        let running_worker = scope.map(|scope| {
            RunningWorker::new(WorkerParts {
                node: config.node.value.clone(),
                store: Arc::clone(&store),
                toolbox: toolbox.clone(),
                clock: Arc::clone(&clock),
                options: options.clone(),
                scope,
            })
        });
        let handle =
            running_worker.as_ref().map(|(_, running_worker)| running_worker.handle.clone());
        let control = Control::new(Arc::clone(&store), Arc::clone(&clock), handle)
            .acting_as(Arc::new(Actor::user(setup.environment.user.as_deref())));
        let engine = build_engine(config, control, registry, Arc::clone(&clock), options)?;
        for warning in config.toolkit.value.warnings.iter().filter(|_| has_tools) {
            tracing::warn!("the toolkit: {warning}");
        }
        let running_worker = running_worker.map(|(worker, running_worker)| {
            if let Some(sink) = setup.span_sink {
                worker.set_span_sink(Arc::clone(sink));
            }
            if has_tools {
                worker.set_replanner(engine.executions.replanner());
            }
            let mut tasks = JoinSet::new();
            tasks.spawn(worker.run());
            RunningWorker { tasks: Mutex::new(Some(tasks)), ..running_worker }
        });
        let limits = if need == Need::Everything {
            Limits { answer_bytes: config.limits.answer_bytes(), ..Limits::default() }
        } else {
            unlimited_operations()
        };
        let schema = schema::build(engine.clone(), limits);
        let (stop, mut background_tasks) = (CancellationToken::new(), JoinSet::new());
        if has_tools {
            background_tasks.spawn(engine.tools.inventory.registry().clone().watch(stop.clone()));
            background_tasks.spawn(Arc::clone(&engine.tools).flush_usage_regularly(stop.clone()));
        }
        if need == Need::Everything {
            background_tasks.spawn(watch_clock(clock, stop.clone()));
        }
        if need == Need::Everything && config.learning.value {
            background_tasks
                .spawn(Arc::clone(&engine.selection.learning).keep_learning(stop.clone()));
        }
        Ok(Self { engine, schema, has_tools, call_limits, stop, background_tasks, running_worker })
    }

    pub(crate) fn worker_handle(&self) -> Option<WorkerHandle> {
        self.running_worker.as_ref().map(|running_worker| running_worker.handle.clone())
    }

    /// Stops the worker. Waits for running calls at most for the time in `limits.drain_ms`, and
    /// then stops those that still run.
    pub(crate) async fn drain(&self) {
        let tasks = self.running_worker.as_ref().and_then(|running_worker| {
            running_worker.drain.cancel();
            running_worker.tasks.lock().unwrap_or_else(PoisonError::into_inner).take()
        });
        if let Some(mut tasks) = tasks {
            while tasks.join_next().await.is_some() {}
        }
    }

    pub(crate) async fn close(mut self) {
        self.drain().await;
        // The background tasks end after the worker, because they count its last calls.
        self.stop.cancel();
        while self.background_tasks.join_next().await.is_some() {}
        self.engine.tools.inventory.registry().sources().close().await;
    }
}

impl RunningWorker {
    fn new(parts: WorkerParts) -> (Worker, Self) {
        let drain = CancellationToken::new();
        let id = WorkerId::draw(parts.clock.now());
        let (worker, handle) = Worker::new(parts, id, drain.clone());
        (worker, Self { handle, drain, tasks: Mutex::default() })
    }
}

/// Does not limit the cost and the answer of an operation, because this process sends its
/// operations to itself.
pub(crate) fn unlimited_operations() -> Limits {
    Limits { complexity: usize::MAX, answer_bytes: usize::MAX, ..Limits::default() }
}

fn build_engine(
    config: &Config,
    control: Control,
    registry: Registry,
    clock: Arc<dyn Clock>,
    options: Options,
) -> Result<Engine, Failure> {
    let planner = Arc::new(Offline::default());
    let engine = Engine::new(control, registry, planner, clock, options)
        .with_toolkit(config.toolkit.value.toolkit.clone())
        .with_embedder(config.embedding_source())
        .with_plan_cache(config.plan_cache.value)
        .with_guard(config.guard.value)
        .with_margin(config.margin.value)
        .with_learning(config.learning.value);
    match config.planning_model() {
        Some(model) => engine
            .with_model(&model_settings(config, model), model.max_repairs())
            .map_err(|err| Failure::usage(err.to_string())),
        None => Ok(engine),
    }
}

/// Returns the settings of a model. For a local model, they contain the means to start the model's
/// server.
pub(crate) fn model_settings(config: &Config, model: &ModelConfig) -> Settings {
    let server = || {
        let launcher = Launcher::this_binary();
        Arc::new(ModelServer::new(config.models_folder(), config.data.clone(), launcher))
    };
    let mut settings = model.settings();
    if settings.provider.is_local() {
        settings.starter = Some(SharedStarter(server()));
    }
    if let Some(fallback) = settings.fallback.as_mut().filter(|model| model.provider.is_local()) {
        fallback.starter = Some(SharedStarter(server()));
    }
    settings
}

/// Warns when the time of the store differs from the clock of this machine, such as after a
/// correction of the clock. Ends when `stop` is cancelled.
async fn watch_clock(clock: Arc<dyn Clock>, stop: CancellationToken) {
    let mut has_warned = false;
    loop {
        let difference = describe_difference(clock.now(), WallClock.now());
        if let Some(difference) = difference.as_ref().filter(|_| !has_warned) {
            tracing::warn!(
                "{difference}: stop all processes that use the store, and start them again"
            );
        }
        has_warned = difference.is_some();
        tokio::select! {
            () = stop.cancelled() => return,
            () = time::sleep(CLOCK_CHECK_INTERVAL) => (),
        }
    }
}

pub(crate) fn list_configured_sets(config: &Config, base: &Path) -> Vec<SetConfig> {
    let configured_count = config.toolsets.value.len();
    let mut sets = with_builtin(config.toolsets.value.clone());
    for set in sets.iter_mut().skip(configured_count) {
        *set = set.clone().rooted(base);
    }
    sets
}

/// Returns the path of the configured store if it is a file that does not exist. A missing folder
/// is a separate error, unless it is the default folder.
pub(crate) fn missing_store(setup: Setup<'_>) -> Option<PathBuf> {
    let setting = &setup.config.store;
    let path = sqlite_path(&setting.value)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let has_folder = setting.origin == Origin::Default || folder.is_none_or(Path::exists);
    (has_folder && !path.exists()).then(|| path.to_owned())
}

pub(crate) async fn open_store(setup: Setup<'_>) -> Result<Arc<dyn Store>, Failure> {
    create_default_folder(setup).await?;
    let url = &setup.config.store.value;
    Ok(match open_keys(setup).await? {
        Some(keys) => engine::store::open_encrypted_store(url, keys).await?,
        None => engine::store::open_store(url).await?,
    })
}

/// Opens the configured store to copy values from it or into it. Keys are not used, because a copy
/// that encrypted values could not be compared with its source.
pub(crate) async fn open_store_for_copies(setup: Setup<'_>) -> Result<Arc<dyn Store>, Failure> {
    create_default_folder(setup).await?;
    Ok(engine::store::open_store_for_copies(&setup.config.store.value, None).await?)
}

pub(crate) async fn open_keys(setup: Setup<'_>) -> Result<Option<Keyring>, Failure> {
    match &setup.config.encryption.value {
        Some(encryption) => Ok(Some(encryption.open_keys().await?)),
        None => Ok(None),
    }
}

async fn create_default_folder(setup: Setup<'_>) -> Result<(), Failure> {
    let config = setup.config;
    if config.store.origin == Origin::Default {
        tokio::fs::create_dir_all(&config.data).await.map_err(|err| {
            let place = config.data.display();
            let reason =
                format!("`{place}` cannot be created: {err}; name another place with `--store`");
            Failure::new("STORE_UNAVAILABLE", reason)
        })?;
    }
    Ok(())
}

pub(crate) fn build_launcher(config: &Config, base: &Path) -> Launcher {
    Launcher::this_binary()
        .with_hidden(config.own_files(base))
        .with_folders(config.own_folders())
        .with_secrets(config.secrets().unwrap_or_default())
        .with_read_only(config.own_programs())
}

/// Makes the registry of toolsets. It contains no configured toolset if the command needs no tools.
fn build_registry(
    setup: Setup<'_>,
    need: Need,
    toolbox: &Toolbox,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
) -> Result<Registry, Failure> {
    let config = setup.config;
    let base = config.base_folder().map_err(|err| Failure::usage(err.to_string()))?;
    let sources = Sources::new(toolbox, config.limits.options().output_bytes)
        .with_launcher(build_launcher(config, &base))
        .with_store(Arc::clone(store), Arc::clone(clock))
        .with_logins(config.open_logins());
    let sources = if need == Need::Everything { sources } else { sources.with_lazy_start() };
    Ok(Registry::new(registry::Parts {
        sources,
        toolbox: toolbox.clone(),
        store: Arc::clone(store),
        clock: Arc::clone(clock),
        configured: if need.has_tools() { list_configured_sets(config, &base) } else { Vec::new() },
        contexts: config.contexts.clone(),
        base,
        secrets: config.secrets(),
    }))
}
