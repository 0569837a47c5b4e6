//! Requests, plans, transcripts and keys in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::Value;

use super::{Memory, list_page};
use crate::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{ExecutionId, PlanId, RequestId},
    limits,
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        Cursor, Documents, ExecutionFilter, ExecutionHead, Listing, Page, PlanFilter,
        RequestFilter, Reservation, SavedPlan, StoreError,
        backend::{fold_case, search_words, searched_tools},
        plan_cache::Cached,
        sub_plans,
    },
};

/// Requests, plans, transcripts, keys, saved plans and cached outputs.
#[derive(Debug, Default)]
pub(super) struct StoredDocuments {
    pub(super) requests: BTreeMap<RequestId, StoredRequest>,
    pub(super) plans: BTreeMap<PlanId, StoredPlan>,
    pub(super) versions: BTreeMap<(RequestId, u32), PlanId>,
    pub(super) transcripts: BTreeMap<RequestId, Vec<String>>,
    pub(super) keys: BTreeMap<String, Reservation>,
    pub(super) saved: BTreeMap<String, String>,
    /// Cached outputs and the times when they expire.
    pub(super) cache: BTreeMap<String, (Timestamp, String)>,
    pub(super) cache_ends: BTreeSet<(Timestamp, String)>,
}

#[derive(Debug)]
pub(super) struct StoredRequest {
    json: String,
    folded: String,
    pub(super) created_at: Timestamp,
}

#[derive(Debug)]
pub(super) struct StoredPlan {
    json: String,
    folded: String,
    pub(super) request: RequestId,
    pub(super) created_at: Timestamp,
    tools: BTreeSet<String>,
    pub(super) sub_plans: Vec<PlanId>,
}

impl StoredPlan {
    fn new(plan: &Plan) -> Self {
        Self {
            json: plan.to_json(),
            folded: fold_case(&plan.info().query),
            request: plan.info().request,
            created_at: plan.info().created_at,
            tools: searched_tools(plan).into_iter().map(str::to_owned).collect(),
            sub_plans: sub_plans(plan),
        }
    }
}

impl StoredDocuments {
    fn put_request(&mut self, request: &Request) -> Result<(), StoreError> {
        if self.requests.contains_key(&request.id) {
            return Err(StoreError::Taken);
        }
        let kept = StoredRequest {
            json: serde_json::to_string(request).expect("requests are JSON"),
            folded: fold_case(&request.query),
            created_at: request.created_at,
        };
        self.requests.insert(request.id, kept);
        Ok(())
    }

    fn put_plan(&mut self, plan: &Plan) -> Result<(), StoreError> {
        let version = (plan.info().request, plan.info().version);
        if self.plans.contains_key(&plan.id()) || self.versions.contains_key(&version) {
            return Err(StoreError::Taken);
        }
        self.versions.insert(version, plan.id());
        self.plans.insert(plan.id(), StoredPlan::new(plan));
        Ok(())
    }

    pub(super) fn cached(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<Value>>, StoreError> {
        let cached = self.cache.get(key).filter(|(until, _)| *until > now);
        cached.map(|(_, json)| parse_json(key, json)).transpose()
    }

    pub(super) fn cache(&mut self, key: &str, output: &Value, until: Timestamp) {
        self.remove_cached(key);
        self.cache.insert(key.to_owned(), (until, output.to_string()));
        self.cache_ends.insert((until, key.to_owned()));
        while self.cache.len() > limits::CACHE_ENTRIES
            && let Some((_, key)) = self.cache_ends.pop_first()
        {
            self.cache.remove(&key);
        }
    }

    pub(super) fn remove_cached(&mut self, key: &str) {
        if let Some((until, _)) = self.cache.remove(key) {
            self.cache_ends.remove(&(until, key.to_owned()));
        }
    }

    /// Returns `true` if planning failed: the request has no plan, and its transcript has a
    /// failure.
    fn has_failed_planning(&self, id: RequestId) -> bool {
        let entries = self.transcripts.get(&id).into_iter().flatten();
        let mut entries = entries.filter_map(|json| parse_json::<TranscriptEntry>(id, json).ok());
        self.versions.range((id, 0)..=(id, u32::MAX)).next().is_none()
            && entries.any(|entry| entry.is_failure())
    }

    fn uses_tool(&self, plan: PlanId, tool: &str) -> bool {
        self.plans.get(&plan).is_some_and(|plan| plan.tools.contains(tool))
    }
}

fn parse_json<T: serde::de::DeserializeOwned>(
    what: impl std::fmt::Display,
    json: &str,
) -> Result<T, StoreError> {
    serde_json::from_str(json).map_err(|err| StoreError::corrupt(what, err))
}

fn has_words(folded: &str, words: &[String]) -> bool {
    words.iter().all(|word| folded.contains(word.as_str()))
}

fn is_within(at: Timestamp, from: Option<Timestamp>, to: Option<Timestamp>) -> bool {
    from.is_none_or(|time| time <= at) && to.is_none_or(|time| at < time)
}

#[async_trait]
impl Documents for Memory {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        self.lock_state().documents.put_request(request)
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        self.lock_state()
            .documents
            .requests
            .get(&id)
            .map(|stored| parse_json(id, &stored.json))
            .transpose()
    }

    async fn requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        let state = self.lock_state();
        let words = search_words(filter.search.as_deref());
        let in_state = filter.state.map(|wanted| {
            let heads = state.work.heads().filter(|head| head.state == wanted);
            heads.map(|head| head.request).collect::<BTreeSet<_>>()
        });
        let has_failed = |id| {
            filter.state == Some(ExecutionState::Failed) && state.documents.has_failed_planning(id)
        };
        let found = state.documents.requests.iter().filter(|(id, request)| {
            has_words(&request.folded, &words)
                && is_within(request.created_at, filter.from, filter.to)
                && in_state.as_ref().is_none_or(|wanted| wanted.contains(id) || has_failed(**id))
        });
        let found = found
            .map(|(id, request)| (Cursor { at: request.created_at, id: id.to_string() }, request));
        let Listing { items, has_more } = list_page(found, page);
        let parse = |(cursor, stored): (Cursor, &StoredRequest)| {
            parse_json(&cursor.id, &stored.json).map(|request| (cursor, request))
        };
        let items = items.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Listing { items, has_more })
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        let json =
            entries.iter().map(|entry| serde_json::to_string(entry).expect("entries are JSON"));
        self.lock_state().documents.transcripts.entry(id).or_default().extend(json);
        Ok(())
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        let state = self.lock_state();
        let entries = state.documents.transcripts.get(&id).into_iter().flatten().skip(known);
        entries.map(|json| parse_json(id, json)).collect()
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        self.lock_state().documents.put_plan(plan)
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        let state = self.lock_state();
        let Some(stored) = state.documents.plans.get(&id) else { return Ok(None) };
        if let Cached::Fresh(plan) | Cached::Old(plan) = self.plans.get(id) {
            return Ok(self.plans.confirm(plan, true));
        }
        let plan = Plan::from_json(&stored.json).map_err(|err| StoreError::corrupt(id, err))?;
        let plan = Arc::new(plan);
        self.plans.insert(&plan, stored.json.len());
        Ok(Some(plan))
    }

    async fn plans_of(&self, id: RequestId) -> Result<Vec<PlanId>, StoreError> {
        let state = self.lock_state();
        let versions = state.documents.versions.range((id, 0)..=(id, u32::MAX));
        Ok(versions.map(|(_, plan)| *plan).collect())
    }

    async fn plans(&self, filter: &PlanFilter, page: &Page) -> Result<Listing<PlanId>, StoreError> {
        let state = self.lock_state();
        let words = search_words(filter.search.as_deref());
        let found = state.documents.plans.iter().filter(|(_, plan)| {
            filter.request.is_none_or(|wanted| wanted == plan.request)
                && has_words(&plan.folded, &words)
        });
        let found =
            found.map(|(id, plan)| (Cursor { at: plan.created_at, id: id.to_string() }, *id));
        Ok(list_page(found, page))
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        Ok(self.lock_state().work.head(id).cloned())
    }

    async fn heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        let state = self.lock_state();
        let found = state.work.heads().filter(|head| {
            (filter.states.is_empty() || filter.states.contains(&head.state))
                && filter.request.is_none_or(|wanted| wanted == head.request)
                && filter.plan.is_none_or(|wanted| wanted == head.plan)
                && (!filter.is_root || head.parent.is_none())
                && filter
                    .tool
                    .as_ref()
                    .is_none_or(|tool| state.documents.uses_tool(head.plan, tool.as_str()))
                && is_within(head.created_at, filter.from, filter.to)
        });
        let cursor =
            |head: &ExecutionHead| Cursor { at: head.created_at, id: head.execution.to_string() };
        let Listing { items, has_more } = list_page(found.map(|head| (cursor(head), head)), page);
        let items = items.into_iter().map(|(cursor, head)| (cursor, head.clone())).collect();
        Ok(Listing { items, has_more })
    }

    async fn ended(
        &self,
        after: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        let state = self.lock_state();
        let ended = state.work.heads().filter_map(|head| {
            let at = head.finished_at.filter(|at| *at > after && *at <= until)?;
            Some(((at, head.execution.to_string()), head.clone()))
        });
        let ended: BTreeMap<_, _> = ended.collect();
        Ok(ended.into_values().take(most).collect())
    }

    async fn reserve(&self, key: &Reservation) -> Result<Option<Reservation>, StoreError> {
        let mut state = self.lock_state();
        let there = state.documents.keys.get(&key.key).cloned();
        if there.is_none() {
            state.documents.keys.insert(key.key.clone(), key.clone());
        }
        Ok(there)
    }

    async fn reservation(&self, key: &str) -> Result<Option<Reservation>, StoreError> {
        Ok(self.lock_state().documents.keys.get(key).cloned())
    }

    async fn save_plan(&self, saved: &SavedPlan) -> Result<(), StoreError> {
        let json = serde_json::to_string(saved).expect("saved plans are JSON");
        self.lock_state().documents.saved.insert(saved.name.clone(), json);
        Ok(())
    }

    async fn saved_plan(&self, name: &str) -> Result<Option<SavedPlan>, StoreError> {
        self.lock_state().documents.saved.get(name).map(|json| parse_json(name, json)).transpose()
    }

    async fn saved_plans(
        &self,
        after: Option<&str>,
        first: usize,
    ) -> Result<Vec<SavedPlan>, StoreError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.lock_state();
        let found = state.documents.saved.range::<str, _>((from, Bound::Unbounded));
        found.take(first).map(|(name, json)| parse_json(name, json)).collect()
    }

    async fn remove_saved_plan(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.lock_state().documents.saved.remove(name).is_some())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
