//! One running MCP server and the connection to it.

use std::{
    collections::BTreeSet,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    ClientHandler,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
        PaginatedRequestParams, RequestParamsMeta, Tool as Offer,
    },
    service::{NotificationContext, Peer, RoleClient, RunningService, ServiceError, serve_client},
};
use serde_json::Value;
use shared::{
    id::ToolSetName,
    tool::{ErrorCode, ToolError},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::ChildStderr,
    sync::Notify,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{McpCommand, answer, tokens::Tokens, wire::Wire};
use crate::{
    secret::{Redaction, variables},
    tool::{
        process::{Group, Program, STOP_GRACE, Tail, describe},
        progress::Reporter,
    },
};

/// Pages of tools that a server may have: more would never end.
const PAGES: usize = 100;
/// Tools that a server may have.
const TOOLS: usize = 10_000;
/// Bytes of one line on standard error that go into the log.
const LOG_LINE: u64 = 4 << 10;
/// How long a server that has closed its output may take to end and say why.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A running server.
pub(super) struct Link {
    peer: Peer<RoleClient>,
    closed: CancellationToken,
    /// Which calls hear what the server reports.
    tokens: Arc<Tokens>,
    /// The most bytes of an output.
    most: usize,
    /// The secrets in the server's environment.
    seen: Arc<Redaction>,
}

/// A call that a dying server took with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The server cannot have read it.
    Unsent,
    /// The server may have read it.
    Sent,
}

/// What only the keeper of a server has: the process, and how to stop it.
pub(super) struct Process {
    set: ToolSetName,
    command: String,
    group: Group,
    service: Option<RunningService<RoleClient, Handler>>,
    closed: CancellationToken,
    tokens: Arc<Tokens>,
    most: usize,
    seen: Arc<Redaction>,
    changed: Arc<Notify>,
    stderr: Arc<Mutex<Tail>>,
    _log: JoinSet<()>,
}

/// What the server may ask of us: nothing. We hear that its tools have changed.
struct Handler {
    changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("faber", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

impl Link {
    /// Returns whether the server is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Calls a tool. Dropping the future tells the server that nobody waits for it.
    pub(super) async fn call(
        &self,
        mut request: CallToolRequestParams,
        reporter: Reporter,
    ) -> Result<Result<Value, ToolError>, Lost> {
        if self.is_closed() {
            return Err(Lost::Unsent);
        }
        let token = self.tokens.draw(reporter);
        request.set_progress_token(token.value());
        match self.peer.call_tool_once(request).await {
            Ok(CallToolResponse::Complete(result)) => {
                Ok(self.seen.clean_result(answer::output(result, self.most)))
            }
            Ok(_) => Ok(Err(ToolError::failed(
                "the tool asks for more than its parameters, which a plan cannot answer",
            ))),
            Err(ServiceError::McpError(error)) => {
                Ok(self.seen.clean_result(Err(answer::error(&error, self.most))))
            }
            Err(ServiceError::TransportSend(err)) => Err(lost_in_sending(err.error.as_ref())),
            Err(ServiceError::TransportClosed) => Err(Lost::Sent),
            Err(ServiceError::Cancelled { reason }) => {
                let reason = reason.unwrap_or_else(|| "the server cancelled the call".to_owned());
                Ok(Err(ToolError::new(ErrorCode::CANCELLED, reason).indefinite()))
            }
            Err(err) => {
                Ok(Err(ToolError::failed(format!("the server's answer is not MCP: {err}"))))
            }
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Process {
    /// Starts a server. It does not answer yet.
    pub(super) fn spawn(
        set: &ToolSetName,
        spec: &McpCommand,
        most: usize,
    ) -> Result<(Self, Wire), String> {
        let mut seen = Redaction::default();
        let env = variables(&spec.env, &mut seen).map_err(|err| err.to_string())?;
        let program = Program { name: &spec.command, cwd: spec.cwd.as_deref(), env: &env };
        let mut command = program.command();
        command.args(&spec.args);
        let mut group = Group::spawn(&mut command).map_err(|err| program.complaint(&err))?;
        let child = group.child();
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(format!("the streams of `{}` are not piped", spec.command));
        };
        let closed = CancellationToken::new();
        let tokens = Arc::<Tokens>::default();
        let wire = Wire::new((stdout, stdin), most, closed.clone(), Arc::clone(&tokens));
        let tail = Arc::new(Mutex::new(Tail::default()));
        let mut log = JoinSet::new();
        let seen = Arc::new(seen);
        log.spawn(keep_log(set.clone(), stderr, Arc::clone(&tail), Arc::clone(&seen)));
        let process = Self {
            set: set.clone(),
            command: spec.command.clone(),
            group,
            service: None,
            closed,
            tokens,
            most,
            seen,
            changed: Arc::new(Notify::new()),
            stderr: tail,
            _log: log,
        };
        Ok((process, wire))
    }

    /// Greets the server and asks for its tools.
    pub(super) async fn connect(&mut self, wire: Wire) -> Result<(Link, Vec<Offer>), String> {
        let handler = Handler { changed: Arc::clone(&self.changed) };
        let service = match serve_client(handler, wire).await {
            Ok(service) => service,
            Err(err) => return Err(self.complaint(&err.to_string()).await),
        };
        let link = Link {
            peer: service.peer().clone(),
            closed: self.closed.clone(),
            tokens: Arc::clone(&self.tokens),
            most: self.most,
            seen: Arc::clone(&self.seen),
        };
        self.service = Some(service);
        let offers = self.offers(&link).await?;
        Ok((link, offers))
    }

    /// Asks for the server's tools, page by page.
    pub(super) async fn offers(&mut self, link: &Link) -> Result<Vec<Offer>, String> {
        match offers(&link.peer).await {
            Ok(offers) => Ok(offers),
            Err(err) => Err(self.complaint(&err).await),
        }
    }

    /// Returns when the server says that its tools have changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns when the server is gone.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Says what is wrong with the server, with its own last words.
    pub(super) async fn complaint(&mut self, what: &str) -> String {
        let command = &self.command;
        let ended = timeout(LAST_WORDS, self.group.wait()).await;
        let how = match ended {
            Ok(Ok(status)) => format!("`{command}` {}", describe(status)),
            Ok(Err(_)) | Err(_) => format!("`{command}` does not serve MCP: {what}"),
        };
        self.with_last_words(how)
    }

    /// Adds the tail of standard error.
    pub(super) fn with_last_words(&self, how: String) -> String {
        match self.stderr.lock().unwrap_or_else(PoisonError::into_inner).text() {
            text if text.is_empty() => how,
            text => format!("{how}: {text}"),
        }
    }

    /// Ends the server as MCP asks: close its input, wait, then terminate and kill.
    pub(super) async fn stop(mut self) {
        if let Some(mut service) = self.service.take() {
            let _ = service.close_with_timeout(STOP_GRACE).await;
        }
        if timeout(STOP_GRACE, self.group.wait()).await.is_err() {
            tracing::debug!(set = %self.set, "the MCP server does not end by itself");
            self.group.stop().await;
        }
    }
}

/// A pipe that nobody reads takes a call with it. Whatever else cut a call short may have let all
/// of it through but the line's end, which a server could overlook.
fn lost_in_sending(err: &(dyn std::error::Error + 'static)) -> Lost {
    match err.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected) => Lost::Unsent,
        _ => Lost::Sent,
    }
}

async fn offers(peer: &Peer<RoleClient>) -> Result<Vec<Offer>, String> {
    let mut offers = Vec::new();
    let mut cursors = BTreeSet::new();
    let mut cursor = None;
    for _ in 0..PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(params)).await.map_err(|err| err.to_string())?;
        offers.extend(page.tools);
        if offers.len() > TOOLS {
            return Err(format!("it offers more than {TOOLS} tools"));
        }
        cursor = page.next_cursor;
        match &cursor {
            None => return Ok(offers),
            Some(next) if !cursors.insert(next.clone()) => {
                return Err(format!("its list of tools turns in a circle at `{next}`"));
            }
            Some(_) => {}
        }
    }
    Err(format!("its list of tools has more than {PAGES} pages"))
}

/// Passes the server's standard error on to the log and keeps the tail.
async fn keep_log(
    set: ToolSetName,
    stderr: ChildStderr,
    tail: Arc<Mutex<Tail>>,
    seen: Arc<Redaction>,
) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut stderr).take(LOG_LINE).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = seen.clean(String::from_utf8_lossy(&line).into_owned());
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(text.as_bytes());
        tracing::debug!(%set, "{}", text.trim_end());
    }
}
