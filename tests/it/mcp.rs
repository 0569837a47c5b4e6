//! MCP servers: official ones, the demo, and misbehaving ones.

pub(crate) mod conformance;
mod demo;
mod http_server;
mod misbehaving_http_server;
mod misbehaving_server;
mod official_over_http;
mod official_servers;
mod old_server;
mod older_transport;
mod progress;
mod roots;
