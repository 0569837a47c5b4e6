//! Learns from executions which tools follow each other, and which tools succeed for which queries.
//! A node replaces the record of all lessons only if no other node has replaced it, so every
//! execution counts once.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::TimeDelta;
use planner::{
    learning::{Lessons, QueryOutcome, ToolSequence},
    select::{Outcomes, SelectError},
    toolkit::learned::Learned,
};
use shared::{
    clock::{Clock, Timestamp},
    execution::ExecutionState,
    id::ToolName,
    store::{
        ExecutionFilter, ExecutionHead, HeadQuery, Page, Record, RecordKind, Store, StoreError,
        WriteCondition,
    },
};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::selectors::Selectors;
use crate::{agent, error::EngineError, executions::reader::load_execution, tools::Tools};

const RECORD_NAME: &str = "transitions";
/// Interval between two rounds of learning. It is also the time after which a node uses the lessons
/// of other nodes.
const LEARN_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of finished executions that one round reads. If more have finished, the next
/// round follows without a pause.
const MAX_HEADS_PER_ROUND: usize = 2_000;
const PAGE_SIZE: usize = 200;
/// Executions with more events than this are left out, because a long log mostly repeats the same
/// calls.
const MAX_LOG_EVENTS: u64 = 5_000;
/// An execution is read when it has been finished for this time. Before that, a slow node could
/// still store an execution that finished earlier, and it would be missed.
const SETTLE_TIME: TimeDelta = TimeDelta::seconds(5);
/// Executions whose queries wait for the embedder are found by their creation time. The search
/// begins this much earlier, so an execution that took longer can be missed.
const MAX_DURATION: TimeDelta = TimeDelta::days(1);

/// Maximum number of queries of one round, because a model embeds each of them. If there are more,
/// only the newest queries count.
const MAX_QUERIES_PER_ROUND: usize = 100;
/// Maximum time for which queries wait for an embedder that does not answer. Then their lessons are
/// dropped.
const MAX_OUTAGE: TimeDelta = TimeDelta::hours(1);
const MAX_FORGET_ATTEMPTS: usize = 8;

pub struct Learning {
    is_on: bool,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    selectors: Arc<Selectors>,
    cached_lessons: Mutex<Option<(Instant, Arc<Lessons>)>>,
    /// `true` if the log has the warning that queries wait for an embedder.
    has_warned: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct RoundResult {
    count: usize,
    has_more: bool,
}

struct FinishedExecutions {
    heads: Vec<(ExecutionHead, Timestamp)>,
    /// The executions that finished until this time were read.
    until: Timestamp,
    has_more: bool,
}

impl Learning {
    pub(super) fn new(tools: &Tools, selectors: Arc<Selectors>, is_on: bool) -> Self {
        let (store, clock) = (Arc::clone(&tools.store), Arc::clone(&tools.clock));
        let (cached_lessons, has_warned) = (Mutex::default(), AtomicBool::default());
        Self { is_on, store, clock, selectors, cached_lessons, has_warned }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    fn lock_cache(&self) -> MutexGuard<'_, Option<(Instant, Arc<Lessons>)>> {
        self.cached_lessons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache_lessons(&self, lessons: Option<Arc<Lessons>>) {
        *self.lock_cache() = lessons.map(|lessons| (Instant::now(), lessons));
    }

    pub async fn keep_learning(self: Arc<Self>, stop: CancellationToken) {
        loop {
            // A round can be interrupted at any time, because it writes to the store only at its
            // end.
            let learned = tokio::select! {
                () = stop.cancelled() => return,
                learned = async {
                    time::sleep(LEARN_INTERVAL).await;
                    self.learn(self.clock.now() - SETTLE_TIME).await
                } => learned,
            };
            if let Err(err) = learned {
                tracing::warn!(%err, "cannot learn from finished executions");
            }
        }
    }

    /// Learns from the executions that finished since the last round and until `until`. Returns the
    /// number of executions with a lesson.
    pub async fn learn(&self, until: Timestamp) -> Result<usize, EngineError> {
        let mut count = 0;
        loop {
            let round = self.learn_round(until).await?;
            count += round.count;
            if !round.has_more {
                return Ok(count);
            }
        }
    }

    async fn learn_round(&self, until: Timestamp) -> Result<RoundResult, EngineError> {
        let (record, mut lessons) = read_lessons(&*self.store).await?;
        let now = self.clock.now();
        let since = lessons.until.unwrap_or(Timestamp::UNIX_EPOCH);
        let FinishedExecutions { heads: new, until, has_more } =
            self.read_finished(since, until).await?;
        let told_since = lessons.told_until.unwrap_or(since);
        let mut waiting_for_embedder = Vec::new();
        if told_since < since {
            // An earlier round has learned the tools of these executions, but not their queries,
            // because the embedder did not work. Only the newest queries are read.
            waiting_for_embedder = self.list_finished(told_since, since).await?;
            waiting_for_embedder = waiting_for_embedder
                .split_off(waiting_for_embedder.len().saturating_sub(MAX_QUERIES_PER_ROUND));
        }
        let is_new = !new.is_empty();
        let mut count = 0;
        let mut outcomes = Vec::new();
        for (head, at) in waiting_for_embedder.into_iter().chain(new) {
            let execution = match load_execution(&*self.store, head.execution).await {
                Ok(Some(execution)) => execution,
                // Skips an execution that is encrypted with another key. Only a node with this key
                // can learn from it.
                Ok(None) | Err(EngineError::Store(StoreError::Locked { .. })) => continue,
                Err(err) => return Err(err),
            };
            if execution.options().dry_run {
                continue;
            }
            let is_chosen = |tool: &ToolName| !agent::is_agent_tool(tool);
            let sequence = if at > since {
                ToolSequence::read(&execution, is_chosen)
            } else {
                ToolSequence::default()
            };
            if !sequence.tools.is_empty() {
                lessons.learned.learn(&sequence.tools, &sequence.transitions, at);
            }
            let outcome = QueryOutcome::read(&execution, at, is_chosen);
            count += usize::from(!sequence.tools.is_empty() || outcome.is_some());
            outcomes.extend(outcome);
        }
        let is_told = self.learn_outcomes(&mut lessons.outcomes, outcomes).await;
        if !is_told && !is_new {
            return Ok(RoundResult::default());
        }
        let waits_until = until.checked_sub_signed(MAX_OUTAGE).unwrap_or(until).max(told_since);
        lessons.told_until = (!is_told).then_some(waits_until);
        lessons.until = Some(until);
        let is_stored = store_lessons(&*self.store, record.as_ref(), &lessons, now).await?;
        // If another node replaced the record first, this round has no effect, because the other
        // node has learned from these executions.
        self.cache_lessons(is_stored.then(|| Arc::new(lessons)));
        Ok(if is_stored { RoundResult { count, has_more } } else { RoundResult::default() })
    }

    /// Adds all outcomes or none, and of many outcomes only the newest. Returns `false` if a later
    /// round must try again.
    async fn learn_outcomes(&self, outcomes: &mut Outcomes, mut new: Vec<QueryOutcome>) -> bool {
        let new = new.split_off(new.len().saturating_sub(MAX_QUERIES_PER_ROUND));
        let err = match self.add_outcomes(outcomes.clone(), new).await {
            Ok(added) => {
                *outcomes = added;
                self.has_warned.store(false, Ordering::Relaxed);
                return true;
            }
            Err(err) => err,
        };
        if matches!(err, SelectError::NoEmbedder(_)) {
            return true;
        }
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%err, "cannot learn from outcomes yet, will retry");
        }
        false
    }

    async fn add_outcomes(
        &self,
        mut outcomes: Outcomes,
        new: Vec<QueryOutcome>,
    ) -> Result<Outcomes, SelectError> {
        for QueryOutcome { query, tools, at } in new {
            let kind = self.selectors.query_kind(&outcomes, &query).await?;
            outcomes.learn(kind, &query, &tools, at);
        }
        Ok(outcomes)
    }

    pub async fn load_learned(&self) -> Result<Learned, EngineError> {
        Ok(read_lessons(&*self.store).await?.1.learned)
    }

    /// Returns lessons that are at most 30 seconds old, so that selection does not wait for the
    /// store each time. Returns nothing if learning is off or the store fails.
    pub(super) async fn recent_lessons(&self) -> Option<Arc<Lessons>> {
        if !self.is_on {
            return None;
        }
        let cached =
            self.lock_cache().as_ref().filter(|(at, _)| at.elapsed() < LEARN_INTERVAL).cloned();
        if let Some((_, lessons)) = cached {
            return Some(lessons);
        }
        let read = read_lessons(&*self.store).await;
        let warn = |err: &StoreError| {
            tracing::warn!(%err, "cannot read learned outcomes, so the selection ignores them");
        };
        let (_, lessons) = read.inspect_err(warn).ok()?;
        let lessons = Arc::new(lessons);
        self.cache_lessons(Some(Arc::clone(&lessons)));
        Some(lessons)
    }

    async fn read_finished(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<FinishedExecutions, EngineError> {
        let mut maximum = MAX_HEADS_PER_ROUND;
        loop {
            let heads =
                self.store.find_heads(HeadQuery::Finished { after: since, until }, maximum).await?;
            let has_more = heads.len() == maximum;
            let last = heads.last().and_then(|head| head.finished_at).filter(|_| has_more);
            // Further executions can have finished in the same microsecond as the last execution,
            // so all executions of this microsecond are left for the next round.
            let is_complete = |at: &Timestamp| last.is_none_or(|last| *at < last);
            let times = heads.iter().filter_map(|head| head.finished_at);
            let Some(reached) = times.filter(is_complete).max().or((!has_more).then_some(until))
            else {
                maximum *= 2;
                continue;
            };
            let with_lesson = |head: ExecutionHead| {
                let at = head.finished_at.filter(is_complete)?;
                let has_lesson = head.seq.0 <= MAX_LOG_EVENTS
                    && matches!(head.state, ExecutionState::Completed | ExecutionState::Failed);
                has_lesson.then_some((head, at))
            };
            let heads = heads.into_iter().filter_map(with_lesson).collect();
            let until = if has_more { reached } else { until };
            return Ok(FinishedExecutions { heads, until, has_more });
        }
    }

    /// Returns completed and failed executions that finished after `since` and until `until`,
    /// oldest first. If there are too many, returns only the newest.
    async fn list_finished(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<(ExecutionHead, Timestamp)>, EngineError> {
        let from = since.checked_sub_signed(MAX_DURATION);
        let states = vec![ExecutionState::Completed, ExecutionState::Failed];
        let filter = ExecutionFilter { states, from, ..ExecutionFilter::default() };
        let mut page = Page::first_items(PAGE_SIZE);
        let mut finished = Vec::new();
        let mut seen = 0;
        loop {
            let listed = self.store.list_heads(&filter, &page).await?;
            seen += listed.items.len();
            page.after = listed.items.last().map(|(cursor, _)| cursor.clone());
            finished.extend(listed.items.into_iter().filter_map(|(_, head)| {
                let at = head.finished_at.filter(|at| *at > since && *at <= until)?;
                (head.seq.0 <= MAX_LOG_EVENTS).then_some((head, at))
            }));
            if !listed.has_more || seen >= MAX_HEADS_PER_ROUND {
                break;
            }
        }
        finished.sort_by_key(|(head, at)| (*at, head.execution));
        Ok(finished)
    }
}

async fn read_lessons(store: &dyn Store) -> Result<(Option<Record>, Lessons), StoreError> {
    let record = store.find_record(RecordKind::Learned, RECORD_NAME).await?;
    let Some(found) = &record else { return Ok((None, Lessons::default())) };
    let lessons = serde_json::from_value(found.value.as_ref().clone());
    let lessons = lessons.map_err(|err| StoreError::corrupt("what was learned", err))?;
    Ok((record, lessons))
}

/// Replaces the stored record of the lessons. Returns `false` if another node has replaced it.
async fn store_lessons(
    store: &dyn Store,
    before: Option<&Record>,
    lessons: &Lessons,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let value =
        serde_json::to_value(lessons).map_err(|err| StoreError::corrupt(RECORD_NAME, err))?;
    let (unless, at) = WriteCondition::unless_changed(before, now);
    let name = RECORD_NAME.to_owned();
    let record = Record { kind: RecordKind::Learned, name, value: Arc::new(value), at };
    store.put_record(&record, unless).await
}

/// Removes the lessons of queries that were last used before `before`, because their requests are
/// pruned at the same age.
pub(crate) async fn forget_queries(store: &dyn Store, before: Timestamp) -> Result<(), StoreError> {
    for _ in 0..MAX_FORGET_ATTEMPTS {
        let (record, mut lessons) = match read_lessons(store).await {
            // The lessons are encrypted with another key. A node with this key removes old queries.
            Err(StoreError::Locked { .. }) => return Ok(()),
            read => read?,
        };
        let Some(record) = record.filter(|_| lessons.outcomes.forget(before) > 0) else {
            return Ok(());
        };
        if store_lessons(store, Some(&record), &lessons, record.at).await? {
            return Ok(());
        }
    }
    // Other nodes replaced the record in every attempt. The next pruning tries again.
    Ok(())
}
