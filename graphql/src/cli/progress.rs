//! Shows an execution while it runs: lines that move on a terminal, plain lines elsewhere.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shared::clock::{Clock, WallClock};

use super::{
    account::named,
    events::{Far, How, News, Next},
    paint::Paint,
    plain, render,
    screen::Screen,
    stage::{self, Layout, Size, Stage},
};

/// How often what moves is drawn again.
const TICK: Duration = Duration::from_millis(80);
/// How many steps that are kept are named.
const KEPT: usize = 6;
/// The most lines that stay when it is over.
const LEFT: usize = 60;

/// Shows an execution while it runs.
pub(super) struct Progress {
    screen: Screen,
    /// How wide the names of the steps are.
    width: usize,
    live: Option<Live>,
}

struct Live {
    bar: ProgressBar,
    stage: Arc<Mutex<Stage>>,
}

impl Progress {
    /// Prepares to show an execution of a plan.
    pub(super) fn new(screen: &Screen, layout: Layout) -> Self {
        let width = layout.width();
        let live = screen.is_live.then(|| Live::new(Stage::new(layout), screen.err));
        Self { screen: screen.clone(), width, live }
    }

    /// Tells something.
    pub(super) fn tell(&mut self, news: &News, n_over: usize) {
        let told = line(news, self.width, self.screen.err);
        match &self.live {
            Some(live) => {
                live.stage.lock().unwrap_or_else(PoisonError::into_inner).tell(news, n_over);
                if let (News::Note(_), Some(line)) = (news, told) {
                    live.bar.println(self.screen.err.drawn(&line));
                }
            }
            None => told.into_iter().for_each(|it| self.screen.say(&it)),
        }
    }

    /// Leaves nothing that moves behind: how each step stands.
    pub(super) fn end(&mut self) {
        let Some(Live { bar, stage }) = self.live.take() else { return };
        bar.finish_and_clear();
        let stage = stage.lock().unwrap_or_else(PoisonError::into_inner);
        let size = Size { lines: LEFT, ..size() };
        for line in stage.left(WallClock.now(), size, self.screen.err) {
            self.screen.say(&line);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

impl Live {
    fn new(stage: Stage, paint: Paint) -> Self {
        let stage = Arc::new(Mutex::new(stage));
        let shown = Arc::clone(&stage);
        let style = style().with_key(
            "stage",
            move |_: &indicatif::ProgressState, out: &mut dyn std::fmt::Write| {
                let stage = shown.lock().unwrap_or_else(PoisonError::into_inner);
                let lines = stage.lines(WallClock.now(), size(), paint);
                // What cannot be drawn now is drawn at the next tick.
                let _ = out.write_str(&paint.drawn(&lines.join("\n")));
            },
        );
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style);
        bar.enable_steady_tick(TICK);
        Self { bar, stage }
    }
}

/// Returns how large the window is.
fn size() -> Size {
    let (lines, columns) = Term::stderr().size();
    Size { lines: lines.into(), columns: columns.into() }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{stage}").expect("the template is a literal that is tested")
}

/// Writes news as one line, if they are worth one.
pub(super) fn line(news: &News, width: usize, paint: Paint) -> Option<String> {
    let (step, how, took_ms, detail, next) = match news {
        News::Started { .. } | News::Progress { .. } | News::Allowed { .. } => return None,
        News::Kept(steps) => {
            let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
            return Some(paint.dim(format!("· kept: {}", named(&steps, KEPT))));
        }
        News::Note(note) => return Some(paint.dim(format!("· {}", plain::line(note)))),
        News::Ended { step, how, took_ms, detail, next } => {
            (plain::line(step), *how, *took_ms, detail.as_deref().map(plain::line), next)
        }
    };
    let (mark, word) = (stage::mark(how, paint), stage::word(how));
    let took = took_ms.filter(|_| how != How::Waiting).map(|it| paint.dim(duration(it)));
    let detail = detail.map(|it| match next {
        // Whom others wait for is told what to type when everything waits.
        Some(Next::Command(command)) if command.starts_with("faber signal ") => {
            format!("{it}: {command}")
        }
        _ => it,
    });
    let detail = detail.map(|it| match how {
        How::Failed | How::Stuck => paint.red(it),
        How::Waiting => paint.yellow(it),
        _ => paint.dim(it),
    });
    let padding = " ".repeat(width.saturating_sub(console::measure_text_width(&step)));
    let rest = [took, word.map(|it| paint.dim(it)), detail];
    let rest: Vec<String> = rest.into_iter().flatten().collect();
    Some(format!("{mark} {step}{padding}  {}", rest.join("  ")).trim_end().to_owned())
}

/// How wide a bar is.
const BAR: usize = 16;

/// Writes how far something is: as a bar where the end is known.
pub(super) fn progress(Far { done, total, message }: &Far) -> String {
    let mut text = match total {
        Some(total) => {
            #[expect(clippy::cast_possible_truncation, reason = "a share of a short bar")]
            #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
            #[expect(clippy::cast_precision_loss, reason = "a bar is short")]
            let full = ((done / total).clamp(0.0, 1.0) * BAR as f64) as usize;
            format!("{}{} {done}/{total}", "█".repeat(full), "░".repeat(BAR - full))
        }
        None => done.to_string(),
    };
    if let Some(message) = message {
        text.push_str("  ");
        text.push_str(&render::clip(&plain::line(message.lines().next().unwrap_or_default()), 60));
    }
    text
}

/// Writes how long something took as people say it.
pub(super) fn duration(ms: f64) -> String {
    if ms < 9.95 {
        format!("{ms:.1} ms")
    } else if ms < 999.5 {
        format!("{ms:.0} ms")
    } else if ms < 59_950.0 {
        format!("{:.1} s", ms / 1_000.0)
    } else {
        let seconds = (ms / 1_000.0).round();
        format!("{:.0} min {:.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(how: How, took_ms: Option<f64>, detail: Option<&str>, expected: Expect) {
        let detail = detail.map(str::to_owned);
        let step = "createBlog".to_owned();
        let news = News::Ended { step, how, took_ms, detail, next: None };
        expected.assert_eq(&line(&news, 12, Paint::new(false)).unwrap());
    }

    #[test]
    fn lines_say_how_a_step_ended() {
        check(How::Succeeded, Some(12.3), None, expect!["✓ createBlog    12 ms"]);
        let failed = Some("tool.failed");
        check(How::Failed, Some(1.25), failed, expect!["✗ createBlog    1.2 ms  tool.failed"]);
        check(How::Skipped, None, None, expect!["○ createBlog    skipped"]);
        let waits = Some("waits for approval");
        check(How::Waiting, None, waits, expect!["? createBlog    waits for approval"]);
    }

    #[test]
    fn bars_show_how_far_it_is() {
        for (done, total, message, expected) in [
            (250.0, Some(1_000.0), None, "████░░░░░░░░░░░░ 250/1000"),
            (5.0, Some(4.0), Some("done"), "████████████████ 5/4  done"),
            (-1.0, Some(4.0), None, "░░░░░░░░░░░░░░░░ -1/4"),
            (3.0, None, Some("reading\nmore"), "3  reading"),
        ] {
            let far = Far { done, total, message: message.map(str::to_owned) };
            assert_eq!(progress(&far), expected);
        }
    }

    #[test]
    fn the_template_is_one() {
        style();
    }

    #[test]
    fn durations_are_short() {
        for (ms, expected) in [
            (0.04, "0.0 ms"),
            (9.0, "9.0 ms"),
            (12.3, "12 ms"),
            (1_500.0, "1.5 s"),
            (999.7, "1.0 s"),
            (59_949.0, "59.9 s"),
            (59_970.0, "1 min 0 s"),
            (61_000.0, "1 min 1 s"),
            (119_999.0, "2 min 0 s"),
            (7_200_000.0, "120 min 0 s"),
        ] {
            assert_eq!(duration(ms), expected);
        }
    }
}
