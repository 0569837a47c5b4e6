use std::net::IpAddr;

/// The address of a connection. Every request has it as an extension.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);
