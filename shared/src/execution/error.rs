//! Errors of a log that cannot be replayed.

use super::Phase;
use crate::id::{PlanId, Seq, StepId};

/// An event that cannot follow the events before it. The log is corrupt.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("the log is empty")]
    Empty,
    /// The log does not start with `created`.
    #[error("the log begins with `{0}`, not with `created`")]
    NotCreated(&'static str),
    #[error("the log is of `{expected}`, not of `{found}`")]
    WrongPlan {
        /// The plan that the log names.
        expected: PlanId,
        found: PlanId,
    },
    #[error("expected event {expected}, found event {found}")]
    Gap { expected: Seq, found: Seq },
    /// The plan does not have the event's step.
    #[error("the plan has no step `{0}`")]
    UnknownStep(StepId),
    /// The event is not possible in the step's state.
    #[error("step `{step}` is {state}, so `{event}` cannot happen")]
    IllegalStep { step: StepId, state: &'static str, event: &'static str },
    /// The event is not possible in the execution's phase.
    #[error("the execution is {phase:?}, so `{event}` cannot happen")]
    Illegal { phase: Phase, event: &'static str },
}
