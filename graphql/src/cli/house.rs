//! The engine of this process: opened for one command, closed when it is done.

use std::sync::Arc;

use executor::{
    confine::Launcher,
    control::Control,
    sources::Sources,
    tool::flow,
    toolbox::Toolbox,
    worker::{Handle, Parts, Scope, Worker},
};
use planner::offline::Offline;
use shared::{
    clock::{Clock, WallClock},
    id::{ExecutionId, WorkerId},
    store::{self, Store},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Session, client::Client, drive::Drive, failure::Failure, remote::Remote, signals};
use crate::{
    config::Config,
    engine::Engine,
    schema::{self, Limits, Schema},
};

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
    sources: Option<Sources>,
    work: Option<Work>,
}

struct Work {
    handle: Handle,
    drain: CancellationToken,
    tasks: JoinSet<()>,
}

impl House {
    /// Opens the store, or prepares to talk to the server that does so.
    pub(super) async fn open(session: &Session, need: Need) -> Result<Self, Failure> {
        if let Some(server) = &session.config.server {
            let client = Client::Remote(Remote::new(&server.value)?);
            return Ok(Self { client, local: None });
        }
        let local = Local::open(session, need).await?;
        Ok(Self { client: Client::Local(Box::new(local.schema.clone())), local: Some(local) })
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
        Some(if local.sources.is_some() { drive } else { drive.for_commands() })
    }

    /// Returns whether an execution is open and nobody has it.
    pub(super) async fn is_left_alone(&self, id: ExecutionId) -> Result<bool, Failure> {
        let Some(local) = &self.local else { return Ok(false) };
        let head = local.engine.store().head(id).await?;
        Ok(head.is_some_and(|it| it.owner.is_none() && !it.state.is_over()))
    }

    /// Returns whether an execution was told something that is not recorded yet.
    pub(super) async fn has_mail(&self, id: ExecutionId) -> Result<bool, Failure> {
        let Some(local) = &self.local else { return Ok(false) };
        Ok(!local.engine.store().inbox(Some(id)).await?.is_empty())
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
        let config = &session.config;
        let store = open_store(session).await?;
        let toolbox = Toolbox::new([flow::flow()]);
        let sources = match need {
            Need::Store | Need::Stopping => None,
            Need::Tools | Need::Driving | Need::Everything => Some(connect(&toolbox, config)?),
        };
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
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
            Work::begin(parts)
        });
        let handle = work.as_ref().map(|it| it.handle.clone());
        let control = Control::new(store, Arc::clone(&clock), handle);
        let planner = Arc::new(Offline);
        let engine = Engine::new(control, toolbox, planner, clock, config.limits.connect())
            .with_limits(Arc::clone(config.limits.calls()));
        let limits = if need == Need::Everything { Limits::default() } else { own_limits() };
        let schema = schema::build(engine.clone(), limits);
        Ok(Self { engine, schema, sources, work })
    }

    /// Returns the worker of this process, if there is one.
    pub(super) fn worker(&self) -> Option<Handle> {
        self.work.as_ref().map(|it| it.handle.clone())
    }

    pub(super) async fn close(mut self) {
        if let Some(work) = self.work.take() {
            work.end().await;
        }
        if let Some(sources) = self.sources.take() {
            sources.close().await;
        }
    }
}

/// Nobody needs to be protected from the person at the terminal.
fn own_limits() -> Limits {
    Limits { complexity: usize::MAX / 2, ..Limits::default() }
}

impl Work {
    fn begin(parts: Parts) -> Self {
        let drain = CancellationToken::new();
        let id = WorkerId::draw(parts.clock.now());
        let (worker, handle) = Worker::new(parts, id, drain.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(worker.run());
        Self { handle, drain, tasks }
    }

    async fn end(mut self) {
        self.drain.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Opens the configured store. An embedded one gets the directory that it lies in.
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
    Ok(store::open(url).await?)
}

/// Begins to connect the configured toolsets.
fn connect(toolbox: &Toolbox, config: &Config) -> Result<Sources, Failure> {
    let mut sources = Sources::new(toolbox, config.limits.options().output_bytes)
        .with_launcher(Launcher::this_binary());
    for set in config.toolsets.value.clone() {
        sources.add(set).map_err(|err| Failure::usage(err.to_string()))?;
    }
    Ok(sources)
}
