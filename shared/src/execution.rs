//! The state of an execution: a fold over its events, and nothing else.
//!
//! [`Execution::apply`] is the only mutation, and [`StepState::next`] the only definition of what
//! a step can do. Beside the states the fold keeps what the machine needs to know next (which
//! steps are ready, doomed, running, due), so that deciding costs what an event changes and not
//! what the plan has.

mod agenda;
mod error;
mod options;
mod step;

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    agenda::Agenda,
    error::ReplayError,
    options::{ExecutionMode, ExecutionOptions},
    step::{Step, StepState},
};
use crate::{
    clock::Timestamp,
    event::{Claimed, Created, Event, Outcome, Recorded, WaitReason},
    id::{CommandId, Epoch, ExecutionId, RequestId, Seq, StepIx, WorkerId},
    plan::{OnError, Plan},
    template::{Target, Values},
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
    is_paused: bool,
    steps: Vec<Step>,
    agenda: Agenda,
    signals: Vec<Signal>,
    commands: BTreeSet<CommandId>,
}

/// Where an execution is in its life. It only ever moves down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Steps start as they become ready.
    Open,
    /// A step failed that must not: no further step starts, running ones are awaited.
    Failing,
    /// The time is up: no further step starts, running ones are stopped.
    Expired,
    /// Someone asked it to stop: no further step starts, running ones are stopped.
    Cancelling,
    /// Every step is over.
    Finished(Outcome),
}

/// What people call the state of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionState {
    /// Nobody has begun.
    Pending,
    /// Steps run, or are about to.
    InProgress,
    /// Somebody paused it.
    Paused,
    /// Nothing runs: only a person, a signal or a retry's time can go on.
    Waiting,
    /// It ended well.
    Completed,
    /// It ended badly.
    Failed,
    /// It was stopped.
    Cancelled,
}

impl ExecutionState {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::InProgress,
        Self::Paused,
        Self::Waiting,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns whether nothing more can happen.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Returns the word that the API and the stores use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::InProgress => "IN_PROGRESS",
            Self::Paused => "PAUSED",
            Self::Waiting => "WAITING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }
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
        let Event::Created(Created { request, options, plan: plan_id }) = event else {
            return Err(ReplayError::NotCreated(event.kind()));
        };
        if *plan_id != plan.id() {
            return Err(ReplayError::WrongPlan { expected: *plan_id, found: plan.id() });
        }
        let steps = plan.steps().iter().map(|it| Step::new(it.depends_on.len())).collect();
        Ok(Self {
            id,
            agenda: Agenda::new(&plan),
            plan,
            seq: *seq,
            request: *request,
            options: options.clone(),
            owner: None,
            created_at: *at,
            started_at: None,
            finished_at: None,
            phase: Phase::Open,
            is_paused: false,
            steps,
            signals: Vec::new(),
            commands: BTreeSet::new(),
        })
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
                let number =
                    self.plan.number(id).ok_or_else(|| ReplayError::UnknownStep(id.clone()))?;
                self.apply_to_step(number, *at, event)?;
            }
            None => self.apply_to_execution(*at, event)?,
        }
        self.commands.extend(event.command());
        self.seq = *seq;
        Ok(())
    }

    fn apply_to_step(
        &mut self,
        number: StepIx,
        at: Timestamp,
        event: &Event,
    ) -> Result<(), ReplayError> {
        let step = &mut self.steps[number.get()];
        let Some(next) = step.state.next(event) else {
            return Err(ReplayError::IllegalStep {
                step: self.plan.step(number).id.clone(),
                state: step.state.name(),
                event: event.kind(),
            });
        };
        self.agenda.leave(number, &step.state);
        step.note(at, event);
        let before = std::mem::replace(&mut step.state, next);
        self.agenda.enter(number, &step.state, self.plan.step(number).kind);
        if let (StepState::Waiting(WaitReason::Signal { name }), Event::StepSucceeded { .. }) =
            (&before, event)
        {
            self.take_signal(name);
        }
        if self.steps[number.get()].state.is_over() {
            self.end_step(number);
        }
        Ok(())
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
            step.is_doomed |= !lets_go_on;
            if step.state != StepState::Pending {
                continue;
            }
            if step.is_doomed {
                self.agenda.doom(*dependent);
            } else if step.unmet == 0 {
                self.agenda.unblock(*dependent, plan.step(*dependent).asks_first());
            }
        }
        let must_succeed = matches!(on_error, OnError::Fail | OnError::Wait);
        if is_failed && must_succeed && self.phase == Phase::Open {
            self.phase = Phase::Failing;
        }
    }

    fn apply_to_execution(&mut self, at: Timestamp, event: &Event) -> Result<(), ReplayError> {
        let illegal = ReplayError::Illegal { phase: self.phase, event: event.kind() };
        match event {
            Event::Claimed(claimed) if self.epoch() < claimed.epoch => {
                self.owner = Some(claimed.clone());
                if self.options.start_at.is_none_or(|it| it <= at) {
                    self.started_at.get_or_insert(at);
                }
            }
            Event::SignalReceived { name, payload, .. } => {
                let signal = Signal { name: name.clone(), payload: Arc::clone(payload) };
                self.signals.push(signal);
            }
            Event::CancelRequested { .. } if self.phase != Phase::Cancelling => {
                self.phase = Phase::Cancelling;
            }
            Event::DeadlinePassed if matches!(self.phase, Phase::Open | Phase::Failing) => {
                self.phase = Phase::Expired;
            }
            Event::Paused { .. } if !self.is_paused => self.is_paused = true,
            Event::Resumed { .. } if self.is_paused => self.is_paused = false,
            Event::Finished { outcome } if self.agenda.is_over() => {
                self.phase = Phase::Finished(*outcome);
                self.finished_at = Some(at);
            }
            _ => return Err(illegal),
        }
        Ok(())
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

    /// Returns whether somebody paused it.
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns when its time is up.
    pub fn deadline(&self) -> Option<Timestamp> {
        let ms = i64::try_from(self.options.deadline_ms?).unwrap_or(i64::MAX);
        self.started_at?.checked_add_signed(chrono::TimeDelta::try_milliseconds(ms)?)
    }

    /// Returns what people call its state.
    pub fn state(&self) -> ExecutionState {
        match self.phase {
            Phase::Finished(Outcome::Completed) => return ExecutionState::Completed,
            Phase::Finished(Outcome::Failed) => return ExecutionState::Failed,
            Phase::Finished(Outcome::Cancelled) => return ExecutionState::Cancelled,
            Phase::Open if self.is_paused => return ExecutionState::Paused,
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

impl Values for Execution {
    fn value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Step(number) => self.output(*number),
            Target::Variable(name) => self.variable(name),
        }
    }
}

#[cfg(test)]
mod tests;
