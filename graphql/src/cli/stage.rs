//! The screen of an execution that runs: its plan by layers, each step as it stands now.
//!
//! A layer that is over, or not begun, is one line; what runs, waits or failed has a line of its
//! own. It is never taller than the window.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::Value;
use shared::clock::Timestamp;

use super::{
    account::milliseconds,
    events::{Far, How, News, Next},
    paint::{self, Paint},
    plain,
    progress::{duration, progress},
    render::list,
};

/// The most steps of a plan whose steps all have a line.
const STEPS: usize = 20;
/// The most columns of a step's name.
const NAME: usize = 40;
/// The columns that a step's name keeps, however narrow the window is.
const LEAST: usize = 4;
/// How wide the bar is.
const BAR: usize = 24;
/// What turns while something runs, and for how many milliseconds each is shown.
const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
const TURN: i64 = 80;

/// The steps of a plan by layers, and how often each may be tried.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    layers: Vec<Vec<String>>,
    attempts: BTreeMap<String, u64>,
}

impl Layout {
    /// Reads a plan as the API tells it, with `layers` and `tools`.
    pub(super) fn of(plan: &Value) -> Self {
        let named = |it: &Value| it.as_str().map(str::to_owned);
        let layers = list(&plan["layers"]).map(|it| list(it).filter_map(named).collect());
        let attempts = list(&plan["tools"]).filter_map(|it| {
            Some((named(&it["stepId"])?, it["retry"]["maxAttempts"].as_u64().unwrap_or(1)))
        });
        Self { layers: layers.collect(), attempts: attempts.collect() }
    }

    /// Returns how wide names are.
    pub(super) fn width(&self) -> usize {
        let widths = self.layers.iter().flatten().map(|it| paint::width(it));
        widths.max().unwrap_or(0).min(NAME)
    }

    fn n_steps(&self) -> usize {
        self.layers.iter().map(Vec::len).sum()
    }
}

/// How large a window is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// How many lines it has.
    pub(super) lines: usize,
    /// How many columns.
    pub(super) columns: usize,
}

/// How a step stands.
#[derive(Clone, Debug)]
enum Stand {
    Runs {
        since: Option<Timestamp>,
        attempt: u64,
        far: Option<Far>,
    },
    /// It does not run, for now or for good.
    Ended {
        how: How,
        took_ms: Option<f64>,
        detail: Option<String>,
        next: Option<Next>,
    },
}

impl Stand {
    fn is_over(&self) -> bool {
        matches!(self, Self::Ended { how, .. } if !matches!(how, How::Retrying | How::Waiting))
    }

    fn is(&self, how: How) -> bool {
        matches!(self, Self::Ended { how: it, .. } if *it == how)
    }

    /// Returns whether there is nothing to see.
    fn is_quiet(&self) -> bool {
        let Self::Ended { how, .. } = self else { return false };
        matches!(how, How::Succeeded | How::Skipped | How::Cancelled)
    }
}

/// An execution as it is drawn.
pub(super) struct Stage {
    layout: Layout,
    width: usize,
    stands: BTreeMap<String, Stand>,
    /// The steps of the plan; what else happens belongs to parts of it.
    own: BTreeSet<String>,
    began: Option<Timestamp>,
    n_over: usize,
}

/// A line, and how much it matters where there is no room: the less, the more. What went wrong or
/// waits for somebody comes before what runs, and that before the rest.
struct Line(u8, String);

/// What stands behind the name of a step.
struct Told {
    mark: String,
    rest: String,
    /// How many columns of the rest say how long it took, and the code of what went wrong.
    said: usize,
}

/// The columns of a window, and those of them that names are padded to.
#[derive(Clone, Copy, Debug)]
struct Room {
    columns: usize,
    names: usize,
}

/// What the steps of a layer have in common that is drawn as one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    /// None of them has begun.
    Ahead,
    /// All of them succeeded.
    Done,
    /// All of them are over, none has failed, and not all did something.
    Left,
}

impl Stage {
    pub(super) fn new(layout: Layout) -> Self {
        let own = layout.layers.iter().flatten().cloned().collect();
        let width = layout.width();
        Self { width, own, layout, stands: BTreeMap::new(), began: None, n_over: 0 }
    }

    /// Takes in something that happened, `n_over` steps being over now.
    pub(super) fn tell(&mut self, news: &News, n_over: usize) {
        self.n_over = n_over;
        match news {
            News::Started { step, attempt, at } => {
                self.began = self.began.or(*at);
                let stand = Stand::Runs { since: *at, attempt: *attempt, far: None };
                self.stands.insert(step.clone(), stand);
            }
            News::Progress { step, far } => {
                if let Some(Stand::Runs { far: now, .. }) = self.stands.get_mut(step) {
                    *now = Some(far.clone());
                }
            }
            News::Ended { step, how, took_ms, detail, next } => {
                let (took_ms, detail, next) = (*took_ms, detail.clone(), next.clone());
                let stand = Stand::Ended { how: *how, took_ms, detail, next };
                if stand.is_over() {
                    // Its parts do nothing any more, whatever was last seen of them.
                    self.stands.retain(|it, part| part.is_over() || !is_part(step, it));
                }
                if self.own.contains(step) || !stand.is_quiet() {
                    self.stands.insert(step.clone(), stand);
                } else {
                    // What parts did well has been seen.
                    self.stands.remove(step);
                }
            }
            News::Kept(steps) => {
                for step in steps {
                    let detail = Some("kept".to_owned());
                    let (how, took_ms, next) = (How::Succeeded, None, None);
                    self.stands.insert(step.clone(), Stand::Ended { how, took_ms, detail, next });
                }
            }
            News::Allowed { step } => drop(self.stands.remove(step)),
            News::Note(_) => (),
        }
    }

    /// Draws everything into a window.
    pub(super) fn lines(&self, now: Timestamp, size: Size, paint: Paint) -> Vec<String> {
        let columns = size.columns.saturating_sub(1).max(10);
        let mut lines = self.all(now, columns, paint);
        // One for the sum, and one for the cursor.
        keep(&mut lines, size.lines.saturating_sub(2).max(1), paint);
        let mut lines: Vec<String> = lines.into_iter().map(|it| it.1).collect();
        lines.extend(self.sum(now, paint));
        lines.into_iter().map(|it| paint::cut(&it, columns)).collect()
    }

    /// Draws what stays when nobody watches any more.
    pub(super) fn left(&self, now: Timestamp, size: Size, paint: Paint) -> Vec<String> {
        let columns = size.columns.saturating_sub(1).max(10);
        let mut lines = self.all(now, columns, paint);
        keep(&mut lines, size.lines.max(1), paint);
        lines.into_iter().map(|it| paint::cut(&it.1, columns)).collect()
    }

    fn all(&self, now: Timestamp, columns: usize, paint: Paint) -> Vec<Line> {
        let room = self.room(now, columns, paint);
        let is_short = self.layout.n_steps() <= STEPS;
        let mut lines = Vec::new();
        let mut layers = self.layout.layers.iter().enumerate().peekable();
        while let Some((at, layer)) = layers.next() {
            let number = |n: usize| paint.dim(format!("{:>3}", n + 1));
            if is_short {
                for (place, step) in layer.iter().enumerate() {
                    let number = if place == 0 { number(at) } else { "   ".to_owned() };
                    lines.push(self.line(&number, step, now, room, paint));
                    lines.extend(self.parts("     ", step, now, room, paint));
                }
                continue;
            }
            let fold = self.fold(layer);
            let mut steps: Vec<&String> = layer.iter().collect();
            let mut until = at;
            while let (Some(fold), Some((next, more))) = (fold, layers.peek()) {
                if self.fold(more) != Some(fold) {
                    break;
                }
                until = *next;
                steps.extend(*more);
                layers.next();
            }
            let place = match until {
                _ if until > at => format!("{}–{}", at + 1, until + 1),
                _ => (at + 1).to_string(),
            };
            // As wide as most get, so that nothing moves aside when layers become one line.
            let place = paint.dim(format!("{place:>5}"));
            let told =
                steps.iter().filter(|it| self.stands.get(**it).is_some_and(|it| !it.is_quiet()));
            let told: Vec<&&String> = told.collect();
            lines.push(self.folded(&place, &steps, told.len(), paint));
            for step in told {
                lines.push(self.line("     ", step, now, room, paint));
                lines.extend(self.parts("       ", step, now, room, paint));
            }
        }
        lines
    }

    /// Returns what a whole layer is, where nothing in it is worth a line of its own.
    fn fold(&self, layer: &[String]) -> Option<Fold> {
        let mut stands = layer.iter().map(|it| self.stands.get(it));
        if stands.clone().all(|it| it.is_none()) {
            return Some(Fold::Ahead);
        }
        if !stands.clone().all(|it| it.is_some_and(Stand::is_quiet)) {
            return None;
        }
        let is_done = stands.all(|it| it.is_some_and(|it| it.is(How::Succeeded)));
        Some(if is_done { Fold::Done } else { Fold::Left })
    }

    /// Draws many steps as one line, `told` of them having one of their own.
    fn folded(&self, place: &str, steps: &[&String], told: usize, paint: Paint) -> Line {
        let count = |is: &dyn Fn(&Stand) -> bool| {
            steps.iter().filter(|it| self.stands.get(**it).is_some_and(is)).count()
        };
        let (over, n) = (count(&Stand::is_over), steps.len());
        let ends = [How::Failed, How::Skipped, How::Cancelled].map(|how| count(&|it| it.is(how)));
        let [failed, skipped, cancelled] = ends;
        let mark = match over {
            0 if told == 0 => paint.dim("·"),
            _ if over < n => paint.cyan("▸"),
            _ if failed > 0 => mark(How::Failed, paint),
            _ if skipped + cancelled > 0 => mark(How::Skipped, paint),
            _ => mark(How::Succeeded, paint),
        };
        let names: Vec<String> = steps.iter().take(3).map(|it| plain::line(it)).collect();
        let more = if n > names.len() { ", …" } else { "" };
        let names = paint.dim(format!("{}{more}", names.join(", ")));
        let mut count = if over == n || (over == 0 && told == 0) {
            plain::count(n, "step")
        } else {
            format!("{over}/{n} steps")
        };
        for (n, word) in ends.into_iter().zip(["failed", "skipped", "cancelled"]) {
            if n > 0 {
                let _ = write!(count, ", {n} {word}");
            }
        }
        Line(2 + u8::from(told == 0), format!("{place} {mark} {count}  {names}"))
    }

    /// Returns the room that names have where every line is to say how long it took, and the code
    /// of what went wrong.
    fn room(&self, now: Timestamp, columns: usize, paint: Paint) -> Room {
        let said = self.stands.iter().map(|(step, stand)| self.stand(step, stand, now, paint).said);
        // Before a name stand a number of five and a sign; behind it two spaces.
        let names = columns.saturating_sub(10 + said.max().unwrap_or(0)).max(LEAST);
        Room { columns, names: names.min(self.width) }
    }

    /// Draws a step.
    fn line(&self, number: &str, step: &str, now: Timestamp, room: Room, paint: Paint) -> Line {
        let name = plain::line(step);
        let Some(stand) = self.stands.get(step) else {
            return Line(3, format!("{number} {} {}", paint.dim("·"), paint.dim(name)));
        };
        let Told { mark, rest, said } = self.stand(step, stand, now, paint);
        // The name gives way before what came of the step.
        let taken =
            paint::width(number) + paint::width(&mark) + 2 + if said > 0 { 2 + said } else { 0 };
        let name = paint::cut(&name, room.columns.saturating_sub(taken).max(LEAST));
        let padding = " ".repeat(room.names.saturating_sub(paint::width(&name)));
        let weight = match stand {
            _ if stand.is_quiet() => 3,
            Stand::Runs { .. } | Stand::Ended { how: How::Retrying, .. } => 1,
            Stand::Ended { .. } => 0,
        };
        Line(weight, format!("{number} {mark} {name}{padding}  {rest}").trim_end().to_owned())
    }

    fn stand(&self, step: &str, stand: &Stand, now: Timestamp, paint: Paint) -> Told {
        let (how, took_ms, detail, next) = match stand {
            Stand::Runs { since, attempt, far } => {
                let turn = usize::try_from(now.timestamp_millis() / TURN % 10).unwrap_or(0);
                let elapsed = since.and_then(|it| milliseconds(it, now)).unwrap_or(0.0);
                let mut rest = vec![paint.dim(duration(elapsed))];
                if *attempt > 1 {
                    rest.push(format!("attempt {}", self.of(step, *attempt)));
                }
                let said = paint::width(&rest.join("  "));
                rest.extend(far.as_ref().map(progress));
                return Told { mark: paint.cyan(SPINNER[turn]), rest: rest.join("  "), said };
            }
            Stand::Ended { how, took_ms, detail, next } => (*how, took_ms, detail, next),
        };
        let detail = detail.as_deref().map(plain::line);
        let mut rest = Vec::new();
        let mut said = 0;
        match next {
            Some(Next::Attempt { attempt, at }) => {
                let left = at.and_then(|it| milliseconds(now, it)).unwrap_or(0.0);
                let attempt = self.of(step, *attempt);
                rest.push(paint.yellow(format!("attempt {attempt} in {}", duration(left))));
                said = paint::width(&rest[0]);
                rest.extend(detail.map(|it| paint.dim(it)));
            }
            Some(Next::Command(command)) => {
                rest.extend(detail.map(|it| paint.yellow(it)));
                rest.push(command.clone());
            }
            None => {
                rest.extend(took_ms.map(|it| paint.dim(duration(it))));
                rest.extend(word(how).map(|it| paint.dim(it)));
                said = paint::width(&rest.join("  "));
                if let Some(code) = detail.as_deref().and_then(code) {
                    said += if said > 0 { 2 } else { 0 } + paint::width(code);
                }
                rest.extend(
                    detail.map(|it| if how == How::Failed { paint.red(it) } else { paint.dim(it) }),
                );
            }
        }
        Told { mark: mark(how, paint), rest: rest.join("  "), said }
    }

    /// Draws what parts of a step do: the steps of what it executes, its items, its undoing.
    fn parts(
        &self,
        indent: &str,
        step: &str,
        now: Timestamp,
        room: Room,
        paint: Paint,
    ) -> Vec<Line> {
        // They stand behind the step, in the order of names.
        let from = self.stands.range(step.to_owned()..).take_while(|(it, _)| it.starts_with(step));
        from.filter(|(it, _)| !self.own.contains(*it) && is_part(step, it))
            .map(|(it, _)| self.line(indent, it, now, room, paint))
            .collect()
    }

    fn of(&self, step: &str, attempt: u64) -> String {
        match self.layout.attempts.get(step) {
            Some(most) if *most >= attempt => format!("{attempt} of {most}"),
            _ => attempt.to_string(),
        }
    }

    /// Draws how far it is, once that says something.
    fn sum(&self, now: Timestamp, paint: Paint) -> Option<String> {
        let total = self.layout.n_steps();
        if total < 2 || self.n_over == 0 {
            return None;
        }
        let full = (self.n_over.min(total) * BAR).checked_div(total).unwrap_or(0);
        let bar = format!("{}{}", paint.green("█".repeat(full)), paint.dim("░".repeat(BAR - full)));
        let elapsed = self.began.and_then(|it| milliseconds(it, now)).map(duration);
        let elapsed = paint.dim(elapsed.unwrap_or_default());
        Some(format!("{bar} {}/{total} steps  {elapsed}", self.n_over))
    }
}

/// Returns the code that the account of a failure begins with.
fn code(detail: &str) -> Option<&str> {
    let code = detail.split_once(": ").map_or(detail, |it| it.0);
    (!code.contains(' ')).then_some(code)
}

/// Returns whether a name is that of a part of a step: of what it executes, of an item, of its
/// undoing.
fn is_part(step: &str, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(step) else { return false };
    rest.starts_with(" › ") || rest.starts_with('[') || rest.starts_with(" (")
}

/// Leaves lines out that matter least, until there is room for them.
fn keep(lines: &mut Vec<Line>, most: usize, paint: Paint) {
    if lines.len() <= most {
        return;
    }
    let room = most.saturating_sub(1);
    let mut places: Vec<usize> = (0..lines.len()).collect();
    places.sort_by_key(|it| lines[*it].0);
    let kept: BTreeSet<usize> = places.into_iter().take(room).collect();
    let left = lines.len() - kept.len();
    let mut at = 0;
    lines.retain(|_| {
        at += 1;
        kept.contains(&(at - 1))
    });
    lines.push(Line(0, paint.dim(format!("    … and {left} more"))));
}

/// Returns the sign of how a step stands.
pub(super) fn mark(how: How, paint: Paint) -> String {
    match how {
        How::Succeeded => paint.green("✓"),
        How::Failed => paint.red("✗"),
        How::Retrying => paint.yellow("↻"),
        How::Skipped | How::Cancelled => paint.dim("○"),
        How::Waiting => paint.yellow("?"),
        How::Compensated => paint.yellow("↩"),
        How::Stuck => paint.red("!"),
    }
}

/// Says how a step ended that neither succeeded nor failed.
pub(super) fn word(how: How) -> Option<&'static str> {
    Some(match how {
        How::Skipped => "skipped",
        How::Cancelled => "cancelled",
        How::Retrying => "will be tried again",
        How::Compensated => "undone",
        How::Stuck => "could not be undone",
        How::Succeeded | How::Failed | How::Waiting => return None,
    })
}
