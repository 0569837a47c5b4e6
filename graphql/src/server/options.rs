//! The settings of a server and what its owner plugs into it.

use std::{fmt, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{HeaderMap, Uri},
    response::Response,
};
use futures::future::BoxFuture;

use super::hosts::AllowedHost;
use crate::access::Access;

/// The limits and waits of a server; any value is valid.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Hosts and origins that may talk to the server besides this machine's own names.
    pub allowed_hosts: Vec<AllowedHost>,
    /// Who may come in.
    pub access: Access,
    /// The largest request body and WebSocket message, in bytes.
    pub max_body_bytes: usize,
    /// Connections served at once, WebSockets included. A few more may ask for the server's health.
    pub max_connections: usize,
    /// Connections of one peer that have not sent a whole request yet.
    pub max_new_connections: usize,
    /// Operations that one WebSocket may have running at once.
    pub max_operations: usize,
    /// How long a client may take to send a request's head, and a connection may idle.
    pub header_timeout: Duration,
    /// How long a client may take to send a request's body.
    pub body_timeout: Duration,
    /// How long a WebSocket may stay without `connection_init`.
    pub init_timeout: Duration,
    /// How often a quiet stream says that it is alive.
    pub keep_alive: Duration,
    /// How long a WebSocket client may read nothing at all before it counts as gone.
    pub stall_timeout: Duration,
    /// How long a shutdown waits for what is under way.
    pub shutdown_grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            access: Access::default(),
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

/// Says whether the server can do its work, and if not, why.
pub type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Gives the figures of everything behind the schema in the text format of `/metrics`.
pub type Figures = Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>;

/// Answers whoever asks for what is not there; where it returns nothing the server does.
pub type Elsewhere = fn(&Uri, &HeaderMap) -> Option<Response>;

/// What the owner of a server plugs into it.
#[derive(Clone)]
pub struct Hooks {
    /// Answers `/health/ready`.
    pub ready: Readiness,
    /// Printed by `/metrics` before the server's own figures.
    pub figures: Figures,
    /// Every other page, `/` first of all; guarded like the rest.
    pub pages: Router,
    /// Asked where there is no such page.
    pub elsewhere: Elsewhere,
    /// Pages for whoever may come in: their requests have a [`Grant`](crate::access::Grant) among
    /// their extensions, and no token in their headers.
    pub members: Router,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            ready: Arc::new(|| Box::pin(async { Ok(()) })),
            figures: Arc::new(|| Box::pin(async { String::new() })),
            pages: Router::new(),
            elsewhere: |_, _| None,
            members: Router::new(),
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("pages", &self.pages).finish_non_exhaustive()
    }
}
