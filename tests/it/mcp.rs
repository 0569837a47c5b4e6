//! MCP servers: the official ones, the demo, and one that misbehaves.

mod antique;
pub(crate) mod conformance;
mod demo;
mod hostile;
mod official;
mod older;
mod progress;
mod remote;
mod roots;
mod trickster;
mod unreliable;
