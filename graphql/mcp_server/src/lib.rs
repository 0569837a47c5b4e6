//! Faber as an MCP server: over standard input and output, and at `/mcp` of `faber serve`. Its
//! tools are operations of the API, so the same roles, tool patterns and limits apply.

mod answer;
mod answer_size;
mod arguments;
mod call;
mod driver_queue;
mod http;
mod input_schema;
mod invalid_message;
mod progress;
mod stdio;
mod tools;
mod wait;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{Router, http::request::Parts, middleware};
use client::{Client, drive::Drive, failure::Failure};
use engine::access::Grant;
use futures::{FutureExt, future::BoxFuture};
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
use shared::{
    store::Store,
    trace::{OpenSpan, Scope, SpanContext, SpanKind, SpanSink, current_scope, with_scope},
};
use tokio_util::sync::CancellationToken;

use self::{
    answer::{Answer, convert_failure},
    call::Call,
    driver_queue::DriveQueue,
    progress::ProgressReporter,
    stdio::LineTransport,
    tools::{INSTRUCTIONS, TOOLS},
};

const MCP_PATH: &str = "/mcp";
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Clone)]
struct Backend {
    client: Client,
    /// `None` if this process uses a server and has not opened a store.
    store: Option<Arc<dyn Store>>,
    /// `None` if this process has no worker, or if the worker of `faber serve` drives all
    /// executions.
    queue: Option<DriveQueue>,
}

/// Serves over standard input and output until the input ends. `drive` drives the executions that
/// calls start.
pub fn serve_stdio(
    client: Client,
    store: Option<Arc<dyn Store>>,
    drive: Option<Drive>,
) -> BoxFuture<'static, Result<(), Failure>> {
    serve_pipes(client, store, drive).boxed()
}

async fn serve_pipes(
    client: Client,
    store: Option<Arc<dyn Store>>,
    drive: Option<Drive>,
) -> Result<(), Failure> {
    let (queue, runner) = drive.map(driver_queue::drive_queue).unzip();
    let backend = Backend { client, store, queue };
    let (stdin, stdout) = stdio_pipes();
    let serving = async {
        let session_failure =
            |err: String| Failure::new("INTERNAL", format!("the session ended: {err}"));
        let service = Box::pin(
            McpServer::new(backend, Caller::Stdio).serve(LineTransport::new(stdin, stdout)),
        )
        .await;
        let service = match service {
            // The client disconnected before it started a session, which is not an error.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            service => service.map_err(|err| session_failure(err.to_string()))?,
        };
        service.waiting().await.map_err(|err| session_failure(err.to_string())).map(drop)
    };
    let Some(runner) = runner else { return serving.await };
    tokio::select! {
        ended = serving => ended,
        never = runner.run() => match never {},
    }
}

/// Returns the routes of `/mcp` for `faber serve`. Requests belong to no session, so any node can
/// answer any request.
pub fn build_routes(
    client: Client,
    store: Arc<dyn Store>,
    max_request_bytes: usize,
    stop: CancellationToken,
) -> Router {
    let server = McpServer::new(Backend { client, store: Some(store), queue: None }, Caller::Http);
    // Turns off rmcp's checks of host and origin, because Faber's server has already checked both.
    let settings = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_legacy_session_mode(false)
        .with_sse_keep_alive(Some(KEEP_ALIVE_INTERVAL))
        .with_max_request_body_bytes(max_request_bytes)
        .with_cancellation_token(stop);
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(NeverSessionManager::default()),
        settings,
    );
    Router::new()
        .route_service(MCP_PATH, service)
        .layer(middleware::from_fn_with_state(max_request_bytes, http::handle_request))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// The caller started this process, so it has all rights.
    Stdio,
    /// The HTTP server has identified the caller and stored its rights in the request.
    Http,
}

#[derive(Clone)]
struct McpServer {
    backend: Backend,
    caller: Caller,
    /// Exports the spans of calls over standard input. Calls over HTTP do not use this sink,
    /// because their request contains one.
    span_sink: Option<Arc<dyn SpanSink>>,
}

impl McpServer {
    fn new(backend: Backend, caller: Caller) -> Self {
        let span_sink = current_scope().and_then(|scope| scope.sink);
        Self { backend, caller, span_sink }
    }

    /// Starts the span of a call. The parent is the context in `_meta`, or the span of the HTTP
    /// request if the call has no such context.
    fn trace_call(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> (Option<OpenSpan>, Option<Scope>) {
        let http = context.extensions.get::<Parts>();
        let http = http.and_then(|parts| parts.extensions.get::<Scope>());
        let own = context.meta.get_traceparent();
        let own = own.and_then(|own| SpanContext::parse(own, context.meta.get_tracestate()));
        let sink = http.map_or(self.span_sink.as_ref(), |scope| scope.sink.as_ref());
        let parent = own.clone().or_else(|| http.map(|scope| scope.span.clone()));
        let name = format!("tools/call {}", request.name);
        let span = sink.and_then(|sink| {
            let mut span = OpenSpan::start_root(name, SpanKind::Server, sink, parent.as_ref())?;
            span.set("mcp.method.name", "tools/call");
            span.set("gen_ai.operation.name", "execute_tool");
            span.set("gen_ai.tool.name", request.name.to_string());
            if let (Some(_), Some(http)) = (&own, http) {
                span.add_link(http.span.clone());
            }
            Some(span)
        });
        // An execution belongs to the trace of the caller. Its parent is the caller's span, and not
        // a span of this process.
        let origin = own.or_else(|| http.and_then(|scope| scope.origin.clone()));
        let scope = match &span {
            Some(span) => Some(Scope { origin, ..span.scope() }),
            None => origin.map(|origin| Scope::of_caller(origin, None)),
        };
        (span, scope)
    }

    fn grant_of(&self, context: &RequestContext<RoleServer>) -> Option<Grant> {
        let grant = match self.caller {
            Caller::Stdio => Grant::default(),
            Caller::Http => context.extensions.get::<Parts>()?.extensions.get::<Grant>()?.clone(),
        };
        Some(match context.client_info() {
            Some(client) => grant.through_client(&client.name),
            None => grant,
        })
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let server = Implementation::new("faber", env!("CARGO_PKG_VERSION")).with_title("Faber");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
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
            let reason = format!("Unknown tool: {}", request.name);
            return Err(ErrorData::invalid_params(reason, None));
        };
        let Some(grant) = self.grant_of(&context) else {
            let reason = "the server did not identify the caller".to_owned();
            return Err(ErrorData::internal_error(reason, None));
        };
        let mut call = Call {
            client: self.backend.client.with_grant(&grant),
            backend: &self.backend,
            progress_reporter: ProgressReporter::for_request(&context),
            caller_gone: context.ct.clone(),
        };
        let (span, scope) = self.trace_call(&request, &context);
        let call = call.make_call(&tool.name, request.arguments.unwrap_or_default());
        let answered = Box::pin(with_scope(scope, catch_panic(&tool.name, call))).await;
        if let Some(span) = span {
            span.finish(answered.as_ref().err().map(|_| "tool_error"));
        }
        Ok(answered.map_or_else(|failure| convert_failure(&failure), CallToolResult::from).into())
    }

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
            let reason = format!("the parameters of `{method}` are invalid: {err}");
            return Err(ErrorData::invalid_params(reason, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None))
    }
}

/// Turns a panic into an error, so that the caller gets an answer.
async fn catch_panic(
    tool: &str,
    call: impl Future<Output = Result<Answer, Failure>>,
) -> Result<Answer, Failure> {
    AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|_| {
        let reason = format!(
            "`{tool}` failed because of a bug in Faber: see Faber's log. An execution that had \
             started continues: call `status` to see it"
        );
        Err(Failure::new("INTERNAL", reason))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_panics_gets_an_answer() {
        let failed = catch_panic("plan", async { panic!("of the test") }).await;
        let answer = convert_failure(&failed.unwrap_err());
        assert_eq!(answer.is_error, Some(true));
        let error = answer.structured_content.unwrap();
        assert_eq!(error["error"]["code"], "INTERNAL", "{error}");
        assert!(
            error["error"]["message"].as_str().unwrap().starts_with("`plan` failed"),
            "{error}"
        );
    }
}
