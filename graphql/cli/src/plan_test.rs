//! `faber test`: executes plans with mocked tools in virtual time, and compares what happened with
//! what a file expects.
//!
//! Each test has a store in memory, the real engine and a real worker. Their runtime has paused
//! time, which jumps to the next timer whenever all tasks are idle. So a retry after an hour takes
//! no time. A toolbox of mocks stands in the place of the real tools.

mod answers;
mod expectation;
pub(crate) mod file;
mod mocks;
pub(crate) mod plans;
pub(crate) mod report;
pub(crate) mod schema;
mod world;

pub(crate) use self::world::run_tests;

use serde_json::Value;
use shared::execution::ExecutionState;

/// A call of a mocked tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MockCall {
    pub(crate) tool: String,
    pub(crate) step: String,
    pub(crate) parameters: Value,
}

/// The result of one test.
#[derive(Clone, Debug)]
pub(crate) struct TestResult {
    pub(crate) name: String,
    /// Differences from the expectation, and calls without a mock. Empty if the test passed.
    pub(crate) failures: Vec<String>,
    /// `None` if the execution did not start.
    pub(crate) state: Option<ExecutionState>,
    pub(crate) calls: Vec<MockCall>,
    /// The virtual time from the start to the end of the test.
    pub(crate) virtual_ms: i64,
    /// The real time.
    pub(crate) took: std::time::Duration,
}

impl TestResult {
    pub(crate) fn has_passed(&self) -> bool {
        self.failures.is_empty()
    }
}
