use std::time::Duration;

use shared::limits;

use crate::call_limits::CurrentCallLimits;

#[derive(Clone, Debug)]
pub struct Options {
    /// Lifetime of the worker's lease. After that, other workers claim the executions of the
    /// worker.
    pub lease: Duration,
    /// Interval between scans of the store if no hint wakes the worker. Also the maximum of most
    /// retry delays.
    pub poll: Duration,
    /// An execution that will wait longer than this is parked: the worker gives up its ownership,
    /// and the execution is claimed again when it is due or a command arrives. Also the time for
    /// which a parent that waits for a child stays in memory.
    pub park_after: Duration,
    pub executions: usize,
    pub cancel_grace: Duration,
    /// Longest time that a call waits until its toolset is connected.
    pub connect: Duration,
    pub output_bytes: usize,
    /// Number of retries of a failed append. If all of them fail, the driver gives up the execution
    /// for now.
    pub store_tries: u32,
    /// Longest time that a draining worker waits for running steps.
    pub drain: Duration,
    /// The rules that limit calls. The store counts the calls of all nodes together.
    pub calls: CurrentCallLimits,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: limits::LEASE_TIME,
            poll: limits::POLL_INTERVAL,
            park_after: limits::PARK_AFTER,
            executions: limits::EXECUTIONS,
            cancel_grace: limits::CANCEL_GRACE,
            connect: Duration::from_secs(30),
            output_bytes: limits::OUTPUT_BYTES,
            store_tries: 20,
            drain: Duration::from_secs(10),
            calls: CurrentCallLimits::default(),
        }
    }
}
