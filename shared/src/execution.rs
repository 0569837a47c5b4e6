//! The state of an execution, which is a fold over its events. [`StepState::next`] is the only
//! definition of a step's transitions.

mod agenda;
mod attempts;
mod carried;
mod error;
mod history;
mod items;
mod options;
mod phase;
mod replans;
mod scope;
mod step;
mod stored_size;
mod view;

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use self::carried::CarriedCalls;
pub use self::{
    agenda::Agenda,
    attempts::{AttemptOutcome, AttemptTracker, EndedAttempt},
    carried::{CarriedKey, ChildCalls},
    error::ReplayError,
    history::{FirstError, Handover, History, Occurrence, Takeover},
    items::Items,
    options::{ExecutionMode, ExecutionOptions},
    phase::{ExecutionState, Phase},
    replans::{REPLAN, ReplanCause, ReplanOptions, ReplanPermissions},
    scope::TemplateScope,
    step::{AttemptKind, Step, StepState, TimeSpent},
};
use crate::{
    actor::Actor,
    clock::Timestamp,
    event::{Claimed, Event, Outcome, Parent, RecordedEvent, WaitReason},
    id::{CommandId, ExecutionId, RequestId, Seq, StepId, StepNumber, Task, ToolName},
    limits,
    plan::{OnError, Plan, StepKind},
    tool::{ErrorCode, ToolError},
    trace::SpanContext,
};

/// The state of an execution at a position in its log.
#[derive(Clone, Debug)]
pub struct Execution {
    id: ExecutionId,
    plan: Arc<Plan>,
    seq: Seq,
    request: RequestId,
    options: ExecutionOptions,
    owner: Option<Claimed>,
    created_at: Timestamp,
    created_by: Option<Arc<Actor>>,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    /// The time from which the deadline counts, if the clock was ahead when the execution started.
    deadline_from: Option<Timestamp>,
    phase: Phase,
    /// `true` if the deadline passed before the execution failed, was cancelled or finished.
    has_missed_deadline: bool,
    is_paused: bool,
    steps: Vec<Step>,
    finished_steps: usize,
    /// In sequential mode, the first step that is not finished. No later step starts.
    turn: StepNumber,
    agenda: Agenda,
    signals: Vec<Signal>,
    commands: BTreeSet<CommandId>,
    parent: Option<Parent>,
    retry_of: Option<ExecutionId>,
    forked_from: Option<ExecutionId>,
    trace: Option<Box<SpanContext>>,
    /// Finished tasks that can be undone, in the order of their success.
    undoable: Vec<Task>,
    history: Box<History>,
    /// Tools whose calls need a permit. They are configuration of this machine, and not part of the
    /// log.
    limited_tools: Arc<BTreeSet<ToolName>>,
    /// Calls of earlier executions whose outcome was unknown.
    carried_calls: Arc<CarriedCalls>,
}

/// A signal that no step has taken yet.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    pub name: String,
    pub payload: Arc<Value>,
}

/// The number of all steps, and of the finished steps in each state.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    pub total: usize,
    pub successful: usize,
    pub failed: usize,
    pub skipped: usize,
    pub cancelled: usize,
}

impl Execution {
    /// Creates the state from the first event of a log, which must be `created`.
    pub fn create(
        id: ExecutionId,
        plan: Arc<Plan>,
        first: &RecordedEvent,
    ) -> Result<Self, ReplayError> {
        let RecordedEvent { seq, at, by, event } = first;
        if *seq != Seq::START.next() {
            return Err(ReplayError::Gap { expected: Seq::START.next(), found: *seq });
        }
        let Event::Created(created) = event else {
            return Err(ReplayError::NotCreated(event.kind()));
        };
        if created.plan != plan.id() {
            let (expected, found) = (created.plan, plan.id());
            return Err(ReplayError::WrongPlan { expected, found });
        }
        let steps = plan.steps().iter().map(|step| Step::new(step.depends_on.len())).collect();
        let mut execution = Self {
            id,
            agenda: Agenda::new(plan.steps().len()),
            seq: *seq,
            request: created.request,
            options: created.options.clone(),
            owner: None,
            created_at: *at,
            created_by: by.clone(),
            started_at: None,
            finished_at: None,
            deadline_from: None,
            phase: Phase::Open,
            has_missed_deadline: false,
            is_paused: false,
            steps,
            finished_steps: 0,
            turn: StepNumber::new(0),
            signals: Vec::new(),
            commands: BTreeSet::new(),
            parent: created.parent.clone(),
            retry_of: created.retry_of,
            forked_from: created.forked_from,
            trace: created.trace.clone(),
            undoable: Vec::new(),
            history: Box::default(),
            limited_tools: Arc::default(),
            carried_calls: Arc::default(),
            plan,
        };
        for number in (0..execution.steps.len()).map(StepNumber::new) {
            if execution.steps[number.get()].unfinished_dependency_count == 0
                && execution.has_turn(number)
            {
                execution.unblock_step(number);
            }
        }
        execution.history.last = Some(Occurrence { at: *at, seq: *seq });
        execution.count_bytes(first);
        for (id, output) in &created.reused {
            execution.reuse_output(id, Arc::clone(output))?;
        }
        if !(created.call_keys.is_empty() && created.settled.is_empty()) {
            execution.reuse_settled(&created.settled)?;
            execution.carried_calls = Arc::new(CarriedCalls::from_created(created, &execution)?);
        }
        Ok(execution)
    }

    fn reuse_output(&mut self, id: &StepId, output: Arc<Value>) -> Result<(), ReplayError> {
        let number =
            self.plan.step_number(id).ok_or_else(|| ReplayError::UnknownStep(id.clone()))?;
        let step = &mut self.steps[number.get()];
        if step.state == StepState::Pending {
            self.agenda.remove_task(number.into(), &step.state);
            step.state = StepState::Succeeded(output);
            step.is_reused = true;
            self.agenda.insert_task(number.into(), &step.state);
            self.end_step(number);
        }
        Ok(())
    }

    /// Replays a log from its first event.
    pub fn replay<'a>(
        id: ExecutionId,
        plan: Arc<Plan>,
        events: impl IntoIterator<Item = &'a RecordedEvent>,
    ) -> Result<Self, ReplayError> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(ReplayError::Empty)?;
        let mut execution = Self::create(id, plan, first)?;
        for recorded in events {
            execution.apply(recorded)?;
        }
        Ok(execution)
    }

    /// Applies one event. All changes of the state that the log explains happen here.
    pub fn apply(&mut self, recorded: &RecordedEvent) -> Result<(), ReplayError> {
        let RecordedEvent { seq, at, event, .. } = recorded;
        if *seq != self.seq.next() {
            return Err(ReplayError::Gap { expected: self.seq.next(), found: *seq });
        }
        if let Phase::Finished(_) = self.phase {
            return Err(ReplayError::Illegal { phase: self.phase, event: event.kind() });
        }
        let occurrence = Occurrence { at: *at, seq: *seq };
        if let Some(id) = event.step() {
            let step =
                self.plan.step_number(id).ok_or_else(|| ReplayError::UnknownStep(id.clone()))?;
            self.apply_to_task(Task { step, part: event.part() }, occurrence, event)?;
        } else {
            self.record_takeover(occurrence, event);
            self.apply_to_execution(*at, event)?;
            self.record_history(occurrence, recorded);
        }
        self.commands.extend(event.command());
        self.count_bytes(recorded);
        self.seq = *seq;
        self.history.last = Some(occurrence);
        Ok(())
    }

    /// Counts the bytes of an event if the execution belongs to a token. Nobody reads the bytes of
    /// other executions.
    fn count_bytes(&mut self, recorded: &RecordedEvent) {
        if self.token().is_some() {
            self.history.stored_size.add_event(self.id, recorded);
        }
    }

    fn apply_to_task(
        &mut self,
        task: Task,
        occurrence: Occurrence,
        event: &Event,
    ) -> Result<(), ReplayError> {
        let at = occurrence.at;
        let illegal = |state: &'static str| ReplayError::IllegalStep {
            step: self.plan.step(task.step).id.clone(),
            state,
            event: event.kind(),
        };
        let plan = Arc::clone(&self.plan);
        if !self.can_have_event(task, event) {
            return Err(illegal("not a task that this event can change"));
        }
        let Some(entry) = find_task(&mut self.steps, task) else { return Err(illegal("unknown")) };
        let on_error = plan.step(task.step).policy.on_error;
        let collect_outputs = || entry.items.as_deref()?.collect_outputs(on_error);
        let Some(next) = entry.state.next(event, collect_outputs) else {
            return Err(illegal(entry.state.name()));
        };
        let was_there = self.agenda.remove_task(task, &entry.state);
        entry.record_event(occurrence, event);
        let before = std::mem::replace(&mut entry.state, next.clone());
        if let StepState::Failed(error) = &next
            && !task.part.undo
        {
            self.history.add_error(Some(task.step), error);
        }
        self.agenda.insert_task(task, &next);
        if let (StepState::Waiting(WaitReason::Signal { name, .. }), Event::StepSucceeded { .. }) =
            (&before, event)
        {
            self.take_signal(name);
        }
        if task.part.undo {
            self.update_after_undo(&next);
        } else if let Some(index) = task.part.item {
            let had_turn = was_there && !matches!(before, StepState::Waiting(_));
            if let Some(items) = self.steps[task.step.get()].items.as_deref_mut() {
                items.count_waiting(&before, &next);
            }
            self.update_after_item(task, index, had_turn, &next);
            self.record_time(task.step.into(), at);
        } else {
            self.update_after_step(task.step, &next);
        }
        self.record_time(task, at);
        Ok(())
    }

    /// Records a claim by another worker while calls were running. The working time of these calls
    /// excludes the time between the last event of the lost worker and this claim, because no event
    /// shows that the calls still ran.
    fn record_takeover(&mut self, claim: Occurrence, event: &Event) {
        let (Event::Claimed(new), Some(lost)) = (event, &self.owner) else { return };
        if lost.worker == new.worker || !self.can_claim(new) {
            return;
        }
        let (lost, new) = (lost.clone(), new.clone());
        let is_call = |task: &Task| {
            let state = self.task(*task).map(|step| &step.state);
            matches!(state, Some(StepState::Running { how: AttemptKind::Calling, .. }))
        };
        let interrupted: Vec<Task> =
            self.agenda.running().iter().copied().filter(is_call).collect();
        let lost_at = self.history.last.map_or(claim.at, |last| last.at);
        for task in &interrupted {
            let whole = Task::from(task.step);
            for task in [*task, whole] {
                if let Some(step) = find_task(&mut self.steps, task) {
                    step.spent.exclude_gap(lost_at, claim.at);
                }
            }
        }
        if interrupted.is_empty() && self.is_only_ready() {
            let (before, after) = (lost, new);
            self.history.add_handover(Handover { claim, before, idle_since: lost_at, after });
        } else {
            self.history.add_takeover(Takeover { claim, lost, lost_at, new, interrupted });
        }
    }

    /// Returns `true` if a task could start now, and nothing else explains a time without events.
    fn is_only_ready(&self) -> bool {
        let agenda = &self.agenda;
        let has_wait = !agenda.running().is_empty()
            || !agenda.sleeping().is_empty()
            || !agenda.in_children().is_empty()
            || !agenda.retrying().is_empty()
            || !agenda.waiting().is_empty();
        let can_start = !agenda.ready().is_empty() || !agenda.without_permit().is_empty();
        can_start && !has_wait && !self.is_paused()
    }

    fn record_history(&mut self, occurrence: Occurrence, recorded: &RecordedEvent) {
        match &recorded.event {
            Event::CancelRequested { reason } if self.history.cancelled.is_none() => {
                self.history.cancelled = Some((occurrence, reason.clone()));
                self.history.cancelled_by.clone_from(&recorded.by);
            }
            Event::ExecutionFailed { error } => {
                self.history.add_error(None, error);
                self.history.failed = Some((occurrence, error.clone()));
            }
            Event::DeadlinePassed => {
                let error = ToolError::new(ErrorCode::DEADLINE, "the deadline passed");
                self.history.add_error(None, &error);
                self.history.deadline_passed = Some(occurrence);
            }
            Event::Paused { .. } => {
                self.history.paused = Some(occurrence);
                self.history.paused_by.clone_from(&recorded.by);
            }
            Event::WaitsShortened { ahead_ms } => {
                self.history.shortened = Some((occurrence, *ahead_ms));
            }
            _ => (),
        }
    }

    fn record_time(&mut self, task: Task, at: Timestamp) {
        let Some(step) = find_task(&mut self.steps, task) else { return };
        step.spent.record_state(at, &step.state, step.items.as_deref());
    }

    /// Returns `true` if the event is possible for the task. Only the latest task that succeeded
    /// can be undone.
    fn can_have_event(&self, task: Task, event: &Event) -> bool {
        if task.part.undo && self.undoable.last().map(|done| done.compensation()) != Some(task) {
            return false;
        }
        if task.part.undo && !matches!(self.phase, Phase::Compensating(_)) {
            return false;
        }
        let Event::StepStarted(started) = event else { return true };
        let is_list = task.part.is_whole() && self.plan.step(task.step).for_each.is_some();
        match started.items {
            Some(n) => is_list && n as usize <= limits::ITEMS,
            None => !is_list,
        }
    }

    fn update_after_step(&mut self, number: StepNumber, state: &StepState) {
        match state {
            // A step returns to pending after an approval, or stays pending when a dry run checks
            // it.
            StepState::Pending if self.steps[number.get()].is_approved => {
                let needs_wait = self.needs_wait(number.into());
                self.agenda.unblock_task(number.into(), needs_wait);
            }
            StepState::Gathering { .. } => {
                let n =
                    self.steps[number.get()].items.as_ref().map_or(0, |items| items.tasks.len());
                self.agenda.expect_items(n);
                self.release_items(number);
                if n == 0 {
                    self.agenda.mark_items_finished(number);
                }
            }
            state if state.is_finished() => {
                if let (StepState::Succeeded(_), None) = (state, &self.plan.step(number).for_each) {
                    self.record_undoable(number.into());
                }
                self.end_step(number);
            }
            _ => (),
        }
    }

    fn update_after_item(&mut self, task: Task, index: u32, had_turn: bool, state: &StepState) {
        if let StepState::Succeeded(_) = state {
            self.record_undoable(task);
        }
        let on_error = self.plan.step(task.step).policy.on_error;
        let Some(items) = self.steps[task.step.get()].items.as_deref_mut() else { return };
        if had_turn && !matches!(state, StepState::Running { .. } | StepState::Retrying { .. }) {
            items.end_turn();
        }
        if *state == StepState::Pending {
            items.requeue_item(index);
        }
        if state.is_finished() {
            items.count_finished();
            if items.is_finished() {
                self.agenda.mark_items_finished(task.step);
            }
        }
        if let StepState::Failed(_) = state {
            items.first_failed_index.get_or_insert(index);
            let must_succeed = matches!(on_error, OnError::Fail | OnError::Wait);
            if must_succeed && self.phase == Phase::Open {
                self.phase = Phase::Failing;
            }
        }
        self.release_items(task.step);
    }

    fn release_items(&mut self, number: StepNumber) {
        let plan = Arc::clone(&self.plan);
        let step = plan.step(number);
        while let Some(items) = self.steps[number.get()].items.as_deref_mut()
            && let Some(index) = items.start_turn(step.policy.max_parallel())
        {
            let task = Task::from(number).for_item(index);
            self.agenda.unblock_task(task, step.kind == StepKind::Wait);
        }
    }

    fn update_after_undo(&mut self, state: &StepState) {
        if state.is_finished() {
            self.undoable.pop();
            self.schedule_undo();
        }
    }

    fn schedule_undo(&mut self) {
        self.agenda.set_undoing(self.undoable.last().map(|done| done.compensation()));
    }

    fn record_undoable(&mut self, task: Task) {
        if self.options.compensate_on_failure && self.plan.step(task.step).compensate.is_some() {
            self.undoable.push(task);
        }
    }

    fn needs_wait(&self, task: Task) -> bool {
        let step = self.plan.step(task.step);
        let needs_consent =
            step.policy.requires_approval && !self.steps[task.step.get()].is_approved;
        let is_call = step.for_each.is_none() || task.part.item.is_some();
        needs_consent || (step.kind == StepKind::Wait && is_call)
    }

    fn unblock_step(&mut self, number: StepNumber) {
        if self.plan.step(number).when.is_some() {
            self.agenda.add_condition(number);
        } else {
            let needs_wait = self.needs_wait(number.into());
            self.agenda.unblock_task(number.into(), needs_wait);
        }
    }

    fn end_step(&mut self, number: StepNumber) {
        self.finished_steps += 1;
        let on_error = self.plan.step(number).policy.on_error;
        let state = &self.steps[number.get()].state;
        let is_failed = matches!(state, StepState::Failed(_));
        let allows_dependents = match state {
            StepState::Succeeded(_) => true,
            StepState::Failed(_) => on_error == OnError::Ignore,
            _ => false,
        };
        let plan = Arc::clone(&self.plan);
        for dependent in plan.dependents(number) {
            let step = &mut self.steps[dependent.get()];
            step.unfinished_dependency_count -= 1;
            // Does not skip a step with a condition, because the step waits for all its
            // dependencies and then evaluates the condition.
            step.must_skip |= !allows_dependents && plan.step(*dependent).when.is_none();
            if step.state != StepState::Pending {
                continue;
            }
            if step.must_skip {
                self.agenda.add_skip(*dependent);
            } else if step.unfinished_dependency_count == 0 && self.has_turn(*dependent) {
                self.unblock_step(*dependent);
            }
        }
        self.advance_turn();
        let must_succeed = matches!(on_error, OnError::Fail | OnError::Wait);
        if is_failed && must_succeed && self.phase == Phase::Open {
            self.phase = Phase::Failing;
        }
    }

    /// Returns `true` in parallel mode, or if the step is next in sequential mode.
    fn has_turn(&self, number: StepNumber) -> bool {
        self.options.mode == ExecutionMode::Parallel || number == self.turn
    }

    /// In sequential mode, advances to the first step that is not finished. All its dependencies
    /// come earlier in the plan, so they are finished.
    fn advance_turn(&mut self) {
        if self.options.mode == ExecutionMode::Parallel {
            return;
        }
        let before = self.turn;
        while self.steps.get(self.turn.get()).is_some_and(|step| step.state.is_finished()) {
            self.turn = self.turn.next();
        }
        let Some(step) = self.steps.get(self.turn.get()) else { return };
        if self.turn != before && step.state == StepState::Pending && !step.must_skip {
            self.unblock_step(self.turn);
        }
    }

    /// Returns `true` if a claim is possible: only the owner can renew its claim.
    fn can_claim(&self, claimed: &Claimed) -> bool {
        let is_owner = self.owner.as_ref().is_some_and(|owner| owner.worker == claimed.worker);
        !claimed.renewed || is_owner
    }

    fn apply_to_execution(&mut self, at: Timestamp, event: &Event) -> Result<(), ReplayError> {
        let illegal = ReplayError::Illegal { phase: self.phase, event: event.kind() };
        match event {
            Event::Claimed(claimed) if self.epoch() < claimed.epoch && self.can_claim(claimed) => {
                self.owner = Some(claimed.clone());
                if self.options.start_at.is_none_or(|start_at| start_at <= at) {
                    self.started_at.get_or_insert(at);
                }
            }
            Event::SignalReceived { name, payload, .. } => {
                let signal = Signal { name: name.clone(), payload: Arc::clone(payload) };
                self.signals.push(signal);
            }
            Event::SignalRefused { .. } | Event::CommandIgnored { .. } => (),
            Event::CancelRequested { .. }
                if matches!(self.phase, Phase::Open | Phase::Failing | Phase::Expired) =>
            {
                self.phase = Phase::Cancelling;
            }
            Event::ExecutionFailed { .. } if self.phase == Phase::Open => {
                self.phase = Phase::Failing;
            }
            Event::DeadlinePassed if matches!(self.phase, Phase::Open | Phase::Failing) => {
                self.has_missed_deadline = self.phase == Phase::Open;
                self.phase = Phase::Expired;
            }
            Event::WaitsShortened { .. } => self.shorten_waits(at),
            Event::Paused { .. } if !self.is_paused => self.is_paused = true,
            Event::Resumed { .. } if self.is_paused => self.is_paused = false,
            Event::CompensationStarted
                if self.agenda.is_finished() && !self.undoable.is_empty() =>
            {
                self.phase = match self.phase {
                    Phase::Cancelling => Phase::Compensating(Outcome::Cancelled),
                    Phase::Failing | Phase::Expired => Phase::Compensating(Outcome::Failed),
                    _ => return Err(illegal),
                };
                self.schedule_undo();
            }
            Event::Finished { outcome } if self.is_finished() => {
                self.phase = Phase::Finished(*outcome);
                self.finished_at = Some(at);
            }
            _ => return Err(illegal),
        }
        Ok(())
    }

    /// Corrects waits that began after `at` because a clock was ahead: each of these waits now
    /// begins at `at` and keeps its length.
    fn shorten_waits(&mut self, at: Timestamp) {
        let waits: Vec<(Timestamp, Task)> = self.agenda.timed_waits().collect();
        for (until, task) in waits {
            let Some(step) = find_task(&mut self.steps, task) else { continue };
            let Some(began) = step.changed.filter(|began| began.at > at) else { continue };
            let shortened = step.state.with_end(at + (until - began.at));
            self.agenda.remove_task(task, &step.state);
            self.agenda.insert_task(task, &shortened);
            step.state = shortened;
            step.changed = Some(Occurrence { at, ..began });
        }
        if self.started_at.is_some_and(|started_at| started_at > at) {
            self.deadline_from = Some(at);
        }
    }

    /// Returns `true` if all steps are finished and, once the execution compensates, nothing is
    /// left to undo.
    pub fn is_finished(&self) -> bool {
        let is_undone = !matches!(self.phase, Phase::Compensating(_)) || self.undoable.is_empty();
        self.agenda.is_finished() && is_undone
    }

    /// Removes the oldest kept signal called `name`, because a step takes it. The log alone
    /// determines which signal was taken, so a replay takes the same signal.
    fn take_signal(&mut self, name: &str) {
        if let Some(index) = self.signals.iter().position(|signal| signal.name == name) {
            self.signals.remove(index);
        }
    }
}

/// Finds a task. A task that undoes another task is created on first use.
fn find_task(steps: &mut [Step], task: Task) -> Option<&mut Step> {
    let step = steps.get_mut(task.step.get())?;
    let done = match task.part.item {
        Some(index) => step.items.as_deref_mut()?.tasks.get_mut(index as usize)?,
        None => step,
    };
    if task.part.undo {
        return Some(done.undo.get_or_insert_with(|| Box::new(Step::new(0))));
    }
    Some(done)
}

#[cfg(test)]
mod tests;
