//! The trait of all tools, and every tool that this process can call.
//!
//! [`Tool`] is the trait that all tools implement; [`function`] makes one of an async function. A
//! [`Toolbox`] holds the tools by set and tells the engine which of them can be called now.

pub mod blobs;
pub mod dispatch;
pub mod flow;
pub mod progress;
mod tool;
pub mod tool_names;
mod toolbox;
mod usage;

pub use tool::{Aside, StepCall, Tool, ToolContext, function};
pub use toolbox::{Found, Listing, ReadyTool, SetExists, SetStatus, ToolSet, Toolbox, WeakToolbox};
pub use usage::Meter;
