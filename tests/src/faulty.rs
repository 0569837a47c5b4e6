//! A store that lies the way real ones do: hostile to whoever uses it, honest by its contract.
//!
//! Before it passes an operation on it may fail; after the operation was written it may say that
//! it failed; it may take its time at either end. It never loses what it confirmed, never invents
//! anything, and never lets an append through at the wrong place: all of that would be a bug of
//! the store, and the conformance suite looks for it there. Everything is drawn from one seed, so
//! the same seed and the same calls give the same lies.

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
        Append, AppendError, Documents, ExecutionFilter, ExecutionHead, HeadQuery, Hints, Inbox,
        KeyValue, Lease, Listing, Log, Page, Permission, Permit, PermitAsk, Permits, PlanFilter,
        PlanVersion, Pruned, Record, RecordKind, RecordPage, RequestFilter, SentCommand, Store,
        StoreError, TextHash, Vectors, WriteCondition,
    },
};
use tokio::sync::watch;

/// Chance, from one seed. Copies share it.
#[derive(Clone)]
pub struct Dice(Arc<Mutex<SmallRng>>);

impl fmt::Debug for Dice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dice")
    }
}

impl Dice {
    /// Makes dice that always fall the same way.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))))
    }

    /// Draws whether something happens that happens so often in a thousand.
    pub fn happens(&self, in_thousand: u32) -> bool {
        self.below(1_000) < u64::from(in_thousand)
    }

    /// Draws a place in something of length `len`, which is not zero.
    pub fn index(&self, len: usize) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..len)
    }

    /// Draws a number below `end`, which is not zero.
    pub fn below(&self, end: u64) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random_range(0..end)
    }
}

/// How hostile a store is: how often in a thousand operations what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malice {
    /// It fails and has done nothing.
    pub fails_before: u32,
    /// It fails and has done it.
    pub fails_after: u32,
    /// It fails and has written the events of an append, but the commands that they record are
    /// still in the inbox: stores without transactions write those afterwards.
    pub forgets: u32,
    /// It takes its time, before or after.
    pub stalls: u32,
    /// How long, at most.
    pub stall: Duration,
}

impl Default for Malice {
    /// Fails every twentieth operation and stalls as often, for longer than a lease now and then.
    fn default() -> Self {
        Self {
            fails_before: 25,
            fails_after: 25,
            forgets: 100,
            stalls: 50,
            stall: Duration::from_secs(12),
        }
    }
}

/// A store in front of another, with malice.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    dice: Dice,
    malice: Malice,
    is_calm: AtomicBool,
    /// Why heads are not written that come alone.
    refuses_heads: Mutex<Option<StoreError>>,
    asked: watch::Sender<u64>,
}

impl Faulty {
    /// Puts malice before a store.
    pub fn new(inner: Arc<dyn Store>, dice: Dice, malice: Malice) -> Self {
        let (is_calm, refuses_heads) = (AtomicBool::new(false), Mutex::default());
        Self { inner, dice, malice, is_calm, refuses_heads, asked: watch::Sender::new(0) }
    }

    /// Refuses, from now on, to write heads that come without events, or does so no more.
    pub fn refuse_heads(&self, why: Option<StoreError>) {
        *self.refuses_heads.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Tells how often something was asked of the store, so that a test can do something just
    /// before an operation, or between two.
    pub fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Stops, or begins again, so that a test can see that all comes right once the store works.
    pub fn set_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::Relaxed);
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    async fn stall(&self) {
        if !self.is_calm() && self.dice.happens(self.malice.stalls) {
            let most = u64::try_from(self.malice.stall.as_millis()).unwrap_or(u64::MAX);
            let wait = self.dice.below(most.saturating_add(1));
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
    }

    fn fails(&self, in_thousand: u32) -> Result<(), StoreError> {
        if !self.is_calm() && self.dice.happens(in_thousand) {
            return Err(StoreError::Unavailable("the dice fell badly".to_owned()));
        }
        Ok(())
    }

    /// Does something between two strokes of bad luck.
    async fn through<T, E: From<StoreError>>(
        &self,
        doing: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<T, E> {
        self.asked.send_modify(|count| *count += 1);
        self.stall().await;
        self.fails(self.malice.fails_before)?;
        let done = doing.await?;
        self.stall().await;
        self.fails(self.malice.fails_after)?;
        Ok(done)
    }
}

#[async_trait]
impl Store for Faulty {
    async fn prune(&self, before: Timestamp, most: usize) -> Result<Pruned, StoreError> {
        self.through(self.inner.prune(before, most)).await
    }

    async fn shared_time(&self) -> Result<Timestamp, StoreError> {
        self.inner.shared_time().await
    }

    fn hints(&self) -> &Hints {
        self.inner.hints()
    }
}

#[async_trait]
impl Log for Faulty {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        if !append.heard.is_empty() && self.fails(self.malice.forgets).is_err() {
            let forgetful = Append { heard: Vec::new(), ..append };
            self.through(self.inner.append(forgetful)).await?;
            return Err(StoreError::Unavailable("the inbox was forgotten".to_owned()).into());
        }
        self.through(self.inner.append(append)).await
    }

    async fn put_head(&self, head: ExecutionHead) -> Result<(), StoreError> {
        let refusal = self.refuses_heads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(why) = refusal {
            return Err(why);
        }
        self.through(self.inner.put_head(head)).await
    }

    async fn read(&self, id: ExecutionId, after: Seq) -> Result<Vec<RecordedEvent>, StoreError> {
        self.through(self.inner.read(id, after)).await
    }

    async fn find_heads(
        &self,
        query: HeadQuery,
        most: usize,
    ) -> Result<Vec<ExecutionHead>, StoreError> {
        self.through(self.inner.find_heads(query, most)).await
    }

    async fn renew_lease(&self, lease: Lease) -> Result<(), StoreError> {
        self.through(self.inner.renew_lease(lease)).await
    }

    async fn remove_worker(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.through(self.inner.remove_worker(worker)).await
    }

    async fn list_workers(&self, now: Timestamp) -> Result<Vec<WorkerId>, StoreError> {
        self.through(self.inner.list_workers(now)).await
    }
}

#[async_trait]
impl Permits for Faulty {
    async fn acquire_permits(
        &self,
        ask: &PermitAsk,
        now: Timestamp,
    ) -> Result<Permission, StoreError> {
        self.through(self.inner.acquire_permits(ask, now)).await
    }

    async fn release_permits(&self, permits: Vec<Permit>) -> Result<(), StoreError> {
        self.through(self.inner.release_permits(permits)).await
    }
}

#[async_trait]
impl Inbox for Faulty {
    async fn send_command(&self, envelope: SentCommand) -> Result<(), StoreError> {
        self.through(self.inner.send_command(envelope)).await
    }

    async fn list_commands(&self, of: Option<ExecutionId>) -> Result<Vec<SentCommand>, StoreError> {
        self.through(self.inner.list_commands(of)).await
    }

    async fn remove_commands(&self, commands: Vec<CommandId>) -> Result<(), StoreError> {
        self.through(self.inner.remove_commands(commands)).await
    }
}

#[async_trait]
impl Documents for Faulty {
    async fn put_request(&self, request: &Request) -> Result<(), StoreError> {
        self.through(self.inner.put_request(request)).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<Request>, StoreError> {
        self.through(self.inner.request(id)).await
    }

    async fn list_requests(
        &self,
        filter: &RequestFilter,
        page: &Page,
    ) -> Result<Listing<Request>, StoreError> {
        self.through(self.inner.list_requests(filter, page)).await
    }

    async fn add_transcript(
        &self,
        id: RequestId,
        entries: &[TranscriptEntry],
    ) -> Result<(), StoreError> {
        self.through(self.inner.add_transcript(id, entries)).await
    }

    async fn transcript_after(
        &self,
        id: RequestId,
        known: usize,
    ) -> Result<Vec<TranscriptEntry>, StoreError> {
        self.through(self.inner.transcript_after(id, known)).await
    }

    async fn put_plan(&self, plan: &Plan) -> Result<(), StoreError> {
        self.through(self.inner.put_plan(plan)).await
    }

    async fn plan(&self, id: PlanId) -> Result<Option<Arc<Plan>>, StoreError> {
        self.through(self.inner.plan(id)).await
    }

    async fn list_plans(
        &self,
        filter: &PlanFilter,
        page: &Page,
    ) -> Result<Listing<PlanVersion>, StoreError> {
        self.through(self.inner.list_plans(filter, page)).await
    }

    async fn head(&self, id: ExecutionId) -> Result<Option<ExecutionHead>, StoreError> {
        self.through(self.inner.head(id)).await
    }

    async fn list_heads(
        &self,
        filter: &ExecutionFilter,
        page: &Page,
    ) -> Result<Listing<ExecutionHead>, StoreError> {
        self.through(self.inner.list_heads(filter, page)).await
    }
}

#[async_trait]
impl KeyValue for Faulty {
    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        self.through(self.inner.put_record(record, unless)).await
    }

    async fn find_record(
        &self,
        kind: RecordKind,
        name: &str,
    ) -> Result<Option<Record>, StoreError> {
        self.through(self.inner.find_record(kind, name)).await
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        self.through(self.inner.list_records(kind, page)).await
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        self.through(self.inner.remove_record(kind, name)).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.through(self.inner.records_revision()).await
    }
}

#[async_trait]
impl Vectors for Faulty {
    async fn find_vectors(
        &self,
        model: &str,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f32>>>, StoreError> {
        self.through(self.inner.find_vectors(model, texts)).await
    }

    async fn put_vectors(
        &self,
        model: &str,
        vectors: &[(TextHash, Vec<f32>)],
    ) -> Result<(), StoreError> {
        self.through(self.inner.put_vectors(model, vectors)).await
    }
}

#[cfg(test)]
mod tests {
    use shared::store::memory::Memory;

    use super::*;
    use crate::conformance::{execution, some_events};

    /// Appends a hundred times, each at what the log really ends at, and tells what happened.
    async fn story(seed: u64) -> (Vec<bool>, u64) {
        let inner: Arc<dyn Store> = Arc::new(Memory::new());
        let malice = Malice { fails_before: 200, fails_after: 200, ..Malice::default() };
        let faulty = Faulty::new(Arc::clone(&inner), Dice::new(seed), malice);
        let (mut answers, mut end) = (Vec::new(), 0);
        for _ in 0..100 {
            answers.push(faulty.append(some_events(execution(1), end, 1)).await.is_ok());
            let log = inner.read(execution(1), Seq(0)).await.unwrap();
            end = log.last().map_or(0, |recorded| recorded.seq.0);
        }
        (answers, end)
    }

    #[tokio::test(start_paused = true)]
    async fn it_fails_before_and_after_and_the_seed_decides() {
        let (answers, written) = story(1).await;
        let confirmed = answers.iter().filter(|confirmed| **confirmed).count() as u64;
        assert!(confirmed < written, "something was written and not confirmed");
        assert!(written < 100, "something was not written");
        assert_eq!(story(1).await, (answers.clone(), written));
        assert_ne!(story(2).await.0, answers);
    }

    #[tokio::test(start_paused = true)]
    async fn it_can_be_calm() {
        let malice = Malice { fails_before: 1_000, fails_after: 0, ..Malice::default() };
        let faulty = Faulty::new(Arc::new(Memory::new()), Dice::new(1), malice);
        assert!(faulty.records_revision().await.is_err());
        faulty.set_calm(true);
        faulty.records_revision().await.unwrap();
    }
}
