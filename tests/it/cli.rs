//! The command line: the real binary, in a home of its own.

mod access;
mod begun;
mod bombs;
mod commands;
mod executions;
mod features;
mod findings;
pub(crate) mod home;
mod hostile;
mod interrupted;
mod large;
mod login;

mod mcp;
mod models;
mod outputs;
mod plans;
mod selection;
mod serving;
mod settling;
mod steering;
mod toolsets;
