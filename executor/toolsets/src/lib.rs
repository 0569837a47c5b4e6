//! Toolsets of the configuration and the store: [`registry`] decides which sets exist, and
//! [`sources`] connects each set to its source.

mod checked_output;
pub mod command;
pub mod http;
pub mod registry;
pub mod sources;
mod template;
