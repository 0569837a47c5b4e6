//! What people and programs outside ask for, and what steps ask of them.

use std::sync::Arc;

use serde_json::Value;
use shared::{
    event::{Event, WaitReason},
    execution::{Phase, Step, StepState},
    id::{Attempt, CommandId, StepId, Task},
    limits,
    plan::StepKind,
    store::{Command, SentCommand},
    tool::{ErrorCode, ToolError},
};

use super::{
    Turn, later,
    start::{Rendered, measured},
};

impl Turn<'_> {
    /// Does what a command asks for, once, and only if it still makes sense.
    pub(super) fn obey(&mut self, envelope: SentCommand) {
        let SentCommand { id, command, .. } = envelope;
        if self.execution.has_command(id) {
            return;
        }
        let before = self.events.len();
        let asked = match &command {
            Command::Pause => "pause",
            Command::Resume => "resume",
            Command::Approve { approved: true, .. } => "approve",
            Command::Approve { .. } => "reject",
            // A signal always leaves an event, and the others mean the same whenever they come.
            _ => return self.obey_command(id, command),
        };
        self.obey_command(id, command);
        // What changes nothing now must change nothing later either, when it is heard again.
        if self.events.len() == before {
            self.push(Event::CommandIgnored { asked: asked.to_owned(), command: id });
        }
    }

    fn obey_command(&mut self, id: CommandId, command: Command) {
        let is_open = self.execution.phase() == Phase::Open;
        match command {
            Command::Cancel { .. } if self.is_stopped() => (),
            Command::Cancel { reason } => self.push(Event::CancelRequested { reason }),
            Command::Pause if is_open && !self.execution.is_paused() => {
                self.push(Event::Paused { command: id });
            }
            Command::Resume if self.execution.is_paused() => {
                self.push(Event::Resumed { command: id });
            }
            Command::Approve { step, item, approved, comment } => {
                self.approve(id, (&step, item), approved, comment.as_deref());
            }
            Command::Signal { name, payload } => self.hear(id, &name, payload),
            // Whoever drives the execution looks what became of its child.
            Command::Pause | Command::Resume | Command::ChildEnded { .. } => (),
        }
    }

    /// Returns whether asking to stop changes nothing any more.
    fn is_stopped(&self) -> bool {
        matches!(
            self.execution.phase(),
            Phase::Cancelling | Phase::Compensating(_) | Phase::Finished(_)
        )
    }

    /// Lets a task go on or not; of a step with items, that item or all that wait for it.
    fn approve(
        &mut self,
        command: CommandId,
        (id, item): (&StepId, Option<u32>),
        approved: bool,
        comment: Option<&str>,
    ) {
        let Some(step) = self.execution.plan().step_number(id) else { return };
        let waiting = self.execution.agenda().waiting();
        let of_step = waiting.range(Task::from(step)..Task::from(step.next()));
        let is_named = |it: &&Task| item.is_none() || it.part.item == item;
        let tasks: Vec<Task> = of_step.filter(is_named).copied().collect();
        for task in tasks {
            self.approve_task(command, task, approved, comment);
        }
    }

    fn approve_task(
        &mut self,
        command: CommandId,
        task: Task,
        approved: bool,
        comment: Option<&str>,
    ) {
        let Some(StepState::Waiting(reason)) = self.state(task) else { return };
        let error = match reason {
            WaitReason::Signal { .. } => return,
            WaitReason::Decision { error } => error.clone(),
            WaitReason::Approval => {
                let why = comment
                    .map_or("a person said no".to_owned(), |it| format!("a person said no: {it}"));
                ToolError::new(ErrorCode::REJECTED, why)
            }
        };
        let (step, part) = (self.id(task), task.part);
        if approved {
            let comment = comment.map(ToOwned::to_owned);
            return self.push(Event::StepApproved { step, part, comment, command });
        }
        let attempts = self.execution.task(task).map_or(1, |it| it.attempts.max(1));
        let attempt = Attempt::nth_after(attempts - 1);
        self.push(Event::StepFailed { step, part, attempt, error, command: Some(command) });
    }

    /// Keeps a signal, or gives it to the first step that waits for it.
    fn hear(&mut self, command: CommandId, name: &str, payload: Arc<Value>) {
        let taker = self.execution.agenda().first_awaiting(name);
        if taker.is_none() && self.execution.signals().len() >= limits::SIGNALS {
            return self.push(Event::SignalRefused { name: name.to_owned(), command });
        }
        let event = Event::SignalReceived { name: name.to_owned(), payload, command };
        self.push(event);
        if let Some(task) = taker {
            self.take_signal(task, name);
        }
    }

    /// Gives a waiting task the oldest kept signal that it waits for, if there is one.
    fn take_signal(&mut self, task: Task, name: &str) {
        let kept = self.execution.signals().iter().find(|it| it.name == name);
        let Some(output) = kept.map(|it| Arc::clone(&it.payload)) else { return };
        let (step, part, attempt) = (self.id(task), task.part, Attempt::FIRST);
        let output = Some(output);
        self.push(Event::StepSucceeded {
            step,
            part,
            attempt,
            output,
            cached: false,
            stderr: None,
        });
    }

    /// Ends every wait for a signal whose time is up.
    pub(super) fn give_up(&mut self) {
        let now = self.moment.now;
        while let Some((until, task)) = self.execution.agenda().expiring().first().copied()
            && until <= now
        {
            let ms = self.policy(task).timeout_ms;
            let error =
                ToolError::new(ErrorCode::TIMEOUT, format!("no signal came within {ms} ms"));
            let (step, part, attempt) = (self.id(task), task.part, Attempt::FIRST);
            self.push(Event::StepFailed { step, part, attempt, error, command: None });
        }
    }

    /// Asks for what ready tasks need before they begin: consent, or a signal.
    pub(super) fn ask(&mut self) {
        while self.is_open()
            && let Some(task) = self.execution.agenda().needs_approval().first().copied()
        {
            self.ask_for(task);
        }
    }

    fn ask_for(&mut self, task: Task) {
        let attempt = self.execution.task(task).map_or(Attempt::FIRST, Step::next_attempt);
        let is_list =
            task.part.is_whole() && self.execution.plan().step(task.step).for_each.is_some();
        // What the items are called with is known when each has its turn.
        let rendered =
            if is_list { measured(self.written(task), Vec::new()) } else { self.render(task) };
        let reason = rendered.and_then(|it| Ok((self.wait_reason(task, &it.parameters)?, it)));
        let (reason, Rendered { parameters, warnings }) = match reason {
            Ok(found) => found,
            Err(error) => return self.fail_unstarted(task, attempt, error),
        };
        let signal = match &reason {
            WaitReason::Signal { name, .. } => Some(name.clone()),
            _ => None,
        };
        let (step, part) = (self.id(task), task.part);
        self.push(Event::StepWaiting { step, part, reason, parameters, warnings });
        if let Some(name) = signal {
            self.take_signal(task, &name);
        }
    }

    /// Returns the parameters as they were written: they look at items that have no turn yet.
    fn written(&self, task: Task) -> Arc<Value> {
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
                let most = step.policy.explicit_timeout_ms();
                let until = most.map(|it| later(self.moment.now, it));
                Ok(WaitReason::Signal { name: name.to_owned(), until })
            }
            _ => Err(ToolError::new(
                ErrorCode::INVALID_PARAMETERS,
                "`name` must be the name of the signal to wait for",
            )),
        }
    }
}
