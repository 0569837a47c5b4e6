//! The state of a step, and the one table of what may change it.

use std::sync::Arc;

use chrono::TimeDelta;
use serde_json::Value;

use super::items::Items;
use crate::{
    clock::Timestamp,
    event::{Event, SkipReason, StepStarted, WaitReason},
    id::{Attempt, ExecutionId},
    tool::{Progress, ToolError},
};

/// A step, an item of one or what undoes either, as of some position in the log.
#[derive(Clone, Debug)]
pub struct Step {
    /// Where it is in its life.
    pub state: StepState,
    /// How many attempts began.
    pub attempts: u32,
    /// How many of them failed; interruptions by crashes do not count.
    pub failures: u32,
    /// How often a worker was lost while an attempt was under way.
    pub interruptions: u32,
    /// When the first attempt began.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub finished_at: Option<Timestamp>,
    /// How long it worked and how long it waited for somebody.
    pub spent: Spent,
    /// The parameters of the last attempt, as rendered.
    pub parameters: Option<Arc<Value>>,
    /// What is worth knowing about them.
    pub warnings: Vec<String>,
    /// Whether a person agreed to it.
    pub is_approved: bool,
    /// Whether its output was returned earlier: to another call, or in another execution.
    pub is_reused: bool,
    /// How far the last attempt said it was.
    pub progress: Option<Box<Progress>>,
    /// The execution that the last attempt began.
    pub child: Option<ExecutionId>,
    /// The items of its list, once it is known.
    pub items: Option<Box<Items>>,
    /// What undoes it, once that has begun.
    pub undo: Option<Box<Step>>,
    /// How many of the steps that it depends on are not over.
    pub(super) unmet: usize,
    /// Whether one of them ended so that it will not run.
    pub(super) is_doomed: bool,
}

/// How long a task worked and how long it waited for a person or a signal.
///
/// Back-offs before another attempt are neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The time of its attempts. An interrupted attempt ends when its worker's loss is recorded.
    pub worked: TimeDelta,
    /// The time in which only a person or a signal could let it go on.
    pub waited: TimeDelta,
    since: Option<(Activity, Timestamp)>,
}

/// What a task spends its time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Work,
    Wait,
}

impl Spent {
    /// Notes that the task is in `state` from `at` on. A list works unless its items only wait.
    pub(super) fn note(&mut self, at: Timestamp, state: &StepState, items: Option<&Items>) {
        let activity = match state {
            StepState::Waiting(_) => Some(Activity::Wait),
            StepState::Gathering { .. } if items.is_some_and(Items::only_waits) => {
                Some(Activity::Wait)
            }
            StepState::Running { .. } | StepState::Gathering { .. } => Some(Activity::Work),
            _ => None,
        };
        if self.since.map(|(before, _)| before) == activity {
            return;
        }
        if let Some((before, from)) = self.since {
            // Machines' clocks differ: no time is less than none.
            let time = (at - from).max(TimeDelta::zero());
            match before {
                Activity::Work => self.worked += time,
                Activity::Wait => self.waited += time,
            }
        }
        self.since = activity.map(|activity| (activity, at));
    }
}

/// Where a step is in its life.
#[derive(Clone, Debug, PartialEq)]
pub enum StepState {
    /// Not begun.
    Pending,
    /// An attempt is under way, or was when the worker died.
    Running {
        /// Which attempt.
        attempt: Attempt,
        /// Who carries it out.
        how: How,
    },
    /// Its items are under way.
    Gathering {
        /// Which attempt. There is only one.
        attempt: Attempt,
    },
    /// An attempt failed or was interrupted; the next does not begin before this.
    Retrying {
        /// The last attempt.
        attempt: Attempt,
        /// When the next may begin.
        until: Timestamp,
        /// Why there is another; nothing after a crash.
        error: Option<ToolError>,
    },
    /// Waits for somebody.
    Waiting(WaitReason),
    /// Over: the tool returned this.
    Succeeded(Arc<Value>),
    /// Over: the last attempt failed.
    Failed(ToolError),
    /// Over: it did not run.
    Skipped(SkipReason),
    /// Over: it was stopped, or did not run because the execution was.
    Cancelled,
}

/// Who carries an attempt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A tool is called.
    Calling,
    /// Nobody: it only waits for a time.
    Sleeping {
        /// Until when.
        until: Timestamp,
    },
    /// Another execution.
    Executing {
        /// Which.
        child: ExecutionId,
    },
}

impl How {
    fn of(started: &StepStarted) -> Self {
        match (started.until, started.child) {
            (Some(until), _) => Self::Sleeping { until },
            (None, Some(child)) => Self::Executing { child },
            (None, None) => Self::Calling,
        }
    }
}

impl Step {
    pub(super) fn new(unmet: usize) -> Self {
        Self {
            state: StepState::Pending,
            attempts: 0,
            failures: 0,
            interruptions: 0,
            started_at: None,
            finished_at: None,
            spent: Spent::default(),
            parameters: None,
            warnings: Vec::new(),
            is_approved: false,
            is_reused: false,
            progress: None,
            child: None,
            items: None,
            undo: None,
            unmet,
            is_doomed: false,
        }
    }

    /// Returns the number of the next attempt.
    pub fn next_attempt(&self) -> Attempt {
        Attempt::after(self.attempts)
    }

    /// Returns what it returned, if it succeeded.
    pub fn output(&self) -> Option<&Value> {
        match &self.state {
            StepState::Succeeded(output) => Some(output),
            _ => None,
        }
    }

    /// Returns whether something of what it did was undone, or is about to be.
    pub fn has_undo(&self) -> bool {
        let items = self.items.iter().flat_map(|it| it.all());
        self.undo.is_some() || items.into_iter().any(|it| it.undo.is_some())
    }

    /// Returns whether what it did was undone.
    pub fn is_compensated(&self) -> bool {
        let is_undone = |it: &Step| matches!(&it.undo, Some(undo) if undo.output().is_some());
        match &self.items {
            // Of a list all that was done is undone.
            Some(items) => {
                let mut done = items.all().iter().filter(|it| it.output().is_some()).peekable();
                done.peek().is_some() && done.all(is_undone)
            }
            None => is_undone(self),
        }
    }

    /// Keeps what an event says beside the change of state.
    pub(super) fn note(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::StepStarted(StepStarted {
                attempt, parameters, warnings, items, child, ..
            }) => {
                self.attempts = attempt.get();
                self.started_at.get_or_insert(at);
                self.warnings.clone_from(warnings);
                self.child = *child;
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
            // What was not called took nobody down.
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
            Event::StepCancelled { .. } if self.started_at.is_some() => {
                self.finished_at = Some(at);
            }
            _ => (),
        }
    }
}

impl StepState {
    /// Returns whether nothing more happens to the step.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Succeeded(_) | Self::Failed(_) | Self::Skipped(_) | Self::Cancelled)
    }

    /// Returns the word for the state.
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

    /// The transition table. Anything not in it cannot happen.
    ///
    /// `gathered` makes the list that the items of the step have returned.
    pub(super) fn next(
        &self,
        event: &Event,
        gathered: impl FnOnce() -> Option<Arc<Value>>,
    ) -> Option<Self> {
        Some(match (self, event) {
            (Self::Pending, Event::StepStarted(started)) if started.items.is_some() => {
                Self::Gathering { attempt: started.attempt }
            }
            (Self::Gathering { attempt }, event) => {
                return Self::after_items(*attempt, event, gathered);
            }
            (Self::Pending, Event::StepChecked { .. }) => Self::Pending,
            (Self::Running { attempt, how }, Event::StepProgress { attempt: of, .. })
                if attempt == of =>
            {
                Self::Running { attempt: *attempt, how: *how }
            }
            (Self::Pending | Self::Retrying { .. }, Event::StepStarted(started)) => {
                if !self.may_begin(started.attempt) {
                    return None;
                }
                Self::Running { attempt: started.attempt, how: How::of(started) }
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

    fn may_begin(&self, attempt: Attempt) -> bool {
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
        gathered: impl FnOnce() -> Option<Arc<Value>>,
    ) -> Option<Self> {
        // A step is over after the last of its items.
        let gathered = gathered()?;
        Some(match event {
            Event::StepSucceeded { attempt: of, output: None, .. } if *of == attempt => {
                Self::Succeeded(gathered)
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
            (_, Event::StepFailed { error, .. }) => Self::Failed(error.clone()),
            (_, Event::StepSkipped { reason, .. }) => Self::Skipped(*reason),
            (_, Event::StepCancelled { .. }) => Self::Cancelled,
            _ => return None,
        })
    }
}
