//! Plans that were read lately. A plan never changes, so a copy of it is never stale. But it may be
//! removed, so nobody trusts a copy for long.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::time::{Duration, Instant};

use crate::{id::PlanId, plan::Plan};

/// The most plans that are kept.
const PLANS: usize = 256;
/// The most bytes of JSON that the kept plans have together; in memory they are a few times that.
const BYTES: usize = 64 << 20;
/// How long a plan may be used without a look whether it is still there.
const TRUST: Duration = Duration::from_mins(1);

/// A few plans, those that were asked for last.
#[derive(Debug, Default)]
pub(super) struct PlanCache {
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
    read: Instant,
}

impl PlanCache {
    /// Returns a plan if it is there.
    pub(super) fn get(&self, id: PlanId) -> Option<Arc<Plan>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.asked += 1;
        let asked = kept.asked;
        let entry = kept.plans.get_mut(&id)?;
        if entry.read.elapsed() > TRUST {
            return None;
        }
        entry.asked = asked;
        Some(Arc::clone(&entry.plan))
    }

    /// Keeps a plan of so many bytes, and forgets those that nobody asked for the longest.
    pub(super) fn put(&self, plan: &Arc<Plan>, bytes: usize) {
        if bytes > BYTES {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.asked += 1;
        let entry =
            Entry { plan: Arc::clone(plan), bytes, asked: kept.asked, read: Instant::now() };
        kept.bytes += bytes;
        if let Some(before) = kept.plans.insert(plan.id(), entry) {
            kept.bytes -= before.bytes;
        }
        kept.shrink();
    }
}

impl Kept {
    fn shrink(&mut self) {
        while self.plans.len() > PLANS || self.bytes > BYTES {
            let Some(oldest) = self.plans.iter().min_by_key(|(_, it)| it.asked) else { return };
            let id = *oldest.0;
            if let Some(gone) = self.plans.remove(&id) {
                self.bytes -= gone.bytes;
            }
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

    #[test]
    fn the_least_asked_for_is_forgotten() {
        let cache = PlanCache::default();
        let plans: Vec<_> = (0..=PLANS).map(plan).collect();
        for plan in &plans[..PLANS] {
            cache.put(plan, 1);
        }
        assert!(cache.get(plans[0].id()).is_some());
        cache.put(&plans[PLANS], 1);
        assert!(cache.get(plans[0].id()).is_some());
        assert!(cache.get(plans[1].id()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_is_not_trusted_for_ever() {
        let cache = PlanCache::default();
        let plan = plan(1);
        cache.put(&plan, 1);
        tokio::time::advance(TRUST).await;
        assert!(cache.get(plan.id()).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(cache.get(plan.id()).is_none(), "it may have been removed");
        cache.put(&plan, 1);
        assert!(cache.get(plan.id()).is_some());
    }

    #[test]
    fn large_plans_make_room() {
        let cache = PlanCache::default();
        let (one, other) = (plan(1), plan(2));
        cache.put(&one, BYTES);
        cache.put(&other, BYTES);
        assert!(cache.get(one.id()).is_none());
        assert!(cache.get(other.id()).is_some());
        cache.put(&one, BYTES + 1);
        assert!(cache.get(one.id()).is_none());
    }
}
