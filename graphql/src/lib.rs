//! Who is asking: the GraphQL API, the server, the command line.

pub mod blog_mcp;
pub mod cli;
pub mod engine;
<<<<<<< HEAD
pub mod schema;
pub mod server;
=======
pub mod config;
>>>>>>> 4cb63cf (graphql: the command line (in progress))
