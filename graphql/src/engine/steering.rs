//! Tells executions things, and waits until they have heard.
//!
//! A command is durable before anybody waits; whoever asked wants to see what came of it. The wait
//! has a bound, because an execution that no worker has hears nothing until one takes it.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use serde_json::Value;
use shared::{
    event::{Event, RecordedEvent, WaitReason},
    execution::{Execution, ExecutionState, Phase, Step, StepState},
    id::{ExecutionId, StepId, Task},
    limits,
    store::{Command, StoreError},
};
use tokio::time;

use super::{Engine, EngineError};

/// How long somebody who told an execution something waits until it has heard.
const HEARD: Duration = Duration::from_secs(5);

impl Engine {
    /// Asks an execution to stop. One that is over stays as it is.
    ///
    /// Where tools run, it returns as soon as the request is on record; they may take a while.
    pub async fn cancel(
        &self,
        id: ExecutionId,
        reason: Option<String>,
    ) -> Result<Execution, EngineError> {
        let execution = self.known(id).await?;
        // What is being undone has ended already: undoing it is not stopped half-way.
        if execution.state().is_finished() || execution.state() == ExecutionState::Compensating {
            return Ok(execution);
        }
        if execution.options().compensate_on_failure {
            // Undoing calls tools as executing does.
            self.check_plan(execution.plan()).await?;
        }
        self.control.cancel(id, reason).await?;
        self.heard(execution, |it, _| match it.phase() {
            Phase::Cancelling => !it.agenda().running().is_empty(),
            phase => matches!(phase, Phase::Compensating(_)),
        })
        .await
    }

    /// Asks an execution to begin no further step.
    pub async fn pause(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let execution = self.open(id).await?;
        self.control.pause(id).await?;
        if execution.is_paused() {
            return Ok(execution);
        }
        self.heard(execution, |it, event| it.is_paused() || is_ignored(event)).await
    }

    /// Asks an execution to go on.
    pub async fn resume(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let execution = self.open(id).await?;
        self.check_plan(execution.plan()).await?;
        self.control.resume(id).await?;
        if !execution.is_paused() {
            return Ok(execution);
        }
        self.heard(execution, |it, event| !it.is_paused() || is_ignored(event)).await
    }

    /// Lets a step that waits for a person go on, or not: `step`, with all of its items that wait,
    /// or one of them, `step[3]`.
    pub async fn approve(
        &self,
        id: ExecutionId,
        step: &str,
        approved: bool,
        comment: Option<String>,
    ) -> Result<Execution, EngineError> {
        let execution = self.known(id).await?;
        self.check_plan(execution.plan()).await?;
        let missing = || EngineError::NotFound(format!("`{id}` has no step `{step}`"));
        let (name, item) = split(step).ok_or_else(missing)?;
        let name: StepId = name.parse().map_err(|_| missing())?;
        let number = execution.plan().step_number(&name).ok_or_else(missing)?;
        let task = item.map_or_else(|| number.into(), |it| Task::from(number).for_item(it));
        let found = execution.task(task).ok_or_else(missing)?;
        let mut items = found.items.iter().flat_map(|it| it.as_slice());
        if !asks(found) && !items.any(asks) {
            let why = if execution.state().is_finished() {
                let state = execution.state().as_str();
                format!("`{id}` has ended ({state}): none of its steps waits for a person")
            } else {
                let state = found.state.name();
                format!("step `{step}` does not wait for a person: it is {state}")
            };
            return Err(EngineError::Conflict(why));
        }
        for envelope in self.store.list_commands(Some(id)).await? {
            let Command::Approve { step: other, item: of, .. } = envelope.command else { continue };
            if other == name && (of == item || of.is_none()) {
                let why = format!(
                    "step `{step}` was answered already; where no process carries `{id}` on, \
                     `faber execute {id}` does"
                );
                return Err(EngineError::Conflict(why));
            }
        }
        self.control.approve(id, name.clone(), item, approved, comment).await?;
        self.heard(execution, |_, event| {
            is_ignored(event)
                || event.step() == Some(&name) && (item.is_none() || event.part().item == item)
        })
        .await
    }

    /// Tells an execution something that a step waits for, or may wait for later.
    pub async fn signal(
        &self,
        id: ExecutionId,
        name: String,
        payload: Value,
    ) -> Result<Execution, EngineError> {
        let execution = self.open(id).await?;
        self.check_plan(execution.plan()).await?;
        self.control.signal(id, name.clone(), payload).await?;
        let is_refused = AtomicBool::new(false);
        let heard = self.heard(execution, |_, event| match event {
            Event::SignalReceived { name: heard, .. } => *heard == name,
            Event::SignalRefused { name: refused, .. } if *refused == name => {
                is_refused.store(true, Ordering::Relaxed);
                true
            }
            _ => false,
        });
        let execution = heard.await?;
        if is_refused.load(Ordering::Relaxed) {
            let most = limits::SIGNALS;
            let why = format!(
                "`{id}` keeps {most} signals that no step waited for yet, and keeps no more: send \
                 `{name}` again when a step waits for it"
            );
            return Err(EngineError::LimitExceeded(why));
        }
        Ok(execution)
    }

    pub(super) async fn known(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let found = self.execution(id).await?;
        found.ok_or_else(|| EngineError::not_found("execution", id))
    }

    async fn open(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let execution = self.known(id).await?;
        if execution.state().is_finished() {
            let state = execution.state().as_str();
            let why = format!("`{id}` is {state}: it can no longer be changed");
            return Err(EngineError::Conflict(why));
        }
        Ok(execution)
    }

    /// Follows the log until `is_heard` or the end, but not for ever, and on through what was
    /// recorded together with it.
    async fn heard(
        &self,
        mut execution: Execution,
        is_heard: impl Fn(&Execution, &Event) -> bool,
    ) -> Result<Execution, EngineError> {
        let mut log = pin!(self.tail(execution.id(), execution.seq()));
        let hearing = async {
            while let Some(next) = log.next().await {
                let recorded = next?;
                apply(&mut execution, &recorded)?;
                if is_heard(&execution, &recorded.event) {
                    break;
                }
            }
            Ok::<_, EngineError>(())
        };
        if let Ok(heard) = time::timeout(HEARD, hearing).await {
            heard?;
            while let Some(Some(next)) = log.next().now_or_never() {
                apply(&mut execution, &next?)?;
            }
        }
        Ok(execution)
    }
}

/// Returns whether something that was asked for changed nothing: somebody else was faster.
fn is_ignored(event: &Event) -> bool {
    matches!(event, Event::CommandIgnored { .. })
}

/// Returns whether a step, or an item of one, waits for a person.
fn asks(step: &Step) -> bool {
    matches!(step.state, StepState::Waiting(WaitReason::Approval | WaitReason::Decision { .. }))
}

/// Takes the name of an item apart: `step[3]`.
fn split(name: &str) -> Option<(&str, Option<u32>)> {
    match name.strip_suffix(']') {
        None => Some((name, None)),
        Some(open) => {
            let (step, index) = open.rsplit_once('[')?;
            Some((step, Some(index.parse().ok()?)))
        }
    }
}

/// Moves past an event of the store.
pub(super) fn apply(execution: &mut Execution, recorded: &RecordedEvent) -> Result<(), StoreError> {
    let id = execution.id();
    execution.apply(recorded).map_err(|err| StoreError::corrupt(id, err))
}
