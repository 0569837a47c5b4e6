//! Logs that cannot be what they say.

use super::Phase;
use crate::id::{PlanId, Seq, StepId};

/// An event that cannot follow the events before it: the log is corrupt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// There is no log.
    #[error("the log is empty")]
    Empty,
    /// A log begins with `created`.
    #[error("the log begins with `{0}`, not with `created`")]
    NotCreated(&'static str),
    /// The plan at hand is not the one that the log names.
    #[error("the log is of `{expected}`, not of `{found}`")]
    WrongPlan {
        /// The plan that the log names.
        expected: PlanId,
        /// The plan at hand.
        found: PlanId,
    },
    /// Positions have no gaps.
    #[error("expected event {expected}, found event {found}")]
    Gap {
        /// The position that should be next.
        expected: Seq,
        /// The position that is.
        found: Seq,
    },
    /// The event names a step the plan does not have.
    #[error("the plan has no step `{0}`")]
    UnknownStep(StepId),
    /// The step cannot go from its state to the one the event describes.
    #[error("step `{step}` is {state}, so `{event}` cannot happen")]
    IllegalStep {
        /// The step.
        step: StepId,
        /// Its state.
        state: &'static str,
        /// The event.
        event: &'static str,
    },
    /// The execution cannot go from its phase to the one the event describes.
    #[error("the execution is {phase:?}, so `{event}` cannot happen")]
    Illegal {
        /// The phase.
        phase: Phase,
        /// The event.
        event: &'static str,
    },
}
