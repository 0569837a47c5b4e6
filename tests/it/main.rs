//! The integration tests. All are in one binary, because linking a binary is slow.

#![expect(clippy::unwrap_used, reason = "a failed test panics with its place")]

mod api;
mod cli;
mod command_tools;
mod confine;
mod confined_modes;
mod connection_limits;
mod crash;
mod docs;
mod embed;
mod fuzz;
mod golden;
mod harness;
mod mcp;
mod mongod;
mod nodes;
mod packages;
mod prometheus;
mod protocol;
mod proxies;
mod reference;
mod repeat_guard;
mod replay;
mod servers;
mod sign_in;
mod simulation;
mod stored;
mod stores;
mod structure;
mod supervised;
mod torture;
mod web;
