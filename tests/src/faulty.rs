//! A store with the faults of real stores that the trait [`Store`] allows.
//! An operation can fail before the inner store gets it, can fail although the inner store has
//! written it, and can stall before and after. The store never loses a confirmed write, invents
//! nothing, and never accepts an append at the wrong position, because no real store is allowed to
//! do so. The same seed and the same calls give the same faults.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
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
use tokio::sync::watch;

/// Random choices that follow from one seed. Clones draw from the same sequence.
#[derive(Clone)]
pub struct Dice(Arc<Mutex<SmallRng>>);

impl fmt::Debug for Dice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dice")
    }
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))))
    }

    pub fn happens(&self, in_thousand: u32) -> bool {
        self.draw_below(1_000) < u64::from(in_thousand)
    }

    pub fn draw_index(&self, len: usize) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..len)
    }

    /// Draws a number below `end`, which is not zero.
    pub fn draw_below(&self, end: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..end)
    }
}

/// Numbers of faults in a thousand operations, and the longest duration of a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRates {
    pub failures_before: u32,
    pub failures_after: u32,
    /// Failures after the events of an append, but before its commands leave the inbox. Stores
    /// without transactions remove the commands later.
    pub failures_before_inbox: u32,
    pub stalls: u32,
    pub max_stall: Duration,
}

impl Default for FaultRates {
    /// About every twentieth operation fails, and about every tenth stalls, some of them for longer
    /// than a lease.
    fn default() -> Self {
        Self {
            failures_before: 25,
            failures_after: 25,
            failures_before_inbox: 100,
            stalls: 50,
            max_stall: Duration::from_secs(12),
        }
    }
}

#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    dice: Dice,
    rates: FaultRates,
    has_stopped_faults: AtomicBool,
    /// The error with which heads without events are refused.
    head_error: Mutex<Option<StoreError>>,
    operations: watch::Sender<u64>,
}

impl FaultyStore {
    pub fn new(inner: Arc<dyn Store>, dice: Dice, rates: FaultRates) -> Self {
        let (has_stopped_faults, head_error) = (AtomicBool::new(false), Mutex::default());
        Self {
            inner,
            dice,
            rates,
            has_stopped_faults,
            head_error,
            operations: watch::Sender::new(0),
        }
    }

    /// Sets the error with which heads without events are refused, or `None` to accept such heads
    /// again.
    pub fn refuse_heads(&self, reason: Option<StoreError>) {
        *self.head_error.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Returns a receiver of the number of operations, so that a test can act between two
    /// operations.
    pub fn operations(&self) -> watch::Receiver<u64> {
        self.operations.subscribe()
    }

    pub fn stop_faults(&self) {
        self.has_stopped_faults.store(true, Ordering::Relaxed);
    }

    fn has_stopped_faults(&self) -> bool {
        self.has_stopped_faults.load(Ordering::Relaxed)
    }

    async fn stall_sometimes(&self) {
        if !self.has_stopped_faults() && self.dice.happens(self.rates.stalls) {
            let maximum = u64::try_from(self.rates.max_stall.as_millis()).unwrap_or(u64::MAX);
            let wait = self.dice.draw_below(maximum.saturating_add(1));
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
    }

    fn fail_sometimes(&self, in_thousand: u32) -> Result<(), StoreError> {
        if !self.has_stopped_faults() && self.dice.happens(in_thousand) {
            return Err(StoreError::Unavailable("a simulated fault".to_owned()));
        }
        Ok(())
    }

    async fn with_faults<T, E: From<StoreError>>(
        &self,
        operation: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        self.operations.send_modify(|count| *count += 1);
        self.stall_sometimes().await;
        self.fail_sometimes(self.rates.failures_before)?;
        let done = operation.await?;
        self.stall_sometimes().await;
        self.fail_sometimes(self.rates.failures_after)?;
        Ok(done)
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn prune(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        self.with_faults(self.inner.prune(before, limit)).await
    }

    async fn remove_unused(&self, objects: &Removable) -> Result<usize, StoreError> {
        self.with_faults(self.inner.remove_unused(objects)).await
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        self.inner.shared_time().await
    }

    fn hints(&self) -> &Hints {
        self.inner.hints()
    }
}

#[async_trait]
impl Log for FaultyStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        if !append.handled_commands.is_empty()
            && self.fail_sometimes(self.rates.failures_before_inbox).is_err()
        {
            let forgetful = Append { handled_commands: Vec::new(), ..append };
            self.with_faults(self.inner.append(forgetful)).await?;
            return Err(StoreError::Unavailable("the commands were not removed".to_owned()).into());
        }
        self.with_faults(self.inner.append(append)).await
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        let refusal = self.head_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(reason) = refusal {
            return Err(reason);
        }
        self.with_faults(self.inner.put_head(head)).await
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.with_faults(self.inner.read(id, after)).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        limit: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        self.with_faults(self.inner.find_heads(query, limit)).await
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.with_faults(self.inner.renew_lease(lease)).await
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.with_faults(self.inner.remove_worker(worker)).await
    }

    async fn list_leases(&self, now: Timestamp) -> Result<Vec<Lease>, StoreError> {
        self.with_faults(self.inner.list_leases(now)).await
    }
}

#[async_trait]
impl Permits for FaultyStore {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        self.with_faults(self.inner.acquire_permits(ask, now)).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.with_faults(self.inner.release_permits(permits)).await
    }
}

#[async_trait]
impl Inbox for FaultyStore {
    async fn send_command(&self, envelope: SentCommand) -> Result<(), StoreError> {
        self.with_faults(self.inner.send_command(envelope)).await
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        self.with_faults(self.inner.list_commands(of)).await
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.with_faults(self.inner.remove_commands(commands)).await
    }
}

#[async_trait]
impl Documents for FaultyStore {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        self.with_faults(self.inner.put_request(request)).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        self.with_faults(self.inner.request(id)).await
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        self.with_faults(self.inner.list_requests(filter, page)).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        self.with_faults(self.inner.add_transcript(id, entries)).await
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        self.with_faults(self.inner.transcript_after(id, known)).await
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        self.with_faults(self.inner.put_plan(plan)).await
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        self.with_faults(self.inner.plan(id)).await
    }

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        self.with_faults(self.inner.list_plans(filter, page)).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        self.with_faults(self.inner.head(id)).await
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        self.with_faults(self.inner.list_heads(filter, page)).await
    }

    async fn count_executions(
        &self,
        query: &CountQuery,
    ) -> Result<Vec<ExecutionCount>, StoreError> {
        self.with_faults(self.inner.count_executions(query)).await
    }

    async fn count_active(&self, token: &str) -> Result<u64, StoreError> {
        self.with_faults(self.inner.count_active(token)).await
    }

    async fn sum_stored_bytes(&self, token: &str) -> Result<u64, StoreError> {
        self.with_faults(self.inner.sum_stored_bytes(token)).await
    }

    async fn count_heads(&self, filter: &ExecutionFilter) -> Result<u64, StoreError> {
        self.with_faults(self.inner.count_heads(filter)).await
    }

    async fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError> {
        self.with_faults(self.inner.count_requests(filter)).await
    }

    async fn count_plans(&self, filter: &PlanFilter) -> Result<u64, StoreError> {
        self.with_faults(self.inner.count_plans(filter)).await
    }
}

#[async_trait]
impl AuditLog for FaultyStore {
    async fn put_audit_entries(&self, entries: &[AuditEntry]) -> Result<usize, StoreError> {
        self.with_faults(self.inner.put_audit_entries(entries)).await
    }

    async fn list_audit_entries(
        &self,
        filter: &AuditFilter,
        page: &Page,
    ) -> Result<Listing<AuditEntry>, StoreError> {
        self.with_faults(self.inner.list_audit_entries(filter, page)).await
    }

    async fn count_audit_entries(&self, filter: &AuditFilter) -> Result<u64, StoreError> {
        self.with_faults(self.inner.count_audit_entries(filter)).await
    }

    async fn remove_audit_entries(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<usize, StoreError> {
        self.with_faults(self.inner.remove_audit_entries(before, most)).await
    }
}

#[async_trait]
impl KeyValue for FaultyStore {
    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        self.with_faults(self.inner.put_record(record, unless)).await
    }

    async fn find_record(
        &self,
        kind: RecordKind,
        name: &str,
    ) -> Result<Option<Record>, StoreError> {
        self.with_faults(self.inner.find_record(kind, name)).await
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        self.with_faults(self.inner.list_records(kind, page)).await
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        self.with_faults(self.inner.remove_record(kind, name)).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.with_faults(self.inner.records_revision()).await
    }
}

#[async_trait]
impl Vectors for FaultyStore {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        self.with_faults(self.inner.find_vectors(model, texts)).await
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        self.with_faults(self.inner.put_vectors(model, vectors)).await
    }
}

#[cfg(test)]
mod tests {
    use shared::store::memory::Memory;

    use super::*;
    use crate::conformance::{execution, some_events};

    /// Appends a hundred times at the real end of the log. Returns which appends were confirmed,
    /// and the length of the log.
    async fn append_hundred_times(seed: u64) -> (Vec<bool>, u64) {
        let inner: Arc<dyn Store> = Arc::new(Memory::new());
        let rates =
            FaultRates { failures_before: 200, failures_after: 200, ..FaultRates::default() };
        let faulty = FaultyStore::new(Arc::clone(&inner), Dice::new(seed), rates);
        let (mut answers, mut end) = (Vec::new(), 0);
        for _ in 0..100 {
            answers.push(faulty.append(some_events(execution(1), end, 1)).await.is_ok());
            let log = inner.read(execution(1), Seq(0)).await.unwrap();
            end = log.last().map_or(0, |recorded| recorded.seq.0);
        }
        (answers, end)
    }

    #[tokio::test(start_paused = true)]
    async fn a_faulty_store_fails_before_and_after_operations_as_its_seed_decides() {
        let (answers, written) = append_hundred_times(1).await;
        let confirmed = answers.iter().filter(|confirmed| **confirmed).count() as u64;
        assert!(confirmed < written, "an append was written and not confirmed");
        assert!(written < 100, "an append was not written");
        assert_eq!(append_hundred_times(1).await, (answers.clone(), written));
        assert_ne!(append_hundred_times(2).await.0, answers);
    }

    #[tokio::test(start_paused = true)]
    async fn a_calm_faulty_store_does_not_fail() {
        let rates =
            FaultRates { failures_before: 1_000, failures_after: 0, ..FaultRates::default() };
        let faulty = FaultyStore::new(Arc::new(Memory::new()), Dice::new(1), rates);
        assert!(faulty.records_revision().await.is_err());
        faulty.stop_faults();
        faulty.records_revision().await.unwrap();
    }
}
