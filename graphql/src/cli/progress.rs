//! Shows an execution while it runs: lines that move on a terminal, plain lines elsewhere.

use std::{collections::BTreeMap, time::Duration};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{
    events::{Far, How, News},
    paint::Paint,
    render,
    screen::Screen,
};

/// How many running steps have a line of their own; people cannot follow more.
const LINES: usize = 12;
/// How often the lines move.
const TICK: Duration = Duration::from_millis(80);
/// How many steps are over, as a bar.
const TOTAL: &str = "{bar:24.green/dim} {pos}/{len} steps  {elapsed:.dim}";

/// Shows an execution while it runs.
pub(super) struct Progress {
    screen: Screen,
    /// How wide the names of the steps are.
    width: usize,
    live: Option<Live>,
}

struct Live {
    all: MultiProgress,
    n_steps: u64,
    /// There once a step is over and others are not: before that it says nothing.
    total: Option<ProgressBar>,
    steps: BTreeMap<String, ProgressBar>,
}

impl Progress {
    /// Prepares to show an execution of these steps.
    pub(super) fn new(screen: &Screen, steps: &[String]) -> Self {
        let widths = steps.iter().map(|it| console::measure_text_width(it));
        let width = widths.max().unwrap_or(0).min(40);
        let live = screen.is_live.then(|| Live::new(steps.len()));
        Self { screen: screen.clone(), width, live }
    }

    /// Tells something.
    pub(super) fn tell(&mut self, news: &News, n_over: usize) {
        if let Some(live) = &mut self.live {
            live.tell(news, n_over);
        }
        if let Some(line) = line(news, self.width, self.screen.err) {
            match &self.live {
                // A terminal that is gone needs no line.
                Some(live) => drop(live.all.println(line)),
                None => self.screen.say(&line),
            }
        }
    }

    /// Leaves nothing that moves behind.
    pub(super) fn end(&mut self) {
        if let Some(live) = self.live.take() {
            if let Some(total) = &live.total {
                total.finish_and_clear();
            }
            for bar in live.steps.values() {
                bar.finish_and_clear();
            }
            // A terminal that is gone needs no clearing.
            let _ = live.all.clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

impl Live {
    fn new(n_steps: usize) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        Self { all, n_steps: n_steps as u64, total: None, steps: BTreeMap::new() }
    }

    /// Shows how many steps are over.
    fn count(&mut self, n_over: u64) {
        if let Some(total) = &self.total {
            total.set_position(n_over);
        } else if (1..self.n_steps).contains(&n_over) {
            let total = ProgressBar::new(self.n_steps).with_position(n_over);
            total.set_style(style(TOTAL));
            let total = self.all.add(total);
            total.enable_steady_tick(TICK);
            self.total = Some(total);
        }
    }

    fn tell(&mut self, news: &News, n_over: usize) {
        // First, so that no line is drawn beside a number that is not true any more.
        self.count(n_over as u64);
        match news {
            News::Started { step, attempt } if self.steps.len() < LINES => {
                let bar = ProgressBar::new_spinner();
                let bar = match &self.total {
                    Some(total) => self.all.insert_before(total, bar),
                    None => self.all.add(bar),
                };
                bar.set_style(style("{spinner:.cyan} {msg}  {elapsed:.dim}"));
                let again =
                    if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
                bar.set_message(format!("{step}{again}"));
                bar.enable_steady_tick(TICK);
                self.steps.insert(step.clone(), bar);
            }
            News::Ended { step, .. } => {
                if let Some(bar) = self.steps.remove(step) {
                    bar.finish_and_clear();
                }
            }
            News::Progress { step, far } => {
                if let Some(bar) = self.steps.get(step) {
                    bar.set_message(format!("{step}  {}", progress(far)));
                }
            }
            News::Started { .. } | News::Note(_) => (),
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are literals that are tested")
}

/// Writes news as one line, if they are worth one.
pub(super) fn line(news: &News, width: usize, paint: Paint) -> Option<String> {
    let (step, how, took_ms, detail) = match news {
        News::Started { .. } | News::Progress { .. } => return None,
        News::Note(note) => return Some(paint.dim(format!("· {note}"))),
        News::Ended { step, how, took_ms, detail } => (step, *how, *took_ms, detail.as_deref()),
    };
    let mark = match how {
        How::Succeeded => paint.green("✓"),
        How::Failed => paint.red("✗"),
        How::Retrying => paint.yellow("↻"),
        How::Skipped | How::Cancelled => paint.dim("○"),
        How::Waiting => paint.yellow("?"),
        How::Compensated => paint.yellow("↩"),
        How::Stuck => paint.red("!"),
    };
    let word = match how {
        How::Skipped => Some("skipped"),
        How::Cancelled => Some("cancelled"),
        How::Retrying => Some("will be tried again"),
        How::Compensated => Some("undone"),
        How::Stuck => Some("could not be undone"),
        _ => None,
    };
    let took = took_ms.filter(|_| how != How::Waiting).map(|it| paint.dim(duration(it)));
    let detail = detail.map(|it| match how {
        How::Failed | How::Stuck => paint.red(it),
        How::Waiting => paint.yellow(it),
        _ => paint.dim(it),
    });
    let padding = " ".repeat(width.saturating_sub(console::measure_text_width(step)));
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
        text.push_str(&render::clip(message.lines().next().unwrap_or_default(), 60));
    }
    text
}

/// Writes how long something took as people say it.
pub(super) fn duration(ms: f64) -> String {
    if ms < 9.95 {
        format!("{ms:.1} ms")
    } else if ms < 1_000.0 {
        format!("{ms:.0} ms")
    } else if ms < 60_000.0 {
        format!("{:.1} s", ms / 1_000.0)
    } else {
        format!("{:.0} min {:.0} s", (ms / 60_000.0).floor(), (ms / 1_000.0) % 60.0)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(how: How, took_ms: Option<f64>, detail: Option<&str>, expected: Expect) {
        let detail = detail.map(str::to_owned);
        let news = News::Ended { step: "createBlog".to_owned(), how, took_ms, detail };
        expected.assert_eq(&line(&news, 12, Paint::new(false)).unwrap());
    }

    #[test]
    fn lines_say_how_a_step_ended() {
        check(How::Succeeded, Some(12.3), None, expect!["✓ createBlog    12 ms"]);
        let failed = Some("tool.failed: no such author");
        check(
            How::Failed,
            Some(1.25),
            failed,
            expect!["✗ createBlog    1.2 ms  tool.failed: no such author"],
        );
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
    fn the_templates_are_templates() {
        style(TOTAL);
        style("{spinner:.cyan} {msg}  {elapsed:.dim}");
    }

    #[test]
    fn steps_are_counted_once_one_is_over_and_to_the_last() {
        let mut live = Live::new(3);
        let mut shown = |news: &News, n_over: usize| {
            live.tell(news, n_over);
            live.total.as_ref().map(ProgressBar::position)
        };
        let step = || "a".to_owned();
        let ended = News::Ended { step: step(), how: How::Succeeded, took_ms: None, detail: None };
        assert_eq!(shown(&News::Started { step: step(), attempt: 1 }, 0), None);
        assert_eq!(shown(&ended, 1), Some(1));
        assert_eq!(shown(&News::Started { step: step(), attempt: 1 }, 1), Some(1));
        assert_eq!(shown(&ended, 3), Some(3));
        let mut live = Live::new(1);
        live.tell(&ended, 1);
        assert!(live.total.is_none(), "one step is no progress");
    }

    #[test]
    fn durations_are_short() {
        for (ms, expected) in [
            (0.04, "0.0 ms"),
            (9.0, "9.0 ms"),
            (12.3, "12 ms"),
            (1_500.0, "1.5 s"),
            (61_000.0, "1 min 1 s"),
        ] {
            assert_eq!(duration(ms), expected);
        }
    }
}
