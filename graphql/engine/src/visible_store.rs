//! A store in front of the store, which hides the objects of other tokens. The engine reads through
//! it if the caller's token has `see: own` and a lower role than `admin`, so no function that reads
//! can forget the check. A function that steers an execution must read it here first, because
//! control and workers use the whole store.

mod documents;
mod records;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use shared::{
    clock::Timestamp,
    event::RecordedEvent,
    id::{CommandId, ExecutionId, PlanId, RequestId, Seq, WorkerId},
    labels,
    plan::Plan,
    store::{
        Append, AppendError, AuditEntry, AuditFilter, AuditLog, ExecutionFilter, ExecutionHead,
        HeadQuery, Hints, Inbox, LabelFilter, Lease, Listing, Log, Page, Permission, Permit,
        PermitAsk, Permits, Pruned, Removable, SentCommand, Store, StoreError, TextHash, Vectors,
    },
};

const MAX_SEEN: usize = 10_000;
const SAVED_PLANS_PER_PAGE: usize = 1_000;

#[derive(Debug)]
pub(crate) struct VisibleStore {
    inner: Arc<dyn Store>,
    token: String,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    executions: BTreeSet<ExecutionId>,
    plans: BTreeSet<PlanId>,
}

fn remember<T: Ord>(seen: &mut BTreeSet<T>, id: T) {
    if seen.len() >= MAX_SEEN {
        seen.clear();
    }
    seen.insert(id);
}

impl VisibleStore {
    pub(crate) fn new(inner: Arc<dyn Store>, token: &str) -> Self {
        Self { inner, token: token.to_owned(), seen: Mutex::default() }
    }

    fn lock_seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn can_see_head(&self, head: &ExecutionHead) -> bool {
        let is_visible = labels::find_token(&head.labels) == Some(&self.token);
        if is_visible {
            let mut seen = self.lock_seen();
            remember(&mut seen.executions, head.execution);
            remember(&mut seen.plans, head.plan);
        }
        is_visible
    }

    async fn can_see_execution(&self, id: ExecutionId) -> Result<bool, StoreError> {
        if self.lock_seen().executions.contains(&id) {
            return Ok(true);
        }
        Ok(self.inner.head(id).await?.is_some_and(|head| self.can_see_head(&head)))
    }

    async fn can_see_request(&self, id: RequestId) -> Result<bool, StoreError> {
        let request = self.inner.request(id).await?;
        Ok(request.is_some_and(|found| labels::find_token(&found.labels) == Some(&self.token)))
    }

    /// Returns `true` if the plan belongs to a request of the token, or if the token has executed it.
    /// A plan with a name in the library is visible, too, because all callers share the library.
    async fn can_see_plan(&self, plan: &Plan) -> Result<bool, StoreError> {
        if self.lock_seen().plans.contains(&plan.id()) {
            return Ok(true);
        }
        let is_visible = self.can_see_request(plan.info().request).await?
            || self.is_saved(plan.id()).await?
            || self.has_executed(plan.id()).await?;
        if is_visible {
            remember(&mut self.lock_seen().plans, plan.id());
        }
        Ok(is_visible)
    }

    async fn is_saved(&self, plan: PlanId) -> Result<bool, StoreError> {
        let mut after: Option<String> = None;
        loop {
            let saved = self.inner.list_saved_plans(after.as_deref(), SAVED_PLANS_PER_PAGE).await?;
            if saved.iter().any(|saved| saved.plan == plan) {
                return Ok(true);
            }
            match saved.last() {
                Some(last) if saved.len() == SAVED_PLANS_PER_PAGE => {
                    after = Some(last.name.clone());
                }
                _ => return Ok(false),
            }
        }
    }

    async fn has_executed(&self, plan: PlanId) -> Result<bool, StoreError> {
        let filter = ExecutionFilter { plan: Some(plan), ..ExecutionFilter::default() };
        let page = Page::first_items(1);
        let found = self.inner.list_heads(&self.own_executions(&filter), &page).await?;
        Ok(!found.items.is_empty())
    }

    /// Returns a filter that also selects by the token. Its label comes first, because stores read
    /// the index of the first label.
    fn own_executions(&self, filter: &ExecutionFilter) -> ExecutionFilter {
        let mut filter = filter.clone();
        filter.labels.insert(0, LabelFilter::of_token(&self.token));
        filter
    }
}

#[async_trait]
impl Store for VisibleStore {
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.inner.prune(before, most).await
    }

    async fn remove_unused(&self, objects: &Removable) -> Result<usize, StoreError> {
        self.inner.remove_unused(objects).await
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        self.inner.shared_time().await
    }

    async fn stored_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.inner.stored_bytes().await
    }

    fn hints(&self) -> &Hints {
        self.inner.hints()
    }
}

#[async_trait]
impl Log for VisibleStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        self.inner.append(append).await
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        if !self.can_see_execution(id).await? {
            return Ok(Vec::new());
        }
        self.inner.read(id, after).await
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        self.inner.put_head(head).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        let mut heads = self.inner.find_heads(query, most).await?;
        heads.retain(|head| self.can_see_head(head));
        Ok(heads)
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.inner.renew_lease(lease).await
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.inner.remove_worker(worker).await
    }

    async fn list_leases(&self, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.inner.list_leases(now).await
    }
}

#[async_trait]
impl Inbox for VisibleStore {
    async fn send_command(&self, command: SentCommand) -> Result<(), StoreError> {
        self.inner.send_command(command).await
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        let mut own_commands = Vec::new();
        for command in self.inner.list_commands(of).await? {
            if self.can_see_execution(command.execution).await? {
                own_commands.push(command);
            }
        }
        Ok(own_commands)
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.inner.remove_commands(commands).await
    }
}

#[async_trait]
impl Permits for VisibleStore {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        self.inner.acquire_permits(ask, now).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.inner.release_permits(permits).await
    }
}

/// Vectors of texts belong to no token, because a caller can only ask for a text that it has.
#[async_trait]
impl Vectors for VisibleStore {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        self.inner.find_vectors(model, texts).await
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        self.inner.put_vectors(model, vectors).await
    }
}

/// Only an admin reads the audit log, and an admin sees everything. So it shows nothing here.
#[async_trait]
impl AuditLog for VisibleStore {
    async fn put_audit_entries(&self, entries: &[AuditEntry]) -> Result<usize, StoreError> {
        self.inner.put_audit_entries(entries).await
    }

    async fn list_audit_entries(
        &self,
        _: &AuditFilter,
        _: &Page,
    ) -> Result<Listing<AuditEntry>, StoreError> {
        Ok(Listing { items: Vec::new(), has_more: false })
    }

    async fn count_audit_entries(&self, _: &AuditFilter) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn remove_audit_entries(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError> {
        self.inner.remove_audit_entries(before, most).await
    }
}
