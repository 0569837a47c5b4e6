#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use shared::execution::ExecutionState;

use super::{
    findings::{command_and_label, draw_findings},
    format::{
        clip_text, count_noun, format_duration, format_labels, format_step_name, indent_json,
        json_line,
    },
    outcome::{Outcome, draw_summary, paint_state},
    paint::Paint,
    plain,
    plan::{draw_diagnostics, draw_plan},
    timeline::{
        Timeline, describe_attempts, describe_tally, describe_wait, describe_work, list_items,
    },
    transcript,
};
use crate::types::{
    ExecutionStatus, FindingKind, Plan, ReplanningState, Request, StepStatus, TranscriptEntry,
};

const MAX_QUERY_CHARS: usize = 400;
const MAX_PARAMETERS: usize = 20;
const MAX_OTHER_EXECUTIONS: usize = 10;
const MAX_COMMANDS: usize = 10;
const MAX_ITEMS: usize = 10;

/// Reports on the execution `id`, or on the newest execution without a parent if the request has no
/// such execution. A full report also contains all other executions.
pub fn draw_report(request: &Request, id: Option<&str>, is_full: bool, paint: Paint) -> String {
    let all = || request.executions.iter();
    let roots = all().filter(|execution| execution.parent_execution_id.is_none());
    let newest = roots.max_by_key(|execution| execution.created_at);
    let named = id.and_then(|id| all().find(|execution| execution.execution_id == *id));
    let Some(main) = named.or(newest) else { return describe_unexecuted(request, is_full, paint) };

    let mut report = draw_head(request, main, paint);
    report.push_str(&draw_body(main, is_full, paint));
    let others = if is_full {
        all().filter(|execution| execution.execution_id != main.execution_id).collect()
    } else {
        find_children(request, main)
    };
    for other in others {
        let id = paint.bold(other.execution_id.to_string());
        let relation = match (&other.parent_execution_id, &other.parent_step_id) {
            (Some(parent), Some(step)) => format!("part of {parent}, step {step}"),
            _ => draw_summary(other),
        };
        let state = paint_state(other.state.as_str(), paint);
        let _ = writeln!(report, "\n{id}  {state}  {}", paint.dim(relation));
        report.push_str(&draw_body(other, is_full, paint));
    }
    if is_full {
        report.push_str(&draw_planning(request, paint));
    } else {
        let origin = describe_origin(&request.transcript, &main.plan);
        report.push_str(&draw_section("How the plan was made", &[origin], paint));
    }
    report.push_str(&draw_section("Next", &list_next_commands(request, main, is_full), paint));
    if !is_full {
        report.push_str(&draw_other_executions(request, main, paint));
    }
    report.trim_end().to_owned()
}

fn draw_head(request: &Request, execution: &ExecutionStatus, paint: Paint) -> String {
    let name = execution.state.as_str();
    let name = if execution.dry_run { format!("DRY RUN {name}") } else { name.to_owned() };
    let mut report = format!("{}  {}\n", paint_state(&name, paint), draw_summary(execution));
    let plan = match &execution.plan {
        Plan { version: 0, .. } => execution.plan_id.to_string(),
        Plan { version, planner, .. } => {
            format!("{}, version {version} by {planner}", execution.plan_id)
        }
    };
    let text = |text: &Option<_>| text.as_ref().map(ToString::to_string).unwrap_or_default();
    let input = execution.input.as_ref().map(|input| json_line(input, MAX_QUERY_CHARS));
    for (label, text) in [
        ("query", clip_text(&plain::safe_line(&request.query), MAX_QUERY_CHARS)),
        ("time", describe_period(execution)),
        ("node", text(&execution.node)),
        ("plan", plan),
        ("request", request.request_id.to_string()),
        ("again", text(&execution.retry_of)),
        ("retried", describe_retries(request, execution)),
        ("fork of", text(&execution.forked_from)),
        ("forked", describe_forks(request, execution)),
        ("onward", describe_continuation(execution)),
        ("part of", text(&execution.parent_execution_id)),
        ("input", input.unwrap_or_default()),
        ("labels", clip_text(&format_labels(&execution.labels), MAX_QUERY_CHARS)),
    ] {
        if !text.is_empty() {
            let _ = writeln!(report, "  {}  {text}", paint.dim(format!("{label:<7}")));
        }
    }
    report
}

fn describe_retries(request: &Request, execution: &ExecutionStatus) -> String {
    let next = execution.next.as_ref().map(|next| &next.execution_id);
    let mut retries: Vec<&ExecutionStatus> = request
        .executions
        .iter()
        .filter(|other| other.retry_of.as_ref() == Some(&execution.execution_id))
        .filter(|other| Some(&other.execution_id) != next)
        .collect();
    retries.sort_by_key(|other| other.created_at);
    format_executions(&retries)
}

fn describe_forks(request: &Request, execution: &ExecutionStatus) -> String {
    let is_fork =
        |other: &&ExecutionStatus| other.forked_from.as_ref() == Some(&execution.execution_id);
    let mut forks: Vec<&ExecutionStatus> = request.executions.iter().filter(is_fork).collect();
    forks.sort_by_key(|other| other.created_at);
    format_executions(&forks)
}

fn format_executions(executions: &[&ExecutionStatus]) -> String {
    let ids = executions
        .iter()
        .map(|execution| format!("{} ({})", execution.execution_id, execution.state.as_str()));
    match ids.collect::<Vec<_>>().join(", ") {
        ids if ids.is_empty() => ids,
        ids => format!("as {ids}"),
    }
}

fn describe_continuation(execution: &ExecutionStatus) -> String {
    let replanning = execution.replanning.as_ref();
    let reason =
        replanning.map(|replanning| format!(" because {}", replanning.reason)).unwrap_or_default();
    match (&execution.next, replanning) {
        (Some(next), _) => format!("replanned as {}{reason}", next.execution_id),
        (None, Some(replanning)) if replanning.state == ReplanningState::GivenUp => {
            let given_up =
                replanning.given_up.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("not replanned{reason}: {given_up}")
        }
        (None, Some(_)) => format!("Faber replans{reason}"),
        (None, None) => String::new(),
    }
}

fn describe_period(execution: &ExecutionStatus) -> String {
    let Some(from) = execution.started_at.or(execution.created_at) else { return String::new() };
    let start = from.format("%Y-%m-%d %H:%M:%S%.3f");
    match execution.finished_at {
        Some(until) if until.date_naive() == from.date_naive() => {
            format!("{start} – {} UTC", until.format("%H:%M:%S%.3f"))
        }
        Some(until) => format!("{start} – {} UTC", until.format("%Y-%m-%d %H:%M:%S%.3f")),
        None => format!("since {start} UTC"),
    }
}

fn draw_body(execution: &ExecutionStatus, is_full: bool, paint: Paint) -> String {
    let mut findings = draw_findings(&execution.findings, paint);
    let has_failures =
        execution.findings.iter().any(|finding| finding.kind == FindingKind::Failure);
    if execution.state == ExecutionState::Completed && !has_failures {
        let ExecutionStatus { successful, total, .. } = execution;
        findings.insert(
            0,
            match total {
                _ if successful != total => format!("{successful} of {total} steps succeeded."),
                1 => "The step succeeded.".to_owned(),
                2 => "Both steps succeeded.".to_owned(),
                _ => format!("All {total} steps succeeded."),
            },
        );
    }
    let timeline = Timeline::new(execution, paint);
    let mut report = draw_section("What happened", &findings, paint);
    report.push_str(&draw_section("Timeline", &timeline.draw_lines(is_full), paint));
    if is_full {
        let steps: Vec<String> =
            execution.steps.iter().flat_map(|step| draw_step_in_full(step, paint)).collect();
        return report + &draw_section("Steps", &steps, paint);
    }
    report.push_str(&draw_section("Values", &timeline.draw_values(), paint));
    let error = execution.execution_results.errors.first();
    let parameters = error
        .and_then(|error| Outcome::new(execution).find_parameters(&error.step_id, error.index));
    if let Some((error, parameters)) = error.zip(parameters) {
        let name = format_step_name(&error.step_id.to_string(), error.index);
        let lines = first_lines(&indent_json(parameters, 0), MAX_PARAMETERS);
        report.push_str(&draw_section(&format!("Parameters of {name}"), &lines, paint));
    }
    report
}

fn first_lines(text: &str, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .take(max)
        .map(|line| clip_text(&plain::safe_line(line), MAX_QUERY_CHARS))
        .collect();
    lines.extend(text.lines().nth(max).map(|_| "…".to_owned()));
    lines
}

fn draw_step_in_full(step: &StepStatus, paint: Paint) -> Vec<String> {
    let skipped = step.skip_reason.as_ref().map(|reason| reason.to_string().replace('_', " "));
    let reused = step.reused.then(|| "reused".to_owned());
    let about = [describe_work(step), describe_wait(step), describe_attempts(step)].into_iter();
    let about =
        about.chain(skipped).chain(reused).chain(step.item_tally.as_ref().map(describe_tally));
    let about: Vec<String> = about.filter(|part| !part.is_empty()).collect();
    let (name, state) =
        (paint.cyan(step.step_id.to_string()), paint_state(step.state.as_str(), paint));
    let about = paint.dim(about.join(", "));
    let mut lines = vec![format!("{name}  {}  {state}  {about}", step.tool_name)];
    let values = [("parameters", &step.resolved_parameters), ("output", &step.output)];
    for (label, value) in
        values.into_iter().filter_map(|(label, value)| Some((label, value.as_ref()?)))
    {
        lines.push(format!("  {}", paint.dim(label)));
        lines.extend(indent_json(value, 4).lines().map(plain::safe_line));
    }
    if let Some(error) = &step.error {
        let code = paint.red(format!("error[{}]", error.code));
        lines.push(format!("  {code}: {}", error.message));
    }
    let warnings = step.warnings.iter();
    lines.extend(warnings.map(|text| format!("  {} {text}", paint.yellow("warning:"))));
    let child = step.child_execution_id.as_ref();
    lines.extend(child.map(|child| format!("  {} {child}", paint.dim("executes"))));
    lines.extend(list_items(step, MAX_ITEMS, "  "));
    if let Some(undo) = &step.compensation {
        lines.push(format!("  {}", paint.dim("undone by")));
        lines.extend(draw_step_in_full(undo, paint).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

fn draw_planning(request: &Request, paint: Paint) -> String {
    let mut report = format!("\n{}\n", paint.bold("How the plan was made"));
    for entry in &request.transcript {
        let head = paint.cyan(entry.kind.to_string());
        let _ = writeln!(report, "\n{head}  {}", paint.dim(entry.at.to_string()));
        let _ = writeln!(report, "{}", transcript::draw_entry(&entry.kind, &entry.content, paint));
    }
    for plan in &request.plans {
        let _ = writeln!(report, "\n{}", draw_plan(plan, paint));
        let warnings = draw_diagnostics(&plan.diagnostics, "", paint);
        if !warnings.is_empty() {
            let _ = writeln!(report, "{warnings}");
        }
    }
    report
}

fn draw_section(title: &str, lines: &[String], paint: Paint) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut report = format!("\n{}\n", paint.bold(title));
    for line in lines {
        let _ = writeln!(report, "  {line}");
    }
    report
}

fn find_children<'a>(
    request: &'a Request,
    parent: &'a ExecutionStatus,
) -> Vec<&'a ExecutionStatus> {
    let mut found: Vec<&ExecutionStatus> = Vec::new();
    let mut parents = vec![&parent.execution_id];
    while let Some(parent) = parents.pop() {
        let all = request.executions.iter();
        for child in all.filter(|child| child.parent_execution_id.as_ref() == Some(parent)) {
            if found.len() < MAX_OTHER_EXECUTIONS {
                parents.push(&child.execution_id);
                found.push(child);
            }
        }
    }
    found
}

fn describe_origin(transcript: &[TranscriptEntry], plan: &Plan) -> String {
    let parent = |kind: &'static str| transcript.iter().filter(move |entry| entry.kind == kind);
    let by = match &*plan.planner {
        "explicit" => "written by hand".to_owned(),
        "" => "a plan".to_owned(),
        _ => format!("by {}", plan.planner),
    };
    let mut parts = vec![format!("{by}, {}", count_noun(plan.tools.len(), "step"))];
    if let Some(cached) = parent("cache").next_back() {
        let id = cached.content["requestId"].as_str().unwrap_or_default();
        parts.push(format!("taken from {}", plain::safe_line(id)));
    }
    let selection = parent("selection").next_back();
    if let Some(selection) =
        selection.and_then(|entry| transcript::Selection::read_content(&entry.content))
    {
        let (kept, total) = (selection.count_kept(), selection.count_all());
        parts.push(format!("{kept} of {total} tools shown to the planner"));
    }
    for (kind, one, many) in [
        ("clauses", "clause", "clauses"),
        ("prompt", "question to the model", "questions to the model"),
        ("repair", "repair", "repairs"),
        ("assumptions", "assumption", "assumptions"),
    ] {
        let last = parent(kind).next_back().filter(|_| matches!(kind, "clauses" | "assumptions"));
        let n = match last {
            Some(entry) => entry.content.as_array().map_or(0, Vec::len),
            None => parent(kind).count(),
        };
        if n > 0 {
            parts.push(format!("{n} {}", if n == 1 { one } else { many }));
        }
    }
    if let Some(usage) = parent("usage").next_back() {
        let tokens = |key: &str| usage.content["tokens"][key].as_u64().unwrap_or(0);
        let took = usage.content["ms"].as_f64().map(|ms| format!(" in {}", format_duration(ms)));
        let took = took.unwrap_or_default();
        parts.push(format!("{} tokens in and {} out{took}", tokens("input"), tokens("output")));
    }
    if !plan.diagnostics.is_empty() {
        parts.push(count_noun(plan.diagnostics.len(), "warning"));
    }
    parts.join(", ")
}

type Hint = (String, String);

fn list_next_commands(
    request: &Request,
    execution: &ExecutionStatus,
    is_full: bool,
) -> Vec<String> {
    use ExecutionState::{Cancelled, Completed, Failed, Paused};
    let id = &execution.execution_id;
    let mut all: Vec<Hint> = Vec::new();
    for execution in std::iter::once(execution).chain(find_children(request, execution)) {
        for hint in execution
            .findings
            .iter()
            .flat_map(|found| &found.remedies)
            .filter_map(command_and_label)
        {
            if all.len() < MAX_COMMANDS && !all.iter().any(|(command, _)| *command == hint.0) {
                all.push(hint);
            }
        }
    }
    let mut add = |command: String, effect: &str| all.push((command, effect.to_owned()));
    match execution.state {
        Failed | Cancelled if !execution.dry_run => {
            add(format!("faber retry {id} --all"), "runs every step again");
        }
        Completed | Failed | Cancelled | Paused => (),
        _ => {
            add(format!("faber watch {id}"), "watches it");
            add(format!("faber cancel {id}"), "stops it");
        }
    }
    if !is_full {
        add(format!("faber debug {id} --full"), "every value, and how the plan was made");
    }
    let width = all.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    all.into_iter().map(|(command, effect)| format!("{command:<width$}  {effect}")).collect()
}

fn draw_other_executions(request: &Request, main: &ExecutionStatus, paint: Paint) -> String {
    let roots =
        request.executions.iter().filter(|execution| execution.parent_execution_id.is_none());
    let mut all: Vec<&ExecutionStatus> =
        roots.filter(|other| other.execution_id != main.execution_id).collect();
    all.sort_by_key(|execution| std::cmp::Reverse(execution.created_at));
    let line = |other: &&ExecutionStatus| {
        format!("{}  {}", paint_state(other.state.as_str(), paint), draw_summary(other))
    };
    let mut lines: Vec<String> = all.iter().take(MAX_OTHER_EXECUTIONS).map(line).collect();
    if all.len() > MAX_OTHER_EXECUTIONS {
        lines.push(format!("… and {} more", all.len() - MAX_OTHER_EXECUTIONS));
    }
    draw_section("Other executions of the request", &lines, paint)
}

fn describe_unexecuted(request: &Request, is_full: bool, paint: Paint) -> String {
    let (id, plans) = (&request.request_id, &request.plans);
    let verdict = if !plans.is_empty() {
        paint.yellow("NOT EXECUTED")
    } else if request.findings.is_empty() {
        paint.yellow("NO PLAN YET")
    } else {
        paint_state("PLANNING_FAILED", paint)
    };
    let query = clip_text(&plain::safe_line(&request.query), MAX_QUERY_CHARS);
    let mut report = format!("{verdict}  {id}\n  {}  {query}\n", paint.dim("query  "));
    if !request.labels.is_empty() {
        let labels = clip_text(&format_labels(&request.labels), MAX_QUERY_CHARS);
        let _ = writeln!(report, "  {}  {labels}", paint.dim("labels "));
    }
    let found = draw_findings(&request.findings, paint);
    report.push_str(&draw_section("What happened", &found, paint));
    let mut kinds: Vec<String> =
        request.transcript.iter().map(|entry| entry.kind.to_string()).collect();
    kinds.dedup();
    let steps = (!kinds.is_empty()).then(|| kinds.join(" → "));
    report.push_str(&draw_section("How far the planning got", steps.as_slice(), paint));
    let made = plans.iter().map(|plan| {
        let steps = count_noun(plan.tools.len(), "step");
        format!("{}  version {} by {}, {steps}", plan.plan_id, plan.version, plan.planner)
    });
    report.push_str(&draw_section("Plans", &made.collect::<Vec<_>>(), paint));
    if is_full {
        report.push_str(&draw_planning(request, paint));
    }
    let execute = plans.last().map(|plan| format!("faber execute {}", plan.plan_id));
    let helping =
        request.findings.iter().flat_map(|found| &found.remedies).filter_map(command_and_label);
    let helping = helping.map(|(command, effect)| format!("{command}  {effect}"));
    let full = (!is_full).then(|| format!("faber debug {id} --full"));
    let next: Vec<String> = execute.into_iter().chain(helping).chain(full).collect();
    report.push_str(&draw_section("Next", &next, paint));
    report.trim_end().to_owned()
}
