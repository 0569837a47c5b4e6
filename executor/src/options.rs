//! How a worker works: every limit in one place, each with its default.

use std::{sync::Arc, time::Duration};

use shared::limits;

use crate::limits::CallLimits;

/// How a worker works.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long it may be silent before others take its executions.
    pub lease: Duration,
    /// How often it looks for work when nobody wakes it.
    pub poll: Duration,
    /// An execution that only waits, and for longer than this, leaves the memory.
    pub park_after: Duration,
    /// Executions in memory at once.
    pub executions: usize,
    /// How long running tools have, once told to stop.
    pub cancel_grace: Duration,
    /// How long a call waits for a toolset that is still connecting.
    pub connect: Duration,
    /// The most bytes of one output.
    pub output_bytes: usize,
    /// How often a driver asks a failing store before it gives the execution up for a while.
    pub store_tries: u32,
    /// How long running steps have to end when the worker is told to.
    pub drain: Duration,
    /// Limits on calls that every node shares.
    pub calls: Arc<CallLimits>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: limits::LEASE,
            poll: limits::POLL,
            park_after: limits::PARK_AFTER,
            executions: limits::EXECUTIONS,
            cancel_grace: limits::CANCEL_GRACE,
            connect: Duration::from_secs(30),
            output_bytes: limits::OUTPUT_BYTES,
            store_tries: 20,
            drain: Duration::from_secs(10),
            calls: Arc::default(),
        }
    }
}
