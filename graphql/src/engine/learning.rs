//! Learning from executions that succeeded which tool follows which.
//!
//! What was learned is one record, with the moment up to which executions are in it. Whoever is
//! first to look further writes both together, and only if nobody else was faster: every execution
//! is in it once, whichever nodes there are.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use planner::toolkit::{
    Toolkit,
    learned::{Follower, Learned},
};
use serde::{Deserialize, Serialize};
use shared::{
    clock::Timestamp,
    execution::{Execution, ExecutionState, StepState},
    id::{NodeName, ToolName},
    store::{ExecutionFilter, Head, Page, Record, RecordKind, StoreError, Unless},
};
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{Engine, EngineError};

/// The record that has what was learned.
const RECORD: &str = "transitions";
/// How often it is looked for what has ended meanwhile.
const LOOK: Duration = Duration::from_secs(30);
/// Heads that one look goes through, the newest first: where more end meanwhile, they are a sample.
const HEADS: usize = 2_000;
/// Heads that are read at a time.
const PAGE: usize = 200;
/// Executions whose logs are longer are not read: what one says a thousand times is one lesson.
const EVENTS: u64 = 5_000;
/// What ended so long before others may come late.
const SETTLED: TimeDelta = TimeDelta::seconds(5);
/// How long an execution may have taken to be a lesson.
const DURATION: TimeDelta = TimeDelta::days(1);

/// What was learned, as it is kept.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lessons {
    /// What ended until then is in it.
    until: Option<Timestamp>,
    learned: Learned,
}

impl Engine {
    /// Learns from what succeeds, until `stop`.
    pub async fn keep_learning(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = time::sleep(LOOK) => (),
            }
            if let Err(err) = self.learn(self.clock.now() - SETTLED).await {
                tracing::warn!(%err, "cannot learn from what succeeded");
            }
        }
    }

    /// Learns from what has succeeded since the last time and until a moment, and returns from how
    /// many executions.
    pub async fn learn(&self, until: Timestamp) -> Result<usize, EngineError> {
        let (record, mut lessons) = self.lessons().await?;
        let now = self.clock.now();
        let since = lessons.until.unwrap_or(Timestamp::UNIX_EPOCH);
        let ended = self.ended_between(since, until).await?;
        if ended.is_empty() {
            return Ok(0);
        }
        let mut count = 0;
        for (head, at) in ended {
            let Some(execution) = self.execution(head.execution).await? else { continue };
            let (calls, after) = lesson(&execution);
            if !calls.is_empty() && !execution.options().dry_run {
                lessons.learned.learn(&calls, &after, at);
                count += 1;
            }
        }
        lessons.until = Some(until);
        let value =
            serde_json::to_value(&lessons).map_err(|err| StoreError::corrupt(RECORD, err))?;
        let (unless, at) = Unless::since(record.as_ref(), now);
        let name = RECORD.to_owned();
        let record = Record { kind: RecordKind::Learned, name, value: Arc::new(value), at };
        // Who was faster has learned the same.
        let is_kept = self.store.put_record(&record, unless).await?;
        Ok(if is_kept { count } else { 0 })
    }

    /// Returns what was learned so far.
    pub async fn learned(&self) -> Result<Learned, EngineError> {
        Ok(self.lessons().await?.1.learned)
    }

    /// Returns the tools that usually follow one, of those that whoever asks may use.
    pub async fn followers(
        &self,
        tool: &NodeName,
        most: usize,
    ) -> Result<Vec<Follower>, EngineError> {
        let tool = self.meant(tool);
        let found = self.learned().await?.followers(&tool, usize::MAX, self.clock.now());
        let allowed = found.into_iter().filter(|it| self.grant.allows(&it.tool));
        Ok(allowed.take(most).collect())
    }

    /// Returns the learned score of an edge, if there is one.
    pub fn learned_score(
        &self,
        learned: &Learned,
        toolkit: &Toolkit,
        edge: (&NodeName, &NodeName),
    ) -> Option<f64> {
        learned.score(toolkit, edge, |name| Some(self.meant(name)), self.clock.now())
    }

    async fn lessons(&self) -> Result<(Option<Record>, Lessons), EngineError> {
        let record = self.store.record(RecordKind::Learned, RECORD).await?;
        let Some(it) = &record else { return Ok((None, Lessons::default())) };
        let lessons = serde_json::from_value(it.value.as_ref().clone());
        let lessons = lessons.map_err(|err| StoreError::corrupt("what was learned", err))?;
        Ok((record, lessons))
    }

    /// Returns the executions that succeeded after a moment and until another, the oldest first.
    async fn ended_between(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<(Head, Timestamp)>, EngineError> {
        let from = since.checked_sub_signed(DURATION);
        let states = vec![ExecutionState::Completed];
        let filter = ExecutionFilter { states, from, ..ExecutionFilter::default() };
        let mut page = Page { first: PAGE, after: None };
        let mut ended = Vec::new();
        let mut seen = 0;
        loop {
            let listed = self.store.heads(&filter, &page).await?;
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

/// Returns the tools that an execution called with success, and which came right after which: by
/// what they depend on, and in the order of the plan where nothing depends on anything.
fn lesson(execution: &Execution) -> (Vec<ToolName>, Vec<(usize, usize)>) {
    let steps = execution.plan().steps();
    let mut places = vec![None; steps.len()];
    let mut calls = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let state = execution.steps().get(at).map(|it| &it.state);
        let is_done = matches!(state, Some(StepState::Succeeded(_)));
        if is_done {
            places[at] = Some(calls.len());
            calls.push(step.tool.clone());
        }
    }
    let mut after = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let Some(to) = places[at] else { continue };
        after.extend(step.depends_on.iter().filter_map(|it| Some((places[it.get()]?, to))));
    }
    if after.is_empty() {
        after.extend((1..calls.len()).map(|it| (it - 1, it)));
    }
    (calls, after)
}
