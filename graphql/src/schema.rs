//! The GraphQL API: what anybody may ask, and nothing that is not there.
//!
//! Everything goes through the [`Engine`]. The doc comments of the types are the API's own
//! documentation; `graphql/schema.graphql` is its golden copy, so that a change of the API is a
//! visible difference.

mod connection;
mod drawing;
mod error;
mod event;
mod execution;
mod guard;
mod input;
mod loaders;
mod mutation;
mod plan;
mod query;
mod request;
mod request_events;
mod scalar;
mod step;
mod subscription;
mod timeline;
mod tool;

use async_graphql::SDLExportOptions;

use crate::engine::Engine;

use self::{guard::Guard, mutation::Mutation, query::Query, subscription::Subscription};

/// The schema, ready to execute operations.
pub type Schema = async_graphql::Schema<Query, Mutation, Subscription>;

/// The most that one operation may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Levels of fields. Introspection as `GraphiQL` asks for it has 15.
    pub depth: usize,
    /// What the fields cost together: one each, lists times their length.
    pub complexity: usize,
    /// Levels of selections, fragments included, and of brackets in the text.
    pub nesting: usize,
    /// Directives on one field.
    pub directives: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 20, complexity: 100_000, nesting: 128, directives: 8 }
    }
}

/// Levels of selections, fragments included, that validation walks through.
const SELECTIONS: usize = 32;

/// Makes the schema.
pub fn build(engine: Engine, limits: Limits) -> Schema {
    async_graphql::Schema::build(Query, Mutation, Subscription)
        .limit_depth(limits.depth)
        .limit_complexity(limits.complexity)
        .limit_recursive_depth(SELECTIONS)
        .limit_directives(limits.directives)
        .extension(Guard::new(engine.clone(), limits.nesting))
        .data(engine)
        .finish()
}

/// Returns the schema in the schema definition language.
pub fn sdl() -> String {
    let options = SDLExportOptions::new().include_specified_by().use_space_ident();
    async_graphql::Schema::new(Query, Mutation, Subscription).sdl_with_options(options)
}

#[cfg(test)]
mod tests;
