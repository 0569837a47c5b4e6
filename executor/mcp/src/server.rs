//! A connected MCP server, as its supervisor sees it.

use std::{collections::BTreeSet, sync::Arc};

use rmcp::{
    model::{ErrorData, InitializeResult, PaginatedRequestParams, ServerResult, Tool as Offer},
    service::{
        ClientInitializeError, Peer, RoleClient, RunningService, ServiceError, serve_client,
    },
};
use sandbox::{Launcher, process::STOP_GRACE};
use serde::Deserialize as _;
use shared::id::ToolSetName;
use tokio::sync::Notify;

use super::{
    McpServer,
    answer::{UNREADABLE, is_own_code},
    child::Child,
    cleaned::redact_offers,
    handler::Handler,
    http::{HttpTransport, Remote},
    oauth::{BackgroundTasks, Caller, Logins},
    session::{Session, SessionState},
    wire,
};

/// Pages of a server's tool list. A faulty server might send pages without end.
const MAX_PAGES: usize = 100;
/// Tools of a server.
const MAX_TOOLS: usize = 10_000;

/// A server, with the means to stop it. Only its supervisor has it.
pub(super) struct Server {
    body: Endpoint,
    service: Option<RunningService<RoleClient, Handler>>,
    ends: SessionState,
    most: usize,
    changed: Arc<Notify>,
    handler: Handler,
}

/// The environment of a server: set, logins, launcher.
#[derive(Clone, Copy)]
pub(super) struct ServerHost<'a> {
    /// The set that its tools are in.
    pub(super) set: &'a ToolSetName,
    /// The logins of people, if there are any.
    pub(super) logins: Option<&'a Logins>,
    /// Runs the requests for tokens.
    pub(super) background: &'a BackgroundTasks,
    /// Starts the server's process.
    pub(super) launcher: &'a Launcher,
}

/// The process or the remote end.
enum Endpoint {
    Child(Box<Child>),
    Remote(Remote),
}

/// The transport to a server.
pub(super) enum ServerTransport {
    Pipes(Box<wire::StdioTransport>),
    Http(Box<HttpTransport>),
}

/// Why a running server cannot be used.
enum ServerError {
    /// A complete message of this client.
    Described(String),
    /// An error of rmcp or of the server, which needs an explanation.
    Unexpected(String),
}

impl Server {
    /// Starts a server, or prepares the connection to a remote one. Sends no request.
    pub(super) fn open(
        ServerHost { set, logins, background, launcher }: ServerHost<'_>,
        spec: &McpServer,
        most: usize,
    ) -> Result<(Self, ServerTransport), String> {
        let changed = Arc::new(Notify::new());
        let handler = Handler::new(Arc::clone(&changed), spec);
        let mut ends = SessionState::default();
        let (body, wire) = match spec {
            McpServer::Command(spec) => {
                let (child, wire) = Child::spawn(set, launcher, spec, most, &mut ends)?;
                (Endpoint::Child(Box::new(child)), ServerTransport::Pipes(Box::new(wire)))
            }
            McpServer::Http(spec) => {
                let caller = Caller { set, logins, background };
                let (remote, wire) = Remote::open(spec, caller, most, &mut ends)?;
                (Endpoint::Remote(remote), ServerTransport::Http(Box::new(wire)))
            }
        };
        Ok((Self { body, service: None, ends, most, changed, handler }, wire))
    }

    /// Returns the command or the host, for messages.
    pub(super) fn name(&self) -> &str {
        match &self.body {
            Endpoint::Child(child) => child.name(),
            Endpoint::Remote(remote) => remote.name(),
        }
    }

    /// Initializes the session and lists the tools.
    pub(super) async fn connect(
        &mut self,
        wire: ServerTransport,
    ) -> Result<(Session, Vec<Offer>), String> {
        let handler = self.handler.clone();
        let served = match wire {
            ServerTransport::Pipes(wire) => serve_client(handler, *wire).await,
            ServerTransport::Http(wire) => serve_client(handler, *wire).await,
        };
        let service = match served {
            Ok(service) => service,
            Err(err) => return Err(self.describe_init_error(&err).await),
        };
        let is_remote = matches!(self.body, Endpoint::Remote(_));
        let session = Session::new(service.peer().clone(), self.ends.clone(), self.most, is_remote);
        self.service = Some(service);
        let offers = self.list_tools(&session).await?;
        Ok((session, offers))
    }

    /// Describes why `initialize` failed. If the server has answered, the answer is the reason, even if
    /// the process ends afterwards.
    async fn describe_init_error(&mut self, err: &ClientInitializeError) -> String {
        let what = match err {
            ClientInitializeError::ConnectionClosed(_)
            | ClientInitializeError::TransportError { .. } => {
                return self.describe_failure(&err.to_string()).await;
            }
            ClientInitializeError::JsonRpcError(err) => match classify_error(err) {
                ServerError::Described(text) => return self.ends.seen.clean(text),
                ServerError::Unexpected(what) if err.code == UNREADABLE => unreadable_init(&what),
                ServerError::Unexpected(what) => what,
            },
            ClientInitializeError::ExpectedInitResult(Some(ServerResult::CustomResult(result))) => {
                let why = InitializeResult::deserialize(&result.0).err();
                unreadable_init(&why.map_or_else(|| WRONG_ANSWER.to_owned(), |err| err.to_string()))
            }
            ClientInitializeError::ExpectedInitResult(_)
            | ClientInitializeError::ExpectedInitResponse(_) => unreadable_init(WRONG_ANSWER),
            err => err.to_string(),
        };
        let complaint = match &self.body {
            Endpoint::Child(child) => {
                child.with_stderr_tail(format!("`{}` does not serve MCP: {what}", child.name()))
            }
            Endpoint::Remote(remote) => remote.describe_failure(&what),
        };
        self.ends.seen.clean(complaint)
    }

    /// Lists the server's tools, page by page.
    pub(super) async fn list_tools(&mut self, session: &Session) -> Result<Vec<Offer>, String> {
        match fetch_tools(session.peer()).await {
            Ok(offers) => Ok(redact_offers(offers, self.name(), &self.ends.seen.redaction())),
            Err(trouble) => Err(self.describe_error(trouble).await),
        }
    }

    /// Waits until the server reports that its tools have changed.
    pub(super) async fn wait_for_change(&self) {
        self.changed.notified().await;
    }

    /// Waits until the connection is closed.
    pub(super) async fn wait_for_close(&self) {
        self.ends.closed.cancelled().await;
    }

    /// Describes why the server failed.
    pub(super) async fn describe_failure(&mut self, what: &str) -> String {
        let complaint = match &mut self.body {
            Endpoint::Child(child) => child.describe_failure(what).await,
            Endpoint::Remote(remote) => remote.describe_failure(what),
        };
        self.ends.seen.clean(complaint)
    }

    async fn describe_error(&mut self, trouble: ServerError) -> String {
        match trouble {
            ServerError::Described(text) => self.ends.seen.clean(text),
            ServerError::Unexpected(what) => self.describe_failure(&what).await,
        }
    }

    /// Adds the tail of the server's standard error.
    pub(super) fn with_stderr_tail(&self, how: String) -> String {
        match &self.body {
            Endpoint::Child(child) => child.with_stderr_tail(how),
            Endpoint::Remote(_) => how,
        }
    }

    /// Stops the server as MCP demands: closes the session or the input, then terminates the process.
    pub(super) async fn stop(mut self) {
        if let Some(mut service) = self.service.take() {
            let _ = service.close_with_timeout(STOP_GRACE).await;
        }
        if let Endpoint::Child(child) = self.body {
            child.stop().await;
        }
    }
}

/// The message for an answer that belongs to another request.
const WRONG_ANSWER: &str = "it is the answer to something else";

fn unreadable_init(why: &str) -> String {
    format!("its answer to `initialize` could not be read: {why}")
}

fn classify_error(err: &ErrorData) -> ServerError {
    if is_own_code(err.code) && err.code != UNREADABLE {
        ServerError::Described(err.message.to_string())
    } else {
        ServerError::Unexpected(err.message.to_string())
    }
}

async fn fetch_tools(peer: &Peer<RoleClient>) -> Result<Vec<Offer>, ServerError> {
    let mut offers = Vec::new();
    let mut cursors = BTreeSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(params)).await.map_err(|err| match err {
            ServiceError::McpError(err) => classify_error(&err),
            err => ServerError::Unexpected(err.to_string()),
        })?;
        offers.extend(page.tools);
        if offers.len() > MAX_TOOLS {
            return Err(ServerError::Unexpected(format!("it offers more than {MAX_TOOLS} tools")));
        }
        cursor = page.next_cursor;
        match &cursor {
            None => return Ok(offers),
            Some(next) if !cursors.insert(next.clone()) => {
                return Err(ServerError::Unexpected(format!(
                    "its list of tools repeats the page `{next}`"
                )));
            }
            Some(_) => {}
        }
    }
    Err(ServerError::Unexpected(format!("its list of tools has more than {MAX_PAGES} pages")))
}
