//! Removes finished executions if their maximum age depends on their state or their labels. Each
//! age has its own pass over an index, so an execution is read once for each age, however long it
//! is kept.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use chrono::TimeDelta;
use shared::{
    clock::{Clock, Timestamp},
    id::{ExecutionId, PlanId, RequestId},
    store::{
        Cursor, ExecutionHead, HeadQuery, Listing, Page, PlanFilter, Pruned, Removable,
        RequestFilter, Store, StoreError, sub_plans,
    },
};

use super::RetentionPolicy;
use crate::time_before;

/// Number of objects in a page. The store removes them in smaller batches.
const PAGE_LEN: usize = 128;
const FULL_PASS_INTERVAL: TimeDelta = TimeDelta::days(1);
/// Maximum number of executions that the store did not remove and that the next round tries to
/// remove again. If the store kept more executions, the next full pass finds them.
const MAX_REFUSED: usize = 4_096;

pub(super) struct RetentionPasses {
    policy: RetentionPolicy,
    /// For each age, the time until which the pass has read the finished executions.
    read_until_by_age: BTreeMap<Duration, Timestamp>,
    plan_pass: DocumentPass,
    request_pass: DocumentPass,
    refused_heads: BTreeMap<ExecutionId, ExecutionHead>,
    heads_to_retry: Vec<ExecutionHead>,
    full_pass_at: Option<Timestamp>,
    remaining_parts: VecDeque<RoundPart>,
}

#[derive(Clone, Copy, Debug)]
enum RoundPart {
    Refused,
    Executions(Duration),
    Plans(Duration),
    Requests(Duration),
}

/// A pass over plans or requests. It begins with the newest documents that are old enough, and ends
/// at the documents that the previous pass has read.
#[derive(Debug, Default)]
struct DocumentPass {
    /// Earlier passes have read the documents that were created before this time.
    done_before: Option<Timestamp>,
    running_pass: Option<RunningPass>,
}

#[derive(Clone, Debug)]
struct RunningPass {
    before: Timestamp,
    after: Cursor,
}

/// Documents that are removed if nothing refers to them. `has_more` is true if the pass has another
/// page.
struct DocumentPage<Id> {
    ids: Vec<Id>,
    has_more: bool,
}

impl RetentionPasses {
    pub(super) fn new(policy: RetentionPolicy) -> Self {
        Self {
            policy,
            read_until_by_age: BTreeMap::new(),
            plan_pass: DocumentPass::default(),
            request_pass: DocumentPass::default(),
            refused_heads: BTreeMap::new(),
            heads_to_retry: Vec::new(),
            full_pass_at: None,
            remaining_parts: VecDeque::new(),
        }
    }

    pub(super) fn policy(&self) -> &RetentionPolicy {
        &self.policy
    }

    /// Begins a round of all passes. Returns `true` if the round is a full pass.
    pub(super) fn begin_round(&mut self, now: Timestamp) -> bool {
        let is_full = self.full_pass_at.is_none_or(|at| now >= at);
        if is_full {
            self.full_pass_at = Some(now + FULL_PASS_INTERVAL);
            self.read_until_by_age.clear();
            self.refused_heads.clear();
            (self.plan_pass, self.request_pass) =
                (DocumentPass::default(), DocumentPass::default());
        }
        self.heads_to_retry = std::mem::take(&mut self.refused_heads).into_values().collect();
        let ages = self.policy.all_ages();
        self.remaining_parts = [RoundPart::Refused].into();
        self.remaining_parts.extend(ages.iter().copied().map(RoundPart::Executions));
        self.remaining_parts.extend(ages.last().copied().map(RoundPart::Plans));
        self.remaining_parts.extend(ages.last().copied().map(RoundPart::Requests));
        is_full
    }

    /// Reads the next page of the round, and removes its objects that are old enough. Returns
    /// `None` at the end of the round.
    pub(super) async fn run_page(
        &mut self,
        store: &dyn Store,
        clock: &dyn Clock,
    ) -> Result<Option<Pruned>, StoreError> {
        let Some(part) = self.remaining_parts.front().copied() else { return Ok(None) };
        let pruned = match part {
            RoundPart::Refused => {
                let rest = self.heads_to_retry.len().saturating_sub(PAGE_LEN);
                let heads = self.heads_to_retry.split_off(rest);
                let pruned = self.remove_executions(store, heads).await?;
                Pruned { more: rest > 0, ..pruned }
            }
            RoundPart::Executions(age) => self.prune_page_of_executions(store, clock, age).await?,
            RoundPart::Plans(age) => {
                let DocumentPage { ids, has_more: more } =
                    self.plan_pass.read_plans(store, time_before(clock, age)).await?;
                let plans = remove_plans(store, ids).await?;
                Pruned { plans, more, ..Pruned::default() }
            }
            RoundPart::Requests(age) => {
                let DocumentPage { ids, has_more: more } =
                    self.request_pass.read_requests(store, time_before(clock, age)).await?;
                let requests = store.remove_unused(&Removable::Requests(ids)).await?;
                Pruned { requests, more, ..Pruned::default() }
            }
        };
        if !pruned.more {
            self.remaining_parts.pop_front();
        }
        Ok(Some(pruned))
    }

    async fn prune_page_of_executions(
        &mut self,
        store: &dyn Store,
        clock: &dyn Clock,
        age: Duration,
    ) -> Result<Pruned, StoreError> {
        let after = self.read_until_by_age.get(&age).copied().unwrap_or(Timestamp::MIN_UTC);
        let until = time_before(clock, age);
        let heads = store.find_heads(HeadQuery::Finished { after, until }, PAGE_LEN).await?;
        let last = heads.last().and_then(|head| head.finished_at);
        let next = last.map_or(until.max(after), |last| next_position(after, last));
        let old = heads.into_iter().filter(|head| self.policy.age_of(head) == Some(age));
        let pruned = self.remove_executions(store, old.collect()).await?;
        self.read_until_by_age.insert(age, next);
        // A page with damaged rows is shorter than other pages, so only an empty page means the
        // end.
        Ok(Pruned { more: last.is_some(), ..pruned })
    }

    async fn remove_executions(
        &mut self,
        store: &dyn Store,
        heads: Vec<ExecutionHead>,
    ) -> Result<Pruned, StoreError> {
        let pruned = remove_executions_with_documents(store, &heads).await?;
        if pruned.executions == heads.len() {
            return Ok(pruned);
        }
        for head in heads {
            if self.refused_heads.len() < MAX_REFUSED && store.head(head.execution).await?.is_some()
            {
                self.refused_heads.insert(head.execution, head);
            }
        }
        Ok(pruned)
    }
}

impl DocumentPass {
    async fn read_plans(
        &mut self,
        store: &dyn Store,
        before: Timestamp,
    ) -> Result<DocumentPage<PlanId>, StoreError> {
        let page = self.next_page(before);
        let found = store.list_plans(&PlanFilter::default(), &page).await?;
        Ok(self.finish_page(found, |plan| plan.id))
    }

    async fn read_requests(
        &mut self,
        store: &dyn Store,
        before: Timestamp,
    ) -> Result<DocumentPage<RequestId>, StoreError> {
        let page = self.next_page(before);
        let found = store.list_requests(&RequestFilter::default(), &page).await?;
        Ok(self.finish_page(found, |request| request.id))
    }

    fn next_page(&mut self, before: Timestamp) -> Page {
        let first = || RunningPass { before, after: Cursor { at: before, id: String::new() } };
        let running = self.running_pass.get_or_insert_with(first);
        Page { after: Some(running.after.clone()), ..Page::first_items(PAGE_LEN) }
    }

    fn finish_page<T, Id>(
        &mut self,
        Listing { items, has_more }: Listing<T>,
        id_of: impl Fn(T) -> Id,
    ) -> DocumentPage<Id> {
        let end = self.done_before.unwrap_or(Timestamp::MIN_UTC);
        let len = items.len();
        let last = items.last().map(|(cursor, _)| cursor.clone());
        let new = items.into_iter().take_while(|(cursor, _)| cursor.at >= end);
        let ids: Vec<Id> = new.map(|(_, document)| id_of(document)).collect();
        let more = has_more && ids.len() == len && last.is_some();
        match (last.filter(|_| more), &mut self.running_pass) {
            (Some(last), Some(running)) => running.after = last,
            (_, running) => {
                let ended = running.take().map(|running| running.before);
                self.done_before = self.done_before.max(ended);
            }
        }
        DocumentPage { ids, has_more: more }
    }
}

/// Returns the time after which the next page begins. Further executions can have finished at the
/// time `last`, at which the last execution of this page finished.
fn next_position(after: Timestamp, last: Timestamp) -> Timestamp {
    let before = last - TimeDelta::microseconds(1);
    if before > after { before } else { last }
}

async fn remove_executions_with_documents(
    store: &dyn Store,
    heads: &[ExecutionHead],
) -> Result<Pruned, StoreError> {
    if heads.is_empty() {
        return Ok(Pruned::default());
    }
    let ids = heads.iter().map(|head| head.execution).collect();
    let executions = store.remove_unused(&Removable::Executions(ids)).await?;
    let mut requests: BTreeSet<RequestId> = heads.iter().map(|head| head.request).collect();
    let candidates = find_plans(store, heads, &mut requests).await?;
    let plans = remove_plans(store, candidates.into_iter().collect()).await?;
    let requests = Removable::Requests(requests.into_iter().collect());
    let requests = store.remove_unused(&requests).await?;
    Ok(Pruned { executions, plans, requests, more: false })
}

/// Removes plans without references. A sub-plan becomes unused when the plan that executes it is
/// removed, so each turn of the loop removes one level of sub-plans.
async fn remove_plans(store: &dyn Store, ids: Vec<PlanId>) -> Result<usize, StoreError> {
    let candidates = Removable::Plans(ids);
    let mut plans = 0;
    loop {
        match store.remove_unused(&candidates).await? {
            0 => return Ok(plans),
            removed => plans += removed,
        }
    }
}

/// Returns the plans of executions with all sub-plans. Adds the requests of these plans to
/// `requests`.
async fn find_plans(
    store: &dyn Store,
    heads: &[ExecutionHead],
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
mod tests;
