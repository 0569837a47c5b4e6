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
    cause_line::cause_line,
    failures::missing_inputs,
    finding::{Candidates, Finding, FindingKind},
    remedy::Remedy,
    view::{View, describe_time},
};

/// Adds shortened waits, the recorded warnings of steps and items, and what succeeded only at a later
/// attempt.
pub(super) fn add_warnings<'a>(view: &'a View<'a>, found: &mut Candidates<'a>) {
    if let Some((occurrence, ahead_ms)) = view.execution.history().shortened {
        found.add(Severity::Warning, Some(occurrence), move || {
            let ahead = i64::try_from(ahead_ms).ok().and_then(TimeDelta::try_milliseconds);
            let ahead = describe_time(ahead.unwrap_or(TimeDelta::MAX));
            let message = format!(
                "a clock was {ahead} ahead, so waits and the deadline were shortened to their own \
                 length"
            );
            Finding::new(FindingKind::Warning, Severity::Warning, "waits_shortened", message)
        });
    }
    for (task, step) in view.calls() {
        for text in warnings_of(step) {
            found.add(Severity::Warning, step.changed, move || {
                let message = format!("{}: {text}", view.name(task));
                let (code, remedies) = if text == OTHER_PARAMETERS_WARNING {
                    ("warning.idempotency_key", Vec::new())
                } else {
                    ("warning.template", template_remedies(view, task))
                };
                Finding::new(FindingKind::Warning, Severity::Warning, code, message)
                    .of_step(&view.planned(task).id, task.part.item)
                    .helped_by(remedies)
            });
        }
        if step.attempts > 1 && matches!(step.state, StepState::Succeeded(_)) && !step.is_reused {
            found.add(Severity::Info, step.changed, move || describe_attempts(view, task, step));
        }
    }
}

fn template_remedies(view: &View<'_>, task: Task) -> Vec<Remedy> {
    let missing = missing_inputs(view, task);
    let can_give = !missing.is_empty() && view.execution.parent().is_none();
    let input = can_give.then(|| Remedy::give_input(view.execution, &missing));
    input.into_iter().chain([Remedy::revise(view.execution)]).collect()
}

/// Returns the recorded warnings of a step that hold.
///
/// A step that failed because its templates have no value did not keep their text, so warnings that
/// say so would contradict its error.
pub fn warnings_of(step: &Step) -> &[String] {
    match &step.state {
        StepState::Failed(error) if error.code == ErrorCode::UNRESOLVED => &[],
        _ => &step.warnings,
    }
}

fn describe_attempts(view: &View<'_>, task: Task, step: &Step) -> Finding {
    let before = match &step.last_error {
        Some(error) => format!("{}: {}", error.code, cause_line(&error.message)),
        None => "its worker was lost".to_owned(),
    };
    let message =
        format!("{} succeeded at attempt {}; before, {before}", view.name(task), step.attempts);
    Finding::new(FindingKind::Warning, Severity::Info, "retried", message)
        .of_step(&view.planned(task).id, task.part.item)
}
