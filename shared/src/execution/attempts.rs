//! The attempts of an execution, as its log describes them. Log lines, metrics and traces read
//! attempts from here, so that they agree with each other and with the log.

use std::time::Duration;

use foldhash::fast::RandomState;
use indexmap::IndexMap;

use super::{AttemptKind, Execution, Step, StepState, Takeover};
use crate::{
    clock::Timestamp,
    event::{Claimed, Event, RecordedEvent, StepStarted, WaitReason},
    id::{Attempt, ExecutionId, Part, StepNumber, Task},
    plan::Plan,
    tool::ToolError,
};

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptOutcome {
    /// The attempt returned a new result.
    Succeeded,
    /// An earlier call with the same parameters returned the result.
    Cached,
    /// The attempt failed, and another attempt follows.
    Retried,
    /// The step failed.
    Failed,
    /// The attempt's worker was lost, or its tool disappeared before the call.
    Interrupted,
    /// The attempt failed, and a person decides what follows.
    Undecided,
    /// The attempt was stopped.
    Cancelled,
}

impl AttemptOutcome {
    /// All outcomes, in the sequence of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Succeeded,
        Self::Cached,
        Self::Retried,
        Self::Failed,
        Self::Interrupted,
        Self::Undecided,
        Self::Cancelled,
    ];

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

#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq)]
pub struct EndedAttempt {
    pub task: Task,
    pub attempt: Attempt,
    /// `None` if the step failed before its tool was called.
    pub started_at: Option<Timestamp>,
    /// If the worker was lost during the attempt, the time of its last event.
    pub ended_at: Timestamp,
    /// The worker was lost during the attempt, so nobody knows how long the call ran.
    pub is_worker_lost: bool,
    pub outcome: AttemptOutcome,
    pub error: Option<ToolError>,
    /// The child execution, if the step executes a plan.
    pub child: Option<ExecutionId>,
    /// The claim of the worker that started the attempt.
    pub claim: Option<Claimed>,
}

#[derive(Clone, Debug)]
struct RunningAttempt {
    attempt: Attempt,
    claim: Option<Claimed>,
    started_at: Timestamp,
    child: Option<ExecutionId>,
    /// A sleep, a child execution, a list and a wait for a signal continue without a worker.
    needs_worker: bool,
    /// The last event of the worker that was lost during the attempt.
    lost_at: Option<Timestamp>,
}

/// Follows the events of one execution, and finds the attempts that end.
#[derive(Clone, Debug, Default)]
pub struct AttemptTracker {
    running_attempts: IndexMap<Task, RunningAttempt, RandomState>,
    owner: Option<Claimed>,
    last_event_at: Option<Timestamp>,
}

impl AttemptTracker {
    /// Returns a tracker that continues after the events of `execution`.
    pub fn from_execution(execution: &Execution) -> Self {
        let history = execution.history();
        let mut tracker = Self {
            owner: execution.owner().cloned(),
            last_event_at: history.last.map(|last| last.at),
            ..Self::default()
        };
        for (at, step) in execution.steps().iter().enumerate() {
            tracker.add_running(Task::from(StepNumber::new(at)), step);
        }
        for takeover in &history.takeovers {
            for task in &takeover.interrupted {
                // The task may have started again since.
                let is_interrupted = execution
                    .task(*task)
                    .and_then(|step| step.changed)
                    .is_some_and(|changed| changed.seq < takeover.claim.seq);
                if let Some(running) = tracker.running_attempts.get_mut(task)
                    && is_interrupted
                {
                    mark_lost(running, takeover);
                }
            }
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
        let needs_worker =
            matches!(step.state, StepState::Running { how: AttemptKind::Calling, .. });
        if let (Some(attempt), Some(changed)) = (attempt, step.changed) {
            let started_at = changed.at;
            let claim = self.owner.clone();
            let lost_at = None;
            let running =
                RunningAttempt { attempt, claim, started_at, child, needs_worker, lost_at };
            self.running_attempts.insert(task, running);
        }
        if let Some(undo) = &step.undo {
            self.add_running(task.compensation(), undo);
        }
        for (index, item) in (0..).zip(step.items.iter().flat_map(|items| items.as_slice())) {
            self.add_running(task.for_item(index), item);
        }
    }

    /// Follows the next event. Returns the attempt that the event ends, if there is one.
    pub fn follow_event(&mut self, plan: &Plan, recorded: &RecordedEvent) -> Option<EndedAttempt> {
        let RecordedEvent { at, event, .. } = recorded;
        if let Event::Claimed(claimed) = event {
            self.follow_claim(claimed);
        }
        self.last_event_at = Some(*at);
        let task = Task { step: plan.step_number(event.step()?)?, part: event.part() };
        match event {
            Event::StepStarted(started) => {
                let &StepStarted { attempt, child, until, items, .. } = started;
                let needs_worker = child.is_none() && until.is_none() && items.is_none();
                let (claim, started_at, lost_at) = (self.owner.clone(), *at, None);
                let running =
                    RunningAttempt { attempt, claim, started_at, child, needs_worker, lost_at };
                self.running_attempts.insert(task, running);
                None
            }
            Event::StepWaiting { reason: WaitReason::Signal { .. }, .. } => {
                let running = RunningAttempt {
                    attempt: Attempt::FIRST,
                    claim: self.owner.clone(),
                    started_at: *at,
                    child: None,
                    needs_worker: false,
                    lost_at: None,
                };
                self.running_attempts.insert(task, running);
                None
            }
            event => {
                let (outcome, error) = read_outcome(event)?;
                let running = self.running_attempts.swap_remove(&task);
                if running.is_none() && outcome != AttemptOutcome::Failed {
                    return None;
                }
                let known = running.as_ref();
                let lost_at = known.and_then(|running| running.lost_at);
                Some(EndedAttempt {
                    task,
                    attempt: known.map(|running| running.attempt).or_else(|| event.attempt())?,
                    started_at: known.map(|running| running.started_at),
                    ended_at: lost_at.unwrap_or(*at),
                    is_worker_lost: lost_at.is_some(),
                    outcome,
                    error: error.cloned(),
                    child: known.and_then(|running| running.child),
                    claim: running.and_then(|running| running.claim),
                })
            }
        }
    }

    /// Marks the calls of a worker that another worker replaces.
    fn follow_claim(&mut self, claimed: &Claimed) {
        let before = self.owner.replace(claimed.clone());
        if before.is_none_or(|before| before.worker == claimed.worker) {
            return;
        }
        for running in self.running_attempts.values_mut().filter(|running| running.needs_worker) {
            running.lost_at = running.lost_at.or(self.last_event_at);
        }
    }
}

impl EndedAttempt {
    /// Returns the duration of the call. Returns `None` if there was no call, or if the worker was
    /// lost during the call, because the lost worker recorded no end.
    ///
    /// The duration is zero if the clock of another machine was ahead.
    pub fn duration(&self) -> Option<Duration> {
        let started_at = self.started_at.filter(|_| !self.is_worker_lost)?;
        Some((self.ended_at - started_at).to_std().unwrap_or_default())
    }

    /// Returns `true` if this is the attempt of a whole step with `forEach`. The items of such a
    /// step have attempts of their own.
    pub fn is_list(&self, plan: &Plan) -> bool {
        self.task.part == Part::WHOLE && plan.step(self.task.step).for_each.is_some()
    }
}

fn mark_lost(running: &mut RunningAttempt, takeover: &Takeover) {
    if running.lost_at.is_none() {
        running.lost_at = Some(takeover.lost_at);
        running.claim = Some(takeover.lost.clone());
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        event::decode_events,
        id::Seq,
        trace::{attempt_span, root_span},
    };

    const LOG: &str = r#"[
        {"at":1000000,"type":"created","plan":"plan_1_aaaaaaaaa","request":"req_1_aaaaaaaaa","options":{}},
        {"at":1000000,"type":"claimed","worker":"work_1_aaaaaaaaa","node":"a","epoch":1},
        {"at":2000000,"type":"step_started","step":"one","attempt":1,"parameters":{}},
        {"at":3000000,"type":"step_retry_scheduled","step":"one","attempt":1,
         "error":{"code":"tool.failed","message":"no","retryable":true},"until":3000000},
        {"at":4000000,"type":"step_started","step":"one","attempt":2,"parameters":{}},
        {"at":4200000,"type":"step_progress","step":"one","attempt":2,"progress":{"progress":1}},
        {"at":9000000,"type":"claimed","worker":"work_2_bbbbbbbbb","node":"b","epoch":2},
        {"at":9000000,"type":"step_interrupted","step":"one","attempt":2},
        {"at":9500000,"type":"step_started","step":"one","attempt":3,"parameters":{}},
        {"at":9900000,"type":"step_succeeded","step":"one","attempt":3,"output":[7]},
        {"at":9900000,"type":"step_started","step":"each","attempt":1,"parameters":{},"items":1},
        {"at":9910000,"type":"step_started","step":"each","part":{"item":0},"attempt":1,"parameters":{}},
        {"at":9950000,"type":"step_succeeded","step":"each","part":{"item":0},"attempt":1,"output":1},
        {"at":9950000,"type":"step_succeeded","step":"each","attempt":1},
        {"at":9990000,"type":"finished","outcome":"completed"}
    ]"#;

    fn plan() -> Arc<Plan> {
        let plan = json!({
            "about": {
                "id": "plan_1_aaaaaaaaa", "request": "req_1_aaaaaaaaa", "version": 1, "query": "q",
                "planner": "explicit", "created_at": 0,
            },
            "steps": [
                { "id": "one", "tool": "set.one", "parameters": {}, "policy": {} },
                { "id": "each", "tool": "set.each", "parameters": {}, "policy": {},
                  "depends_on": ["one"], "for_each": "{{one}}" },
            ],
        });
        Arc::new(Plan::from_json(&plan.to_string()).unwrap())
    }

    fn describe(ended: &EndedAttempt) -> String {
        let in_span = ended.started_at.map(|at| (ended.ended_at - at).num_milliseconds());
        let known = ended.duration().map(|duration| duration.as_millis());
        let (item, outcome) = (ended.task.part.item, ended.outcome.as_str());
        let (step, attempt) = (ended.task.step.get(), ended.attempt);
        let node = ended.claim.as_ref().map(|claim| &*claim.node).unwrap_or_default();
        format!("{step} {item:?} {attempt} {outcome} {in_span:?} {known:?} {node}")
    }

    #[test]
    fn attempts_are_found_at_every_position_of_a_log() {
        let (plan, log) = (plan(), decode_events(Seq(1), LOG).unwrap());
        let id: ExecutionId = "exec_1_aaaaaaaaa".parse().unwrap();
        let expected = [
            "0 None 1 retried Some(1000) Some(1000) a",
            "0 None 2 interrupted Some(200) None a",
            "0 None 3 succeeded Some(400) Some(400) b",
            "1 Some(0) 1 succeeded Some(40) Some(40) b",
            "1 None 1 succeeded Some(50) Some(50) b",
        ];
        // A tracker that begins in the middle finds the same attempts as a tracker that saw the
        // whole log.
        for start in 1..log.len() {
            let (before, after) = log.split_at(start);
            let execution = Execution::replay(id, Arc::clone(&plan), before).unwrap();
            let mut whole = AttemptTracker::default();
            let mut found: Vec<_> =
                before.iter().filter_map(|event| whole.follow_event(&plan, event)).collect();
            let mut rest = AttemptTracker::from_execution(&execution);
            found.extend(after.iter().filter_map(|event| rest.follow_event(&plan, event)));
            let found: Vec<String> = found.iter().map(describe).collect();
            assert_eq!(found, expected, "{start}");
        }
    }

    #[test]
    fn the_spans_of_a_log_form_one_tree() {
        let (plan, log) = (plan(), decode_events(Seq(1), LOG).unwrap());
        let id: ExecutionId = "exec_1_aaaaaaaaa".parse().unwrap();
        let execution = Execution::replay(id, Arc::clone(&plan), &log).unwrap();
        let mut tracker = AttemptTracker::default();
        let ended = log.iter().filter_map(|event| tracker.follow_event(&plan, event));
        let spans: Vec<_> =
            ended.filter_map(|ended| attempt_span(&execution, &ended, true)).collect();
        let root = root_span(&execution, true);
        let list = &spans[4];
        let parents: Vec<_> = spans.iter().map(|span| span.parent.unwrap()).collect();
        let under_root = root.context.span;
        assert_eq!(parents, [under_root, under_root, under_root, list.context.span, under_root]);
        let mut ids: Vec<_> = spans.iter().map(|span| span.context.span).collect();
        ids.extend([root.context.span]);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 6, "each attempt has an id of its own");
        assert_eq!((root.parent, root.events[0].name), (None, "taken_over"));
        assert_eq!(root.context.trace, execution.trace_id());
        assert_eq!(spans[0].error.as_deref(), Some("tool.failed"));
        let lost_at = log.iter().find(|event| event.event.kind() == "step_progress").unwrap().at;
        assert_eq!(spans[1].ended_at, lost_at);
    }
}
