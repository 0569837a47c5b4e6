use std::sync::Arc;

use async_trait::async_trait;
use shared::{
    id::{ExecutionId, PlanId, RequestId},
    labels,
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        CountQuery, Documents, ExecutionCount, ExecutionFilter, ExecutionHead, Listing, Page,
        PlanFilter, PlanVersion, RequestFilter, StoreError,
    },
};

use super::VisibleStore;

impl VisibleStore {
    fn own_requests(&self, filter: &RequestFilter) -> RequestFilter {
        RequestFilter { token: Some(self.token.clone()), ..filter.clone() }
    }

    /// Returns the filter for the visible plans, or `None` if no plan of the request is visible. The
    /// plans of one request need no search by token.
    async fn own_plans(&self, filter: &PlanFilter) -> Result<Option<PlanFilter>, StoreError> {
        Ok(match filter.request {
            Some(request) => self.can_see_request(request).await?.then(|| filter.clone()),
            None => Some(PlanFilter { token: Some(self.token.clone()), ..filter.clone() }),
        })
    }
}

#[async_trait]
impl Documents for VisibleStore {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        self.inner.put_request(request).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        let found = self.inner.request(id).await?;
        Ok(found.filter(|found| labels::find_token(&found.labels) == Some(&self.token)))
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        self.inner.list_requests(&self.own_requests(filter), page).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        self.inner.add_transcript(id, entries).await
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        if !self.can_see_request(id).await? {
            return Ok(Vec::new());
        }
        self.inner.transcript_after(id, known).await
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        self.inner.put_plan(plan).await
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        let Some(plan) = self.inner.plan(id).await? else { return Ok(None) };
        Ok(self.can_see_plan(&plan).await?.then_some(plan))
    }

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        match self.own_plans(filter).await? {
            Some(filter) => self.inner.list_plans(&filter, page).await,
            None => Ok(Listing { items: Vec::new(), has_more: false }),
        }
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        Ok(self.inner.head(id).await?.filter(|head| self.can_see_head(head)))
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        self.inner.list_heads(&self.own_executions(filter), page).await
    }

    async fn count_executions(
        &self,
        query: &CountQuery,
    ) -> Result<Vec<ExecutionCount>, StoreError> {
        let query = CountQuery { filter: self.own_executions(&query.filter), ..query.clone() };
        self.inner.count_executions(&query).await
    }

    async fn count_active(&self, token: &str) -> Result<u64, StoreError> {
        self.inner.count_active(token).await
    }

    async fn sum_stored_bytes(&self, token: &str) -> Result<u64, StoreError> {
        self.inner.sum_stored_bytes(token).await
    }

    async fn count_heads(&self, filter: &ExecutionFilter) -> Result<u64, StoreError> {
        self.inner.count_heads(&self.own_executions(filter)).await
    }

    async fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError> {
        self.inner.count_requests(&self.own_requests(filter)).await
    }

    async fn count_plans(&self, filter: &PlanFilter) -> Result<u64, StoreError> {
        match self.own_plans(filter).await? {
            Some(filter) => self.inner.count_plans(&filter).await,
            None => Ok(0),
        }
    }
}
