//! The state machine of an execution. It is pure: it uses no clock, no store, no tools and no
//! randomness.
//!
//! Only events change the recorded state of an execution, so replaying its log gives the same
//! execution.

mod commands;
mod dry_run;
mod input;
mod loops;
mod schedule;
mod stop;

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::Value;
use shared::{
    actor::Actor,
    clock::Timestamp,
    event::{Claimed, Created, Event, Outcome, RecordedEvent, Settled, SkipReason, WaitReason},
    execution::{
        AttemptKind, Execution, ExecutionMode, ExecutionOptions, ExecutionState, Phase,
        ReplayError, Step, StepState,
    },
    id::{Attempt, ExecutionId, Seq, StepId, StepNumber, Task, ToolName, WorkerId, fnv1a},
    limits,
    plan::{Callee, OnError, Plan, StepKind, StepPolicy},
    store::SentCommand,
    tool::{Effect, ErrorCode, Progress, ToolError},
};

pub use self::{
    dry_run::{CheckedStep, dry_run_events},
    input::{missing_input, unresolved_error},
    schedule::OTHER_PARAMETERS_WARNING,
};

/// A claim shortens waits only if they began further in the future than this.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::seconds(5);

#[derive(Clone, Debug)]
pub enum Input {
    Claimed {
        worker: WorkerId,
        node: Arc<str>,
        /// `true` if commands of the inbox are applied after this claim. A failing execution waits
        /// for them, because one of them can cancel it.
        commands_follow: bool,
    },
    /// The owner claims the execution again after its lease had expired. Running calls continue.
    Renewed {
        worker: WorkerId,
        node: Arc<str>,
    },
    Ended {
        task: Task,
        attempt: Attempt,
        result: Result<CallOutput, ToolError>,
    },
    /// The tool of an attempt was not available, so no tool was called.
    NotCalled {
        task: Task,
        attempt: Attempt,
        error: ToolError,
    },
    Progressed {
        task: Task,
        attempt: Attempt,
        progress: Progress,
    },
    Permitted(Task),
    Command(SentCommand),
    /// The store refuses the next events, because they are too large.
    Unwritable(ToolError),
    Woken,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CallOutput {
    pub output: Value,
    pub cached: bool,
    pub stderr: Option<String>,
}

impl From<Value> for CallOutput {
    fn from(output: Value) -> Self {
        Self { output, cached: false, stderr: None }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct DecisionContext<'a> {
    pub now: Timestamp,
    /// `true` if the decision is allowed to start tasks. `false` for example while the worker
    /// drains, lacks a tool, or doubts its lease.
    pub is_start_allowed: bool,
    /// The present effects of tools. Without them, the effects in the plan apply.
    pub effects: Option<&'a dyn CurrentEffects>,
}

impl From<Timestamp> for DecisionContext<'_> {
    fn from(now: Timestamp) -> Self {
        Self { now, is_start_allowed: true, effects: None }
    }
}

/// The effects that tools have now. A plan stores the effects of the time of planning, and the
/// configuration may have changed since then.
pub trait CurrentEffects: std::fmt::Debug {
    fn current_effect(&self, tool: &ToolName) -> Option<Effect>;
}

pub fn create_execution(
    id: ExecutionId,
    plan: &Arc<Plan>,
    options: ExecutionOptions,
    now: Timestamp,
) -> (Execution, RecordedEvent) {
    let about = plan.info();
    create_execution_from(id, plan, Created::new(about.id, about.request, options), None, now)
        .expect("an execution without calls of earlier executions can start")
}

pub fn create_execution_from(
    id: ExecutionId,
    plan: &Arc<Plan>,
    created: Created,
    by: Option<Arc<Actor>>,
    now: Timestamp,
) -> Result<(Execution, RecordedEvent), ReplayError> {
    let recorded = RecordedEvent {
        seq: Seq::START.next(),
        at: now,
        by,
        event: Event::Created(Box::new(created)),
    };
    let execution = Execution::create(id, Arc::clone(plan), &recorded)?;
    Ok((execution, recorded))
}

/// Applies `input` to `execution`. Returns the new events, which the caller appends to the log.
pub fn decide<'a>(
    execution: &'a mut Execution,
    input: Input,
    context: impl Into<DecisionContext<'a>>,
) -> Vec<RecordedEvent> {
    if let Phase::Finished(_) = execution.phase() {
        return Vec::new();
    }
    let commands_follow = matches!(input, Input::Claimed { commands_follow: true, .. });
    let mut decision = Decision {
        execution,
        context: context.into(),
        events: Vec::new(),
        commands_follow,
        by: None,
    };
    match input {
        Input::Claimed { worker, node, .. } => decision.claim_execution(worker, node),
        Input::Renewed { worker, node } => decision.record_claim(worker, node, true),
        Input::Ended { task, attempt, result } => decision.record_result(task, attempt, result),
        Input::NotCalled { task, attempt, error } => {
            decision.end_uncalled_attempt(task, attempt, error);
        }
        Input::Progressed { task, attempt, progress } => {
            decision.record_progress(task, attempt, progress);
        }
        Input::Permitted(task) => decision.start_permitted_task(task),
        Input::Command(envelope) => decision.apply_command(envelope),
        Input::Unwritable(error) => decision.fail_unwritable(&error),
        Input::Woken => (),
    }
    decision.apply_rules();
    decision.events
}

/// Returns when the next timer is due: a retry that can start, a sleep, a wait, the deadline or the
/// planned start.
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
    let has_free_slot = agenda.running().len() < execution.options().width();
    let may_retry = match execution.phase() {
        Phase::Open => !execution.is_paused() && has_free_slot,
        Phase::Compensating(_) => true,
        _ => false,
    };
    let retry = agenda.retrying().first();
    let retry = retry.filter(|(_, task)| may_retry && !is_blocked_by_permit(execution, *task));
    let [sleep, wait] = [agenda.sleeping(), agenda.expiring()].map(|tasks| tasks.first());
    [
        sleep.map(|entry| entry.0),
        wait.map(|entry| entry.0),
        retry.map(|entry| entry.0),
        deadline,
        start,
    ]
    .into_iter()
    .flatten()
    .min()
}

/// Returns the start of the name under which the next attempt of a task holds a permit.
pub(crate) fn permit_holder(execution: &Execution, task: Task) -> String {
    let attempt = execution.task(task).map_or(Attempt::FIRST, Step::next_attempt);
    attempt_name(execution.id(), task, attempt)
}

/// Renders the parameters that a task would start with now. Unlike a start, this function ignores
/// errors.
pub(crate) fn preview_parameters(execution: &Execution, task: Task) -> Value {
    let template = execution.plan().step(task.step).call_of_part(task.part).template;
    let rendered = template.render(&execution.template_scope(task), limits::OUTPUT_BYTES);
    rendered.map(|rendered| rendered.value).unwrap_or_default()
}

/// Returns the call that would undo a step that a person settled as succeeded after its execution
/// had compensated. Nothing has undone such a step.
pub fn missing_compensation(execution: &Execution, task: Task) -> Option<(ToolName, Value)> {
    let has_compensated = execution.options().compensate_on_failure
        && matches!(execution.state(), ExecutionState::Failed | ExecutionState::Cancelled);
    let step = execution.task(task).filter(|_| has_compensated && !task.part.undo)?;
    let undo = execution.plan().step(task.step).compensate.as_ref()?;
    let is_left = step.is_outcome_unknown()
        && step.settled() == Some(Settled::Succeeded)
        && step.undo.is_none();
    is_left.then(|| (undo.tool.clone(), preview_parameters(execution, task.compensation())))
}

pub(crate) fn can_start_tasks(execution: &Execution) -> bool {
    match execution.phase() {
        Phase::Open => !execution.is_paused() && execution.started_at().is_some(),
        Phase::Compensating(_) => true,
        _ => false,
    }
}

/// Returns whether a task must wait, because an earlier task of a sequential execution waits for a
/// permit.
fn is_blocked_by_permit(execution: &Execution, task: Task) -> bool {
    let is_sequential = execution.options().mode == ExecutionMode::Sequential;
    is_sequential
        && execution.agenda().without_permit().first().is_some_and(|waiting| *waiting < task)
}

struct Decision<'a> {
    execution: &'a mut Execution,
    context: DecisionContext<'a>,
    events: Vec<RecordedEvent>,
    commands_follow: bool,
    /// The actor that gave the command that is being applied.
    by: Option<Arc<Actor>>,
}

impl Decision<'_> {
    fn record_event(&mut self, event: Event) {
        let by = self.by.clone();
        let recorded =
            RecordedEvent { seq: self.execution.seq().next(), at: self.context.now, by, event };
        self.execution.apply(&recorded).expect("the machine proposes only what can happen");
        self.events.push(recorded);
    }

    fn apply_rules(&mut self) {
        if !self.execution.agenda().is_finished() {
            self.check_deadline();
        }
        loop {
            let before = self.events.len();
            self.end_due_sleeps();
            self.expire_waits();
            self.stop_idle_tasks();
            self.skip_dependents();
            self.evaluate_conditions();
            self.start_waits();
            self.start_ready_tasks();
            self.finish_loops();
            self.compensate_next();
            if self.events.len() == before {
                break;
            }
        }
        self.finish_if_done();
    }

    fn step_id(&self, task: Task) -> StepId {
        self.execution.plan().step(task.step).id.clone()
    }

    fn call_policy(&self, task: Task) -> StepPolicy {
        self.execution.plan().step(task.step).call_of_part(task.part).policy.clone()
    }

    fn attempt_effect(&self, task: Task) -> Effect {
        let recorded = self.execution.task(task).and_then(|step| step.effect);
        recorded.unwrap_or_else(|| self.planned_call(task).policy.effect)
    }

    /// Returns the effect of the next attempt of a task, if it differs from the plan.
    fn changed_effect(&self, task: Task) -> Option<Effect> {
        let callee = self.planned_call(task);
        let effects = self.context.effects.filter(|_| callee.kind == StepKind::Call)?;
        effects.current_effect(callee.tool).filter(|effect| *effect != callee.policy.effect)
    }

    fn planned_call(&self, task: Task) -> Callee<'_> {
        self.execution.plan().step(task.step).call_of_part(task.part)
    }

    fn task_state(&self, task: Task) -> Option<&StepState> {
        self.execution.task(task).map(|task| &task.state)
    }

    /// Records a new owner, and interrupts the calls of the previous owner. Sleeps and child
    /// executions continue.
    fn claim_execution(&mut self, worker: WorkerId, node: Arc<str>) {
        self.record_claim(worker, node, false);
        self.shorten_waits();
        let running: Vec<Task> = self.execution.agenda().running().iter().copied().collect();
        for task in running {
            if let Some(StepState::Running { attempt, how: AttemptKind::Calling }) =
                self.task_state(task)
            {
                self.interrupt_attempt(task, *attempt);
            }
        }
    }

    /// Shortens waits that began in the future because the previous owner's clock was ahead by more
    /// than [`CLOCK_TOLERANCE`]. Otherwise they would last longer by the difference of the clocks.
    fn shorten_waits(&mut self) {
        let Some(began) = self.execution.latest_wait_start() else { return };
        let ahead = began - self.context.now;
        if ahead > CLOCK_TOLERANCE {
            let ahead_ms = u64::try_from(ahead.num_milliseconds()).unwrap_or_default();
            self.record_event(Event::WaitsShortened { ahead_ms });
        }
    }

    fn record_claim(&mut self, worker: WorkerId, node: Arc<str>, renewed: bool) {
        let epoch = self.execution.epoch().next();
        let had_started = self.execution.started_at().is_some();
        self.record_event(Event::Claimed(Claimed { worker, node, epoch, renewed }));
        if !had_started && self.execution.started_at().is_some() {
            self.check_input();
        }
    }

    /// Ends an attempt whose worker was lost. The task can start again, unless its tool must not be
    /// called twice or it was interrupted too often.
    fn interrupt_attempt(&mut self, task: Task, attempt: Attempt) {
        let interruptions = self.execution.task(task).map_or(0, |task| task.interruptions) + 1;
        if self.attempt_effect(task) == Effect::Once {
            let error = ToolError::outcome_unknown("the worker was lost while the tool was called");
            return self.fail_task(task, attempt, error);
        }
        if interruptions > limits::INTERRUPTIONS {
            let reason = format!("the worker of the step was lost {interruptions} times");
            let error = ToolError::new(ErrorCode::UNAVAILABLE, reason).without_retry();
            return self.fail_task(task, attempt, error);
        }
        let (step, part) = (self.step_id(task), task.part);
        self.record_event(Event::StepInterrupted { step, part, attempt, error: None });
    }

    /// Ends an attempt that called no tool. The task can start again, even if its effect is `once`.
    fn end_uncalled_attempt(&mut self, task: Task, attempt: Attempt, error: ToolError) {
        if self.is_running(task, attempt) {
            let (step, part, error) = (self.step_id(task), task.part, Some(error));
            self.record_event(Event::StepInterrupted { step, part, attempt, error });
        }
    }

    fn record_progress(&mut self, task: Task, attempt: Attempt, progress: Progress) {
        if self.is_running(task, attempt) {
            let (step, part) = (self.step_id(task), task.part);
            self.record_event(Event::StepProgress { step, part, attempt, progress });
        }
    }

    fn is_running(&self, task: Task, attempt: Attempt) -> bool {
        let state = self.task_state(task);
        matches!(state, Some(StepState::Running { attempt: running, .. }) if *running == attempt)
    }

    fn record_result(
        &mut self,
        task: Task,
        attempt: Attempt,
        result: Result<CallOutput, ToolError>,
    ) {
        if !self.is_running(task, attempt) {
            return;
        }
        match result {
            Ok(CallOutput { output, cached, stderr }) => {
                let (step, part, output) = (self.step_id(task), task.part, Some(Arc::new(output)));
                self.record_event(Event::StepSucceeded {
                    step,
                    part,
                    attempt,
                    output,
                    cached,
                    stderr,
                });
            }
            Err(error) => self.record_failure(task, attempt, error),
        }
    }

    fn record_failure(&mut self, task: Task, attempt: Attempt, error: ToolError) {
        let policy = self.call_policy(task);
        let was_stopped = error.code == ErrorCode::CANCELLED;
        if self.attempt_effect(task) == Effect::Once && !error.is_definite {
            let reason = match self.execution.phase() {
                Phase::Expired => format!("{}; {}", deadline_error().message, error.message),
                _ => (*error.message).to_owned(),
            };
            return self.fail_task(task, attempt, ToolError::outcome_unknown(&reason));
        }
        let (step, part) = (self.step_id(task), task.part);
        match self.execution.phase() {
            Phase::Cancelling if was_stopped => {
                return self.record_event(Event::StepCancelled { step, part });
            }
            Phase::Expired if was_stopped => {
                return self.fail_task(task, attempt, deadline_error());
            }
            Phase::Open | Phase::Compensating(_) if error.retryable => {
                let failures = self.execution.task(task).map_or(0, |task| task.failures) + 1;
                let dice = attempt_hash(self.execution.id(), task, attempt);
                if let Some(delay) = policy.retry.delay(failures, dice) {
                    let until = self.context.now + delay;
                    return self.record_event(Event::StepRetryScheduled {
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
        self.fail_task(task, attempt, error);
    }

    fn fail_task(&mut self, task: Task, attempt: Attempt, error: ToolError) {
        let (step, part) = (self.step_id(task), task.part);
        let on_error = self.execution.plan().step(task.step).policy.on_error;
        let asks = on_error == OnError::Wait && !part.undo && self.execution.phase() == Phase::Open;
        let state = self.execution.task(task);
        let running = state.filter(|task| matches!(task.state, StepState::Running { .. }));
        match running {
            Some(state) if asks => {
                let parameters = state.parameters.clone().unwrap_or_default();
                let warnings = state.warnings.clone();
                let reason = WaitReason::Decision { error };
                self.record_event(Event::StepWaiting { step, part, reason, parameters, warnings });
            }
            _ => self.record_event(Event::StepFailed { step, part, attempt, error, command: None }),
        }
    }

    fn skip_step(&mut self, number: StepNumber, reason: SkipReason) {
        let task = Task::from(number);
        let (step, part) = (self.step_id(task), task.part);
        self.record_event(Event::StepSkipped { step, part, reason });
    }

    fn skip_dependents(&mut self) {
        while let Some(number) = self.execution.agenda().to_skip().first().copied() {
            self.skip_step(number, SkipReason::Dependency);
        }
    }

    fn evaluate_conditions(&mut self) {
        while self.can_start()
            && let Some(number) = self.execution.agenda().to_evaluate().first().copied()
        {
            let plan = Arc::clone(self.execution.plan());
            let Some(condition) = &plan.step(number).when else {
                unreachable!("only steps with a condition are evaluated");
            };
            match condition.evaluate(&*self.execution, &self.execution.options().input) {
                Ok(true) => self.execution.record_condition_true(number),
                Ok(false) => self.skip_step(number, SkipReason::Condition),
                Err(error) => {
                    let reason = format!("`when` cannot be evaluated: {error}");
                    let error = ToolError::new(ErrorCode::UNRESOLVED, reason);
                    self.fail_unstarted(number.into(), Attempt::FIRST, error);
                }
            }
        }
    }

    /// Returns whether the plan ran to its end: no required step failed, the deadline skipped or
    /// stopped no step, and no outcome is unknown.
    fn has_run_to_end(&self) -> bool {
        let plan = self.execution.plan().steps().iter();
        plan.zip(self.execution.steps()).all(|(planned, step)| match &step.state {
            StepState::Succeeded(_) => {
                !step.items.iter().flat_map(|items| items.as_slice()).any(is_cut_off)
            }
            StepState::Skipped(reason) => *reason != SkipReason::ExecutionFailed,
            StepState::Failed(_) => {
                let may_fail =
                    matches!(planned.policy.on_error, OnError::Ignore | OnError::Continue);
                may_fail && !is_cut_off(step)
            }
            _ => false,
        })
    }

    fn finish_if_done(&mut self) {
        if !self.execution.is_finished() {
            return;
        }
        let outcome = match self.execution.phase() {
            Phase::Finished(_) => return,
            Phase::Open => Outcome::Completed,
            // Ends as completed, because the calls that were running at the deadline ended by
            // themselves and were the last calls of the plan.
            Phase::Expired if self.has_run_to_end() => Outcome::Completed,
            Phase::Failing if self.commands_follow => return,
            Phase::Failing | Phase::Expired => Outcome::Failed,
            Phase::Cancelling => Outcome::Cancelled,
            Phase::Compensating(outcome) => outcome,
        };
        self.record_event(Event::Finished { outcome });
    }
}

fn is_cut_off(task: &Step) -> bool {
    match &task.state {
        StepState::Failed(error) => {
            [ErrorCode::DEADLINE, ErrorCode::OUTCOME_UNKNOWN].contains(&error.code)
        }
        _ => false,
    }
}

fn deadline_error() -> ToolError {
    ToolError::new(ErrorCode::DEADLINE, "the deadline of the execution passed")
}

/// Returns a hash of an attempt, so that the jitter of its retry is the same on every worker and in
/// every replay.
fn attempt_hash(execution: ExecutionId, task: Task, attempt: Attempt) -> u64 {
    fnv1a(attempt_name(execution, task, attempt).bytes())
}

/// Returns a stable name of an attempt. Retry times and child ids of stored logs are derived from
/// it, so the format must not change.
fn attempt_name(execution: ExecutionId, task: Task, attempt: Attempt) -> String {
    let item = task.part.item.map(|index| format!("[{index}]")).unwrap_or_default();
    let undo = if task.part.undo { "/undo" } else { "" };
    format!("{execution}/{}{item}{undo}/{attempt}", task.step.get())
}

fn add_millis(now: Timestamp, ms: u64) -> Timestamp {
    i64::try_from(ms)
        .ok()
        .and_then(TimeDelta::try_milliseconds)
        .and_then(|delay| now.checked_add_signed(delay))
        .unwrap_or(Timestamp::MAX_UTC)
}

#[cfg(test)]
mod tests;
