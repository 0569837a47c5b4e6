use std::collections::BTreeSet;

use serde_json::Value;

use super::State;
use crate::{
    clock::Timestamp,
    id::{ExecutionId, PlanId, RequestId},
    store::{ExecutionHead, Pruned, RecordKind, Removable, settlement_prefix},
};

impl State {
    pub(super) fn prune(&mut self, before: Timestamp, most: usize) -> Pruned {
        self.records.drop_old_records(RecordKind::Output, |until| until <= before);
        self.records.drop_old_records(RecordKind::Call, |at| at < before);
        let work = &self.work;
        self.permits.drop_unknown_workers(|worker| work.has_lease(worker));
        if most == 0 {
            return Pruned::default();
        }
        let (executions, more) = take_first(self.find_old_executions(before), most);
        self.remove_executions(&executions);
        let mut pruned = Pruned { executions: executions.len(), more, ..Pruned::default() };
        if more {
            return pruned;
        }
        let (plans, more) = take_first(self.find_old_plans(before), most);
        let has_parts = self.remove_plans(&plans);
        (pruned.plans, pruned.more) = (plans.len(), more || has_parts);
        if more {
            return pruned;
        }
        let (requests, more) = take_first(self.find_old_requests(before), most);
        self.remove_requests(&requests);
        (pruned.requests, pruned.more) = (requests.len(), more || has_parts);
        pruned
    }

    pub(super) fn remove_unused(&mut self, objects: &Removable) -> usize {
        match objects {
            Removable::Executions(ids) => {
                let unused = select_unused(ids, self.find_old_executions(Timestamp::MAX_UTC));
                self.remove_executions(&unused);
                unused.len()
            }
            Removable::Plans(ids) => {
                let unused = select_unused(ids, self.find_old_plans(Timestamp::MAX_UTC));
                self.remove_plans(&unused);
                unused.len()
            }
            Removable::Requests(ids) => {
                let unused = select_unused(ids, self.find_old_requests(Timestamp::MAX_UTC));
                self.remove_requests(&unused);
                unused.len()
            }
        }
    }

    fn remove_executions(&mut self, executions: &[ExecutionId]) {
        for id in executions {
            self.logs.remove_log(*id);
            self.work.remove_head(*id);
        }
        self.remove_keys(executions);
        self.remove_settlements(executions);
    }

    /// Removes plans. Returns `true` if one of them has sub-plans.
    fn remove_plans(&mut self, plans: &[PlanId]) -> bool {
        let mut has_sub_plans = false;
        for id in plans {
            let removed = self.documents.plans.remove(id);
            has_sub_plans |= removed.is_some_and(|plan| !plan.sub_plans.is_empty());
            self.documents.versions.retain(|_, plan| plan != id);
        }
        has_sub_plans
    }

    fn remove_requests(&mut self, requests: &[RequestId]) {
        for id in requests {
            self.documents.requests.remove(id);
            self.documents.transcripts.remove(id);
        }
    }

    fn remove_keys(&mut self, executions: &[ExecutionId]) {
        let executions: BTreeSet<_> = executions.iter().map(ToString::to_string).collect();
        let keys = self.records.values(RecordKind::Key);
        let is_removed = |value: &Value| {
            value["executionId"].as_str().is_some_and(|execution| executions.contains(execution))
        };
        let keys = keys.filter(|(_, value)| is_removed(value)).map(|(name, _)| name.clone());
        for key in keys.collect::<Vec<_>>() {
            self.records.remove(RecordKind::Key, &key);
        }
    }

    fn remove_settlements(&mut self, executions: &[ExecutionId]) {
        for id in executions {
            let prefix = settlement_prefix(*id);
            let names = self.records.values(RecordKind::Settlement).map(|(name, _)| name);
            let names = names.filter(|name| name.starts_with(&prefix)).cloned();
            for name in names.collect::<Vec<_>>() {
                self.records.remove(RecordKind::Settlement, &name);
            }
        }
    }

    fn find_old_executions(&self, before: Timestamp) -> Vec<(Timestamp, ExecutionId)> {
        let is_over =
            |id| self.work.head(id).is_none_or(|head: &ExecutionHead| head.state.is_finished());
        let old = self.work.heads().filter(|head| {
            head.state.is_finished() && head.owner.is_none() && head.parent.is_none_or(is_over)
        });
        let ended = old.filter_map(|head| Some((head.finished_at?, head.execution)));
        ended.filter(|(at, _)| *at < before).collect()
    }

    fn find_old_plans(&self, before: Timestamp) -> Vec<(Timestamp, PlanId)> {
        let saved = self.records.values(RecordKind::SavedPlan);
        let mut used: BTreeSet<PlanId> =
            saved.filter_map(|(_, value)| value["planId"].as_str()?.parse().ok()).collect();
        used.extend(self.work.heads().map(|head| head.plan));
        used.extend(self.documents.plans.values().flat_map(|plan| &plan.sub_plans));
        let plans = self.documents.plans.iter();
        let old = plans.filter(|(id, plan)| plan.created_at < before && !used.contains(id));
        old.map(|(id, plan)| (plan.created_at, *id)).collect()
    }

    fn find_old_requests(&self, before: Timestamp) -> Vec<(Timestamp, RequestId)> {
        let mut used: BTreeSet<RequestId> = self.work.heads().map(|head| head.request).collect();
        used.extend(self.documents.plans.values().map(|plan| plan.request));
        let requests = self.documents.requests.iter();
        let old =
            requests.filter(|(id, request)| request.created_at < before && !used.contains(id));
        old.map(|(id, request)| (request.created_at, *id)).collect()
    }
}

fn select_unused<T: Copy + Ord>(ids: &[T], unused: Vec<(Timestamp, T)>) -> Vec<T> {
    let unused: BTreeSet<T> = unused.into_iter().map(|(_, id)| id).collect();
    ids.iter().copied().filter(|id| unused.contains(id)).collect()
}

fn take_first<T: Ord>(mut old: Vec<(Timestamp, T)>, most: usize) -> (Vec<T>, bool) {
    old.sort();
    let more = old.len() > most;
    (old.into_iter().take(most).map(|(_, id)| id).collect(), more)
}
