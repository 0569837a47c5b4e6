//! The protocol: which tools there are, and calls of them.

use axum::http::request::Parts;
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};

use super::{
    Office,
    call::Call,
    offer::{INSTRUCTIONS, TOOLS},
    reports::Reports,
};
use crate::access::Grant;

/// By which way callers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// They started this process.
    Own,
    /// Over HTTP: the server knows what they may do.
    Page,
}

/// Faber as an MCP server.
#[derive(Clone)]
pub(super) struct Faber {
    office: Office,
    door: Door,
}

impl Faber {
    pub(super) fn new(office: Office, door: Door) -> Self {
        Self { office, door }
    }

    /// Returns what whoever calls may do.
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
        TOOLS.iter().find(|it| it.name == name).cloned()
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
        let Some(tool) = TOOLS.iter().find(|it| it.name == request.name) else {
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
        let answered = call.make(&tool.name, request.arguments.unwrap_or_default()).await;
        Ok(answered.map_or_else(CallToolResult::from, CallToolResult::from).into())
    }
}
