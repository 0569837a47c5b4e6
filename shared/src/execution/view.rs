//! What there is to know about an execution.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    Agenda, Execution, ExecutionOptions, ExecutionState, Phase, Signal, Step, StepState, Tally,
};
use crate::{
    clock::Timestamp,
    event::{Claimed, Outcome, Parent},
    id::{CommandId, Epoch, ExecutionId, RequestId, Seq, StepIx, Task, ToolName, WorkerId},
    json,
    plan::{OnError, Plan},
};

impl Execution {
    /// Returns the execution's identifier.
    pub fn id(&self) -> ExecutionId {
        self.id
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the request it belongs to.
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// Returns how it is to be carried out.
    pub fn options(&self) -> &ExecutionOptions {
        &self.options
    }

    /// Returns the position of the last event.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the epoch of the last claim; zero before the first.
    pub fn epoch(&self) -> Epoch {
        self.owner.as_ref().map_or(Epoch::default(), |it| it.epoch)
    }

    /// Returns who claimed it last.
    pub fn owner(&self) -> Option<&Claimed> {
        self.owner.as_ref()
    }

    /// Returns the worker that claimed it last.
    pub fn worker(&self) -> Option<WorkerId> {
        self.owner.as_ref().map(|it| it.worker)
    }

    /// Returns when it was created.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// Returns when a worker first took it, its start being due.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// Returns when it ended.
    pub fn finished_at(&self) -> Option<Timestamp> {
        self.finished_at
    }

    /// Returns where it is in its life.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns whether somebody paused it, and it is not stopping: that goes on.
    pub fn is_paused(&self) -> bool {
        self.is_paused && self.phase == Phase::Open
    }

    /// Returns when its time is up.
    pub fn deadline(&self) -> Option<Timestamp> {
        let ms = i64::try_from(self.options.deadline_ms?).unwrap_or(i64::MAX);
        self.started_at?.checked_add_signed(chrono::TimeDelta::try_milliseconds(ms)?)
    }

    /// Returns whether it failed because its time was up, and for nothing that came before.
    pub fn overran(&self) -> bool {
        let failed = [Phase::Finished(Outcome::Failed), Phase::Compensating(Outcome::Failed)];
        self.overran && failed.contains(&self.phase)
    }

    /// Returns what people call its state.
    pub fn state(&self) -> ExecutionState {
        match self.phase {
            Phase::Finished(Outcome::Completed) => return ExecutionState::Completed,
            Phase::Finished(Outcome::Failed) => return ExecutionState::Failed,
            Phase::Finished(Outcome::Cancelled) => return ExecutionState::Cancelled,
            Phase::Compensating(_) => return ExecutionState::Compensating,
            Phase::Open if self.is_paused() => return ExecutionState::Paused,
            _ => (),
        }
        match self.started_at {
            None => ExecutionState::Pending,
            Some(_) if self.phase == Phase::Open && self.agenda.only_waits() => {
                ExecutionState::Waiting
            }
            Some(_) => ExecutionState::InProgress,
        }
    }

    /// Returns the state of a step.
    pub fn step(&self, number: StepIx) -> &Step {
        &self.steps[number.get()]
    }

    /// Returns the state of a task; nothing for an item before the list is known, and for what
    /// undoes something before it begins.
    pub fn task(&self, task: Task) -> Option<&Step> {
        let step = self.steps.get(task.step.get())?;
        let done = match task.part.item {
            Some(index) => step.items.as_deref()?.get(index)?,
            None => step,
        };
        if task.part.undo { done.undo.as_deref() } else { Some(done) }
    }

    /// Returns what can be undone, in the order in which it was done.
    pub fn undoable(&self) -> &[Task] {
        &self.undoable
    }

    /// Returns the tools that it may yet call: those of what is not over, and of what would undo what
    /// was done.
    pub fn needs(&self) -> impl Iterator<Item = &ToolName> {
        let undoes = self.options.compensate_on_failure;
        let steps = self.plan.steps().iter().zip(&self.steps);
        let ahead = steps.filter(|(_, it)| !it.state.is_over()).flat_map(move |(planned, _)| {
            let undo = planned.compensate.as_ref().filter(|_| undoes);
            planned.calls().into_iter().chain(undo.map(|it| &it.tool))
        });
        let behind = self.undoable.iter().map(|it| self.plan.step(it.step));
        ahead.chain(behind.filter_map(|it| Some(&it.compensate.as_ref()?.tool)))
    }

    /// Returns the step that began this execution, where one did.
    pub fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    /// Returns the execution that this one does again.
    pub fn retry_of(&self) -> Option<ExecutionId> {
        self.retry_of
    }

    /// Says which tools' calls need a permit here.
    pub fn limit(&mut self, tools: Arc<BTreeSet<ToolName>>) {
        self.limited = tools;
    }

    /// Returns whether a task's call needs a permit.
    pub fn is_limited(&self, task: Task) -> bool {
        !self.limited.is_empty()
            && self.limited.contains(self.plan.step(task.step).callee(task.part).tool)
    }

    /// Puts a task that may begin aside until there is a permit. Not an event: which calls need one
    /// is this machine's configuration.
    pub fn gate(&mut self, task: Task) {
        match self.task(task).map(|it| it.state.clone()) {
            Some(state) => self.agenda.gate(task, &state),
            // What undoes something comes into being as it begins.
            None if task.part.undo => self.agenda.gate(task, &StepState::Pending),
            None => (),
        }
    }

    /// Says that the condition of a step holds. Not an event: it follows from the outputs, so
    /// whoever replays the log finds the same.
    pub fn admit(&mut self, number: StepIx) {
        if self.agenda.admit(number) {
            let asks = self.asks(number.into());
            self.agenda.unblock(number.into(), asks);
        }
    }

    /// Returns every step, in plan order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns what is to be done next.
    pub fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    /// Returns the signals that nobody waited for yet, oldest first.
    pub fn signals(&self) -> &[Signal] {
        &self.signals
    }

    /// Returns whether the log already has what a command asked for.
    pub fn has_heard(&self, command: CommandId) -> bool {
        self.commands.contains(&command)
    }

    /// Counts the steps.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally { total: self.steps.len(), ..Tally::default() };
        for step in &self.steps {
            match step.state {
                StepState::Succeeded(_) => tally.successful += 1,
                StepState::Failed(_) => tally.failed += 1,
                StepState::Skipped(_) => tally.skipped += 1,
                StepState::Cancelled => tally.cancelled += 1,
                _ => (),
            }
        }
        tally
    }

    /// Returns the output of a step that is over: null for one whose failure is ignored.
    pub fn output(&self, number: StepIx) -> Option<&Value> {
        match &self.step(number).state {
            StepState::Succeeded(output) => Some(output),
            StepState::Failed(_) | StepState::Skipped(_) | StepState::Cancelled => {
                Some(&Value::Null)
            }
            _ => None,
        }
    }

    /// Returns about how many bytes of JSON its steps and their items were given and returned: most of
    /// what it takes to keep it.
    pub fn bytes(&self) -> usize {
        let items = |it: &Step| it.items.as_ref().map_or(0, |it| it.tasks.iter().map(own).sum());
        json::bytes(&self.options().input)
            + self.steps.iter().map(|it| own(it) + items(it)).sum::<usize>()
    }

    /// Returns what every step has returned so far, as `{ step: output }` in plan order; null for one
    /// whose failure is ignored.
    pub fn outputs(&self) -> Value {
        let steps = self.plan.steps().iter().zip(&self.steps);
        let outputs = steps.filter_map(|(planned, step)| {
            let output = match &step.state {
                StepState::Succeeded(output) => (**output).clone(),
                StepState::Failed(_) if planned.policy.on_error == OnError::Ignore => Value::Null,
                _ => return None,
            };
            Some((planned.id.to_string(), output))
        });
        Value::Object(outputs.collect())
    }

    /// Returns what an output mapping put into a variable: the last step in plan order that
    /// succeeded and has the path wins.
    pub fn variable(&self, name: &str) -> Option<&Value> {
        let by = self.plan.variables().get(name)?;
        by.iter().rev().find_map(|number| {
            let StepState::Succeeded(output) = &self.step(*number).state else { return None };
            let mapped = &self.plan.step(*number).output_mapping;
            mapped
                .iter()
                .rev()
                .filter(|it| &*it.variable == name)
                .find_map(|it| it.path.find(output))
        })
    }
}

fn own(step: &Step) -> usize {
    let output = match &step.state {
        StepState::Succeeded(output) => json::bytes(output),
        _ => 0,
    };
    output + step.parameters.as_deref().map_or(0, json::bytes)
}
