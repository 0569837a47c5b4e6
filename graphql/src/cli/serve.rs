//! `faber serve` and `faber worker`: a process that stays and does whatever is there.

use std::{sync::Arc, time::Duration};

use executor::worker::Handle;
use futures::FutureExt;
use nix::sys::resource::{Resource, getrlimit};
use shared::store::Store;
use tokio::{net::TcpListener, sync::Mutex, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use toolbox::{SetStatus, Toolbox};

use super::{
    Ending, Session,
    failure::Failure,
    house::{Local, Need},
    mcp,
    prune::Retention,
    signals,
};
use crate::{
    config::variable,
    server::{self, Hooks, ServerOptions},
    web,
};

/// How often `/health/ready` writes into the store at most.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Serves the API and executes whatever is there, until told to end.
pub(super) async fn serve(session: &Session) -> Result<Ending, Failure> {
    refuse_server(session, "serve")?;
    let config = &session.config;
    let told = told_to_end()?;
    let access = config.access.value.open(&config.toolsets.value, variable)?;
    let wanted = config.listen.value;
    let listener = TcpListener::bind(wanted).await.map_err(|err| {
        let hint = "name another address with `--listen`";
        Failure::new("SERVER_UNAVAILABLE", format!("cannot listen on `{wanted}`: {err}; {hint}"))
    })?;
    let address = listener.local_addr().map_err(|err| {
        Failure::new("SERVER_UNAVAILABLE", format!("cannot listen on `{wanted}`: {err}"))
    })?;
    let local = Local::open(session, Need::Everything).await?;
    local.engine.tell_holders(access.clone());
    if !address.ip().is_loopback() && !access.wants_token() {
        session.screen.say(&session.screen.err.yellow(format!(
            "warning: `{address}` can be reached from other machines, but there are no access \
             tokens: everybody but this machine is refused; add `access.tokens` to the \
             configuration, or listen on 127.0.0.1"
        )));
    }
    warn_of_free_commands(session);
    session.screen.say(&format!("listening on http://{address}"));
    let (retention, mut tasks) = prune(session, &local);
    warn_of_idle_patterns(session, &local, &mut tasks);
    let options = ServerOptions {
        max_body_bytes: config.limits.request_bytes(),
        max_connections: connections(session),
        max_new_connections: config.limits.new_connections_per_address(),
        shutdown_grace: config.limits.drain(),
        access,
        ..ServerOptions::default()
    };
    let stop = CancellationToken::new();
    let members = mcp::page(config, &local, stop.clone());
    let hooks = Hooks { members, ..hooks(&local, &retention) };
    let schema = local.schema.clone();
    let told = async move {
        told.await;
        stop.cancel();
    };
    let served = server::serve(listener, schema, options, hooks, told).await;
    session.screen.say("stopping");
    local.close().await;
    served.map_err(|err| Failure::new("SERVER_UNAVAILABLE", err.to_string()))?;
    Ok(Ending::Done)
}

/// Executes whatever is there, until told to end.
pub(super) async fn worker(session: &Session) -> Result<Ending, Failure> {
    refuse_server(session, "worker")?;
    let told = told_to_end()?;
    let local = Local::open(session, Need::Everything).await?;
    warn_of_free_commands(session);
    session.screen.say(&format!("working on {}", session.config.store_name()));
    let (_, _pruning) = prune(session, &local);
    told.await;
    session.screen.say("stopping");
    local.close().await;
    Ok(Ending::Done)
}

/// Returns how many connections the server may have, and warns where the system allows fewer.
fn connections(session: &Session) -> usize {
    let wanted = session.config.limits.connections();
    // The store, tools and logs need descriptors, too.
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    let most = usize::try_from(descriptors / 4 * 3).unwrap_or(usize::MAX);
    if wanted > most {
        tracing::warn!(
            "the system allows this process {descriptors} open files, so `limits.connections` is \
             {most} instead of {wanted}: raise `ulimit -n` for more"
        );
    }
    wanted.min(most)
}

/// Says once, where nobody looks into logs, that this machine cannot confine commands.
fn warn_of_free_commands(session: &Session) {
    let support = sandbox::support();
    if support.files && support.calls {
        return;
    }
    session.screen.say(&session.screen.err.yellow(format!(
        "warning: {support}: tools that run commands refuse to where their files and sockets cannot be confined, \
         unless their `confine` says `required: false`"
    )));
}

/// Says which patterns of tokens no tool matches, once the tools are known.
fn warn_of_idle_patterns(session: &Session, local: &Local, tasks: &mut JoinSet<()>) {
    if session.config.access.value.is_empty() {
        return;
    }
    let (screen, engine) = (session.screen.clone(), local.engine.clone());
    let (access, sets) =
        (session.config.access.value.clone(), session.config.toolsets.value.clone());
    let most = session.config.limits.options().connect;
    tasks.spawn(async move {
        engine.catch_up().await;
        let toolbox = engine.toolbox();
        toolbox.settled(most).await;
        let idle = access.idle(&sets, &toolbox.sets());
        if !idle.is_empty() {
            screen.say(&screen.err.yellow(format!(
                "warning: no tool matches {}: correct `tools` in `access.tokens`; `faber tools \
                 list` lists the tools",
                idle.join(", ")
            )));
        }
    });
}

/// Begins to remove what is old, where the configuration says how old. Whoever drops the tasks
/// ends it.
fn prune(session: &Session, local: &Local) -> (Arc<Retention>, JoinSet<()>) {
    let (retention, mut tasks) = (Arc::new(Retention::default()), JoinSet::new());
    if let Some(age) = session.config.retention.value {
        let (store, clock) = (Arc::clone(local.engine.store()), Arc::clone(local.engine.clock()));
        let removing = Arc::clone(&retention);
        tasks.spawn(async move { removing.keep(store, clock, age).await });
    }
    (retention, tasks)
}

fn told_to_end() -> Result<impl Future<Output = ()> + Send, Failure> {
    let deaf = |err| Failure::new("INTERNAL", format!("signals cannot be heard: {err}"));
    signals::told_to_end().map_err(deaf)
}

pub(super) fn refuse_server(session: &Session, command: &str) -> Result<(), Failure> {
    match &session.config.server {
        Some(server) if server.origin == crate::config::Origin::Flag("--server") => {
            let why = format!("`faber {command}` opens the store itself: leave `--server` out");
            Err(Failure::usage(why))
        }
        _ => Ok(()),
    }
}

/// Finds out whether the store can be written. Everybody may ask, so an answer is kept for a while.
struct WriteProbe {
    store: Arc<dyn Store>,
    last: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl WriteProbe {
    fn new(store: Arc<dyn Store>) -> Self {
        Self { store, last: Mutex::default() }
    }

    async fn check(&self) -> Result<(), String> {
        // Locked while the store answers: whoever else asks meanwhile gets the same answer.
        let mut last = self.last.lock().await;
        if let Some((at, outcome)) = &*last
            && at.elapsed() < PROBE_EVERY
        {
            return outcome.clone();
        }
        let outcome = self.store.check().await.map_err(|err| err.to_string());
        *last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// What the server asks of the engine.
fn hooks(local: &Local, retention: &Arc<Retention>) -> Hooks {
    let counted = Arc::clone(local.engine.store());
    let probe = Arc::new(WriteProbe::new(Arc::clone(&counted)));
    let (toolbox, worker) = (local.engine.toolbox().clone(), local.worker());
    let retention = Arc::clone(retention);
    Hooks {
        ready: Arc::new(move || {
            let probe = Arc::clone(&probe);
            async move { probe.check().await }.boxed()
        }),
        figures: Arc::new(move || {
            let waiting = worker.as_ref().map_or(0, Handle::waiting_for_permits);
            let figures = [
                figures(counted.commits(), &toolbox),
                retention.figures(),
                format!(
                    "# HELP faber_calls_waiting Calls that wait here for a limit of `limits.calls`.\n\
                     # TYPE faber_calls_waiting gauge\n\
                     faber_calls_waiting {waiting}\n"
                ),
            ];
            std::future::ready(figures.concat()).boxed()
        }),
        pages: web::pages(),
        elsewhere: web::elsewhere,
        ..Hooks::default()
    }
}

/// Writes the figures of the engine in the text format of `/metrics`.
fn figures(commits: u64, toolbox: &Toolbox) -> String {
    let sets = toolbox.sets();
    let count =
        |wanted: fn(&SetStatus) -> bool| sets.iter().filter(|it| wanted(&it.status)).count();
    let ready = count(|it| *it == SetStatus::Ready);
    let connecting = count(|it| *it == SetStatus::Connecting);
    let failed = count(|it| matches!(it, SetStatus::Failed { .. }));
    let tools: usize = sets.iter().map(|it| it.tools.len()).sum();
    format!(
        "# HELP faber_store_commits_total Commits of the store by this process.\n\
         # TYPE faber_store_commits_total counter\n\
         faber_store_commits_total {commits}\n\
         # HELP faber_toolsets Toolsets, by their status.\n\
         # TYPE faber_toolsets gauge\n\
         faber_toolsets{{status=\"ready\"}} {ready}\n\
         faber_toolsets{{status=\"connecting\"}} {connecting}\n\
         faber_toolsets{{status=\"failed\"}} {failed}\n\
         # HELP faber_tools Tools that are known.\n\
         # TYPE faber_tools gauge\n\
         faber_tools {tools}\n"
    )
}
