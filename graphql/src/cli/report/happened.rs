//! What happened, in sentences.

use serde_json::Value;

use super::super::{
    account::{Account, named},
    plain,
    render::{clip, list},
};

/// The most things of one kind that are told one by one.
const TOLD: usize = 5;
/// How many steps are named in one sentence.
const NAMES: usize = 6;
/// The most characters of a message.
const MESSAGE: usize = 600;

/// Tells what happened in an execution.
pub(super) fn happened(request: &Value, execution: &Value) -> Vec<String> {
    let account = Account::of(execution);
    let mut told = Vec::new();
    told.extend(errors(&account));
    told.extend(waits(execution));
    told.extend(whole(request, execution));
    told.extend(retried(request, execution));
    told.extend(undone(execution));
    told.extend(skipped(execution));
    told.extend(warnings(execution));
    if told.is_empty() && execution["state"] == "COMPLETED" {
        let (done, total) = (&execution["successful"], &execution["total"]);
        told.push(match total.as_u64() {
            _ if done != total => format!("{done} of {total} steps succeeded."),
            Some(1) => "The step succeeded.".to_owned(),
            Some(2) => "Both steps succeeded.".to_owned(),
            _ => format!("All {total} steps succeeded."),
        });
    }
    told
}

/// Tells what failed, why that was not tried again, and what did not happen because of it.
fn errors(account: &Account<'_>) -> Vec<String> {
    let mut told = Vec::new();
    let mut blamed: Vec<&str> = Vec::new();
    for error in account.errors().take(TOLD) {
        let step = error["stepId"].as_str().unwrap_or_default();
        let item = error["index"].as_u64().map(|it| format!("[{it}]")).unwrap_or_default();
        let (tool, code) = (plain::said(&error["toolName"]), plain::said(&error["code"]));
        let tries = match error["attempt"].as_u64() {
            Some(n) if n > 1 => format!(" after {n} attempts"),
            _ => String::new(),
        };
        let message = clip(&plain::said(&error["message"]), MESSAGE);
        let name = plain::line(step);
        told.push(format!("`{name}{item}` ({tool}) failed with {code}{tries}: {message}"));
        if let Some(why) = account.why_not_again(error) {
            told.push(format!("  It was not tried again: {why}."));
        }
        if !blamed.contains(&step) {
            blamed.push(step);
            told.extend(left_out(account, step));
        }
    }
    let more = account.errors().count().saturating_sub(TOLD);
    if more > 0 {
        told.push(format!("{more} more failed."));
    }
    told
}

fn left_out(account: &Account<'_>, step: &str) -> Vec<String> {
    let is_fatal = account.planned(step).is_none_or(|it| it["onError"] == "fail");
    let (after, others) = account.left_out(step);
    let mut told = Vec::new();
    if !after.is_empty() {
        told.push(format!("  So {} did not run.", named(&after, NAMES)));
    }
    if is_fatal && !others.is_empty() {
        told.push(format!("  The execution ended before {} began.", named(&others, NAMES)));
    }
    told
}

fn waits(execution: &Value) -> Vec<String> {
    let all = list(&execution["waitsFor"]);
    let mut told: Vec<String> = all
        .clone()
        .take(TOLD)
        .map(|it| {
            let until = it["until"].as_str().map(|it| format!(", until {}", plain::line(it)));
            format!("waits: {}{}", plain::said(&it["message"]), until.unwrap_or_default())
        })
        .collect();
    let more = all.count().saturating_sub(TOLD);
    if more > 0 {
        told.push(format!("{more} more wait."));
    }
    told
}

/// Tells what happened to the execution as a whole: whom it was told by, and who had it.
fn whole(request: &Value, execution: &Value) -> Vec<String> {
    let own: Vec<&Value> = own_entries(request, execution).collect();
    let mut told = Vec::new();
    let mut owner = None;
    for (n, entry) in own.iter().enumerate() {
        let detail = &entry["detail"];
        match entry["kind"].as_str() {
            Some("claimed") => {
                told.extend(owner.and_then(|before| taken_over(before, detail, &own[n + 1..])));
                owner = Some(detail);
            }
            Some("cancel_requested") => {
                let why = plain::said(&detail["reason"]);
                let why = if why.is_empty() { why } else { format!(": {why}") };
                told.push(format!("Somebody cancelled it{why}."));
            }
            Some("execution_failed") => {
                told.push(format!(
                    "It could not go on: {}.",
                    plain::said(&detail["error"]["message"])
                ));
            }
            Some("deadline_passed") => told.push("Its time was up.".to_owned()),
            Some("paused") => told.push("Somebody paused it.".to_owned()),
            Some("resumed") => told.push("Somebody let it go on.".to_owned()),
            Some("signal_received") => {
                told.push(format!("Signal `{}` came.", plain::said(&detail["name"])));
            }
            _ => (),
        }
    }
    let more = told.len().saturating_sub(2 * TOLD);
    told.truncate(2 * TOLD);
    if more > 0 {
        told.push(format!("{more} more things happened to it."));
    }
    told
}

/// Tells which worker took an execution over, from which one, and what that one had left unfinished.
fn taken_over(before: &Value, claim: &Value, later: &[&Value]) -> Option<String> {
    if before["worker"] == claim["worker"] {
        return None;
    }
    let worker = |claim: &Value| {
        format!("`{}` on {}", plain::said(&claim["worker"]), plain::said(&claim["node"]))
    };
    let until_next = later.iter().take_while(|entry| entry["kind"] != "claimed");
    let lost =
        until_next.filter(|entry| is_loss(entry)).filter_map(|entry| entry["stepId"].as_str());
    let mut cut: Vec<&str> = Vec::new();
    for step in lost {
        if !cut.contains(&step) {
            cut.push(step);
        }
    }
    let (new, old) = (worker(claim), worker(before));
    Some(if cut.is_empty() {
        format!("The worker {new} took it over from {old}.")
    } else {
        let steps = named(&cut, NAMES);
        format!("The worker {old} was lost while {steps} ran, and {new} took the execution over.")
    })
}

/// Returns whether an entry says that an attempt ended because its worker was lost.
fn is_loss(entry: &Value) -> bool {
    entry["kind"] == "step_interrupted" && entry["detail"]["error"].is_null()
}

/// Tells which steps needed more than one attempt, and why.
fn retried(request: &Value, execution: &Value) -> Vec<String> {
    let why = |step: &Value| {
        let again = own_entries(request, execution).filter(|entry| {
            let is_again =
                entry["kind"] == "step_retry_scheduled" || entry["kind"] == "step_interrupted";
            is_again && entry["stepId"] == step["stepId"]
        });
        again.last()
    };
    let late: Vec<(&Value, &str)> = list(&execution["steps"])
        .filter(|step| step["attempts"].as_u64() > Some(1))
        .filter_map(|step| match step["state"].as_str()? {
            "SUCCEEDED" | "COMPENSATED" => Some((step, "succeeded at")),
            "RUNNING" => Some((step, "is at")),
            "FAILED" if why(step).is_some_and(is_loss) => Some((step, "failed at")),
            _ => None,
        })
        .collect();
    let mut told: Vec<String> = late
        .iter()
        .take(TOLD)
        .map(|(step, how)| {
            let why = why(step).map_or_else(String::new, |entry| {
                let error = &entry["detail"]["error"];
                let message = if is_loss(entry) { &entry["message"] } else { &error["message"] };
                let message = clip(&plain::said(message), MESSAGE / 4);
                if is_loss(entry) {
                    format!("; before, {message}")
                } else {
                    format!("; before, {}: {message}", plain::said(&error["code"]))
                }
            });
            let name = plain::said(&step["stepId"]);
            format!("`{name}` {how} attempt {}{why}", step["attempts"])
        })
        .collect();
    if late.len() > TOLD {
        told.push(format!("{} more steps were tried again.", late.len() - TOLD));
    }
    told
}

/// Tells what was undone, and what could not be.
fn undone(execution: &Value) -> Vec<String> {
    let steps = list(&execution["steps"]);
    let done = steps.clone().filter(|it| it["state"] == "COMPENSATED");
    let done: Vec<&str> = done.filter_map(|it| it["stepId"].as_str()).collect();
    let mut told = Vec::new();
    if !done.is_empty() {
        told.push(format!("Undone: {}.", named(&done, NAMES)));
    }
    for step in steps.filter(|it| it["compensation"]["error"].is_object()).take(TOLD) {
        let error = &step["compensation"]["error"];
        let (name, code) = (plain::said(&step["stepId"]), plain::said(&error["code"]));
        told.push(format!(
            "`{name}` could not be undone: {code}: {}",
            plain::said(&error["message"])
        ));
    }
    told
}

fn skipped(execution: &Value) -> Vec<String> {
    let of = |reason: &'static str| {
        let steps = list(&execution["steps"]).filter(move |it| it["skipReason"] == reason);
        steps.filter_map(|it| it["stepId"].as_str()).collect::<Vec<_>>()
    };
    let conditional = of("condition");
    if conditional.is_empty() {
        return Vec::new();
    }
    vec![format!("Skipped, as a condition does not hold: {}.", named(&conditional, NAMES))]
}

fn warnings(execution: &Value) -> Vec<String> {
    let of = |step: &Value| {
        let name = plain::said(&step["stepId"]);
        let warnings: Vec<String> = list(&step["warnings"])
            .map(|it| format!("Warning of `{name}`: {}", clip(&plain::said(it), MESSAGE)))
            .collect();
        warnings
    };
    let all: Vec<String> = list(&execution["steps"]).flat_map(of).collect();
    let more = all.len().saturating_sub(TOLD);
    let mut told: Vec<String> = all.into_iter().take(TOLD).collect();
    if more > 0 {
        told.push(format!("{more} more warnings."));
    }
    told
}

/// Returns what a timeline has of one execution.
fn own_entries<'a>(request: &'a Value, execution: &'a Value) -> impl Iterator<Item = &'a Value> {
    let id = &execution["executionId"];
    list(&request["timeline"]).filter(move |it| it["executionId"] == *id)
}
