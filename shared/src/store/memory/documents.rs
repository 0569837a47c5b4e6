use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;

use super::{Memory, State, list_page};
use crate::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{ExecutionId, PlanId, RequestId},
    labels,
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        CountQuery, Cursor, Documents, ExecutionCount, ExecutionFilter, ExecutionHead, Listing,
        Page, PlanFilter, PlanVersion, RequestFilter, StoreError,
        backend::{CountTable, fold_case, search_words, searched_tools},
        plan_cache::Cached,
        sub_plans,
    },
};

#[derive(Debug, Default)]
pub(super) struct StoredDocuments {
    pub(super) requests: BTreeMap<RequestId, StoredRequest>,
    pub(super) plans: BTreeMap<PlanId, StoredPlan>,
    pub(super) versions: BTreeMap<(RequestId, u32), PlanId>,
    pub(super) transcripts: BTreeMap<RequestId, Vec<String>>,
}

#[derive(Debug)]
pub(super) struct StoredRequest {
    json: String,
    folded_query: String,
    pub(super) created_at: Timestamp,
    token: Option<String>,
}

#[derive(Debug)]
pub(super) struct StoredPlan {
    json: String,
    folded_query: String,
    pub(super) request: RequestId,
    version: u32,
    pub(super) created_at: Timestamp,
    tools: BTreeSet<String>,
    pub(super) sub_plans: Vec<PlanId>,
}

impl StoredPlan {
    fn new(plan: &Plan) -> Self {
        Self {
            json: plan.to_json(),
            folded_query: fold_case(&plan.info().query),
            request: plan.info().request,
            version: plan.info().version,
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
            folded_query: fold_case(&request.query),
            created_at: request.created_at,
            token: labels::find_token(&request.labels).map(str::to_owned),
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

    /// Returns `true` if `token` is `None`, or if the request belongs to it.
    fn belongs_to(&self, request: RequestId, token: Option<&String>) -> bool {
        token.is_none_or(|token| {
            self.requests.get(&request).is_some_and(|found| found.token.as_ref() == Some(token))
        })
    }

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

impl State {
    fn find_heads(&self, filter: &ExecutionFilter) -> Vec<&ExecutionHead> {
        let needing = filter
            .needs_person
            .map(|wanted| (wanted, self.work.list_needing_person(filter.is_root)));
        let found = self.work.heads().filter(|head| {
            (filter.states.is_empty() || filter.states.contains(&head.state))
                && filter.request.is_none_or(|wanted| wanted == head.request)
                && filter.plan.is_none_or(|wanted| wanted == head.plan)
                && (!filter.is_root || head.parent.is_none())
                && filter
                    .tool
                    .as_ref()
                    .is_none_or(|tool| self.documents.uses_tool(head.plan, tool.as_str()))
                && is_within(head.created_at, filter.from, filter.to)
                && filter.matches_details(head)
                && needing
                    .as_ref()
                    .is_none_or(|(wanted, ids)| ids.contains(&head.execution) == *wanted)
        });
        found.collect()
    }
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

    async fn list_requests(
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
        let needing = filter.needs_person.map(|wanted| {
            let heads = state.work.heads().filter(|head| head.needs_person);
            (wanted, heads.map(|head| head.request).collect::<BTreeSet<_>>())
        });
        let has_failed = |id| {
            filter.state == Some(ExecutionState::Failed) && state.documents.has_failed_planning(id)
        };
        let found = state.documents.requests.iter().filter(|(id, request)| {
            has_words(&request.folded_query, &words)
                && is_within(request.created_at, filter.from, filter.to)
                && state.documents.belongs_to(**id, filter.token.as_ref())
                && in_state.as_ref().is_none_or(|wanted| wanted.contains(id) || has_failed(**id))
                && needing.as_ref().is_none_or(|(wanted, ids)| ids.contains(id) == *wanted)
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

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        let state = self.lock_state();
        let words = search_words(filter.search.as_deref());
        let found = state.documents.plans.iter().filter(|(_, plan)| {
            filter.request.is_none_or(|wanted| wanted == plan.request)
                && has_words(&plan.folded_query, &words)
                && state.documents.belongs_to(plan.request, filter.token.as_ref())
        });
        let found = found.map(|(id, plan)| {
            let listed = PlanVersion { id: *id, version: plan.version };
            (Cursor { at: plan.created_at, id: id.to_string() }, listed)
        });
        Ok(list_page(found, page))
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        Ok(self.lock_state().work.head(id).cloned())
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        let state = self.lock_state();
        let found = state.find_heads(filter);
        let cursor =
            |head: &ExecutionHead| Cursor { at: head.created_at, id: head.execution.to_string() };
        let found = found.into_iter().map(|head| (cursor(head), head));
        let Listing { items, has_more } = list_page(found, page);
        let items = items.into_iter().map(|(cursor, head)| (cursor, head.clone())).collect();
        Ok(Listing { items, has_more })
    }

    async fn count_executions(
        &self,
        query: &CountQuery,
    ) -> Result<Vec<ExecutionCount>, StoreError> {
        let state = self.lock_state();
        let mut table = CountTable::new(query);
        let found = state.find_heads(&query.filter).into_iter();
        let counted = found.filter(|head| head.parent.is_none() && !head.is_dry_run);
        counted.for_each(|head| table.add_head(head));
        Ok(table.finish(query.first))
    }

    async fn count_active(&self, token: &str) -> Result<u64, StoreError> {
        Ok(self.lock_state().work.count_active(token) as u64)
    }

    async fn sum_stored_bytes(&self, token: &str) -> Result<u64, StoreError> {
        Ok(self.lock_state().work.sum_stored_bytes(token))
    }

    async fn count_heads(&self, filter: &ExecutionFilter) -> Result<u64, StoreError> {
        Ok(self.lock_state().find_heads(filter).len() as u64)
    }

    async fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError> {
        let all = Page::first_items(usize::MAX);
        Ok(self.list_requests(filter, &all).await?.items.len() as u64)
    }

    async fn count_plans(&self, filter: &PlanFilter) -> Result<u64, StoreError> {
        let all = Page::first_items(usize::MAX);
        Ok(self.list_plans(filter, &all).await?.items.len() as u64)
    }
}
