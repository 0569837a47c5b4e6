//! Decides what happens next. Pure: no clock, no store, no tools, no randomness.
//!
//! [`decide`] moves an execution past what an input makes happen, and returns the events by which
//! it did. Nothing else moves executions, so the log of these events is the execution. An input
//! that no longer matters yields nothing: deciding twice is the same as deciding once.
//!
//! The cost of a decision is that of the steps that the input makes ready, not of the plan.

mod people;
mod start;
mod stop;

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::Value;
use shared::{
    clock::Timestamp,
    event::{Claimed, Created, Event, Outcome, Recorded, SkipReason, WaitReason},
    execution::{Execution, ExecutionOptions, Phase, StepState},
    id::{Attempt, ExecutionId, Seq, StepIx, WorkerId},
    limits,
    plan::{OnError, Plan},
    store::Envelope,
    tool::{Effect, ErrorCode, ToolError},
};

/// Something the outside world tells the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// A worker takes the execution.
    Claimed {
        /// The worker.
        worker: WorkerId,
        /// The name of its machine, for people.
        node: Arc<str>,
    },
    /// An attempt has ended.
    Ended {
        /// The step.
        step: StepIx,
        /// Which attempt.
        attempt: Attempt,
        /// What came of it.
        result: Result<Value, ToolError>,
    },
    /// An outsider asks for something.
    Command(Envelope),
    /// Time has passed.
    Woken,
}

/// When a decision is made, and whether it may begin anything.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// When.
    pub now: Timestamp,
    /// Whether steps may begin. A worker that is about to end begins nothing.
    pub may_start: bool,
}

impl From<Timestamp> for Moment {
    fn from(now: Timestamp) -> Self {
        Self { now, may_start: true }
    }
}

/// Begins the life of an execution: its state, and the one event so far.
pub fn create(
    id: ExecutionId,
    plan: &Arc<Plan>,
    options: ExecutionOptions,
    now: Timestamp,
) -> (Execution, Recorded) {
    let about = plan.about();
    let created = Created { plan: about.id, request: about.request, options };
    let recorded = Recorded { seq: Seq::START.next(), at: now, event: Event::Created(created) };
    let execution = Execution::create(id, Arc::clone(plan), &recorded)
        .expect("the first event of a log is `created`");
    (execution, recorded)
}

/// Moves `execution` past what happens when `input` arrives, and returns it. Perhaps nothing.
pub fn decide(execution: &mut Execution, input: Input, moment: impl Into<Moment>) -> Vec<Recorded> {
    if let Phase::Finished(_) = execution.phase() {
        return Vec::new();
    }
    let mut turn = Turn { execution, moment: moment.into(), events: Vec::new() };
    match input {
        Input::Claimed { worker, node } => turn.claim(worker, node),
        Input::Ended { step, attempt, result } => turn.settle(step, attempt, result),
        Input::Command(envelope) => turn.obey(envelope),
        Input::Woken => (),
    }
    turn.advance();
    turn.events
}

/// Returns when time alone next changes anything.
pub fn wake_at(execution: &Execution) -> Option<Timestamp> {
    let agenda = execution.agenda();
    let deadline = match execution.phase() {
        Phase::Open | Phase::Failing => execution.deadline(),
        _ => None,
    };
    let start = match (execution.phase(), execution.started_at()) {
        (Phase::Open, None) => execution.options().start_at,
        _ => None,
    };
    let has_slot = agenda.running().len() < execution.options().width();
    let may_retry = execution.phase() == Phase::Open && !execution.is_paused() && has_slot;
    let retry = agenda.retrying().first().filter(|_| may_retry);
    [agenda.sleeping().first().map(|it| it.0), retry.map(|it| it.0), deadline, start]
        .into_iter()
        .flatten()
        .min()
}

/// One decision under way: the state so far, and the events that led to it.
struct Turn<'a> {
    execution: &'a mut Execution,
    moment: Moment,
    events: Vec<Recorded>,
}

impl Turn<'_> {
    fn push(&mut self, event: Event) {
        let recorded = Recorded { seq: self.execution.seq().next(), at: self.moment.now, event };
        self.execution.apply(&recorded).expect("the machine proposes only what can happen");
        self.events.push(recorded);
    }

    /// Does everything that can be done, until nothing more can.
    fn advance(&mut self) {
        if !self.execution.agenda().is_over() {
            self.expire();
        }
        loop {
            let before = self.events.len();
            self.wake();
            self.stop();
            self.skip();
            self.ask();
            self.start();
            if self.events.len() == before {
                break;
            }
        }
        self.conclude();
    }

    /// Takes the execution over: what ran elsewhere is interrupted, what only sleeps sleeps on.
    fn claim(&mut self, worker: WorkerId, node: Arc<str>) {
        let epoch = self.execution.epoch().next();
        self.push(Event::Claimed(Claimed { worker, node, epoch }));
        let running: Vec<StepIx> = self.execution.agenda().running().iter().copied().collect();
        for number in running {
            if let StepState::Running { attempt, until: None } = self.execution.step(number).state {
                self.interrupt(number, attempt);
            }
        }
    }

    /// Says what becomes of an attempt whose worker is gone.
    fn interrupt(&mut self, number: StepIx, attempt: Attempt) {
        let interruptions = self.execution.step(number).interruptions + 1;
        let plan = Arc::clone(self.execution.plan());
        let step = plan.step(number);
        if step.policy.effect == Effect::Once {
            let error = outcome_unknown("the worker was lost while the tool was called");
            return self.fail(number, attempt, error);
        }
        if interruptions > limits::INTERRUPTIONS {
            let why = format!("the step took its worker down {interruptions} times");
            let error = ToolError::new(ErrorCode::UNAVAILABLE, why).terminal();
            return self.fail(number, attempt, error);
        }
        self.push(Event::StepInterrupted { step: step.id.clone(), attempt });
    }

    /// Records what came of an attempt.
    fn settle(&mut self, number: StepIx, attempt: Attempt, result: Result<Value, ToolError>) {
        match self.execution.step(number).state {
            StepState::Running { attempt: current, .. } if current == attempt => (),
            _ => return,
        }
        match result {
            Ok(output) => {
                let step = self.execution.plan().step(number).id.clone();
                self.push(Event::StepSucceeded { step, attempt, output: Arc::new(output) });
            }
            Err(error) => self.settle_failure(number, attempt, error),
        }
    }

    fn settle_failure(&mut self, number: StepIx, attempt: Attempt, error: ToolError) {
        let plan = Arc::clone(self.execution.plan());
        let step = plan.step(number);
        let was_stopped = error.code == ErrorCode::CANCELLED;
        if step.policy.effect == Effect::Once && !error.is_definite {
            let why = match self.execution.phase() {
                Phase::Expired => format!("{}; {}", deadline().message, error.message),
                _ => (*error.message).to_owned(),
            };
            return self.fail(number, attempt, outcome_unknown(&why));
        }
        match self.execution.phase() {
            Phase::Cancelling if was_stopped => {
                return self.push(Event::StepCancelled { step: step.id.clone() });
            }
            Phase::Expired if was_stopped => return self.fail(number, attempt, deadline()),
            Phase::Open if error.retryable => {
                let failures = self.execution.step(number).failures + 1;
                let dice = dice(self.execution.id(), number, attempt);
                if let Some(delay) = step.policy.retry.delay(failures, dice) {
                    let until = self.moment.now + delay;
                    let step = step.id.clone();
                    return self.push(Event::StepRetryScheduled { step, attempt, error, until });
                }
            }
            _ => (),
        }
        self.fail(number, attempt, error);
    }

    /// Ends a step badly, or asks a person what to do about it.
    fn fail(&mut self, number: StepIx, attempt: Attempt, error: ToolError) {
        let plan = Arc::clone(self.execution.plan());
        let step = plan.step(number);
        let state = self.execution.step(number);
        let is_running = matches!(state.state, StepState::Running { .. });
        let asks = step.policy.on_error == OnError::Wait
            && self.execution.phase() == Phase::Open
            && is_running;
        let id = step.id.clone();
        if !asks {
            return self.push(Event::StepFailed { step: id, attempt, error });
        }
        let parameters = state.parameters.clone().unwrap_or_default();
        let warnings = state.warnings.clone();
        let reason = WaitReason::Decision { error };
        self.push(Event::StepWaiting { step: id, reason, parameters, warnings });
    }

    /// Skips what cannot run because of another step's end.
    fn skip(&mut self) {
        while let Some(number) = self.execution.agenda().doomed().first().copied() {
            let step = self.execution.plan().step(number).id.clone();
            self.push(Event::StepSkipped { step, reason: SkipReason::Dependency });
        }
    }

    fn has_all_succeeded(&self) -> bool {
        let tally = self.execution.tally();
        tally.successful == tally.total
    }

    fn conclude(&mut self) {
        if !self.execution.agenda().is_over() {
            return;
        }
        let outcome = match self.execution.phase() {
            Phase::Finished(_) => return,
            Phase::Open => Outcome::Completed,
            // What was under way when the time was up was done all the same, and was all there was.
            Phase::Expired if self.has_all_succeeded() => Outcome::Completed,
            Phase::Failing | Phase::Expired => Outcome::Failed,
            Phase::Cancelling => Outcome::Cancelled,
        };
        self.push(Event::Finished { outcome });
    }
}

fn outcome_unknown(why: &str) -> ToolError {
    let message = format!(
        "{why}; whether the call took effect is unknown, it may yet happen: look before you retry"
    );
    ToolError::new(ErrorCode::OUTCOME_UNKNOWN, message)
}

fn deadline() -> ToolError {
    ToolError::new(ErrorCode::DEADLINE, "the execution's time was up")
}

/// Returns a number that is the same for the same attempt, whoever asks: FNV-1a.
fn dice(execution: ExecutionId, step: StepIx, attempt: Attempt) -> u64 {
    let text = format!("{execution}/{}/{attempt}", step.get());
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns `ms` milliseconds after `now`, or the end of time.
fn later(now: Timestamp, ms: u64) -> Timestamp {
    i64::try_from(ms)
        .ok()
        .and_then(TimeDelta::try_milliseconds)
        .and_then(|it| now.checked_add_signed(it))
        .unwrap_or(Timestamp::MAX_UTC)
}

#[cfg(test)]
mod tests;
