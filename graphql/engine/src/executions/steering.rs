//! Sends commands to executions and waits until they are recorded. The wait has a short limit,
//! because a command is recorded only when a worker owns the execution.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use serde_json::Value;
use shared::{
    event::{Event, WaitReason},
    execution::{Execution, ExecutionState, Phase, Step, StepState},
    id::{ExecutionId, StepId, Task},
    limits,
    store::Command,
};
use tokio::time;

use super::{Executions, reader::apply_event};
use crate::error::EngineError;

/// Maximum time that a caller waits until its command is recorded.
const MAX_EVENT_WAIT: Duration = Duration::from_secs(5);
/// Maximum wait in a process without a worker. It is short, because perhaps no live worker of
/// another process can claim the execution.
const MAX_WAIT_WITHOUT_WORKER: Duration = Duration::from_millis(200);

impl Executions {
    /// Cancels an execution. Returns when the command is recorded, or after a short wait, but
    /// running tools can need more time to stop.
    pub async fn cancel(
        &self,
        id: ExecutionId,
        reason: Option<String>,
    ) -> Result<Execution, EngineError> {
        let execution = self.reader.expect(id).await?;
        // Does not change an execution that compensates, because a compensation cannot be
        // cancelled.
        if execution.state().is_finished() || execution.state() == ExecutionState::Compensating {
            return Ok(execution);
        }
        if execution.options().compensate_on_failure {
            // The cancellation starts compensations, which call tools, so the caller must be
            // allowed to use them.
            self.plans.check_plan(execution.plan()).await?;
        }
        self.control.cancel(id, reason).await?;
        self.await_event(execution, |execution, _| match execution.phase() {
            Phase::Cancelling => !execution.agenda().running().is_empty(),
            phase => matches!(phase, Phase::Compensating(_)),
        })
        .await
    }

    pub async fn pause(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let execution = self.load_unfinished(id).await?;
        self.control.pause(id).await?;
        if execution.is_paused() {
            return Ok(execution);
        }
        self.await_event(execution, |execution, event| execution.is_paused() || is_ignored(event))
            .await
    }

    pub async fn resume(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let execution = self.load_unfinished(id).await?;
        self.plans.check_plan(execution.plan()).await?;
        self.control.resume(id).await?;
        if !execution.is_paused() {
            return Ok(execution);
        }
        self.await_event(execution, |execution, event| !execution.is_paused() || is_ignored(event))
            .await
    }

    /// Approves or rejects a step that waits for a person. For a step with a list, `step` means all
    /// its waiting items, and `step[3]` means the item with index 3.
    pub async fn approve(
        &self,
        id: ExecutionId,
        step: &str,
        approved: bool,
        comment: Option<String>,
    ) -> Result<Execution, EngineError> {
        let execution = self.reader.expect(id).await?;
        self.plans.check_plan(execution.plan()).await?;
        let missing = || EngineError::NotFound(format!("`{id}` has no step `{step}`"));
        let (name, item) = split_item_name(step).ok_or_else(missing)?;
        let name: StepId = name.parse().map_err(|_| missing())?;
        let number = execution.plan().step_number(&name).ok_or_else(missing)?;
        let task = item.map_or_else(|| number.into(), |index| Task::from(number).for_item(index));
        let found = execution.task(task).ok_or_else(missing)?;
        let mut items = found.items.iter().flat_map(|items| items.as_slice());
        if !waits_for_person(found) && !items.any(waits_for_person) {
            let reason = if execution.state().is_finished() {
                let state = execution.state().as_str();
                format!("`{id}` has ended ({state}): none of its steps waits for a person")
            } else {
                let state = found.state.name();
                format!("step `{step}` does not wait for a person: it is {state}")
            };
            return Err(EngineError::Conflict(reason));
        }
        for envelope in self.store.list_commands(Some(id)).await? {
            let (Command::Approve { step: other, item: of, .. }
            | Command::Settle { step: other, item: of, .. }) = envelope.command
            else {
                continue;
            };
            if other == name && (of == item || of.is_none()) {
                let reason = format!(
                    "step `{step}` was answered already; if no process runs `{id}`, continue it \
                     with `faber execute {id}`"
                );
                return Err(EngineError::Conflict(reason));
            }
        }
        self.control.approve(id, name.clone(), item, approved, comment).await?;
        self.await_event(execution, |_, event| {
            is_ignored(event)
                || event.step() == Some(&name) && (item.is_none() || event.part().item == item)
        })
        .await
    }

    pub async fn signal(
        &self,
        id: ExecutionId,
        name: String,
        payload: Value,
    ) -> Result<Execution, EngineError> {
        let execution = self.load_unfinished(id).await?;
        self.plans.check_plan(execution.plan()).await?;
        self.control.signal(id, name.clone(), payload).await?;
        let is_refused = AtomicBool::new(false);
        let awaited = self.await_event(execution, |_, event| match event {
            Event::SignalReceived { name: received, .. } => *received == name,
            Event::SignalRefused { name: refused, .. } if *refused == name => {
                is_refused.store(true, Ordering::Relaxed);
                true
            }
            _ => false,
        });
        let execution = awaited.await?;
        if is_refused.load(Ordering::Relaxed) {
            let limit = limits::KEPT_SIGNALS;
            let reason = format!(
                "`{id}` already stores {limit} signals for later steps; the limit is reached: send \
                 `{name}` again when a step waits for it"
            );
            return Err(EngineError::LimitExceeded(reason));
        }
        Ok(execution)
    }

    async fn load_unfinished(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let execution = self.reader.expect(id).await?;
        if execution.state().is_finished() {
            let state = execution.state().as_str();
            let reason = format!("`{id}` is {state}: it can no longer be changed");
            return Err(EngineError::Conflict(reason));
        }
        Ok(execution)
    }

    /// Follows the log until `is_expected` is true, the execution has finished, or a timeout
    /// passes. Does not wait without a live worker, because none could record the command.
    pub(super) async fn await_event(
        &self,
        mut execution: Execution,
        is_expected: impl Fn(&Execution, &Event) -> bool,
    ) -> Result<Execution, EngineError> {
        let has_worker = self.control.worker().is_some();
        if !has_worker && self.store.list_workers(self.clock.now()).await?.is_empty() {
            return Ok(execution);
        }
        let max_wait = if has_worker { MAX_EVENT_WAIT } else { MAX_WAIT_WITHOUT_WORKER };
        let mut log = pin!(self.reader.follow_log(execution.id(), execution.seq()));
        let waiting = async {
            while let Some(next) = log.next().await {
                let recorded = next?;
                apply_event(&mut execution, &recorded)?;
                if is_expected(&execution, &recorded.event) {
                    break;
                }
            }
            Ok::<_, EngineError>(())
        };
        if let Ok(done) = time::timeout(max_wait, waiting).await {
            done?;
            while let Some(Some(next)) = log.next().now_or_never() {
                apply_event(&mut execution, &next?)?;
            }
        }
        Ok(execution)
    }
}

pub(super) fn is_ignored(event: &Event) -> bool {
    matches!(event, Event::CommandIgnored { .. })
}

fn waits_for_person(step: &Step) -> bool {
    matches!(step.state, StepState::Waiting(WaitReason::Approval | WaitReason::Decision { .. }))
}

pub(super) fn split_item_name(name: &str) -> Option<(&str, Option<u32>)> {
    match name.strip_suffix(']') {
        None => Some((name, None)),
        Some(open) => {
            let (step, index) = open.rsplit_once('[')?;
            Some((step, Some(index.parse().ok()?)))
        }
    }
}
