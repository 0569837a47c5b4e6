//! Draws one step. The live view, the output for pipes and reports use this module.

use shared::clock::Timestamp;

use super::{
    format::{clip_text, format_duration, ms_between},
    paint::{self, Paint},
    plain,
};
use crate::types::ShownState;

const BAR_COLUMNS: usize = 16;
const MAX_MESSAGE_CHARS: usize = 60;
/// The frames of the sign of a running step. Each frame is shown for `SPINNER_FRAME_MS`.
const SPINNER_FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const SPINNER_FRAME_MS: i64 = 80;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepView {
    pub state: ShownState,
    pub since: Option<Timestamp>,
    pub attempt: u64,
    pub progress: Option<Progress>,
    pub duration_ms: Option<f64>,
    pub detail: Option<String>,
    pub next: Option<NextAction>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub done: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum NextAction {
    Attempt { attempt: u64, at: Option<Timestamp> },
    Command(String),
}

pub struct StepLine {
    pub mark: String,
    pub rest: String,
    /// Number of columns of `rest` that must stay visible, because they contain a time or a code.
    pub essential_columns: usize,
}

impl StepView {
    pub fn is_finished(&self) -> bool {
        use ShownState::{Pending, Retrying, Running, Waiting};
        !matches!(self.state, Pending | Running | Retrying | Waiting)
    }

    /// Returns `true` if the step does not need a line of its own when its layer is drawn as one
    /// line.
    pub fn can_fold(&self) -> bool {
        matches!(self.state, ShownState::Succeeded | ShownState::Skipped | ShownState::Cancelled)
    }

    /// Draws the current state. `attempt` formats the number of an attempt.
    pub fn draw(&self, now: Timestamp, attempt: impl Fn(u64) -> String, paint: Paint) -> StepLine {
        let detail = self.detail.as_deref().map(plain::safe_line);
        let mut rest = Vec::new();
        let essential_columns;
        match &self.next {
            _ if self.state == ShownState::Running => {
                let elapsed = self.since.and_then(|since| ms_between(since, now)).unwrap_or(0.0);
                rest.push(paint.dim(format_duration(elapsed)));
                if self.attempt > 1 {
                    rest.push(format!("attempt {}", attempt(self.attempt)));
                }
                essential_columns = paint::text_width(&rest.join("  "));
                rest.extend(self.progress.as_ref().map(Progress::draw));
            }
            Some(NextAction::Attempt { attempt: number, at }) => {
                let left = at.and_then(|at| ms_between(now, at)).unwrap_or(0.0);
                let number = attempt(*number);
                rest.push(paint.yellow(format!("attempt {number} in {}", format_duration(left))));
                essential_columns = paint::text_width(&rest[0]);
                rest.extend(detail.map(|detail| paint.dim(detail)));
            }
            Some(NextAction::Command(command)) => {
                rest.extend(detail.map(|detail| paint.yellow(detail)));
                rest.push(command.clone());
                essential_columns = 0;
            }
            None => {
                rest.extend(self.duration_ms.map(|ms| paint.dim(format_duration(ms))));
                rest.extend(state_word(self.state).map(|word| paint.dim(word)));
                let code = detail.as_deref().and_then(parse_leading_code).map(paint::text_width);
                let gap = if rest.is_empty() || code.is_none() { 0 } else { 2 };
                essential_columns = paint::text_width(&rest.join("  ")) + gap + code.unwrap_or(0);
                rest.extend(detail.map(|detail| match self.state {
                    ShownState::Failed => paint.red(detail),
                    _ => paint.dim(detail),
                }));
            }
        }
        let turn = usize::try_from(now.timestamp_millis() / SPINNER_FRAME_MS % 10).unwrap_or(0);
        let mark = match self.state {
            ShownState::Running => paint.cyan(SPINNER_FRAMES[turn]),
            state => state_mark(state, paint),
        };
        StepLine { mark, rest: rest.join("  "), essential_columns }
    }

    /// Draws the outcome of the step as one line. Returns `None` for a pending or running step.
    pub fn draw_outcome_line(&self, name: &str, width: usize, paint: Paint) -> Option<String> {
        if matches!(self.state, ShownState::Pending | ShownState::Running) {
            return None;
        }
        let name = plain::safe_line(name);
        let took = self.duration_ms.filter(|_| self.state != ShownState::Waiting);
        let detail = self.detail.as_deref().map(plain::safe_line).map(|detail| match &self.next {
            // Of the commands, shows only `faber signal`. Commands that answer a question are
            // printed later, when the whole execution waits.
            Some(NextAction::Command(command)) if command.starts_with("faber signal ") => {
                format!("{detail}: {command}")
            }
            _ => detail,
        });
        let detail = detail.map(|detail| match self.state {
            ShownState::Failed | ShownState::CompensationFailed => paint.red(detail),
            ShownState::Waiting => paint.yellow(detail),
            _ => paint.dim(detail),
        });
        let took = took.map(|ms| paint.dim(format_duration(ms)));
        let word = state_word(self.state).map(|word| paint.dim(word));
        let rest: Vec<String> = [took, word, detail].into_iter().flatten().collect();
        let padding = " ".repeat(width.saturating_sub(paint::text_width(&name)));
        let mark = state_mark(self.state, paint);
        Some(format!("{mark} {name}{padding}  {}", rest.join("  ")).trim_end().to_owned())
    }
}

impl Progress {
    pub fn draw(&self) -> String {
        let Self { done, total, message } = self;
        let mut text = match total {
            Some(total) => {
                #[expect(clippy::cast_possible_truncation, reason = "a share of a short bar")]
                #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
                #[expect(clippy::cast_precision_loss, reason = "a bar is short")]
                let full = ((done / total).clamp(0.0, 1.0) * BAR_COLUMNS as f64) as usize;
                format!("{}{} {done}/{total}", "█".repeat(full), "░".repeat(BAR_COLUMNS - full))
            }
            None => done.to_string(),
        };
        if let Some(message) = message {
            text.push_str("  ");
            let line = message.lines().next().unwrap_or_default();
            text.push_str(&clip_text(&plain::safe_line(line), MAX_MESSAGE_CHARS));
        }
        text
    }
}

fn parse_leading_code(detail: &str) -> Option<&str> {
    let code = detail.split_once(": ").map_or(detail, |(code, _)| code);
    (!code.contains(' ')).then_some(code)
}

pub fn state_mark(state: ShownState, paint: Paint) -> String {
    match state {
        ShownState::Pending => paint.dim("·"),
        ShownState::Running => paint.cyan("●"),
        ShownState::Succeeded => paint.green("✓"),
        ShownState::Failed => paint.red("✗"),
        ShownState::Retrying => paint.yellow("↻"),
        ShownState::Skipped | ShownState::Cancelled => paint.dim("○"),
        ShownState::Waiting => paint.yellow("?"),
        ShownState::Compensated => paint.yellow("↩"),
        ShownState::CompensationFailed => paint.red("!"),
    }
}

fn state_word(state: ShownState) -> Option<&'static str> {
    Some(match state {
        ShownState::Skipped => "skipped",
        ShownState::Cancelled => "cancelled",
        ShownState::Retrying => "will be tried again",
        ShownState::Compensated => "undone",
        ShownState::CompensationFailed => "could not be undone",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(state: ShownState, duration_ms: Option<f64>, detail: Option<&str>, expected: Expect) {
        let detail = detail.map(str::to_owned);
        let step = StepView { state, duration_ms, detail, ..StepView::default() };
        expected.assert_eq(&step.draw_outcome_line("createBlog", 12, Paint::new(false)).unwrap());
    }

    #[test]
    fn a_step_line_shows_the_outcome() {
        check(ShownState::Succeeded, Some(12.3), None, expect!["✓ createBlog    12 ms"]);
        let failed = Some("tool.failed");
        check(
            ShownState::Failed,
            Some(1.25),
            failed,
            expect!["✗ createBlog    1.2 ms  tool.failed"],
        );
        check(ShownState::Skipped, None, None, expect!["○ createBlog    skipped"]);
        let waits = Some("waits for approval");
        check(ShownState::Waiting, None, waits, expect!["? createBlog    waits for approval"]);
    }

    #[test]
    fn a_progress_bar_shows_the_share() {
        for (done, total, message, expected) in [
            (250.0, Some(1_000.0), None, "████░░░░░░░░░░░░ 250/1000"),
            (5.0, Some(4.0), Some("done"), "████████████████ 5/4  done"),
            (-1.0, Some(4.0), None, "░░░░░░░░░░░░░░░░ -1/4"),
            (3.0, None, Some("reading\nmore"), "3  reading"),
        ] {
            let progress = Progress { done, total, message: message.map(str::to_owned) };
            assert_eq!(progress.draw(), expected);
        }
    }
}
