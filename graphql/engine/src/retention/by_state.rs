//! Removes finished executions whose age depends on their state.
//!
//! A pass reads all finished executions, oldest first. It asks the store to remove the executions
//! that are old enough for their state, and then their plans and requests.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use shared::{
    clock::{Clock, Timestamp},
    id::{PlanId, RequestId},
    store::{ExecutionHead, HeadQuery, Pruned, Removable, Store, StoreError, sub_plans},
};

use super::RetentionAges;
use crate::time_before;

/// Number of executions that one page reads. The store removes them in smaller batches.
const PAGE_LEN: usize = 128;

/// A pass over all finished executions.
pub(super) struct StatePass {
    ages: RetentionAges,
    after: Timestamp,
}

impl StatePass {
    pub(super) fn new(ages: RetentionAges) -> Self {
        Self { ages, after: Timestamp::MIN_UTC }
    }

    /// Reads the next page, and removes its old executions. In the result, `more` is true if
    /// another page follows.
    pub(super) async fn run_page(
        &mut self,
        store: &dyn Store,
        clock: &dyn Clock,
    ) -> Result<Pruned, StoreError> {
        let Some(shortest) = self.ages.shortest() else { return Ok(Pruned::default()) };
        let (after, until) = (self.after, time_before(clock, shortest));
        let heads = store.find_heads(HeadQuery::Finished { after, until }, PAGE_LEN).await?;
        let is_old = |head: &&ExecutionHead| {
            let age = self.ages.of_state(head.state);
            let before = age.map(|age| time_before(clock, age));
            head.finished_at.zip(before).is_some_and(|(finished, before)| finished < before)
        };
        let old: Vec<&ExecutionHead> = heads.iter().filter(is_old).collect();
        let mut pruned = remove_with_documents(store, &old).await?;
        pruned.more = heads.len() == PAGE_LEN;
        self.after = next_position(after, heads.last().and_then(|head| head.finished_at));
        Ok(pruned)
    }
}

/// Returns the time after which the next page begins. `last` is the time at which the last
/// execution of this page finished.
///
/// Further executions can have finished at the time `last`, so the next page includes this time. If
/// all executions of the page finished at `last`, the next page begins after it, because otherwise
/// the pass would not advance.
fn next_position(after: Timestamp, last: Option<Timestamp>) -> Timestamp {
    let Some(last) = last else { return after };
    let before = last - TimeDelta::microseconds(1);
    if before > after { before } else { last }
}

async fn remove_with_documents(
    store: &dyn Store,
    heads: &[&ExecutionHead],
) -> Result<Pruned, StoreError> {
    if heads.is_empty() {
        return Ok(Pruned::default());
    }
    let ids = heads.iter().map(|head| head.execution).collect();
    let executions = store.remove_unused(&Removable::Executions(ids)).await?;
    let mut requests: BTreeSet<RequestId> = heads.iter().map(|head| head.request).collect();
    let candidates = find_plans(store, heads, &mut requests).await?;
    let candidates = Removable::Plans(candidates.into_iter().collect());
    let mut plans = 0;
    // A sub-plan becomes unused when the plan that executes it is removed, so each round removes
    // one level of sub-plans.
    loop {
        match store.remove_unused(&candidates).await? {
            0 => break,
            removed => plans += removed,
        }
    }
    let requests = Removable::Requests(requests.into_iter().collect());
    let requests = store.remove_unused(&requests).await?;
    Ok(Pruned { executions, plans, requests, more: false })
}

/// Returns the plans of executions with all sub-plans. Adds the requests of these plans to
/// `requests`.
async fn find_plans(
    store: &dyn Store,
    heads: &[&ExecutionHead],
    requests: &mut BTreeSet<RequestId>,
) -> Result<BTreeSet<PlanId>, StoreError> {
    let mut found: BTreeSet<PlanId> = heads.iter().map(|head| head.plan).collect();
    let mut waiting: Vec<PlanId> = found.iter().copied().collect();
    while let Some(id) = waiting.pop() {
        let plan = match store.plan(id).await {
            Ok(Some(plan)) => plan,
            // Ignores the sub-plans of a damaged plan, because they cannot be read. The plan itself
            // can be removed.
            Ok(None) | Err(StoreError::Corrupt { .. }) => continue,
            Err(err) => return Err(err),
        };
        requests.insert(plan.info().request);
        waiting.extend(sub_plans(&plan).into_iter().filter(|part| found.insert(*part)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_begins_with_the_last_time_of_a_page() {
        let at = |micros| Timestamp::from_timestamp_micros(micros).unwrap();
        assert_eq!(next_position(at(3), None), at(3));
        assert_eq!(next_position(at(3), Some(at(9))), at(8));
        assert_eq!(next_position(at(8), Some(at(9))), at(9), "otherwise it would stay");
    }
}
