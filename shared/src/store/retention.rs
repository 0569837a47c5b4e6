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
    /// `true` if another call would remove more data.
    pub more: bool,
}

/// Objects of one kind, for [`Store::remove_unused`](super::Store::remove_unused).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removable {
    Executions(Vec<ExecutionId>),
    Plans(Vec<PlanId>),
    Requests(Vec<RequestId>),
}

/// Returns the plans that a plan's steps execute. Pruning keeps these plans as long as it keeps the
/// plan.
pub fn sub_plans(plan: &Plan) -> Vec<PlanId> {
    let found: std::collections::BTreeSet<PlanId> = plan.sub_plans().collect();
    found.into_iter().collect()
}
