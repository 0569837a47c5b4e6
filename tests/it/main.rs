//! Integration tests.

mod commands;
mod mcp;
mod mongod;
mod protocol;
mod stores;
mod supervised;
