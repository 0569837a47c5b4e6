//! What is over and old goes, a part at a time.

use std::time::Duration;

use shared::{
    blob,
    clock::{Clock, Timestamp},
    store::{Pruned, Store, StoreError},
};

use super::{Engine, EngineError, forget_queries};

/// How much is removed at once: little enough that nobody waits for it.
const BATCH: usize = 100;
/// How many such parts one question removes.
const PARTS: usize = 10;

impl Engine {
    /// Removes what is over and older than `age`: a thousand or so of it. Says whether there is
    /// more.
    pub async fn prune(&self, age: Duration) -> Result<Pruned, EngineError> {
        let before = before(&*self.clock, age);
        let mut all = Pruned::default();
        for _ in 0..PARTS {
            let some = prune_some(&*self.store, before).await?;
            all.executions += some.executions;
            all.plans += some.plans;
            all.requests += some.requests;
            all.more = some.more;
            if !some.more {
                break;
            }
        }
        Ok(all)
    }
}

/// Removes a part of what is over and old; with the last, the blobs whose executions are gone and
/// what was learned about queries that nobody asks any more.
pub(crate) async fn prune_some(store: &dyn Store, before: Timestamp) -> Result<Pruned, StoreError> {
    let some = store.prune(before, BATCH).await?;
    if !some.more {
        blob::forget(store, before).await?;
        forget_queries(store, before).await?;
    }
    Ok(some)
}

/// Returns the moment that lies so long ago.
pub(crate) fn before(clock: &dyn Clock, age: Duration) -> Timestamp {
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

    /// A clock of a later day.
    #[derive(Debug)]
    struct Later;

    impl Clock for Later {
        fn now(&self) -> Timestamp {
            WallClock.now() + chrono::TimeDelta::days(1)
        }
    }

    #[tokio::test]
    async fn queries_that_were_learned_from_go_with_requests() {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let tools = json!({ "s.t": { "well": 1.0, "failed": 0.0 } });
        let kind = |query: &str, at: Timestamp| json!({ "query": query, "at": at, "tools": tools });
        let kinds = [kind("old", WallClock.now()), kind("new", Later.now())];
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
            kinds.iter().map(|it| it["query"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let hour = Duration::from_hours(1);
        prune_some(&*store, before(&WallClock, hour)).await.unwrap();
        assert_eq!(queries().await, ["old", "new"]);
        prune_some(&*store, before(&Later, hour)).await.unwrap();
        assert_eq!(queries().await, ["new"]);
    }
}
