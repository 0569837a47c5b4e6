//! Who is asking: the GraphQL API, the server, the command line.

pub mod engine;
