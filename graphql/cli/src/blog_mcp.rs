//! The demo: a small blog as an MCP server over stdio. A file stores the data, and several
//! processes can share it.

mod id;
mod rules;
mod store;
mod tools;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rmcp::{
    ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
        Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    },
    service::{RequestContext, RoleServer},
    transport::stdio_pipes,
};
use serde_json::{Map, Value};
use shared::{clock::Clock, schema::Schema};

use self::{
    id::IdSource,
    rules::{Refusal, perform},
    store::{Store, StoreError},
    tools::{OFFERS, Offer},
};

#[derive(Debug, thiserror::Error)]
#[error("the blog server ended: {0}")]
pub struct ServeError(String);

pub fn default_file(data: &Path) -> PathBuf {
    data.join("faber").join("blog.json")
}

pub async fn serve(file: PathBuf, clock: Arc<dyn Clock>) -> Result<(), ServeError> {
    let server = BlogServer(Arc::new(Blog::new(file, clock)));
    let service = server.serve(stdio_pipes()).await.map_err(|err| ServeError(err.to_string()))?;
    service.waiting().await.map_err(|err| ServeError(err.to_string()))?;
    Ok(())
}

struct BlogServer(Arc<Blog>);

#[derive(Debug)]
struct Blog {
    store: Store,
    ids: IdSource,
    clock: Arc<dyn Clock>,
    offers: Vec<(&'static Offer, Schema)>,
}

#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("Unknown tool: {0}")]
    UnknownTool(String),
    #[error("{0}")]
    Arguments(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Blog {
    fn new(file: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let offers = OFFERS.iter().map(|tool| {
            let schema = Value::Object(tool.input_schema());
            (tool, Schema::new(&schema).expect("the table makes valid schemas"))
        });
        Self { store: Store::new(file), ids: IdSource::new(), offers: offers.collect(), clock }
    }

    fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<Answer, CallError> {
        let found = self.offers.iter().find(|(offer, _)| offer.name == name);
        let Some((offer, schema)) = found else {
            return Err(CallError::UnknownTool(name.to_owned()));
        };
        let arguments = Value::Object(arguments);
        if let Some(complaint) = schema.complaint(&arguments) {
            return Err(CallError::Arguments(complaint));
        }
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let value = if offer.is_read_only() {
            let mut data = self.store.read()?;
            perform(offer, &arguments, &mut data, &self.ids, self.clock.now())?
        } else {
            self.store.change(|data| {
                perform(offer, &arguments, data, &self.ids, self.clock.now()).map_err(Into::into)
            })?
        };
        Ok(Answer { value, is_structured: offer.output_schema().is_some() })
    }
}

#[derive(Debug)]
struct Answer {
    value: Value,
    /// `true` if the tool has an output schema, because its result is always an object. Other
    /// results, such as lists and null, are sent as text.
    is_structured: bool,
}

impl From<Answer> for CallToolResult {
    fn from(answer: Answer) -> Self {
        if answer.is_structured {
            Self::structured(answer.value)
        } else {
            Self::success(vec![ContentBlock::text(answer.value.to_string())])
        }
    }
}

impl ServerHandler for BlogServer {
    fn get_info(&self) -> ServerConfig {
        let us = Implementation::new("faber-blog", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(us)
            .with_instructions(
                "A small blog: authors write blogs, and blogs have comments and pictures.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(OFFERS.iter().map(Offer::tool).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let blog = Arc::clone(&self.0);
        let arguments = request.arguments.unwrap_or_default();
        let called = move || blog.call(&request.name, arguments);
        let answer = tokio::task::spawn_blocking(called)
            .await
            .map_err(|err| ErrorData::internal_error(err.to_string(), None))?;
        match answer {
            Ok(answer) => Ok(CallToolResult::from(answer).into()),
            Err(err @ CallError::Refused(_)) => {
                Ok(CallToolResult::error(vec![ContentBlock::text(err.to_string())]).into())
            }
            Err(err @ CallError::Store(_)) => Err(ErrorData::internal_error(err.to_string(), None)),
            Err(err) => Err(ErrorData::invalid_params(err.to_string(), None)),
        }
    }
}

#[cfg(test)]
mod tests;
