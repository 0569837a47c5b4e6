use std::{convert::Infallible, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use async_graphql::Executor;
use axum::{
    Router,
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures::{FutureExt as _, future::BoxFuture};
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
use shared::schema::CheckStop;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime::{self, Runtime},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    answer_stream::AnswerStream,
    app::App,
    bodies::{AnswerBody, RequestBody},
    connections::{Connection, ConnectionLimits, Connections},
    entry,
    executor::OperationExecutor,
    guard::GuardState,
    hosts::HostPolicy,
    metrics::Metrics,
    options::{Hooks, ServerOptions},
    pages,
    path_prefix::PathPrefix,
    peer::Peer,
    refusal::Refusal,
    task_sender::{Task, task_channel},
    tls::Tls,
};

/// Maximum size of the head of a request. A client can send a longer query in the body.
const MAX_HEAD_BYTES: usize = 64 * 1024;

const LARGE_REQUEST_THREADS: usize = 1;

/// Maximum time that a shutdown waits for long checks of schemas. It is short, because these tasks
/// do not notice that their client has disconnected.
const SCHEMA_CHECK_GRACE: Duration = Duration::from_millis(500);

/// Pause after a connection could not be accepted, for example because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `schema` on `listener` until `shutdown` resolves and running work has ended. Requests
/// have `shutdown_grace` to finish, and are then dropped.
pub fn serve<E: Executor>(
    listener: TcpListener,
    schema: E,
    options: ServerOptions,
    hooks: Hooks,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> BoxFuture<'static, io::Result<()>> {
    serve_boxed(listener, Arc::new(schema), options, hooks, shutdown.boxed())
}

/// This function has no type parameters, so the code of the server is compiled in this crate and
/// not in each crate that calls [`serve`].
fn serve_boxed(
    listener: TcpListener,
    schema: Arc<dyn OperationExecutor>,
    options: ServerOptions,
    hooks: Hooks,
    shutdown: BoxFuture<'static, ()>,
) -> BoxFuture<'static, io::Result<()>> {
    serve_until(listener, schema, options, hooks, shutdown).boxed()
}

async fn serve_until(
    listener: TcpListener,
    schema: Arc<dyn OperationExecutor>,
    options: ServerOptions,
    hooks: Hooks,
    shutdown: BoxFuture<'static, ()>,
) -> io::Result<()> {
    let listen = listener.local_addr()?.ip();
    let (task_sender, new_tasks) = task_channel();
    let stopping = CancellationToken::new();
    let metrics = Arc::new(Metrics::default());
    let policy =
        HostPolicy::new(listen, options.allowed_hosts.clone(), options.allowed_origins.clone());
    let path_prefix: Arc<PathPrefix> = Arc::new(options.path_prefix.clone());
    let guard_state =
        GuardState { policy, access: options.access.clone(), metrics: Arc::clone(&metrics) };
    let (grace, tls) = (options.shutdown_grace, options.tls.clone());
    let connections = Connections::new(ConnectionLimits {
        max_connections: options.max_connections,
        max_new_per_peer: options.max_new_connections,
        header_timeout: options.header_timeout,
    });
    let app = App {
        schema,
        options,
        hooks,
        metrics,
        connections: Arc::clone(&connections),
        task_sender,
        stopping: stopping.clone(),
    };
    let router = pages::build_router(Arc::new(app), guard_state);
    let mut server_tasks = ServerTasks {
        tasks: JoinSet::new(),
        subscriptions: ThreadPool::start_threads("subscriptions", None)?,
        large_requests: ThreadPool::start_threads("large-requests", Some(LARGE_REQUEST_THREADS))?,
        new_tasks,
        router,
        path_prefix,
        tls,
        stopping,
        connections,
        schema_checks: CheckStop::default(),
    };
    server_tasks.accept_until(&listener, shutdown).await;
    drop(listener);
    server_tasks.close(grace).await;
    Ok(())
}

struct ServerTasks {
    tasks: JoinSet<()>,
    /// The threads of subscriptions. They are separate, because an event wakes all its subscribers
    /// at the same time, and these would delay requests.
    subscriptions: ThreadPool,
    /// The thread of large requests. There is only one thread, so large requests run one after
    /// another.
    large_requests: ThreadPool,
    new_tasks: mpsc::Receiver<Task>,
    router: Router,
    path_prefix: Arc<PathPrefix>,
    tls: Option<Tls>,
    stopping: CancellationToken,
    connections: Arc<Connections>,
    schema_checks: CheckStop,
}

struct ThreadPool(Option<Runtime>);

impl ThreadPool {
    fn start_threads(name: &str, count: Option<usize>) -> io::Result<Self> {
        let mut builder = runtime::Builder::new_multi_thread();
        if let Some(count) = count {
            builder.worker_threads(count);
        }
        Ok(Self(Some(builder.thread_name(name).enable_all().build()?)))
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

enum LoopEvent {
    Accepted(io::Result<(TcpStream, SocketAddr)>),
    NewTask(Task),
    TaskEnded,
    Shutdown,
}

impl ServerTasks {
    async fn accept_until(&mut self, listener: &TcpListener, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        loop {
            let has_room = self.connections.has_room();
            let input = tokio::select! {
                () = &mut shutdown => LoopEvent::Shutdown,
                Some(task) = self.new_tasks.recv() => LoopEvent::NewTask(task),
                Some(ended) = self.tasks.join_next() => log_task_end(ended),
                accepted = listener.accept(), if has_room => LoopEvent::Accepted(accepted),
                () = self.connections.room_signal.notified(), if !has_room => LoopEvent::TaskEnded,
            };
            match input {
                LoopEvent::Shutdown => return,
                LoopEvent::NewTask(task) => self.spawn(task),
                LoopEvent::TaskEnded => {}
                LoopEvent::Accepted(Ok((stream, peer))) => {
                    self.start_connection(stream, Peer(peer.ip()));
                }
                LoopEvent::Accepted(Err(error)) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn start_connection(&mut self, stream: TcpStream, peer: Peer) {
        let Some(connection) = self.connections.accept(peer.0) else { return };
        let (router, stopping) = (self.router.clone(), self.stopping.clone());
        let path_prefix = Arc::clone(&self.path_prefix);
        let accepted = AcceptedConnection { peer, connection, router, path_prefix };
        let visit = accepted.serve_stream(stream, self.tls.clone(), stopping);
        self.tasks.spawn(self.schema_checks.watch(visit));
    }

    fn spawn(&mut self, task: Task) {
        let (work, threads) = match task {
            Task::Request(work) => (work, None),
            Task::Large(work) => (work, self.large_requests.0.as_ref()),
            Task::Subscription(work) => (work, self.subscriptions.0.as_ref()),
        };
        let work = self.schema_checks.watch(work);
        match threads {
            Some(threads) => self.tasks.spawn_on(work, threads.handle()),
            None => self.tasks.spawn(work),
        };
    }

    async fn close(mut self, grace: Duration) {
        self.stopping.cancel();
        let started_at = Instant::now();
        if timeout(grace.min(SCHEMA_CHECK_GRACE), self.drain()).await.is_err() {
            self.schema_checks.stop_checks();
        }
        if timeout(grace.saturating_sub(started_at.elapsed()), self.drain()).await.is_err() {
            tracing::warn!(
                tasks = self.tasks.len(),
                "the grace period of the shutdown has passed: dropping the running tasks"
            );
        }
        self.tasks.shutdown().await;
    }

    async fn drain(&mut self) {
        loop {
            tokio::select! {
                biased;
                Some(task) = self.new_tasks.recv() => self.spawn(task),
                ended = self.tasks.join_next() => match ended {
                    Some(ended) => drop(log_task_end(ended)),
                    None => return,
                },
            }
        }
    }
}

fn log_task_end(ended: Result<(), tokio::task::JoinError>) -> LoopEvent {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task panicked");
    }
    LoopEvent::TaskEnded
}

struct AcceptedConnection {
    peer: Peer,
    connection: Arc<Connection>,
    router: Router,
    path_prefix: Arc<PathPrefix>,
}

impl AcceptedConnection {
    async fn serve_stream(self, stream: TcpStream, tls: Option<Tls>, stopping: CancellationToken) {
        // Turns off Nagle's algorithm. Each response is one write, so a delay would bring no
        // advantage.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return self.serve_http(stream, stopping).await };
        let accepted = tokio::select! {
            accepted = tls.accept(stream, self.connection.header_timeout()) => accepted,
            () = self.connection.wait_until_closed() => return,
            () = stopping.cancelled() => return,
        };
        match accepted {
            Ok(stream) => Box::pin(self.serve_http(stream, stopping)).await,
            Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
        }
    }

    /// Serves HTTP until the connection ends. A WebSocket continues as a separate task.
    async fn serve_http<S>(self, stream: S, stopping: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.connection.header_timeout())
            .max_buf_size(MAX_HEAD_BYTES);
        let connection = Arc::clone(&self.connection);
        let service = service_fn(move |request| self.answer_request(request));
        let stream = AnswerStream::new(TokioIo::new(stream), Arc::clone(&connection));
        let http_connection = builder.serve_connection(stream, service).with_upgrades();
        let mut http_connection = pin!(http_connection);
        let ended = tokio::select! {
            ended = http_connection.as_mut() => ended,
            () = connection.wait_until_closed() => {
                if !connection.is_answering() {
                    return;
                }
                // If a request arrived just before the connection had to close, it still gets its
                // response.
                http_connection.as_mut().graceful_shutdown();
                http_connection.await
            }
            () = stopping.cancelled() => {
                http_connection.as_mut().graceful_shutdown();
                http_connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }

    /// Answers one request. Reports to the connection when the request is complete and when the
    /// answer is written.
    fn answer_request(
        &self,
        mut request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        let connection = Arc::clone(&self.connection);
        self.path_prefix.strip_from(request.uri_mut());
        let is_refused = connection.is_reserve() && !entry::is_health(request.uri().path());
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(Arc::clone(&connection));
        let request = request.map(|body| RequestBody::new(body, Arc::clone(&connection)));
        let router = (!is_refused).then(|| TowerToHyperService::new(self.router.clone()));
        async move {
            let response = match router {
                Some(router) => router.call(request).await?,
                None => server_full_response(),
            };
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(response);
            }
            Ok(response.map(|body| Body::new(AnswerBody::new(body, connection))))
        }
    }
}

fn server_full_response() -> Response {
    let refusal = Refusal::limit_exceeded(
        StatusCode::SERVICE_UNAVAILABLE,
        "this server has as many connections as `limits.connections` allows: try again later",
    );
    let mut response = refusal.into_response();
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
