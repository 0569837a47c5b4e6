//! What may be removed, said once, so that every store keeps the same.

use crate::{id::PlanId, plan::Plan};

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// So many executions.
    pub executions: usize,
    /// So many plans.
    pub plans: usize,
    /// So many requests.
    pub requests: usize,
    /// Whether there is more to remove.
    pub more: bool,
}

/// Returns the plans that steps of a plan execute: they stay as long as it does.
///
/// Stores write them down when a plan is put, and never read plans to find out.
pub fn sub_plans(plan: &Plan) -> Vec<PlanId> {
    let found: std::collections::BTreeSet<PlanId> = plan.sub_plans().collect();
    found.into_iter().collect()
}
