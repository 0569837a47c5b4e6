//! The GraphQL API: what anybody may ask, and nothing that is not there.
//!
//! Everything goes through the [`Engine`]. The doc comments of the types are the API's own
//! documentation; `graphql/schema.graphql` is its golden copy, so that a change of the API is a
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
use tokio_util::sync::CancellationToken;

pub(crate) use self::rounded::Written;
use crate::engine::Engine;

use self::{
    connection::Part, execution::Execution, guard::Guard, mutation::Mutation, plan::Plan,
    query::Query, request::Request, subscription::Subscription,
};

/// The schema, ready to execute operations.
pub type Schema = async_graphql::Schema<Query, Mutation, Subscription>;

/// The most that one operation may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Levels of fields. Introspection as `GraphiQL` asks for it has 15.
    pub depth: usize,
    /// What the fields cost together: one each, lists times their length, and what takes more work
    /// more. `usize::MAX` sets no limit.
    pub complexity: usize,
    /// About how many bytes the answer has.
    pub answer_bytes: usize,
    /// Directives on one field.
    pub directives: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 20, complexity: 150_000, answer_bytes: 64 << 20, directives: 8 }
    }
}

/// Cancelled when the client of an operation has gone. A long operation then ends early.
#[derive(Clone, Debug, Default)]
pub struct ClientGone(pub CancellationToken);

/// Levels of selections, fragments included, that validation walks through.
const SELECTIONS: usize = 32;

/// Makes the schema.
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

/// Describes what comes from a library without a description.
fn described() -> SchemaBuilder<Query, Mutation, Subscription> {
    async_graphql::Schema::build(Query::default(), Mutation::default(), Subscription)
        .override_output_type_description::<Part<Request>>("A part of a list of requests.")
        .override_output_type_description::<Part<Plan>>("A part of a list of plans.")
        .override_output_type_description::<Part<Execution>>("A part of a list of executions.")
}

#[cfg(test)]
mod tests;
