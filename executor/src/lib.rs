//! What happens next: the machine, drivers, workers and the tools that they call.

pub mod tool;
pub mod toolbox;
