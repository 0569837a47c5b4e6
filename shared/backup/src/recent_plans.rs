//! The plans that were written or read last. A reader has no memory for all plans of a store, so
//! the writer repeats a plan that the reader has dropped.

use std::{collections::VecDeque, sync::Arc};

use shared::{id::PlanId, plan::Plan};

const MAX_PLANS: usize = 256;
/// Maximum bytes of the plans as JSON, unless there is one plan only. A plan in memory is several
/// times as large.
const MAX_PLAN_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(crate) struct RecentPlans {
    plans: VecDeque<(Arc<Plan>, usize)>,
    bytes: usize,
}

impl RecentPlans {
    /// Adds a plan whose entry has `bytes`. Drops the oldest plans.
    pub(crate) fn add(&mut self, plan: Arc<Plan>, bytes: usize) {
        self.plans.push_back((plan, bytes));
        self.bytes += bytes;
        while self.plans.len() > MAX_PLANS || (self.bytes > MAX_PLAN_BYTES && self.plans.len() > 1)
        {
            self.bytes -= self.plans.pop_front().map_or(0, |(_, bytes)| bytes);
        }
    }

    pub(crate) fn find(&self, id: PlanId) -> Option<&Arc<Plan>> {
        let mut plans = self.plans.iter().rev().map(|(plan, _)| plan);
        plans.find(|plan| plan.id() == id)
    }
}
