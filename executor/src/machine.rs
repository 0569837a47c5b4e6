//! Decides what happens next. Pure: no clock, no store, no tools, no randomness.
//!
//! [`decide`] moves an execution past what an input makes happen, and returns the events by which
//! it did. Nothing else moves executions, so the log of these events is the execution. An input
//! that no longer matters yields nothing: deciding twice is the same as deciding once.
//!
//! The cost of a decision is that of the steps that the input makes ready, not of the plan.

mod dry;
mod gather;
mod input;
mod people;
mod start;
mod stop;
mod undo;

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::Value;
use shared::{
    clock::Timestamp,
    event::{Claimed, Created, Event, Outcome, RecordedEvent, SkipReason, WaitReason},
    execution::{
        AttemptKind, Execution, ExecutionMode, ExecutionOptions, Phase, ReplayError, Step,
        StepState,
    },
    id::{Attempt, ExecutionId, Seq, StepId, StepNumber, Task, WorkerId, fnv1a},
    limits,
    plan::{OnError, Plan, StepPolicy},
    store::SentCommand,
    tool::{Effect, ErrorCode, Progress, ToolError},
};

pub use self::{
    dry::{Verdict, dry_run},
    input::{missing_input, unresolved},
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
    /// The worker that has the execution takes it once more: nobody had it in between, so what is
    /// under way goes on.
    Renewed {
        /// The worker.
        worker: WorkerId,
        /// The name of its machine, for people.
        node: Arc<str>,
    },
    /// An attempt has ended.
    Ended {
        /// What was tried.
        task: Task,
        /// Which attempt.
        attempt: Attempt,
        /// What came of it.
        result: Result<Answer, ToolError>,
    },
    /// The tool of an attempt was gone before it was called.
    Uncalled {
        /// What was to be tried.
        task: Task,
        /// Which attempt.
        attempt: Attempt,
        /// Why there is no tool.
        error: ToolError,
    },
    /// An attempt says how far it is.
    Progressed {
        /// What is tried.
        task: Task,
        /// Which attempt.
        attempt: Attempt,
        /// How far.
        progress: Progress,
    },
    /// There is a permit for the call of a task.
    Permitted(Task),
    /// An outsider asks for something.
    Command(SentCommand),
    /// What came next can never be written: the execution ends without it.
    Unwritable(ToolError),
    /// Time has passed.
    Woken,
}

/// What an attempt returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The output.
    pub output: Value,
    /// Whether it was returned earlier, to another call.
    pub cached: bool,
    /// The end of what a command wrote to standard error.
    pub stderr: Option<String>,
}

impl From<Value> for Answer {
    fn from(output: Value) -> Self {
        Self { output, cached: false, stderr: None }
    }
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
) -> (Execution, RecordedEvent) {
    let about = plan.info();
    create_as(id, plan, Created::new(about.id, about.request, options), now)
        .expect("an execution that takes nothing over can begin")
}

/// Begins the life of an execution that belongs to another, or takes outputs over from one.
pub fn create_as(
    id: ExecutionId,
    plan: &Arc<Plan>,
    created: Created,
    now: Timestamp,
) -> Result<(Execution, RecordedEvent), ReplayError> {
    let recorded =
        RecordedEvent { seq: Seq::START.next(), at: now, event: Event::Created(created) };
    let execution = Execution::create(id, Arc::clone(plan), &recorded)?;
    Ok((execution, recorded))
}

/// Moves `execution` past what happens when `input` arrives, and returns it. Perhaps nothing.
pub fn decide(
    execution: &mut Execution,
    input: Input,
    moment: impl Into<Moment>,
) -> Vec<RecordedEvent> {
    if let Phase::Finished(_) = execution.phase() {
        return Vec::new();
    }
    let mut turn = Turn { execution, moment: moment.into(), events: Vec::new() };
    match input {
        Input::Claimed { worker, node } => turn.claim(worker, node),
        Input::Renewed { worker, node } => turn.take(worker, node, true),
        Input::Ended { task, attempt, result } => turn.settle(task, attempt, result),
        Input::Uncalled { task, attempt, error } => turn.give_back(task, attempt, error),
        Input::Progressed { task, attempt, progress } => turn.note(task, attempt, progress),
        Input::Permitted(task) => turn.start_permitted(task),
        Input::Command(envelope) => turn.obey(envelope),
        Input::Unwritable(error) => turn.end_unwritten(&error),
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
    let may_retry = match execution.phase() {
        Phase::Open => !execution.is_paused() && has_slot,
        Phase::Compensating(_) => true,
        _ => false,
    };
    let retry = agenda.retrying().first();
    let retry = retry.filter(|(_, task)| may_retry && !is_behind(execution, *task));
    let [sleep, wait] = [agenda.sleeping(), agenda.expiring()].map(|it| it.first());
    [sleep.map(|it| it.0), wait.map(|it| it.0), retry.map(|it| it.0), deadline, start]
        .into_iter()
        .flatten()
        .min()
}

/// Returns a name for the next attempt of a task, as the holder of a permit.
pub(crate) fn holder(execution: &Execution, task: Task) -> String {
    let attempt = execution.task(task).map_or(Attempt::FIRST, Step::next_attempt);
    seed(execution.id(), task, attempt)
}

/// Returns the parameters that a task would start with now.
pub(crate) fn parameters(execution: &Execution, task: Task) -> Value {
    let template = execution.plan().step(task.step).call_of_part(task.part).template;
    let rendered = template.render(&execution.template_scope(task), limits::OUTPUT_BYTES);
    rendered.map(|it| it.value).unwrap_or_default()
}

/// Returns whether calls may begin, as far as that is for the execution to say.
pub(crate) fn lets_begin(execution: &Execution) -> bool {
    match execution.phase() {
        Phase::Open => !execution.is_paused() && execution.started_at().is_some(),
        Phase::Compensating(_) => true,
        _ => false,
    }
}

/// Returns whether something before a task waits for a permit: one at a time, nothing overtakes.
fn is_behind(execution: &Execution, task: Task) -> bool {
    let is_sequential = execution.options().mode == ExecutionMode::Sequential;
    is_sequential && execution.agenda().waiting_for_permit().first().is_some_and(|it| *it < task)
}

/// One decision under way: the state so far, and the events that led to it.
struct Turn<'a> {
    execution: &'a mut Execution,
    moment: Moment,
    events: Vec<RecordedEvent>,
}

impl Turn<'_> {
    fn push(&mut self, event: Event) {
        let recorded =
            RecordedEvent { seq: self.execution.seq().next(), at: self.moment.now, event };
        self.execution.apply(&recorded).expect("the machine proposes only what can happen");
        self.events.push(recorded);
    }

    /// Does everything that can be done, until nothing more can.
    fn advance(&mut self) {
        if !self.execution.agenda().is_finished() {
            self.expire();
        }
        loop {
            let before = self.events.len();
            self.wake();
            self.give_up();
            self.stop();
            self.skip();
            self.judge();
            self.ask();
            self.start();
            self.gather();
            self.undo();
            if self.events.len() == before {
                break;
            }
        }
        self.conclude();
    }

    fn id(&self, task: Task) -> StepId {
        self.execution.plan().step(task.step).id.clone()
    }

    fn policy(&self, task: Task) -> StepPolicy {
        self.execution.plan().step(task.step).call_of_part(task.part).policy.clone()
    }

    /// Returns the state of a task that an event or the agenda has named.
    fn state(&self, task: Task) -> Option<&StepState> {
        self.execution.task(task).map(|it| &it.state)
    }

    /// Takes the execution over: what ran elsewhere is interrupted; what only sleeps, and what runs
    /// in an execution of its own, goes on.
    fn claim(&mut self, worker: WorkerId, node: Arc<str>) {
        self.take(worker, node, false);
        let running: Vec<Task> = self.execution.agenda().running().iter().copied().collect();
        for task in running {
            if let Some(StepState::Running { attempt, how: AttemptKind::Calling }) =
                self.state(task)
            {
                self.interrupt(task, *attempt);
            }
        }
    }

    fn take(&mut self, worker: WorkerId, node: Arc<str>, renewed: bool) {
        let epoch = self.execution.epoch().next();
        let had_started = self.execution.started_at().is_some();
        self.push(Event::Claimed(Claimed { worker, node, epoch, renewed }));
        if !had_started && self.execution.started_at().is_some() {
            self.check_input();
        }
    }

    /// Says what becomes of an attempt whose worker is gone.
    fn interrupt(&mut self, task: Task, attempt: Attempt) {
        let interruptions = self.execution.task(task).map_or(0, |it| it.interruptions) + 1;
        if self.policy(task).effect == Effect::Once {
            let error = ToolError::outcome_unknown("the worker was lost while the tool was called");
            return self.fail(task, attempt, error);
        }
        if interruptions > limits::INTERRUPTIONS {
            let why = format!("the step took its worker down {interruptions} times");
            let error = ToolError::new(ErrorCode::UNAVAILABLE, why).without_retry();
            return self.fail(task, attempt, error);
        }
        let (step, part) = (self.id(task), task.part);
        self.push(Event::StepInterrupted { step, part, attempt, error: None });
    }

    /// Lets a task begin again that called nothing, whatever a second call would do.
    fn give_back(&mut self, task: Task, attempt: Attempt, error: ToolError) {
        if self.is_running(task, attempt) {
            let (step, part, error) = (self.id(task), task.part, Some(error));
            self.push(Event::StepInterrupted { step, part, attempt, error });
        }
    }

    /// Notes how far an attempt is.
    fn note(&mut self, task: Task, attempt: Attempt, progress: Progress) {
        if self.is_running(task, attempt) {
            let (step, part) = (self.id(task), task.part);
            self.push(Event::StepProgress { step, part, attempt, progress });
        }
    }

    fn is_running(&self, task: Task, attempt: Attempt) -> bool {
        let state = self.state(task);
        matches!(state, Some(StepState::Running { attempt: it, .. }) if *it == attempt)
    }

    /// Records what came of an attempt.
    fn settle(&mut self, task: Task, attempt: Attempt, result: Result<Answer, ToolError>) {
        if !self.is_running(task, attempt) {
            return;
        }
        match result {
            Ok(Answer { output, cached, stderr }) => {
                let (step, part, output) = (self.id(task), task.part, Some(Arc::new(output)));
                self.push(Event::StepSucceeded { step, part, attempt, output, cached, stderr });
            }
            Err(error) => self.settle_failure(task, attempt, error),
        }
    }

    fn settle_failure(&mut self, task: Task, attempt: Attempt, error: ToolError) {
        let policy = self.policy(task);
        let was_stopped = error.code == ErrorCode::CANCELLED;
        if policy.effect == Effect::Once && !error.is_definite {
            let why = match self.execution.phase() {
                Phase::Expired => format!("{}; {}", deadline().message, error.message),
                _ => (*error.message).to_owned(),
            };
            return self.fail(task, attempt, ToolError::outcome_unknown(&why));
        }
        let (step, part) = (self.id(task), task.part);
        match self.execution.phase() {
            Phase::Cancelling if was_stopped => {
                return self.push(Event::StepCancelled { step, part });
            }
            Phase::Expired if was_stopped => return self.fail(task, attempt, deadline()),
            Phase::Open | Phase::Compensating(_) if error.retryable => {
                let failures = self.execution.task(task).map_or(0, |it| it.failures) + 1;
                let dice = dice(self.execution.id(), task, attempt);
                if let Some(delay) = policy.retry.delay(failures, dice) {
                    let until = self.moment.now + delay;
                    return self.push(Event::StepRetryScheduled {
                        step,
                        part,
                        attempt,
                        error,
                        until,
                    });
                }
            }
            _ => (),
        }
        self.fail(task, attempt, error);
    }

    /// Ends a task badly, or asks a person what to do about it.
    fn fail(&mut self, task: Task, attempt: Attempt, error: ToolError) {
        let (step, part) = (self.id(task), task.part);
        let on_error = self.execution.plan().step(task.step).policy.on_error;
        let asks = on_error == OnError::Wait && !part.undo && self.execution.phase() == Phase::Open;
        let state = self.execution.task(task);
        let running = state.filter(|it| matches!(it.state, StepState::Running { .. }));
        match running {
            Some(state) if asks => {
                let parameters = state.parameters.clone().unwrap_or_default();
                let warnings = state.warnings.clone();
                let reason = WaitReason::Decision { error };
                self.push(Event::StepWaiting { step, part, reason, parameters, warnings });
            }
            _ => self.push(Event::StepFailed { step, part, attempt, error, command: None }),
        }
    }

    fn skip_step(&mut self, number: StepNumber, reason: SkipReason) {
        let task = Task::from(number);
        let (step, part) = (self.id(task), task.part);
        self.push(Event::StepSkipped { step, part, reason });
    }

    /// Skips what cannot run because of another step's end.
    fn skip(&mut self) {
        while let Some(number) = self.execution.agenda().to_skip().first().copied() {
            self.skip_step(number, SkipReason::Dependency);
        }
    }

    /// Decides whether steps with a condition are done, once all that they depend on is over.
    fn judge(&mut self) {
        while self.is_open()
            && let Some(number) = self.execution.agenda().conditional().first().copied()
        {
            let plan = Arc::clone(self.execution.plan());
            let Some(condition) = &plan.step(number).when else {
                unreachable!("only steps with a condition are judged");
            };
            match condition.evaluate(&*self.execution, &self.execution.options().input) {
                Ok(true) => self.execution.record_condition_true(number),
                Ok(false) => self.skip_step(number, SkipReason::Condition),
                Err(why) => {
                    let why = format!("`when` cannot be told: {why}");
                    let error = ToolError::new(ErrorCode::UNRESOLVED, why);
                    self.fail_unstarted(number.into(), Attempt::FIRST, error);
                }
            }
        }
    }

    /// Returns whether the end came by itself: nothing was left undone, or cut off.
    fn came_to_its_end(&self) -> bool {
        let plan = self.execution.plan().steps().iter();
        plan.zip(self.execution.steps()).all(|(planned, step)| match &step.state {
            StepState::Succeeded(_) => !step.items.iter().flat_map(|it| it.as_slice()).any(was_cut),
            StepState::Skipped(reason) => *reason != SkipReason::ExecutionFailed,
            StepState::Failed(_) => {
                let may_fail =
                    matches!(planned.policy.on_error, OnError::Ignore | OnError::Continue);
                may_fail && !was_cut(step)
            }
            _ => false,
        })
    }

    fn conclude(&mut self) {
        if !self.execution.is_finished() {
            return;
        }
        let outcome = match self.execution.phase() {
            Phase::Finished(_) => return,
            Phase::Open => Outcome::Completed,
            // What was under way when the time was up was done all the same, and was all there was.
            Phase::Expired if self.came_to_its_end() => Outcome::Completed,
            Phase::Failing | Phase::Expired => Outcome::Failed,
            Phase::Cancelling => Outcome::Cancelled,
            Phase::Compensating(outcome) => outcome,
        };
        self.push(Event::Finished { outcome });
    }
}

/// Returns whether a task was ended by the end of the time, or may have been.
fn was_cut(task: &Step) -> bool {
    match &task.state {
        StepState::Failed(error) => {
            [ErrorCode::DEADLINE, ErrorCode::OUTCOME_UNKNOWN].contains(&error.code)
        }
        _ => false,
    }
}

fn deadline() -> ToolError {
    ToolError::new(ErrorCode::DEADLINE, "the execution's time was up")
}

/// Returns a number that is the same for the same attempt, whoever asks.
fn dice(execution: ExecutionId, task: Task, attempt: Attempt) -> u64 {
    fnv1a(seed(execution, task, attempt).bytes())
}

/// Returns a text that names an attempt. That of a whole step is as it was before steps had parts:
/// logs that wait for a retry must find the same time.
fn seed(execution: ExecutionId, task: Task, attempt: Attempt) -> String {
    let item = task.part.item.map(|it| format!("[{it}]")).unwrap_or_default();
    let undo = if task.part.undo { "/undo" } else { "" };
    format!("{execution}/{}{item}{undo}/{attempt}", task.step.get())
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
