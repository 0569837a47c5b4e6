//! Makes toolsets from the configuration, the store, and the sources that these name.
//!
//! [`registry`] decides which sets there are. [`sources`] connects each of them to its source: an
//! MCP server, an OpenAPI or GraphQL service, documents, commands, or the tools of Faber itself.

pub mod command;
pub mod http;
pub mod registry;
pub mod sources;
mod template;
