use std::{fmt, sync::Arc};

use async_trait::async_trait;
use shared::{
    id::{ExecutionId, PlanId, RequestId},
    plan::{Plan, UncheckedPlan},
    request::{Request, TranscriptEntry},
    store::{
        CountQuery, Cursor, Documents, ExecutionCount, ExecutionFilter, ExecutionHead, Listing,
        Page, PlanFilter, PlanVersion, RequestFilter, StoreError, backend::Cached,
    },
};

use super::EncryptedStore;
use crate::{
    edit::Task,
    leaves::{edit_plan, edit_query},
};

pub(super) const REQUESTS: &str = "requests";
pub(super) const TRANSCRIPTS: &str = "transcripts";
pub(super) const PLANS: &str = "plans";

/// The place of an entry of a transcript. It does not contain the position of the entry, because
/// the position is unknown when the entry is encrypted.
pub(super) struct EntryPlace<'a> {
    pub(super) request: RequestId,
    pub(super) entry: &'a TranscriptEntry,
}

impl fmt::Display for EntryPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TranscriptEntry { at, kind, content: _ } = self.entry;
        write!(f, "{}/{}/{kind}", self.request, at.timestamp_micros())
    }
}

impl EncryptedStore {
    fn convert_request(&self, task: Task, mut request: Request) -> Result<Request, StoreError> {
        let Request { id, query, created_at: _, labels: _ } = &mut request;
        edit_query(&self.edit(task, REQUESTS, id), query)?;
        Ok(request)
    }

    fn convert_entry(
        &self,
        task: Task,
        request: RequestId,
        entry: &TranscriptEntry,
    ) -> Result<TranscriptEntry, StoreError> {
        let mut content = entry.content.clone();
        let place = EntryPlace { request, entry };
        self.edit(task, TRANSCRIPTS, &place).edit_value("content", &mut content)?;
        Ok(TranscriptEntry { at: entry.at, kind: entry.kind.clone(), content })
    }

    /// Decrypts a plan, and caches it unless a key is missing.
    fn open_plan(&self, sealed: Arc<Plan>) -> Result<Arc<Plan>, StoreError> {
        let id = sealed.id();
        let mut plan = sealed.to_unchecked();
        let edit = self.edit(self.read_task(), PLANS, &id);
        edit_plan(&edit, &mut plan)?;
        if !edit.is_changed() {
            return Ok(sealed);
        }
        let bytes = plan_bytes(&plan);
        let plan = Arc::new(Plan::try_from(plan).map_err(|err| StoreError::corrupt(id, err))?);
        if !edit.has_locked_values() {
            self.plans.insert(&plan, bytes);
        }
        Ok(plan)
    }
}

fn plan_bytes(plan: &UncheckedPlan) -> usize {
    let steps = plan.steps.iter();
    steps.map(|step| 256 + shared::json::json_size(&step.parameters)).sum()
}

fn map_items<T>(
    listing: Listing<T>,
    mut change: impl FnMut(T) -> Result<T, StoreError>,
) -> Result<Listing<T>, StoreError> {
    let Listing { items, has_more } = listing;
    let items = items.into_iter().map(|(cursor, item)| Ok((cursor, change(item)?)));
    let items = items.collect::<Result<Vec<(Cursor, T)>, StoreError>>()?;
    Ok(Listing { items, has_more })
}

#[async_trait]
impl Documents for EncryptedStore {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        self.check_writable()?;
        let sealed = self.convert_request(self.write_task(), request.clone())?;
        self.inner.put_request(&sealed).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        let found = self.inner.request(id).await?;
        found.map(|request| self.convert_request(self.read_task(), request)).transpose()
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        self.check_search(filter.search.as_deref())?;
        let listing = self.inner.list_requests(filter, page).await?;
        map_items(listing, |request| self.convert_request(self.read_task(), request))
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        let sealed = entries.iter().map(|entry| self.convert_entry(self.write_task(), id, entry));
        let sealed = sealed.collect::<Result<Vec<_>, _>>()?;
        self.inner.add_transcript(id, &sealed).await
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        let entries = self.inner.transcript_after(id, known).await?;
        entries.iter().map(|entry| self.convert_entry(self.read_task(), id, entry)).collect()
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        self.check_writable()?;
        let id = plan.id();
        let mut unchecked = plan.to_unchecked();
        edit_plan(&self.edit(self.write_task(), PLANS, &id), &mut unchecked)?;
        let sealed = Plan::try_from(unchecked).map_err(|err| StoreError::corrupt(id, err))?;
        self.inner.put_plan(&sealed).await
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        let found = self.inner.plan(id).await?;
        match (self.plans.get(id), found) {
            (Cached::Fresh(plan) | Cached::Old(plan), found) => {
                Ok(self.plans.confirm(plan, found.is_some()))
            }
            (Cached::Unknown, found) => found.map(|sealed| self.open_plan(sealed)).transpose(),
        }
    }

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        self.check_search(filter.search.as_deref())?;
        self.inner.list_plans(filter, page).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        let found = self.inner.head(id).await?;
        Ok(found.map(|head| self.convert_head(self.read_task(), head)))
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        Self::check_filter(filter)?;
        let listing = self.inner.list_heads(filter, page).await?;
        map_items(listing, |head| Ok(self.convert_head(self.read_task(), head)))
    }

    async fn count_executions(
        &self,
        query: &CountQuery,
    ) -> Result<Vec<ExecutionCount>, StoreError> {
        Self::check_filter(&query.filter)?;
        self.inner.count_executions(query).await
    }

    async fn count_active(&self, token: &str) -> Result<u64, StoreError> {
        self.inner.count_active(token).await
    }

    async fn sum_stored_bytes(&self, token: &str) -> Result<u64, StoreError> {
        self.inner.sum_stored_bytes(token).await
    }

    async fn count_heads(&self, filter: &ExecutionFilter) -> Result<u64, StoreError> {
        Self::check_filter(filter)?;
        self.inner.count_heads(filter).await
    }

    async fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError> {
        self.check_search(filter.search.as_deref())?;
        self.inner.count_requests(filter).await
    }

    async fn count_plans(&self, filter: &PlanFilter) -> Result<u64, StoreError> {
        self.check_search(filter.search.as_deref())?;
        self.inner.count_plans(filter).await
    }
}
