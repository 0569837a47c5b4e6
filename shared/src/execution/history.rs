//! Facts of a log that explain an execution to people. No decision of the machine needs them.

use std::sync::Arc;

use chrono::TimeDelta;

use super::stored_size::StoredSize;
use crate::{
    actor::Actor,
    clock::Timestamp,
    event::Claimed,
    id::{Seq, StepNumber, Task},
    tool::ToolError,
};

/// Maximum number of takeovers that are kept, so that a log of many claims stays small in memory.
const MAX_TAKEOVERS: usize = 32;

/// Minimum time without events that a [`Handover`] explains.
const MIN_IDLE_TIME: TimeDelta = TimeDelta::seconds(1);

/// The position and time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    /// The time by the writer's clock. It comes first, because lists are sorted by it.
    pub at: Timestamp,
    /// The position in the log.
    pub seq: Seq,
}

/// Facts of a log that explain the state of an execution.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Claims by another worker while calls were running, oldest first. Only the first
    /// [`MAX_TAKEOVERS`] are kept.
    pub takeovers: Vec<Takeover>,
    /// Claims by another worker after a time without events that no wait explains, oldest first.
    /// Only the first [`MAX_TAKEOVERS`] are kept.
    pub handovers: Vec<Handover>,
    /// The first request to cancel, with its reason.
    pub cancelled: Option<(Occurrence, Option<String>)>,
    /// The actor of the first request to cancel. `None` for events of earlier versions.
    pub cancelled_by: Option<Arc<Actor>>,
    /// The first failure of a step, an item, or the execution as a whole. Heads show it.
    pub first_error: Option<Box<FirstError>>,
    /// The failure of the execution as a whole.
    pub failed: Option<(Occurrence, ToolError)>,
    /// The time when the deadline passed.
    pub deadline_passed: Option<Occurrence>,
    /// The last pause, even if the execution was resumed since.
    pub paused: Option<Occurrence>,
    /// The actor of the last pause. `None` for events of earlier versions.
    pub paused_by: Option<Arc<Actor>>,
    /// The time when waits were shortened last, and the number of milliseconds by which a clock had
    /// been ahead.
    pub shortened: Option<(Occurrence, u64)>,
    /// The last event.
    pub last: Option<Occurrence>,
    pub(super) stored_size: StoredSize,
}

/// The first failure of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// The step that failed. `None` if the execution failed as a whole.
    pub step: Option<StepNumber>,
    /// The error, with the code and the message.
    pub error: ToolError,
}

/// A claim by another worker while calls were running.
///
/// Without running calls, the log cannot tell a lost worker from a worker that released the
/// execution.
#[derive(Clone, Debug)]
pub struct Takeover {
    /// The claim.
    pub claim: Occurrence,
    /// The worker that was lost.
    pub lost: Claimed,
    /// The last event before the claim.
    pub lost_at: Timestamp,
    /// The worker that continued.
    pub new: Claimed,
    /// The calls that were interrupted.
    pub interrupted: Vec<Task>,
}

/// A claim by another worker while a step could have started and no call was running.
///
/// The log cannot tell whether the earlier worker was lost, lacked a tool, or waited for a limit on
/// calls.
#[derive(Clone, Debug)]
pub struct Handover {
    /// The claim.
    pub claim: Occurrence,
    /// The worker that recorded nothing more.
    pub before: Claimed,
    /// The last event of that worker.
    pub idle_since: Timestamp,
    /// The worker that continued.
    pub after: Claimed,
}

impl History {
    pub(super) fn add_handover(&mut self, handover: Handover) {
        let idle_time = handover.claim.at - handover.idle_since;
        if self.handovers.len() < MAX_TAKEOVERS && idle_time >= MIN_IDLE_TIME {
            self.handovers.push(handover);
        }
    }

    pub(super) fn add_error(&mut self, step: Option<StepNumber>, error: &ToolError) {
        self.first_error.get_or_insert_with(|| Box::new(FirstError { step, error: error.clone() }));
    }

    pub(super) fn add_takeover(&mut self, takeover: Takeover) {
        if self.takeovers.len() < MAX_TAKEOVERS && !takeover.interrupted.is_empty() {
            self.takeovers.push(takeover);
        }
    }
}
