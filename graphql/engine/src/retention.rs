//! Prunes finished executions that are older than the setting `retention`, at regular intervals
//! while a process runs.

mod ages;
mod by_state;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shared::{
    blob,
    clock::Clock,
    store::{Pruned, Store, StoreError},
};
use tokio::time;

pub use self::ages::RetentionAges;
use self::by_state::StatePass;
use crate::{prune_batch, time_before};

/// Pause between two batches, so that the store can do other work.
const BATCH_PAUSE: Duration = Duration::from_millis(50);
const POLL_INTERVAL: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub struct Retention {
    executions: AtomicU64,
    plans: AtomicU64,
    requests: AtomicU64,
}

impl Retention {
    /// At each interval, prunes executions that are older than the age for their state. Never
    /// returns.
    pub async fn prune_forever(
        &self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ages: impl Into<RetentionAges>,
    ) {
        let ages = ages.into();
        loop {
            if let Err(err) = self.prune_all(&*store, &*clock, ages).await {
                tracing::warn!(%err, "cannot remove old executions now");
            }
            time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn prune_all(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        ages: RetentionAges,
    ) -> Result<(), StoreError> {
        if ages.uniform().is_none() {
            let mut pass = StatePass::new(ages);
            loop {
                let pruned = pass.run_page(store, clock).await?;
                self.count(pruned);
                if !pruned.more {
                    break;
                }
                if pruned.executions > 0 {
                    time::sleep(BATCH_PAUSE).await;
                }
            }
            if let Some(shortest) = ages.shortest() {
                blob::remove_old_blobs(store, time_before(clock, shortest)).await?;
            }
        }
        let Some(longest) = ages.longest() else { return Ok(()) };
        loop {
            let pruned = prune_batch(store, time_before(clock, longest)).await?;
            self.count(pruned);
            if !pruned.more {
                return Ok(());
            }
            time::sleep(BATCH_PAUSE).await;
        }
    }

    fn count(&self, pruned: Pruned) {
        for (total, n) in [
            (&self.executions, pruned.executions),
            (&self.plans, pruned.plans),
            (&self.requests, pruned.requests),
        ] {
            total.fetch_add(n as u64, Ordering::Relaxed);
        }
    }

    pub fn format_metrics(&self) -> String {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "# HELP faber_pruned_total Objects that this process removed because of their age.\n\
             # TYPE faber_pruned_total counter\n\
             faber_pruned_total{{kind=\"execution\"}} {}\n\
             faber_pruned_total{{kind=\"plan\"}} {}\n\
             faber_pruned_total{{kind=\"request\"}} {}\n",
            read(&self.executions),
            read(&self.plans),
            read(&self.requests)
        )
    }
}

#[cfg(test)]
mod tests {
    use shared::{
        clock::{Timestamp, WallClock},
        id::RequestId,
        request::Request,
        store::memory::Memory,
    };

    use super::*;

    #[derive(Debug)]
    struct OneYearLater;

    impl Clock for OneYearLater {
        fn now(&self) -> Timestamp {
            WallClock.now() + chrono::TimeDelta::days(1)
        }
    }

    async fn store_with_request() -> (Arc<dyn Store>, RequestId) {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let created_at = WallClock.now();
        let id = RequestId::draw(created_at);
        store.put_request(&Request { id, query: "q".to_owned(), created_at }).await.unwrap();
        (store, id)
    }

    #[tokio::test]
    async fn a_running_process_prunes_old_executions() {
        let (store, id) = store_with_request().await;
        let retention = Retention::default();
        let gone = async {
            while store.request(id).await.unwrap().is_some() {
                tokio::task::yield_now().await;
            }
        };
        let hour = Duration::from_hours(1);
        tokio::select! {
            () = retention.prune_forever(Arc::clone(&store), Arc::new(OneYearLater), hour) => (),
            () = gone => (),
        }
        let figures = retention.format_metrics();
        assert!(figures.contains("faber_pruned_total{kind=\"request\"} 1"), "{figures}");
    }
}
