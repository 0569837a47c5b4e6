//! The transport of `faber serve`: GraphQL over HTTP, WebSockets and server-sent events.
//!
//! Nothing here knows Faber's domain: it serves any [`Executor`](async_graphql::Executor). It is
//! written by hand because the stock handler fails a quarter of the audits of the GraphQL over
//! HTTP specification, closes WebSockets with the wrong codes, and lets any web page of the
//! user's browser talk to a server on this machine.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `serve`, `nursery` | who accepts connections and owns every task |
//! | `connections`, `bodies` | how many connections there may be, and which one gives way |
//! | `guard`, `hosts` | which `Host`, `Origin` and peer may talk to us |
//! | `entry` | who sends a request: its token |
//! | `http`, `negotiate`, `params`, `reply` | one request, one answer |
//! | `operation` | what a document does, and running it so that a panic stays inside |
//! | `sse` | an operation as a stream of events |
//! | `ws` | both WebSocket subprotocols |
//! | `pages`, `metrics` | health, figures |

mod answer_stream;
mod app;
mod bodies;
mod connections;
mod entry;
mod guard;
mod hosts;
mod http;
mod metrics;
mod negotiate;
mod nursery;
mod operation;
mod options;
mod pages;
mod params;
mod refusal;
mod reply;
mod serve;
mod sse;
mod ws;

pub use app::Caller;
pub use hosts::{AllowedHost, InvalidAllowedHost};
pub use options::{Elsewhere, Figures, Hooks, Readiness, ServerOptions};
pub use serve::serve;
