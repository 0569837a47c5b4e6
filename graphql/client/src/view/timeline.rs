//! The timeline of an execution: a line for each step, in the order of their starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use shared::clock::Timestamp;

use super::{
    format::{clip_text, count_noun, format_duration, json_line, ms_between},
    outcome::Outcome,
    paint::{self, Paint},
    plain,
    step::state_mark,
};
use crate::types::{ExecutionStatus, ItemTally, ShownState, StepStatus};

/// Maximum number of steps of a timeline without folded lines.
const MAX_UNFOLDED_STEPS: usize = 20;
const MAX_LINES: usize = 40;
const MAX_ITEMS: usize = 5;
const MAX_VALUE_CHARS: usize = 70;
const MAX_NAME_COLUMNS: usize = 32;

pub struct Timeline<'a> {
    steps: Vec<&'a StepStatus>,
    started_at: Option<Timestamp>,
    is_short: bool,
    width: usize,
    critical_steps: BTreeSet<&'a str>,
    paint: Paint,
}

impl<'a> Timeline<'a> {
    pub fn new(execution: &'a ExecutionStatus, paint: Paint) -> Self {
        let mut steps: Vec<&StepStatus> = execution.steps.iter().collect();
        // Steps that never started come last, in the order of the plan.
        steps.sort_by_key(|step| (step.started_at.is_none(), step.started_at));
        let names = steps.iter().map(|step| paint::text_width(&step.step_id));
        Self {
            started_at: execution.started_at.or(execution.created_at),
            is_short: steps.len() <= MAX_UNFOLDED_STEPS,
            width: names.max().unwrap_or(0).min(MAX_NAME_COLUMNS),
            critical_steps: find_critical_path(&Outcome::new(execution), &steps),
            steps,
            paint,
        }
    }

    /// Returns the lines of the timeline. Unless `is_full` is `true`, omits steps beyond
    /// `MAX_LINES` lines.
    pub fn draw_lines(&self, is_full: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut rest = self.steps.as_slice();
        while let Some(first) = rest.first() {
            let is_alike =
                |step: &&&StepStatus| !self.has_own_line(step) && step.state == first.state;
            let folded = rest.iter().take_while(is_alike).count();
            if folded > 1 {
                lines.push(self.draw_folded_steps(&rest[..folded]));
            } else {
                lines.push(self.draw_step_line(first));
                lines.extend(list_items(first, MAX_ITEMS, &" ".repeat(16)));
            }
            rest = &rest[folded.max(1)..];
        }
        let left_out = lines.len().saturating_sub(MAX_LINES);
        if left_out > 0 && !is_full {
            lines.truncate(MAX_LINES);
            lines.push(format!("… and {left_out} more lines: `--full` has all of them"));
        }
        lines.extend(self.draw_legend());
        lines
    }

    fn has_own_line(&self, step: &StepStatus) -> bool {
        use ShownState::{Cancelled, Pending, Skipped, Succeeded};
        let is_quiet = matches!(step.state, Succeeded | Skipped | Pending | Cancelled);
        self.is_short || step.attempts > 1 || !is_quiet
    }

    fn draw_step_line(&self, step: &StepStatus) -> String {
        let (id, tool) = (&*step.step_id, &*step.tool_name);
        let tool = if tool.rsplit('.').next() == Some(id) { "" } else { tool };
        let waits = step.waits_for.as_ref().map(|waits| format!("waits for {waits}"));
        let waits = waits.or_else(|| describe_next_attempt(step));
        let child = step.child_execution_id.as_ref().map(|child| format!("executes {child}"));
        let rest = [
            plain::safe_line(tool),
            describe_work(step),
            describe_wait(step),
            describe_attempts(step),
        ];
        let tally = step.item_tally.as_ref().map(describe_tally).unwrap_or_default();
        let rest = rest.into_iter().chain([tally]).chain(list_state_words(step));
        let code = step.error.as_ref().map(|error| error.code.to_string());
        let rest = rest.chain(waits).chain(code).chain(child);
        let rest: Vec<String> = rest.filter(|part| !part.is_empty()).collect();
        let name = plain::safe_line(id);
        let padding = " ".repeat(self.width.saturating_sub(paint::text_width(&name)));
        let is_critical = self.critical_steps.contains(id);
        let path = if is_critical { self.paint.cyan("◆") } else { " ".to_owned() };
        let (since, mark) = (self.format_start(step), state_mark(step.state, self.paint));
        let line = format!("{since}  {path} {mark} {name}{padding}  {}", rest.join("  "));
        line.trim_end().to_owned()
    }

    fn format_start(&self, step: &StepStatus) -> String {
        let since = self.started_at.zip(step.started_at);
        let since = since.and_then(|(from, at)| ms_between(from, at));
        let text = since.map(|ms| format!("+{}", format_duration(ms))).unwrap_or_default();
        format!("{text:>9}")
    }

    fn draw_folded_steps(&self, steps: &[&StepStatus]) -> String {
        let (first, last) = (steps[0], steps[steps.len() - 1]);
        let finished_at = steps.iter().filter_map(|step| step.finished_at).max();
        let took = first.started_at.zip(finished_at);
        let took = took.and_then(|(from, until)| ms_between(from, until));
        let took = took.map(|ms| format!("  {}", format_duration(ms))).unwrap_or_default();
        let (since, mark) = (self.format_start(first), state_mark(first.state, self.paint));
        let (n, state) = (steps.len(), first.state.as_str().to_lowercase());
        format!("{since}    {mark} {n} steps {state}: {} … {}{took}", first.step_id, last.step_id)
    }

    fn draw_legend(&self) -> Option<String> {
        let on_path = self.steps.iter().filter(|step| self.critical_steps.contains(&*step.step_id));
        let n = on_path.clone().count();
        let work: f64 = on_path.clone().filter_map(|step| compute_work_ms(step)).sum();
        let wait: f64 = on_path.clone().filter_map(|step| step.waited_ms).sum();
        let between: f64 = on_path.filter_map(|step| compute_idle_ms(step)).sum();
        (n > 1).then(|| {
            let mut text =
                format!("◆ {n} steps determined the duration: {} of work", format_duration(work));
            if wait > 0.0 {
                let _ = write!(text, ", {} of waiting", format_duration(wait));
            }
            if between > 0.0 {
                let _ = write!(text, ", {} between attempts", format_duration(between));
            }
            self.paint.dim(text)
        })
    }

    pub fn draw_values(&self) -> Vec<String> {
        let ran = self.steps.iter().filter(|step| step.attempts > 0 || step.reused);
        let lines = ran.filter(|_| self.is_short).filter_map(|step| {
            let succeeded = step.state == ShownState::Succeeded;
            let output = step.output.as_ref().map(|output| json_line(output, MAX_VALUE_CHARS));
            let output = output.or_else(|| succeeded.then(|| "null".to_owned()));
            let output = output.map(|output| format!("{} {output}", self.paint.dim("→")));
            let given =
                step.resolved_parameters.as_ref().map(|given| json_line(given, MAX_VALUE_CHARS));
            let text: Vec<String> = given.into_iter().chain(output).collect();
            let name = step.step_id.to_string();
            let padding = " ".repeat(self.width.saturating_sub(paint::text_width(&name)));
            (!text.is_empty()).then(|| format!("{name}{padding}  {}", text.join(" ")))
        });
        lines.collect()
    }
}

pub fn list_items(step: &StepStatus, max: usize, lead: &str) -> Vec<String> {
    use ShownState::{Compensated, Pending, Skipped, Succeeded};
    let is_shown =
        |item: &&StepStatus| !matches!(item.state, Succeeded | Pending | Compensated | Skipped);
    let shown_items: Vec<&StepStatus> = step.items.iter().filter(is_shown).collect();
    let line = |item: &&StepStatus| {
        let reason =
            item.error.as_ref().map(|error| format!("  {}: {}", error.code, error.message));
        let (index, state) = (item.index.unwrap_or_default(), item.state.as_str());
        clip_text(
            &format!("{lead}[{index}]  {state}{}", reason.unwrap_or_default()),
            2 * MAX_VALUE_CHARS,
        )
    };
    let mut lines: Vec<String> = shown_items.iter().take(max).map(line).collect();
    if shown_items.len() > max {
        lines.push(format!("{lead}… and {}", count_noun(shown_items.len() - max, "more item")));
    }
    lines
}

pub fn describe_work(step: &StepStatus) -> String {
    // The time is unknown for a call of a lost worker, because the log does not contain its end.
    compute_work_ms(step).filter(|ms| *ms > 0.0).map(format_duration).unwrap_or_default()
}

fn compute_work_ms(step: &StepStatus) -> Option<f64> {
    step.work_ms.or(step.duration_ms)
}

pub fn describe_wait(step: &StepStatus) -> String {
    let waited = step.waited_ms.filter(|ms| *ms > 0.0);
    waited.map(|ms| format!("waited {}", format_duration(ms))).unwrap_or_default()
}

fn describe_next_attempt(step: &StepStatus) -> Option<String> {
    let until = step.until.filter(|_| step.state == ShownState::Retrying)?;
    let (next, at) = (step.attempts + 1, until.format("%H:%M:%S%.3f"));
    Some(format!("attempt {next} at {at} UTC"))
}

pub fn describe_attempts(step: &StepStatus) -> String {
    if step.attempts <= 1 {
        return String::new();
    }
    let between = compute_idle_ms(step).map(format_duration);
    let between = between.map(|time| format!(" with {time} between")).unwrap_or_default();
    format!("{} attempts{between}", step.attempts)
}

fn compute_idle_ms(step: &StepStatus) -> Option<f64> {
    let rest = step.duration_ms? - step.work_ms? - step.waited_ms.unwrap_or_default();
    (step.attempts > 1 && rest >= 1.0).then_some(rest)
}

fn list_state_words(step: &StepStatus) -> impl Iterator<Item = String> {
    let reason = step.skip_reason.as_ref().map(|reason| reason.to_string().replace('_', " "));
    let is_told = reason.is_none()
        && (step.waits_for.is_some()
            || matches!(step.state, ShownState::Succeeded | ShownState::Failed));
    let state = (!is_told).then(|| step.state.as_str().to_lowercase());
    let reused = step.reused.then(|| "reused".to_owned());
    state.into_iter().chain(reason).chain(reused)
}

pub fn describe_tally(tally: &ItemTally) -> String {
    let items = count_noun(tally.total, "item");
    if tally.successful == tally.total {
        return format!("{items} ✓");
    }
    let mut text = format!("{} of {items} ✓", tally.successful);
    for (n, word) in [
        (tally.failed, "failed"),
        (tally.skipped, "skipped"),
        (tally.cancelled, "cancelled"),
        (tally.running, "running"),
        (tally.waiting, "waiting"),
    ] {
        if n > 0 {
            let _ = write!(text, ", {n} {word}");
        }
    }
    text
}

/// Returns the critical path: the step that finished last, the dependency of this step that
/// finished last, and so on.
fn find_critical_path<'a>(outcome: &Outcome<'a>, steps: &[&'a StepStatus]) -> BTreeSet<&'a str> {
    let ended = steps.iter().filter(|step| step.started_at.is_some());
    let ended = ended.filter_map(|step| Some((&*step.step_id, step.finished_at?)));
    let ends: BTreeMap<&str, Timestamp> = ended.collect();
    let mut path = BTreeSet::new();
    // If several steps finished last at the same time, the path ends with the step that started
    // last.
    let last = steps.iter().rev().filter_map(|step| ends.get_key_value(&*step.step_id));
    let mut next = last.reduce(|a, b| if b.1 > a.1 { b } else { a }).map(|(id, _)| *id);
    while let Some(id) = next.filter(|id| path.insert(*id)) {
        let needs = outcome.find_planned_step(id).into_iter().flat_map(|step| &step.depends_on);
        let needs = needs.filter_map(|needed| ends.get_key_value(&**needed));
        next = needs.max_by_key(|(id, at)| (**at, **id)).map(|(id, _)| *id);
    }
    path
}
