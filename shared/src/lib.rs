//! What is and what happens.
//!
//! Identifiers, tools, templates, plans, the events of an execution and the fold over them, and
//! the stores that keep it all. Everything else in Faber is written in terms of this crate; this
//! crate knows nothing of planners, executors or GraphQL.

pub mod blob;
pub mod clock;
pub mod condition;
pub mod diagnostic;
pub mod event;
pub mod execution;
pub mod glob;
pub mod id;
pub mod json;
pub mod limits;
pub mod plan;
pub mod request;
pub mod schema;
pub mod store;
pub mod template;
pub mod tool;
