//! Recently used plans. A plan never changes, but it can be removed, so an older copy is used only
//! after a check that the plan still exists.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::{Duration, Instant};

use crate::{id::PlanId, plan::Plan};

const MAX_PLANS: usize = 256;
/// Maximum bytes of JSON of all cached plans. In memory, plans need a few times as many bytes.
const MAX_CACHED_BYTES: usize = 64 << 20;
/// Time for which a copy is used without checking that the plan still exists.
const TRUST_TIME: Duration = Duration::from_mins(1);
/// Time after which an unused plan leaves the cache.
const IDLE_TIME: Duration = Duration::from_mins(1);
/// Minimum bytes of JSON of a large plan.
const LARGE_PLAN_BYTES: usize = 2 << 20;
/// Time after which an unused large plan leaves the cache. Running executions have a reference to
/// their plan, so only the next execution has to read the plan again.
const LARGE_PLAN_IDLE_TIME: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct PlanCache {
    cached: Mutex<CachedPlans>,
}

#[derive(Debug, Default)]
struct CachedPlans {
    plans: BTreeMap<PlanId, Entry>,
    bytes: usize,
    use_count: u64,
}

#[derive(Debug)]
struct Entry {
    plan: Arc<Plan>,
    bytes: usize,
    last_use: u64,
    last_used_at: Instant,
    confirmed_at: Instant,
}

impl Entry {
    fn is_idle(&self) -> bool {
        let most = if self.bytes < LARGE_PLAN_BYTES { IDLE_TIME } else { LARGE_PLAN_IDLE_TIME };
        self.last_used_at.elapsed() > most
    }
}

#[derive(Debug)]
pub enum Cached {
    Fresh(Arc<Plan>),
    /// A copy that can be used if the plan still exists in the store.
    Old(Arc<Plan>),
    Unknown,
}

impl PlanCache {
    pub fn get(&self, id: PlanId) -> Cached {
        let mut cached = self.lock_plans();
        cached.use_count += 1;
        let uses = cached.use_count;
        let Some(entry) = cached.plans.get_mut(&id) else { return Cached::Unknown };
        entry.last_use = uses;
        entry.last_used_at = Instant::now();
        let plan = Arc::clone(&entry.plan);
        if entry.confirmed_at.elapsed() > TRUST_TIME {
            Cached::Old(plan)
        } else {
            Cached::Fresh(plan)
        }
    }

    /// Records the result of a check in the store. Returns the copy if the plan still exists.
    pub fn confirm(&self, plan: Arc<Plan>, is_there: bool) -> Option<Arc<Plan>> {
        let mut cached = self.lock_plans();
        if !is_there {
            cached.remove_plan(plan.id());
            return None;
        }
        if let Some(entry) = cached.plans.get_mut(&plan.id()) {
            entry.confirmed_at = Instant::now();
        }
        Some(plan)
    }

    /// Drops plans that were not used for a while. Stores call this function when a worker renews
    /// its lease.
    pub fn evict_idle(&self) {
        let mut cached = self.lock_plans();
        let idle = cached.plans.iter().filter(|(_, entry)| entry.is_idle());
        let idle: Vec<PlanId> = idle.map(|(id, _)| *id).collect();
        for id in idle {
            cached.remove_plan(id);
        }
    }

    fn lock_plans(&self) -> MutexGuard<'_, CachedPlans> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a plan that is not larger than the cache, and drops the least recently used plans until
    /// the cache is within its limits.
    pub fn insert(&self, plan: &Arc<Plan>, bytes: usize) {
        if bytes > MAX_CACHED_BYTES {
            return;
        }
        let mut cached = self.lock_plans();
        cached.use_count += 1;
        let (uses, now) = (cached.use_count, Instant::now());
        let entry = Entry {
            plan: Arc::clone(plan),
            bytes,
            last_use: uses,
            last_used_at: now,
            confirmed_at: now,
        };
        cached.remove_plan(plan.id());
        cached.bytes += bytes;
        cached.plans.insert(plan.id(), entry);
        cached.evict_excess();
    }
}

impl CachedPlans {
    fn evict_excess(&mut self) {
        while self.plans.len() > MAX_PLANS || self.bytes > MAX_CACHED_BYTES {
            let Some((id, _)) = self.plans.iter().min_by_key(|(_, entry)| entry.last_use) else {
                return;
            };
            let id = *id;
            self.remove_plan(id);
        }
    }

    fn remove_plan(&mut self, id: PlanId) {
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
    async fn a_plan_that_is_not_used_is_evicted() {
        let cache = PlanCache::default();
        let [asked, idle] = [1, 2].map(plan);
        cache.insert(&asked, 1);
        cache.insert(&idle, 1);
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(has(&cache, &asked));
        tokio::time::advance(Duration::from_secs(30)).await;
        cache.evict_idle();
        assert!(!matches!(cache.get(asked.id()), Cached::Unknown));
        assert!(matches!(cache.get(idle.id()), Cached::Unknown));
        assert_eq!(cache.lock_plans().bytes, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_idle_plan_is_evicted_within_seconds() {
        let cache = PlanCache::default();
        let [large, small] = [1, 2].map(plan);
        cache.insert(&large, LARGE_PLAN_BYTES);
        cache.insert(&small, LARGE_PLAN_BYTES - 1);
        tokio::time::advance(Duration::from_secs(3)).await;
        cache.evict_idle();
        assert!(has(&cache, &large));
        tokio::time::advance(Duration::from_secs(6)).await;
        cache.evict_idle();
        assert!(matches!(cache.get(large.id()), Cached::Unknown));
        assert!(has(&cache, &small));
    }

    #[test]
    fn a_full_cache_evicts_the_least_recently_used_plan() {
        let cache = PlanCache::default();
        let plans: Vec<_> = (0..=MAX_PLANS).map(plan).collect();
        for plan in &plans[..MAX_PLANS] {
            cache.insert(plan, 1);
        }
        assert!(has(&cache, &plans[0]));
        cache.insert(&plans[MAX_PLANS], 1);
        assert!(has(&cache, &plans[0]));
        assert!(!has(&cache, &plans[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_cached_plan_must_be_confirmed_by_the_store() {
        let cache = PlanCache::default();
        let plan = plan(1);
        cache.insert(&plan, 1);
        tokio::time::advance(TRUST_TIME).await;
        assert!(has(&cache, &plan));
        tokio::time::advance(Duration::from_millis(1)).await;
        let Cached::Old(copy) = cache.get(plan.id()) else { panic!("it may have been removed") };
        assert!(cache.confirm(copy, true).is_some_and(|copy| Arc::ptr_eq(&copy, &plan)));
        assert!(has(&cache, &plan), "the store had it a moment ago");
        assert!(cache.confirm(Arc::clone(&plan), false).is_none());
        assert!(matches!(cache.get(plan.id()), Cached::Unknown), "it was removed");
        assert_eq!(cache.lock_plans().bytes, 0);
    }

    #[test]
    fn a_large_plan_evicts_others_until_it_fits() {
        let cache = PlanCache::default();
        let (one, other) = (plan(1), plan(2));
        cache.insert(&one, MAX_CACHED_BYTES);
        cache.insert(&other, MAX_CACHED_BYTES);
        assert!(!has(&cache, &one));
        assert!(has(&cache, &other));
        cache.insert(&one, MAX_CACHED_BYTES + 1);
        assert!(!has(&cache, &one));
    }
}
