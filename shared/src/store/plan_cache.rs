//! Plans that were written or read lately. A plan never changes, so a copy of it is never stale. But
//! it may be removed, so nobody trusts a copy for long without a look whether it is still there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::{Duration, Instant};

use crate::{id::PlanId, plan::Plan};

/// The most plans that are kept.
const PLANS: usize = 256;
/// The most bytes of JSON that the kept plans have together; in memory they are a few times that.
const BYTES: usize = 64 << 20;
/// How long a plan may be used without a look whether it is still there.
const TRUST: Duration = Duration::from_mins(1);
/// A plan that nobody asked for in this time leaves the memory: a large one takes hundreds of megabytes.
const IDLE: Duration = Duration::from_mins(1);

/// A few plans, those that were asked for last.
#[derive(Debug, Default)]
pub struct PlanCache {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    plans: BTreeMap<PlanId, Entry>,
    bytes: usize,
    asked: u64,
}

#[derive(Debug)]
struct Entry {
    plan: Arc<Plan>,
    bytes: usize,
    asked: u64,
    asked_at: Instant,
    seen: Instant,
}

/// What the cache has of a plan.
#[derive(Debug)]
pub enum Cached {
    /// A copy that may be used.
    Fresh(Arc<Plan>),
    /// A copy that may be used if the store still has the plan.
    Old(Arc<Plan>),
    /// Nothing.
    Unknown,
}

impl PlanCache {
    /// Returns what there is of a plan.
    pub fn get(&self, id: PlanId) -> Cached {
        let mut kept = self.kept();
        kept.asked += 1;
        let asked = kept.asked;
        let Some(entry) = kept.plans.get_mut(&id) else { return Cached::Unknown };
        entry.asked = asked;
        entry.asked_at = Instant::now();
        let plan = Arc::clone(&entry.plan);
        if entry.seen.elapsed() > TRUST { Cached::Old(plan) } else { Cached::Fresh(plan) }
    }

    /// Notes whether the store still had a plan a moment ago, and returns its copy if so.
    pub fn seen(&self, plan: Arc<Plan>, is_there: bool) -> Option<Arc<Plan>> {
        let mut kept = self.kept();
        if !is_there {
            kept.forget(plan.id());
            return None;
        }
        if let Some(entry) = kept.plans.get_mut(&plan.id()) {
            entry.seen = Instant::now();
        }
        Some(plan)
    }

    /// Forgets plans that nobody asked for in a while. A worker calls it with each heartbeat.
    pub fn evict_idle(&self) {
        let mut kept = self.kept();
        let idle = kept.plans.iter().filter(|(_, entry)| entry.asked_at.elapsed() > IDLE);
        let idle: Vec<PlanId> = idle.map(|(id, _)| *id).collect();
        for id in idle {
            kept.forget(id);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a plan of so many bytes, and forgets those that nobody asked for the longest.
    pub fn put(&self, plan: &Arc<Plan>, bytes: usize) {
        if bytes > BYTES {
            return;
        }
        let mut kept = self.kept();
        kept.asked += 1;
        let (asked, now) = (kept.asked, Instant::now());
        let entry = Entry { plan: Arc::clone(plan), bytes, asked, asked_at: now, seen: now };
        kept.forget(plan.id());
        kept.bytes += bytes;
        kept.plans.insert(plan.id(), entry);
        kept.shrink();
    }
}

impl Kept {
    fn shrink(&mut self) {
        while self.plans.len() > PLANS || self.bytes > BYTES {
            let Some(oldest) = self.plans.iter().min_by_key(|(_, it)| it.asked) else { return };
            let id = *oldest.0;
            self.forget(id);
        }
    }

    fn forget(&mut self, id: PlanId) {
        if let Some(gone) = self.plans.remove(&id) {
            self.bytes -= gone.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(n: usize) -> Arc<Plan> {
        let json = json!({
            "about": {
                "id": format!("plan_{n}_aaaaaaaaa"), "request": "req_1_aaaaaaaaa", "version": 1,
                "query": "q", "planner": "explicit", "created_at": 0,
            },
            "steps": [{ "id": "a", "tool": "flow.noop", "parameters": {}, "policy": {} }],
        });
        Arc::new(Plan::from_json(&json.to_string()).unwrap())
    }

    fn has(cache: &PlanCache, plan: &Plan) -> bool {
        matches!(cache.get(plan.id()), Cached::Fresh(_))
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_is_forgotten() {
        let cache = PlanCache::default();
        let [asked, idle] = [1, 2].map(plan);
        cache.put(&asked, 1);
        cache.put(&idle, 1);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(has(&cache, &asked));
        tokio::time::advance(Duration::from_secs(30)).await;
        cache.evict_idle();
        assert!(!matches!(cache.get(asked.id()), Cached::Unknown));
        assert!(matches!(cache.get(idle.id()), Cached::Unknown));
        assert_eq!(cache.kept().bytes, 1);
    }

    #[test]
    fn the_least_asked_for_is_forgotten() {
        let cache = PlanCache::default();
        let plans: Vec<_> = (0..=PLANS).map(plan).collect();
        for plan in &plans[..PLANS] {
            cache.put(plan, 1);
        }
        assert!(has(&cache, &plans[0]));
        cache.put(&plans[PLANS], 1);
        assert!(has(&cache, &plans[0]));
        assert!(!has(&cache, &plans[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_is_not_trusted_for_ever() {
        let cache = PlanCache::default();
        let plan = plan(1);
        cache.put(&plan, 1);
        tokio::time::advance(TRUST).await;
        assert!(has(&cache, &plan));
        tokio::time::advance(Duration::from_millis(1)).await;
        let Cached::Old(copy) = cache.get(plan.id()) else { panic!("it may have been removed") };
        assert!(cache.seen(copy, true).is_some_and(|it| Arc::ptr_eq(&it, &plan)));
        assert!(has(&cache, &plan), "it was there a moment ago");
        assert!(cache.seen(Arc::clone(&plan), false).is_none());
        assert!(matches!(cache.get(plan.id()), Cached::Unknown), "it was removed");
        assert_eq!(cache.kept().bytes, 0);
    }

    #[test]
    fn large_plans_make_room() {
        let cache = PlanCache::default();
        let (one, other) = (plan(1), plan(2));
        cache.put(&one, BYTES);
        cache.put(&other, BYTES);
        assert!(!has(&cache, &one));
        assert!(has(&cache, &other));
        cache.put(&one, BYTES + 1);
        assert!(!has(&cache, &one));
    }
}
