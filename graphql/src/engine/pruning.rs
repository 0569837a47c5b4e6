//! What is over and old goes, a part at a time.

use std::time::Duration;

use shared::{
    blob,
    clock::{Clock, Timestamp},
    store::{Pruned, Store, StoreError},
};

use super::{Engine, EngineError};

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

/// Removes a part of what is over and old; with the last, the blobs whose executions are gone.
pub(crate) async fn prune_some(store: &dyn Store, before: Timestamp) -> Result<Pruned, StoreError> {
    let some = store.prune(before, BATCH).await?;
    if !some.more {
        blob::forget(store, before).await?;
    }
    Ok(some)
}

/// Returns the moment that lies so long ago.
pub(crate) fn before(clock: &dyn Clock, age: Duration) -> Timestamp {
    let age = chrono::TimeDelta::from_std(age).unwrap_or(chrono::TimeDelta::MAX);
    clock.now().checked_sub_signed(age).unwrap_or(Timestamp::MIN_UTC)
}
