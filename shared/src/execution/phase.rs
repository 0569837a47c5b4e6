//! Where an execution is in its life, for the machine and for people.

use serde::{Deserialize, Serialize};

use crate::event::Outcome;

/// Where an execution is in its life. It only ever moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Steps start as they become ready.
    Open,
    /// A step failed that must not: no further step starts, running ones are awaited.
    Failing,
    /// The time is up: no further step starts, running ones are stopped.
    Expired,
    /// Someone asked it to stop: no further step starts, running ones are stopped.
    Cancelling,
    /// Every step is over, and what succeeded is undone. Then it ends so.
    Compensating(Outcome),
    /// Everything is over.
    Finished(Outcome),
}

/// What people call the state of an execution.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionState {
    /// Nobody has begun.
    #[default]
    Pending,
    /// Steps run, or are about to.
    InProgress,
    /// Somebody paused it.
    Paused,
    /// Nothing runs: only a person, a signal or a retry's time can go on.
    Waiting,
    /// What was done is undone.
    Compensating,
    /// It ended well.
    Completed,
    /// It ended badly.
    Failed,
    /// It was stopped.
    Cancelled,
}

impl ExecutionState {
    /// Every state, in the order of a life.
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

    /// Returns whether nothing more can happen.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Returns the word that the API and the stores use.
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
