//! Learning from executions: which tool follows which, and which tools do well for which queries.
//!
//! What was learned is one record, with the moment up to which executions are in it. Whoever is
//! first to look further writes both together, and only if nobody else was faster: every execution
//! is in it once, whichever nodes there are.

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
    toolkit::{
        Toolkit,
        learned::{Follower, Learned},
    },
};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{NodeName, ToolName},
    store::{
        ExecutionFilter, ExecutionHead, HeadQuery, Page, Record, RecordKind, Store, StoreError,
        WriteCondition,
    },
};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::{Engine, EngineError, select::Among};
use crate::agent;

/// The record that has what was learned.
const RECORD: &str = "transitions";
/// How often it is looked for what has ended meanwhile.
const LOOK: Duration = Duration::from_secs(30);
/// Heads that one pass goes through. Where more have ended, another pass follows at once.
const HEADS: usize = 2_000;
/// Heads that are read at a time.
const PAGE: usize = 200;
/// Executions whose logs are longer are not read: what one says a thousand times is one lesson.
const EVENTS: u64 = 5_000;
/// What ended so long before others may come late.
const SETTLED: TimeDelta = TimeDelta::seconds(5);
/// How long an execution may have taken to be a lesson.
const DURATION: TimeDelta = TimeDelta::days(1);

/// Queries that one look takes in, the newest: a model embeds each.
const QUERIES: usize = 100;
/// How long queries wait for a model that does not answer.
const OUTAGE: TimeDelta = TimeDelta::hours(1);
/// How often it is tried to forget while others learn.
const TRIES: usize = 8;
/// What this process knows of what was learned, and whether it counts.
#[derive(Debug)]
pub(super) struct Learning {
    is_on: bool,
    /// What was learned when it was last looked at.
    known: Mutex<Option<(Instant, Arc<Lessons>)>>,
    /// Whether it was said that queries wait.
    is_told: AtomicBool,
}

/// What came of one pass.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    /// From how many executions something was learned.
    count: usize,
    /// Whether more have ended.
    has_more: bool,
}

impl Default for Learning {
    fn default() -> Self {
        Self { is_on: true, known: Mutex::default(), is_told: AtomicBool::default() }
    }
}

impl Learning {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Arc<Lessons>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was learned, unless others may have learned more since.
    fn known(&self) -> Option<Arc<Lessons>> {
        let known = self.lock();
        known.as_ref().filter(|it| it.0.elapsed() < LOOK).map(|it| Arc::clone(&it.1))
    }

    fn take_note(&self, lessons: Option<Arc<Lessons>>) {
        *self.lock() = lessons.map(|it| (Instant::now(), it));
    }
}

impl Engine {
    /// Returns an engine for which what was learned counts, or does not.
    #[must_use]
    pub fn with_learning(self, is_on: bool) -> Self {
        let learning = Learning { is_on, ..Learning::default() };
        Self { learning: Arc::new(learning), ..self }
    }

    /// Learns from what ends, until `stop`.
    pub async fn keep_learning(self, stop: CancellationToken) {
        loop {
            // A pass that is cut off has written nothing.
            let learned = tokio::select! {
                () = stop.cancelled() => return,
                learned = async {
                    time::sleep(LOOK).await;
                    self.learn(self.clock.now() - SETTLED).await
                } => learned,
            };
            if let Err(err) = learned {
                tracing::warn!(%err, "cannot learn from what has ended");
            }
        }
    }

    /// Learns from what has ended since the last time and until a moment, and returns from how
    /// many executions.
    pub async fn learn(&self, until: Timestamp) -> Result<usize, EngineError> {
        let mut count = 0;
        loop {
            let pass = self.learn_some(until).await?;
            count += pass.count;
            if !pass.has_more {
                return Ok(count);
            }
        }
    }

    /// Learns from the first of those executions, and notes how far it came.
    async fn learn_some(&self, until: Timestamp) -> Result<Pass, EngineError> {
        let (record, mut lessons) = self.lessons().await?;
        let now = self.clock.now();
        let since = lessons.until.unwrap_or(Timestamp::UNIX_EPOCH);
        let (new, until, has_more) = self.ended_next(since, until).await?;
        let told_since = lessons.told_until.unwrap_or(since);
        let mut again = Vec::new();
        if told_since < since {
            // What is in it already is only read again for its query, and only so much of it
            // counts.
            again = self.ended_lately(told_since, since).await?;
            again = again.split_off(again.len().saturating_sub(QUERIES));
        }
        let is_new = !new.is_empty();
        let ended = again.into_iter().chain(new);
        let mut count = 0;
        let mut told = Vec::new();
        for (head, at) in ended {
            let Some(execution) = self.execution(head.execution).await? else { continue };
            if execution.options().dry_run {
                continue;
            }
            let is_chosen = |tool: &ToolName| !agent::is_own(tool);
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
            told.extend(outcome);
        }
        let is_told = self.take_in_outcomes(&mut lessons.outcomes, told).await;
        if !is_told && !is_new {
            return Ok(Pass::default());
        }
        let waits_until = until.checked_sub_signed(OUTAGE).unwrap_or(until).max(told_since);
        lessons.told_until = (!is_told).then_some(waits_until);
        lessons.until = Some(until);
        let lessons = Arc::new(lessons);
        let value =
            serde_json::to_value(&*lessons).map_err(|err| StoreError::corrupt(RECORD, err))?;
        let (unless, at) = WriteCondition::unless_changed(record.as_ref(), now);
        let name = RECORD.to_owned();
        let record = Record { kind: RecordKind::Learned, name, value: Arc::new(value), at };
        // Who was faster has learned the same.
        let is_kept = self.store.put_record(&record, unless).await?;
        self.learning.take_note(is_kept.then_some(lessons));
        Ok(if is_kept { Pass { count, has_more } } else { Pass::default() })
    }

    /// Takes in how tools did for queries, all of them or none, and returns whether it did. Without
    /// an embedder nobody can tell which are of a kind, and nobody ever will; one that does not
    /// answer may, later.
    async fn take_in_outcomes(&self, outcomes: &mut Outcomes, mut told: Vec<QueryOutcome>) -> bool {
        let told = told.split_off(told.len().saturating_sub(QUERIES));
        let taken = self.with_outcomes(outcomes.clone(), told).await;
        let err = match taken {
            Ok(taken) => {
                *outcomes = taken;
                self.learning.is_told.store(false, Ordering::Relaxed);
                return true;
            }
            Err(err) => err,
        };
        if matches!(err, SelectError::NoEmbedder(_)) {
            return true;
        }
        if !self.learning.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(%err, "it is learned later which tools do well for which queries");
        }
        false
    }

    async fn with_outcomes(
        &self,
        mut outcomes: Outcomes,
        told: Vec<QueryOutcome>,
    ) -> Result<Outcomes, SelectError> {
        if told.is_empty() {
            return Ok(outcomes);
        }
        for QueryOutcome { query, tools, at } in told {
            let mut used = self.selection.current(Among::Planning).await;
            let kind = loop {
                match used.selector.kind(&outcomes, &query).await {
                    Ok(kind) => break kind,
                    Err(err) => used = self.selection.next(&used, err).await?,
                }
            };
            outcomes.learn(kind, &query, &tools, at);
        }
        Ok(outcomes)
    }

    /// Returns what was learned so far.
    pub async fn learned(&self) -> Result<Learned, EngineError> {
        Ok(self.lessons().await?.1.learned)
    }

    /// Returns what was learned so far or a moment ago, if it counts and the store tells it: nobody
    /// who chooses tools waits for the store each time.
    pub(super) async fn taught(&self) -> Option<Arc<Lessons>> {
        if !self.learning.is_on {
            return None;
        }
        if let Some(known) = self.learning.known() {
            return Some(known);
        }
        let read = self.lessons().await;
        let (_, lessons) =
            read.inspect_err(|err| tracing::warn!(%err, "what was learned does not count")).ok()?;
        let lessons = Arc::new(lessons);
        self.learning.take_note(Some(Arc::clone(&lessons)));
        Some(lessons)
    }

    /// Returns the tools that usually follow one, of those that whoever asks may use: none where
    /// none ever did.
    pub async fn followers(
        &self,
        tool: &NodeName,
        most: usize,
    ) -> Result<Vec<Follower>, EngineError> {
        let tool = self.meant(tool);
        let learned = self.learned().await?;
        if !learned.is_followed(&tool) {
            return Ok(Vec::new());
        }
        let found = learned.followers(&tool, usize::MAX, self.clock.now());
        let allowed = found.into_iter().filter(|it| self.grant.allows(&it.tool));
        Ok(allowed.take(most).collect())
    }

    /// Returns the learned score of an edge, if there is one.
    pub fn learned_score(
        &self,
        learned: &Learned,
        toolkit: &Toolkit,
        from: &NodeName,
        to: &NodeName,
    ) -> Option<f64> {
        learned.score(toolkit, from, to, |name| Some(self.meant(name)), self.clock.now())
    }

    async fn lessons(&self) -> Result<(Option<Record>, Lessons), EngineError> {
        Ok(lessons(&*self.store).await?)
    }

    /// Returns the first executions that ended, well or not, after a moment and until another, up
    /// to which moment that is all of them, and whether more follow.
    async fn ended_next(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<(Vec<(ExecutionHead, Timestamp)>, Timestamp, bool), EngineError> {
        let mut most = HEADS;
        loop {
            let heads =
                self.store.find_heads(HeadQuery::Finished { after: since, until }, most).await?;
            let has_more = heads.len() == most;
            let last = heads.last().and_then(|head| head.finished_at).filter(|_| has_more);
            // Others may have ended in the same microsecond as the last: all of them come next
            // time.
            let is_whole = |at: &Timestamp| last.is_none_or(|last| *at < last);
            let times = heads.iter().filter_map(|head| head.finished_at);
            let Some(reached) = times.filter(is_whole).max().or((!has_more).then_some(until))
            else {
                most *= 2;
                continue;
            };
            let lasts = |head: ExecutionHead| {
                let at = head.finished_at.filter(is_whole)?;
                let is_lesson = head.seq.0 <= EVENTS
                    && matches!(head.state, ExecutionState::Completed | ExecutionState::Failed);
                is_lesson.then_some((head, at))
            };
            let ended = heads.into_iter().filter_map(lasts).collect();
            return Ok((ended, if has_more { reached } else { until }, has_more));
        }
    }

    /// Returns executions that ended, well or not, after a moment and until another, the oldest
    /// first; of very many only the newest.
    async fn ended_lately(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<(ExecutionHead, Timestamp)>, EngineError> {
        let from = since.checked_sub_signed(DURATION);
        let states = vec![ExecutionState::Completed, ExecutionState::Failed];
        let filter = ExecutionFilter { states, from, ..ExecutionFilter::default() };
        let mut page = Page { first: PAGE, after: None };
        let mut ended = Vec::new();
        let mut seen = 0;
        loop {
            let listed = self.store.list_heads(&filter, &page).await?;
            seen += listed.items.len();
            page.after = listed.items.last().map(|(cursor, _)| cursor.clone());
            ended.extend(listed.items.into_iter().filter_map(|(_, head)| {
                let at = head.finished_at.filter(|it| *it > since && *it <= until)?;
                (head.seq.0 <= EVENTS).then_some((head, at))
            }));
            if !listed.has_more || seen >= HEADS {
                break;
            }
        }
        ended.sort_by_key(|(head, at)| (*at, head.execution));
        Ok(ended)
    }
}

async fn lessons(store: &dyn Store) -> Result<(Option<Record>, Lessons), StoreError> {
    let record = store.find_record(RecordKind::Learned, RECORD).await?;
    let Some(it) = &record else { return Ok((None, Lessons::default())) };
    let lessons = serde_json::from_value(it.value.as_ref().clone());
    let lessons = lessons.map_err(|err| StoreError::corrupt("what was learned", err))?;
    Ok((record, lessons))
}

/// Forgets what people asked for and have not asked for since a moment: it is theirs as their
/// requests are.
pub(crate) async fn forget_queries(store: &dyn Store, before: Timestamp) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        let (record, mut lessons) = lessons(store).await?;
        let Some(record) = record.filter(|_| lessons.outcomes.forget(before) > 0) else {
            return Ok(());
        };
        let value =
            serde_json::to_value(&lessons).map_err(|err| StoreError::corrupt(RECORD, err))?;
        let (unless, at) = WriteCondition::unless_changed(Some(&record), record.at);
        let record = Record { value: Arc::new(value), at, ..record };
        if store.put_record(&record, unless).await? {
            return Ok(());
        }
    }
    // Who was faster again and again will be here again, too.
    Ok(())
}
