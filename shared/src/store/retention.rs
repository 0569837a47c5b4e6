//! Types and rules of pruning, shared by all stores.

use crate::{
    id::{ExecutionId, PlanId, RequestId},
    plan::Plan,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    pub executions: usize,
    pub plans: usize,
    pub requests: usize,
    /// Set if there is more to remove.
    pub more: bool,
}

/// Objects of one kind, for [`Store::remove_unused`](super::Store::remove_unused).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removable {
    Executions(Vec<ExecutionId>),
    Plans(Vec<PlanId>),
    Requests(Vec<RequestId>),
}

/// Returns the plans that a plan's steps execute. They stay as long as the plan does.
///
/// Stores record them when a plan is stored, so that pruning does not read plans.
pub fn sub_plans(plan: &Plan) -> Vec<PlanId> {
    let found: std::collections::BTreeSet<PlanId> = plan.sub_plans().collect();
    found.into_iter().collect()
}
