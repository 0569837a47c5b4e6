//! The GraphQL API.
//!
//! All operations go through the [`Engine`]. The doc comments of the types are the API's
//! documentation. `graphql/schema.graphql` is a golden copy of it, so that a change of the API is a
//! visible difference.

mod answer_size;
mod blob;
mod connection;
mod cost;
mod drawing;
mod error;
mod event;
mod execution;
mod finding;
mod guard;
mod house;
mod input;
mod layout;
mod loaders;
mod mutation;
mod nulls;
mod plan;
mod query;
mod request;
mod request_events;
mod retry;
mod rounded;
mod saved;
mod scalar;
mod select;
mod step;
mod subscription;
mod timeline;
mod tool;
mod tool_work;
mod toolkit;
mod waits;

use async_graphql::{SDLExportOptions, SchemaBuilder};
use engine::Engine;
use tokio_util::sync::CancellationToken;

pub(crate) use self::rounded::Written;

use self::{
    connection::Part, execution::Execution, guard::Guard, mutation::Mutation, plan::Plan,
    query::Query, request::Request, subscription::Subscription,
};

/// Schema that executes operations.
pub type Schema = async_graphql::Schema<Query, Mutation, Subscription>;

/// Limits of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Levels of fields. The introspection query of `GraphiQL` has 15.
    pub depth: usize,
    /// Total cost of the fields. A field costs one, a list multiplies the cost of its items, and
    /// expensive fields cost more. `usize::MAX` means no limit.
    pub complexity: usize,
    /// Approximate bytes of the answer.
    pub answer_bytes: usize,
    /// Directives on one field.
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

/// Levels of selections that validation follows, including fragments.
const SELECTIONS: usize = 32;

/// Builds the schema for an engine.
pub fn build(engine: Engine, limits: Limits) -> Schema {
    described()
        .limit_depth(limits.depth)
        .limit_recursive_depth(SELECTIONS)
        .limit_directives(limits.directives)
        .extension(Guard::new(engine.clone(), limits))
        .data(engine)
        .finish()
}

/// Returns the schema in the schema definition language.
pub fn sdl() -> String {
    let options = SDLExportOptions::new().include_specified_by().use_space_ident();
    described().finish().sdl_with_options(options)
}

/// Adds descriptions to types of the library that have none.
fn described() -> SchemaBuilder<Query, Mutation, Subscription> {
    async_graphql::Schema::build(Query::default(), Mutation::default(), Subscription)
        .override_output_type_description::<Part<Request>>("Page of requests.")
        .override_output_type_description::<Part<Plan>>("Page of plans.")
        .override_output_type_description::<Part<Execution>>("Page of executions.")
}

#[cfg(test)]
mod tests;
