//! Warns when the store does not confirm appends. An outage fails the appends of all executions, so
//! one log line reports many of them.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use shared::{id::ExecutionId, store::AppendError};
use tokio::time::Instant;
use tracing::warn;

const WARNING_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct FailedAppendLog(Mutex<FailedAppends>);

#[derive(Clone, Copy, Debug, Default)]
struct FailedAppends {
    /// The number of failed appends since the last warning.
    count: u64,
    warned_at: Option<Instant>,
}

impl FailedAppendLog {
    pub(crate) fn note_failure(&self, id: ExecutionId, err: &AppendError) {
        if let Some(appends) = self.count_failure(Instant::now()) {
            warn!(
                target: "faber::store",
                execution = %id,
                appends,
                %err,
                "the store did not confirm an append: Faber reads the log and offers the events again"
            );
        }
    }

    /// Counts a failed append. If a warning is due, returns the number since the last warning.
    fn count_failure(&self, now: Instant) -> Option<u64> {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failed.count += 1;
        if failed.warned_at.is_some_and(|at| now.duration_since(at) < WARNING_INTERVAL) {
            return None;
        }
        let count = failed.count;
        *failed = FailedAppends { count: 0, warned_at: Some(now) };
        Some(count)
    }
}

/// Returns `true` if the store did not confirm an append. A conflict is an answer of the store: another
/// worker was faster.
pub(crate) fn is_unconfirmed(result: &Result<(), AppendError>) -> bool {
    matches!(result, Err(AppendError::Store(_)))
}

#[cfg(test)]
mod tests {
    use shared::store::StoreError;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_failures_share_one_warning() {
        let log = FailedAppendLog::default();
        let start = Instant::now();
        let counts =
            [0, 1, 9, 10, 21].map(|second| log.count_failure(start + Duration::from_secs(second)));
        assert_eq!(counts, [Some(1), None, None, Some(3), Some(1)]);
    }

    #[test]
    fn a_conflict_is_an_answer_of_the_store() {
        let unavailable = StoreError::Unavailable("no primary".to_owned());
        assert!(is_unconfirmed(&Err(AppendError::Store(unavailable))));
        assert!(!is_unconfirmed(&Err(AppendError::Conflict)));
        assert!(!is_unconfirmed(&Ok(())));
    }
}
