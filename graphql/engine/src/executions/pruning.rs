use std::time::Duration;

use shared::{
    blob,
    clock::{Clock, Timestamp},
    store::{Pruned, Store, StoreError},
};

use crate::selection::learning::forget_queries;

/// Number of executions in a batch. A larger batch would delay other writes to the store.
const BATCH_LEN: usize = 100;
const MAX_BATCHES: usize = 10;

/// Prunes up to about a thousand executions that finished more than `age` ago.
pub async fn prune(
    store: &dyn Store,
    clock: &dyn Clock,
    age: Duration,
) -> Result<Pruned, StoreError> {
    let before = time_before(clock, age);
    let mut all = Pruned::default();
    for _ in 0..MAX_BATCHES {
        let batch = prune_batch(store, before).await?;
        all.executions += batch.executions;
        all.plans += batch.plans;
        all.requests += batch.requests;
        all.more = batch.more;
        if !batch.more {
            break;
        }
    }
    Ok(all)
}

/// Prunes a batch. The last batch also removes old blobs without an execution, and lessons from old
/// queries.
pub async fn prune_batch(store: &dyn Store, before: Timestamp) -> Result<Pruned, StoreError> {
    let batch = store.prune(before, BATCH_LEN).await?;
    if !batch.more {
        blob::remove_old_blobs(store, before).await?;
        forget_queries(store, before).await?;
    }
    Ok(batch)
}

pub fn time_before(clock: &dyn Clock, age: Duration) -> Timestamp {
    let age = chrono::TimeDelta::from_std(age).unwrap_or(chrono::TimeDelta::MAX);
    clock.now().checked_sub_signed(age).unwrap_or(Timestamp::MIN_UTC)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use shared::{
        clock::WallClock,
        store::{Record, RecordKind, WriteCondition, memory::Memory},
    };

    use super::*;

    #[derive(Debug)]
    struct OneDayLater;

    impl Clock for OneDayLater {
        fn now(&self) -> Timestamp {
            WallClock.now() + chrono::TimeDelta::days(1)
        }
    }

    #[tokio::test]
    async fn pruning_removes_learned_queries_of_old_requests() {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let tools = json!({ "s.t": { "well": 1.0, "failed": 0.0 } });
        let kind = |query: &str, at: Timestamp| json!({ "query": query, "at": at, "tools": tools });
        let kinds = [kind("old", WallClock.now()), kind("new", OneDayLater.now())];
        let learned = json!({
            "until": null, "learned": planner::toolkit::learned::Learned::default(),
            "outcomes": { "since": WallClock.now(), "kinds": kinds },
        });
        let (kind, name) = (RecordKind::Learned, "transitions".to_owned());
        let record = Record { kind, name, value: Arc::new(learned), at: WallClock.now() };
        store.put_record(&record, WriteCondition::Exists).await.unwrap();
        let queries = async || {
            let record = store.find_record(kind, &record.name).await.unwrap().unwrap();
            let kinds = record.value["outcomes"]["kinds"].as_array().unwrap().clone();
            kinds.iter().map(|kind| kind["query"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let hour = Duration::from_hours(1);
        prune_batch(&*store, time_before(&WallClock, hour)).await.unwrap();
        assert_eq!(queries().await, ["old", "new"]);
        prune_batch(&*store, time_before(&OneDayLater, hour)).await.unwrap();
        assert_eq!(queries().await, ["new"]);
    }
}
