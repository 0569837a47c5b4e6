//! An execution as a timeline: a short line a step, in the order in which they began.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde_json::Value;
use shared::clock::Timestamp;

use super::{
    super::{
        account::{Account, milliseconds, moment},
        paint::{self, Paint},
        plain,
        progress::duration,
        render::{clip, list},
    },
    waited, worked,
};

/// The most steps that are told one by one; of more, those that just succeeded are folded.
const STEPS: usize = 20;
/// The most lines of a long plan.
const LINES: usize = 40;
/// The most items of a list that are told one by one.
const ITEMS: usize = 5;
/// The most characters of a value.
const VALUE: usize = 70;

/// Returns the lines of the steps, and what the steps were given and returned.
pub(super) fn timeline(execution: &Value, paint: Paint) -> (Vec<String>, Vec<String>) {
    let account = Account::of(execution);
    let mut steps: Vec<&Value> = list(&execution["steps"]).collect();
    // Those that never began stay where the plan has them, at the end.
    steps.sort_by_key(|it| moment(&it["startedAt"]).map_or((1, None), |at| (0, Some(at))));
    let critical = critical(&account, &steps);
    let names = steps.iter().map(|it| paint::width(it["stepId"].as_str().unwrap_or_default()));
    let draw = Draw {
        from: moment(&execution["startedAt"]).or_else(|| moment(&execution["createdAt"])),
        is_short: steps.len() <= STEPS,
        width: names.max().unwrap_or(0).min(32),
        critical,
        paint,
    };
    let mut lines = draw.lines(&steps);
    if let Some(path) = draw.legend(&steps) {
        lines.push(path);
    }
    let values = if draw.is_short { draw.values(&steps) } else { Vec::new() };
    (lines, values)
}

struct Draw<'a> {
    from: Option<Timestamp>,
    is_short: bool,
    width: usize,
    /// The steps that decided how long it took.
    critical: BTreeSet<&'a str>,
    paint: Paint,
}

impl Draw<'_> {
    fn lines(&self, steps: &[&Value]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut at = 0;
        while at < steps.len() {
            let state = &steps[at]["state"];
            let alike = steps[at..].iter();
            let folded = alike.take_while(|it| !self.is_told(it) && it["state"] == *state).count();
            if folded > 1 {
                lines.push(self.fold(&steps[at..at + folded]));
            } else {
                lines.push(self.line(steps[at]));
                lines.extend(Self::items(steps[at]));
            }
            at += folded.max(1);
        }
        let more = lines.len().saturating_sub(LINES);
        if more > 0 {
            lines.truncate(LINES);
            lines.push(format!("… and {more} more lines: `--full` has all of them"));
        }
        lines
    }

    /// Returns whether a step has a line of its own.
    fn is_told(&self, step: &Value) -> bool {
        self.is_short
            || step["attempts"].as_u64() > Some(1)
            || !matches!(
                step["state"].as_str(),
                Some("SUCCEEDED" | "SKIPPED" | "PENDING" | "CANCELLED")
            )
    }

    fn line(&self, step: &Value) -> String {
        let id = step["stepId"].as_str().unwrap_or_default();
        let tool = plain::said(&step["toolName"]);
        let tool = if tool.rsplit('.').next() == Some(id) { String::new() } else { tool };
        let tries = match step["attempts"].as_u64() {
            Some(n) if n > 1 => format!("{n} attempts"),
            _ => String::new(),
        };
        let error = plain::said(&step["error"]["code"]);
        let reused = if step["reused"] == true { "reused" } else { "" }.to_owned();
        let why = plain::said(&step["skipReason"]).replace('_', " ");
        let waits = plain::said(&step["waitsFor"]);
        let waits = if waits.is_empty() { waits } else { format!("waits for {waits}") };
        let part = plain::said(&step["childExecutionId"]);
        let part = if part.is_empty() { part } else { format!("executes {part}") };
        let state = plain::said(&step["state"]).to_lowercase();
        let state =
            if matches!(&*state, "succeeded" | "failed") || !why.is_empty() || !waits.is_empty() {
                if why.is_empty() { String::new() } else { state }
            } else {
                state
            };
        let rest = [
            tool,
            worked(step),
            waited(step),
            tries,
            tally(&step["itemTally"]),
            state,
            why,
            reused,
            waits,
            error,
            part,
        ];
        let rest: Vec<String> = rest.into_iter().filter(|it| !it.is_empty()).collect();
        let name = plain::line(id);
        let padding = " ".repeat(self.width.saturating_sub(paint::width(&name)));
        let path = if self.critical.contains(id) { self.paint.cyan("◆") } else { " ".to_owned() };
        let mark = mark(step, self.paint);
        format!("{}  {path} {mark} {name}{padding}  {}", self.since(step), rest.join("  "))
            .trim_end()
            .to_owned()
    }

    /// Writes when a step began, counted from the beginning.
    fn since(&self, step: &Value) -> String {
        let since = self.from.zip(moment(&step["startedAt"]));
        let since = since.and_then(|(from, at)| milliseconds(from, at));
        let text = since.map_or_else(String::new, |it| format!("+{}", duration(it)));
        format!("{text:>9}")
    }

    /// Tells several steps as one.
    fn fold(&self, steps: &[&Value]) -> String {
        let (first, last) = (steps[0], steps[steps.len() - 1]);
        let state = plain::said(&first["state"]).to_lowercase();
        let took = steps.iter().filter_map(|it| moment(&it["finishedAt"])).max();
        let took = moment(&first["startedAt"])
            .zip(took)
            .and_then(|(from, until)| milliseconds(from, until));
        let took = took.map_or_else(String::new, |it| format!("  {}", duration(it)));
        let mark = mark(first, self.paint);
        format!(
            "{}    {mark} {} steps {state}: {} … {}{took}",
            self.since(first),
            steps.len(),
            plain::said(&first["stepId"]),
            plain::said(&last["stepId"]),
        )
    }

    /// Tells the items of a list that did not just succeed.
    fn items(step: &Value) -> Vec<String> {
        let is_plain = |it: &&Value| {
            matches!(
                it["state"].as_str(),
                Some("SUCCEEDED" | "PENDING" | "COMPENSATED" | "SKIPPED")
            )
        };
        let others: Vec<&Value> = list(&step["items"]).filter(|it| !is_plain(it)).collect();
        let mut lines: Vec<String> = others
            .iter()
            .take(ITEMS)
            .map(|it| {
                let (code, message) = (&it["error"]["code"], &it["error"]["message"]);
                let why = match code.as_str() {
                    Some(code) => format!("  {}: {}", plain::line(code), plain::said(message)),
                    None => String::new(),
                };
                let state = plain::said(&it["state"]);
                let lead = " ".repeat(16);
                clip(&format!("{lead}[{}]  {state}{why}", it["index"]), 2 * VALUE)
            })
            .collect();
        if others.len() > ITEMS {
            let more = plain::count(others.len() - ITEMS, "more item");
            lines.push(format!("{}… and {more}", " ".repeat(16)));
        }
        lines
    }

    fn legend(&self, steps: &[&Value]) -> Option<String> {
        let on_path = steps
            .iter()
            .filter(|it| it["stepId"].as_str().is_some_and(|it| self.critical.contains(it)));
        let (mut work, mut wait) = (0.0, 0.0);
        for step in on_path.clone() {
            work += step["workMs"].as_f64().or_else(|| step["durationMs"].as_f64()).unwrap_or(0.0);
            wait += step["waitedMs"].as_f64().unwrap_or(0.0);
        }
        let n = on_path.count();
        (n > 1).then(|| {
            let work = duration(work);
            let mut text = format!("◆ {n} steps decided how long it took: {work} of work");
            if wait > 0.0 {
                let _ = write!(text, ", {} of waiting", duration(wait));
            }
            self.paint.dim(text)
        })
    }

    /// Returns what each step was given and returned.
    fn values(&self, steps: &[&Value]) -> Vec<String> {
        let short = |value: &Value| clip(&plain::line(&value.to_string()), VALUE);
        let told =
            steps.iter().filter(|it| it["attempts"].as_u64() > Some(0) || it["reused"] == true);
        told.filter_map(|step| {
            let (given, output) = (&step["resolvedParameters"], &step["output"]);
            let name = plain::said(&step["stepId"]);
            let padding = " ".repeat(self.width.saturating_sub(paint::width(&name)));
            let arrow = self.paint.dim("→");
            let text = match (given.is_null(), output.is_null() && step["state"] != "SUCCEEDED") {
                (true, true) => return None,
                (false, true) => short(given),
                (true, false) => format!("{arrow} {}", short(output)),
                (false, false) => format!("{} {arrow} {}", short(given), short(output)),
            };
            Some(format!("{name}{padding}  {text}"))
        })
        .collect()
    }
}

/// Counts the items of a list: `300 items ✓`, `297 ✓ 3 ✗ of 300 items`.
fn tally(tally: &Value) -> String {
    let Some(total) = tally["total"].as_u64() else { return String::new() };
    if tally["successful"].as_u64() == Some(total) {
        return if total == 1 { "1 item ✓".to_owned() } else { format!("{total} items ✓") };
    }
    let items = plain::count(total, "item");
    let mut text = format!("{} of {items} ✓", tally["successful"]);
    for key in ["failed", "skipped", "cancelled", "running", "waiting"] {
        if let Some(n) = tally[key].as_u64().filter(|it| *it > 0) {
            let _ = write!(text, ", {n} {key}");
        }
    }
    text
}

fn mark(step: &Value, paint: Paint) -> String {
    match step["state"].as_str().unwrap_or_default() {
        "SUCCEEDED" => paint.green("✓"),
        "FAILED" => paint.red("✗"),
        "RETRYING" => paint.yellow("↻"),
        "WAITING" => paint.yellow("?"),
        "COMPENSATED" => paint.yellow("↩"),
        "RUNNING" => paint.cyan("●"),
        "PENDING" => paint.dim("·"),
        _ => paint.dim("○"),
    }
}

/// Returns the steps that decided how long it took: the one that ended last, what it waited for
/// longest, and so on.
fn critical<'a>(account: &Account<'a>, steps: &[&'a Value]) -> BTreeSet<&'a str> {
    let ends: BTreeMap<&str, Timestamp> = steps
        .iter()
        .filter_map(|it| Some((it["stepId"].as_str()?, moment(&it["finishedAt"])?)))
        .filter(|(id, _)| account.step(id).is_some_and(|it| !it["startedAt"].is_null()))
        .collect();
    let mut path = BTreeSet::new();
    // Of those that ended together the one that began last is the one that others waited for.
    let last = steps.iter().rev().filter_map(|it| it["stepId"].as_str());
    let mut next = last
        .filter_map(|it| Some((*ends.get(it)?, it)))
        .reduce(|a, b| if b.0 > a.0 { b } else { a });
    while let Some((_, id)) = next {
        if !path.insert(id) {
            break;
        }
        let needs = account.planned(id).map(|it| list(&it["dependsOn"]));
        let needs = needs.into_iter().flatten().filter_map(Value::as_str);
        next = needs.filter_map(|it| ends.get_key_value(it)).map(|(id, at)| (*at, *id)).max();
    }
    path
}
