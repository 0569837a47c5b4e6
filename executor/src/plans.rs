//! Plans that were used lately. Plans never change, so a copy is as good as the original.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use shared::{
    id::PlanId,
    plan::Plan,
    store::{Store, StoreError},
};

/// How many plans are kept.
const KEPT: usize = 64;
/// How many steps they may have in all.
const STEPS: usize = 200_000;

/// Plans that were used lately, the latest first.
#[derive(Debug, Default)]
pub struct Plans(Mutex<VecDeque<Arc<Plan>>>);

impl Plans {
    /// Returns a plan.
    pub async fn get(
        &self,
        store: &dyn Store,
        id: PlanId,
    ) -> Result<Option<Arc<Plan>>, StoreError> {
        if let Some(plan) = self.kept(id) {
            return Ok(Some(plan));
        }
        let plan = store.plan(id).await?;
        if let Some(plan) = &plan {
            self.keep(Arc::clone(plan));
        }
        Ok(plan)
    }

    /// Keeps a plan that will be used soon.
    pub fn keep(&self, plan: Arc<Plan>) {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.retain(|it| it.id() != plan.id());
        plans.push_front(plan);
        let mut steps = 0;
        let within = plans.iter().take(KEPT).take_while(|it| {
            steps += it.steps().len();
            steps <= STEPS
        });
        let within = within.count().max(1);
        plans.truncate(within);
    }

    fn kept(&self, id: PlanId) -> Option<Arc<Plan>> {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = plans.iter().position(|it| it.id() == id)?;
        let plan = plans.remove(at)?;
        plans.push_front(Arc::clone(&plan));
        Some(plan)
    }
}
