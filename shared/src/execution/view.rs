//! Read access to the state of an execution.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use super::{
    Agenda, Execution, ExecutionOptions, ExecutionState, History, Phase, Signal, Step, StepCounts,
    StepState,
};
use crate::{
    actor::Actor,
    clock::Timestamp,
    event::{Claimed, Outcome, Parent},
    id::{CommandId, Epoch, ExecutionId, RequestId, Seq, StepNumber, Task, ToolName, WorkerId},
    json, labels,
    plan::{OnError, Plan},
    tool::ToolError,
    trace::{SpanContext, TraceId},
};

#[expect(missing_docs, reason = "the other names need no comment")]
impl Execution {
    pub fn id(&self) -> ExecutionId {
        self.id
    }

    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    pub fn request(&self) -> RequestId {
        self.request
    }

    pub fn options(&self) -> &ExecutionOptions {
        &self.options
    }

    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the epoch of the last claim, or zero before the first claim.
    pub fn epoch(&self) -> Epoch {
        self.owner.as_ref().map_or(Epoch::default(), |owner| owner.epoch)
    }

    /// Returns the last claim.
    pub fn owner(&self) -> Option<&Claimed> {
        self.owner.as_ref()
    }

    /// Returns the worker that claimed the execution last.
    pub fn worker(&self) -> Option<WorkerId> {
        self.owner.as_ref().map(|owner| owner.worker)
    }

    pub fn created_by(&self) -> Option<&Actor> {
        self.created_by.as_deref()
    }

    /// Returns the name of the token to which the execution belongs.
    pub fn token(&self) -> Option<&str> {
        labels::find_token(&self.options.labels)
    }

    /// Returns the bytes of the log and the blobs if the execution belongs to a token, otherwise
    /// zero.
    pub fn stored_bytes(&self) -> u64 {
        self.history.stored_size.bytes()
    }

    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// Returns the time of the first claim at or after the planned start.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    pub fn finished_at(&self) -> Option<Timestamp> {
        self.finished_at
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns `true` if the execution is paused. A pause has no effect once the execution fails,
    /// misses its deadline, is being cancelled or has finished.
    pub fn is_paused(&self) -> bool {
        self.is_paused && self.phase == Phase::Open
    }

    pub fn deadline(&self) -> Option<Timestamp> {
        let ms = i64::try_from(self.options.deadline_ms?).unwrap_or(i64::MAX);
        let from = self.deadline_from.or(self.started_at)?;
        from.checked_add_signed(chrono::TimeDelta::try_milliseconds(ms)?)
    }

    /// Returns the time at which the latest wait for a time began: a sleep, the delay of a retry, a
    /// limited wait for a signal, or the time until the deadline.
    pub fn latest_wait_start(&self) -> Option<Timestamp> {
        let starts = self
            .agenda
            .timed_waits()
            .filter_map(|(_, task)| self.task(task)?.changed.map(|began| began.at));
        let deadline = self.deadline().and(self.deadline_from.or(self.started_at));
        starts.chain(deadline).max()
    }

    /// Returns `true` if the execution failed because its deadline passed. Returns `false` if it
    /// had already failed for another reason.
    pub fn missed_deadline(&self) -> bool {
        let failed = [Phase::Finished(Outcome::Failed), Phase::Compensating(Outcome::Failed)];
        self.has_missed_deadline && failed.contains(&self.phase)
    }

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

    /// Returns `true` if the execution, or one of its steps, waits until a person or another
    /// program acts. Does not count a child execution that waits, because only the child's log
    /// shows that it waits.
    pub fn needs_person(&self) -> bool {
        let is_finished = matches!(self.phase, Phase::Finished(_));
        !is_finished && (self.is_paused() || !self.agenda.waiting().is_empty())
    }

    pub fn step(&self, number: StepNumber) -> &Step {
        &self.steps[number.get()]
    }

    /// Returns the state of a task.
    ///
    /// `None` for an item of a list that is not known yet, and for a compensation that has not
    /// started.
    pub fn task(&self, task: Task) -> Option<&Step> {
        let step = self.steps.get(task.step.get())?;
        let done = match task.part.item {
            Some(index) => step.items.as_deref()?.get(index)?,
            None => step,
        };
        if task.part.undo { done.undo.as_deref() } else { Some(done) }
    }

    /// Returns the tasks that can be undone, in the order of their success.
    pub fn undoable(&self) -> &[Task] {
        &self.undoable
    }

    /// Returns the tools of unfinished steps, and the tools of compensations that can still run.
    pub fn required_tools(&self) -> impl Iterator<Item = &ToolName> {
        let undoes = self.options.compensate_on_failure;
        let steps = self.plan.steps().iter().zip(&self.steps);
        let ahead =
            steps.filter(|(_, step)| !step.state.is_finished()).flat_map(move |(planned, _)| {
                let undo = planned.compensate.as_ref().filter(|_| undoes);
                planned.called_tool().into_iter().chain(undo.map(|undo| &undo.tool))
            });
        let behind = self.undoable.iter().map(|task| self.plan.step(task.step));
        ahead.chain(behind.filter_map(|planned| Some(&planned.compensate.as_ref()?.tool)))
    }

    /// Returns the step that started this execution, if it is a child.
    pub fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    /// Returns the span of the caller that started the execution.
    pub fn trace(&self) -> Option<&SpanContext> {
        self.trace.as_deref()
    }

    /// Returns the trace of the execution: the caller's trace, or a trace derived from the
    /// execution's id.
    pub fn trace_id(&self) -> TraceId {
        self.trace().map_or_else(|| TraceId::of_execution(self.id), |caller| caller.trace)
    }

    /// Returns the error that explains a failed execution best: the error of the execution as a
    /// whole, or of the step that failed first. Steps that had to succeed come before all other
    /// steps.
    pub fn first_error(&self) -> Option<(Option<StepNumber>, &ToolError)> {
        if let Some((_, error)) = &self.history.failed {
            return Some((None, error));
        }
        let failed = self.steps.iter().enumerate().filter_map(|(at, step)| match &step.state {
            StepState::Failed(error) => Some((StepNumber::new(at), step.finished_at, error)),
            _ => None,
        });
        let is_required = |number: StepNumber| {
            let on_error = self.plan.step(number).policy.on_error;
            matches!(on_error, OnError::Fail | OnError::Wait)
        };
        let first = failed.min_by_key(|(number, at, _)| (!is_required(*number), *at));
        first.map(|(number, _, error)| (Some(number), error))
    }

    /// Returns the execution that this execution repeats.
    pub fn retry_of(&self) -> Option<ExecutionId> {
        self.retry_of
    }

    /// Returns the execution that this execution repeats with changes.
    pub fn forked_from(&self) -> Option<ExecutionId> {
        self.forked_from
    }

    /// Returns the execution whose outputs this execution may reuse: the execution that it retries,
    /// replans or forks.
    pub fn continued_from(&self) -> Option<ExecutionId> {
        self.retry_of.or(self.forked_from)
    }

    /// Sets the tools whose calls need a permit.
    pub fn set_limited_tools(&mut self, tools: Arc<BTreeSet<ToolName>>) {
        self.limited_tools = tools;
    }

    /// Returns `true` if a task's call needs a permit.
    pub fn is_limited(&self, task: Task) -> bool {
        !self.limited_tools.is_empty()
            && self.limited_tools.contains(self.plan.step(task.step).call_of_part(task.part).tool)
    }

    /// Moves a task to the tasks that need a permit before they can start.
    ///
    /// This is not an event, because limits are configuration of this machine.
    pub fn set_task_aside(&mut self, task: Task) {
        match self.task(task).map(|step| step.state.clone()) {
            Some(state) => self.agenda.hold_for_permit(task, &state),
            // A compensation that has not started has no state, so it counts as pending.
            None if task.part.undo => self.agenda.hold_for_permit(task, &StepState::Pending),
            None => (),
        }
    }

    /// Records that a step's condition is true.
    ///
    /// This is not an event: it follows from the outputs, so every replay comes to the same result.
    pub fn record_condition_true(&mut self, number: StepNumber) {
        if self.agenda.remove_condition(number) {
            let needs_wait = self.needs_wait(number.into());
            self.agenda.unblock_task(number.into(), needs_wait);
        }
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub fn agenda(&self) -> &Agenda {
        &self.agenda
    }

    /// Returns the signals that no step has taken, oldest first.
    pub fn signals(&self) -> &[Signal] {
        &self.signals
    }

    /// Returns `true` if the log already contains the effect of a command.
    pub fn has_command(&self, command: CommandId) -> bool {
        self.commands.contains(&command)
    }

    /// Returns the number of steps that are finished, in any way.
    pub fn finished_steps(&self) -> usize {
        self.finished_steps
    }

    /// Counts all steps, and the finished steps by state.
    pub fn count_steps(&self) -> StepCounts {
        let mut tally = StepCounts { total: self.steps.len(), ..StepCounts::default() };
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

    /// Returns the output of a finished step. It is null if the step did not succeed.
    pub fn output(&self, number: StepNumber) -> Option<&Value> {
        match &self.step(number).state {
            StepState::Succeeded(output) => Some(output),
            StepState::Failed(_) | StepState::Skipped(_) | StepState::Cancelled => {
                Some(&Value::Null)
            }
            _ => None,
        }
    }

    /// Estimates the memory for the input, parameters and outputs, as bytes of JSON.
    pub fn estimated_size(&self) -> usize {
        let items = |step: &Step| {
            step.items.as_ref().map_or(0, |items| items.tasks.iter().map(step_bytes).sum())
        };
        json::json_size(&self.options().input)
            + self.steps.iter().map(|step| step_bytes(step) + items(step)).sum::<usize>()
    }

    /// Returns the outputs of all steps so far, as `{ step: output }` in plan order.
    ///
    /// The output of a step whose failure is ignored is null.
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

    /// Returns the value of a variable. If several steps fill it, the last step in plan order that
    /// has a value decides.
    pub fn variable(&self, name: &str) -> Option<&Value> {
        let by = self.plan.variables().get(name)?;
        by.iter().rev().find_map(|number| {
            let StepState::Succeeded(output) = &self.step(*number).state else { return None };
            let mapped = &self.plan.step(*number).output_mapping;
            mapped
                .iter()
                .rev()
                .filter(|mapping| &*mapping.variable == name)
                .find_map(|mapping| mapping.path.find(output))
        })
    }
}

fn step_bytes(step: &Step) -> usize {
    let output = match &step.state {
        StepState::Succeeded(output) => json::json_size(output),
        _ => 0,
    };
    output + step.parameters.as_deref().map_or(0, json::json_size)
}
