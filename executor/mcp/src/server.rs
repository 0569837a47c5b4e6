//! A connected MCP server, as its supervisor sees it, and the answers to its requests.
#![expect(deprecated, reason = "newer drafts of MCP have no roots, but existing servers use them")]

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use reqwest::Url;
use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        ElicitationCapability, ErrorData, FormElicitationCapability, Implementation,
        InitializeResult, ListRootsResult, PaginatedRequestParams, ProtocolVersion, Root,
        RootsCapabilities, ServerResult, Tool as Offer,
    },
    service::{
        ClientInitializeError, NotificationContext, Peer, RequestContext, RoleClient,
        RunningService, ServiceError, serve_client,
    },
};
use sandbox::{Launcher, process::STOP_GRACE};
use serde::Deserialize as _;
use serde_json::{Map, Value};
use shared::id::ToolSetName;
use tokio::sync::Notify;

use super::{
    Elicitation, McpServer,
    answer::{UNREADABLE_CODE, is_own_code},
    http::{HttpTransport, Remote},
    oauth::{BackgroundTasks, Caller, Logins},
    redaction::redact_offers,
    session::{Session, SessionState},
    stdio::{self, Child},
};

/// Maximum number of pages of a server's tool list, because a faulty server might send pages
/// without end.
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 10_000;

/// A server process or connection, with the means to stop it. Only the supervisor owns this value.
pub(super) struct Server {
    endpoint: Endpoint,
    service: Option<RunningService<RoleClient, Handler>>,
    state: SessionState,
    max_output_bytes: usize,
    tools_changed: Arc<Notify>,
    handler: Handler,
}

#[derive(Clone, Copy)]
pub(super) struct ServerHost<'a> {
    pub(super) set: &'a ToolSetName,
    pub(super) logins: Option<&'a Logins>,
    pub(super) background: &'a BackgroundTasks,
    pub(super) launcher: &'a Launcher,
}

enum Endpoint {
    Child(Box<Child>),
    Remote(Remote),
}

pub(super) enum ServerTransport {
    Pipes(Box<stdio::StdioTransport>),
    Http(Box<HttpTransport>),
}

enum ServerError {
    /// A message of this client, which needs no explanation.
    Described(String),
    /// An error of rmcp or of the server, which needs an explanation.
    Unexpected(String),
}

impl Server {
    /// Starts a server, or prepares the connection to a remote server. Sends no request.
    pub(super) fn open(
        ServerHost { set, logins, background, launcher }: ServerHost<'_>,
        spec: &McpServer,
        max_output_bytes: usize,
    ) -> Result<(Self, ServerTransport), String> {
        let tools_changed = Arc::new(Notify::new());
        let handler = Handler::new(Arc::clone(&tools_changed), spec);
        let mut state = SessionState::default();
        let (endpoint, transport) = match spec {
            McpServer::Command(spec) => {
                let (child, transport) =
                    Child::spawn(set, launcher, spec, max_output_bytes, &mut state)?;
                (Endpoint::Child(Box::new(child)), ServerTransport::Pipes(Box::new(transport)))
            }
            McpServer::Http(spec) => {
                let caller = Caller { set, logins, background };
                let (remote, transport) = Remote::open(spec, caller, max_output_bytes, &mut state)?;
                (Endpoint::Remote(remote), ServerTransport::Http(Box::new(transport)))
            }
        };
        Ok((
            Self { endpoint, service: None, state, max_output_bytes, tools_changed, handler },
            transport,
        ))
    }

    pub(super) fn name(&self) -> &str {
        match &self.endpoint {
            Endpoint::Child(child) => child.name(),
            Endpoint::Remote(remote) => remote.name(),
        }
    }

    pub(super) async fn connect(
        &mut self,
        transport: ServerTransport,
    ) -> Result<(Session, Vec<Offer>), String> {
        let handler = self.handler.clone();
        let served = match transport {
            ServerTransport::Pipes(transport) => serve_client(handler, *transport).await,
            ServerTransport::Http(transport) => serve_client(handler, *transport).await,
        };
        let service = match served {
            Ok(service) => service,
            Err(err) => return Err(self.describe_init_error(&err).await),
        };
        let is_remote = matches!(self.endpoint, Endpoint::Remote(_));
        let session = Session::new(
            service.peer().clone(),
            self.state.clone(),
            self.max_output_bytes,
            is_remote,
        );
        self.service = Some(service);
        let offers = self.list_tools(&session).await?;
        Ok((session, offers))
    }

    /// Describes why `initialize` failed. If the server has answered, the answer is the reason,
    /// even if the process ends afterwards.
    async fn describe_init_error(&mut self, err: &ClientInitializeError) -> String {
        let problem = match err {
            ClientInitializeError::ConnectionClosed(_)
            | ClientInitializeError::TransportError { .. } => {
                return self.describe_failure(&err.to_string()).await;
            }
            ClientInitializeError::JsonRpcError(err) => match classify_error(err) {
                ServerError::Described(text) => return self.state.secrets.redact(text),
                ServerError::Unexpected(problem) if err.code == UNREADABLE_CODE => {
                    unreadable_init(&problem)
                }
                ServerError::Unexpected(problem) => problem,
            },
            ClientInitializeError::ExpectedInitResult(Some(ServerResult::CustomResult(result))) => {
                let reason = InitializeResult::deserialize(&result.0).err();
                unreadable_init(
                    &reason.map_or_else(|| WRONG_ANSWER.to_owned(), |err| err.to_string()),
                )
            }
            ClientInitializeError::ExpectedInitResult(_)
            | ClientInitializeError::ExpectedInitResponse(_) => unreadable_init(WRONG_ANSWER),
            err => err.to_string(),
        };
        let complaint = match &self.endpoint {
            Endpoint::Child(child) => {
                child.with_stderr_tail(format!("`{}` does not serve MCP: {problem}", child.name()))
            }
            Endpoint::Remote(remote) => remote.describe_failure(&problem),
        };
        self.state.secrets.redact(complaint)
    }

    pub(super) async fn list_tools(&mut self, session: &Session) -> Result<Vec<Offer>, String> {
        match fetch_tools(session.peer()).await {
            Ok(offers) => Ok(redact_offers(offers, self.name(), &self.state.secrets.redaction())),
            Err(error) => Err(self.describe_error(error).await),
        }
    }

    pub(super) async fn wait_for_change(&self) {
        self.tools_changed.notified().await;
    }

    pub(super) async fn wait_for_close(&self) {
        self.state.closed.cancelled().await;
    }

    pub(super) async fn describe_failure(&mut self, problem: &str) -> String {
        let complaint = match &mut self.endpoint {
            Endpoint::Child(child) => child.describe_failure(problem).await,
            Endpoint::Remote(remote) => remote.describe_failure(problem),
        };
        self.state.secrets.redact(complaint)
    }

    async fn describe_error(&mut self, error: ServerError) -> String {
        match error {
            ServerError::Described(text) => self.state.secrets.redact(text),
            ServerError::Unexpected(problem) => self.describe_failure(&problem).await,
        }
    }

    pub(super) fn with_stderr_tail(&self, message: String) -> String {
        match &self.endpoint {
            Endpoint::Child(child) => child.with_stderr_tail(message),
            Endpoint::Remote(_) => message,
        }
    }

    /// Stops the server as MCP demands: closes the session or the input, then terminates the
    /// process.
    pub(super) async fn stop(mut self) {
        if let Some(mut service) = self.service.take() {
            let _ = service.close_with_timeout(STOP_GRACE).await;
        }
        if let Endpoint::Child(child) = self.endpoint {
            child.stop().await;
        }
    }
}

const WRONG_ANSWER: &str = "it is the answer to another request";

fn unreadable_init(reason: &str) -> String {
    format!("its answer to `initialize` could not be read: {reason}")
}

fn classify_error(err: &ErrorData) -> ServerError {
    if is_own_code(err.code) && err.code != UNREADABLE_CODE {
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

/// Answers a server's requests, and receives its notifications about changed tools.
#[derive(Clone)]
pub(super) struct Handler {
    tools_changed: Arc<Notify>,
    roots: Vec<Root>,
    elicitation: Option<Elicitation>,
}

impl Handler {
    pub(super) fn new(tools_changed: Arc<Notify>, spec: &McpServer) -> Self {
        let roots = spec.roots().iter().filter_map(to_root).collect();
        Self { tools_changed, roots, elicitation: spec.elicitation() }
    }
}

fn form_defaults(form: &Value) -> Option<Map<String, Value>> {
    let fields = form.get("properties").and_then(Value::as_object)?;
    let filled: Map<String, Value> = fields
        .iter()
        .filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone())))
        .collect();
    let mut needed = form.get("required").and_then(Value::as_array).into_iter().flatten();
    needed.all(|name| name.as_str().is_some_and(|name| filled.contains_key(name))).then_some(filled)
}

/// Converts a folder to an MCP root: a `file` URL and a name.
fn to_root(folder: &PathBuf) -> Option<Root> {
    let whole = folder.canonicalize().or_else(|_| std::path::absolute(folder)).ok()?;
    let uri = Url::from_file_path(&whole).ok()?;
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
    let root = Root::new(uri);
    Some(match name {
        Some(name) => root.with_name(name),
        None => root,
    })
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("faber", env!("CARGO_PKG_VERSION"));
        let mut capabilities = ClientCapabilities::default();
        if !self.roots.is_empty() {
            capabilities.roots = Some(RootsCapabilities::default());
        }
        if self.elicitation.is_some() {
            let form = FormElicitationCapability::default();
            capabilities.elicitation = Some(ElicitationCapability::default().with_form(form));
        }
        // Offers this version, because later versions of the protocol have no `initialize` request.
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        ClientConfig::new(capabilities, client).with_protocol_version(version)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, rmcp::ErrorData> {
        Ok(ListRootsResult::new(self.roots.clone()))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, rmcp::ErrorData> {
        let Some(Elicitation::Defaults) = self.elicitation else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        // Answers only forms. The other kind of request asks a person to open a URL, but a plan
        // runs without a person.
        let ElicitRequestParams::FormElicitationParams { requested_schema, .. } = request else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        let form = serde_json::to_value(requested_schema).unwrap_or_default();
        Ok(match form_defaults(&form) {
            Some(filled) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(filled))
            }
            None => ElicitResult::new(ElicitationAction::Decline),
        })
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_root_is_sent_as_a_file_url() {
        let folder = tempfile::tempdir().unwrap();
        let folder_path = folder.path().canonicalize().unwrap().join("größe 1");
        std::fs::create_dir(&folder_path).unwrap();
        let root = to_root(&folder_path.join("../größe 1/.")).unwrap();
        assert!(root.uri.starts_with("file:///") && root.uri.ends_with("/gr%C3%B6%C3%9Fe%201"));
        assert_eq!(root.name.as_deref(), Some("größe 1"));
        let capabilities =
            announced_capabilities(json!({ "command": "x", "roots": [folder_path] }));
        assert!(capabilities.roots.is_some() && capabilities.elicitation.is_none());
    }

    fn announced_capabilities(spec: Value) -> ClientCapabilities {
        let spec: McpServer = serde_json::from_value(spec).unwrap();
        Handler::new(Arc::default(), &spec).get_info().capabilities
    }

    #[test]
    fn only_configured_capabilities_are_announced() {
        let capabilities = |spec| serde_json::to_value(announced_capabilities(spec)).unwrap();
        assert_eq!(capabilities(json!({ "command": "x" })), json!({}));
        let input = json!({ "url": "http://a/mcp", "elicitation": "defaults" });
        assert_eq!(capabilities(input), json!({ "elicitation": { "form": {} } }));
    }

    #[test]
    fn the_offered_protocol_version_has_an_initialize_request() {
        let spec = serde_json::from_value(json!({ "command": "x" })).unwrap();
        let info = Handler::new(Arc::default(), &spec).get_info();
        assert!(info.protocol_version.has_initialize());
    }

    #[test]
    fn a_form_is_accepted_only_if_defaults_fill_all_required_fields() {
        let form = |required: Value| {
            json!({
                "properties": { "a": { "type": "integer", "default": 0 }, "b": { "type": "string" } },
                "required": required,
            })
        };
        let filled = json!({ "a": 0 }).as_object().cloned();
        assert_eq!(form_defaults(&form(json!(["a"]))), filled);
        assert_eq!(form_defaults(&form(json!([]))), filled);
        assert_eq!(form_defaults(&form(json!(["b"]))), None);
        assert_eq!(form_defaults(&json!({ "required": ["c"] })), None);
    }
}
