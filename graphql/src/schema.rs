//! The GraphQL API. The doc comments of the types are the API's documentation.

mod actor;
mod answer_size;
mod audit;
mod blob;
mod caller;
mod connection;
mod cost;
mod counts;
mod drawing;
mod error;
mod event;
mod event_detail;
mod execution;
mod finding;
mod fork;
mod guard;
mod input;
mod layout;
mod loaders;
mod mutation;
mod node;
mod nulls;
mod plan;
mod plan_mutation;
mod planned_call;
mod prune;
mod query;
mod record_lists;
mod request;
mod request_events;
mod retry;
mod saved_plan;
mod scalar;
mod select;
mod step;
mod step_progress;
mod subscription;
mod text_enums;
mod timeline;
mod tool;
mod tool_operations;
mod toolkit;
mod waits;
mod workers;

use std::sync::Arc;

use async_graphql::{
    Data, Executor, Name, Response, SDLExportOptions, SchemaBuilder, parser::types::OperationType,
};
use engine::Engine;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};
use shared::sealed::{LockedView, show_locked_values};
use tokio_util::sync::CancellationToken;

use self::{
    audit::AuditEntry, connection::ListPage, execution::ApiExecution, guard::OperationGuard,
    mutation::Mutation, plan::Plan, query::Query, request::Request, saved_plan::SavedPlan,
    subscription::Subscription, tool::ToolResult,
};

/// A schema that executes operations. It hides the types of the resolvers, because otherwise each
/// crate that executes an operation would compile all of them again.
#[derive(Clone)]
pub struct Schema(async_graphql::Schema<Query, Mutation, Subscription>);

impl Schema {
    pub fn execute(&self, request: impl Into<async_graphql::Request>) -> BoxFuture<'_, Response> {
        self.execute_request(request.into())
    }

    pub fn execute_stream(
        &self,
        request: impl Into<async_graphql::Request>,
    ) -> BoxStream<'static, Response> {
        self.stream_request(request.into(), None)
    }

    fn execute_request(&self, mut request: async_graphql::Request) -> BoxFuture<'_, Response> {
        if is_mutation(&mut request) {
            return self.0.execute(request).boxed();
        }
        show_locked_values(self.0.execute(request)).boxed()
    }

    fn stream_request(
        &self,
        mut request: async_graphql::Request,
        session: Option<Arc<Data>>,
    ) -> BoxStream<'static, Response> {
        let is_mutation = is_mutation(&mut request);
        let answers = Executor::execute_stream(&self.0, request, session).boxed();
        if is_mutation { answers } else { LockedView(answers).boxed() }
    }
}

/// Returns `true` if the request could be a mutation. A mutation must fail for an encrypted value
/// whose key is missing, because it must not use the placeholder that a query shows.
fn is_mutation(request: &mut async_graphql::Request) -> bool {
    let name = request.operation_name.clone();
    // An invalid document counts as a query, because the executor rejects it later.
    let Ok(document) = request.parsed_query() else { return false };
    let is_called = |operation: Option<&Name>| match (&name, operation) {
        (Some(name), Some(operation)) => name == operation.as_str(),
        _ => true,
    };
    let mut called = document.operations.iter().filter(|(name, _)| is_called(*name));
    called.any(|(_, operation)| operation.node.ty == OperationType::Mutation)
}

#[async_trait::async_trait]
impl Executor for Schema {
    async fn execute(&self, request: async_graphql::Request) -> Response {
        self.execute_request(request).await
    }

    fn execute_stream(
        &self,
        request: async_graphql::Request,
        session: Option<Arc<Data>>,
    ) -> BoxStream<'static, Response> {
        self.stream_request(request, session)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum depth of fields. The introspection query of `GraphiQL` has 15 levels.
    pub depth: usize,
    /// Maximum cost of all fields together. `usize::MAX` means no limit.
    pub complexity: usize,
    /// Maximum size of the answer, in approximate bytes.
    pub answer_bytes: usize,
    pub directives: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 20, complexity: 150_000, answer_bytes: 64 << 20, directives: 8 }
    }
}

/// Cancelled when the client of an operation disconnects, so that a long operation can end early.
#[derive(Clone, Debug, Default)]
pub struct ClientGone(pub CancellationToken);

const MAX_SELECTION_DEPTH: usize = 32;

pub fn build(engine: Engine, limits: Limits) -> Schema {
    let schema = builder_with_descriptions()
        .limit_depth(limits.depth)
        .limit_recursive_depth(MAX_SELECTION_DEPTH)
        .limit_directives(limits.directives)
        .extension(OperationGuard::new(engine.clone(), limits))
        .data(engine)
        .finish();
    Schema(schema)
}

pub fn schema_text() -> String {
    let options = SDLExportOptions::new().include_specified_by().use_space_ident();
    builder_with_descriptions().finish().sdl_with_options(options)
}

fn builder_with_descriptions() -> SchemaBuilder<Query, Mutation, Subscription> {
    async_graphql::Schema::build(Query::default(), Mutation::default(), Subscription)
        .override_output_type_description::<ListPage<Request>>("Page of requests.")
        .override_output_type_description::<ListPage<Plan>>("Page of plans.")
        .override_output_type_description::<ListPage<ApiExecution>>("Page of executions.")
        .override_output_type_description::<ListPage<AuditEntry>>("Page of audit entries.")
        .override_output_type_description::<ListPage<SavedPlan>>("Page of saved plans.")
        .override_output_type_description::<ListPage<ToolResult>>("Page of calls outside plans.")
}

#[cfg(test)]
mod tests;
