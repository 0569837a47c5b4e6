//! Tools, and the toolbox of all tools that this process can call.
//!
//! All tools implement [`Tool`]. [`function`] makes a tool from an async function. A [`Toolbox`]
//! holds the tools by set and knows which of them are available.

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
