//! The GraphQL API, the server and the command line.

pub mod access;
mod agent;
mod bench;
pub mod blog_mcp;
pub mod cli;
pub mod config;
mod document;
pub mod embedded;
pub mod engine;
mod health;
mod local_engine;
mod mcp_server;
mod retention;
pub mod schema;
pub mod server;
pub mod store;
pub mod web;
