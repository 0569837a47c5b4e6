//! Faber as an MCP server: over standard input and output, and at `/mcp` of `faber serve`.
//!
//! Its tools are operations of the API. They use the same [`Client`] as the commands, so the same
//! roles, tool patterns and limits apply.

mod answer;
mod answer_size;
mod arguments;
mod call;
mod driver_queue;
mod http;
mod invalid_message;
mod progress;
mod stdio;
mod tools;
mod wait;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{Router, http::request::Parts, middleware};
use futures::FutureExt;
use rmcp::{
    RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult,
        ConstString, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::{RequestContext, ServerInitializeError},
    transport::{
        stdio_pipes,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
        },
    },
};
use shared::store::Store;
use tokio_util::sync::CancellationToken;

use self::{
    answer::Answer,
    call::Call,
    driver_queue::Drivers,
    progress::Reports,
    stdio::Lines,
    tools::{INSTRUCTIONS, TOOLS},
};
use crate::{
    access::Grant,
    cli::{client::Client, drive::Drive, failure::Failure},
};

/// The path of the server.
const PAGE: &str = "/mcp";
/// Interval of keep-alive messages in a quiet response.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The client, the store and the queue that calls use.
#[derive(Clone)]
struct Office {
    client: Client,
    /// Only if this process opened a store.
    store: Option<Arc<dyn Store>>,
    /// Only if this process has a worker.
    drivers: Option<Drivers>,
}

/// Serves over standard input and output until the input ends. `drive` drives executions that calls
/// started.
pub(crate) async fn serve_stdio(
    client: Client,
    store: Option<Arc<dyn Store>>,
    drive: Option<Drive>,
) -> Result<(), Failure> {
    let (drivers, driving) = drive.map(driver_queue::drivers).unzip();
    let office = Office { client, store, drivers };
    let serving = async {
        let broken = |err: String| Failure::new("INTERNAL", format!("the session ended: {err}"));
        let service =
            Box::pin(Faber::new(office, Door::Own).serve(Lines::new(stdio_pipes()))).await;
        let service = match service {
            // The client connected and left again.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            service => service.map_err(|err| broken(err.to_string()))?,
        };
        service.waiting().await.map_err(|err| broken(err.to_string())).map(drop)
    };
    let Some(driving) = driving else { return serving.await };
    tokio::select! {
        ended = serving => ended,
        never = driving.go_on() => match never {},
    }
}

/// Returns the routes of `/mcp` for `faber serve`. The server's own worker drives executions. There
/// are no sessions, so any node can answer any request.
pub(crate) fn routes(
    client: Client,
    store: Arc<dyn Store>,
    max_request_bytes: usize,
    stop: CancellationToken,
) -> Router {
    let faber = Faber::new(Office { client, store: Some(store), drivers: None }, Door::Page);
    // The host check of the server has run before.
    let settings = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_legacy_session_mode(false)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_max_request_body_bytes(max_request_bytes)
        .with_cancellation_token(stop);
    let service = StreamableHttpService::new(
        move || Ok(faber.clone()),
        Arc::new(NeverSessionManager::default()),
        settings,
    );
    Router::new()
        .route_service(PAGE, service)
        .layer(middleware::from_fn_with_state(max_request_bytes, http::enter))
}

/// The transport of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// Standard input: the caller started this process and has all rights.
    Own,
    /// HTTP: the server identified the caller.
    Page,
}

#[derive(Clone)]
struct Faber {
    office: Office,
    door: Door,
}

impl Faber {
    fn new(office: Office, door: Door) -> Self {
        Self { office, door }
    }

    fn grant(&self, context: &RequestContext<RoleServer>) -> Option<Grant> {
        match self.door {
            Door::Own => Some(Grant::default()),
            Door::Page => context.extensions.get::<Parts>()?.extensions.get::<Grant>().cloned(),
        }
    }
}

impl ServerHandler for Faber {
    fn get_info(&self) -> ServerConfig {
        let us = Implementation::new("faber", env!("CARGO_PKG_VERSION")).with_title("Faber");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(us)
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        TOOLS.iter().find(|tool| tool.name == name).cloned()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = TOOLS.iter().find(|tool| tool.name == request.name) else {
            let why = format!("Unknown tool: {}", request.name);
            return Err(ErrorData::invalid_params(why, None));
        };
        let Some(grant) = self.grant(&context) else {
            let why = "it is not known who calls".to_owned();
            return Err(ErrorData::internal_error(why, None));
        };
        let mut call = Call {
            client: self.office.client.granted(&grant),
            office: &self.office,
            reports: Reports::to(&context),
            left: context.ct.clone(),
        };
        let made = call.make(&tool.name, request.arguments.unwrap_or_default());
        let answered = Box::pin(unbroken(&tool.name, made)).await;
        Ok(answered.map_or_else(CallToolResult::from, CallToolResult::from).into())
    }

    /// Rejects an unknown request, or a call with invalid parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        let params = params.unwrap_or_default();
        if method == CallToolRequestMethod::VALUE
            && let Err(err) = serde_json::from_value::<CallToolRequestParams>(params)
        {
            let why = format!("the parameters of `{method}` cannot be read: {err}");
            return Err(ErrorData::invalid_params(why, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
    }
}

/// Turns a panic into an error, so that the caller gets an answer.
async fn unbroken(
    tool: &str,
    made: impl Future<Output = Result<Answer, Failure>>,
) -> Result<Answer, Failure> {
    AssertUnwindSafe(made).catch_unwind().await.unwrap_or_else(|_| {
        let why = format!(
            "`{tool}` broke, which is a fault of Faber's own: its log says where. What it had begun \
             goes on; `status` tells"
        );
        Err(Failure::new("INTERNAL", why))
    })
}

#[cfg(test)]
mod tests {
    use rmcp::model::CallToolResult;

    use super::*;

    /// The client once waited for ever.
    #[tokio::test]
    async fn a_call_that_breaks_is_answered() {
        let broken = unbroken("plan", async { panic!("of the test") }).await;
        let answer = CallToolResult::from(broken.unwrap_err());
        assert_eq!(answer.is_error, Some(true));
        let said = answer.structured_content.unwrap();
        assert_eq!(said["error"]["code"], "INTERNAL", "{said}");
        assert!(said["error"]["message"].as_str().unwrap().starts_with("`plan` broke"), "{said}");
    }
}
