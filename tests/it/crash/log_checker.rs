//! The rules that the logs and the ledger must obey after the run.

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

use super::workspace::LedgerEntry;

const MIN_PARAMETER_BYTES: usize = r#"{"n":0,"seconds":0.0}"#.len();

#[derive(Debug, Default)]
pub(super) struct LogCounts {
    pub(super) executions: usize,
    pub(super) steps: usize,
    pub(super) calls: usize,
    /// Claims of executions after their first claim, without renewed claims.
    pub(super) takeovers: usize,
    pub(super) interruptions: usize,
    /// Steps that failed because their outcome is unknown.
    pub(super) unknown_outcomes: usize,
    pub(super) violations: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct StoredExecution {
    pub(super) id: ExecutionId,
    pub(super) plan: Arc<Plan>,
    pub(super) log: Vec<RecordedEvent>,
}

#[derive(Debug, Default)]
struct StepHistory {
    starts: u32,
    is_running: bool,
    was_lost: bool,
    interruptions: u32,
}

pub(super) fn check_run(
    stored_executions: &[StoredExecution],
    ledger: &[LedgerEntry],
) -> LogCounts {
    let mut figures = LogCounts { calls: ledger.len(), ..LogCounts::default() };
    let mut calls: BTreeMap<&str, Vec<&LedgerEntry>> = BTreeMap::new();
    for line in ledger {
        if line.bytes < MIN_PARAMETER_BYTES {
            figures.violations.push(format!("called without its parameters: {line:?}"));
        }
        calls.entry(&line.key).or_default().push(line);
    }
    for execution in stored_executions {
        figures.check_execution(execution, &mut calls);
    }
    for key in calls.keys() {
        figures.violations.push(format!("`{key}` was called but belongs to no execution"));
    }
    figures
}

impl LogCounts {
    fn check_execution(
        &mut self,
        stored_execution: &StoredExecution,
        calls: &mut BTreeMap<&str, Vec<&LedgerEntry>>,
    ) {
        let StoredExecution { id, plan, log } = stored_execution;
        let end = match Execution::replay(*id, Arc::clone(plan), log) {
            Ok(end) => end,
            Err(err) => return self.violations.push(format!("{id} cannot be replayed: {err}")),
        };
        self.executions += 1;
        let claims = log
            .iter()
            .filter(|recorded| matches!(&recorded.event, Event::Claimed(claim) if !claim.renewed))
            .count();
        self.takeovers += claims.saturating_sub(1);
        let mut must_fail = false;
        let has_failed = end.phase() == Phase::Finished(Outcome::Failed);
        for (step, state) in plan.steps().iter().zip(end.steps()) {
            let lines = calls.remove(format!("{id}/{}", step.id).as_str()).unwrap_or_default();
            let history = StepHistory::from_log(step, log);
            self.interruptions += history.interruptions as usize;
            self.steps += usize::from(history.starts > 0);
            if let StepState::Failed(error) = &state.state {
                must_fail |= step.policy.on_error == OnError::Fail;
                self.unknown_outcomes += usize::from(error.code == ErrorCode::OUTCOME_UNKNOWN);
            }
            if step.kind == StepKind::Call
                && let Err(error) = check_step(step, &state.state, &history, &lines, has_failed)
            {
                self.violations.push(format!("{id}/{}: {error}", step.id));
            }
        }
        let outcome = if must_fail { Outcome::Failed } else { Outcome::Completed };
        if end.phase() != Phase::Finished(outcome) {
            self.violations.push(format!("{id} is {:?}, not {outcome:?}", end.phase()));
        }
    }
}

impl StepHistory {
    fn from_log(step: &ToolExecution, log: &[RecordedEvent]) -> Self {
        let mut history = Self::default();
        for RecordedEvent { event, .. } in log {
            if let Event::Claimed(claimed) = event {
                // A renewed claim means that the lease expired but the worker still runs. So its
                // calls continue, and are not lost.
                history.was_lost |= history.is_running && !claimed.renewed;
            }
            if event.step() != Some(&step.id) {
                continue;
            }
            history.is_running = matches!(event, Event::StepStarted(_));
            history.starts += u32::from(history.is_running);
            history.interruptions += u32::from(matches!(event, Event::StepInterrupted { .. }));
        }
        history
    }
}

/// Checks that the ledger has no more calls than the tool's effect allows, and that the log agrees
/// with the ledger.
fn check_step(
    step: &ToolExecution,
    state: &StepState,
    history: &StepHistory,
    lines: &[&LedgerEntry],
    has_failed: bool,
) -> Result<(), String> {
    let fail = |reason: &str| Err(format!("{reason}: {state:?}, {history:?}, {lines:?}"));
    let is_once = step.tool.as_str() == "ledger.once";
    let may_be_unrecorded = step.tool.as_str() == "ledger.read";
    let attempts: BTreeSet<u32> = lines.iter().map(|line| line.attempt).collect();
    if is_once && (lines.len() > 1 || history.starts > 1) {
        return fail("called twice");
    }
    if !may_be_unrecorded {
        if attempts.len() != lines.len() {
            return fail("one attempt made two calls");
        }
        if attempts.last().is_some_and(|attempt| *attempt > history.starts) {
            return fail("called before the start was logged");
        }
    }
    match state {
        StepState::Succeeded(output) => {
            if lines.is_empty() {
                return fail("succeeded without a call");
            }
            if is_once && history.was_lost {
                return fail("ended after its worker was lost");
            }
            let expected =
                step.id.as_str().rsplit('-').next().and_then(|number| number.parse().ok());
            if output.get("n").and_then(Value::as_u64) != expected {
                return fail("has another output than its name says");
            }
        }
        StepState::Failed(error) if is_once => {
            if !history.was_lost || error.code != ErrorCode::OUTCOME_UNKNOWN {
                return fail("failed without a reason");
            }
        }
        // The step was interrupted, and not repeated because the execution failed for another
        // reason.
        StepState::Failed(error) => {
            let is_dropped = has_failed && history.interruptions == history.starts;
            if !is_dropped || error.code != ErrorCode::UNAVAILABLE {
                return fail("failed without a reason");
            }
        }
        StepState::Skipped(_) => {
            if history.starts > 0 || !lines.is_empty() && !may_be_unrecorded {
                return fail("skipped after it started");
            }
        }
        _ => return fail("did not finish"),
    }
    Ok(())
}

/// Forges the results of a real run, and fails if the checks find no violation in a forged result.
pub(super) fn assert_forgeries_are_found(
    stored_executions: &[StoredExecution],
    ledger: &[LedgerEntry],
) {
    let expect_violation =
        |stored_executions: &[StoredExecution], ledger: &[LedgerEntry], description: &str| {
            let violations = check_run(stored_executions, ledger).violations;
            assert!(
                violations.iter().any(|violation| violation.contains(description)),
                "the checks do not find `{description}`"
            );
        };
    let once = ledger.iter().find(|line| line.tool == "once").expect("a run calls `once`");
    expect_violation(
        stored_executions,
        &[ledger, std::slice::from_ref(once)].concat(),
        "called twice",
    );
    expect_violation(stored_executions, &[], "succeeded without a call");
    expect_violation(
        stored_executions,
        &[LedgerEntry { bytes: 0, ..once.clone() }],
        "called without its parameters",
    );
    let is_other = |stored_executions: &&StoredExecution| {
        !once.key.starts_with(&stored_executions.id.to_string())
    };
    let others: Vec<StoredExecution> = stored_executions.iter().filter(is_other).cloned().collect();
    expect_violation(&others, ledger, "belongs to no execution");

    let forge = |change: fn(&mut Vec<RecordedEvent>)| {
        let mut forged = stored_executions.to_vec();
        change(&mut forged[0].log);
        forged
    };
    expect_violation(&forge(|log| drop(log.pop())), ledger, ", not ");
    expect_violation(&forge(|log| drop(log.remove(2))), ledger, "cannot be replayed");
    expect_violation(&forge(|log| log.push(log[1].clone())), ledger, "cannot be replayed");

    let mut forged = stored_executions.to_vec();
    for recorded in forged.iter_mut().flat_map(|stored_executions| &mut stored_executions.log) {
        if let Event::StepSucceeded { output, .. } = &mut recorded.event {
            *output = Some(Arc::new(serde_json::json!({ "n": 0 })));
        }
    }
    expect_violation(&forged, ledger, "has another output than its name says");
}
