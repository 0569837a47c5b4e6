//! Findings that do not stop the execution.

use chrono::TimeDelta;
use executor::machine::OTHER_PARAMETERS_WARNING;
use shared::{
    diagnostic::Severity,
    execution::{Step, StepState},
    id::Task,
    tool::ErrorCode,
};

use super::{
    cause_line::find_cause_line,
    failures::find_missing_inputs,
    finding::{Candidates, Finding, FindingKind},
    remedy::Remedy,
    view::{View, describe_time},
};

pub(super) fn add_warnings<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    if let Some((occurrence, ahead_ms)) = view.execution.history().shortened {
        candidates.add(Severity::Warning, Some(occurrence), move || {
            let ahead = i64::try_from(ahead_ms).ok().and_then(TimeDelta::try_milliseconds);
            let ahead = describe_time(ahead.unwrap_or(TimeDelta::MAX));
            let message = format!(
                "a clock was {ahead} ahead, so the waits that it recorded and the deadline were \
                 started again with their full length"
            );
            Finding::new(FindingKind::Warning, Severity::Warning, "waits_shortened", message)
        });
    }
    for (task, step) in view.list_calls() {
        for text in valid_warnings(step) {
            candidates.add(Severity::Warning, step.changed, move || {
                let message = format!("{}: {text}", view.step_name(task));
                let (code, remedies) = if text == OTHER_PARAMETERS_WARNING {
                    ("warning.idempotency_key", Vec::new())
                } else {
                    ("warning.template", template_remedies(view, task))
                };
                Finding::new(FindingKind::Warning, Severity::Warning, code, message)
                    .about_step(&view.planned_step(task).id, task.part.item)
                    .with_remedies(remedies)
            });
        }
        if step.attempts > 1 && matches!(step.state, StepState::Succeeded(_)) && !step.is_reused {
            candidates
                .add(Severity::Info, step.changed, move || describe_attempts(view, task, step));
        }
    }
}

fn template_remedies(view: &View<'_>, task: Task) -> Vec<Remedy> {
    let missing = find_missing_inputs(view, task);
    let can_give = !missing.is_empty() && view.execution.parent().is_none();
    let input = can_give.then(|| Remedy::give_input(view.execution, &missing));
    input.into_iter().chain([Remedy::revise(view.execution)]).collect()
}

/// Returns the recorded warnings of a step that are still true. They say that the tool got the text
/// of a template, which is false if the template failed the step.
pub fn valid_warnings(step: &Step) -> &[String] {
    match &step.state {
        StepState::Failed(error) if error.code == ErrorCode::UNRESOLVED => &[],
        _ => &step.warnings,
    }
}

fn describe_attempts(view: &View<'_>, task: Task, step: &Step) -> Finding {
    let before = match &step.last_error {
        Some(error) => format!("{}: {}", error.code, find_cause_line(&error.message)),
        None => "its worker was lost".to_owned(),
    };
    let message = format!(
        "{} succeeded at attempt {}; before, {before}",
        view.step_name(task),
        step.attempts
    );
    Finding::new(FindingKind::Warning, Severity::Info, "retried", message)
        .about_step(&view.planned_step(task).id, task.part.item)
}
