//! The protocol: which tools there are, and calls of them.

use std::panic::AssertUnwindSafe;

use axum::http::request::Parts;
use futures::FutureExt;
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult,
        ConstString, CustomRequest, CustomResult, ErrorCode, ErrorData, Implementation,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};

use super::{
    super::failure::Failure,
    Office,
    answer::Answer,
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
        let made = call.make(&tool.name, request.arguments.unwrap_or_default());
        let answered = Box::pin(unbroken(&tool.name, made)).await;
        Ok(answered.map_or_else(CallToolResult::from, CallToolResult::from).into())
    }

    /// Hears what is none of the protocol's requests, or is a call that cannot be read.
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

/// Answers also where a call breaks: whoever made it would wait for ever.
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

    /// Its client waited for ever.
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
