use std::sync::Arc;

use axum::http::HeaderMap;
use engine::access::Grant;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    connections::Connections,
    executor::OperationExecutor,
    metrics::Metrics,
    options::{Hooks, ServerOptions},
    task_sender::TaskSender,
};

/// The caller of an operation. Resolvers read it as `ctx.data::<Arc<Caller>>()`.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The headers of the HTTP request or of the WebSocket handshake, without the token.
    pub headers: HeaderMap,
    pub init: Option<serde_json::Value>,
    pub grant: Grant,
    /// The time at which the token or session of the caller expires and its connections end. `None`
    /// if it does not expire.
    pub expires_at: Option<Instant>,
}

impl Caller {
    pub(super) async fn wait_until_access_ends(&self) {
        tokio::select! {
            () = self.grant.wait_until_revoked() => (),
            () = self.wait_until_expired() => (),
        }
    }

    pub(super) async fn wait_until_expired(&self) {
        match self.expires_at {
            Some(expires_at) => sleep_until(expires_at).await,
            None => std::future::pending().await,
        }
    }
}

pub(super) struct App {
    pub(super) schema: Arc<dyn OperationExecutor>,
    pub(super) options: ServerOptions,
    pub(super) hooks: Hooks,
    pub(super) metrics: Arc<Metrics>,
    pub(super) connections: Arc<Connections>,
    pub(super) task_sender: TaskSender,
    /// Cancelled when the server shuts down, because some streams never end by themselves.
    pub(super) stopping: CancellationToken,
}
