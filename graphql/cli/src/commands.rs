//! The commands, and the code that several of them share.

pub(crate) mod add_toolset;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod debug;
pub(crate) mod doctor;
mod doubts;
pub(crate) mod failed_sets;
pub(crate) mod follow;
pub(crate) mod list;
pub(crate) mod login;
pub(crate) mod manual;
mod missing_tools;
pub(crate) mod models;
pub(crate) mod plan;
mod progress_line;
pub(crate) mod rekey;
pub(crate) mod run;
mod select;
pub(crate) mod serve;
pub(crate) mod settle;
mod standstill;
pub(crate) mod steer;
pub(crate) mod toolkit;
pub(crate) mod tools;
