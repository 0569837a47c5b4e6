use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{HeaderMap, Uri},
    response::Response,
};
use engine::access::Access;
use futures::future::BoxFuture;
use oidc::SignIn;
use shared::trace::SpanSink;

use super::{
    hosts::{AllowedHost, AllowedOrigin},
    path_prefix::PathPrefix,
    tls::Tls,
};

#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// `false` serves only health checks and metrics, as `faber worker` does.
    pub has_api: bool,
    pub allowed_hosts: Vec<AllowedHost>,
    /// Origins whose pages are allowed to use the server, in addition to its own pages and to pages
    /// of this machine and of `allowed_hosts`.
    pub allowed_origins: Vec<AllowedOrigin>,
    pub path_prefix: PathPrefix,
    pub access: Access,
    pub sign_in: Option<Arc<SignIn>>,
    pub tls: Option<Tls>,
    /// The largest request body and WebSocket message, in bytes.
    pub max_body_bytes: usize,
    /// Maximum number of connections, with WebSockets. A reserve beyond this limit serves health
    /// checks.
    pub max_connections: usize,
    /// Maximum number of connections of one peer that have not yet sent a complete request.
    pub max_new_connections: usize,
    pub max_operations: usize,
    /// Timeout for the head of a request and for idle connections.
    pub header_timeout: Duration,
    pub body_timeout: Duration,
    pub init_timeout: Duration,
    pub keep_alive: Duration,
    /// Time after which a WebSocket client that reads nothing is disconnected.
    pub stall_timeout: Duration,
    /// Maximum time that a shutdown waits for running requests.
    pub shutdown_grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            has_api: true,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            path_prefix: PathPrefix::default(),
            access: Access::default(),
            sign_in: None,
            tls: None,
            max_body_bytes: 1024 * 1024,
            max_connections: 4096,
            max_new_connections: 256,
            max_operations: 100,
            header_timeout: Duration::from_mins(1),
            body_timeout: Duration::from_secs(30),
            init_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(15),
            stall_timeout: Duration::from_mins(5),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

pub type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

pub type MetricsSource = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

/// Handles requests to unknown paths. `None` means that the server answers with its own status 404.
pub type UnknownPathHandler = Arc<dyn Fn(&Uri, &HeaderMap) -> Option<Response> + Send + Sync>;

#[derive(Clone)]
pub struct Hooks {
    pub ready: Readiness,
    /// Metrics that are printed before the metrics of the server itself.
    pub first_metrics: MetricsSource,
    /// Routes that need no token. The checks of host and origin apply to them, too.
    pub pages: Router,
    pub unknown_path_handler: UnknownPathHandler,
    /// Routes for callers with a token. Each request has the [`Grant`](engine::access::Grant) of
    /// its caller as an extension, and no longer contains the token.
    pub member_routes: Router,
    pub span_sink: Option<Arc<dyn SpanSink>>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            ready: Arc::new(|| Box::pin(async { Ok(()) })),
            first_metrics: Arc::new(|| Box::pin(async { String::new() })),
            pages: Router::new(),
            unknown_path_handler: Arc::new(|_, _| None),
            member_routes: Router::new(),
            span_sink: None,
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("pages", &self.pages).finish_non_exhaustive()
    }
}
