//! Shows an execution while it runs: on a terminal as a drawing of the plan, and on a pipe as
//! lines.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use client::types::{Plan, ShownState};
use client::view::{
    format::{count_noun, format_duration, ms_between},
    news::{News, format_news},
    paint::{self, Paint},
    plain,
    step::{StepLine, StepView, state_mark},
};
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shared::clock::{Clock, Timestamp, WallClock};

use super::screen::Screen;

const DRAWING_KEY: &str = "drawing";

const REDRAW_INTERVAL: Duration = Duration::from_millis(80);
const MAX_FINAL_LINES: usize = 60;
/// Maximum number of steps of a plan that is drawn without folded layers.
const MAX_UNFOLDED_STEPS: usize = 20;
const MAX_NAME_COLUMNS: usize = 40;
/// Minimum number of columns of a step's name, even in the narrowest window.
const MIN_NAME_COLUMNS: usize = 4;
const BAR_COLUMNS: usize = 24;

pub(crate) struct LiveView {
    screen: Screen,
    width: usize,
    terminal: Option<(ProgressBar, Arc<Mutex<Drawing>>)>,
}

impl LiveView {
    pub(crate) fn new(screen: &Screen, plan: &Plan) -> Self {
        let drawing = Drawing::new(plan);
        let width = drawing.width;
        let terminal = screen.is_live.then(|| draw_repeatedly(drawing, screen.err));
        Self { screen: screen.clone(), width, terminal }
    }

    pub(crate) fn show_news(&mut self, news: &News, finished_steps: usize) {
        let line = format_news(news, self.width, self.screen.err);
        match (&self.terminal, line) {
            (Some((bar, drawing)), line) => {
                drawing
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .show_news(news, finished_steps);
                if let (News::Note(_), Some(line)) = (news, line) {
                    bar.println(self.screen.err.to_terminal(&line));
                }
            }
            (None, Some(line)) => self.screen.say(&line),
            (None, None) => (),
        }
    }

    pub(crate) fn end(&mut self) {
        let Some((bar, drawing)) = self.terminal.take() else { return };
        bar.finish_and_clear();
        let drawing = drawing.lock().unwrap_or_else(PoisonError::into_inner);
        let size = Size { lines: MAX_FINAL_LINES, ..window_size() };
        for line in drawing.draw(WallClock.now(), size, self.screen.err) {
            self.screen.say(&line);
        }
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.end();
    }
}

fn draw_repeatedly(drawing: Drawing, paint: Paint) -> (ProgressBar, Arc<Mutex<Drawing>>) {
    let drawing = Arc::new(Mutex::new(drawing));
    let shared_drawing = Arc::clone(&drawing);
    let style = progress_style().with_key(
        DRAWING_KEY,
        move |_: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
            let drawing = shared_drawing.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = drawing.draw_live(WallClock.now(), window_size(), paint);
            // Ignores a failure, because the next tick draws again.
            let _ = out.write_str(&paint.to_terminal(&lines.join("\n")));
        },
    );
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style);
    bar.enable_steady_tick(REDRAW_INTERVAL);
    (bar, drawing)
}

fn progress_style() -> ProgressStyle {
    let template = format!("{{{DRAWING_KEY}}}");
    ProgressStyle::with_template(&template).expect("the template is valid")
}

fn window_size() -> Size {
    let (lines, columns) = Term::stderr().size();
    Size { lines: lines.into(), columns: columns.into() }
}

#[derive(Clone, Copy, Debug)]
struct Size {
    lines: usize,
    columns: usize,
}

struct Drawing {
    layers: Vec<Vec<String>>,
    max_attempts: BTreeMap<String, u64>,
    width: usize,
    steps: BTreeMap<String, StepView>,
    /// The names of the plan's steps. All other names in `steps` are items of loops, steps of
    /// children, and compensations.
    plan_steps: BTreeSet<String>,
    started_at: Option<Timestamp>,
    finished_steps: usize,
}

/// A line of the drawing. If the window is too small, lines with the highest rank are left out
/// first.
struct Line {
    rank: u8,
    text: String,
}

#[derive(Clone, Copy)]
struct Frame {
    now: Timestamp,
    columns: usize,
    name_columns: usize,
    paint: Paint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoldedState {
    Pending,
    Succeeded,
    /// All steps are finished and no step failed, but some were skipped or cancelled.
    Skipped,
}

impl Drawing {
    fn new(plan: &Plan) -> Self {
        let name = |step: &client::types::Text| (**step).to_owned();
        let layers: Vec<Vec<String>> =
            plan.layers.iter().map(|layer| layer.iter().map(name).collect()).collect();
        let plan_steps: BTreeSet<String> = layers.iter().flatten().cloned().collect();
        let attempts = plan.tools.iter().map(|step| (name(&step.step_id), step.max_attempts()));
        Self {
            max_attempts: attempts.collect(),
            width: plan_steps
                .iter()
                .map(|step| paint::text_width(step))
                .max()
                .unwrap_or(0)
                .min(MAX_NAME_COLUMNS),
            layers,
            steps: BTreeMap::new(),
            plan_steps,
            started_at: None,
            finished_steps: 0,
        }
    }

    fn show_news(&mut self, news: &News, finished_steps: usize) {
        self.finished_steps = finished_steps;
        match news {
            News::Step { name, view } => {
                self.started_at = self.started_at.or(view.since);
                if view.is_finished() {
                    // Removes the parts of a finished step that still seem to run, because their
                    // last event can be missing.
                    self.steps
                        .retain(|part, shown| shown.is_finished() || !is_part_of_step(name, part));
                }
                if self.plan_steps.contains(name) || !view.can_fold() {
                    self.steps.insert(name.clone(), view.clone());
                } else {
                    self.steps.remove(name);
                }
            }
            News::Progress { name, progress } => {
                if let Some(step) = self.steps.get_mut(name) {
                    step.progress = Some(progress.clone());
                }
            }
            News::Reused(steps) => {
                for step in steps {
                    let detail = Some("kept".to_owned());
                    let state = ShownState::Succeeded;
                    let view = StepView { state, detail, ..StepView::default() };
                    self.steps.insert(step.clone(), view);
                }
            }
            News::Approved { name } => drop(self.steps.remove(name)),
            News::Note(_) => (),
        }
    }

    fn draw_live(&self, now: Timestamp, size: Size, paint: Paint) -> Vec<String> {
        // The progress bar and the cursor need one line each, so two lines of the window are not
        // available for steps.
        let lines = size.lines.saturating_sub(2).max(1);
        let mut drawn = self.draw(now, Size { lines, ..size }, paint);
        let columns = size.columns.saturating_sub(1).max(10);
        drawn.extend(self.draw_bar(now, paint).map(|bar| paint::cut_to_width(&bar, columns)));
        drawn
    }

    fn draw(&self, now: Timestamp, size: Size, paint: Paint) -> Vec<String> {
        let columns = size.columns.saturating_sub(1).max(10);
        // Names are cut so that the times and codes of all lines are visible.
        let mut frame = Frame { now, columns, name_columns: self.width, paint };
        let essential_columns = self
            .steps
            .iter()
            .map(|(name, step)| self.draw_outcome(name, step, frame).essential_columns);
        // Besides the name and the outcome, a line has a number or an indent, a sign and spaces. Ten
        // columns are reserved for them.
        let name_columns =
            columns.saturating_sub(10 + essential_columns.max().unwrap_or(0)).max(MIN_NAME_COLUMNS);
        frame.name_columns = self.width.min(name_columns);
        let mut lines = if self.plan_steps.len() <= MAX_UNFOLDED_STEPS {
            self.draw_all_steps(frame)
        } else {
            self.draw_layers(frame)
        };
        limit_lines(&mut lines, size.lines.max(1), paint);
        lines.into_iter().map(|line| paint::cut_to_width(&line.text, columns)).collect()
    }

    fn draw_all_steps(&self, frame: Frame) -> Vec<Line> {
        let mut lines = Vec::new();
        for (layer, steps) in self.layers.iter().enumerate() {
            for (place, step) in steps.iter().enumerate() {
                let number =
                    if place == 0 { format!("{:>3}", layer + 1) } else { "   ".to_owned() };
                lines.push(self.draw_step(&frame.paint.dim(number), step, frame));
                lines.extend(self.draw_parts("     ", step, frame));
            }
        }
        lines
    }

    fn draw_layers(&self, frame: Frame) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut layers = self.layers.iter().enumerate().peekable();
        while let Some((first, layer)) = layers.next() {
            let fold = self.fold_layer(layer);
            let (mut last, mut steps) = (first, layer.iter().collect::<Vec<_>>());
            while let Some((position, more)) =
                layers.next_if(|(_, more)| fold.is_some() && self.fold_layer(more) == fold)
            {
                last = position;
                steps.extend(more);
            }
            let place = match last {
                _ if last > first => format!("{}–{}", first + 1, last + 1),
                _ => (first + 1).to_string(),
            };
            // The number has a fixed width, so that columns do not move when several layers become
            // one line.
            let place = frame.paint.dim(format!("{place:>5}"));
            let is_shown =
                |step: &&&String| self.steps.get(**step).is_some_and(|view| !view.can_fold());
            let shown_steps: Vec<&String> = steps.iter().filter(is_shown).copied().collect();
            lines.push(self.draw_folded(&place, &steps, shown_steps.is_empty(), frame.paint));
            for step in shown_steps {
                lines.push(self.draw_step("     ", step, frame));
                lines.extend(self.draw_parts("       ", step, frame));
            }
        }
        lines
    }

    fn fold_layer(&self, layer: &[String]) -> Option<FoldedState> {
        let mut steps = layer.iter().map(|step| self.steps.get(step));
        if steps.clone().all(|step| step.is_none()) {
            return Some(FoldedState::Pending);
        }
        if !steps.clone().all(|step| step.is_some_and(StepView::can_fold)) {
            return None;
        }
        let is_done =
            steps.all(|step| step.is_some_and(|view| view.state == ShownState::Succeeded));
        Some(if is_done { FoldedState::Succeeded } else { FoldedState::Skipped })
    }

    fn draw_folded(&self, place: &str, steps: &[&String], is_all: bool, paint: Paint) -> Line {
        let known_steps = || steps.iter().filter_map(|step| self.steps.get(*step));
        let (over, total) = (known_steps().filter(|step| step.is_finished()).count(), steps.len());
        let in_state = |state| known_steps().filter(|step| step.state == state).count();
        let [failed, skipped, cancelled] =
            [ShownState::Failed, ShownState::Skipped, ShownState::Cancelled].map(in_state);
        let state = match over {
            0 if is_all => ShownState::Pending,
            _ if over < total => ShownState::Running,
            _ if failed > 0 => ShownState::Failed,
            _ if skipped + cancelled > 0 => ShownState::Skipped,
            _ => ShownState::Succeeded,
        };
        let mark =
            if state == ShownState::Running { paint.cyan("▸") } else { state_mark(state, paint) };
        let names: Vec<String> = steps.iter().take(3).map(|step| plain::safe_line(step)).collect();
        let more = if total > names.len() { ", …" } else { "" };
        let names = paint.dim(format!("{}{more}", names.join(", ")));
        let mut text = match state {
            ShownState::Running => format!("{over}/{total} steps"),
            _ => count_noun(total, "step"),
        };
        for (n, word) in [(failed, "failed"), (skipped, "skipped"), (cancelled, "cancelled")] {
            if n > 0 {
                let _ = write!(text, ", {n} {word}");
            }
        }
        Line { rank: 2 + u8::from(is_all), text: format!("{place} {mark} {text}  {names}") }
    }

    fn draw_step(&self, number: &str, name: &str, frame: Frame) -> Line {
        let paint = frame.paint;
        let text = plain::safe_line(name);
        let Some(step) = self.steps.get(name) else {
            let mark = state_mark(ShownState::Pending, paint);
            return Line { rank: 3, text: format!("{number} {mark} {}", paint.dim(text)) };
        };
        let StepLine { mark, rest, essential_columns } = self.draw_outcome(name, step, frame);
        // The name gets the columns that the outcome leaves, so a narrow window cuts the name
        // first.
        let columns_after_name = if essential_columns > 0 { 2 + essential_columns } else { 0 };
        let taken = paint::text_width(number) + paint::text_width(&mark) + 2 + columns_after_name;
        let shown_text =
            paint::cut_to_width(&text, frame.columns.saturating_sub(taken).max(MIN_NAME_COLUMNS));
        let padding = " ".repeat(frame.name_columns.saturating_sub(paint::text_width(&shown_text)));
        let rank = match step.state {
            _ if step.can_fold() => 3,
            ShownState::Running | ShownState::Retrying => 1,
            _ => 0,
        };
        let text = format!("{number} {mark} {shown_text}{padding}  {rest}").trim_end().to_owned();
        Line { rank, text }
    }

    fn draw_outcome(&self, name: &str, step: &StepView, frame: Frame) -> StepLine {
        let attempt = |attempt: u64| match self.max_attempts.get(name) {
            Some(max) if *max >= attempt => format!("{attempt} of {max}"),
            _ => attempt.to_string(),
        };
        step.draw(frame.now, attempt, frame.paint)
    }

    fn draw_parts(&self, indent: &str, step: &str, frame: Frame) -> Vec<Line> {
        let columns_after_name = self.steps.range(step.to_owned()..);
        columns_after_name
            .take_while(|(name, _)| name.starts_with(step))
            .filter(|(name, _)| !self.plan_steps.contains(*name) && is_part_of_step(step, name))
            .map(|(name, _)| self.draw_step(indent, name, frame))
            .collect()
    }

    fn draw_bar(&self, now: Timestamp, paint: Paint) -> Option<String> {
        let total = self.plan_steps.len();
        if total < 2 || self.finished_steps == 0 {
            return None;
        }
        let full = self.finished_steps.min(total) * BAR_COLUMNS / total;
        let bar = format!(
            "{}{}",
            paint.green("█".repeat(full)),
            paint.dim("░".repeat(BAR_COLUMNS - full))
        );
        let elapsed = self.started_at.and_then(|from| ms_between(from, now)).map(format_duration);
        let elapsed = paint.dim(elapsed.unwrap_or_default());
        Some(format!("{bar} {}/{total} steps  {elapsed}", self.finished_steps))
    }
}

fn is_part_of_step(step: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(step) else { return false };
    rest.starts_with(" › ") || rest.starts_with('[') || rest.starts_with(" (")
}

fn limit_lines(lines: &mut Vec<Line>, max: usize, paint: Paint) {
    if lines.len() <= max {
        return;
    }
    let mut places: Vec<usize> = (0..lines.len()).collect();
    places.sort_by_key(|place| lines[*place].rank);
    let kept: BTreeSet<usize> = places.into_iter().take(max.saturating_sub(1)).collect();
    let left_out = lines.len() - kept.len();
    let mut place = 0..;
    lines.retain(|_| place.next().is_some_and(|place| kept.contains(&place)));
    lines.push(Line { rank: 0, text: paint.dim(format!("    … and {left_out} more")) });
}
