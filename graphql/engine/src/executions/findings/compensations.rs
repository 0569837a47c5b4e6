use shared::{
    diagnostic::Severity,
    event::{Outcome, Settled},
    execution::{ExecutionState, Phase, REPLAN, Step, StepState},
    id::Task,
    limits,
    plan::{Compensation, StepKind},
    tool::Effect,
};

use super::{
    cause_line::find_cause_line,
    finding::{Candidates, Finding, FindingKind},
    remedy::Remedy,
    view::{View, list_names},
};

pub(super) fn add_compensations<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    let execution = view.execution;
    add_disabled_compensation(view, candidates);
    let is_undoing = matches!(execution.phase(), Phase::Compensating(_));
    let is_over =
        matches!(execution.phase(), Phase::Finished(Outcome::Failed | Outcome::Cancelled));
    if execution.options().dry_run || !(is_undoing || is_over) {
        return;
    }
    for (task, step) in view.list_steps() {
        let Some(undo) = view.planned_step(task).compensate.as_deref() else {
            if is_over {
                add_step_without_compensation(view, task, step, candidates);
            }
            continue;
        };
        add_undone_step(view, task, step, candidates);
        for (task, call) in undoable_calls(view, task, step) {
            add_failed_compensation(view, task, call, candidates);
            if is_over {
                add_call_not_undone(view, task, call, undo, candidates);
            }
        }
    }
}

fn undoable_calls<'a>(
    view: &View<'a>,
    task: Task,
    step: &'a Step,
) -> impl Iterator<Item = (Task, &'a Step)> + use<'a> {
    let whole = step.items.is_none().then_some((task, step));
    whole.into_iter().chain(view.list_items(task))
}

fn has_been_undone(call: &Step) -> bool {
    call.undo.as_ref().is_some_and(|undo| undo.output().is_some())
}

fn warning_finding(code: &'static str, severity: Severity, message: String) -> Finding {
    Finding::new(FindingKind::Warning, severity, code, message)
}

fn add_disabled_compensation<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    let execution = view.execution;
    let may_fail = execution.state() != ExecutionState::Completed && !execution.options().dry_run;
    let has_undo = execution.plan().steps().iter().any(|step| step.compensate.is_some());
    if let (true, true, Some(reason)) = (may_fail, has_undo, reason_for_disabled(view)) {
        candidates.add(Severity::Info, None, move || {
            let message = format!("a failure undoes nothing, because {reason}");
            warning_finding("compensation.off", Severity::Info, message)
        });
    }
}

/// Returns why compensation is off. Returns `None` if it is on, or if replans are not the reason.
fn reason_for_disabled(view: &View<'_>) -> Option<&'static str> {
    let execution = view.execution;
    let options = execution.options();
    let asks = execution.plan().steps().iter().any(|step| step.tool.as_str() == REPLAN);
    match () {
        () if options.compensate_on_failure => None,
        () if options.replans.after_failure => Some("`replans` requests a replan"),
        () if asks => Some("the plan asks for a replan (`flow.replan`)"),
        () => None,
    }
}

fn add_undone_step<'a>(
    view: &'a View<'a>,
    task: Task,
    step: &'a Step,
    candidates: &mut Candidates<'a>,
) {
    let undone: Vec<(Task, &Step)> =
        undoable_calls(view, task, step).filter(|(_, call)| has_been_undone(call)).collect();
    let last = undone.iter().filter_map(|(_, call)| call.undo.as_ref()?.changed).max();
    if undone.is_empty() {
        return;
    }
    candidates.add(Severity::Info, last, move || {
        let names: Vec<String> = undone.iter().map(|(task, _)| view.step_name(*task)).collect();
        let planned = view.planned_step(task);
        let tool = planned.compensate.as_ref().map(|undo| undo.tool.to_string());
        let message = format!("undone by `{}`: {}", tool.unwrap_or_default(), list_names(&names));
        warning_finding("compensation.undone", Severity::Info, message)
            .about_step(&planned.id, None)
    });
}

fn add_failed_compensation<'a>(
    view: &'a View<'a>,
    task: Task,
    call: &'a Step,
    candidates: &mut Candidates<'a>,
) {
    let Some(undo) = call.undo.as_deref() else { return };
    let StepState::Failed(error) = &undo.state else { return };
    candidates.add(Severity::Error, undo.changed, move || {
        let planned = view.planned_step(task);
        let tool = planned.call_of_part(task.part.compensation()).tool;
        let cause = find_cause_line(&error.message);
        let message = format!(
            "{} could not be undone by `{tool}`: {}: {cause}",
            view.step_name(task),
            error.code
        );
        warning_finding("compensation.failed", Severity::Error, message)
            .about_step(&planned.id, task.part.item)
            .with_remedies(manual_undo_remedy(view, task))
    });
}

fn add_call_not_undone<'a>(
    view: &'a View<'a>,
    task: Task,
    call: &'a Step,
    undo: &'a Compensation,
    candidates: &mut Candidates<'a>,
) {
    let planned = view.planned_step(task);
    match &call.state {
        StepState::Failed(error)
            if error.is_outcome_unknown()
                && call.has_once_call(planned.policy.effect)
                && call.settled() != Some(Settled::Failed) =>
        {
            candidates.add(Severity::Warning, call.changed, move || {
                let name = view.step_name(task);
                let effect = match call.settled() {
                    Some(_) => "took effect",
                    None => "may have taken effect",
                };
                let message =
                    format!("{name} {effect} and is not undone: `{}` undoes it", undo.tool);
                warning_finding("compensation.unknown", Severity::Warning, message)
                    .about_step(&planned.id, task.part.item)
            });
        }
        StepState::Succeeded(_) if call.undo.is_none() => {
            candidates.add(Severity::Warning, call.changed, move || {
                let reason = reason_not_undone(view, call);
                let message = format!("{} was not undone, because {reason}", view.step_name(task));
                warning_finding("compensation.not_undone", Severity::Warning, message)
                    .about_step(&planned.id, task.part.item)
                    .with_remedies(manual_undo_remedy(view, task))
            });
        }
        _ => (),
    }
}

fn reason_not_undone(view: &View<'_>, call: &Step) -> String {
    if !view.execution.options().compensate_on_failure {
        let reason = reason_for_disabled(view).unwrap_or("compensation was turned off");
        return reason.to_owned();
    }
    if call.is_reused {
        return "its output was reused from an earlier execution".to_owned();
    }
    "the execution ended before the step could be undone".to_owned()
}

fn manual_undo_remedy(view: &View<'_>, task: Task) -> Option<Remedy> {
    let callee = view.planned_step(task).call_of_part(task.part.compensation());
    let scope = view.execution.template_scope(task.compensation());
    let rendered = callee.template.render(&scope, limits::OUTPUT_BYTES).ok()?;
    Some(Remedy::call_tool(callee.tool, &rendered.value))
}

/// Adds a step with an effect that is not undone, because the plan has no `compensate` for it.
/// People expect that such a step is undone if the execution undoes other steps.
fn add_step_without_compensation<'a>(
    view: &'a View<'a>,
    task: Task,
    step: &'a Step,
    candidates: &mut Candidates<'a>,
) {
    let planned = view.planned_step(task);
    let undoes = view.execution.options().compensate_on_failure
        && view.list_steps().any(|(_, step)| step.has_started_compensation());
    let has_effect =
        planned.policy.effect != Effect::Read && !matches!(planned.kind, StepKind::Plan(_));
    if undoes && has_effect && matches!(step.state, StepState::Succeeded(_)) {
        candidates.add(Severity::Info, step.changed, move || {
            let name = view.step_name(task);
            let message =
                format!("{name} is not undone, because the plan has no `compensate` for it");
            warning_finding("compensation.none", Severity::Info, message)
                .about_step(&planned.id, None)
        });
    }
}
