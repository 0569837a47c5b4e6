use std::time::Duration;

use chrono::TimeDelta;
use executor::control::ControlError;
use planner::reuse::RetryScope;
use serde_json::json;
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::ExecutionId,
    store::{AuditAction, AuditTarget, ExecutionFilter, ExecutionHead, Page, StoreError},
};
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::Executions;
use crate::error::EngineError;

const PAGE_SIZE: usize = 256;
const MAX_BULK_EXECUTIONS: usize = 1_000_000;
/// The lowest allowed rate per second. It means one execution a day.
const MIN_RATE: f64 = 1.0 / 86_400.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkAction {
    Cancel,
    Pause,
    Resume,
    /// Retries finished executions. Steps that succeeded are reused.
    Retry,
}

impl BulkAction {
    fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "CANCEL",
            Self::Pause => "PAUSE",
            Self::Resume => "RESUME",
            Self::Retry => "RETRY",
        }
    }
}

impl Executions {
    /// Applies an action to every execution that matches the filter and that the action can change,
    /// oldest first. Returns the number of changed executions.
    ///
    /// Ignores executions that are created after this request. `per_second` spreads the actions
    /// over time.
    pub async fn steer_all(
        &self,
        filter: &ExecutionFilter,
        action: BulkAction,
        per_second: Option<f64>,
        client_gone: &CancellationToken,
    ) -> Result<usize, EngineError> {
        let interval = per_second.map(to_interval).transpose()?;
        let ids = self.find_matching(filter, action).await?;
        let (begin, now) = (time::Instant::now(), self.clock.now());
        let (mut done, mut left_out): (u32, usize) = (0, 0);
        for id in ids {
            let wait = interval.map_or(Duration::ZERO, |interval| interval.saturating_mul(done));
            if action != BulkAction::Retry && !wait.is_zero() {
                tokio::select! {
                    () = time::sleep_until(begin + wait) => (),
                    () = client_gone.cancelled() => break,
                }
            }
            if client_gone.is_cancelled() {
                break;
            }
            if action == BulkAction::Retry && self.would_repeat_unknown_call(id).await? {
                left_out += 1;
                continue;
            }
            let start_at = (!wait.is_zero()).then(|| add_to_time(now, wait));
            match self.steer_one(id, action, start_at).await {
                Ok(has_changed) => done += u32::from(has_changed),
                // Returns what is done, because a repeated bulk retry would retry it once more.
                Err(err) if done > 0 && err.code() == "LIMIT_EXCEEDED" => {
                    tracing::warn!(%err, done, "a bulk action stopped at a limit of its token");
                    break;
                }
                Err(err) => return Err(err),
            }
        }
        if left_out > 0 {
            tracing::warn!(
                executions = left_out,
                "a bulk retry left out executions that would repeat calls with an unknown outcome: \
                 settle them, or retry them one by one"
            );
        }
        let detail = json!({ "action": action.as_str(), "executions": done });
        let target = AuditTarget::default();
        self.record_action(AuditAction::BULK_CONTROL, target, detail).await;
        Ok(done as usize)
    }

    /// Returns whether a retry of an execution would repeat a call whose outcome is unknown, so
    /// that a person must decide.
    async fn would_repeat_unknown_call(&self, id: ExecutionId) -> Result<bool, EngineError> {
        let calls = match self.reader.load(id).await {
            Ok(Some(finished)) => self.reader.repeated_calls(&finished, RetryScope::Failed).await,
            // Returns `false` for an execution that was removed or is damaged, because the retry
            // skips such an execution.
            Ok(None) | Err(EngineError::Store(StoreError::Corrupt { .. })) => return Ok(false),
            Err(err) => Err(err),
        };
        match calls {
            Ok(calls) => Ok(calls.iter().any(|call| call.outcome_unknown)),
            Err(err @ EngineError::Store(_)) => Err(err),
            Err(_) => Ok(false),
        }
    }

    async fn find_matching(
        &self,
        filter: &ExecutionFilter,
        action: BulkAction,
    ) -> Result<Vec<ExecutionId>, EngineError> {
        // Leaves out executions that are created from now on, such as the retries that this action
        // starts.
        let now = self.clock.now();
        let to = Some(filter.to.map_or(now, |to| to.min(now)));
        let filter = ExecutionFilter { to, ..filter.clone() };
        let (mut ids, mut after) = (Vec::new(), None);
        loop {
            let page = self
                .store
                .list_heads(&filter, &Page { after, ..Page::first_items(PAGE_SIZE) })
                .await?;
            after = page.items.last().map(|(cursor, _)| cursor.clone());
            let heads = page.items.iter().map(|(_, head)| head);
            ids.extend(heads.filter(|head| can_change(head, action)).map(|head| head.execution));
            if ids.len() > MAX_BULK_EXECUTIONS {
                let reason =
                    format!("more than {MAX_BULK_EXECUTIONS} executions match: narrow the filter");
                return Err(EngineError::LimitExceeded(reason));
            }
            if !page.has_more {
                ids.reverse();
                return Ok(ids);
            }
        }
    }

    /// Applies an action to one execution, and returns whether it had an effect. Skips a damaged
    /// execution, and one whose action exceeds a limit of the store.
    async fn steer_one(
        &self,
        id: ExecutionId,
        action: BulkAction,
        start_at: Option<Timestamp>,
    ) -> Result<bool, EngineError> {
        match self.apply_action(id, action, start_at).await {
            Err(EngineError::Store(
                err @ (StoreError::Full { .. }
                | StoreError::TooLarge { .. }
                | StoreError::Corrupt { .. }),
            )) => {
                tracing::warn!(execution = %id, ?action, %err, "an execution of a bulk action is skipped");
                Ok(false)
            }
            steered => steered,
        }
    }

    async fn apply_action(
        &self,
        id: ExecutionId,
        action: BulkAction,
        start_at: Option<Timestamp>,
    ) -> Result<bool, EngineError> {
        let sent = match action {
            BulkAction::Cancel => match self.store.head(id).await? {
                Some(head) if can_change(&head, action) => self.control.cancel(id, None).await,
                _ => return Ok(false),
            },
            BulkAction::Pause => self.control.pause(id).await,
            BulkAction::Resume => {
                if !self.tools.grant.allows_every_tool()
                    && let Some(execution) = self.reader.load(id).await?
                {
                    match self.plans.check_plan(execution.plan()).await {
                        Ok(()) => {}
                        Err(err @ EngineError::Store(_)) => return Err(err),
                        Err(_) => return Ok(false),
                    }
                }
                self.control.resume(id).await
            }
            BulkAction::Retry => return self.retry_later(id, start_at).await,
        };
        match sent {
            Ok(()) => Ok(true),
            // The execution has finished or was pruned after it was listed, so the action has no
            // effect.
            Err(ControlError::Conflict(_) | ControlError::NotFound(_)) => Ok(false),
            Err(err) => Err(err.into()),
        }
    }

    async fn retry_later(
        &self,
        id: ExecutionId,
        start_at: Option<Timestamp>,
    ) -> Result<bool, EngineError> {
        let Some(finished) = self.reader.load(id).await? else { return Ok(false) };
        let mut created = match self.create_retry(&finished, RetryScope::Failed).await {
            Ok(created) => created,
            Err(err @ EngineError::Store(_)) => return Err(err),
            Err(_) => return Ok(false),
        };
        created.options.start_at = start_at;
        self.start_retry(finished.plan(), created).await.map(|_| true)
    }
}

/// Returns whether an action can change an execution. A child can be retried only through its
/// parent.
fn can_change(head: &ExecutionHead, action: BulkAction) -> bool {
    match action {
        BulkAction::Cancel => {
            !head.state.is_finished() && head.state != ExecutionState::Compensating
        }
        BulkAction::Pause => !head.state.is_finished() && head.state != ExecutionState::Paused,
        BulkAction::Resume => head.state == ExecutionState::Paused,
        BulkAction::Retry => head.state.is_finished() && head.parent.is_none(),
    }
}

fn to_interval(per_second: f64) -> Result<Duration, EngineError> {
    if !(per_second.is_finite() && per_second >= MIN_RATE) {
        let reason = format!(
            "`perSecond` is {per_second}: write a number above 0 that gives at least one action a \
             day"
        );
        return Err(EngineError::InvalidArgument(reason));
    }
    Ok(Duration::from_secs_f64(1.0 / per_second))
}

fn add_to_time(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = TimeDelta::from_std(wait).unwrap_or(TimeDelta::MAX);
    let at = now.checked_add_signed(wait).unwrap_or(Timestamp::MAX_UTC);
    // Logs store times in microseconds, so nanoseconds are cut off.
    Timestamp::from_timestamp_micros(at.timestamp_micros()).unwrap_or(at)
}
