//! Counts the executions that wait for a person or a signal, or are paused.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use shared::{
    clock::{Clock, Timestamp},
    execution::ExecutionState,
    store::{CountGroup, CountQuery, ExecutionCount, ExecutionFilter, Store},
};
use tokio::{
    sync::Mutex,
    time::{self, Instant},
};

use super::QUEUE_READ_TIMEOUT;

/// Minimum time between two counts, because a count reads each execution that waits.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(15);

pub(super) struct PersonProbe {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    last_counts: Mutex<Option<(Instant, Option<Vec<ExecutionCount>>)>>,
}

impl PersonProbe {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, last_counts: Mutex::default() }
    }

    /// Returns the metrics. Returns an empty text if the store fails or does not answer in time,
    /// because a zero would end an alert.
    pub(super) async fn format_metrics(&self) -> String {
        let counts = self.read_counts().await;
        counts.map(|counts| format_counts(&counts, self.clock.now())).unwrap_or_default()
    }

    async fn read_counts(&self) -> Option<Vec<ExecutionCount>> {
        let mut last_counts = self.last_counts.lock().await;
        if let Some((at, counts)) = &*last_counts
            && at.elapsed() < MIN_READ_INTERVAL
        {
            return counts.clone();
        }
        let query = CountQuery {
            filter: ExecutionFilter {
                is_root: true,
                needs_person: Some(true),
                ..ExecutionFilter::default()
            },
            groups: vec![CountGroup::State],
            first: ExecutionState::ALL.len(),
        };
        let read = time::timeout(QUEUE_READ_TIMEOUT, self.store.count_executions(&query)).await;
        let counts = read.ok().and_then(Result::ok);
        *last_counts = Some((Instant::now(), counts.clone()));
        counts
    }
}

fn format_counts(counts: &[ExecutionCount], now: Timestamp) -> String {
    let mut text =
        "# HELP faber_executions_needing_person Executions in the store that wait for a person \
                    or a signal, or are paused, by state. A sub-plan counts as its root.\n\
                    # TYPE faber_executions_needing_person gauge\n"
            .to_owned();
    for state in ExecutionState::ALL.into_iter().filter(|state| !state.is_finished()) {
        let state = state.as_str();
        let found = counts.iter().find(|count| count.keys.first().is_some_and(|key| key == state));
        let count = found.map_or(0, |found| found.count);
        // Ignores the result, because writing to a string never fails.
        let _ = writeln!(text, "faber_executions_needing_person{{state=\"{state}\"}} {count}");
    }
    let oldest = counts.iter().map(|count| count.first_at).min();
    let age = oldest.and_then(|at| (now - at).to_std().ok()).unwrap_or_default().as_secs_f64();
    text + &format!(
        "# HELP faber_executions_oldest_needing_person_seconds Time since the creation of the oldest of them.\n\
         # TYPE faber_executions_oldest_needing_person_seconds gauge\n\
         faber_executions_oldest_needing_person_seconds {age}\n"
    )
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use shared::store::memory::Memory;

    use super::*;

    #[test]
    fn each_state_has_a_number_and_the_oldest_execution_an_age() {
        let now = Timestamp::UNIX_EPOCH + TimeDelta::seconds(100);
        let count = |state: ExecutionState, count, second| ExecutionCount {
            keys: vec![state.as_str().to_owned()],
            count,
            first_at: Timestamp::UNIX_EPOCH + TimeDelta::seconds(second),
            last_at: now,
            sample: "exec_1_aaaaaaaaa".parse().unwrap(),
            p50: None,
            p95: None,
        };
        let counts = [count(ExecutionState::Waiting, 29, 40), count(ExecutionState::Paused, 2, 30)];
        let text = format_counts(&counts, now);
        for line in [
            "faber_executions_needing_person{state=\"WAITING\"} 29\n",
            "faber_executions_needing_person{state=\"PAUSED\"} 2\n",
            "faber_executions_needing_person{state=\"IN_PROGRESS\"} 0\n",
            "faber_executions_oldest_needing_person_seconds 70\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("COMPLETED"), "{text}");
    }

    #[tokio::test]
    async fn an_empty_store_reports_zeros() {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let clock: Arc<dyn Clock> = Arc::new(shared::clock::WallClock);
        let text = PersonProbe::new(store, clock).format_metrics().await;
        assert!(text.ends_with("faber_executions_oldest_needing_person_seconds 0\n"), "{text}");
    }
}
