//! What somebody who watches is told.

use shared::clock::Timestamp;

/// What somebody who watches is told.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum News {
    /// A step runs.
    Started {
        /// The step.
        step: String,
        /// Which try this is.
        attempt: u64,
        /// Since when.
        at: Option<Timestamp>,
    },
    /// A step says how far it is.
    Progress {
        /// The step.
        step: String,
        /// How far.
        far: Far,
    },
    /// A step is over, for now or for good.
    Ended {
        /// The step.
        step: String,
        /// How.
        how: How,
        /// How long it ran, if it did.
        took_ms: Option<f64>,
        /// What is worth knowing.
        detail: Option<String>,
        /// What makes it go on.
        next: Option<Next>,
    },
    /// These steps are as they were in the execution that is done again.
    Kept(Vec<String>),
    /// A step that waited may go on.
    Allowed {
        /// The step.
        step: String,
    },
    /// Something happened to the execution as a whole.
    Note(String),
}

impl News {
    /// Says in which execution of a tree it happened.
    pub(in crate::cli) fn within(self, prefix: &str) -> Self {
        let placed = |it: String| format!("{prefix}{it}");
        match self {
            Self::Started { step, attempt, at } => {
                Self::Started { step: placed(step), attempt, at }
            }
            Self::Progress { step, far } => Self::Progress { step: placed(step), far },
            Self::Ended { step, how, took_ms, detail, next } => {
                Self::Ended { step: placed(step), how, took_ms, detail, next }
            }
            Self::Kept(steps) => Self::Kept(steps.into_iter().map(placed).collect()),
            Self::Allowed { step } => Self::Allowed { step: placed(step) },
            Self::Note(note) => Self::Note(placed(note)),
        }
    }
}

/// How far a step is: by the items of its list that are over, or by its tool's own account.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::cli) struct Far {
    /// How much is done.
    pub(in crate::cli) done: f64,
    /// How much there is to do, where that is known.
    pub(in crate::cli) total: Option<f64>,
    /// What it is doing.
    pub(in crate::cli) message: Option<String>,
}

/// What makes a step go on that does not run now.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum Next {
    /// Its time.
    Attempt {
        /// Which try it will be.
        attempt: u64,
        /// When.
        at: Option<Timestamp>,
    },
    /// Somebody who enters this.
    Command(String),
}

/// How a step stands that does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum How {
    /// It returned.
    Succeeded,
    /// It failed for good.
    Failed,
    /// It failed and is tried again.
    Retrying,
    /// It will not run.
    Skipped,
    /// It was stopped.
    Cancelled,
    /// It waits for somebody.
    Waiting,
    /// It was undone.
    Compensated,
    /// It could not be undone.
    Stuck,
}
