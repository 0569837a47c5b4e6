//! The state of an execution: a fold over its events, and nothing else.
//!
//! [`Execution::apply`] is the only mutation, and [`StepState::next`] the only definition of what
//! a step can do. Beside the states the fold keeps what the machine needs to know next (which
//! steps are ready, doomed, running, due), so that deciding costs what an event changes and not
//! what the plan has.

mod agenda;
mod error;
mod items;
mod options;
mod phase;
mod replans;
mod scope;
mod step;
mod view;

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

pub use self::{
    agenda::Agenda,
    error::ReplayError,
    items::Items,
    options::{ExecutionMode, ExecutionOptions},
    phase::{ExecutionState, Phase},
    replans::{REPLAN, ReplanCause, Replans, Within},
    scope::Scope,
    step::{How, Spent, Step, StepState},
};
use crate::{
    clock::Timestamp,
    event::{Claimed, Event, Outcome, Parent, Recorded, WaitReason},
    id::{CommandId, ExecutionId, RequestId, Seq, StepId, StepIx, Task, ToolName},
    limits,
    plan::{OnError, Plan, StepKind},
};

/// An execution, as of some position in its log.
#[derive(Clone, Debug)]
pub struct Execution {
    id: ExecutionId,
    plan: Arc<Plan>,
    seq: Seq,
    request: RequestId,
    options: ExecutionOptions,
    owner: Option<Claimed>,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    phase: Phase,
    /// Whether it was under way, and nothing had failed it, when its time was up.
    overran: bool,
    is_paused: bool,
    steps: Vec<Step>,
    /// Where steps go one after another, the first that is not over: none behind it may begin.
    turn: StepIx,
    agenda: Agenda,
    signals: Vec<Signal>,
    commands: BTreeSet<CommandId>,
    parent: Option<Parent>,
    retry_of: Option<ExecutionId>,
    /// What succeeded and can be undone, in the order in which it did.
    undoable: Vec<Task>,
    /// The tools whose calls need a permit. Not of the log: this machine's configuration.
    limited: Arc<BTreeSet<ToolName>>,
}

/// A signal that came before anybody waited for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// Its name.
    pub name: String,
    /// What it brought.
    pub payload: Arc<Value>,
}

/// How many steps are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub total: usize,
    /// Those that returned something.
    pub successful: usize,
    /// Those whose last attempt failed.
    pub failed: usize,
    /// Those that did not run because of another's failure.
    pub skipped: usize,
    /// Those that were stopped.
    pub cancelled: usize,
}

impl Execution {
    /// Returns the state after the first event of a log, which must be `created`.
    pub fn create(id: ExecutionId, plan: Arc<Plan>, first: &Recorded) -> Result<Self, ReplayError> {
        let Recorded { seq, at, event } = first;
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
        let steps = plan.steps().iter().map(|it| Step::new(it.depends_on.len())).collect();
        let mut execution = Self {
            id,
            agenda: Agenda::new(plan.steps().len()),
            seq: *seq,
            request: created.request,
            options: created.options.clone(),
            owner: None,
            created_at: *at,
            started_at: None,
            finished_at: None,
            phase: Phase::Open,
            overran: false,
            is_paused: false,
            steps,
            turn: StepIx::new(0),
            signals: Vec::new(),
            commands: BTreeSet::new(),
            parent: created.parent.clone(),
            retry_of: created.retry_of,
            undoable: Vec::new(),
            limited: Arc::default(),
            plan,
        };
        for number in (0..execution.steps.len()).map(StepIx::new) {
            if execution.steps[number.get()].unmet == 0 && execution.has_turn(number) {
                execution.unblock(number);
            }
        }
        for (id, output) in &created.reused {
            execution.reuse(id, Arc::clone(output))?;
        }
        Ok(execution)
    }

    /// Takes over what a step returned in another execution.
    fn reuse(&mut self, id: &StepId, output: Arc<Value>) -> Result<(), ReplayError> {
        let number = self.plan.number(id).ok_or_else(|| ReplayError::UnknownStep(id.clone()))?;
        let step = &mut self.steps[number.get()];
        if step.state == StepState::Pending {
            self.agenda.leave(number.into(), &step.state);
            step.state = StepState::Succeeded(output);
            step.is_reused = true;
            self.agenda.enter(number.into(), &step.state);
            self.end_step(number);
        }
        Ok(())
    }

    /// Returns the state after `events`, which begin with the first of the log.
    pub fn replay<'a>(
        id: ExecutionId,
        plan: Arc<Plan>,
        events: impl IntoIterator<Item = &'a Recorded>,
    ) -> Result<Self, ReplayError> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(ReplayError::Empty)?;
        let mut execution = Self::create(id, plan, first)?;
        for recorded in events {
            execution.apply(recorded)?;
        }
        Ok(execution)
    }

    /// Moves past one event. The only place where the state changes.
    pub fn apply(&mut self, recorded: &Recorded) -> Result<(), ReplayError> {
        let Recorded { seq, at, event } = recorded;
        if *seq != self.seq.next() {
            return Err(ReplayError::Gap { expected: self.seq.next(), found: *seq });
        }
        if let Phase::Finished(_) = self.phase {
            return Err(ReplayError::Illegal { phase: self.phase, event: event.kind() });
        }
        match event.step() {
            Some(id) => {
                let step =
                    self.plan.number(id).ok_or_else(|| ReplayError::UnknownStep(id.clone()))?;
                self.apply_to_task(Task { step, part: event.part() }, *at, event)?;
            }
            None => self.apply_to_execution(*at, event)?,
        }
        self.commands.extend(event.command());
        self.seq = *seq;
        Ok(())
    }

    fn apply_to_task(
        &mut self,
        task: Task,
        at: Timestamp,
        event: &Event,
    ) -> Result<(), ReplayError> {
        let illegal = |state: &'static str| ReplayError::IllegalStep {
            step: self.plan.step(task.step).id.clone(),
            state,
            event: event.kind(),
        };
        let plan = Arc::clone(&self.plan);
        if !self.may_be(task, event) {
            return Err(illegal("not one of which that can be said"));
        }
        let Some(entry) = find(&mut self.steps, task) else { return Err(illegal("absent")) };
        let on_error = plan.step(task.step).policy.on_error;
        let gathered = || entry.items.as_deref()?.gathered(on_error);
        let Some(next) = entry.state.next(event, gathered) else {
            return Err(illegal(entry.state.name()));
        };
        let was_there = self.agenda.leave(task, &entry.state);
        entry.note(at, event);
        let before = std::mem::replace(&mut entry.state, next.clone());
        self.agenda.enter(task, &next);
        if let (StepState::Waiting(WaitReason::Signal { name, .. }), Event::StepSucceeded { .. }) =
            (&before, event)
        {
            self.take_signal(name);
        }
        if task.part.undo {
            self.after_undo(&next);
        } else if let Some(index) = task.part.item {
            let had_turn = was_there && !matches!(before, StepState::Waiting(_));
            if let Some(items) = self.steps[task.step.get()].items.as_deref_mut() {
                items.count(&before, &next);
            }
            self.after_item(task, index, had_turn, &next);
            self.note_time(task.step.into(), at);
        } else {
            self.after_step(task.step, &next);
        }
        self.note_time(task, at);
        Ok(())
    }

    /// Counts the time of a task until now as what it was spent on.
    fn note_time(&mut self, task: Task, at: Timestamp) {
        let Some(step) = find(&mut self.steps, task) else { return };
        step.spent.note(at, &step.state, step.items.as_deref());
    }

    /// Returns whether a task can have such an event at all: lists belong to steps that are done
    /// for each item of one, and only what was done is undone, one thing after another.
    fn may_be(&self, task: Task, event: &Event) -> bool {
        if task.part.undo && self.undoable.last().map(|it| it.undone()) != Some(task) {
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

    /// Draws what follows from a step's new state.
    fn after_step(&mut self, number: StepIx, state: &StepState) {
        match state {
            // Only a step that somebody agreed to comes back, or one that is only checked.
            StepState::Pending if self.steps[number.get()].is_approved => {
                let asks = self.asks(number.into());
                self.agenda.unblock(number.into(), asks);
            }
            StepState::Gathering { .. } => {
                let n = self.steps[number.get()].items.as_ref().map_or(0, |it| it.tasks.len());
                self.agenda.expect(n);
                self.release(number);
                if n == 0 {
                    self.agenda.gather(number);
                }
            }
            state if state.is_over() => {
                if let (StepState::Succeeded(_), None) = (state, &self.plan.step(number).for_each) {
                    self.note_undoable(number.into());
                }
                self.end_step(number);
            }
            _ => (),
        }
    }

    /// Draws what follows from an item's new state.
    fn after_item(&mut self, task: Task, index: u32, had_turn: bool, state: &StepState) {
        if let StepState::Succeeded(_) = state {
            self.note_undoable(task);
        }
        let on_error = self.plan.step(task.step).policy.on_error;
        let Some(items) = self.steps[task.step.get()].items.as_deref_mut() else { return };
        if had_turn && !matches!(state, StepState::Running { .. } | StepState::Retrying { .. }) {
            items.let_go();
        }
        if *state == StepState::Pending {
            items.give_back(index);
        }
        if state.is_over() {
            items.close();
            if items.is_over() {
                self.agenda.gather(task.step);
            }
        }
        if let StepState::Failed(_) = state {
            items.failed.get_or_insert(index);
            let must_succeed = matches!(on_error, OnError::Fail | OnError::Wait);
            if must_succeed && self.phase == Phase::Open {
                self.phase = Phase::Failing;
            }
        }
        self.release(task.step);
    }

    /// Gives items their turns.
    fn release(&mut self, number: StepIx) {
        let plan = Arc::clone(&self.plan);
        let step = plan.step(number);
        while let Some(items) = self.steps[number.get()].items.as_deref_mut()
            && let Some(index) = items.release(step.policy.width())
        {
            let task = Task::from(number).item(index);
            self.agenda.unblock(task, step.kind == StepKind::Wait);
        }
    }

    /// Goes on to what was done before, once the last is undone or cannot be.
    fn after_undo(&mut self, state: &StepState) {
        if state.is_over() {
            self.undoable.pop();
            self.undo_next();
        }
    }

    fn undo_next(&mut self) {
        self.agenda.undo(self.undoable.last().map(|it| it.undone()));
    }

    fn note_undoable(&mut self, task: Task) {
        if self.options.compensate_on_failure && self.plan.step(task.step).compensate.is_some() {
            self.undoable.push(task);
        }
    }

    /// Returns whether somebody must be asked before a task begins.
    fn asks(&self, task: Task) -> bool {
        let step = self.plan.step(task.step);
        let needs_consent =
            step.policy.requires_approval && !self.steps[task.step.get()].is_approved;
        let is_call = step.for_each.is_none() || task.part.item.is_some();
        needs_consent || (step.kind == StepKind::Wait && is_call)
    }

    /// Says that everything a step depends on lets it go on.
    fn unblock(&mut self, number: StepIx) {
        if self.plan.step(number).when.is_some() {
            self.agenda.judge(number);
        } else {
            let asks = self.asks(number.into());
            self.agenda.unblock(number.into(), asks);
        }
    }

    /// Tells a step's dependents that it is over, and the execution if it must fail.
    fn end_step(&mut self, number: StepIx) {
        let on_error = self.plan.step(number).policy.on_error;
        let state = &self.steps[number.get()].state;
        let is_failed = matches!(state, StepState::Failed(_));
        let lets_go_on = match state {
            StepState::Succeeded(_) => true,
            StepState::Failed(_) => on_error == OnError::Ignore,
            _ => false,
        };
        let plan = Arc::clone(&self.plan);
        for dependent in plan.dependents(number) {
            let step = &mut self.steps[dependent.get()];
            step.unmet -= 1;
            // One with a condition decides for itself, when everything before it is over.
            step.is_doomed |= !lets_go_on && plan.step(*dependent).when.is_none();
            if step.state != StepState::Pending {
                continue;
            }
            if step.is_doomed {
                self.agenda.doom(*dependent);
            } else if step.unmet == 0 && self.has_turn(*dependent) {
                self.unblock(*dependent);
            }
        }
        self.pass_turn();
        let must_succeed = matches!(on_error, OnError::Fail | OnError::Wait);
        if is_failed && must_succeed && self.phase == Phase::Open {
            self.phase = Phase::Failing;
        }
    }

    /// Returns whether a step may begin as far as the steps before it go.
    fn has_turn(&self, number: StepIx) -> bool {
        self.options.mode == ExecutionMode::Parallel || number == self.turn
    }

    /// Gives the turn to the first step that is not over. Whatever that depends on comes before it.
    fn pass_turn(&mut self) {
        if self.options.mode == ExecutionMode::Parallel {
            return;
        }
        let before = self.turn;
        while self.steps.get(self.turn.get()).is_some_and(|it| it.state.is_over()) {
            self.turn = self.turn.next();
        }
        let Some(step) = self.steps.get(self.turn.get()) else { return };
        if self.turn != before && step.state == StepState::Pending && !step.is_doomed {
            self.unblock(self.turn);
        }
    }

    /// Returns whether a claim can be what it says: only the owner renews.
    fn may_claim(&self, claimed: &Claimed) -> bool {
        let is_owner = self.owner.as_ref().is_some_and(|it| it.worker == claimed.worker);
        !claimed.renewed || is_owner
    }

    fn apply_to_execution(&mut self, at: Timestamp, event: &Event) -> Result<(), ReplayError> {
        let illegal = ReplayError::Illegal { phase: self.phase, event: event.kind() };
        match event {
            Event::Claimed(claimed) if self.epoch() < claimed.epoch && self.may_claim(claimed) => {
                self.owner = Some(claimed.clone());
                if self.options.start_at.is_none_or(|it| it <= at) {
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
                self.overran = self.phase == Phase::Open;
                self.phase = Phase::Expired;
            }
            Event::Paused { .. } if !self.is_paused => self.is_paused = true,
            Event::Resumed { .. } if self.is_paused => self.is_paused = false,
            Event::CompensationStarted if self.agenda.is_over() && !self.undoable.is_empty() => {
                self.phase = match self.phase {
                    Phase::Cancelling => Phase::Compensating(Outcome::Cancelled),
                    Phase::Failing | Phase::Expired => Phase::Compensating(Outcome::Failed),
                    _ => return Err(illegal),
                };
                self.undo_next();
            }
            Event::Finished { outcome } if self.is_over() => {
                self.phase = Phase::Finished(*outcome);
                self.finished_at = Some(at);
            }
            _ => return Err(illegal),
        }
        Ok(())
    }

    /// Returns whether nothing is left to do, or to undo.
    pub fn is_over(&self) -> bool {
        let is_undone = !matches!(self.phase, Phase::Compensating(_)) || self.undoable.is_empty();
        self.agenda.is_over() && is_undone
    }

    /// Takes the oldest kept signal called `name`, as a step that waits for it does.
    ///
    /// The event that takes it is the step's `step_succeeded`; which signal that was follows from
    /// the log, so replaying takes the same one.
    fn take_signal(&mut self, name: &str) {
        if let Some(at) = self.signals.iter().position(|it| it.name == name) {
            self.signals.remove(at);
        }
    }
}

/// Finds a task. What undoes something comes into being when it is first looked for.
fn find(steps: &mut [Step], task: Task) -> Option<&mut Step> {
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
