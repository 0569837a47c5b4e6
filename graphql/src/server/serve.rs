//! Accepts connections and owns every task that comes of them, until all have ended.

use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use async_graphql::Executor;
use axum::Router;
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    app::{App, Peer},
    guard::Gate,
    hosts::HostPolicy,
    metrics::Metrics,
    nursery::{Task, nursery},
    options::{Hooks, ServerOptions},
    pages,
};

/// How large the head of a request may be; long queries belong into a body.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// How long accepting rests after a failure such as too many open files.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Serves `schema` on `listener` until `shutdown` resolves and what was under way has ended.
///
/// WebSockets are closed with 1001, streams break off, requests and mutations may end; what is not
/// done within the grace of `options` is dropped. No task outlives the call.
pub async fn serve<E: Executor>(
    listener: TcpListener,
    schema: E,
    options: ServerOptions,
    hooks: Hooks,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let listen = listener.local_addr()?.ip();
    let (nursery, adoptions) = nursery();
    let stopping = CancellationToken::new();
    let metrics = Arc::new(Metrics::default());
    let policy = HostPolicy::new(listen, options.allowed_hosts.clone());
    let gate = Gate { policy, access: options.access.clone(), metrics: Arc::clone(&metrics) };
    let (max_connections, grace) = (options.max_connections, options.shutdown_grace);
    let header_timeout = options.header_timeout;
    let app = App { schema, options, hooks, metrics, nursery, stopping: stopping.clone() };
    let router = pages::router(Arc::new(app), gate);
    let mut house = House {
        tasks: JoinSet::new(),
        adoptions,
        router,
        stopping,
        header_timeout,
        max_connections,
    };
    house.open(&listener, shutdown).await;
    drop(listener);
    house.close(grace).await;
    Ok(())
}

/// The tasks of a server and what starting one takes.
struct House {
    tasks: JoinSet<()>,
    adoptions: mpsc::Receiver<Task>,
    router: Router,
    stopping: CancellationToken,
    header_timeout: Duration,
    max_connections: usize,
}

/// What may happen while the server is open.
enum Input {
    Accepted(io::Result<(TcpStream, SocketAddr)>),
    Adopted(Task),
    Ended,
    Shutdown,
}

impl House {
    /// Takes connections until `shutdown` resolves.
    async fn open(&mut self, listener: &TcpListener, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        loop {
            let has_room = self.tasks.len() < self.max_connections;
            let input = tokio::select! {
                () = &mut shutdown => Input::Shutdown,
                Some(task) = self.adoptions.recv() => Input::Adopted(task),
                Some(ended) = self.tasks.join_next() => report(ended),
                accepted = listener.accept(), if has_room => {
                    Input::Accepted(accepted)
                }
            };
            match input {
                Input::Shutdown => return,
                Input::Adopted(task) => drop(self.tasks.spawn(task)),
                Input::Ended => {}
                Input::Accepted(Ok((stream, peer))) => self.admit(stream, Peer(peer.ip())),
                Input::Accepted(Err(error)) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: Peer) {
        let (router, stopping) = (self.router.clone(), self.stopping.clone());
        self.tasks.spawn(connection((stream, peer), router, stopping, self.header_timeout));
    }

    /// Lets everything end within `grace`, then ends it.
    async fn close(mut self, grace: Duration) {
        self.stopping.cancel();
        if timeout(grace, self.drain()).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "the shutdown's grace is over; dropping");
        }
        self.tasks.shutdown().await;
    }

    /// Waits for all tasks, and for those that they still start.
    async fn drain(&mut self) {
        loop {
            tokio::select! {
                biased;
                Some(task) = self.adoptions.recv() => drop(self.tasks.spawn(task)),
                ended = self.tasks.join_next() => match ended {
                    Some(ended) => drop(report(ended)),
                    None => return,
                },
            }
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) -> Input {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task panicked");
    }
    Input::Ended
}

/// Speaks HTTP on one connection until it ends; a WebSocket leaves it and becomes its own task.
async fn connection(
    (stream, peer): (TcpStream, Peer),
    router: Router,
    stopping: CancellationToken,
    header_timeout: Duration,
) {
    // Answers are written whole; waiting for more to send only delays them.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_HEAD_BYTES);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    let speaking = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut speaking = pin!(speaking);
    let ended = tokio::select! {
        ended = speaking.as_mut() => ended,
        () = stopping.cancelled() => {
            speaking.as_mut().graceful_shutdown();
            speaking.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}
