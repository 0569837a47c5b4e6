//! A session with a server, and the state in which calls wait for a session.

use std::{fmt, io, sync::Arc, time::Duration};

use rmcp::{
    model::{CallToolRequestParams, CallToolResponse, RequestParamsMeta},
    service::{Peer, RoleClient, ServiceError},
};
use shared::{
    schema::Schema,
    tool::{ErrorCode, ToolError},
    trace::{Scope, current_scope},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use toolbox::{blobs::Binary, progress::Reporter};

use super::{
    answer::{self, LOST_CODE, Output, UNSENT_CODE},
    message::ProgressTokens,
    redaction::Secrets,
};

pub(super) struct Session {
    peer: Peer<RoleClient>,
    state: SessionState,
    max_output_bytes: usize,
    is_remote: bool,
}

#[derive(Clone, Default)]
pub(super) struct SessionState {
    pub(super) closing: CancellationToken,
    /// Cancelled when no further message can arrive from the server.
    pub(super) closed: CancellationToken,
    pub(super) tokens: Arc<ProgressTokens>,
    pub(super) secrets: Arc<Secrets>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostCall {
    /// The server cannot have read the call.
    Unsent,
    /// The server may have read the call, so its outcome is unknown.
    Sent,
}

impl Session {
    pub(super) fn new(
        peer: Peer<RoleClient>,
        state: SessionState,
        max_output_bytes: usize,
        is_remote: bool,
    ) -> Self {
        Self { peer, state, max_output_bytes, is_remote }
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.closing.is_cancelled()
    }

    /// Returns the verb for a lost server: the connection to a remote server broke off, or a
    /// process ended.
    pub(super) fn loss_verb(&self) -> &'static str {
        if self.is_remote { "broke off" } else { "ended" }
    }

    /// Removes the secrets from the result of a call, and from its binaries.
    fn redact_result(&self, result: Result<Output, ToolError>) -> Result<Output, ToolError> {
        let (result, binaries) = match result {
            Ok(output) => (Ok(output.value), output.binaries),
            Err(err) => (Err(err), Vec::new()),
        };
        let redaction = self.state.secrets.redaction();
        let value = redaction.redact_result(result)?;
        let binaries = binaries.into_iter().map(|binary| {
            let base64 = redaction.redact_base64(binary.base64);
            Binary { base64, ..binary }
        });
        Ok(Output { value, binaries: binaries.collect() })
    }

    /// Passes the trace context on, and describes the request in the span of the attempt. Makes no
    /// second span, because the conventions of OpenTelemetry ask for only one.
    fn add_trace(&self, request: &mut CallToolRequestParams, scope: &Scope) {
        request.set_traceparent(&scope.span.traceparent());
        if let Some(state) = &scope.span.state {
            request.set_tracestate(state);
        }
        scope.notes.add("mcp.method.name", "tools/call");
        scope.notes.add("network.transport", if self.is_remote { "tcp" } else { "pipe" });
    }

    /// Calls a tool, and checks its output against a schema. Dropping the future sends a cancel
    /// notification to the server.
    pub(super) async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        output_schema: Option<&Schema>,
        reporter: Reporter,
    ) -> Result<Result<Output, ToolError>, LostCall> {
        if self.is_closed() {
            return Err(LostCall::Unsent);
        }
        let token = self.state.tokens.register_call(reporter, Arc::clone(&self.state.secrets));
        request.set_progress_token(token.progress_token());
        if let Some(scope) = current_scope() {
            self.add_trace(&mut request, &scope);
        }
        match self.peer.call_tool_once(request).await {
            Ok(CallToolResponse::Complete(result)) => Ok(self.redact_result(answer::read_output(
                result,
                output_schema,
                self.max_output_bytes,
            ))),
            Ok(_) => Ok(Err(ToolError::failed(
                "the tool requests input during its call, and a plan cannot answer",
            ))),
            Err(ServiceError::McpError(error)) if error.code == UNSENT_CODE => {
                Err(LostCall::Unsent)
            }
            Err(ServiceError::McpError(error)) if error.code == LOST_CODE => Err(LostCall::Sent),
            Err(ServiceError::McpError(error)) => {
                Ok(self.redact_result(Err(answer::convert_error(&error, self.max_output_bytes))))
            }
            Err(ServiceError::TransportSend(err)) => Err(lost_in_sending(err.error.as_ref())),
            Err(ServiceError::TransportClosed) => Err(LostCall::Sent),
            Err(ServiceError::Cancelled { reason }) => {
                let reason = reason.unwrap_or_else(|| "the server cancelled the call".to_owned());
                let reason = self.state.secrets.redact(reason);
                Ok(Err(ToolError::new(ErrorCode::CANCELLED, reason).with_unknown_outcome()))
            }
            Err(err) => {
                let reason = format!("the server's answer is not a valid MCP message: {err}");
                Ok(Err(ToolError::failed(reason).with_unknown_outcome()))
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// Returns whether a failed send may have reached the server.
fn lost_in_sending(err: &(dyn std::error::Error + 'static)) -> LostCall {
    match err.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected) => LostCall::Unsent,
        _ => LostCall::Sent,
    }
}

/// If the next start of a server is later than this, calls fail and do not wait for it.
const MAX_START_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Availability {
    state: watch::Sender<ServerState>,
    demand: Notify,
}

#[derive(Clone, Debug)]
pub(super) enum ServerState {
    Starting,
    Up(Arc<Session>),
    /// The server cannot be called. After `retry_at`, the next call starts it again.
    Down {
        error: Arc<str>,
        retry_at: Instant,
    },
    /// The server was stopped and will not start again.
    Stopped,
}

impl Availability {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new(ServerState::Starting), demand: Notify::new() }
    }

    pub(super) fn set_state(&self, state: ServerState) {
        self.state.send_replace(state);
    }

    pub(super) fn has_waiting_calls(&self) -> bool {
        self.state.receiver_count() > 0
    }

    pub(super) async fn wait_for_demand(&self) {
        self.demand.notified().await;
    }

    /// Requests a start of a server that is down. Returns `false` if the server is not down, or if
    /// its next start is not due yet.
    pub fn request_start(&self) -> bool {
        let is_due = self.state.send_if_modified(|state| {
            let is_due =
                matches!(state, ServerState::Down { retry_at, .. } if *retry_at <= Instant::now());
            if is_due {
                *state = ServerState::Starting;
            }
            is_due
        });
        if is_due {
            self.demand.notify_one();
        }
        is_due
    }

    pub(super) async fn wait_for_session(&self) -> Result<Arc<Session>, ToolError> {
        let mut state = self.state.subscribe();
        let mut has_asked = false;
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                ServerState::Up(session) if !session.is_closed() => return Ok(session),
                ServerState::Up(_) | ServerState::Starting => {}
                ServerState::Down { error, retry_at } => {
                    if has_asked || retry_at > Instant::now() + MAX_START_WAIT {
                        return Err(down_error(&error, retry_at));
                    }
                    has_asked = true;
                    self.demand.notify_one();
                }
                ServerState::Stopped => return Err(stopped_error()),
            }
            if state.changed().await.is_err() {
                return Err(stopped_error());
            }
        }
    }
}

fn down_error(error: &str, retry_at: Instant) -> ToolError {
    let wait = retry_at.saturating_duration_since(Instant::now());
    let when = if wait.is_zero() {
        String::new()
    } else {
        format!("; it may be started again in {} s", wait.as_secs_f32().ceil())
    };
    ToolError::new(ErrorCode::UNAVAILABLE, format!("{error}{when}"))
}

fn stopped_error() -> ToolError {
    ToolError::new(
        ErrorCode::UNAVAILABLE,
        "the MCP server was stopped, because its toolset was changed or removed, or this process ends",
    )
}
