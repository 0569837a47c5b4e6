//! Toolsets of the configuration and the store.
//!
//! [`registry`] decides which sets exist. [`sources`] connects each set to its source: an MCP
//! server, an OpenAPI or GraphQL service, documents, commands, or built-in tools.

mod checked_output;
pub mod command;
pub mod http;
pub mod registry;
pub mod sources;
mod template;
