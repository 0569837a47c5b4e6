//! The HTTP transports: streamable HTTP, and the older HTTP with server-sent events.
//!
//! rmcp's own transport repeats requests by itself when a session has expired, which would repeat
//! the effect of a `once` tool. This transport sends a call again only if the server refused its
//! token.

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

pub(super) use self::connection::configured_headers;
use self::{connection::Connection, exchange::run_request, server_stream::read_server_stream};
use super::{
    McpHttp, answer::UNSENT_CODE, message::restore_progress_token, oauth::Caller,
    session::SessionState,
};

/// Maximum number of received messages that rmcp has not read yet.
const MAX_MESSAGES: usize = 64;
/// Time limit for running calls after the connection closed for sending.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Remote {
    connection: Arc<Connection>,
}

impl Remote {
    /// Prepares the connection to a server. Sends no request.
    pub(super) fn open(
        spec: &McpHttp,
        caller: Caller<'_>,
        max_bytes: usize,
        state: &mut SessionState,
    ) -> Result<(Self, HttpTransport), String> {
        let (out, inbox) = mpsc::channel(MAX_MESSAGES);
        let connection = Arc::new(Connection::new(spec, caller, max_bytes, state, out)?);
        let mut stream_task = JoinSet::new();
        stream_task.spawn(read_server_stream(Arc::clone(&connection)));
        let transport = HttpTransport {
            connection: Arc::clone(&connection),
            inbox,
            exchanges: JoinSet::new(),
            calls: BTreeMap::new(),
            stream_task,
            deadline: None,
        };
        Ok((Self { connection }, transport))
    }

    pub(super) fn name(&self) -> &str {
        &self.connection.host
    }

    pub(super) fn describe_failure(&self, problem: &str) -> String {
        let host = &self.connection.host;
        self.connection
            .reason()
            .unwrap_or_else(|| format!("`{host}` does not serve MCP: {problem}"))
    }
}

pub(super) struct HttpTransport {
    connection: Arc<Connection>,
    inbox: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    exchanges: JoinSet<()>,
    calls: BTreeMap<RequestKey, AbortHandle>,
    stream_task: JoinSet<()>,
    deadline: Option<Instant>,
}

type RequestKey = String;

impl HttpTransport {
    fn spawn_request(&mut self, id: RequestId, is_initialize: bool, body: Vec<u8>) {
        while self.exchanges.try_join_next().is_some() {}
        self.calls.retain(|_, call| !call.is_finished());
        let connection = Arc::clone(&self.connection);
        let key = id.to_string();
        let handle = if connection.is_closing() && !is_initialize {
            let error = ErrorData::new(UNSENT_CODE, "the connection has ended", None);
            let answer = JsonRpcMessage::error(error, Some(id));
            self.exchanges.spawn(async move { connection.deliver_message(answer).await })
        } else {
            self.exchanges.spawn(run_request(connection, id, body, is_initialize))
        };
        self.calls.insert(key, handle);
    }
}

impl Transport<RoleClient> for HttpTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        mut message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        restore_progress_token(&mut message);
        let written = serde_json::to_vec(&message);
        let mut notification = None;
        match (message, written) {
            (_, Err(err)) => notification = Some(Err(io::Error::from(err))),
            (JsonRpcMessage::Request(request), Ok(body)) => {
                let is_initialize = matches!(request.request, ClientRequest::InitializeRequest(_));
                self.spawn_request(request.id, is_initialize, body);
            }
            (message, Ok(body)) => {
                if let Some(id) = cancelled_request(&message)
                    && let Some(call) = self.calls.remove(&id)
                {
                    call.abort();
                }
                notification = Some(Ok((body, is_initialized(&message))));
            }
        }
        let connection = Arc::clone(&self.connection);
        async move {
            match notification {
                None => Ok(()),
                Some(Err(err)) => Err(err),
                Some(Ok((body, ends_initialization))) => {
                    connection.send_notification(body).await.map_err(io::Error::other)?;
                    if ends_initialization {
                        connection.initialized.notify_one();
                        connection.wait_for_stream().await;
                    }
                    Ok(())
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let drained = wait_until_drained(&self.connection, &mut self.exchanges, &mut self.deadline);
        tokio::select! {
            biased;
            message = self.inbox.recv() => return message,
            () = drained => {}
        }
        // Checks the inbox once more, because the last request may have delivered a message when it
        // ended.
        if let Ok(message) = self.inbox.try_recv() {
            return Some(message);
        }
        self.connection.close();
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.stream_task.abort_all();
        self.exchanges.abort_all();
        self.connection.end_session().await;
        self.connection.close();
        Ok(())
    }
}

/// Waits until no further message can arrive.
async fn wait_until_drained(
    connection: &Connection,
    exchanges: &mut JoinSet<()>,
    deadline: &mut Option<Instant>,
) {
    connection.wait_for_closing().await;
    let deadline = *deadline.get_or_insert_with(|| Instant::now() + DRAIN_TIMEOUT);
    tokio::select! {
        () = async { while exchanges.join_next().await.is_some() {} } => {}
        () = sleep_until(deadline) => {}
    }
}

fn cancelled_request(message: &TxJsonRpcMessage<RoleClient>) -> Option<RequestKey> {
    let JsonRpcMessage::Notification(notification) = message else { return None };
    let ClientNotification::CancelledNotification(cancelled) = &notification.notification else {
        return None;
    };
    cancelled.params.request_id.as_ref().map(ToString::to_string)
}

fn is_initialized(message: &TxJsonRpcMessage<RoleClient>) -> bool {
    let JsonRpcMessage::Notification(notification) = message else { return false };
    matches!(notification.notification, ClientNotification::InitializedNotification(_))
}
