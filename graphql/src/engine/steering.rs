//! Tells executions things, and waits until they have heard.
//!
//! A command is durable before anybody waits; whoever asked wants to see what came of it. The wait
//! has a bound, because an execution that no worker has hears nothing until one takes it.

use std::{pin::pin, time::Duration};

use futures::{FutureExt, StreamExt};
use serde_json::Value;
use shared::{
    event::{Event, Recorded, WaitReason},
    execution::{Execution, Phase, StepState},
    id::{ExecutionId, StepId},
    store::StoreError,
};
use tokio::time;

use super::{Engine, EngineError};

/// How long somebody who told an execution something waits until it has heard.
const HEARD: Duration = Duration::from_secs(2);

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
        if execution.state().is_over() {
            return Ok(execution);
        }
        self.control.cancel(id, reason).await?;
        self.heard(execution, |it, _| {
            it.phase() == Phase::Cancelling && !it.agenda().running().is_empty()
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
        self.heard(execution, |it, _| it.is_paused()).await
    }

    /// Asks an execution to go on.
    pub async fn resume(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let execution = self.open(id).await?;
        self.control.resume(id).await?;
        if !execution.is_paused() {
            return Ok(execution);
        }
        self.heard(execution, |it, _| !it.is_paused()).await
    }

    /// Lets a step that waits for a person go on, or not.
    pub async fn approve(
        &self,
        id: ExecutionId,
        step: &str,
        approved: bool,
        comment: Option<String>,
    ) -> Result<Execution, EngineError> {
        let execution = self.known(id).await?;
        let missing = || EngineError::NotFound(format!("`{id}` has no step `{step}`"));
        let step: StepId = step.parse().map_err(|_| missing())?;
        let number = execution.plan().number(&step).ok_or_else(missing)?;
        let state = &execution.step(number).state;
        let asks =
            matches!(state, StepState::Waiting(WaitReason::Approval | WaitReason::Decision { .. }));
        if !asks {
            let why = format!("step `{step}` is {} and waits for no person", state.name());
            return Err(EngineError::Conflict(why));
        }
        self.control.approve(id, (step.clone(), None), approved, comment).await?;
        self.heard(execution, |_, event| event.step() == Some(&step)).await
    }

    /// Tells an execution something that a step waits for, or may wait for later.
    pub async fn signal(
        &self,
        id: ExecutionId,
        name: String,
        payload: Value,
    ) -> Result<Execution, EngineError> {
        let execution = self.open(id).await?;
        self.control.signal(id, name.clone(), payload).await?;
        let is_heard = |event: &Event| matches!(event, Event::SignalReceived { name: heard, .. } if *heard == name);
        self.heard(execution, |_, event| is_heard(event)).await
    }

    async fn known(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let found = self.execution(id).await?;
        found.ok_or_else(|| EngineError::not_found("execution", id))
    }

    async fn open(&self, id: ExecutionId) -> Result<Execution, EngineError> {
        let execution = self.known(id).await?;
        if execution.state().is_over() {
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

/// Moves past an event of the store.
pub(super) fn apply(execution: &mut Execution, recorded: &Recorded) -> Result<(), StoreError> {
    let id = execution.id();
    execution.apply(recorded).map_err(|err| StoreError::corrupt(id, err))
}
