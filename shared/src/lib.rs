//! The domain model and the traits of the stores. This crate does not know planners, executors or
//! GraphQL.

#![warn(missing_docs, reason = "programs that embed Faber import these items")]

pub mod actor;
pub mod blob;
pub mod clock;
#[expect(missing_docs, reason = "only other crates of Faber import it")]
pub mod condition;
pub mod diagnostic;
pub mod event;
pub mod execution;
pub mod glob;
pub mod hex;
pub mod id;
pub mod json;
pub mod labels;
#[expect(missing_docs, reason = "only other crates of Faber import it")]
pub mod limits;
#[expect(missing_docs, reason = "only other crates of Faber import it")]
pub mod metrics;
pub mod placed_error;
pub mod plan;
pub mod request;
#[expect(missing_docs, reason = "only other crates of Faber import it")]
pub mod schema;
#[expect(missing_docs, reason = "only other crates of Faber import it")]
pub mod sealed;
pub mod secret_file;
#[expect(missing_docs, reason = "only other crates of Faber import it")]
pub mod store;
#[expect(missing_docs, reason = "only other crates of Faber import it")]
pub mod template;
pub mod tool;
#[expect(missing_docs, reason = "only other crates of Faber import it")]
pub mod trace;
