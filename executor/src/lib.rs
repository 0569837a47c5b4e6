//! What happens next: the machine, drivers, workers and the tools that they call.

pub mod ahead;
pub mod blobs;
mod cache;
pub mod call;
pub mod confine;
pub mod control;
mod driver;
mod lease;
pub mod limits;
pub mod machine;
mod needs;
pub mod net;
pub mod onward;
pub mod options;
mod permits;
pub mod registry;
pub mod secret;
pub mod sources;
pub mod tool;
pub mod toolbox;
pub mod usage;
pub mod worker;

pub use needs::can_go_on;
