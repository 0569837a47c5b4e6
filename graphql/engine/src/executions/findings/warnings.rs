//! Findings that do not stop the execution.

use chrono::TimeDelta;
use shared::{
    diagnostic::Severity,
    execution::{Step, StepState},
    id::Task,
    tool::ErrorCode,
};

use super::{
    cause_line::cause_line,
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
                Finding::new(FindingKind::Warning, Severity::Warning, "warning.template", message)
                    .of_step(&view.planned(task).id, task.part.item)
                    .helped_by([Remedy::revise(view.execution)])
            });
        }
        if step.attempts > 1 && matches!(step.state, StepState::Succeeded(_)) && !step.is_reused {
            found.add(Severity::Info, step.changed, move || describe_attempts(view, task, step));
        }
    }
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
