//! The integration tests: one binary, so that they link once.

mod commands;
mod mcp;
mod mongod;
mod protocol;
mod stores;
mod supervised;
