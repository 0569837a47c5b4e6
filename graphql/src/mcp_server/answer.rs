//! Results of calls: a document for programs, and a text for models.

use std::fmt::Write as _;

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::diagnostic::Diagnostic;

use super::answer_size::{bounded, few, fitted, shorten};
use crate::cli::{
    client::types::{Plan, Request},
    failure::Failure,
    view::{
        format::{clip, pretty_json},
        paint::Paint,
        plan as plan_view,
        report::draw_report,
    },
};

/// The fields of an execution in a result.
pub(crate) const EXECUTION: &str = "executionId requestId planId state total successful failed \
     skipped cancelled startedAt finishedAt outputs executionResults { variables errors { stepId \
     toolName index code message attempt retryable } } waitsFor { kind stepId name until message } \
     steps { stepId toolName state attempts durationMs warnings } replanning { state givenUp } \
     next { executionId }";

/// The most characters of a text.
const TEXT: usize = 64 << 10;
/// The most characters of outputs in a text.
const SHOWN: usize = 16 << 10;

/// Ends a text that was cut.
const CUT: &str = "\nthe answer was too large and is cut: ask for less, or see all of it with \
     `faber debug` or the fields of the API";

/// The result of a call.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    document: Value,
}

impl From<Answer> for CallToolResult {
    fn from(Answer { text, document }: Answer) -> Self {
        let mut text = clip(&text, TEXT);
        let (document, is_cut) = fitted(document);
        if is_cut {
            text.push_str(CUT);
        }
        let mut result = Self::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(document);
        result
    }
}

impl From<Failure> for CallToolResult {
    fn from(failure: Failure) -> Self {
        let told = plan_view::draw_failure(&failure, Paint::new(false));
        let code = format!("[{}]", failure.code);
        // The text lists each diagnostic of a plan with its own code.
        let text = if told.contains(&code) {
            told
        } else {
            format!("error{code}: {}\n{told}", failure.message)
        };
        let mut result = Self::error(vec![ContentBlock::text(clip(&text, TEXT))]);
        result.structured_content = Some(fitted(failure.to_json()).0);
        result
    }
}

/// Returns the items of a list, or none for another value.
fn list(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

fn plain() -> Paint {
    Paint::new(false)
}

/// Removes null fields from the objects of a list, because the output schemas allow no null.
fn without_null(all: Option<&mut Value>) {
    let all = all.and_then(Value::as_array_mut);
    for fields in all.into_iter().flatten().filter_map(Value::as_object_mut) {
        fields.retain(|_, value| !value.is_null());
    }
}

pub(crate) fn plan(mut plan: Value) -> Answer {
    without_null(plan.get_mut("diagnostics"));
    without_null(plan.get_mut("tools"));
    let typed = Plan::deserialize(&plan).unwrap_or_default();
    let mut text = format!("{}\n", plan_view::draw_plan(&typed, plain()));
    let problems = plan_view::draw_diagnostics(&typed.diagnostics, "", plain());
    if !problems.is_empty() {
        let _ = writeln!(text, "{problems}");
    }
    let id = plan["planId"].as_str().unwrap_or_default();
    let _ = write!(text, "execute it: `execute` with `id: {id}`");
    Answer { text, document: plan }
}

/// Reports the diagnostics of a plan.
pub(crate) fn verdict(mut payload: Value) -> Answer {
    without_null(payload.get_mut("diagnostics"));
    let (plan, diagnostics) = (&payload["plan"], &payload["diagnostics"]);
    let is_valid = !plan.is_null();
    let mut text = if is_valid {
        let order: Vec<&str> = list(&plan["executionOrder"]).filter_map(Value::as_str).collect();
        format!("the plan can be executed: {}", order.join(", "))
    } else {
        "the plan cannot be executed".to_owned()
    };
    let found: Vec<Diagnostic> = Deserialize::deserialize(diagnostics).unwrap_or_default();
    let problems = plan_view::draw_diagnostics(&found, "", plain());
    if !problems.is_empty() {
        let _ = write!(text, "\n{problems}");
    }
    let mut document = json!({ "valid": is_valid, "diagnostics": diagnostics });
    if is_valid {
        document["executionOrder"] = plan["executionOrder"].clone();
        document["layers"] = plan["layers"].clone();
    }
    Answer { text, document }
}

/// Reports the current state of an execution.
pub(crate) fn execution(mut found: Value) -> Answer {
    let state = found["state"].as_str().unwrap_or_default().to_owned();
    let onward = Onward::of(&found);
    let is_over = matches!(state.as_str(), "COMPLETED" | "FAILED" | "CANCELLED");
    let is_done = is_over && !matches!(onward, Onward::Planned | Onward::Begun(_));
    let mut results = found["executionResults"].take();
    let mut outputs = found["outputs"].take();
    let mut variables = results["variables"].take();
    let mut is_cut = shorten(&mut outputs) | shorten(&mut variables);
    let mut document = Map::new();
    let mut say = |key: &str, value: Value| {
        if !value.is_null() {
            document.insert(key.to_owned(), value);
        }
    };
    for key in ["executionId", "requestId", "planId"] {
        say(key, found[key].take());
    }
    say("state", json!(state));
    say("done", json!(is_done));
    for key in ["total", "successful", "failed", "skipped", "cancelled", "startedAt", "finishedAt"]
    {
        say(key, found[key].take());
    }
    say("outputs", outputs);
    say("variables", variables);
    for (key, mut all) in [
        ("errors", results["errors"].take()),
        ("steps", found["steps"].take()),
        ("waitsFor", found["waitsFor"].take()),
    ] {
        without_null(Some(&mut all));
        is_cut |= few(&mut all);
        say(key, all);
    }
    let mut document = Value::Object(document);
    if is_cut {
        document["cut"] = json!(true);
    }
    if let Some(next) = onward.hint(&document).or_else(|| next(&document, is_over)) {
        document["next"] = json!(next);
    }
    Answer { text: told(&document), document }
}

/// The automatic replan of a finished execution.
enum Onward {
    /// Not planned.
    Nowhere,
    /// A model writes the next plan.
    Planned,
    /// Runs as another execution.
    Begun(String),
    /// Not possible, for this reason.
    GivenUp(String),
}

impl Onward {
    fn of(execution: &Value) -> Self {
        let replanning = &execution["replanning"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match replanning["state"].as_str() {
            Some("PENDING") => Self::Planned,
            Some("BEGUN") => Self::Begun(text(&execution["next"]["executionId"])),
            Some("GIVEN_UP") => Self::GivenUp(text(&replanning["givenUp"])),
            _ => Self::Nowhere,
        }
    }

    fn hint(&self, document: &Value) -> Option<String> {
        let text = |key: &str| document[key].as_str().unwrap_or_default();
        Some(match self {
            Self::Nowhere => return None,
            Self::Planned => format!(
                "a model plans how to go on: `status` with `id: {}` and `wait: true` waits for the \
                 end of that",
                text("executionId")
            ),
            Self::Begun(id) => format!("it goes on as `{id}`: `status` with `id: {id}` tells how"),
            Self::GivenUp(why) => format!(
                "it was not planned anew: {why}; `debug` with `id: {}` says everything about it",
                text("requestId")
            ),
        })
    }
}

/// Suggests the next call.
fn next(document: &Value, is_over: bool) -> Option<String> {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    let id = text("executionId");
    if document["state"] == "FAILED" {
        return Some(format!("`debug` with `id: {}` says everything about it", text("requestId")));
    }
    if is_over {
        return None;
    }
    let person = list(&document["waitsFor"])
        .find(|wait| matches!(wait["kind"].as_str(), Some("approval" | "decision")));
    if let Some(wait) = person {
        let step = wait["stepId"].as_str().unwrap_or_default();
        return Some(format!(
            "a person has to decide: `approve` with `id: {id}`, `stepId: {step}` and `approved`"
        ));
    }
    let signal = list(&document["waitsFor"]).find(|wait| wait["kind"] == "signal");
    if let Some(name) = signal.and_then(|wait| wait["name"].as_str()) {
        return Some(format!(
            "it waits to be told: `signal` with `id: {id}` and `name: {name}` does; `status` with \
             `wait: true` waits for whoever does"
        ));
    }
    Some(format!("it goes on: `status` with `id: {id}` and `wait: true` waits for its end"))
}

fn told(document: &Value) -> String {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    let mut told = format!(
        "{}  {} of {} steps  {}  {}",
        text("state"),
        document["successful"],
        document["total"],
        text("executionId"),
        text("requestId"),
    );
    for error in list(&document["errors"]) {
        let part = |key: &str| error[key].as_str().unwrap_or_default();
        let item = error["index"].as_u64().map(|index| format!("[{index}]")).unwrap_or_default();
        let (code, step, message) = (part("code"), part("stepId"), part("message"));
        let _ = write!(told, "\nerror[{code}]: {step}{item}: {message}");
    }
    for step in list(&document["steps"]) {
        let name = step["stepId"].as_str().unwrap_or_default();
        for warning in list(&step["warnings"]).filter_map(Value::as_str) {
            let _ = write!(told, "\nwarning: {name}: {warning}");
        }
    }
    for wait in list(&document["waitsFor"]) {
        let _ = write!(told, "\nwaits: {}", wait["message"].as_str().unwrap_or_default());
    }
    if document["outputs"].as_object().is_some_and(|outputs| !outputs.is_empty()) {
        let _ = write!(told, "\noutputs: {}", clip(&pretty_json(&document["outputs"]), SHOWN));
    }
    if document["cut"] == true {
        told.push_str("\nwhat is large was left out; `faber debug --full` shows all of it");
    }
    if let Some(next) = document["next"].as_str() {
        let _ = write!(told, "\n{next}");
    }
    told
}

pub(crate) fn request(document: Value) -> Answer {
    let request = Request::deserialize(&document).unwrap_or_default();
    Answer { text: draw_report(&request, None, true, plain()), document: bounded(document) }
}

/// Lists at most `most` tools.
pub(crate) fn tools(found: Value, most: usize) -> Answer {
    let Value::Array(mut tools) = found else {
        return Answer { text: String::new(), document: json!({ "tools": [] }) };
    };
    let more = tools.len().saturating_sub(most);
    tools.truncate(most);
    let mut text = String::new();
    for tool in &tools {
        let part = |key: &str| tool[key].as_str().unwrap_or_default();
        let effect = part("effect").to_lowercase();
        let _ = writeln!(text, "{}  ({effect})  {}", part("name"), clip(part("description"), 200));
    }
    let mut document = json!({ "tools": tools });
    if more > 0 {
        let _ = writeln!(text, "and {more} more: use `search` or `toolSet`");
        document["more"] = json!(more);
    }
    Answer { text, document }
}

/// Lists the selected tools.
pub(crate) fn matches(found: &Value) -> Answer {
    let matches = list(found).map(|found| {
        json!({
            "name": found["tool"]["name"], "description": found["tool"]["description"],
            "score": found["score"], "hit": found["hit"],
        })
    });
    let matches: Vec<Value> = matches.collect();
    let mut text = String::new();
    for found in &matches {
        let part = |key: &str| found[key].as_str().unwrap_or_default();
        let score = found["score"].as_f64().unwrap_or_default();
        let hit = if found["hit"] == true { "" } else { "  (not near enough)" };
        let _ =
            writeln!(text, "{score:.3}  {}{hit}  {}", part("name"), clip(part("description"), 200));
    }
    Answer { text, document: json!({ "matches": matches }) }
}

pub(crate) fn saved(mut found: Value) -> Answer {
    without_null(Some(&mut found));
    let mut text = String::new();
    for saved in list(&found) {
        let part = |key: &str| saved[key].as_str().unwrap_or_default();
        let _ = writeln!(text, "{}  {}", part("name"), part("planId"));
    }
    if text.is_empty() {
        text.push_str("no plan was saved under a name");
    }
    Answer { text, document: json!({ "plans": found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_now_is_said() {
        let wait = |kind: &str| json!([{ "kind": kind, "stepId": "s", "name": "go" }]);
        let replanning = |state: &str| json!({ "state": state, "givenUp": "no more" });
        for (found, is_done, expected) in [
            (json!({ "state": "WAITING", "waitsFor": wait("approval") }), false, "`approve` with"),
            (
                json!({ "state": "WAITING", "waitsFor": wait("signal") }),
                false,
                "`signal` with `id: e` and `name: go`",
            ),
            (json!({ "state": "IN_PROGRESS", "waitsFor": [] }), false, "it goes on: `status`"),
            (json!({ "state": "FAILED" }), true, "`debug` with `id: r`"),
            (
                json!({ "state": "COMPLETED", "replanning": replanning("PENDING") }),
                false,
                "a model plans",
            ),
            (
                json!({ "state": "FAILED", "replanning": replanning("BEGUN"), "next": { "executionId": "n" } }),
                false,
                "it goes on as `n`",
            ),
            (json!({ "state": "FAILED", "replanning": replanning("GIVEN_UP") }), true, "no more"),
        ] {
            let mut found = found;
            found["executionId"] = json!("e");
            found["requestId"] = json!("r");
            let document = execution(found.clone()).document;
            assert_eq!(document["done"], is_done, "{found}");
            assert!(document["next"].as_str().unwrap().contains(expected), "{document}");
        }
    }

    #[test]
    fn an_execution_is_answered_in_few_bytes() {
        let large: Map<String, Value> =
            (0..10).map(|n| (format!("v{n}"), json!("x".repeat(1 << 20)))).collect();
        let steps = vec![json!({ "stepId": "s", "toolName": "t", "state": "SUCCEEDED" }); 50_000];
        let errors = vec![json!({ "stepId": "s", "message": "m".repeat(8 << 10) }); 5_000];
        let answer = execution(json!({
            "executionId": "exec_1", "state": "FAILED", "outputs": large, "steps": steps,
            "executionResults": { "variables": large, "errors": errors },
        }));
        let document = answer.document;
        assert!(document.to_string().len() < 2 << 20, "{}", document.to_string().len());
        assert_eq!(document["cut"], true);
        assert_eq!(document["variables"]["v9"]["bytes"], (1 << 20) + 2);
        assert!(!list(&document["errors"]).collect::<Vec<_>>().is_empty());
    }
}
