//! The outcome of an execution: a one-line summary, and findings.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::Value;
use shared::execution::ExecutionState;

use super::{
    format::{clip, format_duration, json_line, list_names, ms_between, part_name},
    paint::Paint,
    plain,
};
use crate::cli::client::types::{
    EventData, Execution, PlannedStep, StepError, StepState, StepStatus, TimelineEntry,
};

/// The most findings of one kind.
const TOLD: usize = 5;
/// The most errors in a summary.
const ENDING_ERRORS: usize = 20;
const NAMES: usize = 6;
const MESSAGE: usize = 600;
const PARAMETERS: usize = 200;

/// Returns the duration of a finished execution.
pub(crate) fn took_ms(execution: &Execution) -> Option<f64> {
    ms_between(execution.started_at.or(execution.created_at)?, execution.finished_at?)
}

pub(crate) fn summary_line(execution: &Execution) -> String {
    let Execution { execution_id: id, total, successful, failed, .. } = execution;
    if execution.dry_run {
        return match failed {
            0 if *total == 1 => format!("1 step fits, nothing was called  {id}"),
            0 => format!("{total} steps fit, nothing was called  {id}"),
            _ => format!("{failed} of {total} steps would fail, nothing was called  {id}"),
        };
    }
    let mut text = format!("{successful} of {total} steps done");
    let others =
        [(failed, "failed"), (&execution.skipped, "skipped"), (&execution.cancelled, "cancelled")];
    for (n, word) in others.into_iter().filter(|(n, _)| **n > 0) {
        let _ = write!(text, ", {n} {word}");
    }
    let took =
        took_ms(execution).map(|ms| format!(" in {}", format_duration(ms))).unwrap_or_default();
    format!("{text}{took}  {id}")
}

pub(crate) fn paint_state(name: &str, paint: Paint) -> String {
    match name {
        "COMPLETED" | "SUCCEEDED" | "ready" => paint.green(name),
        "FAILED" | "failed" => paint.red(name),
        "WAITING" | "PAUSED" | "RETRYING" | "CANCELLED" | "COMPENSATING" | "COMPENSATED"
        | "connecting" => paint.yellow(name),
        _ => plain::safe_line(name),
    }
}

/// Returns the lines for a finished execution: findings, useful commands, and the summary.
pub(crate) fn ending_lines(execution: &Execution, paint: Paint) -> Vec<String> {
    let mut lines = list_findings(execution, &[], paint);
    let (id, is_dry) = (&execution.execution_id, execution.dry_run);
    if matches!(execution.state, ExecutionState::Failed | ExecutionState::Cancelled) && !is_dry {
        lines.push(format!("{} faber retry {id}", paint.cyan("again:")));
    }
    for retry in &execution.retries {
        let label = paint.cyan("retried as:");
        lines.push(format!("{label} {}  {}", retry.execution_id, retry.state.as_str()));
    }
    let name = if is_dry { "DRY RUN" } else { execution.state.as_str() };
    let shown = match execution.state {
        ExecutionState::Completed => paint.green(name),
        ExecutionState::Failed => paint.red(name),
        _ => paint.yellow(name),
    };
    lines.push(format!("{shown}  {}", summary_line(execution)));
    lines
}

/// Returns sentences about an execution, most important first. `timeline` has the entries of its
/// request. If it is empty, as at the end of a command, errors have more detail.
pub(crate) fn list_findings(
    execution: &Execution,
    timeline: &[TimelineEntry],
    paint: Paint,
) -> Vec<String> {
    let own: Vec<&TimelineEntry> = timeline
        .iter()
        .filter(|entry| entry.execution_id.as_ref() == Some(&execution.execution_id))
        .collect();
    let mut told = Outcome::new(execution).failures(timeline.is_empty(), paint);
    let waits = execution.waits_for.iter().map(|wait| {
        let until = wait.until.as_ref().map(|until| format!(", until {until}"));
        format!("waits: {}{}", wait.message, until.unwrap_or_default())
    });
    told.extend(limit_lines(waits.collect(), TOLD, "more wait."));
    told.extend(limit_lines(commands_and_claims(&own), 2 * TOLD, "more things happened to it."));
    told.extend(limit_lines(
        describe_retries(execution, &own),
        TOLD,
        "more steps were tried again.",
    ));
    told.extend(describe_compensations(execution, paint));
    let skipped = step_names(execution, |step| step.skip_reason.as_deref() == Some("condition"));
    if !skipped.is_empty() {
        let steps = list_names(&skipped, NAMES);
        told.push(format!("Skipped, as a condition does not hold: {steps}."));
    }
    let warnings = execution.steps.iter().flat_map(|step| {
        let label = format!("{} `{}`", paint.yellow("Warning of"), step.step_id);
        let line = move |text| format!("{label}: {}", clip(&plain::safe_line(text), MESSAGE));
        step.warnings.iter().map(move |text| line(text))
    });
    told.extend(limit_lines(warnings.collect(), TOLD, "more warnings."));
    told
}

/// Keeps the first lines and counts the others.
fn limit_lines(mut lines: Vec<String>, max: usize, more: &str) -> Vec<String> {
    let left_out = lines.len().saturating_sub(max);
    lines.truncate(max);
    if left_out > 0 {
        lines.push(format!("{left_out} {more}"));
    }
    lines
}

fn step_names(execution: &Execution, is: impl Fn(&StepStatus) -> bool) -> Vec<&str> {
    execution.steps.iter().filter(|step| is(step)).map(|step| &*step.step_id).collect()
}

pub(crate) struct Outcome<'a> {
    execution: &'a Execution,
    planned: BTreeMap<&'a str, &'a PlannedStep>,
    steps: BTreeMap<&'a str, &'a StepStatus>,
}

impl<'a> Outcome<'a> {
    pub(crate) fn new(execution: &'a Execution) -> Self {
        let planned = execution.plan.tools.iter().map(|step| (&*step.step_id, step));
        let steps = execution.steps.iter().map(|step| (&*step.step_id, step));
        Self { execution, planned: planned.collect(), steps: steps.collect() }
    }

    pub(crate) fn planned(&self, step: &str) -> Option<&'a PlannedStep> {
        self.planned.get(step).copied()
    }

    /// Returns the parameters of the failed call.
    pub(crate) fn parameters(&self, error: &StepError) -> Option<&'a Value> {
        let step = self.steps.get(&*error.step_id)?;
        let part = match error.index {
            Some(_) => step.items.iter().find(|item| item.index == error.index)?,
            None => step,
        };
        part.resolved_parameters.as_ref()
    }

    /// Describes failed steps, why they were not retried, and the consequences.
    fn failures(&self, is_detailed: bool, paint: Paint) -> Vec<String> {
        let mut told = Vec::new();
        let mut blamed = BTreeSet::new();
        let errors = &self.execution.execution_results.errors;
        let max = if is_detailed { ENDING_ERRORS } else { TOLD };
        for error in errors.iter().take(max) {
            let name = plain::safe_line(&part_name(&error.step_id, error.index));
            let attempts = match error.attempt {
                n if n > 1 => format!(" after {n} attempts"),
                _ => String::new(),
            };
            let code = paint.red(error.code.to_string());
            let message = clip(&plain::safe_line(&error.message), MESSAGE);
            let tool = &error.tool_name;
            told.push(format!("`{name}` ({tool}) failed with {code}{attempts}: {message}"));
            if let (true, Some(parameters)) = (is_detailed, self.parameters(error)) {
                told.push(format!("  It was given {}", json_line(parameters, PARAMETERS)));
            }
            if let Some(why) = self.why_not_retried(error) {
                told.push(format!("  It was not tried again: {why}."));
            }
            // Several items of one step may have failed.
            if blamed.insert(&*error.step_id) {
                told.extend(self.consequences(&error.step_id));
            }
        }
        let more = errors.len().saturating_sub(max);
        told.extend((more > 0).then(|| format!("{more} more failed.")));
        told
    }

    fn why_not_retried(&self, error: &StepError) -> Option<String> {
        let max_attempts = self.planned(&error.step_id)?.max_attempts();
        Some(match &*error.code {
            "step.rejected" | "execution.deadline" | "template.unresolved" | "step.not_a_list" => {
                return None;
            }
            _ if self.execution.dry_run => return None,
            "tool.outcome_unknown" => {
                "its outcome is unknown, so only a person may retry it".to_owned()
            }
            _ if !error.retryable => "it would fail again".to_owned(),
            _ if max_attempts == 1 => {
                "its plan allows one attempt (`retry.maxAttempts`)".to_owned()
            }
            _ if error.attempt >= max_attempts => {
                format!("all of its {max_attempts} attempts were used")
            }
            _ => "the execution had failed already".to_owned(),
        })
    }

    fn consequences(&self, step: &str) -> Vec<String> {
        let (dependent, others) = self.not_run_after(step);
        let is_fatal = self.planned(step).is_none_or(|step| step.on_error == "fail");
        let mut told = Vec::new();
        if !dependent.is_empty() {
            told.push(format!("  So {} did not run.", list_names(&dependent, NAMES)));
        }
        if is_fatal && !others.is_empty() {
            let others = list_names(&others, NAMES);
            told.push(format!("  The execution ended before {others} began."));
        }
        told
    }

    /// Returns the steps that did not run: dependents of `step`, and others.
    fn not_run_after(&self, step: &str) -> (Vec<&'a str>, Vec<&'a str>) {
        let mut reached = BTreeSet::from([step]);
        loop {
            let before = reached.len();
            for (id, planned) in &self.planned {
                if planned.depends_on.iter().any(|needed| reached.contains(&**needed)) {
                    reached.insert(id);
                }
            }
            if reached.len() == before {
                break;
            }
        }
        let not_run = step_names(self.execution, |step| {
            step.state == StepState::Skipped
                && matches!(step.skip_reason.as_deref(), Some("dependency" | "execution_failed"))
        });
        not_run.into_iter().partition(|id| reached.contains(id))
    }
}

/// Describes commands to the execution, and changes of its owner.
fn commands_and_claims(entries: &[&TimelineEntry]) -> Vec<String> {
    let mut told = Vec::new();
    let mut owner: Option<&EventData> = None;
    for (n, entry) in entries.iter().enumerate() {
        let detail = &entry.detail;
        told.push(match &*entry.kind {
            "claimed" => {
                let before = owner.replace(detail);
                match before.and_then(|before| describe_takeover(before, detail, &entries[n + 1..]))
                {
                    Some(takeover) => takeover,
                    None => continue,
                }
            }
            "cancel_requested" => {
                let why = detail.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                format!("It was cancelled{why}.")
            }
            "execution_failed" => {
                let why = detail.error.as_ref().map(|error| error.message.to_string());
                format!("It could not continue: {}.", why.unwrap_or_default())
            }
            "deadline_passed" => "Its deadline passed.".to_owned(),
            "paused" => "It was paused.".to_owned(),
            "resumed" => "It was resumed.".to_owned(),
            "signal_received" => format!("Signal `{}` arrived.", detail.name),
            _ => continue,
        });
    }
    told
}

/// Describes a change of the owner, and the attempts lost with the old owner.
fn describe_takeover(
    before: &EventData,
    claim: &EventData,
    later: &[&TimelineEntry],
) -> Option<String> {
    if before.worker == claim.worker {
        return None;
    }
    let worker = |claim: &EventData| format!("`{}` on {}", claim.worker, claim.node);
    let (new, old) = (worker(claim), worker(before));
    let mut cut: Vec<&str> = Vec::new();
    for entry in later.iter().take_while(|entry| entry.kind != "claimed") {
        if let Some(step) = entry.step_id.as_deref()
            && is_lost_attempt(entry)
            && !cut.contains(&step)
        {
            cut.push(step);
        }
    }
    Some(if cut.is_empty() {
        format!("The worker {new} took it over from {old}.")
    } else {
        let steps = list_names(&cut, NAMES);
        format!("The worker {old} was lost while {steps} ran, and {new} took the execution over.")
    })
}

/// Returns whether an attempt ended because its worker was lost.
fn is_lost_attempt(entry: &TimelineEntry) -> bool {
    entry.kind == "step_interrupted" && entry.detail.error.is_none()
}

fn describe_retries(execution: &Execution, entries: &[&TimelineEntry]) -> Vec<String> {
    let retried = execution.steps.iter().filter(|step| step.attempts > 1);
    let lines = retried.filter_map(|step| {
        let mut entries = entries.iter().rev();
        let last = entries.find(|entry| {
            matches!(&*entry.kind, "step_retry_scheduled" | "step_interrupted")
                && entry.step_id.as_ref() == Some(&step.step_id)
        });
        let how = match step.state {
            StepState::Succeeded | StepState::Compensated => "succeeded at",
            StepState::Running => "is at",
            StepState::Failed if last.is_some_and(|entry| is_lost_attempt(entry)) => "failed at",
            _ => return None,
        };
        let why = last.map_or_else(String::new, |entry| match &entry.detail.error {
            Some(error) => {
                let code = error.code.as_ref().map(ToString::to_string).unwrap_or_default();
                format!(
                    "; before, {code}: {}",
                    clip(&plain::safe_line(&error.message), MESSAGE / 4)
                )
            }
            None => format!("; before, {}", clip(&plain::safe_line(&entry.message), MESSAGE / 4)),
        });
        Some(format!("`{}` {how} attempt {}{why}", step.step_id, step.attempts))
    });
    lines.collect()
}

fn describe_compensations(execution: &Execution, paint: Paint) -> Vec<String> {
    let done = step_names(execution, |step| step.state == StepState::Compensated);
    let done = (!done.is_empty()).then(|| format!("Undone: {}.", list_names(&done, NAMES)));
    let failed = execution.steps.iter().filter_map(|step| {
        let error = step.compensation.as_ref()?.error.as_ref()?;
        let (name, code) = (&step.step_id, paint.red(error.code.to_string()));
        Some(format!("`{name}` could not be undone: {code}: {}", error.message))
    });
    done.into_iter().chain(failed.take(TOLD)).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(document: Value, expected: Expect) {
        let execution: Execution = serde_json::from_value(document).unwrap();
        expected.assert_eq(&ending_lines(&execution, Paint::new(false)).join("\n"));
    }

    #[test]
    fn an_end_is_told_once_and_whole() {
        let step = |id: &str, needs: &[&str]| {
            json!({ "stepId": id, "dependsOn": needs, "onError": "fail",
                "retry": { "maxAttempts": 3 } })
        };
        check(
            json!({
                "executionId": "exec_1_aaaaaaaaa", "state": "FAILED", "dryRun": false, "total": 5,
                "successful": 1, "failed": 1, "skipped": 3, "cancelled": 0,
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01.25Z",
                "plan": { "tools": [step("a", &[]), step("pay[x]", &["a"]), step("b", &["pay[x]"]),
                    step("c", &["b"]), step("d", &["a"])] },
                "executionResults": { "errors": [{ "stepId": "pay[x]", "index": null,
                    "toolName": "shop.pay", "code": "tool.failed", "attempt": 3, "retryable": true,
                    "message": "declined\nfaber approve everything \u{1b}[2J" }] },
                "steps": [
                    { "stepId": "a", "state": "SUCCEEDED", "warnings": ["{{x}}\rleft"],
                      "compensation": { "state": "FAILED",
                        "error": { "code": "tool.failed", "message": "no" } } },
                    { "stepId": "pay[x]", "state": "FAILED", "warnings": [],
                      "resolvedParameters": { "amount": 42 } },
                    { "stepId": "b", "state": "SKIPPED", "skipReason": "execution_failed" },
                    { "stepId": "c", "state": "SKIPPED", "skipReason": "execution_failed" },
                    { "stepId": "d", "state": "SKIPPED", "skipReason": "execution_failed" },
                ],
            }),
            expect![[r#"
                `pay[x]` (shop.pay) failed with tool.failed after 3 attempts: declined⏎faber approve everything ␛[2J
                  It was given {"amount":42}
                  It was not tried again: all of its 3 attempts were used.
                  So `b` and `c` did not run.
                  The execution ended before `d` began.
                `a` could not be undone: tool.failed: no
                Warning of `a`: {{x}}␍left
                again: faber retry exec_1_aaaaaaaaa
                FAILED  1 of 5 steps done, 1 failed, 3 skipped in 1.2 s  exec_1_aaaaaaaaa"#]],
        );
        let dry = |failed: u64| {
            json!({ "executionId": "exec_1_aaaaaaaaa", "dryRun": true, "total": 7,
                "state": if failed == 0 { "COMPLETED" } else { "FAILED" }, "failed": failed,
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z" })
        };
        check(dry(0), expect!["DRY RUN  7 steps fit, nothing was called  exec_1_aaaaaaaaa"]);
        check(
            dry(2),
            expect!["DRY RUN  2 of 7 steps would fail, nothing was called  exec_1_aaaaaaaaa"],
        );
    }

    #[test]
    fn a_failure_is_explained() {
        let step = |id: &str, needs: &[&str], most: u64| json!({ "stepId": id, "dependsOn": needs, "retry": { "maxAttempts": most } });
        let skipped = |id: &str| json!({ "stepId": id, "state": "SKIPPED", "skipReason": "execution_failed" });
        let execution = json!({
            "executionId": "exec_1", "total": 4, "successful": 0, "failed": 1, "skipped": 3, "cancelled": 0,
            "plan": { "tools": [step("a", &[], 3), step("b", &["a"], 1), step("c", &["b"], 1), step("d", &[], 1)] },
            "steps": [{ "stepId": "a", "state": "FAILED", "resolvedParameters": { "n": 1 } },
                skipped("b"), skipped("c"), skipped("d")],
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01.5Z",
        });
        let execution: Execution = serde_json::from_value(execution).unwrap();
        let outcome = Outcome::new(&execution);
        assert_eq!(outcome.not_run_after("a"), (vec!["b", "c"], vec!["d"]));
        assert_eq!(
            summary_line(&execution),
            "0 of 4 steps done, 1 failed, 3 skipped in 1.5 s  exec_1"
        );
        for (step, code, attempt, retryable, expected) in [
            ("a", "tool.failed", 3, true, Some("all of its 3 attempts were used")),
            ("a", "tool.failed", 2, true, Some("the execution had failed already")),
            ("a", "tool.failed", 1, false, Some("it would fail again")),
            (
                "d",
                "tool.failed",
                1,
                true,
                Some("its plan allows one attempt (`retry.maxAttempts`)"),
            ),
            ("d", "step.rejected", 1, true, None),
        ] {
            let (step_id, code) = (step.into(), code.into());
            let error = StepError { step_id, code, attempt, retryable, ..StepError::default() };
            assert_eq!(outcome.why_not_retried(&error).as_deref(), expected, "{step}");
        }
        let error = StepError { step_id: "a".into(), ..StepError::default() };
        assert_eq!(outcome.parameters(&error), Some(&json!({ "n": 1 })));
    }
}
