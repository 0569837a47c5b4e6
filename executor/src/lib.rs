//! The engine: the machine decides, drivers record and act, workers claim executions.

pub mod call;
pub mod call_limits;
pub mod control;
mod driver;
mod lease;
pub mod machine;
pub mod options;
mod permits;
pub mod replan;
mod required_tools;
pub mod worker;
mod worker_handle;

pub use driver::telemetry::for_each_attempt;
pub use required_tools::can_continue;
