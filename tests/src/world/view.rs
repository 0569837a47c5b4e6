use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use shared::{
    clock::Timestamp,
    event::RecordedEvent,
    id::{CommandId, ExecutionId, PlanId, RequestId, Seq, WorkerId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        Append, AppendError, AuditEntry, AuditFilter, AuditLog, CountQuery, Documents,
        ExecutionCount, ExecutionFilter, ExecutionHead, HeadQuery, Hints, Inbox, KeyValue, Lease,
        Listing, Log, Page, Permission, Permit, PermitAsk, Permits, PlanFilter, PlanVersion,
        Pruned, Record, RecordKind, RecordPage, Removable, RequestFilter, SentCommand, Store,
        StoreError, TextHash, Vectors, WriteCondition,
    },
};
use tokio::time::{self, Instant};

use super::{World, lock};

/// The store as one worker, client or subscriber sees it, with delays and faults.
#[derive(Debug)]
pub struct View {
    world: Arc<World>,
    hints: Arc<Hints>,
    frozen_until: Mutex<Option<Instant>>,
    /// Logs for which this view has sent an append that is not answered yet.
    in_flight: Arc<Mutex<BTreeSet<ExecutionId>>>,
}

/// An append that has been sent and not yet answered. When this value is dropped, the append counts
/// as answered, even if its sender crashed.
struct AppendInFlight {
    all: Arc<Mutex<BTreeSet<ExecutionId>>>,
    id: ExecutionId,
}

impl Drop for AppendInFlight {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.id);
    }
}

impl View {
    pub(super) fn new(world: Arc<World>, hints: Arc<Hints>) -> Self {
        Self { world, hints, frozen_until: Mutex::default(), in_flight: Arc::default() }
    }

    /// Delays everything from and to this view for a time, so that its owner seems dead although it
    /// lives.
    pub fn freeze(&self, span: Duration) {
        *lock(&self.frozen_until) = Some(Instant::now() + span);
    }

    async fn wait_for_thaw(&self) {
        loop {
            let until = *lock(&self.frozen_until);
            match until {
                Some(until) if Instant::now() < until => time::sleep_until(until).await,
                _ => return,
            }
        }
    }

    /// Runs an operation after the delay of a network. While the view is frozen, the operation and
    /// its answer wait.
    async fn run_remotely<T, E>(
        &self,
        operation: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        self.wait_for_thaw().await;
        self.world.delay_message().await;
        let done = operation.await;
        self.wait_for_thaw().await;
        done
    }

    async fn write_and_send_hints<T, E>(
        &self,
        operation: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        let written = async {
            let done = operation.await;
            // A write that returned an error has perhaps still changed the store.
            self.world.send_hints();
            done
        };
        self.run_remotely(written).await
    }

    fn start_flight(&self, id: ExecutionId) -> AppendInFlight {
        if !lock(&self.in_flight).insert(id) {
            self.world.add_violation("two appends to one log were in flight at once".to_owned());
        }
        AppendInFlight { all: Arc::clone(&self.in_flight), id }
    }
}

#[async_trait]
impl Store for View {
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.run_remotely(self.world.faulty.prune(before, limit)).await
    }

    async fn remove_unused(&self, objects: &Removable) -> Result<usize, StoreError> {
        self.run_remotely(self.world.faulty.remove_unused(objects)).await
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        self.world.faulty.shared_time().await
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }
}

#[async_trait]
impl Log for View {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        // A worker, and a client that repeats its request, can start one log at the same time. So
        // appends that start a log are not counted here.
        let _flight = (append.after != Seq::START).then(|| self.start_flight(append.execution));
        if self.world.is_late() {
            self.world.append_later(append);
            self.run_remotely(async { Ok::<_, AppendError>(()) }).await?;
            return Err(StoreError::Unavailable("the answer was lost".to_owned()).into());
        }
        let (id, documents) = (append.execution, append.documents.clone());
        let done = self.write_and_send_hints(self.world.faulty.append(append)).await;
        if done.is_ok() {
            self.world.acknowledge(id, documents);
        }
        done
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        self.write_and_send_hints(self.world.faulty.put_head(head)).await
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.run_remotely(self.world.faulty.read(id, after)).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        limit: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        self.run_remotely(self.world.faulty.find_heads(query, limit)).await
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.run_remotely(self.world.faulty.renew_lease(lease)).await
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.write_and_send_hints(self.world.faulty.remove_worker(worker)).await
    }

    async fn list_leases(&self, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.run_remotely(self.world.faulty.list_leases(now)).await
    }
}

#[async_trait]
impl Permits for View {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        self.run_remotely(self.world.faulty.acquire_permits(ask, now)).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.write_and_send_hints(self.world.faulty.release_permits(permits)).await
    }
}

#[async_trait]
impl Inbox for View {
    async fn send_command(&self, envelope: SentCommand) -> Result<(), StoreError> {
        self.write_and_send_hints(self.world.faulty.send_command(envelope)).await
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        self.run_remotely(self.world.faulty.list_commands(of)).await
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.run_remotely(self.world.faulty.remove_commands(commands)).await
    }
}

#[async_trait]
impl Documents for View {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        self.run_remotely(self.world.faulty.put_request(request)).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        self.run_remotely(self.world.faulty.request(id)).await
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        self.run_remotely(self.world.faulty.list_requests(filter, page)).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        self.run_remotely(self.world.faulty.add_transcript(id, entries)).await
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        self.run_remotely(self.world.faulty.transcript_after(id, known)).await
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        self.run_remotely(self.world.faulty.put_plan(plan)).await
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        self.run_remotely(self.world.faulty.plan(id)).await
    }

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        self.run_remotely(self.world.faulty.list_plans(filter, page)).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        self.run_remotely(self.world.faulty.head(id)).await
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        self.run_remotely(self.world.faulty.list_heads(filter, page)).await
    }

    async fn count_executions(
        &self,
        query: &CountQuery,
    ) -> Result<Vec<ExecutionCount>, StoreError> {
        self.run_remotely(self.world.faulty.count_executions(query)).await
    }

    async fn count_active(&self, token: &str) -> Result<u64, StoreError> {
        self.run_remotely(self.world.faulty.count_active(token)).await
    }

    async fn sum_stored_bytes(&self, token: &str) -> Result<u64, StoreError> {
        self.run_remotely(self.world.faulty.sum_stored_bytes(token)).await
    }

    async fn count_heads(&self, filter: &ExecutionFilter) -> Result<u64, StoreError> {
        self.run_remotely(self.world.faulty.count_heads(filter)).await
    }

    async fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError> {
        self.run_remotely(self.world.faulty.count_requests(filter)).await
    }

    async fn count_plans(&self, filter: &PlanFilter) -> Result<u64, StoreError> {
        self.run_remotely(self.world.faulty.count_plans(filter)).await
    }
}

#[async_trait]
impl Vectors for View {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        self.run_remotely(self.world.faulty.find_vectors(model, texts)).await
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        self.write_and_send_hints(self.world.faulty.put_vectors(model, vectors)).await
    }
}

#[async_trait]
impl AuditLog for View {
    async fn put_audit_entries(&self, entries: &[AuditEntry]) -> Result<usize, StoreError> {
        self.run_remotely(self.world.faulty.put_audit_entries(entries)).await
    }

    async fn list_audit_entries(
        &self,
        filter: &AuditFilter,
        page: &Page,
    ) -> Result<Listing<AuditEntry>, StoreError> {
        self.run_remotely(self.world.faulty.list_audit_entries(filter, page)).await
    }

    async fn count_audit_entries(&self, filter: &AuditFilter) -> Result<u64, StoreError> {
        self.run_remotely(self.world.faulty.count_audit_entries(filter)).await
    }

    async fn remove_audit_entries(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError> {
        self.run_remotely(self.world.faulty.remove_audit_entries(before, most)).await
    }
}

#[async_trait]
impl KeyValue for View {
    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        self.write_and_send_hints(self.world.faulty.put_record(record, unless)).await
    }

    async fn find_record(
        &self,
        kind: RecordKind,
        name: &str,
    ) -> Result<Option<Record>, StoreError> {
        self.run_remotely(self.world.faulty.find_record(kind, name)).await
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        self.run_remotely(self.world.faulty.list_records(kind, page)).await
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        self.write_and_send_hints(self.world.faulty.remove_record(kind, name)).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.run_remotely(self.world.faulty.records_revision()).await
    }
}
