//! What must hold when all is over: of the log, of what clients were told, and of what tools
//! really did.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use shared::{
    event::Outcome,
    event::{Event, RecordedEvent},
    execution::{Execution, Phase, StepState},
    id::ExecutionId,
    plan::{OnError, Plan, StepKind, ToolExecution},
    tool::ErrorCode,
};

use super::home::Line;

/// The fewest bytes that the parameters of a call can have.
const LEAST_PARAMETERS: usize = r#"{"n":0,"seconds":0.0}"#.len();

/// What happened, all told.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) executions: usize,
    pub(super) steps: usize,
    pub(super) calls: usize,
    /// Claims of an execution that another process had before.
    pub(super) taken_over: usize,
    /// Attempts that a crash cut off and that were repeated.
    pub(super) interrupted: usize,
    /// Steps of which nobody knows whether they had an effect.
    pub(super) unknown: usize,
    pub(super) violations: Vec<String>,
}

/// An execution as the store has it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) id: ExecutionId,
    pub(super) plan: Arc<Plan>,
    pub(super) log: Vec<RecordedEvent>,
}

/// What the log says of one step.
#[derive(Debug, Default)]
struct Course {
    starts: u32,
    is_running: bool,
    was_lost: bool,
    interruptions: u32,
}

/// Judges what the store has, and what tools did, by each other.
pub(super) fn check(kept: &[Kept], ledger: &[Line]) -> Figures {
    let mut figures = Figures { calls: ledger.len(), ..Figures::default() };
    let mut calls: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in ledger {
        if line.bytes < LEAST_PARAMETERS {
            figures.violations.push(format!("called without its parameters: {line:?}"));
        }
        calls.entry(&line.key).or_default().push(line);
    }
    for execution in kept {
        figures.execution(execution, &mut calls);
    }
    for key in calls.keys() {
        figures.violations.push(format!("`{key}` was called and is no step of any execution"));
    }
    figures
}

impl Figures {
    fn execution(&mut self, kept: &Kept, calls: &mut BTreeMap<&str, Vec<&Line>>) {
        let Kept { id, plan, log } = kept;
        let end = match Execution::replay(*id, Arc::clone(plan), log) {
            Ok(end) => end,
            Err(err) => return self.violations.push(format!("{id} cannot be replayed: {err}")),
        };
        self.executions += 1;
        let claims = log
            .iter()
            .filter(|recorded| matches!(&recorded.event, Event::Claimed(claim) if !claim.renewed))
            .count();
        self.taken_over += claims.saturating_sub(1);
        let mut must_fail = false;
        let has_failed = end.phase() == Phase::Finished(Outcome::Failed);
        for (step, state) in plan.steps().iter().zip(end.steps()) {
            let lines = calls.remove(format!("{id}/{}", step.id).as_str()).unwrap_or_default();
            let course = Course::of(step, log);
            self.interrupted += course.interruptions as usize;
            self.steps += usize::from(course.starts > 0);
            if let StepState::Failed(error) = &state.state {
                must_fail |= step.policy.on_error == OnError::Fail;
                self.unknown += usize::from(error.code == ErrorCode::OUTCOME_UNKNOWN);
            }
            if step.kind == StepKind::Call
                && let Err(why) = check_step(step, &state.state, &course, &lines, has_failed)
            {
                self.violations.push(format!("{id}/{}: {why}", step.id));
            }
        }
        let outcome = if must_fail { Outcome::Failed } else { Outcome::Completed };
        if end.phase() != Phase::Finished(outcome) {
            self.violations.push(format!("{id} is {:?}, not {outcome:?}", end.phase()));
        }
    }
}

impl Course {
    fn of(step: &ToolExecution, log: &[RecordedEvent]) -> Self {
        let mut course = Self::default();
        for RecordedEvent { event, .. } in log {
            if let Event::Claimed(claimed) = event {
                // Who only says once more what it has, because its lease ran out, has its calls
                // still.
                course.was_lost |= course.is_running && !claimed.renewed;
            }
            if event.step() != Some(&step.id) {
                continue;
            }
            course.is_running = matches!(event, Event::StepStarted(_));
            course.starts += u32::from(course.is_running);
            course.interruptions += u32::from(matches!(event, Event::StepInterrupted { .. }));
        }
        course
    }
}

/// Checks a step by what its tool is: whether it was called as often as it may be, and whether
/// the log says what came of it.
fn check_step(
    step: &ToolExecution,
    state: &StepState,
    course: &Course,
    lines: &[&Line],
    has_failed: bool,
) -> Result<(), String> {
    let fail = |why: &str| Err(format!("{why}: {state:?}, {course:?}, {lines:?}"));
    let is_once = step.tool.as_str() == "ledger.once";
    let may_be_unrecorded = step.tool.as_str() == "ledger.read";
    let attempts: BTreeSet<u32> = lines.iter().map(|line| line.attempt).collect();
    if is_once && (lines.len() > 1 || course.starts > 1) {
        return fail("called twice");
    }
    if !may_be_unrecorded {
        if attempts.len() != lines.len() {
            return fail("one attempt, two calls");
        }
        if attempts.last().is_some_and(|attempt| *attempt > course.starts) {
            return fail("called before the log said so");
        }
    }
    match state {
        StepState::Succeeded(output) => {
            if lines.is_empty() {
                return fail("succeeded without a call");
            }
            if is_once && course.was_lost {
                return fail("nobody can know how it ended");
            }
            let expected =
                step.id.as_str().rsplit('-').next().and_then(|number| number.parse().ok());
            if output.get("n").and_then(Value::as_u64) != expected {
                return fail("another output than its name says");
            }
        }
        StepState::Failed(error) if is_once => {
            if !course.was_lost || error.code != ErrorCode::OUTCOME_UNKNOWN {
                return fail("failed for no reason");
            }
        }
        // Cut off by a crash, and not repeated because the execution failed of something else.
        StepState::Failed(error) => {
            let is_dropped = has_failed && course.interruptions == course.starts;
            if !is_dropped || error.code != ErrorCode::UNAVAILABLE {
                return fail("failed for no reason");
            }
        }
        StepState::Skipped(_) => {
            if course.starts > 0 || !lines.is_empty() && !may_be_unrecorded {
                return fail("skipped, and was begun");
            }
        }
        _ => return fail("never ends"),
    }
    Ok(())
}

/// Proves that what must not happen would be noticed: forges what really happened, and checks that.
pub(super) fn notices_forgeries(kept: &[Kept], ledger: &[Line]) {
    let notices = |kept: &[Kept], ledger: &[Line], what: &str| {
        let violations = check(kept, ledger).violations;
        assert!(
            violations.iter().any(|violation| violation.contains(what)),
            "nobody notices: {what}"
        );
    };
    let once = ledger.iter().find(|line| line.tool == "once").expect("one of many is");
    notices(kept, &[ledger, std::slice::from_ref(once)].concat(), "called twice");
    notices(kept, &[], "succeeded without a call");
    notices(kept, &[Line { bytes: 0, ..once.clone() }], "called without its parameters");
    let is_other = |kept: &&Kept| !once.key.starts_with(&kept.id.to_string());
    let others: Vec<Kept> = kept.iter().filter(is_other).cloned().collect();
    notices(&others, ledger, "is no step of any execution");

    let forge = |change: fn(&mut Vec<RecordedEvent>)| {
        let mut forged = kept.to_vec();
        change(&mut forged[0].log);
        forged
    };
    notices(&forge(|log| drop(log.pop())), ledger, ", not ");
    notices(&forge(|log| drop(log.remove(2))), ledger, "cannot be replayed");
    notices(&forge(|log| log.push(log[1].clone())), ledger, "cannot be replayed");

    let mut forged = kept.to_vec();
    for recorded in forged.iter_mut().flat_map(|kept| &mut kept.log) {
        if let Event::StepSucceeded { output, .. } = &mut recorded.event {
            *output = Some(Arc::new(serde_json::json!({ "n": 0 })));
        }
    }
    notices(&forged, ledger, "another output than its name says");
}
