//! Removing what is over and old from memory.

use std::collections::BTreeSet;

use super::State;
use crate::{
    clock::Timestamp,
    id::{ExecutionId, PlanId, RequestId},
    store::{Head, Pruned, SavedPlan},
};

impl State {
    pub(super) fn prune(&mut self, before: Timestamp, most: usize) -> Pruned {
        self.drop_outputs(before);
        self.records.drop_calls(before);
        let work = &self.work;
        self.permits.sweep(|it| work.knows(it));
        let (executions, more) = first(self.old_executions(before), most);
        for id in &executions {
            self.logs.remove(*id);
            self.work.remove(*id);
            self.kept.keys.retain(|_, it| it.execution != *id);
        }
        let mut pruned = Pruned { executions: executions.len(), more, ..Pruned::default() };
        if more {
            return pruned;
        }
        let (plans, more) = first(self.old_plans(before), most);
        let mut has_parts = false;
        for id in &plans {
            let kept = self.kept.plans.remove(id);
            has_parts |= kept.is_some_and(|it| !it.sub_plans.is_empty());
            self.kept.versions.retain(|_, it| it != id);
        }
        (pruned.plans, pruned.more) = (plans.len(), more || has_parts);
        if more {
            return pruned;
        }
        let (requests, more) = first(self.old_requests(before), most);
        for id in &requests {
            self.kept.requests.remove(id);
            self.kept.transcripts.remove(id);
        }
        (pruned.requests, pruned.more) = (requests.len(), more || has_parts);
        pruned
    }

    fn drop_outputs(&mut self, before: Timestamp) {
        let ends = self.kept.cache_ends.iter().take_while(|(until, _)| *until <= before);
        let keys: Vec<String> = ends.map(|(_, key)| key.clone()).collect();
        for key in keys {
            self.kept.uncache(&key);
        }
    }

    fn old_executions(&self, before: Timestamp) -> Vec<(Timestamp, ExecutionId)> {
        let is_over = |id| self.work.head(id).is_none_or(|it: &Head| it.state.is_over());
        let old = self
            .work
            .heads()
            .filter(|it| it.state.is_over() && it.owner.is_none() && it.parent.is_none_or(is_over));
        let ended = old.filter_map(|it| Some((it.finished_at?, it.execution)));
        ended.filter(|(at, _)| *at < before).collect()
    }

    fn old_plans(&self, before: Timestamp) -> Vec<(Timestamp, PlanId)> {
        let saved = self.kept.saved.values().filter_map(|it| serde_json::from_str(it).ok());
        let mut used: BTreeSet<PlanId> = saved.map(|it: SavedPlan| it.plan).collect();
        used.extend(self.work.heads().map(|it| it.plan));
        used.extend(self.kept.plans.values().flat_map(|it| &it.sub_plans));
        let old =
            self.kept.plans.iter().filter(|(id, it)| it.created_at < before && !used.contains(id));
        old.map(|(id, it)| (it.created_at, *id)).collect()
    }

    fn old_requests(&self, before: Timestamp) -> Vec<(Timestamp, RequestId)> {
        let mut used: BTreeSet<RequestId> = self.work.heads().map(|it| it.request).collect();
        used.extend(self.kept.plans.values().map(|it| it.request));
        let old = self
            .kept
            .requests
            .iter()
            .filter(|(id, it)| it.created_at < before && !used.contains(id));
        old.map(|(id, it)| (it.created_at, *id)).collect()
    }
}

/// Returns the first few, and whether there are more.
fn first<T: Ord>(mut old: Vec<(Timestamp, T)>, most: usize) -> (Vec<T>, bool) {
    old.sort();
    let more = old.len() > most;
    (old.into_iter().take(most).map(|(_, id)| id).collect(), more)
}
