//! The state of a step, and the table of its transitions.

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::Value;

use super::{history::Occurrence, items::Items};
use crate::{
    clock::Timestamp,
    event::{Event, Settled, Settlement, SkipReason, StepStarted, WaitReason},
    id::{Attempt, ExecutionId},
    tool::{Effect, ErrorCode, Progress, ToolError},
};

/// The state of a step, an item, or a compensation at a position in the log.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug)]
pub struct Step {
    pub state: StepState,
    pub attempts: u32,
    /// The number of failed attempts since the last approval, without the attempt that failed the
    /// step. Attempts that a crash interrupted do not count.
    pub failures: u32,
    /// The number of attempts since the last approval during which a worker was lost.
    pub interruptions: u32,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// The time that the step worked, and the time that it waited.
    pub spent: TimeSpent,
    pub parameters: Option<Arc<Value>>,
    pub warnings: Vec<String>,
    pub is_approved: bool,
    /// `true` if the output was reused from another call or another execution.
    pub is_reused: bool,
    /// The last progress report of the last attempt.
    pub progress: Option<Box<Progress>>,
    /// The idempotency key that the last attempt took over from an earlier execution.
    pub key: Option<Arc<str>>,
    /// The decision of a person about a call whose outcome was unknown.
    pub settlement: Option<Box<Settlement>>,
    /// The event that led to the current state. `None` before the first such event.
    pub changed: Option<Occurrence>,
    /// The error of the last attempt that failed, even if a later attempt succeeded. `None` if that
    /// attempt was interrupted because its worker was lost.
    pub last_error: Option<Box<ToolError>>,
    pub child: Option<ExecutionId>,
    /// The child execution of the previous attempt.
    pub earlier_child: Option<Box<ExecutionId>>,
    /// The effect of the last attempt, if it differs from the plan.
    pub effect: Option<Effect>,
    /// The items of the step's list, once the list is known.
    pub items: Option<Box<Items>>,
    /// The compensation, once it has started.
    pub undo: Option<Box<Step>>,
    pub(super) unfinished_dependency_count: usize,
    /// `true` if a dependency did not succeed, so that the step will be skipped.
    pub(super) must_skip: bool,
}

/// The time that a task worked, and the time that it waited for a person or a signal, or slept.
///
/// Delays before another attempt count as neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// The time of all attempts. The time between the last event of a lost worker and the next
    /// claim does not count.
    pub worked: TimeDelta,
    /// The time that the task waited for a person or a signal, or slept. A sleep needs no worker,
    /// so its time counts even if the worker is lost.
    pub waited: TimeDelta,
    since: Option<(Activity, Timestamp)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Work,
    Wait,
}

impl TimeSpent {
    /// Leaves out the time from `until` to `now`, during which no worker owned the execution.
    pub(super) fn exclude_gap(&mut self, until: Timestamp, now: Timestamp) {
        if let Some((Activity::Work, from)) = self.since {
            self.worked += (until - from).max(TimeDelta::zero());
            self.since = Some((Activity::Work, now.max(from)));
        }
    }

    /// Records the state from `at` on. A list counts as working unless all its items wait or sleep.
    pub(super) fn record_state(&mut self, at: Timestamp, state: &StepState, items: Option<&Items>) {
        let activity = match state {
            StepState::Waiting(_) => Some(Activity::Wait),
            state if state.is_sleeping() => Some(Activity::Wait),
            StepState::Gathering { .. } if items.is_some_and(Items::is_idle) => {
                Some(Activity::Wait)
            }
            StepState::Running { .. } | StepState::Gathering { .. } => Some(Activity::Work),
            _ => None,
        };
        if self.since.map(|(before, _)| before) == activity {
            return;
        }
        if let Some((before, from)) = self.since {
            // Counts a negative time as zero, because clocks of machines differ.
            let time = (at - from).max(TimeDelta::zero());
            match before {
                Activity::Work => self.worked += time,
                Activity::Wait => self.waited += time,
            }
        }
        self.since = activity.map(|activity| (activity, at));
    }
}

#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub enum StepState {
    Pending,
    /// An attempt is running, or was running when the worker died.
    Running {
        attempt: Attempt,
        how: AttemptKind,
    },
    Gathering {
        /// The attempt. A list has only one attempt, because its items have attempts of their own.
        attempt: Attempt,
    },
    /// An attempt failed or was interrupted, and the next attempt has not started.
    Retrying {
        attempt: Attempt,
        /// The earliest time of the next attempt.
        until: Timestamp,
        /// The error of the last attempt. `None` if the attempt's worker was lost.
        error: Option<ToolError>,
    },
    Waiting(WaitReason),
    /// Finished with this output.
    Succeeded(Arc<Value>),
    Failed(ToolError),
    Skipped(SkipReason),
    /// Finished without a result, because the execution was cancelled, or failed before every item
    /// of the step's list had run.
    Cancelled,
}

/// The way in which an attempt is carried out.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptKind {
    Calling,
    Sleeping { until: Timestamp },
    Executing { child: ExecutionId },
}

impl AttemptKind {
    fn from_started(started: &StepStarted) -> Self {
        match (started.until, started.child) {
            (Some(until), _) => Self::Sleeping { until },
            (None, Some(child)) => Self::Executing { child },
            (None, None) => Self::Calling,
        }
    }
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl Step {
    pub(super) fn new(unfinished_dependency_count: usize) -> Self {
        Self {
            state: StepState::Pending,
            attempts: 0,
            failures: 0,
            interruptions: 0,
            started_at: None,
            finished_at: None,
            spent: TimeSpent::default(),
            parameters: None,
            warnings: Vec::new(),
            is_approved: false,
            is_reused: false,
            progress: None,
            key: None,
            settlement: None,
            changed: None,
            last_error: None,
            child: None,
            earlier_child: None,
            effect: None,
            items: None,
            undo: None,
            unfinished_dependency_count,
            must_skip: false,
        }
    }

    pub fn next_attempt(&self) -> Attempt {
        Attempt::nth_after(self.attempts)
    }

    pub fn output(&self) -> Option<&Value> {
        match &self.state {
            StepState::Succeeded(output) => Some(output),
            _ => None,
        }
    }

    /// Returns `true` if a call of the step, or of one of its items, has the effect `ONCE`.
    /// `planned` is the effect in the plan, which applies to calls that record no other effect.
    pub fn has_once_call(&self, planned: Effect) -> bool {
        match &self.items {
            Some(items) => items.as_slice().iter().any(|item| item.has_once_call(planned)),
            None => self.effect.unwrap_or(planned) == Effect::Once,
        }
    }

    /// Returns `true` if a compensation of the step or of one of its items has started.
    pub fn has_started_compensation(&self) -> bool {
        let items = self.items.iter().flat_map(|items| items.as_slice());
        self.undo.is_some() || items.into_iter().any(|item| item.undo.is_some())
    }

    /// Returns `true` if the step was undone. For a list, all successful items must have been
    /// undone.
    pub fn is_compensated(&self) -> bool {
        let is_undone = |step: &Step| matches!(&step.undo, Some(undo) if undo.output().is_some());
        match &self.items {
            Some(items) => {
                let mut done =
                    items.as_slice().iter().filter(|item| item.output().is_some()).peekable();
                done.peek().is_some() && done.all(is_undone)
            }
            None => is_undone(self),
        }
    }

    fn record_error(&mut self, event: &Event) {
        match event {
            Event::StepRetryScheduled { error, .. }
            | Event::StepFailed { error, .. }
            | Event::StepWaiting { reason: WaitReason::Decision { error }, .. } => {
                self.last_error = Some(Box::new(error.clone()));
            }
            Event::StepInterrupted { error, .. } => {
                self.last_error = error.clone().map(Box::new);
            }
            _ => (),
        }
    }

    pub(super) fn record_event(&mut self, occurrence: Occurrence, event: &Event) {
        let at = occurrence.at;
        self.record_error(event);
        if !matches!(event, Event::StepProgress { .. }) {
            self.changed = Some(occurrence);
        }
        match event {
            Event::StepStarted(StepStarted {
                attempt,
                parameters,
                warnings,
                items,
                child,
                key,
                effect,
                ..
            }) => {
                self.attempts = attempt.get();
                self.started_at.get_or_insert(at);
                self.warnings.clone_from(warnings);
                self.earlier_child = self.child.map(Box::new);
                self.child = *child;
                self.key.clone_from(key);
                self.effect = *effect;
                self.progress = None;
                match items {
                    Some(n) => self.items = Some(Box::new(Items::new(*n))),
                    None => self.parameters = Some(Arc::clone(parameters)),
                }
            }
            Event::StepChecked { parameters, warnings, .. } => {
                self.parameters = Some(Arc::clone(parameters));
                self.warnings.clone_from(warnings);
            }
            Event::StepProgress { progress, .. } => {
                self.progress = Some(Box::new(progress.clone()));
            }
            Event::StepWaiting { reason, parameters, warnings, .. } => {
                if let WaitReason::Decision { .. } = reason {
                    self.failures += 1;
                }
                self.started_at.get_or_insert(at);
                self.parameters = Some(Arc::clone(parameters));
                self.warnings.clone_from(warnings);
            }
            Event::StepRetryScheduled { .. } => self.failures += 1,
            // Counts only interruptions without an error, because a tool that was not called cannot
            // have crashed the worker.
            Event::StepInterrupted { error: None, .. } => self.interruptions += 1,
            Event::StepApproved { .. } => {
                self.is_approved = true;
                self.failures = 0;
                self.interruptions = 0;
            }
            Event::StepSucceeded { cached, .. } => {
                self.is_reused = *cached;
                self.finished_at = Some(at);
            }
            Event::StepFailed { .. } => self.finished_at = Some(at),
            Event::StepSettled { outcome, output, comment, .. } => {
                self.finished_at = Some(at);
                let (outcome, output) = (*outcome, output.clone());
                let comment = comment.clone();
                self.settlement = Some(Box::new(Settlement { outcome, output, comment }));
            }
            Event::StepCancelled { .. } if self.started_at.is_some() => {
                self.finished_at = Some(at);
            }
            _ => (),
        }
    }
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl StepState {
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Succeeded(_) | Self::Failed(_) | Self::Skipped(_) | Self::Cancelled)
    }

    pub(super) fn is_sleeping(&self) -> bool {
        matches!(self, Self::Running { how: AttemptKind::Sleeping { .. }, .. })
    }

    /// Returns this state with another end of its wait. A state that does not wait for a time stays
    /// the same.
    pub(super) fn with_end(&self, end: Timestamp) -> Self {
        let mut state = self.clone();
        match &mut state {
            Self::Running { how: AttemptKind::Sleeping { until }, .. }
            | Self::Retrying { until, .. }
            | Self::Waiting(WaitReason::Signal { until: Some(until), .. }) => *until = end,
            _ => (),
        }
        state
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running { .. } | Self::Gathering { .. } => "running",
            Self::Retrying { .. } => "retrying",
            Self::Waiting(_) => "waiting",
            Self::Succeeded(_) => "succeeded",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the next state, or `None` if the event is not possible. This is the complete
    /// transition table.
    ///
    /// `collect_outputs` returns the list of the items' outputs.
    pub(super) fn next(
        &self,
        event: &Event,
        collect_outputs: impl FnOnce() -> Option<Arc<Value>>,
    ) -> Option<Self> {
        Some(match (self, event) {
            (Self::Pending, Event::StepStarted(started)) if started.items.is_some() => {
                Self::Gathering { attempt: started.attempt }
            }
            (Self::Gathering { attempt }, event) => {
                return Self::after_items(*attempt, event, collect_outputs);
            }
            (Self::Pending, Event::StepChecked { .. }) => Self::Pending,
            (Self::Running { attempt, how }, Event::StepProgress { attempt: of, .. })
                if attempt == of =>
            {
                Self::Running { attempt: *attempt, how: *how }
            }
            (Self::Pending | Self::Retrying { .. }, Event::StepStarted(started)) => {
                if !self.can_start_attempt(started.attempt) {
                    return None;
                }
                Self::Running { attempt: started.attempt, how: AttemptKind::from_started(started) }
            }
            (
                Self::Pending,
                Event::StepWaiting {
                    reason: reason @ (WaitReason::Approval | WaitReason::Signal { .. }),
                    ..
                },
            )
            | (
                Self::Running { .. },
                Event::StepWaiting { reason: reason @ WaitReason::Decision { .. }, .. },
            ) => Self::Waiting(reason.clone()),
            (Self::Pending, Event::StepSettled { output: Some(output), command: None, .. }) => {
                Self::Succeeded(Arc::clone(output))
            }
            (Self::Pending, Event::StepSkipped { reason, .. }) => Self::Skipped(*reason),
            (Self::Pending, Event::StepFailed { error, .. }) => Self::Failed(error.clone()),
            (Self::Running { attempt, .. }, event) if event.attempt() == Some(*attempt) => {
                return Self::after_attempt(*attempt, event);
            }
            (Self::Retrying { attempt, .. }, Event::StepFailed { error, attempt: last, .. })
                if attempt == last =>
            {
                Self::Failed(error.clone())
            }
            (Self::Waiting(reason), event) => return Self::after_waiting(reason, event),
            (
                Self::Pending | Self::Running { .. } | Self::Retrying { .. },
                Event::StepCancelled { .. },
            ) => Self::Cancelled,
            _ => return None,
        })
    }

    fn can_start_attempt(&self, attempt: Attempt) -> bool {
        match self {
            Self::Retrying { attempt: last, .. } => attempt == last.next(),
            _ => true,
        }
    }

    fn after_attempt(attempt: Attempt, event: &Event) -> Option<Self> {
        Some(match event {
            Event::StepSucceeded { output: Some(output), .. } => {
                Self::Succeeded(Arc::clone(output))
            }
            Event::StepFailed { error, .. } => Self::Failed(error.clone()),
            Event::StepRetryScheduled { until, error, .. } => {
                Self::Retrying { attempt, until: *until, error: Some(error.clone()) }
            }
            Event::StepInterrupted { error, .. } => {
                Self::Retrying { attempt, until: Timestamp::UNIX_EPOCH, error: error.clone() }
            }
            _ => return None,
        })
    }

    fn after_items(
        attempt: Attempt,
        event: &Event,
        collect_outputs: impl FnOnce() -> Option<Arc<Value>>,
    ) -> Option<Self> {
        // Rejects the event while items are unfinished, because a step finishes after its last
        // item.
        let outputs = collect_outputs()?;
        Some(match event {
            Event::StepSucceeded { attempt: of, output: None, .. } if *of == attempt => {
                Self::Succeeded(outputs)
            }
            Event::StepFailed { attempt: of, error, .. } if *of == attempt => {
                Self::Failed(error.clone())
            }
            Event::StepCancelled { .. } => Self::Cancelled,
            _ => return None,
        })
    }

    fn after_waiting(reason: &WaitReason, event: &Event) -> Option<Self> {
        Some(match (reason, event) {
            (WaitReason::Signal { .. }, Event::StepSucceeded { output: Some(output), .. }) => {
                Self::Succeeded(Arc::clone(output))
            }
            (WaitReason::Approval | WaitReason::Decision { .. }, Event::StepApproved { .. }) => {
                Self::Pending
            }
            (
                WaitReason::Decision { error },
                Event::StepSettled { outcome, output, comment, .. },
            ) if error.code == ErrorCode::OUTCOME_UNKNOWN => match (outcome, output) {
                (Settled::Succeeded, Some(output)) => Self::Succeeded(Arc::clone(output)),
                (Settled::Failed, None) => Self::Failed(settled_as_failed(comment.as_deref())),
                _ => return None,
            },
            (_, Event::StepFailed { error, .. }) => Self::Failed(error.clone()),
            (_, Event::StepSkipped { reason, .. }) => Self::Skipped(*reason),
            (_, Event::StepCancelled { .. }) => Self::Cancelled,
            _ => return None,
        })
    }
}

/// Returns the error of a call that a person settled as failed, which means that it had no effect.
fn settled_as_failed(comment: Option<&str>) -> ToolError {
    let reason = "a person settled the call as failed: it had no effect";
    let reason = comment.map_or(reason.to_owned(), |comment| format!("{reason}; {comment}"));
    ToolError::failed(reason).without_retry()
}
