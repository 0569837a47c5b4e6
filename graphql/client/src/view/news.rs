//! Turns the events of an execution into news for the user. News does not explain why something
//! happened, because the findings of the engine do.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use shared::clock::Timestamp;

use super::{
    format::{count_noun, format_step_name, list_names, ms_between, quote_for_shell},
    paint::Paint,
    plain,
    step::{NextAction, Progress, StepView},
};
use crate::types::{Event, EventData, ShownState};

const MAX_REUSED_NAMES: usize = 6;
/// Maximum number of failed and waiting items of one list that have their own news.
const MAX_ITEM_NEWS: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub enum News {
    Step { name: String, view: StepView },
    Progress { name: String, progress: Progress },
    Approved { name: String },
    Reused(Vec<String>),
    Note(String),
}

impl News {
    #[must_use]
    pub fn with_prefix(self, prefix: &str) -> Self {
        let placed = |name: String| format!("{prefix}{name}");
        match self {
            Self::Step { name, view } => Self::Step { name: placed(name), view },
            Self::Progress { name, progress } => Self::Progress { name: placed(name), progress },
            Self::Approved { name } => Self::Approved { name: placed(name) },
            Self::Reused(steps) => Self::Reused(steps.into_iter().map(placed).collect()),
            Self::Note(note) => Self::Note(placed(note)),
        }
    }
}

pub fn format_news(news: &News, width: usize, paint: Paint) -> Option<String> {
    match news {
        News::Progress { .. } | News::Approved { .. } => None,
        News::Reused(steps) => {
            Some(paint.dim(format!("· kept: {}", list_names(steps, MAX_REUSED_NAMES))))
        }
        News::Note(note) => Some(paint.dim(format!("· {}", plain::safe_line(note)))),
        News::Step { name, view } => view.draw_outcome_line(name, width, paint),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct LoopCount {
    total: u64,
    finished: u64,
    failed: u64,
    reported: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct RunningPart {
    /// The start of the part, moved later by the time without a worker, so that only work counts.
    /// `None` if the log does not contain the start.
    since: Option<Timestamp>,
    /// A sleep or a child execution, which needs no worker.
    is_detached: bool,
}

#[derive(Clone, Debug, Default)]
pub struct ExecutionView {
    id: String,
    pub seq: u64,
    pub finished_step_count: usize,
    pub is_finished: bool,
    worker: String,
    last_event_at: Option<Timestamp>,
    running_parts: BTreeMap<String, RunningPart>,
    retrying_steps: BTreeSet<String>,
    steps_waiting_for_person: BTreeSet<String>,
    loop_counts: BTreeMap<String, LoopCount>,
    children: BTreeMap<String, String>,
}

impl ExecutionView {
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::default() }
    }

    pub fn apply(&mut self, event: &Event) -> Option<News> {
        self.seq = event.seq;
        let news = match event.step_id.as_deref() {
            Some(step) => self.apply_to_step(step, event),
            None => self.apply_to_execution(event),
        };
        self.last_event_at = event.at.or(self.last_event_at);
        news
    }

    /// Returns whether a step waits for a person and no other step can continue. `child_waits`
    /// answers the same question for a child execution.
    pub fn waits_for_person(&self, child_waits: impl Fn(&str) -> bool) -> bool {
        let only_waits = |step: &String| {
            // A step with a list does no work itself. The items of its list do, and they are in
            // `running_parts`, too.
            self.loop_counts.contains_key(step)
                || self.children.get(step).is_some_and(|child| child_waits(child))
        };
        let has_child = self.running_parts.keys().any(|step| self.children.contains_key(step));
        (!self.steps_waiting_for_person.is_empty() || has_child)
            && self.retrying_steps.is_empty()
            && self.running_parts.keys().all(only_waits)
    }

    pub fn children(&self) -> impl Iterator<Item = &str> {
        self.children.values().map(String::as_str)
    }

    pub fn waiting_steps(&self) -> impl Iterator<Item = &str> {
        self.steps_waiting_for_person.iter().map(String::as_str)
    }

    fn apply_to_step(&mut self, step: &str, event: &Event) -> Option<News> {
        let data = &event.data;
        let name = format_step_name(step, data.index);
        let (state, detail) = match &*event.kind {
            "step_started" => return self.start_step(step, name, event),
            "step_compensation_started" => {
                let name = compensation_name(&name);
                return Some(self.run_part(name, event));
            }
            "step_progress" => return Some(News::Progress { name, progress: read_progress(data) }),
            "step_compensation_progress" => {
                return Some(News::Progress {
                    name: compensation_name(&name),
                    progress: read_progress(data),
                });
            }
            "step_succeeded" => (ShownState::Succeeded, self.describe_result(step, data)),
            "step_compensated" => (ShownState::Compensated, None),
            "step_failed" => (ShownState::Failed, read_error_code(data)),
            "step_settled" if &*data.outcome == "SUCCEEDED" => {
                (ShownState::Succeeded, Some("settled as succeeded".to_owned()))
            }
            "step_settled" => (ShownState::Failed, Some("settled as failed".to_owned())),
            "step_retry_scheduled"
            | "step_compensation_retry_scheduled"
            | "step_interrupted"
            | "step_compensation_interrupted" => (ShownState::Retrying, describe_error(data)),
            "step_skipped" => (ShownState::Skipped, describe_skip(data)),
            "step_cancelled" => (ShownState::Cancelled, None),
            "step_waiting" => (ShownState::Waiting, Some(describe_wait(data))),
            kind if kind.starts_with("step_compensat") => {
                (ShownState::CompensationFailed, read_error_code(data))
            }
            _ => {
                // The event is an approval, or has a type that only newer servers know.
                return self
                    .steps_waiting_for_person
                    .remove(&name)
                    .then_some(News::Approved { name });
            }
        };
        let is_undo = event.kind.starts_with("step_compensat");
        let name = if is_undo { compensation_name(&name) } else { name };
        let view = self.end_part(&name, state, detail, event);
        if is_undo || name != step {
            return if is_undo {
                Some(News::Step { name, view })
            } else {
                self.count_item(step, name, view)
            };
        }
        if view.is_finished() {
            self.finished_step_count += 1;
        }
        self.loop_counts.remove(step);
        Some(News::Step { name, view })
    }

    fn start_step(&mut self, step: &str, name: String, event: &Event) -> Option<News> {
        if let Some(total) = event.data.items {
            self.loop_counts.insert(name.clone(), LoopCount { total, ..LoopCount::default() });
        }
        let child = event.data.child_execution_id.as_deref().map(str::to_owned);
        let is_whole = name == step;
        let news = self.run_part(name.clone(), event);
        self.children.extend(child.map(|child| (name, child)));
        // The start of an item is not news, because a list can have thousands of items. Items are
        // counted when they finish.
        is_whole.then_some(news)
    }

    fn run_part(&mut self, name: String, event: &Event) -> News {
        self.clear_part(&name);
        let is_detached = event.data.until.is_some() || event.data.child_execution_id.is_some();
        self.running_parts.insert(name.clone(), RunningPart { since: event.at, is_detached });
        let (state, attempt) = (ShownState::Running, event.attempt.unwrap_or(1));
        News::Step {
            name,
            view: StepView { state, since: event.at, attempt, ..StepView::default() },
        }
    }

    fn end_part(
        &mut self,
        name: &str,
        state: ShownState,
        detail: Option<String>,
        event: &Event,
    ) -> StepView {
        // Clocks of machines differ, so an end before the start counts as the time of the start.
        let since = self.running_parts.get(name).and_then(|part| part.since);
        let duration_ms = since.and_then(|from| ms_between(from, event.at?.max(from)));
        self.clear_part(name);
        let id = plain::safe_line(&self.id);
        let next = match state {
            ShownState::Retrying => {
                self.retrying_steps.insert(name.to_owned());
                let attempt = event.attempt.unwrap_or(1) + 1;
                event.data.until.map(|at| NextAction::Attempt { attempt, at: Some(at) })
            }
            ShownState::Waiting if event.data.awaited.as_deref() == Some("signal") => {
                Some(NextAction::Command(format!(
                    "faber signal {id} {}",
                    quote_for_shell(&event.data.name)
                )))
            }
            ShownState::Waiting => {
                self.steps_waiting_for_person.insert(name.to_owned());
                Some(NextAction::Command(format!("faber approve {id} {}", quote_for_shell(name))))
            }
            _ => None,
        };
        StepView { state, duration_ms, detail, next, ..StepView::default() }
    }

    /// Records the worker that claimed the execution. If another worker was lost, the time between
    /// its last event and this claim does not count as work.
    fn change_worker(&mut self, event: &Event) {
        let is_same = self.worker.is_empty() || *self.worker == *event.data.worker;
        self.worker = event.data.worker.to_string();
        let (false, Some(claimed_at)) = (is_same, event.at) else { return };
        for (name, part) in self.running_parts.iter_mut().filter(|(_, part)| !part.is_detached) {
            let worked = part.since.zip(self.last_event_at).filter(|(from, last)| last > from);
            let since = worked.map(|(from, last)| claimed_at - (last - from));
            // If the start of a loop is unknown, its duration counts from the claim. A call of the
            // lost worker gets no start, because the log does not contain how long the call ran.
            part.since =
                since.or_else(|| self.loop_counts.contains_key(name).then_some(claimed_at));
        }
    }

    /// Counts an item. Returns news about the item for the first `MAX_ITEM_NEWS` items that fail or
    /// wait, and the progress of the list for the other items that finish.
    fn count_item(&mut self, step: &str, name: String, view: StepView) -> Option<News> {
        let list = self.loop_counts.entry(step.to_owned()).or_default();
        let is_failed = view.state == ShownState::Failed;
        if view.is_finished() {
            list.finished += 1;
            list.failed += u64::from(is_failed);
        }
        if (is_failed || view.state == ShownState::Waiting) && list.reported < MAX_ITEM_NEWS {
            list.reported += 1;
            return Some(News::Step { name, view });
        }
        #[expect(clippy::cast_precision_loss, reason = "a list has no more items than 2^52")]
        let (done, total) = (list.finished as f64, Some(list.total as f64));
        let progress = Progress { done, total, message: None };
        view.is_finished().then(|| News::Progress { name: step.to_owned(), progress })
    }

    fn describe_result(&self, step: &str, data: &EventData) -> Option<String> {
        match self.loop_counts.get(step) {
            Some(LoopCount { total, failed: 0, .. }) => Some(count_noun(*total, "item")),
            Some(LoopCount { total, failed, .. }) => {
                Some(format!("{}, {failed} of them failed", count_noun(*total, "item")))
            }
            None => data.cached.then(|| "from the cache".to_owned()),
        }
    }

    fn apply_to_execution(&mut self, event: &Event) -> Option<News> {
        let data = &event.data;
        if &*event.kind == "claimed" {
            self.change_worker(event);
        }
        let note = match &*event.kind {
            "created" => {
                let kept: Vec<String> =
                    data.reused.keys().map(|step| (**step).to_owned()).collect();
                self.finished_step_count += kept.len();
                return (!kept.is_empty()).then_some(News::Reused(kept));
            }
            "finished" => {
                self.is_finished = true;
                return None;
            }
            "claimed" if data.epoch > 1 && !data.renewed => {
                format!("continued by {}", &*data.node)
            }
            "signal_received" => format!("signal {}", &*data.name),
            "signal_refused" => format!("signal {} refused", &*data.name),
            "cancel_requested" => "cancelling".to_owned(),
            "execution_failed" => "it cannot continue".to_owned(),
            "deadline_passed" => "its deadline passed".to_owned(),
            "paused" => format!("paused: `faber resume {}` resumes it", self.id),
            "resumed" => "resumed".to_owned(),
            "compensation_started" => "compensating".to_owned(),
            _ => return None,
        };
        Some(News::Note(note))
    }

    fn clear_part(&mut self, step: &str) {
        self.running_parts.remove(step);
        self.retrying_steps.remove(step);
        self.steps_waiting_for_person.remove(step);
        self.children.remove(step);
    }
}

fn compensation_name(step: &str) -> String {
    format!("{step} (undo)")
}

/// Returns only the code of an error, because the summary prints the error's message.
fn read_error_code(data: &EventData) -> Option<String> {
    Some((*data.error.as_ref()?.code.as_ref()?).to_string())
}

fn describe_error(data: &EventData) -> Option<String> {
    let error = data.error.as_ref()?;
    let message = &*error.message;
    Some(match &error.code {
        Some(code) => format!("{}: {message}", &**code),
        None => message.to_owned(),
    })
}

/// Describes a step that a dry run checked. Returns `None` for other skipped steps, because a
/// finding states the reason.
fn describe_skip(data: &EventData) -> Option<String> {
    (data.reason.as_deref() == Some("dry_run")).then(|| "it fits".to_owned())
}

fn read_progress(data: &EventData) -> Progress {
    Progress {
        done: data.progress,
        total: data.total.filter(|total| *total > 0.0),
        message: data.message.as_deref().map(str::to_owned),
    }
}

fn describe_wait(data: &EventData) -> String {
    match data.awaited.as_deref() {
        Some("approval") => "waits for approval".to_owned(),
        Some("signal") => format!("waits for signal {}", &*data.name),
        Some("decision") => match read_error_code(data) {
            Some(code) => format!("waits for a decision: {code}"),
            None => "waits for a decision".to_owned(),
        },
        _ => "waits".to_owned(),
    }
}
