//! The integration tests: one binary, so that they link once.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod api;
mod cli;
mod commands;
mod confine;
mod crash;
mod crowd;
mod docs;
mod embed;
mod golden;
mod mcp;
mod modes;
mod mongod;
mod nodes;
mod protocol;
mod reference;
mod repeat_guard;
mod replay;
mod servers;
mod simulation;
mod stored;
mod stores;
mod structure;
mod supervised;
mod torture;
mod web;
