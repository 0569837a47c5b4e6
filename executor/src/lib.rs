//! What happens next: the machine, drivers, workers and the tools that they call.

mod cache;
pub mod call;
pub mod control;
mod driver;
mod lease;
pub mod limits;
pub mod machine;
mod needs;
pub mod onward;
pub mod options;
mod permits;
pub mod worker;

pub use needs::can_go_on;
