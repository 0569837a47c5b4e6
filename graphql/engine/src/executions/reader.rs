use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt, Stream, StreamExt, stream, stream::BoxStream};
use planner::replan::next_execution;
use shared::{
    event::{Event, RecordedEvent},
    execution::Execution,
    id::{ExecutionId, RequestId, Seq},
    limits,
    store::{self, Cursor, ExecutionFilter, ExecutionHead, LabelFilter, Page, Store, StoreError},
};
use tokio::sync::Mutex;

use crate::error::EngineError;

const PAGE_SIZE: usize = 64;
const MAX_RETRIES: usize = 1_000;
const MAX_CACHED_RETRIES: usize = 50_000;

pub struct ExecutionReader {
    pub(super) store: Arc<dyn Store>,
    /// For each execution, the execution that it retries. The value never changes, so the cache
    /// has no expiry time.
    retry_of: Arc<Mutex<BTreeMap<ExecutionId, Option<ExecutionId>>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventBudget {
    event_count: usize,
    bytes: usize,
}

impl EventBudget {
    pub fn new(events: usize) -> Self {
        Self { event_count: events, bytes: limits::ANSWER_BYTES }
    }

    pub fn is_spent(&self) -> bool {
        self.event_count == 0 || self.bytes == 0
    }

    fn spend_event(&mut self, event: &RecordedEvent) -> bool {
        if self.is_spent() {
            return false;
        }
        self.event_count -= 1;
        self.bytes = self.bytes.saturating_sub(event.bytes());
        true
    }
}

pub(crate) async fn load_execution(
    store: &dyn Store,
    id: ExecutionId,
) -> Result<Option<Execution>, EngineError> {
    let loaded = store.load_settled(id).await;
    if let Ok(Some(execution)) = &loaded
        && execution.state().is_finished()
    {
        return Ok(loaded?);
    }
    // Pruning removes the head first. A partial log without a head is therefore not an error.
    if store.head(id).await?.is_none() {
        return Ok(None);
    }
    match loaded? {
        Some(execution) => Ok(Some(execution)),
        None => Err(StoreError::corrupt(id, "its log is not in the store").into()),
    }
}

/// Returns the execution as its log describes it up to a position, or as it is now if the log is
/// shorter. Returns `None` if the execution or its plan does not exist.
pub(super) async fn load_execution_until(
    store: &dyn Store,
    id: ExecutionId,
    until: Seq,
) -> Result<Option<Execution>, EngineError> {
    let mut events = store.read(id, Seq::START).await?;
    let Some(Event::Created(created)) = events.first().map(|recorded| &recorded.event) else {
        return Ok(None);
    };
    let Some(plan) = store.plan(created.plan).await? else { return Ok(None) };
    let mut execution =
        Execution::create(id, plan, &events[0]).map_err(|err| StoreError::corrupt(id, err))?;
    events.remove(0);
    loop {
        for recorded in &events {
            if recorded.seq > until {
                return Ok(Some(execution));
            }
            apply_event(&mut execution, recorded)?;
        }
        events = store.read(id, execution.seq()).await?;
        if events.is_empty() || execution.seq() >= until {
            return Ok(Some(execution));
        }
    }
}

impl ExecutionReader {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, retry_of: Arc::default() }
    }

    pub(super) fn with_store(&self, store: Arc<dyn Store>) -> Self {
        Self { store, retry_of: Arc::clone(&self.retry_of) }
    }

    pub async fn load(&self, id: ExecutionId) -> Result<Option<Execution>, EngineError> {
        load_execution(&*self.store, id).await
    }

    pub(crate) async fn expect(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        self.load(id).await?.ok_or_else(|| EngineError::not_found("execution", id))
    }

    pub async fn events(
        &self,
        id: ExecutionId,
        after: Seq,
        budget: &mut EventBudget,
    ) -> Result<Vec<RecordedEvent>, EngineError> {
        let mut events: Vec<RecordedEvent> = Vec::new();
        while !budget.is_spent() {
            let end = events.last().map_or(after, |last| last.seq);
            let read = self.store.read(id, end).await?;
            if read.is_empty() {
                break;
            }
            events.extend(read.into_iter().take_while(|event| budget.spend_event(event)));
        }
        Ok(events)
    }

    pub fn follow_log(
        &self,
        id: ExecutionId,
        after: Seq,
    ) -> impl Stream<Item = Result<RecordedEvent, StoreError>> + Send + use<> {
        store::follow_log(Arc::clone(&self.store), id, after, limits::POLL_INTERVAL)
    }

    /// Yields an execution immediately, and again after each event about a step and after each
    /// change of its state. Combines progress reports that arrive at almost the same time.
    pub fn watch(
        &self,
        execution: Execution,
    ) -> impl Stream<Item = Result<Arc<Execution>, EngineError>> + Send + use<> {
        let log = self.follow_log(execution.id(), execution.seq()).fuse().boxed();
        let watcher = ExecutionWatcher { execution: Arc::new(execution), log, is_new: true };
        stream::try_unfold(watcher, |mut watcher| async move {
            let next = watcher.next().await?;
            Ok(next.map(|execution| (execution, watcher)))
        })
    }

    /// Returns the last `max_executions` executions of a request, oldest first. `is_root` leaves
    /// out the children of other executions.
    pub async fn newest_of_request(
        &self,
        request: RequestId,
        is_root: bool,
        max_executions: usize,
    ) -> Result<Vec<ExecutionHead>, EngineError> {
        let filter =
            ExecutionFilter { request: Some(request), is_root, ..ExecutionFilter::default() };
        self.newest_heads(&filter, max_executions, |_| true).await
    }

    /// Returns the newest heads that match the filter and for which `is_new` is true, oldest first.
    /// Stops after a page on which `is_new` is false for every head.
    pub async fn newest_heads(
        &self,
        filter: &ExecutionFilter,
        max_executions: usize,
        is_new: impl Fn(&ExecutionHead) -> bool,
    ) -> Result<Vec<ExecutionHead>, EngineError> {
        let mut heads: Vec<ExecutionHead> = Vec::new();
        let mut after: Option<Cursor> = None;
        while heads.len() < max_executions {
            let first = PAGE_SIZE.min(max_executions - heads.len());
            let page =
                self.store.list_heads(filter, &Page { after, ..Page::first_items(first) }).await?;
            let before = heads.len();
            after = page.items.last().map(|(cursor, _)| cursor.clone());
            heads.extend(page.items.into_iter().map(|(_, head)| head).filter(|head| is_new(head)));
            if !page.has_more || heads.len() == before {
                break;
            }
        }
        heads.reverse();
        Ok(heads)
    }

    pub async fn next(&self, finished: &Execution) -> Result<Option<Arc<Execution>>, EngineError> {
        if !finished.state().is_finished() || finished.parent().is_some() {
            return Ok(None);
        }
        Ok(self.load(next_execution(finished)).await?.map(Arc::new))
    }

    /// Returns the retries and the replan of a finished execution, oldest first. Finds a retry only
    /// among the 1,000 newest executions of the plan.
    pub async fn retries(&self, finished: &Execution) -> Result<Vec<ExecutionId>, EngineError> {
        if !finished.state().is_finished() {
            return Ok(Vec::new());
        }
        let filter = ExecutionFilter {
            plan: Some(finished.plan().id()),
            is_root: true,
            from: Some(finished.created_at()),
            ..ExecutionFilter::default()
        };
        let mut retries = Vec::new();
        for head in self.newest_heads(&filter, MAX_RETRIES, |_| true).await? {
            if head.execution != finished.id()
                && self.load_retry_of(head.execution).await? == Some(finished.id())
            {
                retries.push((head.created_at, head.execution));
            }
        }
        if let Some(next) = self.next(finished).await? {
            retries.push((next.created_at(), next.id()));
        }
        retries.sort();
        Ok(retries.into_iter().map(|(_, id)| id).collect())
    }

    /// Returns the newest forks of an execution, oldest first.
    pub async fn forks(&self, origin: ExecutionId) -> Result<Vec<ExecutionId>, EngineError> {
        let labels = vec![LabelFilter::of_forks(origin)];
        let filter = ExecutionFilter { labels, ..ExecutionFilter::default() };
        let heads = self.newest_heads(&filter, MAX_RETRIES, |_| true).await?;
        Ok(heads.into_iter().map(|head| head.execution).collect())
    }

    /// Returns the execution that another execution retries. Concurrent calls wait for each other,
    /// because the fields of a query often need the same log, which is then in the cache.
    async fn load_retry_of(&self, id: ExecutionId) -> Result<Option<ExecutionId>, EngineError> {
        let mut cached = self.retry_of.lock().await;
        if let Some(retry_of) = cached.get(&id) {
            return Ok(*retry_of);
        }
        let first = self.store.read(id, Seq::START).await?.into_iter().next();
        let Some(Event::Created(created)) = first.map(|first| first.event) else {
            return Ok(None);
        };
        let retry_of = created.retry_of;
        if cached.len() >= MAX_CACHED_RETRIES {
            cached.pop_first();
        }
        cached.insert(id, retry_of);
        Ok(retry_of)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Nothing,
    Progress,
    State,
}

struct ExecutionWatcher {
    execution: Arc<Execution>,
    log: BoxStream<'static, Result<RecordedEvent, StoreError>>,
    is_new: bool,
}

impl ExecutionWatcher {
    async fn next(&mut self) -> Result<Option<Arc<Execution>>, EngineError> {
        let mut is_change = std::mem::take(&mut self.is_new);
        while !is_change {
            let Some(next) = self.log.next().await else { return Ok(None) };
            let mut change = self.apply_event(&next?)?;
            while change != Change::State
                && let Some(Some(next)) = self.log.next().now_or_never()
            {
                change = change.max(self.apply_event(&next?)?);
            }
            is_change = change != Change::Nothing;
        }
        Ok(Some(Arc::clone(&self.execution)))
    }

    fn apply_event(&mut self, recorded: &RecordedEvent) -> Result<Change, StoreError> {
        let execution = Arc::make_mut(&mut self.execution);
        let before = execution.state();
        apply_event(execution, recorded)?;
        Ok(match &recorded.event {
            Event::StepProgress { .. } => Change::Progress,
            event if event.step().is_some() || execution.state() != before => Change::State,
            _ => Change::Nothing,
        })
    }
}

pub(super) fn apply_event(
    execution: &mut Execution,
    recorded: &RecordedEvent,
) -> Result<(), StoreError> {
    let id = execution.id();
    execution.apply(recorded).map_err(|err| StoreError::corrupt(id, err))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use shared::clock::Timestamp;

    use super::*;

    fn event(bytes: usize) -> RecordedEvent {
        let payload = Arc::new(Value::from("x".repeat(bytes)));
        let command = "cmd_1_aaaaaaaaa".parse().unwrap();
        let event = Event::SignalReceived { name: "s".to_owned(), payload, command };
        RecordedEvent { seq: Seq(1), at: Timestamp::UNIX_EPOCH, by: None, event }
    }

    #[test]
    fn a_budget_limits_events_and_bytes() {
        let mut budget = EventBudget::new(2);
        assert!(
            budget.spend_event(&event(1))
                && budget.spend_event(&event(1))
                && !budget.spend_event(&event(1))
        );
        let mut budget = EventBudget::new(1_000);
        let large = event(limits::ANSWER_BYTES / 4);
        let spent = (0..1_000_000).take_while(|_| budget.spend_event(&large)).count();
        assert_eq!(spent, 4);
        assert!(
            EventBudget::new(1).spend_event(&event(limits::ANSWER_BYTES * 2)),
            "the budget allows at least one event"
        );
    }
}
