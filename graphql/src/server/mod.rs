//! The transport of `faber serve`: GraphQL over HTTP, WebSockets and server-sent events.
//!
//! It serves any [`Executor`](async_graphql::Executor).
//!
//! | module | job |
//! | --- | --- |
//! | `serve`, `task_sender` | accepts connections and owns every task |
//! | `connections`, `bodies`, `answer_stream` | limits connections |
//! | `tls` | performs handshakes with a replaceable certificate |
//! | `guard`, `hosts` | checks `Host`, `Origin` and peer, and answers preflights |
//! | `path_prefix` | removes the path prefix of a proxy |
//! | `entry`, `bearer` | identifies the caller by its token |
//! | `http`, `negotiate`, `params`, `reply` | handles one HTTP request |
//! | `operation`, `executor` | executes an operation and contains panics |
//! | `sign_in` | identifies callers by an OpenID provider |
//! | `sse` | streams an operation as events |
//! | `traced_request` | reads trace contexts, and makes spans of requests and operations |
//! | `ws` | handles both WebSocket subprotocols |
//! | `pages`, `metrics` | routes, health checks and metrics |
//! | `options`, `app`, `peer` | options, shared state, and addresses of callers |
//! | `refusal`, `refusal_log` | rejects requests, and logs that |

mod answer_stream;
mod app;
mod bearer;
mod bodies;
mod connections;
mod entry;
mod executor;
mod guard;
mod hosts;
mod http;
mod metrics;
mod negotiate;
mod operation;
mod options;
mod pages;
mod params;
mod path_prefix;
mod peer;
mod refusal;
mod refusal_log;
mod reply;
mod serve;
mod sign_in;
mod sse;
mod task_sender;
mod tls;
mod traced_request;
mod ws;

pub use app::Caller;
pub use hosts::{AllowedHost, AllowedOrigin, InvalidAllowedHost, InvalidAllowedOrigin};
pub use options::{Hooks, MetricsSource, Readiness, ServerOptions, UnknownPathHandler};
#[cfg(test)]
pub(crate) use path_prefix::OWN_SEGMENTS;
pub use path_prefix::{InvalidPathPrefix, PathPrefix};
pub use serve::serve;
pub use tls::{InvalidTlsIdentity, Tls, TlsIdentity};
