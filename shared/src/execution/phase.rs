//! Two summaries of an execution: its phase, which the machine uses for its decisions, and its
//! state, which people see.

use serde::{Deserialize, Serialize};

use crate::event::Outcome;

/// The phase of an execution. Later phases come later in this list, and an execution never returns
/// to an earlier phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Steps start as they become ready.
    Open,
    /// A required step failed, or the execution failed as a whole. No further step starts, and
    /// running steps continue until they finish.
    Failing,
    /// The deadline passed. No further step starts, and running steps are stopped.
    Expired,
    /// Cancellation was requested. No further step starts, and running steps are stopped.
    Cancelling,
    /// Every step is finished, and the successful steps are being undone. The execution then ends
    /// with this outcome.
    Compensating(Outcome),
    /// The execution is finished.
    Finished(Outcome),
}

/// The state of an execution, as the API shows it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[expect(missing_docs, reason = "the other names need no comment")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionState {
    /// The execution has not started.
    #[default]
    Pending,
    /// The execution has started, and none of the other states applies.
    InProgress,
    Paused,
    /// Nothing runs. The execution waits for a person, a signal or the time of a retry.
    Waiting,
    Compensating,
    Completed,
    Failed,
    Cancelled,
}

impl ExecutionState {
    /// All states, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::InProgress,
        Self::Paused,
        Self::Waiting,
        Self::Compensating,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns `true` if the execution is finished.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Returns the name that the API and the stores use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::InProgress => "IN_PROGRESS",
            Self::Paused => "PAUSED",
            Self::Waiting => "WAITING",
            Self::Compensating => "COMPENSATING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }
}
