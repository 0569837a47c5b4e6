//! MCP servers: the official ones, the demo, and one that misbehaves.

mod demo;
mod hostile;
mod official;
mod progress;
mod remote;
mod roots;
mod trickster;
mod unreliable;
