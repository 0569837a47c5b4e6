//! Commands from the inbox, and steps that wait for a person or a signal.

use std::sync::Arc;

use serde_json::Value;
use shared::{
    event::{Event, Settlement, WaitReason},
    execution::{Phase, Step, StepState},
    id::{Attempt, CommandId, Part, StepId, Task},
    limits,
    plan::StepKind,
    store::{Command, SentCommand},
    tool::{ErrorCode, ToolError},
};

use super::{
    Decision, add_millis,
    schedule::{RenderedParameters, check_parameter_size},
};

impl Decision<'_> {
    /// Applies a command once. Records a command that has no effect now but could have one later,
    /// so that it has no effect later either.
    pub(super) fn apply_command(&mut self, envelope: SentCommand) {
        let SentCommand { id, command, by, .. } = envelope;
        if self.execution.has_command(id) {
            return;
        }
        self.by = by;
        self.record_command(id, command);
        // Later events, such as the next start, have no actor, because no command asked for them.
        self.by = None;
    }

    fn record_command(&mut self, id: CommandId, command: Command) {
        let before = self.events.len();
        let command_name = match &command {
            Command::Pause => "pause",
            Command::Resume => "resume",
            Command::Approve { approved: true, .. } => "approve",
            Command::Approve { .. } => "reject",
            Command::Settle { .. } => "settle",
            // Records no other command, because a signal always adds an event and to apply one of
            // the other commands again is harmless.
            _ => return self.change_by_command(id, command),
        };
        self.change_by_command(id, command);
        if self.events.len() == before {
            self.record_event(Event::CommandIgnored {
                asked: command_name.to_owned(),
                command: id,
            });
        }
    }

    fn change_by_command(&mut self, id: CommandId, command: Command) {
        let is_open = self.execution.phase() == Phase::Open;
        match command {
            Command::Cancel { .. } if self.is_stopping() => (),
            Command::Cancel { reason } => self.record_event(Event::CancelRequested { reason }),
            Command::Pause if is_open && !self.execution.is_paused() => {
                self.record_event(Event::Paused { command: id });
            }
            Command::Resume if self.execution.is_paused() => {
                self.record_event(Event::Resumed { command: id });
            }
            Command::Approve { step, item, approved, comment } => {
                self.answer_waiting(id, &step, item, approved, comment.as_deref());
            }
            Command::Settle { step, item, decision } => {
                self.settle_waiting(id, &step, item, decision);
            }
            Command::Signal { name, payload } => self.receive_signal(id, &name, payload),
            // `Pause` and `Resume` have no effect in this state. For `ChildEnded`, the driver reads
            // the log of the child.
            Command::Pause | Command::Resume | Command::ChildEnded { .. } => (),
        }
    }

    fn is_stopping(&self) -> bool {
        matches!(
            self.execution.phase(),
            Phase::Cancelling | Phase::Compensating(_) | Phase::Finished(_)
        )
    }

    /// Approves or rejects a step that waits for a person. For a loop, applies to `item`, or to all
    /// items that wait for a person.
    fn answer_waiting(
        &mut self,
        command: CommandId,
        id: &StepId,
        item: Option<u32>,
        approved: bool,
        comment: Option<&str>,
    ) {
        let Some(step) = self.execution.plan().step_number(id) else { return };
        let waiting = self.execution.agenda().waiting();
        let of_step = waiting.range(Task::from(step)..Task::from(step.next()));
        let is_named = |task: &&Task| item.is_none() || task.part.item == item;
        let tasks: Vec<Task> = of_step.filter(is_named).copied().collect();
        for task in tasks {
            self.answer_waiting_task(command, task, approved, comment);
        }
    }

    fn answer_waiting_task(
        &mut self,
        command: CommandId,
        task: Task,
        approved: bool,
        comment: Option<&str>,
    ) {
        let Some(StepState::Waiting(reason)) = self.task_state(task) else { return };
        let error = match reason {
            WaitReason::Signal { .. } => return,
            WaitReason::Decision { error } => error.clone(),
            WaitReason::Approval => {
                let reason = comment.map_or("a person rejected it".to_owned(), |comment| {
                    format!("a person rejected it: {comment}")
                });
                ToolError::new(ErrorCode::REJECTED, reason)
            }
        };
        let (step, part) = (self.step_id(task), task.part);
        if approved {
            let comment = comment.map(ToOwned::to_owned);
            return self.record_event(Event::StepApproved { step, part, comment, command });
        }
        let attempts = self.execution.task(task).map_or(1, |step| step.attempts.max(1));
        let attempt = Attempt::nth_after(attempts - 1);
        self.record_event(Event::StepFailed { step, part, attempt, error, command: Some(command) });
    }

    fn settle_waiting(
        &mut self,
        command: CommandId,
        id: &StepId,
        item: Option<u32>,
        decision: Settlement,
    ) {
        let Some(number) = self.execution.plan().step_number(id) else { return };
        let task = Task { step: number, part: Part { item, undo: false } };
        let Some(StepState::Waiting(WaitReason::Decision { error })) = self.task_state(task) else {
            return;
        };
        if error.code != ErrorCode::OUTCOME_UNKNOWN {
            return;
        }
        let attempts = self.execution.task(task).map_or(1, |step| step.attempts.max(1));
        let Settlement { outcome, output, comment } = decision;
        self.record_event(Event::StepSettled {
            step: id.clone(),
            part: task.part,
            attempt: Attempt::nth_after(attempts - 1),
            outcome,
            output,
            comment,
            command: Some(command),
        });
    }

    /// Gives a signal to the first step that waits for it. Otherwise stores the signal, or refuses
    /// it if too many are stored.
    fn receive_signal(&mut self, command: CommandId, name: &str, payload: Arc<Value>) {
        let taker = self.execution.agenda().first_awaiting(name);
        if taker.is_none() && self.execution.signals().len() >= limits::KEPT_SIGNALS {
            return self.record_event(Event::SignalRefused { name: name.to_owned(), command });
        }
        let event = Event::SignalReceived { name: name.to_owned(), payload, command };
        self.record_event(event);
        if let Some(task) = taker {
            self.consume_signal(task, name);
        }
    }

    fn consume_signal(&mut self, task: Task, name: &str) {
        let kept = self.execution.signals().iter().find(|signal| signal.name == name);
        let Some(output) = kept.map(|signal| Arc::clone(&signal.payload)) else { return };
        let (step, part, attempt) = (self.step_id(task), task.part, Attempt::FIRST);
        let output = Some(output);
        self.record_event(Event::StepSucceeded {
            step,
            part,
            attempt,
            output,
            cached: false,
            stderr: None,
        });
    }

    pub(super) fn expire_waits(&mut self) {
        let now = self.context.now;
        while let Some((until, task)) = self.execution.agenda().expiring().first().copied()
            && until <= now
        {
            let ms = self.call_policy(task).timeout_ms;
            let error =
                ToolError::new(ErrorCode::TIMEOUT, format!("no signal arrived within {ms} ms"));
            let (step, part, attempt) = (self.step_id(task), task.part, Attempt::FIRST);
            self.record_event(Event::StepFailed { step, part, attempt, error, command: None });
        }
    }

    pub(super) fn start_waits(&mut self) {
        while self.can_start()
            && let Some(task) = self.execution.agenda().to_wait().first().copied()
        {
            self.start_wait(task);
        }
    }

    fn start_wait(&mut self, task: Task) {
        let attempt = self.execution.task(task).map_or(Attempt::FIRST, Step::next_attempt);
        let is_unexpanded_loop =
            task.part.is_whole() && self.execution.plan().step(task.step).for_each.is_some();
        // Renders nothing for a loop, because the parameters of each item are rendered when it
        // starts.
        let rendered = if is_unexpanded_loop {
            check_parameter_size(self.unrendered_parameters(task), Vec::new())
        } else {
            self.render_parameters(task)
        };
        let reason = rendered
            .and_then(|rendered| Ok((self.wait_reason(task, &rendered.parameters)?, rendered)));
        let (reason, RenderedParameters { parameters, warnings }) = match reason {
            Ok(found) => found,
            Err(error) => return self.fail_unstarted(task, attempt, error),
        };
        let signal = match &reason {
            WaitReason::Signal { name, .. } => Some(name.clone()),
            _ => None,
        };
        let (step, part) = (self.step_id(task), task.part);
        self.record_event(Event::StepWaiting { step, part, reason, parameters, warnings });
        if let Some(name) = signal {
            self.consume_signal(task, &name);
        }
    }

    fn unrendered_parameters(&self, task: Task) -> Arc<Value> {
        Arc::clone(&self.execution.plan().step(task.step).parameters)
    }

    fn wait_reason(&self, task: Task, parameters: &Value) -> Result<WaitReason, ToolError> {
        let step = self.execution.plan().step(task.step);
        let needs_consent =
            step.policy.requires_approval && !self.execution.step(task.step).is_approved;
        if step.kind != StepKind::Wait || needs_consent {
            return Ok(WaitReason::Approval);
        }
        match parameters["name"].as_str() {
            Some(name) if !name.is_empty() => {
                let maximum = step.policy.explicit_timeout_ms();
                let until = maximum.map(|ms| add_millis(self.context.now, ms));
                Ok(WaitReason::Signal { name: name.to_owned(), until })
            }
            _ => Err(ToolError::new(
                ErrorCode::INVALID_PARAMETERS,
                "`name` must be the name of the signal to wait for",
            )),
        }
    }
}
