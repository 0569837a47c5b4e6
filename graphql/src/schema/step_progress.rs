use async_graphql::SimpleObject;
use shared::{execution::Items, tool};

use super::{scalar::to_int, step::ApiStepState};

/// Progress of an attempt, as its tool reports it.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Progress {
    /// Amount of work that is done, in a unit that the tool chooses.
    #[graphql(name = "progress")]
    done: f64,
    /// Total amount of work, in the unit of `progress`. Null if the tool does not know it.
    total: Option<f64>,
    /// Current activity, in words, at most 512 bytes.
    message: Option<String>,
}

impl From<&tool::Progress> for Progress {
    fn from(progress: &tool::Progress) -> Self {
        let message = progress.message.as_deref().map(ToOwned::to_owned);
        Self { done: progress.progress, total: progress.total, message }
    }
}

/// Number of items of a `forEach` list, by state.
#[derive(Clone, Copy, Debug, Default, SimpleObject)]
pub(super) struct ItemTally {
    /// Number of all items.
    total: i64,
    /// Items that have not started.
    pending: i64,
    /// Items that are running or will be retried.
    running: i64,
    /// Items that wait for a person or a signal.
    waiting: i64,
    /// Items that succeeded, including items that were compensated later.
    successful: i64,
    /// Items that failed.
    failed: i64,
    /// Items that did not run because another item failed.
    skipped: i64,
    /// Items that a cancellation stopped, or prevented from starting.
    cancelled: i64,
}

impl ItemTally {
    pub(super) fn of(items: &Items) -> Self {
        let mut tally = Self { total: to_int(items.as_slice().len()), ..Self::default() };
        for item in items.as_slice() {
            let place = match ApiStepState::of(item) {
                ApiStepState::Pending => &mut tally.pending,
                ApiStepState::Running | ApiStepState::Retrying => &mut tally.running,
                ApiStepState::Waiting => &mut tally.waiting,
                ApiStepState::Succeeded | ApiStepState::Compensated => &mut tally.successful,
                ApiStepState::Failed => &mut tally.failed,
                ApiStepState::Skipped => &mut tally.skipped,
                ApiStepState::Cancelled => &mut tally.cancelled,
            };
            *place += 1;
        }
        tally
    }
}
