//! The engine of this process: opened for one command, closed when it is done.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use executor::{
    control::Control,
    worker::{Handle, Parts, Scope, Worker},
};
use offline::Offline;
use planner::embed::Embedders;
use sandbox::Launcher;
use shared::{
    clock::Clock,
    execution::ExecutionState,
    id::{ExecutionId, WorkerId},
    store::{self, Command, Head, Store, memory::Memory},
};
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use toolbox::Toolbox;
use toolsets::{
    registry::{self, Registry},
    sources::{SetConfig, Sources, with_builtin},
};

use super::{Session, client::Client, drive::Drive, failure::Failure, remote::Remote, signals};
use crate::{
    config::Config,
    engine::Engine,
    schema::{self, Limits, Schema},
};

/// How often is looked whether a living process reads what an execution was told.
const LOOK_FOR_READER: Duration = Duration::from_millis(100);
/// How many such looks find nobody before this process carries the execution on.
const LOOKS_FOR_READER: usize = 30;

/// What a command needs of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// What is kept.
    Store,
    /// Tools too.
    Tools,
    /// A worker too, for what it is given, without tools: enough to stop something.
    Stopping,
    /// A worker with tools, for what it is given.
    Driving,
    /// A worker with tools, for whatever is there.
    Everything,
}

/// The engine of this process, or the way to a server's.
pub(super) struct House {
    client: Client,
    local: Option<Local>,
}

/// The engine of this process.
pub(super) struct Local {
    pub(super) engine: Engine,
    pub(super) schema: Schema,
    /// Whether it connects to the configured toolsets.
    has_tools: bool,
    upkeep: Upkeep,
    work: Option<Work>,
}

/// What is looked after while the engine is open.
#[derive(Default)]
struct Upkeep {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Upkeep {
    fn begin(&mut self, engine: &Engine) {
        self.tasks.spawn(engine.registry().clone().watch(self.stop.clone()));
        self.tasks.spawn(engine.clone().keep_usage(self.stop.clone()));
    }

    async fn end(&mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

struct Work {
    handle: Handle,
    drain: CancellationToken,
    tasks: JoinSet<()>,
}

impl House {
    /// Opens the store, or prepares to talk to the server that does so. An embedded store is made if
    /// there is none.
    pub(super) async fn open(session: &Session, need: Need) -> Result<Self, Failure> {
        match Self::of_server(session)? {
            Some(house) => Ok(house),
            None => Ok(Self::of_local(Local::open(session, need).await?)),
        }
    }

    /// Does the same for a command that only looks or steers: it makes no store. If there is none,
    /// it says so, and finds nothing.
    pub(super) async fn open_existing(session: &Session, need: Need) -> Result<Self, Failure> {
        if let Some(house) = Self::of_server(session)? {
            return Ok(house);
        }
        let store = match missing_store(session) {
            None => open_store(session).await?,
            Some(path) => {
                if need != Need::Tools {
                    let path = path.display();
                    let hint = format!("there is no store at `{path}` yet: `faber run` makes one");
                    session.screen.say(&session.screen.err.dim(hint));
                }
                Arc::new(Memory::new())
            }
        };
        Ok(Self::of_local(Local::over(session, need, store).await?))
    }

    fn of_server(session: &Session) -> Result<Option<Self>, Failure> {
        let Some(server) = &session.config.server else { return Ok(None) };
        let remote = Remote::new(&server.value, session.environment.token.as_ref())?;
        Ok(Some(Self { client: Client::Remote(remote), local: None }))
    }

    fn of_local(local: Local) -> Self {
        Self { client: Client::local(local.schema.clone()), local: Some(local) }
    }

    /// Returns the engine, where this process has one.
    pub(super) fn engine(&self) -> Option<&Engine> {
        Some(&self.local.as_ref()?.engine)
    }

    /// Returns who carries operations out.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns what carries an execution on, where that is for this process to do.
    pub(super) fn drive(&self) -> Option<Drive> {
        let local = self.local.as_ref()?;
        let work = local.work.as_ref()?;
        let store = Arc::clone(local.engine.store());
        let drive = Drive::new(store, Arc::clone(local.engine.clock()), work.handle.clone());
        Some(if local.has_tools { drive } else { drive.for_commands() })
    }

    /// Returns the store, where this process has it.
    pub(super) fn store(&self) -> Option<&Arc<dyn Store>> {
        Some(self.local.as_ref()?.engine.store())
    }

    /// Returns whether an execution is open and nobody has it, or who had it is gone.
    pub(super) async fn is_left_alone(&self, id: ExecutionId) -> Result<bool, Failure> {
        let head = self.left_alone(id).await?;
        Ok(head.is_some_and(|it| !it.state.is_over()))
    }

    /// Returns whether an execution should go on now, and nobody sees to that.
    pub(super) async fn is_abandoned(&self, id: ExecutionId) -> Result<bool, Failure> {
        use ExecutionState::{Compensating, InProgress, Pending};

        let (Some(local), Some(head)) = (&self.local, self.left_alone(id).await?) else {
            return Ok(false);
        };
        let now = local.engine.clock().now();
        let may_go_on = match head.due {
            // A step that waited for a person or a signal has its answer.
            _ if head.state == ExecutionState::Waiting => return self.has_mail(id).await,
            _ if head.owner.is_some() => true,
            Some(due) if due <= now => true,
            // It sleeps, and nobody is there who would wake it.
            Some(_) => local.engine.store().workers(now).await?.is_empty(),
            None => false,
        };
        Ok(may_go_on && matches!(head.state, Pending | InProgress | Compensating))
    }

    /// Returns whether an execution is over and to be planned anew, and nobody is there to do so.
    pub(super) async fn is_owed_by_nobody(&self, id: ExecutionId) -> Result<bool, Failure> {
        let head = self.left_alone(id).await?;
        Ok(head.is_some_and(|it| it.state.is_over() && it.owner.is_some()))
    }

    /// Returns the head of an execution that nobody has, or that of a worker that is gone.
    async fn left_alone(&self, id: ExecutionId) -> Result<Option<Head>, Failure> {
        let Some(local) = &self.local else { return Ok(None) };
        let store = local.engine.store();
        let Some(head) = store.head(id).await? else { return Ok(None) };
        let Some(owner) = head.owner else { return Ok(Some(head)) };
        let live = store.workers(local.engine.clock().now()).await?;
        Ok((!live.contains(&owner)).then_some(head))
    }

    /// Returns whether an execution was told something that is not recorded yet.
    pub(super) async fn has_mail(&self, id: ExecutionId) -> Result<bool, Failure> {
        let Some(local) = &self.local else { return Ok(false) };
        Ok(!local.engine.store().inbox(Some(id)).await?.is_empty())
    }

    /// Returns whether a living process has an execution, or reads what it was told within a few
    /// seconds.
    pub(super) async fn is_taken_up(&self, id: ExecutionId) -> Result<bool, Failure> {
        let Some(local) = &self.local else { return Ok(true) };
        let store = local.engine.store();
        for _ in 0..LOOKS_FOR_READER {
            if !self.is_left_alone(id).await? || !self.has_mail(id).await? {
                return Ok(true);
            }
            if store.workers(local.engine.clock().now()).await?.is_empty() {
                return Ok(false);
            }
            time::sleep(LOOK_FOR_READER).await;
        }
        Ok(false)
    }

    /// Returns what an execution was told and has not read yet, oldest first.
    pub(super) async fn mail(&self, id: ExecutionId) -> Result<Vec<Command>, Failure> {
        let Some(local) = &self.local else { return Ok(Vec::new()) };
        let mail = local.engine.store().inbox(Some(id)).await?;
        Ok(mail.into_iter().map(|envelope| envelope.command).collect())
    }

    /// Lets what is short end, and closes everything. Who is in a hurry presses Ctrl-C.
    pub(super) async fn close(self) {
        if let Some(local) = self.local {
            tokio::select! {
                () = local.close() => (),
                () = signals::interrupted() => (),
            }
        }
    }
}

impl Local {
    pub(super) async fn open(session: &Session, need: Need) -> Result<Self, Failure> {
        Self::over(session, need, open_store(session).await?).await
    }

    /// Opens the engine over a store.
    async fn over(session: &Session, need: Need, store: Arc<dyn Store>) -> Result<Self, Failure> {
        let config = &session.config;
        let toolbox = Toolbox::default();
        let clock: Arc<dyn Clock> = Arc::new(store::clock_of(&*store).await?);
        let has_tools = !matches!(need, Need::Store | Need::Stopping);
        let registry = registry(session, &toolbox, &store, &clock, has_tools)?;
        if has_tools {
            // Only then: it starts the servers of sets that were added.
            registry.sync().await?;
        }
        let scope = match need {
            Need::Store | Need::Tools => None,
            Need::Stopping | Need::Driving => Some(Scope::Given),
            Need::Everything => Some(Scope::Everything),
        };
        let work = scope.map(|scope| {
            let parts = Parts {
                node: session.environment.node(),
                store: Arc::clone(&store),
                toolbox: toolbox.clone(),
                clock: Arc::clone(&clock),
                options: config.limits.options(),
                scope,
            };
            Work::new(parts)
        });
        let handle = work.as_ref().map(|(_, it)| it.handle.clone());
        let embedders = Embedders::new(config.embedding_sources(), Arc::clone(&store) as _);
        let embedders = Arc::new(embedders);
        let control = Control::new(store, Arc::clone(&clock), handle);
        let planner = Arc::new(Offline::with(Arc::clone(&embedders)));
        let options = config.limits.options();
        let engine = Engine::new(control, registry.clone(), planner, clock, options)
            .with_toolkit(config.toolkit.value.toolkit.clone())
            .sharing(embedders)
            .with_plan_cache(config.plan_cache.value)
            .with_margin(config.margin.value)
            .with_learning(config.learning.value);
        let engine = match config.planning_model() {
            Some(model) => engine
                .with_model(&model.settings(), model.max_repairs())
                .map_err(|err| Failure::usage(err.to_string()))?,
            None => engine,
        };
        for warning in config.toolkit.value.warnings.iter().filter(|_| has_tools) {
            tracing::warn!("the toolkit: {warning}");
        }
        let work = work.map(|(worker, mut work)| {
            if has_tools {
                worker.set_replanner(engine.replanner());
            }
            work.tasks.spawn(worker.run());
            work
        });
        let limits = if need == Need::Everything {
            Limits { answer_bytes: config.limits.answer_bytes(), ..Limits::default() }
        } else {
            own_limits()
        };
        let schema = schema::build(engine.clone(), limits);
        let mut upkeep = Upkeep::default();
        if has_tools {
            upkeep.begin(&engine);
        }
        if need == Need::Everything {
            upkeep.tasks.spawn(engine.clone().watch_clock(upkeep.stop.clone()));
        }
        if need == Need::Everything && config.learning.value {
            upkeep.tasks.spawn(engine.clone().keep_learning(upkeep.stop.clone()));
        }
        Ok(Self { engine, schema, has_tools, upkeep, work })
    }

    /// Returns the worker of this process, if there is one.
    pub(super) fn worker(&self) -> Option<Handle> {
        self.work.as_ref().map(|it| it.handle.clone())
    }

    pub(super) async fn close(mut self) {
        if let Some(work) = self.work.take() {
            work.end().await;
        }
        // The last calls are counted, too.
        self.upkeep.end().await;
        self.engine.registry().sources().close().await;
    }
}

/// Nobody needs to be protected from the person at the terminal, or from operations of ours.
pub(super) fn own_limits() -> Limits {
    Limits { complexity: usize::MAX, answer_bytes: usize::MAX, ..Limits::default() }
}

impl Work {
    /// Returns a worker that is to be run, and what tells it to end.
    fn new(parts: Parts) -> (Worker, Self) {
        let drain = CancellationToken::new();
        let id = WorkerId::draw(parts.clock.now());
        let (worker, handle) = Worker::new(parts, id, drain.clone());
        (worker, Self { handle, drain, tasks: JoinSet::new() })
    }

    async fn end(mut self) {
        self.drain.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Returns the configured sets, and Faber's own.
fn configured(config: &Config, base: &Path) -> Vec<SetConfig> {
    let (sets, own) = (config.toolsets.value.clone(), config.toolsets.value.len());
    let mut sets = with_builtin(sets);
    for set in sets.iter_mut().skip(own) {
        *set = set.clone().rooted(base);
    }
    sets
}

/// Returns where the configured store would be, if it is a file that is not there. A folder that is
/// not there, other than the default one, is an error of its own.
fn missing_store(session: &Session) -> Option<PathBuf> {
    let setting = &session.config.store;
    let path = crate::store::sqlite_path(&setting.value)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_default = setting.origin == crate::config::Origin::Default;
    let has_folder = is_default || folder.is_none_or(Path::exists);
    (has_folder && !path.exists()).then(|| path.to_owned())
}

/// Opens the configured store. The default one gets the folder that it lies in.
pub(super) async fn open_store(session: &Session) -> Result<Arc<dyn Store>, Failure> {
    let config = &session.config;
    let url = &config.store.value;
    if config.store.origin == crate::config::Origin::Default {
        tokio::fs::create_dir_all(&config.data).await.map_err(|err| {
            let place = config.data.display();
            let why = format!("`{place}` cannot be made: {err}; name a place with `--store`");
            Failure::new("STORE_UNAVAILABLE", why)
        })?;
    }
    Ok(crate::store::open_store(url).await?)
}

/// Makes the registry of toolsets; without tools it knows of none.
fn registry(
    session: &Session,
    toolbox: &Toolbox,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
    has_tools: bool,
) -> Result<Registry, Failure> {
    let config = &session.config;
    let base = config.base().map_err(|err| Failure::usage(err.to_string()))?;
    Ok(Registry::new(registry::Parts {
        sources: Sources::new(toolbox, config.limits.options().output_bytes)
            .with_launcher(
                Launcher::this_binary()
                    .hiding(config.own_files(&base))
                    .with_folders(config.own_folders())
                    .with_secrets(config.access.value.secrets().unwrap_or_default())
                    .keeping(config.own_programs()),
            )
            .with_store(Arc::clone(store), Arc::clone(clock))
            .with_logins(config.logins()),
        toolbox: toolbox.clone(),
        store: Arc::clone(store),
        clock: Arc::clone(clock),
        configured: if has_tools { configured(config, &base) } else { Vec::new() },
        contexts: config.contexts.clone(),
        base,
        secrets: config.access.value.secrets(),
    }))
}
