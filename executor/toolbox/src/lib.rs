//! Tools, and the toolbox of all tools that this process can call.

#![warn(missing_docs, reason = "programs that embed Faber import these items")]

pub mod blobs;
pub mod dispatch;
pub mod effect_rules;
pub mod flow;
pub mod progress;
mod tool;
pub mod tool_names;
mod toolbox;
mod usage;

/// The target of log lines about toolsets that fail or lack tools. Commands that report such sets
/// themselves do not show these lines.
pub const LOG_TARGET: &str = "faber::toolsets";

pub use tool::{Aside, StepCall, Tool, ToolContext, function};
pub use toolbox::{
    Listing, ReadyTool, SetExists, SetStatus, SourceTools, ToolLookup, ToolSet, Toolbox,
    WeakToolbox,
};
pub use usage::Meter;
