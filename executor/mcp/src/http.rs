//! JSON-RPC messages over streamable HTTP and, where a server knows nothing newer, over HTTP with a
//! stream of events.
//!
//! rmcp's own transport calls again by itself when a session has expired, and answers calls that
//! were under way then as if the server had. This one tells every call what became of it: whether
//! the server cannot have read it, may have, or has refused it. It never calls twice.
//!
//! A session that has expired, and a server that cannot be reached, end the connection: nothing
//! more is sent, what is under way may end, and the supervisor connects again when somebody calls.

mod connection;
mod events;
mod exchange;
mod legacy_sse;
mod server_stream;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use rmcp::{
    model::{ClientNotification, ClientRequest, ErrorData, JsonRpcMessage, RequestId},
    service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

pub(super) use self::connection::{Caller, headers};
use self::{connection::Connection, exchange::exchange, server_stream::hear};
use super::{McpHttp, answer::UNSENT, message::keep_token, session::Ends};

/// Messages of a server that wait to be read.
const WAITING: usize = 64;
/// Time limit for running calls after the connection closed for sending.
const DRAIN: Duration = Duration::from_secs(5);

/// A server that is called over HTTP.
pub(super) struct Remote {
    connection: Arc<Connection>,
}

impl Remote {
    /// Prepares to call a server; nothing is sent yet.
    pub(super) fn open(
        spec: &McpHttp,
        caller: Caller<'_>,
        most: usize,
        ends: &mut Ends,
    ) -> Result<(Self, HttpWire), String> {
        let (out, inbox) = mpsc::channel(WAITING);
        let connection = Arc::new(Connection::new((spec, caller), most, ends, out)?);
        let mut hearing = JoinSet::new();
        hearing.spawn(hear(Arc::clone(&connection)));
        let wire = HttpWire {
            connection: Arc::clone(&connection),
            inbox,
            exchanges: JoinSet::new(),
            calls: BTreeMap::new(),
            hearing,
            deadline: None,
        };
        Ok((Self { connection }, wire))
    }

    /// Returns what people know it by.
    pub(super) fn name(&self) -> &str {
        &self.connection.host
    }

    /// Describes why the server failed.
    pub(super) fn complaint(&self, what: &str) -> String {
        let host = &self.connection.host;
        self.connection.reason().unwrap_or_else(|| format!("`{host}` does not serve MCP: {what}"))
    }
}

/// The transport of a remote server for rmcp.
pub(super) struct HttpWire {
    connection: Arc<Connection>,
    inbox: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    /// Each request with all that is said in answer to it.
    exchanges: JoinSet<()>,
    calls: BTreeMap<RequestKey, AbortHandle>,
    /// The task that reads the server's stream.
    hearing: JoinSet<()>,
    /// When nothing more is waited for.
    deadline: Option<Instant>,
}

/// An id of a request, as it is written.
type RequestKey = String;

impl HttpWire {
    fn ask(&mut self, id: RequestId, is_greeting: bool, body: Vec<u8>) {
        while self.exchanges.try_join_next().is_some() {}
        self.calls.retain(|_, call| !call.is_finished());
        let connection = Arc::clone(&self.connection);
        let key = id.to_string();
        let handle = if connection.is_closing() && !is_greeting {
            let error = ErrorData::new(UNSENT, "the connection has ended", None);
            let answer = JsonRpcMessage::error(error, Some(id));
            self.exchanges.spawn(async move { connection.deliver(answer).await })
        } else {
            self.exchanges.spawn(exchange(connection, id, body, is_greeting))
        };
        self.calls.insert(key, handle);
    }
}

impl Transport<RoleClient> for HttpWire {
    type Error = io::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        keep_token(&mut message);
        let written = serde_json::to_vec(&message);
        let mut notice = None;
        match (message, written) {
            (_, Err(err)) => notice = Some(Err(io::Error::from(err))),
            (JsonRpcMessage::Request(request), Ok(body)) => {
                let greets = matches!(request.request, ClientRequest::InitializeRequest(_));
                self.ask(request.id, greets, body);
            }
            (message, Ok(body)) => {
                if let Some(id) = cancelled(&message)
                    && let Some(call) = self.calls.remove(&id)
                {
                    call.abort();
                }
                notice = Some(Ok((body, is_greeted(&message))));
            }
        }
        let connection = Arc::clone(&self.connection);
        async move {
            match notice {
                None => Ok(()),
                Some(Err(err)) => Err(err),
                Some(Ok((body, is_greeted))) => {
                    connection.tell(body).await.map_err(io::Error::other)?;
                    if is_greeted {
                        connection.greeted.notify_one();
                        connection.heard().await;
                    }
                    Ok(())
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let drained = drained(&self.connection, &mut self.exchanges, &mut self.deadline);
        tokio::select! {
            biased;
            message = self.inbox.recv() => return message,
            () = drained => {}
        }
        // The last exchange may have spoken as it ended.
        if let Ok(message) = self.inbox.try_recv() {
            return Some(message);
        }
        self.connection.close();
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.hearing.abort_all();
        self.exchanges.abort_all();
        self.connection.leave().await;
        self.connection.close();
        Ok(())
    }
}

/// Returns once nothing more can come.
async fn drained(
    connection: &Connection,
    exchanges: &mut JoinSet<()>,
    deadline: &mut Option<Instant>,
) {
    connection.closing().await;
    let deadline = *deadline.get_or_insert_with(|| Instant::now() + DRAIN);
    tokio::select! {
        () = async { while exchanges.join_next().await.is_some() {} } => {}
        () = sleep_until(deadline) => {}
    }
}

/// Returns the request that a message says nobody waits for.
fn cancelled(message: &TxJsonRpcMessage<RoleClient>) -> Option<RequestKey> {
    let JsonRpcMessage::Notification(notification) = message else { return None };
    let ClientNotification::CancelledNotification(cancelled) = &notification.notification else {
        return None;
    };
    cancelled.params.request_id.as_ref().map(ToString::to_string)
}

fn is_greeted(message: &TxJsonRpcMessage<RoleClient>) -> bool {
    let JsonRpcMessage::Notification(notification) = message else { return false };
    matches!(notification.notification, ClientNotification::InitializedNotification(_))
}
