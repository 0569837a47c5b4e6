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
    answer::{UNREADABLE, is_ours},
    child::Child,
    cleaned::cleaned,
    handler::Handler,
    http::{HttpWire, Remote},
    oauth::{BackgroundTasks, Caller, Logins},
    session::{Ends, Session},
    wire,
};

/// Pages of a server's tool list. A faulty server might send pages without end.
const PAGES: usize = 100;
/// Tools of a server.
const TOOLS: usize = 10_000;

/// A server, with the means to stop it. Only its supervisor has it.
pub(super) struct Server {
    body: Body,
    service: Option<RunningService<RoleClient, Handler>>,
    ends: Ends,
    most: usize,
    changed: Arc<Notify>,
    handler: Handler,
}

/// The environment of a server: set, logins, launcher.
#[derive(Clone, Copy)]
pub(super) struct Host<'a> {
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
enum Body {
    Child(Box<Child>),
    Remote(Remote),
}

/// The transport to a server.
pub(super) enum Wire {
    Pipes(Box<wire::Wire>),
    Http(Box<HttpWire>),
}

/// Why a running server cannot be used.
enum Trouble {
    /// A complete message of this client.
    Told(String),
    /// An error of rmcp or of the server, which needs an explanation.
    Odd(String),
}

impl Server {
    /// Starts a server, or prepares the connection to a remote one. Sends no request.
    pub(super) fn open(
        Host { set, logins, background, launcher }: Host<'_>,
        spec: &McpServer,
        most: usize,
    ) -> Result<(Self, Wire), String> {
        let changed = Arc::new(Notify::new());
        let handler = Handler::new(Arc::clone(&changed), spec);
        let mut ends = Ends::default();
        let (body, wire) = match spec {
            McpServer::Command(spec) => {
                let (child, wire) = Child::spawn(set, launcher, spec, most, &mut ends)?;
                (Body::Child(Box::new(child)), Wire::Pipes(Box::new(wire)))
            }
            McpServer::Http(spec) => {
                let caller = Caller { set, logins, background };
                let (remote, wire) = Remote::open(spec, caller, most, &mut ends)?;
                (Body::Remote(remote), Wire::Http(Box::new(wire)))
            }
        };
        Ok((Self { body, service: None, ends, most, changed, handler }, wire))
    }

    /// Returns the command or the host, for messages.
    pub(super) fn name(&self) -> &str {
        match &self.body {
            Body::Child(child) => child.name(),
            Body::Remote(remote) => remote.name(),
        }
    }

    /// Initializes the session and lists the tools.
    pub(super) async fn connect(&mut self, wire: Wire) -> Result<(Session, Vec<Offer>), String> {
        let handler = self.handler.clone();
        let served = match wire {
            Wire::Pipes(wire) => serve_client(handler, *wire).await,
            Wire::Http(wire) => serve_client(handler, *wire).await,
        };
        let service = match served {
            Ok(service) => service,
            Err(err) => return Err(self.misgreeting(&err).await),
        };
        let is_remote = matches!(self.body, Body::Remote(_));
        let session = Session::new(service.peer().clone(), self.ends.clone(), self.most, is_remote);
        self.service = Some(service);
        let offers = self.offers(&session).await?;
        Ok((session, offers))
    }

    /// Describes why `initialize` failed. If the server has answered, the answer is the reason, even if
    /// the process ends afterwards.
    async fn misgreeting(&mut self, err: &ClientInitializeError) -> String {
        let what = match err {
            ClientInitializeError::ConnectionClosed(_)
            | ClientInitializeError::TransportError { .. } => {
                return self.complaint(&err.to_string()).await;
            }
            ClientInitializeError::JsonRpcError(err) => match told(err) {
                Trouble::Told(text) => return self.ends.seen.clean(text),
                Trouble::Odd(what) if err.code == UNREADABLE => unread(&what),
                Trouble::Odd(what) => what,
            },
            ClientInitializeError::ExpectedInitResult(Some(ServerResult::CustomResult(result))) => {
                let why = InitializeResult::deserialize(&result.0).err();
                unread(&why.map_or_else(|| NO_GREETING.to_owned(), |err| err.to_string()))
            }
            ClientInitializeError::ExpectedInitResult(_)
            | ClientInitializeError::ExpectedInitResponse(_) => unread(NO_GREETING),
            err => err.to_string(),
        };
        let complaint = match &self.body {
            Body::Child(child) => {
                child.with_last_words(format!("`{}` does not serve MCP: {what}", child.name()))
            }
            Body::Remote(remote) => remote.complaint(&what),
        };
        self.ends.seen.clean(complaint)
    }

    /// Lists the server's tools, page by page.
    pub(super) async fn offers(&mut self, session: &Session) -> Result<Vec<Offer>, String> {
        match offers(session.peer()).await {
            Ok(offers) => Ok(cleaned(offers, self.name(), &self.ends.seen.now())),
            Err(trouble) => Err(self.trouble(trouble).await),
        }
    }

    /// Waits until the server reports that its tools have changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until the connection is closed.
    pub(super) async fn closed(&self) {
        self.ends.closed.cancelled().await;
    }

    /// Describes why the server failed.
    pub(super) async fn complaint(&mut self, what: &str) -> String {
        let complaint = match &mut self.body {
            Body::Child(child) => child.complaint(what).await,
            Body::Remote(remote) => remote.complaint(what),
        };
        self.ends.seen.clean(complaint)
    }

    async fn trouble(&mut self, trouble: Trouble) -> String {
        match trouble {
            Trouble::Told(text) => self.ends.seen.clean(text),
            Trouble::Odd(what) => self.complaint(&what).await,
        }
    }

    /// Adds the tail of the server's standard error.
    pub(super) fn with_last_words(&self, how: String) -> String {
        match &self.body {
            Body::Child(child) => child.with_last_words(how),
            Body::Remote(_) => how,
        }
    }

    /// Stops the server as MCP demands: closes the session or the input, then terminates the process.
    pub(super) async fn stop(mut self) {
        if let Some(mut service) = self.service.take() {
            let _ = service.close_with_timeout(STOP_GRACE).await;
        }
        if let Body::Child(child) = self.body {
            child.stop().await;
        }
    }
}

/// The message for an answer that belongs to another request.
const NO_GREETING: &str = "it is the answer to something else";

fn unread(why: &str) -> String {
    format!("its answer to `initialize` could not be read: {why}")
}

fn told(err: &ErrorData) -> Trouble {
    if is_ours(err.code) && err.code != UNREADABLE {
        Trouble::Told(err.message.to_string())
    } else {
        Trouble::Odd(err.message.to_string())
    }
}

async fn offers(peer: &Peer<RoleClient>) -> Result<Vec<Offer>, Trouble> {
    let mut offers = Vec::new();
    let mut cursors = BTreeSet::new();
    let mut cursor = None;
    for _ in 0..PAGES {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let page = peer.list_tools(Some(params)).await.map_err(|err| match err {
            ServiceError::McpError(err) => told(&err),
            err => Trouble::Odd(err.to_string()),
        })?;
        offers.extend(page.tools);
        if offers.len() > TOOLS {
            return Err(Trouble::Odd(format!("it offers more than {TOOLS} tools")));
        }
        cursor = page.next_cursor;
        match &cursor {
            None => return Ok(offers),
            Some(next) if !cursors.insert(next.clone()) => {
                return Err(Trouble::Odd(format!("its list of tools repeats the page `{next}`")));
            }
            Some(_) => {}
        }
    }
    Err(Trouble::Odd(format!("its list of tools has more than {PAGES} pages")))
}
