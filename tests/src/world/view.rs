//! One inhabitant's view of the store.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Value;
use shared::{
    clock::Timestamp,
    event::RecordedEvent,
    id::{CommandId, ExecutionId, PlanId, RequestId, Seq, WorkerId},
    plan::Plan,
    request::{Request, TranscriptEntry},
    store::{
        Append, AppendError, Documents, ExecutionFilter, ExecutionHead, ExecutionLog, Hints, Lease,
        Listing, Page, Permission, Permit, PermitAsk, PlanFilter, Pruned, Record, RecordKind,
        RecordPage, Records, RequestFilter, Reservation, SavedPlan, SentCommand, StoreError,
        TextHash, Usage, Vectors, WriteCondition,
    },
};
use tokio::time::{self, Instant};

use super::{World, lock};

/// One inhabitant's view of the store.
#[derive(Debug)]
pub struct View {
    world: Arc<World>,
    hints: Arc<Hints>,
    frozen: Mutex<Option<Instant>>,
    /// The logs to which an append of this inhabitant is on its way.
    in_flight: Arc<Mutex<BTreeSet<ExecutionId>>>,
}

/// An append on its way; dropping it is its end, also when its sender crashes.
struct Flight {
    all: Arc<Mutex<BTreeSet<ExecutionId>>>,
    id: ExecutionId,
}

impl Drop for Flight {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.id);
    }
}

impl View {
    pub(super) fn new(world: Arc<World>, hints: Arc<Hints>) -> Self {
        Self { world, hints, frozen: Mutex::default(), in_flight: Arc::default() }
    }

    /// Lets nothing from or to this inhabitant through for so long: it lives, and seems dead.
    pub fn freeze(&self, span: Duration) {
        *lock(&self.frozen) = Some(Instant::now() + span);
    }

    async fn thaw(&self) {
        loop {
            let until = *lock(&self.frozen);
            match until {
                Some(until) if Instant::now() < until => time::sleep_until(until).await,
                _ => return,
            }
        }
    }

    /// Does something at the other end of the wire.
    async fn far<T, E>(&self, doing: impl Future<Output = Result<T, E>> + Send) -> Result<T, E> {
        self.thaw().await;
        self.world.travel().await;
        let done = doing.await;
        self.thaw().await;
        done
    }

    /// Does something that others would like to know.
    async fn write<T, E>(&self, doing: impl Future<Output = Result<T, E>> + Send) -> Result<T, E> {
        let written = async {
            let done = doing.await;
            // Also what failed may have been written.
            self.world.poke();
            done
        };
        self.far(written).await
    }

    fn take_off(&self, id: ExecutionId) -> Flight {
        if !lock(&self.in_flight).insert(id) {
            self.world.wrong("two appends to one log were in flight at once".to_owned());
        }
        Flight { all: Arc::clone(&self.in_flight), id }
    }
}

#[async_trait]
impl ExecutionLog for View {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        // Two may begin one log at once: a worker, and a client that asks again under its key.
        let _flight = (append.after != Seq::START).then(|| self.take_off(append.execution));
        if self.world.is_late() {
            self.world.append_later(append);
            self.far(async { Ok::<_, AppendError>(()) }).await?;
            return Err(StoreError::Unavailable("the answer was lost".to_owned()).into());
        }
        let (id, documents) = (append.execution, append.documents.clone());
        let done = self.write(self.world.faulty.append(append)).await;
        if done.is_ok() {
            self.world.acknowledge(id, documents);
        }
        done
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        self.write(self.world.faulty.put_head(head)).await
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.far(self.world.faulty.read(id, after)).await
    }

    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<ExecutionHead>, StoreError> {
        self.far(self.world.faulty.due(now, most)).await
    }

    async fn due_after(
        &self,
        now: Timestamp,
        after: Option<(Timestamp, ExecutionId)>,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        self.far(self.world.faulty.due_after(now, after, most)).await
    }

    async fn orphans(&self, now: Timestamp, most: usize) -> Result<Vec<ExecutionHead>, StoreError> {
        self.far(self.world.faulty.orphans(now, most)).await
    }

    async fn owned(&self, worker: WorkerId, most: usize) -> Result<Vec<ExecutionHead>, StoreError> {
        self.far(self.world.faulty.owned(worker, most)).await
    }

    async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.far(self.world.faulty.next_due()).await
    }

    async fn heartbeat(&self, lease: Lease) -> Result<(), StoreError> {
        self.far(self.world.faulty.heartbeat(lease)).await
    }

    async fn retire(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.write(self.world.faulty.retire(worker)).await
    }

    async fn workers(&self, now: Timestamp) -> Result<Vec<WorkerId>, StoreError> {
        self.far(self.world.faulty.workers(now)).await
    }

    async fn acquire(&self, ask: &PermitAsk, now: Timestamp) -> Result<Permission, StoreError> {
        self.far(self.world.faulty.acquire(ask, now)).await
    }

    async fn release(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.write(self.world.faulty.release(permits)).await
    }

    async fn cached(&self, key: &str, now: Timestamp) -> Result<Option<Arc<Value>>, StoreError> {
        self.far(self.world.faulty.cached(key, now)).await
    }

    async fn cache(&self, key: &str, output: &Value, until: Timestamp) -> Result<(), StoreError> {
        self.far(self.world.faulty.cache(key, output, until)).await
    }

    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.far(self.world.faulty.prune(before, most)).await
    }

    async fn send(&self, envelope: SentCommand) -> Result<(), StoreError> {
        self.write(self.world.faulty.send(envelope)).await
    }

    async fn inbox(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        self.far(self.world.faulty.inbox(of)).await
    }

    async fn discard(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.far(self.world.faulty.discard(commands)).await
    }

    fn hints(&self) -> &Hints {
        &self.hints
    }

    fn commits(&self) -> u64 {
        self.world.faulty.commits()
    }
}

#[async_trait]
impl Documents for View {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        self.far(self.world.faulty.put_request(request)).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        self.far(self.world.faulty.request(id)).await
    }

    async fn requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        self.far(self.world.faulty.requests(filter, page)).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        self.far(self.world.faulty.add_transcript(id, entries)).await
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        self.far(self.world.faulty.transcript_after(id, known)).await
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        self.far(self.world.faulty.put_plan(plan)).await
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        self.far(self.world.faulty.plan(id)).await
    }

    async fn plans_of(&self, id: RequestId) -> Result<Vec<PlanId>, StoreError> {
        self.far(self.world.faulty.plans_of(id)).await
    }

    async fn plans(&self, filter: &PlanFilter, page: &Page) -> Result<Listing<PlanId>, StoreError> {
        self.far(self.world.faulty.plans(filter, page)).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        self.far(self.world.faulty.head(id)).await
    }

    async fn heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        self.far(self.world.faulty.heads(filter, page)).await
    }

    async fn ended(
        &self,
        after: Timestamp,
        until: Timestamp,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        self.far(self.world.faulty.ended(after, until, most)).await
    }

    async fn reserve(&self, key: &Reservation) -> Result<Option<Reservation>, StoreError> {
        self.far(self.world.faulty.reserve(key)).await
    }

    async fn reservation(&self, key: &str) -> Result<Option<Reservation>, StoreError> {
        self.far(self.world.faulty.reservation(key)).await
    }

    async fn save_plan(&self, saved: &SavedPlan) -> Result<(), StoreError> {
        self.far(self.world.faulty.save_plan(saved)).await
    }

    async fn saved_plan(&self, name: &str) -> Result<Option<SavedPlan>, StoreError> {
        self.far(self.world.faulty.saved_plan(name)).await
    }

    async fn saved_plans(
        &self,
        after: Option<&str>,
        first: usize,
    ) -> Result<Vec<SavedPlan>, StoreError> {
        self.far(self.world.faulty.saved_plans(after, first)).await
    }

    async fn remove_saved_plan(&self, name: &str) -> Result<bool, StoreError> {
        self.far(self.world.faulty.remove_saved_plan(name)).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.far(self.world.faulty.check()).await
    }
}

#[async_trait]
impl Vectors for View {
    async fn vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        self.far(self.world.faulty.vectors(model, texts)).await
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        self.write(self.world.faulty.put_vectors(model, vectors)).await
    }
}

#[async_trait]
impl Records for View {
    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        self.write(self.world.faulty.put_record(record, unless)).await
    }

    async fn record(&self, kind: RecordKind, name: &str) -> Result<Option<Record>, StoreError> {
        self.far(self.world.faulty.record(kind, name)).await
    }

    async fn records(&self, kind: RecordKind, page: RecordPage) -> Result<Vec<Record>, StoreError> {
        self.far(self.world.faulty.records(kind, page)).await
    }

    async fn record_names(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<String>, StoreError> {
        self.far(self.world.faulty.record_names(kind, page)).await
    }

    async fn count_records(
        &self,
        kind: RecordKind,
        prefix: &str,
        most: usize,
    ) -> Result<usize, StoreError> {
        self.far(self.world.faulty.count_records(kind, prefix, most)).await
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        self.write(self.world.faulty.remove_record(kind, name)).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.far(self.world.faulty.records_revision()).await
    }

    async fn add_usage(&self, usage: Vec<Usage>) -> Result<(), StoreError> {
        self.write(self.world.faulty.add_usage(usage)).await
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        self.far(self.world.faulty.usage()).await
    }
}
