use executor::machine::missing_input;
use shared::{
    diagnostic::Severity,
    event::{self, Settled},
    execution::{Execution, ExecutionState, Step, StepState},
    id::{ExecutionId, Task, ToolSetName},
    plan::StepKind,
    tool::{ErrorCode, ToolError, set_prefix},
};
use toolbox::ToolLookup;

use super::{
    cause_line::find_cause_line,
    finding::{Candidates, Finding, FindingKind},
    remedy::Remedy,
    view::{View, describe_actor, describe_time, describe_worker, list_names},
};

pub(super) fn add_failures<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    for (task, step) in view.list_steps() {
        if let StepState::Failed(error) = &step.state {
            let severity = failure_severity(view, task);
            candidates
                .add(severity, step.changed, move || describe_failure(view, task, step, error));
        }
        add_failed_items(view, task, candidates);
    }
    add_missed_deadline(view, candidates);
    add_execution_failure(view, candidates);
    add_handovers(view, candidates);
    for takeover in &view.execution.history().takeovers {
        candidates.add(Severity::Info, Some(takeover.claim), move || {
            let (lost, new) = (describe_worker(&takeover.lost), describe_worker(&takeover.new));
            let names: Vec<String> =
                takeover.interrupted.iter().map(|task| view.step_name(*task)).collect();
            let message = format!(
                "the worker {lost} was lost while {} ran, and {new} took the execution over",
                list_names(&names)
            );
            Finding::new(FindingKind::Takeover, Severity::Info, "takeover", message)
        });
    }
}

/// Adds the times without events before another worker continued, because the durations of the steps
/// do not explain them.
fn add_handovers<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    for handover in &view.execution.history().handovers {
        candidates.add(Severity::Info, Some(handover.claim), move || {
            let (before, after) =
                (describe_worker(&handover.before), describe_worker(&handover.after));
            let time = describe_time(handover.claim.at - handover.idle_since);
            let message = format!(
                "no step started for {time}, until {after} took the execution over from {before}"
            );
            Finding::new(FindingKind::Takeover, Severity::Info, "takeover", message)
        });
    }
}

fn failure_severity(view: &View<'_>, task: Task) -> Severity {
    if view.is_fatal(task) { Severity::Error } else { Severity::Warning }
}

/// Adds the failed items of a step whose failures let the execution continue. For any other step,
/// the finding is about the first failed item, so adds only the items that a person can settle.
fn add_failed_items<'a>(view: &'a View<'a>, task: Task, candidates: &mut Candidates<'a>) {
    let is_fatal = view.is_fatal(task);
    let list = view.execution.step(task.step).items.as_deref();
    let first = list.and_then(shared::execution::Items::first_failed);
    for (task, item) in view.list_items(task) {
        let StepState::Failed(error) = &item.state else { continue };
        if !is_fatal || (error.is_outcome_unknown() && task.part.item != first) {
            candidates.add(failure_severity(view, task), item.changed, move || {
                describe_failure(view, task, item, error)
            });
        }
    }
}

fn add_missed_deadline<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    let execution = view.execution;
    let has_code = |step: &Step| matches!(&step.state, StepState::Failed(error) if error.code == ErrorCode::DEADLINE);
    if execution.missed_deadline() && !view.list_steps().any(|(_, step)| has_code(step)) {
        candidates.add(Severity::Error, execution.history().deadline_passed, move || {
            let late =
                view.list_steps().find(|(_, step)| !matches!(step.state, StepState::Succeeded(_)));
            let limit = execution.options().deadline_ms.unwrap_or_default();
            let message = format!("the execution exceeded its deadline of {limit} ms");
            let code = ErrorCode::DEADLINE.to_string();
            let finding = Finding::new(FindingKind::Failure, Severity::Error, code, message)
                .with_remedies(deadline_remedies(view));
            match late {
                Some((task, _)) => finding.about_step(&view.planned_step(task).id, None),
                None => finding,
            }
        });
    }
}

fn add_execution_failure<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    let history = view.execution.history();
    if let Some((occurrence, error)) = &history.failed
        && view.find_first_failure().is_none()
    {
        candidates.add(Severity::Error, Some(*occurrence), move || {
            let message =
                format!("the execution could not continue: {}", find_cause_line(&error.message));
            Finding::new(FindingKind::Failure, Severity::Error, error.code.to_string(), message)
                .with_remedies(can_be_retried(view).then(|| Remedy::revise(view.execution)))
        });
    }
    if let Some((occurrence, reason)) = &history.cancelled {
        candidates.add(Severity::Warning, Some(*occurrence), move || {
            let reason = reason.as_ref().map(|reason| format!(": {}", find_cause_line(reason)));
            let by = describe_actor(history.cancelled_by.as_deref(), *occurrence);
            let message = format!("the execution was cancelled{by}{}", reason.unwrap_or_default());
            let can_retry =
                can_be_retried(view) && view.execution.state() == ExecutionState::Cancelled;
            let retry = can_retry.then(|| Remedy::retry(view.execution));
            let retry = retry.map(|retry| retry.with_label("run the steps that did not run"));
            let code = "execution.cancelled";
            Finding::new(FindingKind::Failure, Severity::Warning, code, message)
                .with_remedies(retry)
        });
    }
}

fn can_be_retried(view: &View<'_>) -> bool {
    view.is_finished() && !view.execution.options().dry_run
}

fn describe_failure(view: &View<'_>, task: Task, step: &Step, error: &ToolError) -> Finding {
    let planned = view.planned_step(task);
    let first_failed = step.items.as_deref().and_then(shared::execution::Items::first_failed);
    let first_failed = first_failed.filter(|_| view.is_fatal(task));
    let shown_task = first_failed.map_or(task, |index| task.for_item(index));
    let failed_step = view.execution.task(shown_task).unwrap_or(step);
    let attempts = match failed_step.attempts {
        0 | 1 => String::new(),
        attempts => format!(" after {attempts} attempts"),
    };
    let mut message = format!("{} failed{attempts}", view.step_name(shown_task));
    let cause = match find_unknown_child_call(view, failed_step, error) {
        // Uses the message of the finding about the child's call, because the error of this step
        // does not show whether a person has settled the call.
        Some(call) => call.message.clone(),
        None => find_cause_line(&error.message),
    };
    if !cause.is_empty() {
        message = format!("{message}: {cause}");
    }
    let more = [count_failed_items(step), reason_not_retried(view, shown_task, failed_step, error)];
    for more in more.into_iter().flatten() {
        message = format!("{message}; {more}");
    }
    let severity = failure_severity(view, task);
    let finding = Finding::new(FindingKind::Failure, severity, error.code.to_string(), message)
        .about_step(&planned.id, shown_task.part.item)
        .with_remedies(failure_remedies(view, shown_task, failed_step, error));
    let child = failed_step.child.filter(|_| matches!(planned.kind, StepKind::Plan(_)));
    Finding { cause_execution: child, ..finding }
}

fn count_failed_items(step: &Step) -> Option<String> {
    let items = step.items.as_deref()?.as_slice();
    let failed = items.iter().filter(|item| matches!(item.state, StepState::Failed(_))).count();
    let done = items.iter().filter(|item| item.output().is_some()).count();
    let total = items.len();
    (total > 1).then(|| format!("of {total} items, {failed} failed and {done} succeeded"))
}

fn reason_not_retried(
    view: &View<'_>,
    task: Task,
    step: &Step,
    error: &ToolError,
) -> Option<String> {
    let planned = view.planned_step(task);
    let allowed = planned.policy.retry.max_attempts;
    let has_own_reason = [
        ErrorCode::REJECTED,
        ErrorCode::DEADLINE,
        ErrorCode::UNRESOLVED,
        ErrorCode::NOT_A_LIST,
        ErrorCode::CANCELLED,
        ErrorCode::INVALID_PARAMETERS,
    ]
    .contains(&error.code);
    let is_plan = matches!(planned.kind, StepKind::Plan(_));
    let is_lost = step.interruptions > 0;
    if has_own_reason
        || view.execution.options().dry_run
        || step.attempts == 0
        || is_plan
        || is_lost
    {
        return None;
    }
    let reason = match () {
        () if step.settlement.is_none() && view.execution.repeats_open_call(task) => {
            "a call of an earlier execution may have taken effect, so a person must decide"
                .to_owned()
        }
        () if step.settlement.is_some() => step.settlement.as_deref().map(describe_settlement)?,
        () if error.is_outcome_unknown() && step.has_once_call(planned.policy.effect) => {
            "a second call could repeat its effect, so a person must decide".to_owned()
        }
        () if !error.retryable => "it was not tried again because it would fail again".to_owned(),
        () if allowed <= 1 => "its plan allows one attempt (`retry.maxAttempts`)".to_owned(),
        () if step.failures + 1 >= allowed => format!("all of its {allowed} attempts were used"),
        () => "it was not tried again because the execution had failed already".to_owned(),
    };
    Some(reason)
}

fn describe_settlement(settlement: &event::Settlement) -> String {
    let note = settlement.comment.as_deref().filter(|comment| !comment.trim().is_empty());
    let note = note.map(|note| format!(" ({})", find_cause_line(note))).unwrap_or_default();
    match settlement.outcome {
        Settled::Succeeded => {
            format!("a person settled it as succeeded{note}, so a retry reuses its output")
        }
        Settled::Failed => {
            format!("a person settled it as failed{note}, so a retry calls it again")
        }
    }
}

fn deadline_remedies(view: &View<'_>) -> Vec<Remedy> {
    if !can_be_retried(view) {
        return Vec::new();
    }
    // The remedy with a new deadline comes first, because a retry has the old deadline and could
    // fail again.
    vec![Remedy::with_deadline(view.execution), Remedy::retry(view.execution)]
}

/// Returns the remedies for a failure, best first. Returns none while the execution still runs,
/// because only a finished execution can be retried.
fn failure_remedies(view: &View<'_>, task: Task, step: &Step, error: &ToolError) -> Vec<Remedy> {
    let (execution, planned) = (view.execution, view.planned_step(task));
    if execution.options().dry_run {
        return plan_remedies(view, task, error);
    }
    if !view.is_finished() {
        return Vec::new();
    }
    let retry = || Remedy::retry(execution);
    if let (StepKind::Plan(_), Some(child)) = (planned.kind, step.child) {
        if let Some(call) = find_unknown_child_call(view, step, error) {
            return unknown_call_remedies(call, Remedy::show_execution(child), retry());
        }
        if error.is_outcome_unknown() {
            let see =
                Remedy::show_execution(child).with_label("settle the call in the child execution");
            let again = retry().with_label("repeat the call, although it may have taken effect");
            return vec![see, again.mark_dangerous()];
        }
        return vec![Remedy::show_execution(child), retry()];
    }
    if step.settled().is_some() {
        return vec![retry()];
    }
    if error.is_outcome_unknown() && step.has_once_call(planned.policy.effect) {
        return settle_remedies(view, task)
            .into_iter()
            .chain([retry()
                .with_label("repeat the call, although it may have taken effect")
                .mark_dangerous()])
            .collect();
    }
    if execution.repeats_open_call(task) {
        let again =
            retry().with_label("repeat the call with the idempotency key of the first call");
        return settle_remedies(view, task).into_iter().chain([again]).collect();
    }
    match error.code.as_str() {
        "tool.inactive" => {
            let set = find_toolset(view, task);
            set.map(|set| Remedy::activate(&set)).into_iter().chain([retry()]).collect()
        }
        "tool.unavailable" if !error.retryable || lacks_tool(view, task) => {
            vec![Remedy::doctor(), retry()]
        }
        "tool.unavailable" => vec![retry(), Remedy::doctor()],
        "execution.deadline" => deadline_remedies(view),
        "step.rejected" => vec![retry().with_label("ask again")],
        "tool.invalid_parameters"
        | "template.unresolved"
        | "step.not_a_list"
        | "tool.output_too_large" => plan_remedies(view, task, error),
        _ if error.retryable || error.code == ErrorCode::CANCELLED => vec![retry()],
        _ => {
            let again = retry().with_label("retry, once the cause is removed");
            vec![Remedy::revise(execution), Remedy::replan(execution), again]
        }
    }
}

/// Returns the finding about the call with an unknown outcome in a child execution, if a step
/// failed because of this call.
fn find_unknown_child_call<'a>(
    view: &View<'a>,
    step: &Step,
    error: &ToolError,
) -> Option<&'a Finding> {
    let child = step.child.filter(|_| error.is_outcome_unknown())?;
    view.node_facts?.children.get(&child)
}

fn unknown_call_remedies(call: &Finding, show_remedy: Remedy, retry: Remedy) -> Vec<Remedy> {
    let settle = call.remedies.iter().filter(|remedy| remedy.is_settlement()).cloned();
    let mut remedies: Vec<Remedy> = settle.collect();
    if remedies.is_empty() {
        return vec![retry, show_remedy];
    }
    let again = retry.with_label("repeat the call, although it may have taken effect");
    remedies.extend([again.mark_dangerous(), show_remedy]);
    remedies
}

pub(in super::super) fn children_with_unknown_call(
    execution: &Execution,
) -> impl Iterator<Item = ExecutionId> {
    let calls = execution.steps().iter().flat_map(|step| {
        let items = step.items.as_deref().map_or(&[][..], shared::execution::Items::as_slice);
        [step].into_iter().chain(items)
    });
    calls.filter_map(|step| match &step.state {
        StepState::Failed(error) if error.is_outcome_unknown() => step.child,
        _ => None,
    })
}

/// Returns the finding about a call with an unknown outcome. Prefers calls that no person has
/// settled.
pub(in super::super) fn find_unknown_call(candidates: Vec<Finding>) -> Option<Finding> {
    let is_unknown = |finding: &Finding| {
        finding.kind == FindingKind::Failure && finding.code == ErrorCode::OUTCOME_UNKNOWN.as_str()
    };
    let mut unknown: Vec<Finding> = candidates.into_iter().filter(is_unknown).collect();
    let open =
        unknown.iter().position(|finding| finding.remedies.iter().any(Remedy::is_settlement));
    (!unknown.is_empty()).then(|| unknown.swap_remove(open.unwrap_or(0)))
}

/// Returns the remedies if the plan or its input is wrong, so that a retry would fail again.
fn plan_remedies(view: &View<'_>, task: Task, error: &ToolError) -> Vec<Remedy> {
    let execution = view.execution;
    let mut remedies = Vec::new();
    if error.code == ErrorCode::UNRESOLVED && execution.parent().is_none() {
        let missing = find_missing_inputs(view, task);
        if !missing.is_empty() {
            remedies.push(Remedy::give_input(execution, &missing));
        }
    }
    remedies.push(Remedy::revise(execution));
    if !execution.options().dry_run {
        remedies.push(Remedy::replan(execution));
    }
    remedies
}

pub(super) fn find_missing_inputs(view: &View<'_>, task: Task) -> Vec<String> {
    let texts = missing_input(view.planned_step(task), view.execution.options());
    let mut names: Vec<String> = Vec::new();
    for text in texts {
        let path = text.trim_start_matches("{{").trim().strip_prefix("input.");
        let name: Option<String> = path.map(|path| {
            path.chars()
                .take_while(|letter| letter.is_alphanumeric() || "_-".contains(*letter))
                .collect()
        });
        names.extend(name.filter(|name| !name.is_empty() && !names.contains(name)));
    }
    names
}

pub(super) fn settle_remedies(view: &View<'_>, task: Task) -> [Remedy; 2] {
    Remedy::settle_either_way(view.execution.id(), &view.planned_step(task).id, task.part)
}

fn find_toolset(view: &View<'_>, task: Task) -> Option<ToolSetName> {
    let tool = view.planned_step(task).call_of_part(task.part).tool;
    set_prefix(tool.as_str())?.parse().ok()
}

fn lacks_tool(view: &View<'_>, task: Task) -> bool {
    let tool = view.planned_step(task).call_of_part(task.part).tool;
    let candidates = view.toolbox().map(|toolbox| toolbox.find(tool));
    matches!(candidates, Some(ToolLookup::Failed { .. } | ToolLookup::Unknown))
}
