use std::collections::BTreeSet;

use shared::{
    clock::Timestamp,
    diagnostic::Severity,
    event::WaitReason,
    execution::{AttemptKind, Occurrence, Phase, Step, StepState},
    id::{ExecutionId, Task},
    limits,
    store::Command,
    tool::ToolError,
};
use toolbox::ToolLookup;

use super::{
    cause_line::find_cause_line,
    failures::settle_remedies,
    finding::{Candidates, Finding, FindingKind, MAX_FINDINGS},
    remedy::Remedy,
    view::{
        NodeFacts, Ownership, View, describe_actor, describe_time, describe_worker, list_names,
    },
};

/// Maximum number of tasks that are examined. Further tasks usually wait for the same reasons.
const MAX_TASKS: usize = 1_000;

pub(super) fn add_waits<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    if view.is_finished() {
        return;
    }
    let execution = view.execution;
    if execution.is_paused() {
        let paused = execution.history().paused;
        candidates.add(Severity::Warning, paused, move || {
            let actor = execution.history().paused_by.as_deref();
            let by = paused.map(|paused| describe_actor(actor, paused)).unwrap_or_default();
            wait_finding("wait.paused", Severity::Warning, format!("it was paused{by}"))
                .with_remedies([Remedy::resume(execution.id())])
        });
    }
    let start = execution.options().start_at.filter(|at| *at > view.now);
    match start {
        Some(at) => candidates.add(Severity::Info, None, move || {
            let left = describe_time(at - view.now);
            wait_finding(
                "wait.start",
                Severity::Info,
                format!("it starts in {left}, as `startAt` requests"),
            )
            .with_end(at)
        }),
        None => add_missing_worker(view, candidates),
    }
    for (task, step) in view.list_steps() {
        if let StepState::Gathering { .. } = step.state {
            candidates.add(Severity::Info, step.changed, move || describe_items(view, task, step));
        }
    }
    for task in list_open_tasks(view) {
        if let Some(step) = view.execution.task(task) {
            add_task_wait(view, task, step, candidates);
        }
    }
}

fn wait_finding(code: &'static str, severity: Severity, message: String) -> Finding {
    Finding::new(FindingKind::Wait, severity, code, message)
}

/// Adds a finding if no worker drives the execution. Names the tools that the execution needs and
/// this node lacks.
fn add_missing_worker<'a>(view: &'a View<'a>, candidates: &mut Candidates<'a>) {
    let ownership = view.ownership();
    if !matches!(ownership, Ownership::Free | Ownership::Orphaned) {
        return;
    }
    let missing = list_missing_tools(view);
    let since = view.execution.history().last;
    candidates.add(Severity::Warning, since, move || {
        let id = view.execution.id();
        let finding = wait_finding(
            "wait.worker",
            Severity::Warning,
            describe_missing_worker(view, ownership),
        );
        let doctor = (!missing.is_empty()).then(Remedy::doctor);
        finding.with_remedies([Remedy::start_worker(id)].into_iter().chain(doctor))
    });
    for (tool, reason) in list_missing_tools(view) {
        candidates.add(Severity::Warning, since, move || {
            let message = format!("it needs the tool `{tool}`, which this node lacks: {reason}");
            wait_finding("wait.tool", Severity::Warning, message)
                .with_awaited(tool)
                .with_remedies([Remedy::doctor(), Remedy::start_worker(view.execution.id())])
        });
    }
}

fn list_missing_tools(view: &View<'_>) -> Vec<(String, String)> {
    let Some(toolbox) = view.toolbox() else { return Vec::new() };
    let needed: BTreeSet<_> = view.execution.required_tools().collect();
    let missing = needed.into_iter().filter(|tool| !toolbox.has_all([*tool]));
    let missing = missing.filter_map(|tool| {
        let reason = match toolbox.find(tool) {
            ToolLookup::Failed { set, error } => {
                format!("its toolset `{set}` failed: {}", find_cause_line(&error))
            }
            ToolLookup::Connecting => return None,
            _ => "no toolset of this node contains it".to_owned(),
        };
        Some((tool.to_string(), reason))
    });
    missing.take(MAX_FINDINGS).collect()
}

fn describe_missing_worker(view: &View<'_>, ownership: Ownership) -> String {
    let calls: Vec<Task> = view
        .execution
        .agenda()
        .running()
        .iter()
        .copied()
        .filter(|task| matches!(find_running_kind(view, *task), Some(AttemptKind::Calling)))
        .collect();
    let names: Vec<String> = calls.iter().map(|task| view.step_name(*task)).collect();
    match (ownership, view.execution.owner()) {
        (Ownership::Orphaned, Some(owner)) if names.is_empty() => {
            format!("no worker runs it: the worker {} has stopped", describe_worker(owner))
        }
        (Ownership::Orphaned, Some(owner)) => format!(
            "no worker runs it: the worker {} has stopped while {} ran",
            describe_worker(owner),
            list_names(&names)
        ),
        _ if view.has_workers() => {
            "no worker runs it yet: all workers lack its tools or are busy".to_owned()
        }
        _ => "no worker runs it".to_owned(),
    }
}

fn find_running_kind(view: &View<'_>, task: Task) -> Option<AttemptKind> {
    match view.execution.task(task)?.state {
        StepState::Running { how, .. } => Some(how),
        _ => None,
    }
}

/// Returns the open tasks. Tasks that wait for a person or a signal come first.
fn list_open_tasks(view: &View<'_>) -> Vec<Task> {
    let agenda = view.execution.agenda();
    let mut seen = BTreeSet::new();
    let all = agenda
        .waiting()
        .iter()
        .copied()
        .chain(agenda.retrying().iter().map(|(_, task)| *task))
        .chain(agenda.in_children().iter().copied())
        .chain(agenda.sleeping().iter().map(|(_, task)| *task))
        .chain(agenda.running().iter().copied())
        .chain(agenda.without_permit().iter().copied())
        .chain(agenda.ready().iter().copied());
    all.filter(|task| seen.insert(*task)).take(MAX_TASKS).collect()
}

fn add_task_wait<'a>(
    view: &'a View<'a>,
    task: Task,
    step: &'a Step,
    candidates: &mut Candidates<'a>,
) {
    let has_owner = matches!(view.ownership(), Ownership::Owned | Ownership::Parked);
    let mut add = |severity, render: Box<dyn FnOnce() -> Finding + 'a>| {
        let id = &view.planned_step(task).id;
        candidates.add(severity, step.changed, move || render().about_step(id, task.part.item));
    };
    match &step.state {
        StepState::Waiting(reason) => match find_answer(view, task, reason) {
            Some(answer) => {
                add(Severity::Warning, Box::new(move || answered_finding(view, task, answer)));
            }
            None => add_question(view, task, reason, step.changed, candidates),
        },
        StepState::Retrying { until, error, .. } => {
            let until = *until;
            add(
                Severity::Warning,
                Box::new(move || describe_retry(view, task, until, error.as_ref())),
            );
        }
        StepState::Running { how: AttemptKind::Sleeping { until }, .. } => {
            let until = *until;
            add(
                Severity::Info,
                Box::new(move || {
                    let left = describe_time(until - view.now);
                    let message =
                        format!("{} sleeps for another {left}", format_task_name(view, task));
                    wait_finding("wait.sleep", Severity::Info, message).with_end(until)
                }),
            );
        }
        StepState::Running { how: AttemptKind::Executing { child }, .. } => {
            let child = *child;
            let reason = view.node_facts.and_then(|node_facts| node_facts.children.get(&child));
            let severity = reason.map_or(Severity::Info, |reason| reason.severity);
            add(severity, Box::new(move || describe_child(view, task, child, reason)));
        }
        // Without a worker no call runs, and the finding `wait.worker` names the step.
        StepState::Running { attempt, .. } if has_owner => {
            let attempt = *attempt;
            add(
                Severity::Info,
                Box::new(move || {
                    let tool = view.planned_step(task).call_of_part(task.part).tool;
                    let message = format!(
                        "{} is being called (`{tool}`), attempt {attempt}",
                        format_task_name(view, task)
                    );
                    wait_finding("wait.call", Severity::Info, message)
                }),
            );
        }
        StepState::Pending if view.node_facts.is_some() && can_start(view) => {
            if let Some((key, reason)) = find_limit(view, task) {
                add(
                    Severity::Info,
                    Box::new(move || {
                        let message =
                            format!("{} waits for {reason}", format_task_name(view, task));
                        wait_finding("wait.limit", Severity::Info, message).with_awaited(key)
                    }),
                );
            }
        }
        _ => (),
    }
}

fn can_start(view: &View<'_>) -> bool {
    let execution = view.execution;
    match execution.phase() {
        Phase::Open => !execution.is_paused() && execution.started_at().is_some(),
        Phase::Compensating(_) => true,
        _ => false,
    }
}

fn format_task_name(view: &View<'_>, task: Task) -> String {
    if task.part.undo {
        format!("the undo of {}", view.step_name(task))
    } else {
        view.step_name(task)
    }
}

fn add_question<'a>(
    view: &'a View<'a>,
    task: Task,
    reason: &'a WaitReason,
    since: Option<Occurrence>,
    candidates: &mut Candidates<'a>,
) {
    let severity = match reason {
        WaitReason::Decision { .. } => Severity::Error,
        WaitReason::Approval | WaitReason::Signal { .. } => Severity::Warning,
    };
    candidates.add(severity, since, move || {
        let (id, planned) = (view.execution.id(), view.planned_step(task));
        let finding = match reason {
            WaitReason::Approval => {
                let message = format!(
                    "needs approval of {}, which calls `{}`",
                    view.step_name(task),
                    planned.tool
                );
                let answers =
                    [true, false].map(|is_yes| Remedy::approve(id, &planned.id, task.part, is_yes));
                wait_finding("wait.approval", severity, message).with_remedies(answers)
            }
            WaitReason::Decision { error } => describe_decision(view, task, error),
            WaitReason::Signal { name, until } => {
                let message = format!("{} waits for the signal `{name}`", view.step_name(task));
                let finding = wait_finding("wait.signal", severity, message)
                    .with_awaited(name.clone())
                    .with_remedies([Remedy::signal(id, name)]);
                match until {
                    Some(until) => finding.with_end(*until),
                    None => finding,
                }
            }
        };
        finding.about_step(&planned.id, task.part.item)
    });
}

fn describe_decision(view: &View<'_>, task: Task, error: &ToolError) -> Finding {
    let (id, planned) = (view.execution.id(), view.planned_step(task));
    let cause = find_cause_line(&error.message);
    let message = format!(
        "{} failed with {} and needs a decision: {cause}",
        view.step_name(task),
        error.code
    );
    let again = Remedy::approve(id, &planned.id, task.part, true).with_label("try it again");
    let give_up = Remedy::approve(id, &planned.id, task.part, false).with_label("let it fail");
    let is_once = |step: &Step| step.has_once_call(planned.policy.effect);
    let is_unknown = error.is_outcome_unknown() && view.execution.task(task).is_some_and(is_once);
    let remedies = if is_unknown {
        let again =
            again.with_label("repeat the call, although it may have taken effect").mark_dangerous();
        settle_remedies(view, task).into_iter().chain([again, give_up]).collect()
    } else if error.retryable {
        vec![again, give_up]
    } else {
        vec![again.with_label("try it again, once the cause is removed"), give_up]
    };
    wait_finding("wait.decision", Severity::Error, message).with_remedies(remedies)
}

fn describe_retry(
    view: &View<'_>,
    task: Task,
    until: Timestamp,
    error: Option<&ToolError>,
) -> Finding {
    let step = view.execution.task(task);
    let next = step.map_or(1, |step| step.attempts + 1);
    let allowed = view.planned_step(task).call_of_part(task.part).policy.retry.max_attempts;
    // Attempts that a crash interrupted do not count toward the maximum, so they are added to the
    // shown maximum.
    let lost = step.map_or(0, |step| step.interruptions);
    let of_maximum =
        if allowed > 1 { format!(" of {}", allowed.saturating_add(lost)) } else { String::new() };
    let when = if until <= view.now {
        "is due".to_owned()
    } else {
        format!("begins in {}", describe_time(until - view.now))
    };
    let reason = match error {
        Some(error) => format!("after {}: {}", error.code, find_cause_line(&error.message)),
        None => "because its worker was lost".to_owned(),
    };
    let message =
        format!("{}: attempt {next}{of_maximum} {when}, {reason}", format_task_name(view, task));
    let finding = wait_finding("wait.retry", Severity::Warning, message);
    if until > view.now { finding.with_end(until) } else { finding }
}

fn describe_items(view: &View<'_>, task: Task, step: &Step) -> Finding {
    let items = step.items.as_deref();
    let (done, total) =
        items.map_or((0, 0), |items| (items.finished_count(), items.as_slice().len()));
    let message = format!("{}: {done} of {total} items are finished", view.step_name(task));
    wait_finding("wait.items", Severity::Info, message)
        .about_step(&view.planned_step(task).id, None)
}

fn describe_child(
    view: &View<'_>,
    task: Task,
    child: ExecutionId,
    reason: Option<&Finding>,
) -> Finding {
    let mut message = format!("{} waits for its execution `{child}`", format_task_name(view, task));
    let mut remedies = Vec::new();
    let mut until = None;
    if let Some(reason) = reason {
        message = format!("{message}: {}", reason.message);
        remedies.clone_from(&reason.remedies);
        until = reason.until;
    }
    let is_shown = remedies.iter().any(|remedy| *remedy == Remedy::show_execution(child));
    let look_at = (!is_shown).then(|| Remedy::show_execution(child));
    let finding = wait_finding("wait.child", Severity::Info, message);
    let finding = finding.with_remedies(remedies.into_iter().chain(look_at));
    Finding { cause_execution: Some(child), until, ..finding }
}

/// Returns the most severe reason why an execution waits. Returns `None` if it only waits until its
/// calls end.
pub(in super::super) fn find_reason(candidates: Vec<Finding>) -> Option<Finding> {
    let mut waits = candidates.into_iter().filter(|finding| finding.kind == FindingKind::Wait);
    waits.find(|finding| !["wait.call", "wait.items"].contains(&&*finding.code))
}

fn find_answer(view: &View<'_>, task: Task, reason: &WaitReason) -> Option<&'static str> {
    let NodeFacts { inbox, .. } = view.node_facts?;
    let step = &view.planned_step(task).id;
    inbox.iter().find_map(|sent| match (&sent.command, reason) {
        (
            Command::Approve { step: answered, item, approved, .. },
            WaitReason::Approval | WaitReason::Decision { .. },
        ) if answered == step && (item.is_none() || *item == task.part.item) => {
            Some(if *approved { "was approved" } else { "was rejected" })
        }
        (Command::Settle { step: settled, item, .. }, WaitReason::Decision { .. })
            if settled == step && *item == task.part.item =>
        {
            Some("was settled")
        }
        (Command::Signal { name, .. }, WaitReason::Signal { name: awaited, .. })
            if name == awaited =>
        {
            Some("was sent its signal")
        }
        _ => None,
    })
}

fn answered_finding(view: &View<'_>, task: Task, answer: &str) -> Finding {
    let message = format!("{} {answer}, but no worker has read this yet", view.step_name(task));
    let is_owned = view.ownership() == Ownership::Owned;
    let start = (!is_owned).then(|| Remedy::start_worker(view.execution.id()));
    wait_finding("wait.worker", Severity::Warning, message).with_remedies(start)
}

fn find_limit(view: &View<'_>, task: Task) -> Option<(String, String)> {
    let execution = view.execution;
    let callee = view.planned_step(task).call_of_part(task.part);
    let scope = execution.template_scope(task);
    let parameters = callee.template.render(&scope, limits::OUTPUT_BYTES).ok();
    let parameters = parameters.map(|rendered| rendered.value).unwrap_or_default();
    let keys = view.node_facts?.limits.limits_of_call(callee.tool, &parameters);
    if !keys.is_empty() {
        let keys = keys.into_iter().map(|limit| limit.key).collect::<Vec<_>>().join(", ");
        return Some((keys.clone(), format!("the limit `{keys}`")));
    }
    let width = execution.options().width();
    let is_full = execution.agenda().running().len() >= width;
    is_full.then(|| {
        let key = "maxParallel".to_owned();
        (key, format!("a free slot: at most {width} run at once (`maxParallel`)"))
    })
}
