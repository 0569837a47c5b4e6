//! MCP servers: the official ones, the demo, and one that misbehaves.

mod demo;
mod hostile;
mod official;
mod progress;
