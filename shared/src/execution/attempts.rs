//! The attempts of an execution, as its log describes them.
//!
//! Log lines, metrics and traces read attempts from the same durable events, so they agree with each
//! other and with the log, also after another worker has taken over.

use std::collections::BTreeMap;

use super::{AttemptKind, Execution, Step, StepState};
use crate::{
    clock::Timestamp,
    event::{Event, RecordedEvent, StepStarted, WaitReason},
    id::{Attempt, ExecutionId, Part, StepNumber, Task},
    plan::Plan,
    tool::ToolError,
};

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptOutcome {
    /// The tool returned a result.
    Succeeded,
    /// An earlier call with the same parameters returned the result.
    Cached,
    /// It failed, and another attempt follows.
    Retried,
    /// The step failed.
    Failed,
    /// Its worker was lost, or its tool disappeared before the call.
    Interrupted,
    /// It failed, and a person decides what follows.
    Undecided,
    /// It was stopped.
    Cancelled,
}

impl AttemptOutcome {
    /// Returns the name in logs, metrics and traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Cached => "cached",
            Self::Retried => "retried",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Undecided => "undecided",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An attempt that has ended.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub struct EndedAttempt {
    pub task: Task,
    pub attempt: Attempt,
    /// `None` if the step failed before its tool was called.
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub outcome: AttemptOutcome,
    pub error: Option<ToolError>,
    /// The execution of a step that executes a plan.
    pub child: Option<ExecutionId>,
}

#[derive(Clone, Copy, Debug)]
struct RunningAttempt {
    attempt: Attempt,
    started_at: Timestamp,
    child: Option<ExecutionId>,
}

/// Follows the events of one execution, and finds the attempts that end.
#[derive(Clone, Debug, Default)]
pub struct AttemptTracker {
    running: BTreeMap<Task, RunningAttempt>,
}

impl AttemptTracker {
    /// Returns a tracker that continues after the events of `execution`.
    pub fn from_execution(execution: &Execution) -> Self {
        let mut tracker = Self::default();
        for (at, step) in execution.steps().iter().enumerate() {
            tracker.add_running(Task::from(StepNumber::new(at)), step);
        }
        tracker
    }

    fn add_running(&mut self, task: Task, step: &Step) {
        let attempt = match &step.state {
            StepState::Running { attempt, .. } | StepState::Gathering { attempt } => Some(*attempt),
            StepState::Waiting(WaitReason::Signal { .. }) => Some(Attempt::FIRST),
            _ => None,
        };
        let child = match step.state {
            StepState::Running { how: AttemptKind::Executing { child }, .. } => Some(child),
            _ => None,
        };
        if let (Some(attempt), Some(changed)) = (attempt, step.changed) {
            let started_at = changed.at;
            self.running.insert(task, RunningAttempt { attempt, started_at, child });
        }
        if let Some(undo) = &step.undo {
            self.add_running(task.compensation(), undo);
        }
        for (index, item) in (0..).zip(step.items.iter().flat_map(|items| items.as_slice())) {
            self.add_running(task.for_item(index), item);
        }
    }

    /// Follows the next event. Returns the attempt that it ends, if it ends one.
    pub fn follow_event(&mut self, plan: &Plan, recorded: &RecordedEvent) -> Option<EndedAttempt> {
        let RecordedEvent { at, event, .. } = recorded;
        let task = Task { step: plan.step_number(event.step()?)?, part: event.part() };
        match event {
            Event::StepStarted(StepStarted { attempt, child, .. }) => {
                self.start_attempt(task, *attempt, *at, *child);
                None
            }
            Event::StepWaiting { reason: WaitReason::Signal { .. }, .. } => {
                self.start_attempt(task, Attempt::FIRST, *at, None);
                None
            }
            event => {
                let (outcome, error) = read_outcome(event)?;
                let running = self.running.remove(&task);
                if running.is_none() && outcome != AttemptOutcome::Failed {
                    return None;
                }
                let attempt = running.map(|running| running.attempt).or_else(|| event.attempt())?;
                Some(EndedAttempt {
                    task,
                    attempt,
                    started_at: running.map(|running| running.started_at),
                    ended_at: *at,
                    outcome,
                    error: error.cloned(),
                    child: running.and_then(|running| running.child),
                })
            }
        }
    }

    fn start_attempt(
        &mut self,
        task: Task,
        attempt: Attempt,
        started_at: Timestamp,
        child: Option<ExecutionId>,
    ) {
        self.running.insert(task, RunningAttempt { attempt, started_at, child });
    }
}

impl EndedAttempt {
    /// Returns `true` for a step with `forEach` as a whole, whose items have attempts of their own.
    pub fn is_list(&self, plan: &Plan) -> bool {
        self.task.part == Part::WHOLE && plan.step(self.task.step).for_each.is_some()
    }
}

fn read_outcome(event: &Event) -> Option<(AttemptOutcome, Option<&ToolError>)> {
    Some(match event {
        Event::StepSucceeded { cached: true, .. } => (AttemptOutcome::Cached, None),
        Event::StepSucceeded { .. } => (AttemptOutcome::Succeeded, None),
        Event::StepRetryScheduled { error, .. } => (AttemptOutcome::Retried, Some(error)),
        Event::StepInterrupted { error, .. } => (AttemptOutcome::Interrupted, error.as_ref()),
        Event::StepFailed { error, .. } => (AttemptOutcome::Failed, Some(error)),
        Event::StepWaiting { reason: WaitReason::Decision { error }, .. } => {
            (AttemptOutcome::Undecided, Some(error))
        }
        Event::StepCancelled { .. } => (AttemptOutcome::Cancelled, None),
        _ => return None,
    })
}
