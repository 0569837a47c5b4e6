//! `faber debug` for people: a request as a report of what happened, the verdict first.

mod happened;
#[cfg(test)]
mod tests;
mod timeline;

use std::fmt::Write as _;

use serde_json::Value;

use self::{happened::happened, timeline::timeline};
use super::{
    account::{Account, moment, quoted},
    inspect::state,
    paint::Paint,
    plain,
    planning::indented,
    progress::duration,
    render::{clip, list},
};

/// The most characters of the query.
const QUERY: usize = 400;
/// The most lines of what a step was given that failed.
const GIVEN: usize = 20;
/// The most other executions that are named, and the most parts that are told.
const OTHERS: usize = 10;

/// Tells what became of a request: of the execution `of`, or of the newest, and of its parts.
pub(super) fn report(request: &Value, of: Option<&str>, paint: Paint) -> String {
    let all = list(&request["executions"]);
    let is_part = |it: &&Value| !it["parentExecutionId"].is_null();
    let newest = all.clone().filter(|it| !is_part(it)).max_by_key(|it| it["createdAt"].as_str());
    let named = of.and_then(|id| all.clone().find(|it| it["executionId"] == id));
    let Some(main) = named.or(newest) else { return never_executed(request, paint) };

    let mut told = head(request, main, paint);
    told.push_str(&body(request, main, paint));
    for part in parts(request, main) {
        let id = plain::said(&part["parentExecutionId"]);
        let step = plain::said(&part["parentStepId"]);
        let _ = write!(
            told,
            "\n{}  {}  {}\n",
            paint.bold(plain::said(&part["executionId"])),
            state(&plain::said(&part["state"]), paint),
            paint.dim(format!("part of {id}, step {step}"))
        );
        told.push_str(&body(request, part, paint));
    }
    told.push_str(&section("How the plan came to be", &[origin(request, main)], paint));
    told.push_str(&section("Next", &next(request, main), paint));
    told.push_str(&others(request, main, paint));
    told.trim_end().to_owned()
}

/// Says how it ended, what it was, when and where.
fn head(request: &Value, execution: &Value, paint: Paint) -> String {
    let account = Account::of(execution);
    let name = plain::said(&execution["state"]);
    let name = if execution["dryRun"] == true { format!("DRY RUN {name}") } else { name };
    let mut told = format!("{}  {}\n", state(&name, paint), account.summary());
    let mut say = |what: &str, text: &str| {
        if !text.is_empty() {
            let _ = writeln!(told, "  {}  {text}", paint.dim(format!("{what:<7}")));
        }
    };
    say("query", &clip(&plain::said(&request["query"]), QUERY));
    say("time", &times(execution));
    say("node", &plain::said(&execution["node"]));
    let (plan, version) = (&execution["plan"], &execution["plan"]["version"]);
    let by = plain::said(&plan["planner"]);
    let plan = plain::said(&execution["planId"]);
    say(
        "plan",
        &if version.is_null() { plan } else { format!("{plan}, version {version} by {by}") },
    );
    say("request", &plain::said(&request["requestId"]));
    say("again", &plain::said(&execution["retryOf"]));
    say("retried", &retries(request, execution));
    say("onward", &onward(execution));
    say("part of", &plain::said(&execution["parentExecutionId"]));
    if !execution["input"].is_null() {
        say("input", &clip(&plain::line(&execution["input"].to_string()), QUERY));
    }
    told
}

/// Says as which executions of the request an execution was retried.
fn retries(request: &Value, execution: &Value) -> String {
    let next = &execution["next"]["executionId"];
    let mut retries: Vec<&Value> = list(&request["executions"])
        .filter(|other| other["retryOf"] == execution["executionId"])
        .filter(|other| other["executionId"] != *next)
        .collect();
    retries.sort_by_key(|other| other["createdAt"].as_str());
    let told = retries.iter().map(|other| {
        format!("{} ({})", plain::said(&other["executionId"]), plain::said(&other["state"]))
    });
    match told.collect::<Vec<_>>().join(", ") {
        ids if ids.is_empty() => ids,
        ids => format!("as {ids}"),
    }
}

/// Says what goes on after an execution, or why nothing does that was to.
fn onward(execution: &Value) -> String {
    let replanning = &execution["replanning"];
    let reason = plain::said(&replanning["reason"]);
    let why = if reason.is_empty() { reason } else { format!(" because {reason}") };
    match (execution["next"]["executionId"].as_str(), replanning["state"].as_str()) {
        (Some(next), _) => format!("planned anew as {}{why}", plain::line(next)),
        (None, Some("GIVEN_UP")) => {
            format!("not planned anew{why}: {}", plain::said(&replanning["givenUp"]))
        }
        (None, Some(_)) => format!("a model plans anew{why}"),
        (None, None) => String::new(),
    }
}

fn times(execution: &Value) -> String {
    let at = |key: &str| moment(&execution[key]);
    let Some(from) = at("startedAt").or_else(|| at("createdAt")) else { return String::new() };
    let start = from.format("%Y-%m-%d %H:%M:%S%.3f");
    match at("finishedAt") {
        Some(until) if until.date_naive() == from.date_naive() => {
            format!("{start} – {} UTC", until.format("%H:%M:%S%.3f"))
        }
        Some(until) => format!("{start} – {} UTC", until.format("%Y-%m-%d %H:%M:%S%.3f")),
        None => format!("since {start} UTC"),
    }
}

/// Tells one execution: in sentences, as a timeline, and what was given to what failed.
fn body(request: &Value, execution: &Value, paint: Paint) -> String {
    let mut told = section("What happened", &happened(request, execution), paint);
    let (lines, values) = timeline(execution, paint);
    told.push_str(&section("Timeline", &lines, paint));
    told.push_str(&section("Values", &values, paint));
    let account = Account::of(execution);
    for error in account.errors().take(1) {
        if let Some(given) = account.given(error) {
            let step = plain::said(&error["stepId"]);
            let item = error["index"].as_u64().map(|it| format!("[{it}]")).unwrap_or_default();
            let text = indented(given, 0);
            let mut lines: Vec<String> =
                text.lines().take(GIVEN).map(|it| clip(it, QUERY)).collect();
            if text.lines().count() > GIVEN {
                lines.push("…".to_owned());
            }
            told.push_str(&section(&format!("What {step}{item} was given"), &lines, paint));
        }
    }
    told
}

fn section(title: &str, lines: &[String], paint: Paint) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut told = format!("\n{}\n", paint.bold(title));
    for line in lines {
        let _ = writeln!(told, "  {line}");
    }
    told
}

/// Returns the executions that the steps of one began, and theirs.
fn parts<'a>(request: &'a Value, of: &'a Value) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = Vec::new();
    let mut next = vec![&of["executionId"]];
    while let Some(parent) = next.pop() {
        for it in list(&request["executions"]) {
            if found.len() < OTHERS && !parent.is_null() && it["parentExecutionId"] == *parent {
                next.push(&it["executionId"]);
                found.push(it);
            }
        }
    }
    found
}

/// Says in one line how the plan came to be.
fn origin(request: &Value, execution: &Value) -> String {
    let of = |kind: &'static str| list(&request["transcript"]).filter(move |it| it["kind"] == kind);
    let mut parts = Vec::new();
    if let Some(cached) = of("cache").last() {
        parts.push(format!("taken from {}", plain::said(&cached["content"]["requestId"])));
    }
    if let Some(selection) = of("selection").last() {
        let all = list(&selection["content"]["candidates"]);
        let kept = all.clone().filter(|it| it["kept"] == true).count();
        let total = all.count() as u64 + selection["content"]["more"].as_u64().unwrap_or(0);
        parts.push(format!("{kept} of {total} tools shown to the planner"));
    }
    for (kind, one, many) in [
        ("clauses", "clause", "clauses"),
        ("prompt", "question to the model", "questions to the model"),
        ("repair", "repair", "repairs"),
        ("assumptions", "assumption", "assumptions"),
    ] {
        let listed = matches!(kind, "clauses" | "assumptions");
        let n = match of(kind).last() {
            Some(it) if listed => it["content"].as_array().map_or(0, Vec::len),
            _ => of(kind).count(),
        };
        if n > 0 {
            parts.push(format!("{n} {}", if n == 1 { one } else { many }));
        }
    }
    if let Some(usage) = of("usage").last() {
        let usage = &usage["content"];
        let tokens = |key: &str| usage["tokens"][key].as_u64().unwrap_or(0);
        let took = usage["ms"].as_f64().map(|it| format!(" in {}", duration(it)));
        let took = took.unwrap_or_default();
        parts.push(format!("{} tokens in and {} out{took}", tokens("input"), tokens("output")));
    }
    let plan = &execution["plan"];
    let steps = plan["tools"].as_array().map_or(0, Vec::len);
    let by = match plan["planner"].as_str() {
        Some("explicit") => "written by hand".to_owned(),
        Some(name) => format!("by {}", plain::line(name)),
        None => "a plan".to_owned(),
    };
    parts.insert(0, format!("{by}, {}", plain::count(steps, "step")));
    let warnings = plan["diagnostics"].as_array().map_or(0, Vec::len);
    if warnings > 0 {
        parts.push(plain::count(warnings, "warning"));
    }
    parts.join(", ")
}

/// Says what can be done now, as commands.
fn next(request: &Value, execution: &Value) -> Vec<String> {
    let id = plain::said(&execution["executionId"]);
    let mut all: Vec<(String, &str)> = Vec::new();
    match execution["state"].as_str().unwrap_or_default() {
        "FAILED" if execution["dryRun"] != true => {
            all.push((format!("faber retry {id}"), "does again what failed, and keeps the rest"));
            all.push((format!("faber retry {id} --all"), "does all of it again"));
        }
        "CANCELLED" => {
            all.push((format!("faber retry {id}"), "does what was not done"));
            all.push((format!("faber retry {id} --all"), "does all of it again"));
        }
        "PAUSED" => all.push((format!("faber resume {id}"), "lets it go on")),
        "COMPLETED" | "FAILED" => (),
        _ => {
            all.extend(waits(execution));
            all.push((format!("faber watch {id}"), "watches it"));
            all.push((format!("faber cancel {id}"), "stops it"));
        }
    }
    for part in parts(request, execution) {
        all.extend(waits(part));
    }
    all.push((format!("faber debug {id} --full"), "every value, and how the plan came to be"));
    let width = all.iter().map(|(it, _)| it.chars().count()).max().unwrap_or(0);
    all.into_iter().map(|(command, what)| format!("{command:<width$}  {what}")).collect()
}

/// Returns the commands for which an execution waits.
fn waits(execution: &Value) -> Vec<(String, &'static str)> {
    let id = plain::said(&execution["executionId"]);
    let mut all = Vec::new();
    for wait in list(&execution["waitsFor"]).take(OTHERS) {
        let item = wait["index"].as_u64().map(|it| format!("[{it}]")).unwrap_or_default();
        let step = quoted(&format!("{}{item}", wait["stepId"].as_str().unwrap_or_default()));
        match wait["kind"].as_str() {
            Some("approval" | "decision") => {
                all.push((format!("faber approve {id} {step}"), "lets the step go on"));
                all.push((format!("faber approve {id} {step} --reject"), "refuses it"));
            }
            Some("worker") => {
                let execute = (format!("faber execute {id}"), "carries it on");
                if !all.contains(&execute) {
                    all.push(execute);
                }
            }
            Some("signal") => {
                let name = quoted(wait["name"].as_str().unwrap_or_default());
                all.push((format!("faber signal {id} {name}"), "tells the step to go on"));
            }
            _ => (),
        }
    }
    all
}

/// Names the other executions of the request, the newest first.
fn others(request: &Value, main: &Value, paint: Paint) -> String {
    let mut all: Vec<&Value> = list(&request["executions"])
        .filter(|it| it["executionId"] != main["executionId"] && it["parentExecutionId"].is_null())
        .collect();
    all.sort_by_key(|it| std::cmp::Reverse(it["createdAt"].as_str()));
    let line = |it: &&Value| {
        let account = Account::of(it);
        format!("{}  {}", state(&plain::said(&it["state"]), paint), account.summary())
    };
    let mut lines: Vec<String> = all.iter().take(OTHERS).map(line).collect();
    if all.len() > OTHERS {
        lines.push(format!("… and {} more", all.len() - OTHERS));
    }
    section("Other executions of the request", &lines, paint)
}

/// Tells a request that no execution came of.
fn never_executed(request: &Value, paint: Paint) -> String {
    let id = plain::said(&request["requestId"]);
    let plans: Vec<&Value> = list(&request["plans"]).collect();
    let verdict =
        if plans.is_empty() { paint.red("NO PLAN") } else { paint.yellow("NOT EXECUTED") };
    let mut told = format!("{verdict}  {id}\n");
    let query = clip(&plain::said(&request["query"]), QUERY);
    let _ = writeln!(told, "  {}  {query}", paint.dim("query  "));
    let errors = list(&request["transcript"]).filter(|it| it["kind"] == "error");
    let errors: Vec<String> = errors
        .map(|it| {
            let (code, message) = (&it["content"]["code"], &it["content"]["message"]);
            let head = paint.red(format!("error[{}]", plain::said(code)));
            format!("{head}: {}", plain::said(message))
        })
        .collect();
    told.push_str(&section("What happened", &errors, paint));
    let mut kinds: Vec<String> =
        list(&request["transcript"]).map(|it| plain::said(&it["kind"])).collect();
    kinds.dedup();
    let far = if kinds.is_empty() { Vec::new() } else { vec![kinds.join(" → ")] };
    told.push_str(&section("How far the planning came", &far, paint));
    let made: Vec<String> = plans
        .iter()
        .map(|it| {
            let steps = plain::count(it["tools"].as_array().map_or(0, Vec::len), "step");
            let (plan, by) = (plain::said(&it["planId"]), plain::said(&it["planner"]));
            format!("{plan}  version {} by {by}, {steps}", it["version"])
        })
        .collect();
    told.push_str(&section("Plans", &made, paint));
    let mut next = Vec::new();
    if let Some(plan) = plans.last() {
        next.push(format!("faber execute {}", plain::said(&plan["planId"])));
    }
    next.push(format!("faber debug {id} --full"));
    told.push_str(&section("Next", &next, paint));
    told.trim_end().to_owned()
}

/// Writes how long a step worked, or nothing. An older server says only how long it took in all.
pub(super) fn worked(step: &Value) -> String {
    let worked = step["workMs"].as_f64().or_else(|| step["durationMs"].as_f64());
    worked.map(duration).unwrap_or_default()
}

/// Writes how long a step waited for a person or a signal, or nothing.
pub(super) fn waited(step: &Value) -> String {
    let waited = step["waitedMs"].as_f64().filter(|waited| *waited > 0.0);
    waited.map(|waited| format!("waited {}", duration(waited))).unwrap_or_default()
}
