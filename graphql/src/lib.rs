//! Who is asking: the GraphQL API, the server, the command line.

pub mod access;
mod agent;
pub mod blog_mcp;
pub mod cli;
pub mod config;
mod document;
pub mod embedded;
pub mod engine;
pub mod schema;
pub mod server;
pub mod store;
pub mod web;
