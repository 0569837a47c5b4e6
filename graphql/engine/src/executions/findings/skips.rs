use serde_json::Value;
use shared::{
    diagnostic::Severity,
    event::SkipReason,
    execution::{Occurrence, Step, StepState},
    id::Task,
    plan::OnError,
};

use super::{
    finding::{Candidates, Finding, FindingKind},
    view::View,
};

const MAX_VALUE_CHARS: usize = 60;
const MAX_VALUES: usize = 5;

pub(super) fn add_skips<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    for (task, step) in view.list_steps() {
        if let StepState::Skipped(reason) = &step.state {
            candidates.add(Severity::Info, step.changed, move || {
                describe_skip(view, task, step, *reason)
            });
        }
    }
}

fn describe_skip(view: &View<'_>, task: Task, step: &Step, reason: SkipReason) -> Finding {
    let name = view.step_name(task);
    let (code, message, cause) = match reason {
        SkipReason::Condition => {
            let message = format!("{name} was skipped, because {}", describe_condition(view, task));
            ("skip.condition", message, step.changed)
        }
        SkipReason::Dependency => {
            let (reason, cause) = describe_dependency(view, task);
            ("skip.dependency", format!("{name} did not run, because {reason}"), cause)
        }
        SkipReason::ExecutionFailed => {
            let (reason, cause) = describe_end(view);
            ("skip.execution_failed", format!("{name} did not run, because {reason}"), cause)
        }
        SkipReason::DryRun => {
            let message = format!("{name} can run; a dry run calls nothing");
            ("skip.dry_run", message, step.changed)
        }
    };
    let finding = Finding::new(FindingKind::Skip, Severity::Info, code, message)
        .about_step(&view.planned_step(task).id, None);
    Finding { cause: cause.or(step.changed).map(|event| event.seq), ..finding }
}

fn describe_condition(view: &View<'_>, task: Task) -> String {
    let Some(condition) = &view.planned_step(task).when else {
        return "its condition does not hold".to_owned();
    };
    let execution = view.execution;
    let read = condition.values_read(execution, &execution.options().input);
    let values: Vec<String> =
        read.iter().take(MAX_VALUES).map(|(place, value)| describe_value(place, *value)).collect();
    let source = condition.source();
    match values.as_slice() {
        [] => format!("its condition `{source}` does not hold"),
        values => format!("its condition `{source}` does not hold: {}", values.join(", ")),
    }
}

fn describe_value(place: &str, value: Option<&Value>) -> String {
    let Some(value) = value else { return format!("`{place}` is missing") };
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(MAX_VALUE_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    format!("`{place}` is {text}")
}

/// Follows the dependencies of a skipped step, and describes the first step of this chain that did
/// not succeed.
fn describe_dependency(view: &View<'_>, task: Task) -> (String, Option<Occurrence>) {
    let mut current = task;
    let mut reason = None;
    while let Some(needed) = find_failed_dependency(view, current) {
        let step = view.execution.step(needed.step);
        let outcome = match &step.state {
            StepState::Failed(_) => "failed",
            StepState::Cancelled => "was cancelled",
            _ => "was skipped",
        };
        reason =
            Some((format!("{}, which it needs, {outcome}", view.step_name(needed)), step.changed));
        let is_chain = matches!(step.state, StepState::Skipped(SkipReason::Dependency));
        if !is_chain {
            break;
        }
        current = needed;
    }
    reason.unwrap_or_else(|| ("a step that it needs did not succeed".to_owned(), None))
}

fn find_failed_dependency(view: &View<'_>, task: Task) -> Option<Task> {
    let needed = view.planned_step(task).depends_on.iter().copied().map(Task::from);
    needed.into_iter().find(|needed| match &view.execution.step(needed.step).state {
        StepState::Failed(_) => view.planned_step(*needed).policy.on_error != OnError::Ignore,
        StepState::Skipped(_) | StepState::Cancelled => true,
        _ => false,
    })
}

fn describe_end(view: &View<'_>) -> (String, Option<Occurrence>) {
    let history = view.execution.history();
    if let Some((occurrence, _)) = &history.failed {
        return ("the execution could not continue".to_owned(), Some(*occurrence));
    }
    if let Some(occurrence) = history.deadline_passed
        && view.find_first_failure().is_none_or(|(failure, _)| failure > occurrence)
    {
        return ("the execution's deadline passed first".to_owned(), Some(occurrence));
    }
    match view.find_first_failure() {
        Some((occurrence, task)) => {
            (format!("{} failed first", view.step_name(task)), Some(occurrence))
        }
        None => ("the execution failed first".to_owned(), None),
    }
}
