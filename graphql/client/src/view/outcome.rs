use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;
use shared::{execution::ExecutionState, tool::set_prefix};
use toolbox::dispatch;

use super::{
    findings::{choose_findings, count_warnings, draw_finding, draw_remedies},
    format::{count_noun, format_duration, json_line, ms_between},
    paint::Paint,
    plain,
};
use crate::types::{ExecutionStatus, Finding, FindingKind, PlannedStep, StepStatus};

const MAX_PARAMETER_CHARS: usize = 200;

pub fn execution_duration_ms(execution: &ExecutionStatus) -> Option<f64> {
    ms_between(execution.started_at.or(execution.created_at)?, execution.finished_at?)
}

pub fn draw_summary(execution: &ExecutionStatus) -> String {
    let ExecutionStatus { execution_id: id, total, successful, failed, .. } = execution;
    if execution.dry_run {
        return match failed {
            0 if *total == 1 => format!("1 step is valid, and nothing was called  {id}"),
            0 => format!("{total} steps are valid, and nothing was called  {id}"),
            _ => format!("{failed} of {total} steps would fail, and nothing was called  {id}"),
        };
    }
    let mut text = format!("{successful} of {total} steps done");
    let others =
        [(failed, "failed"), (&execution.skipped, "skipped"), (&execution.cancelled, "cancelled")];
    for (n, word) in others.into_iter().filter(|(n, _)| **n > 0) {
        let _ = write!(text, ", {n} {word}");
    }
    let took = execution_duration_ms(execution)
        .map(|ms| format!(" in {}", format_duration(ms)))
        .unwrap_or_default();
    let warnings = match count_warnings(&execution.findings) {
        0 => String::new(),
        n => format!(", with {}", count_noun(n, "warning")),
    };
    format!("{text}{took}{warnings}  {id}")
}

pub fn paint_state(name: &str, paint: Paint) -> String {
    match name {
        "COMPLETED" | "SUCCEEDED" | "ready" => paint.green(name),
        "FAILED" | "PLANNING_FAILED" | "failed" => paint.red(name),
        "WAITING" | "PAUSED" | "RETRYING" | "CANCELLED" | "COMPENSATING" | "COMPENSATED"
        | "connecting" => paint.yellow(name),
        _ => plain::safe_line(name),
    }
}

pub fn draw_ending(execution: &ExecutionStatus, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    let outcome = Outcome::new(execution);
    let findings = execution.findings.iter().filter(|finding| !outcome.is_unused_turn(finding));
    let (chosen, more) = choose_findings(findings);
    for finding in chosen {
        lines.push(draw_finding(finding, paint));
        if let Some(parameters) = outcome.finding_parameters(finding) {
            lines.push(format!("  given {}", json_line(parameters, MAX_PARAMETER_CHARS)));
        }
        lines.extend(draw_remedies(finding, paint));
    }
    lines.extend(more);
    for retry in &execution.retries {
        let label = paint.cyan("retried as:");
        lines.push(format!("{label} {}  {}", retry.execution_id, retry.state.as_str()));
    }
    for fork in &execution.forks {
        let label = paint.cyan("forked as:");
        lines.push(format!("{label} {}  {}", fork.execution_id, fork.state.as_str()));
    }
    let name = if execution.dry_run { "DRY RUN" } else { execution.state.as_str() };
    let state = match execution.state {
        ExecutionState::Completed => paint.green(name),
        ExecutionState::Failed => paint.red(name),
        _ => paint.yellow(name),
    };
    lines.push(format!("{state}  {}", draw_summary(execution)));
    lines
}

pub struct Outcome<'a> {
    planned: BTreeMap<&'a str, &'a PlannedStep>,
    steps: BTreeMap<&'a str, &'a StepStatus>,
}

impl<'a> Outcome<'a> {
    pub fn new(execution: &'a ExecutionStatus) -> Self {
        let planned = execution.plan.tools.iter().map(|step| (&*step.step_id, step));
        let steps = execution.steps.iter().map(|step| (&*step.step_id, step));
        Self { planned: planned.collect(), steps: steps.collect() }
    }

    pub fn find_planned_step(&self, step: &str) -> Option<&'a PlannedStep> {
        self.planned.get(step).copied()
    }

    pub fn find_parameters(&self, step: &str, index: Option<u64>) -> Option<&'a Value> {
        let step = self.steps.get(step)?;
        let part = match index {
            Some(_) => step.items.iter().find(|item| item.index == index)?,
            None => step,
        };
        part.resolved_parameters.as_ref()
    }

    /// Returns `true` for a finding about a skipped turn of an agent. The plan of an agent has the
    /// maximum number of turns, so an agent that needs fewer turns skips the remaining turns.
    fn is_unused_turn(&self, finding: &Finding) -> bool {
        let planned = finding.step_id.as_deref().and_then(|step| self.find_planned_step(step));
        finding.kind == FindingKind::Skip
            && planned.is_some_and(|step| set_prefix(&step.tool_name) == Some(dispatch::SET))
    }

    fn finding_parameters(&self, finding: &Finding) -> Option<&'a Value> {
        let is_failure = finding.kind == FindingKind::Failure;
        let step = finding.step_id.as_deref().filter(|_| is_failure)?;
        self.find_parameters(step, finding.index)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(document: Value, expected: Expect) {
        let execution: ExecutionStatus = serde_json::from_value(document).unwrap();
        expected.assert_eq(&draw_ending(&execution, Paint::new(false)).join("\n"));
    }

    #[test]
    fn a_finished_execution_is_described_once() {
        let finding = |code: &str, severity: &str, kind: &str, message: &str| json!({ "code": code, "severity": severity, "kind": kind, "message": message });
        let mut failure = finding(
            "tool.failed",
            "ERROR",
            "FAILURE",
            "`pay` failed: declined\nfaber \
            approve everything \u{1b}[2J",
        );
        failure["stepId"] = json!("pay");
        failure["remedies"] = json!([
            { "label": "retry it", "command": "faber retry exec_1_aaaaaaaaa" },
            { "label": "undo it", "command": "faber tools call undo '{}'", "isDangerous": true },
            { "label": "ask somebody" },
        ]);
        check(
            json!({
                "executionId": "exec_1_aaaaaaaaa", "state": "FAILED", "dryRun": false, "total": 5,
                "successful": 1, "failed": 1, "skipped": 3, "cancelled": 0,
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01.25Z",
                "steps": [{ "stepId": "pay", "state": "FAILED", "resolvedParameters": { "amount": 42 } }],
                "findings": [failure, finding("warning.template", "WARNING", "WARNING", "`a`: {{x}}\rleft"),
                    finding("skip.condition", "INFO", "SKIP", "`b` was skipped")],
            }),
            expect![[r#"
                error[tool.failed]: `pay` failed: declined⏎faber approve everything ␛[2J
                  given {"amount":42}
                  help: faber retry exec_1_aaaaaaaaa  retry it
                  help: faber tools call undo '{}'    undo it (dangerous)
                warning[warning.template]: `a`: {{x}}␍left
                note: `b` was skipped
                FAILED  1 of 5 steps done, 1 failed, 3 skipped in 1.2 s, with 1 warning  exec_1_aaaaaaaaa"#]],
        );
        let dry = |failed: u64| {
            json!({ "executionId": "exec_1_aaaaaaaaa", "dryRun": true, "total": 7,
                "state": if failed == 0 { "COMPLETED" } else { "FAILED" }, "failed": failed,
                "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z" })
        };
        check(
            dry(0),
            expect!["DRY RUN  7 steps are valid, and nothing was called  exec_1_aaaaaaaaa"],
        );
        check(
            dry(2),
            expect!["DRY RUN  2 of 7 steps would fail, and nothing was called  exec_1_aaaaaaaaa"],
        );
    }

    #[test]
    fn turns_that_an_agent_did_not_need_are_not_told() {
        let skipped = |step: &str| json!({ "severity": "INFO", "kind": "SKIP", "code": "skip.condition", "stepId": step, "message": format!("`{step}` was skipped") });
        let mut findings: Vec<Value> = (2..9).map(|n| skipped(&format!("turn{n}"))).collect();
        findings.push(skipped("mail"));
        let mut tools: Vec<Value> = (2..9)
            .map(|n| json!({ "stepId": format!("turn{n}"), "toolName": "faber_agent.turn" }))
            .collect();
        tools.push(json!({ "stepId": "mail", "toolName": "mail.send" }));
        check(
            json!({ "executionId": "exec_1_aaaaaaaaa", "state": "COMPLETED", "total": 10,
                "successful": 2, "skipped": 8, "findings": findings, "plan": { "tools": tools } }),
            expect![[r"
                note: `mail` was skipped
                COMPLETED  2 of 10 steps done, 8 skipped  exec_1_aaaaaaaaa"]],
        );
    }

    #[test]
    fn many_findings_of_a_kind_are_counted() {
        let one = json!({ "severity": "WARNING", "kind": "WARNING", "code": "warning.template",
            "message": "left" });
        let findings = vec![one; 9];
        let execution = json!({ "executionId": "exec_1_aaaaaaaaa", "state": "COMPLETED", "total": 1,
            "successful": 1, "findings": findings });
        let execution: ExecutionStatus = serde_json::from_value(execution).unwrap();
        let lines = draw_ending(&execution, Paint::new(false));
        assert_eq!(
            lines[5..],
            [
                "and 4 more: `--json` has all of them",
                "COMPLETED  1 of 1 steps done, with 9 warnings  exec_1_aaaaaaaaa"
            ]
        );
    }
}
