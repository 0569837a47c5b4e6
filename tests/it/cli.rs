//! Tests of the command line: each test runs the real binary in a new folder.

mod access;
mod actors;
mod audit;
mod backups;
mod configuration;
mod doubts;
mod encryption;
mod executions;
mod expensive_schemas;
mod features;
mod findings;
mod interrupted;
mod large_requests;
mod lazy_toolsets;
mod login;
mod logs;
pub(crate) mod plain_http;
mod read_only_commands;
mod reload;
pub(crate) mod running_command;
mod terminal_output;
mod tls;
pub(crate) mod workspace;

mod confirmations;
mod large_outputs;
mod mcp;
mod metrics;
mod models;
mod plans;
mod questions;
mod selection;
mod serve_and_worker;
mod settle;
mod toolsets;
mod traces;
