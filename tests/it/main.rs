//! The integration tests: one binary, so that they link once.

mod api;
mod cli;
mod commands;
mod crash;
mod golden;
mod mcp;
mod mongod;
mod protocol;
mod replay;
mod simulation;
mod stores;
mod supervised;
