//! `faber serve`, `faber worker` and `faber mcp`, which run until a signal ends them. `faber mcp`
//! also ends with its input.

use std::{io, net::SocketAddr, path::Path, sync::Arc};

use client::{Client, failure::Failure, view::plain};
use engine::{
    access::Access,
    retention::{Retention, RetentionPolicy},
    store::sqlite_path,
};
use graphql::{
    health::build_server_hooks,
    schema,
    server::{self, Hooks, PathPrefix, ServerOptions, Tls},
};
use nix::sys::resource::{Resource, getrlimit};
use oidc::SignIn;
use shared::clock::WallClock;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    App, ExitStatus,
    config::{HttpServerConfig, variable},
    local_engine::{LocalEngine, unlimited_operations},
    reload::Reloader,
    session::{Need, Session},
    signals::{self, ServiceSignal, ServiceSignals},
};

pub(crate) async fn serve_api(app: &App) -> Result<ExitStatus, Failure> {
    refuse_server_flag(app, "serve")?;
    let config = &app.config;
    let signals = listen_for_service_signals()?;
    let access = config.access.value.open(&config.toolsets.value, variable)?;
    let (access, sign_in) = open_sign_in(app, access)?;
    let HttpServerConfig { allowed_hosts, allowed_origins, path_prefix, tls, .. } =
        config.http_server.value.clone();
    let tls = tls.map(|files| files.open().map(Tls::new)).transpose()?;
    let (listener, address) = open_listener(config.listen.value, "--listen").await?;
    let local = LocalEngine::open(app.setup(), Need::Everything).await?;
    local.engine.set_access(access.clone());
    warn_of_missing_tokens(app, address, &access);
    warn_of_missing_confinement(app);
    warn_of_missing_sign_in(app, &access);
    let scheme = if tls.is_some() { "https" } else { "http" };
    announce_worker(app, &local);
    app.screen.say(&format!("listening on {scheme}://{address}{path_prefix}"));
    let (retention, mut tasks) = start_retention(app, &local);
    warn_of_unmatched_patterns(app, &local, &mut tasks);
    warn_of_unmatched_effects(app, &local, &mut tasks);
    let options = ServerOptions {
        max_body_bytes: config.limits.request_bytes(),
        max_connections: max_connections(app),
        max_new_connections: config.limits.new_connections_per_address(),
        shutdown_grace: config.limits.drain_time(),
        access: access.clone(),
        sign_in,
        tls: tls.clone(),
        allowed_hosts: allowed_hosts.values,
        allowed_origins: allowed_origins.values,
        path_prefix: path_prefix.clone(),
        ..ServerOptions::default()
    };
    let stop = CancellationToken::new();
    let mcp_client = Client::local(schema::build(local.engine.clone(), unlimited_operations()));
    let store = Arc::clone(local.engine.store());
    let member_routes =
        mcp_server::build_routes(mcp_client, store, config.limits.request_bytes(), stop.clone());
    let file = sqlite_path(&config.store.value).map(Path::to_owned);
    let hooks =
        build_server_hooks(&local.engine, local.worker_handle(), &retention, file, &path_prefix);
    let hooks = Hooks { member_routes, span_sink: app.span_sink.clone(), ..hooks };
    let api = local.schema.clone();
    let reloader = Reloader::new(app, &local, Some(access)).with_tls(tls);
    let end_signal = async move {
        reload_until_end(signals, reloader).await;
        stop.cancel();
    };
    let served = server::serve(listener, api, options, hooks, end_signal).await;
    app.screen.say("stopping");
    local.close().await;
    served.map_err(|err| Failure::new("SERVER_UNAVAILABLE", err.to_string()))?;
    Ok(ExitStatus::Done)
}

pub(crate) async fn run_worker(app: &App) -> Result<ExitStatus, Failure> {
    refuse_server_flag(app, "worker")?;
    let signals = listen_for_service_signals()?;
    let listener = match &app.config.metrics {
        Some(metrics) => Some(open_listener(metrics.value, "--metrics").await?),
        None => None,
    };
    let local = LocalEngine::open(app.setup(), Need::Everything).await?;
    warn_of_missing_confinement(app);
    announce_worker(app, &local);
    let (retention, _pruning) = start_retention(app, &local);
    let served = if let Some((listener, address)) = listener {
        let access = app.config.access.value.open(&app.config.toolsets.value, variable)?;
        let (access, sign_in) = open_sign_in(app, access)?;
        warn_of_missing_tokens(app, address, &access);
        let reloader = Reloader::new(app, &local, Some(access.clone()));
        let end_signal = reload_until_end(signals, reloader);
        app.screen.say(&format!("metrics on http://{address}"));
        app.screen.say(&format!("working on {}", app.config.store_name()));
        let file = sqlite_path(&app.config.store.value).map(Path::to_owned);
        let root = PathPrefix::default();
        let hooks =
            build_server_hooks(&local.engine, local.worker_handle(), &retention, file, &root);
        let Hooks { ready, first_metrics, .. } = hooks;
        // Leaves out the routes of the page, because a worker serves only metrics and health
        // checks.
        let hooks = Hooks { ready, first_metrics, ..Hooks::default() };
        let options = ServerOptions { has_api: false, access, sign_in, ..ServerOptions::default() };
        server::serve(listener, local.schema.clone(), options, hooks, end_signal).await
    } else {
        app.screen.say(&format!("working on {}", app.config.store_name()));
        reload_until_end(signals, Reloader::new(app, &local, None)).await;
        Ok(())
    };
    app.screen.say("stopping");
    local.close().await;
    served.map_err(|err| Failure::new("SERVER_UNAVAILABLE", err.to_string()))?;
    Ok(ExitStatus::Done)
}

/// Prints the id of the worker, because logs of other nodes, events and spans name it.
fn announce_worker(app: &App, local: &LocalEngine) {
    if let Some(handle) = local.worker_handle() {
        let (worker, node) = (handle.worker(), plain::safe_line(&app.config.node.value));
        app.screen.say(&format!("worker {worker} on node {node}"));
    }
}

fn open_sign_in(app: &App, access: Access) -> Result<(Access, Option<Arc<SignIn>>), Failure> {
    let config = &app.config;
    let Some(oidc) = &config.http_server.value.oidc else { return Ok((access, None)) };
    let folder = config.base_folder().map_err(|err| Failure::new("INTERNAL", err.to_string()))?;
    let settings = oidc.open(&folder, &config.toolsets.value, variable)?;
    let access = access.with_identities();
    let sign_in = SignIn::new(settings, access.clone(), Arc::new(WallClock));
    let sign_in = sign_in.map_err(|reason| Failure::new("INTERNAL", reason))?;
    Ok((access, Some(Arc::new(sign_in))))
}

async fn open_listener(
    wanted: SocketAddr,
    option: &str,
) -> Result<(TcpListener, SocketAddr), Failure> {
    let refused = |err: io::Error| {
        let hint = format!("name another address with `{option}`");
        Failure::new("SERVER_UNAVAILABLE", format!("cannot listen on `{wanted}`: {err}; {hint}"))
    };
    let listener = TcpListener::bind(wanted).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

fn warn_of_missing_tokens(app: &App, address: SocketAddr, access: &Access) {
    if !address.ip().is_loopback() && !access.requires_token() {
        app.screen.say(&app.screen.err.yellow(format!(
            "warning: `{address}` can be reached from other machines, but there are no access \
             tokens, so only this machine can connect: add `access.tokens` to the configuration, \
             or listen on 127.0.0.1"
        )));
    }
}

/// Warns if `server.allowed_hosts` is set and callers need no token, because a proxy on this
/// machine makes all its clients look like this machine.
fn warn_of_missing_sign_in(app: &App, access: &Access) {
    if !app.config.http_server.value.allowed_hosts.values.is_empty() && !access.requires_token() {
        app.screen.say(&app.screen.err.yellow(
            "warning: `server.allowed_hosts` is set, but there are no access tokens: everyone who \
             reaches a proxy on this machine may do everything, unless the proxy asks for a \
             sign-in; add `access.tokens` to the configuration",
        ));
    }
}

pub(crate) async fn serve_mcp(app: &App) -> Result<ExitStatus, Failure> {
    let end_signal = listen_for_end_signal()?;
    let session = Session::open(app, Need::Driving).await?;
    if let Some(engine) = session.engine() {
        // Starts all idle toolsets, because an assistant can ask for any tool during a long session.
        engine.tools.inventory.toolbox().start_sets(|_| true);
    }
    let ended = tokio::select! {
        ended = mcp_server::serve_stdio(session.client.clone(), session.store().cloned(), session.new_drive()) => ended,
        () = end_signal => Ok(()),
    };
    session.close().await;
    ended.map(|()| ExitStatus::Done)
}

/// Returns the configured limit on connections. If the file descriptors of the process do not
/// suffice for it, warns and returns a lower limit.
fn max_connections(app: &App) -> usize {
    let wanted = app.config.limits.max_connections();
    // A quarter of the file descriptors remains for the store, tools and logs.
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    let max_wanted = usize::try_from(descriptors / 4 * 3).unwrap_or(usize::MAX);
    if wanted > max_wanted {
        tracing::warn!(
            "the system allows this process {descriptors} open files, so `limits.connections` is \
             {max_wanted} instead of {wanted}: raise `ulimit -n` to allow more"
        );
    }
    wanted.min(max_wanted)
}

fn warn_of_missing_confinement(app: &App) {
    let support = sandbox::kernel_support();
    if support.files && support.calls {
        return;
    }
    app.screen.say(&app.screen.err.yellow(format!(
        "warning: {support}: tools refuse to run commands whose files and sockets cannot be confined, \
         unless their `confine` sets `required: false`"
    )));
}

fn warn_of_unmatched_patterns(app: &App, local: &LocalEngine, tasks: &mut JoinSet<()>) {
    if app.config.access.value.is_empty() {
        return;
    }
    let (screen, engine) = (app.screen.clone(), local.engine.clone());
    let (access, sets) = (app.config.access.value.clone(), app.config.toolsets.value.clone());
    let connect_timeout = app.config.limits.options().connect;
    tasks.spawn(async move {
        engine.tools.inventory.read_changes().await;
        let toolbox = engine.tools.inventory.toolbox();
        toolbox.wait_for_sets(connect_timeout).await;
        let idle = access.find_unmatched(&sets, &toolbox.sets());
        if !idle.is_empty() {
            screen.say(&screen.err.yellow(format!(
                "warning: no tool matches {}: correct `tools` in `access.tokens`; `faber tools \
                 list` lists the tools",
                idle.join(", ")
            )));
        }
    });
}

fn warn_of_unmatched_effects(app: &App, local: &LocalEngine, tasks: &mut JoinSet<()>) {
    let (screen, engine) = (app.screen.clone(), local.engine.clone());
    let connect_timeout = app.config.limits.options().connect;
    tasks.spawn(async move {
        let inventory = &engine.tools.inventory;
        inventory.read_changes().await;
        inventory.toolbox().wait_for_sets(connect_timeout).await;
        match inventory.registry().unmatched_effects().await {
            Ok(idle) if !idle.is_empty() => screen.say(&screen.err.yellow(format!(
                "warning: no tool matches {}: correct `source.effects` of the toolset; `faber \
                 tools list` lists the tools",
                idle.join(", ")
            ))),
            Ok(_) => {}
            Err(err) => tracing::warn!(%err, "cannot check the effects of toolsets"),
        }
    });
}

fn start_retention(app: &App, local: &LocalEngine) -> (Arc<Retention>, JoinSet<()>) {
    let (retention, mut tasks) = (Arc::new(Retention::default()), JoinSet::new());
    let executions = app.config.retention.value.clone().unwrap_or_default();
    let policy = RetentionPolicy { audit: app.config.audit_retention.value, ..executions };
    if policy != RetentionPolicy::default() {
        let (store, clock) = (Arc::clone(local.engine.store()), Arc::clone(local.engine.clock()));
        let removing = Arc::clone(&retention);
        tasks.spawn(async move { removing.prune_forever(store, clock, policy).await });
    }
    (retention, tasks)
}

fn listen_for_service_signals() -> Result<ServiceSignals, Failure> {
    let deaf = |err| Failure::new("INTERNAL", format!("cannot listen for signals: {err}"));
    ServiceSignals::listen().map_err(deaf)
}

async fn reload_until_end(mut signals: ServiceSignals, mut reloader: Reloader) {
    while signals.receive().await == ServiceSignal::Reload {
        // A store that does not answer must not delay the end.
        tokio::select! {
            () = Box::pin(reloader.reload()) => (),
            () = signals.receive_end() => return,
        }
    }
}

fn listen_for_end_signal() -> Result<impl Future<Output = ()> + Send, Failure> {
    let deaf = |err| Failure::new("INTERNAL", format!("cannot listen for signals: {err}"));
    signals::await_end_signal().map_err(deaf)
}

pub(crate) fn refuse_server_flag(app: &App, command: &str) -> Result<(), Failure> {
    match &app.config.server {
        Some(server) if server.origin == crate::config::Origin::Flag("--server") => {
            let reason = format!("`faber {command}` opens the store itself: remove `--server`");
            Err(Failure::usage(reason))
        }
        _ => Ok(()),
    }
}
