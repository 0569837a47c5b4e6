//! Executions done again, and many executions steered at once.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use executor::control::{ControlError, Start};
use planner::reuse::{RetryScope, ReuseError, create_retry};
use shared::{
    clock::Timestamp,
    event::Created,
    execution::{Execution, ExecutionState},
    id::ExecutionId,
    plan::Plan,
    store::{ExecutionFilter, ExecutionHead, Page, StoreError},
};
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{Engine, EngineError};

/// Heads that one look takes.
const LOOK: usize = 256;
/// The most executions that one call steers.
const MOST: usize = 1_000_000;
/// The slowest pace: one a day.
const SLOWEST: f64 = 1.0 / 86_400.0;

/// What is done with many executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkAction {
    /// They are asked to stop.
    Cancel,
    /// They are asked to begin no further step.
    Pause,
    /// They are asked to go on.
    Resume,
    /// Those that have ended are retried: of each, the steps that did not succeed.
    Retry,
}

impl Engine {
    /// Retries an ended execution.
    pub async fn retry(
        &self,
        id: ExecutionId,
        scope: RetryScope<'_>,
    ) -> Result<ExecutionId, EngineError> {
        let ended = self.known(id).await?;
        self.check_plan(ended.plan()).await?;
        let mut created = create_retry(&ended, scope).map_err(|err| refused(&ended, err))?;
        created.options.replans.within = self.grant.within();
        self.start_created(ended.plan(), created).await
    }

    /// Starts an execution of a plan that takes something over from another.
    pub(super) async fn start_created(
        &self,
        plan: &Arc<Plan>,
        created: Created,
    ) -> Result<ExecutionId, EngineError> {
        self.check_start(plan).await?;
        let is_dry_run = created.options.dry_run;
        let start = Start::from_created(plan, created);
        if is_dry_run {
            return self.dry_run(start).await;
        }
        Ok(self.control.start(start).await?.id)
    }

    /// Steers every execution that matches and that the action fits, the newest last, and returns
    /// how many there were. It ends early when whoever asked has left.
    ///
    /// Executions that are created meanwhile are left alone. `per_second` spreads the actions in
    /// time; those that begin something again are spread by when they start, which is durable.
    pub async fn steer_all(
        &self,
        filter: &ExecutionFilter,
        action: BulkAction,
        per_second: Option<f64>,
        left: &CancellationToken,
    ) -> Result<usize, EngineError> {
        let apart = per_second.map(interval).transpose()?;
        let ids = self.fitting(filter, action).await?;
        let (begin, now) = (time::Instant::now(), self.clock.now());
        let mut done: u32 = 0;
        for id in ids {
            let wait = apart.map_or(Duration::ZERO, |it| it.saturating_mul(done));
            if action != BulkAction::Retry && !wait.is_zero() {
                tokio::select! {
                    () = time::sleep_until(begin + wait) => (),
                    () = left.cancelled() => break,
                }
            }
            if left.is_cancelled() {
                break;
            }
            let start_at = (!wait.is_zero()).then(|| later(now, wait));
            done += u32::from(self.steer_one(id, action, start_at).await?);
        }
        Ok(done as usize)
    }

    /// Returns the executions that match and that an action fits, the newest last.
    async fn fitting(
        &self,
        filter: &ExecutionFilter,
        action: BulkAction,
    ) -> Result<Vec<ExecutionId>, EngineError> {
        // What is created from now on (by a retry, too) is not meant.
        let now = self.clock.now();
        let to = Some(filter.to.map_or(now, |it| it.min(now)));
        let filter = ExecutionFilter { to, ..filter.clone() };
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.list_heads(&filter, &Page { first: LOOK, after }).await?;
            after = page.items.last().map(|(cursor, _)| cursor.clone());
            let heads = page.items.iter().map(|(_, head)| head);
            ids.extend(heads.filter(|it| fits(it, action)).map(|it| it.execution));
            if ids.len() > MOST {
                let why = format!("more than {MOST} executions match: narrow the filter");
                return Err(EngineError::LimitExceeded(why));
            }
            if !page.has_more {
                ids.reverse();
                return Ok(ids);
            }
        }
    }

    /// Does one thing to one execution. Returns whether it was done: what is wrong with one keeps
    /// nobody from the others.
    async fn steer_one(
        &self,
        id: ExecutionId,
        action: BulkAction,
        start_at: Option<Timestamp>,
    ) -> Result<bool, EngineError> {
        match self.steer(id, action, start_at).await {
            Err(EngineError::Store(
                err @ (StoreError::Full { .. }
                | StoreError::TooLarge { .. }
                | StoreError::Corrupt { .. }),
            )) => {
                tracing::warn!(execution = %id, ?action, %err, "one of many is left out");
                Ok(false)
            }
            steered => steered,
        }
    }

    /// Does one thing to one execution. Returns whether it still fitted.
    async fn steer(
        &self,
        id: ExecutionId,
        action: BulkAction,
        start_at: Option<Timestamp>,
    ) -> Result<bool, EngineError> {
        let told = match action {
            BulkAction::Cancel => match self.store.head(id).await? {
                Some(head) if fits(&head, action) => self.control.cancel(id, None).await,
                _ => return Ok(false),
            },
            BulkAction::Pause => self.control.pause(id).await,
            BulkAction::Resume => {
                if !self.grant.allows_every_tool()
                    && let Some(execution) = self.execution(id).await?
                {
                    self.check_plan(execution.plan()).await?;
                }
                self.control.resume(id).await
            }
            BulkAction::Retry => return self.retry_later(id, start_at).await,
        };
        match told {
            Ok(()) => Ok(true),
            // It ended, or was removed, meanwhile.
            Err(ControlError::Conflict(_) | ControlError::NotFound(_)) => Ok(false),
            Err(err) => Err(err.into()),
        }
    }

    async fn retry_later(
        &self,
        id: ExecutionId,
        start_at: Option<Timestamp>,
    ) -> Result<bool, EngineError> {
        let Some(ended) = self.execution(id).await? else { return Ok(false) };
        let Ok(mut created) = create_retry(&ended, RetryScope::Failed) else { return Ok(false) };
        created.options.start_at = start_at;
        created.options.replans.within = self.grant.within();
        self.start_created(ended.plan(), created).await.map(|_| true)
    }
}

/// Returns whether an action can change anything about an execution. Those that are part of
/// another are not begun again by themselves: that one begins them.
fn fits(head: &ExecutionHead, action: BulkAction) -> bool {
    match action {
        BulkAction::Cancel => {
            !head.state.is_finished() && head.state != ExecutionState::Compensating
        }
        BulkAction::Pause => !head.state.is_finished() && head.state != ExecutionState::Paused,
        BulkAction::Resume => head.state == ExecutionState::Paused,
        BulkAction::Retry => head.state.is_finished() && head.parent.is_none(),
    }
}

fn interval(per_second: f64) -> Result<Duration, EngineError> {
    if !(per_second.is_finite() && per_second >= SLOWEST) {
        let why = format!(
            "`perSecond` is {per_second}; it must be a number above 0 (at least one a day)"
        );
        return Err(EngineError::InvalidArgument(why));
    }
    Ok(Duration::from_secs_f64(1.0 / per_second))
}

fn later(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = TimeDelta::from_std(wait).unwrap_or(TimeDelta::MAX);
    let at = now.checked_add_signed(wait).unwrap_or(Timestamp::MAX_UTC);
    // Logs keep microseconds.
    Timestamp::from_timestamp_micros(at.timestamp_micros()).unwrap_or(at)
}

pub(super) fn refused(ended: &Execution, err: ReuseError) -> EngineError {
    match err {
        ReuseError::Open(_) => EngineError::Conflict(err.to_string()),
        ReuseError::NoStep(name) => {
            let known = ended.plan().steps().iter().map(|it| it.id.as_str());
            let help = planner::nearest::did_you_mean(&name, known);
            let help = help.map(|it| format!(": {it}")).unwrap_or_default();
            EngineError::NotFound(format!("`{}` has no step `{name}`{help}", ended.id()))
        }
        ReuseError::TooMuch { .. } | ReuseError::TooMuchSucceeded | ReuseError::TooMuchKept => {
            EngineError::LimitExceeded(err.to_string())
        }
    }
}
