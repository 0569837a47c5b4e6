//! What every handler shares.

use std::{net::IpAddr, sync::Arc};

use axum::http::HeaderMap;
use tokio_util::sync::CancellationToken;

use super::{
    connections::Connections,
    metrics::Metrics,
    nursery::Nursery,
    options::{Hooks, ServerOptions},
};
use crate::access::Grant;

/// Where a connection comes from; part of every request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Who sends an operation; found by resolvers as `ctx.data::<Arc<Caller>>()`.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The headers of the HTTP request, or of the WebSocket's opening handshake, without what
    /// proves who it is.
    pub headers: HeaderMap,
    /// The payload of `connection_init`, where the operation came over a WebSocket.
    pub init: Option<serde_json::Value>,
    /// What whoever it is may do.
    pub grant: Grant,
}

/// The schema, the settings and the bookkeeping of one running server.
pub(super) struct App<E> {
    pub(super) schema: E,
    pub(super) options: ServerOptions,
    pub(super) hooks: Hooks,
    pub(super) metrics: Arc<Metrics>,
    pub(super) connections: Arc<Connections>,
    pub(super) nursery: Nursery,
    /// Cancelled once the server shuts down, so that what is endless ends.
    pub(super) stopping: CancellationToken,
}
