//! What people and programs outside ask for, and what steps ask of them.

use std::sync::Arc;

use serde_json::Value;
use shared::{
    event::{Event, WaitReason},
    execution::{Phase, StepState},
    id::{Attempt, CommandId, StepId, StepIx},
    plan::StepKind,
    store::{Command, Envelope},
    tool::{ErrorCode, ToolError},
};

use super::{Turn, start::Rendered};

impl Turn<'_> {
    /// Does what a command asks for, once, and only if it still makes sense.
    pub(super) fn obey(&mut self, envelope: Envelope) {
        let Envelope { id, command, .. } = envelope;
        let is_open = self.execution.phase() == Phase::Open;
        match command {
            _ if self.execution.has_heard(id) => (),
            Command::Cancel { .. } if self.execution.phase() == Phase::Cancelling => (),
            Command::Cancel { reason } => self.push(Event::CancelRequested { reason }),
            Command::Pause if is_open && !self.execution.is_paused() => {
                self.push(Event::Paused { command: id });
            }
            Command::Resume if self.execution.is_paused() => {
                self.push(Event::Resumed { command: id });
            }
            Command::Pause | Command::Resume => (),
            Command::Approve { step, approved, comment } => {
                self.approve(id, &step, approved, comment);
            }
            Command::Signal { name, payload } => self.hear(id, &name, payload),
        }
    }

    fn approve(
        &mut self,
        command: CommandId,
        id: &StepId,
        approved: bool,
        comment: Option<String>,
    ) {
        let Some(number) = self.execution.plan().number(id) else { return };
        let state = &self.execution.step(number).state;
        let StepState::Waiting(reason) = state else { return };
        let error = match reason {
            WaitReason::Signal { .. } => return,
            WaitReason::Decision { error } => error.clone(),
            WaitReason::Approval => {
                let why = comment
                    .as_deref()
                    .map_or("a person said no".to_owned(), |it| format!("a person said no: {it}"));
                ToolError::new(ErrorCode::REJECTED, why)
            }
        };
        let step = id.clone();
        if approved {
            return self.push(Event::StepApproved { step, comment, command });
        }
        let attempts = self.execution.step(number).attempts.max(1);
        let attempt = Attempt::after(attempts - 1);
        self.push(Event::StepFailed { step, attempt, error });
    }

    /// Keeps a signal, or gives it to the first step that waits for it.
    fn hear(&mut self, command: CommandId, name: &str, payload: Arc<Value>) {
        let event = Event::SignalReceived { name: name.to_owned(), payload, command };
        self.push(event);
        let awaits = |number: &StepIx| match &self.execution.step(*number).state {
            StepState::Waiting(WaitReason::Signal { name: awaited }) => awaited == name,
            _ => false,
        };
        if let Some(number) = self.execution.agenda().waiting().iter().copied().find(awaits) {
            self.take_signal(number, name);
        }
    }

    /// Gives a waiting step the oldest kept signal that it waits for, if there is one.
    fn take_signal(&mut self, number: StepIx, name: &str) {
        let kept = self.execution.signals().iter().find(|it| it.name == name);
        let Some(output) = kept.map(|it| Arc::clone(&it.payload)) else { return };
        let step = self.execution.plan().step(number).id.clone();
        let attempt = Attempt::FIRST;
        self.push(Event::StepSucceeded { step, attempt, output });
    }

    /// Asks for what ready steps need before they begin: consent, or a signal.
    pub(super) fn ask(&mut self) {
        while self.is_open()
            && let Some(number) = self.execution.agenda().asking().first().copied()
        {
            let attempt = self.execution.step(number).next_attempt();
            let rendered = match self.render(number) {
                Ok(rendered) => rendered,
                Err(error) => {
                    self.fail_unstarted(number, attempt, error);
                    continue;
                }
            };
            let reason = match self.wait_reason(number, &rendered.parameters) {
                Ok(reason) => reason,
                Err(error) => {
                    self.fail_unstarted(number, attempt, error);
                    continue;
                }
            };
            let step = self.execution.plan().step(number).id.clone();
            let Rendered { parameters, warnings } = rendered;
            let signal = match &reason {
                WaitReason::Signal { name } => Some(name.clone()),
                _ => None,
            };
            self.push(Event::StepWaiting { step, reason, parameters, warnings });
            if let Some(name) = signal {
                self.take_signal(number, &name);
            }
        }
    }

    fn wait_reason(&self, number: StepIx, parameters: &Value) -> Result<WaitReason, ToolError> {
        let step = self.execution.plan().step(number);
        let needs_consent =
            step.policy.requires_approval && !self.execution.step(number).is_approved;
        if step.kind != StepKind::Wait || needs_consent {
            return Ok(WaitReason::Approval);
        }
        match parameters["name"].as_str() {
            Some(name) if !name.is_empty() => Ok(WaitReason::Signal { name: name.to_owned() }),
            _ => Err(ToolError::new(
                ErrorCode::INVALID_PARAMETERS,
                "`name` must be the name of the signal to wait for",
            )),
        }
    }
}
