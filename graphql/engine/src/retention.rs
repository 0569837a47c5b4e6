//! Prunes finished executions and audit entries that are older than the setting `retention`, at
//! regular intervals while a process runs.

mod passes;
mod policy;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use shared::{
    actor::Actor,
    blob,
    clock::Clock,
    store::{AuditAction, AuditEntry, AuditTarget, Pruned, Store, StoreError},
};
use tokio::time;

use self::passes::RetentionPasses;
pub use self::policy::{RetentionAges, RetentionPolicy, RetentionRule};
use crate::{prune_batch, record_entry, selection::learning::forget_queries, time_before};

/// Pause between two batches, so that the store can do other work.
const BATCH_PAUSE: Duration = Duration::from_millis(50);
const POLL_INTERVAL: Duration = Duration::from_mins(10);
/// Number of audit entries that are removed at once. After this number, the store can do other
/// work.
const AUDIT_BATCH_LEN: usize = 500;

#[derive(Debug, Default)]
pub struct Retention {
    executions: AtomicU64,
    plans: AtomicU64,
    requests: AtomicU64,
    audit_entries: AtomicU64,
}

impl Retention {
    /// At each interval, removes executions, plans, requests and audit entries that are older than
    /// `policy` allows. Never returns.
    pub async fn prune_forever(
        &self,
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        policy: impl Into<RetentionPolicy>,
    ) {
        let policy = policy.into();
        let audit_age = policy.audit;
        let mut passes = RetentionPasses::new(policy);
        loop {
            let pruned = self.prune_executions(&*store, &*clock, &mut passes).await;
            if let Err(err) = pruned.and(self.prune_audit(&*store, &*clock, audit_age).await) {
                tracing::warn!(%err, "cannot remove old executions and audit entries now");
            }
            time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn prune_executions(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        passes: &mut RetentionPasses,
    ) -> Result<(), StoreError> {
        let mut total = Pruned::default();
        let pruned = self.prune_all(store, clock, passes, &mut total).await;
        let Pruned { executions, plans, requests, .. } = total;
        if executions + plans + requests > 0 {
            let (actor, action) = (Arc::new(Actor::faber()), AuditAction::PRUNE);
            let detail = json!({ "executions": executions, "plans": plans, "requests": requests });
            let target = AuditTarget::default();
            record_entry(store, AuditEntry::new(clock.now(), actor, action, target, detail)).await;
        }
        pruned
    }

    /// Removes old audit entries in parts. The audit log does not record the removal, because it
    /// would get an entry at each interval.
    async fn prune_audit(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        age: Option<Duration>,
    ) -> Result<(), StoreError> {
        let Some(age) = age else { return Ok(()) };
        loop {
            let before = time_before(clock, age);
            let removed = store.remove_audit_entries(before, AUDIT_BATCH_LEN).await?;
            self.audit_entries.fetch_add(removed as u64, Ordering::Relaxed);
            if removed < AUDIT_BATCH_LEN {
                return Ok(());
            }
            time::sleep(BATCH_PAUSE).await;
        }
    }

    /// Adds the numbers of removed objects to `total`, even if a later batch fails.
    async fn prune_all(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        passes: &mut RetentionPasses,
        total: &mut Pruned,
    ) -> Result<(), StoreError> {
        let Some(age) = passes.policy().single_age() else {
            return self.run_passes(store, clock, passes, total).await;
        };
        loop {
            let pruned = prune_batch(store, time_before(clock, age)).await?;
            self.add_counts(pruned, total);
            if !pruned.more {
                return Ok(());
            }
            time::sleep(BATCH_PAUSE).await;
        }
    }

    async fn run_passes(
        &self,
        store: &dyn Store,
        clock: &dyn Clock,
        passes: &mut RetentionPasses,
        total: &mut Pruned,
    ) -> Result<(), StoreError> {
        let ages = passes.policy().all_ages();
        let Some((shortest, longest)) = ages.first().zip(ages.last()) else { return Ok(()) };
        let mut has_removed = passes.begin_round(clock.now());
        while let Some(pruned) = passes.run_page(store, clock).await? {
            self.add_counts(pruned, total);
            if pruned.executions + pruned.plans + pruned.requests > 0 {
                has_removed = true;
                time::sleep(BATCH_PAUSE).await;
            }
        }
        if has_removed {
            blob::remove_old_blobs(store, time_before(clock, *shortest)).await?;
        }
        let before = time_before(clock, *longest);
        forget_queries(store, before).await?;
        store.prune(before, 0).await.map(drop)
    }

    fn add_counts(&self, pruned: Pruned, total: &mut Pruned) {
        total.executions += pruned.executions;
        total.plans += pruned.plans;
        total.requests += pruned.requests;
        for (count, n) in [
            (&self.executions, pruned.executions),
            (&self.plans, pruned.plans),
            (&self.requests, pruned.requests),
        ] {
            count.fetch_add(n as u64, Ordering::Relaxed);
        }
    }

    pub fn format_metrics(&self) -> String {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "# HELP faber_pruned_total Objects that this process removed because of their age.\n\
             # TYPE faber_pruned_total counter\n\
             faber_pruned_total{{kind=\"execution\"}} {}\n\
             faber_pruned_total{{kind=\"plan\"}} {}\n\
             faber_pruned_total{{kind=\"request\"}} {}\n\
             faber_pruned_total{{kind=\"audit\"}} {}\n",
            read(&self.executions),
            read(&self.plans),
            read(&self.requests),
            read(&self.audit_entries)
        )
    }
}

#[cfg(test)]
mod tests {
    use shared::{
        clock::{Timestamp, WallClock},
        id::RequestId,
        request::Request,
        store::{AuditFilter, Page, memory::Memory},
    };

    use super::*;

    #[derive(Debug)]
    struct OneDayLater;

    impl Clock for OneDayLater {
        fn now(&self) -> Timestamp {
            WallClock.now() + chrono::TimeDelta::days(1)
        }
    }

    async fn store_with_request() -> (Arc<dyn Store>, RequestId) {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let created_at = WallClock.now();
        let id = RequestId::draw(created_at);
        store.put_request(&Request::new(id, "q".to_owned(), created_at)).await.unwrap();
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
            () = retention.prune_forever(Arc::clone(&store), Arc::new(OneDayLater), hour) => (),
            () = gone => (),
        }
        let figures = retention.format_metrics();
        assert!(figures.contains("faber_pruned_total{kind=\"request\"} 1"), "{figures}");
    }

    #[tokio::test(start_paused = true)]
    async fn retention_is_recorded_and_removes_old_audit_entries_in_parts() {
        let (store, _) = store_with_request().await;
        let actor = Arc::new(Actor::token("ops"));
        let entry = |at| {
            let (action, target) = (AuditAction::EXECUTE, AuditTarget::default());
            AuditEntry::new(at, Arc::clone(&actor), action, target, json!({}))
        };
        let old: Vec<_> = (0..=2 * AUDIT_BATCH_LEN).map(|_| entry(WallClock.now())).collect();
        store.put_audit_entries(&old).await.unwrap();
        let young = entry(OneDayLater.now());
        store.put_audit_entries(std::slice::from_ref(&young)).await.unwrap();
        let retention = Retention::default();
        let hour = Duration::from_hours(1);
        let policy = RetentionPolicy { audit: Some(hour), ..RetentionPolicy::from(hour) };
        let all = AuditFilter::default();
        let done = async {
            while store.count_audit_entries(&all).await.unwrap() > 2 {
                time::sleep(BATCH_PAUSE).await;
            }
        };
        tokio::select! {
            () = retention.prune_forever(Arc::clone(&store), Arc::new(OneDayLater), policy) => (),
            () = done => (),
        }
        let page = Page::first_items(10);
        let left = store.list_audit_entries(&all, &page).await.unwrap().items;
        let left: Vec<AuditEntry> = left.into_iter().map(|(_, entry)| entry).collect();
        let pruned = left.iter().find(|entry| entry.id != young.id).unwrap();
        assert_eq!((&*pruned.actor, &pruned.action), (&Actor::faber(), &AuditAction::PRUNE));
        assert_eq!(json!(pruned.detail), json!({ "executions": 0, "plans": 0, "requests": 1 }));
        let figures = retention.format_metrics();
        assert!(figures.contains("faber_pruned_total{kind=\"audit\"} 1001"), "{figures}");
    }
}
