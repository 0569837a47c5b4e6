//! Results of MCP calls. Each result has a document for programs and a text for models.

use std::fmt::Write as _;

use client::{
    failure::Failure,
    types::{Plan, Request},
    view::{
        format::{clip_text, pretty_json},
        paint::Paint,
        plan as plan_view,
        report::draw_report,
    },
};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::diagnostic::Diagnostic;

use super::answer_size::{fit_document, shorten_outputs, shorten_request, truncate_list};

pub(crate) const EXECUTION_FIELDS: &str = "executionId requestId planId state total successful failed \
     skipped cancelled startedAt finishedAt outputs executionResults { variables errors { stepId \
     toolName index code message attempt retryable } } waitsFor { kind stepId name until message } \
     steps { stepId toolName state attempts durationMs warnings } replanning { state givenUp } \
     next { executionId }";

const MAX_TEXT_CHARS: usize = 64 << 10;
const MAX_OUTPUT_CHARS: usize = 16 << 10;

const CUT_NOTE: &str = "\nthe answer was too large and was cut: request less, or run `faber debug \
                        --full` to see everything";

#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    document: Value,
}

impl From<Answer> for CallToolResult {
    fn from(Answer { text, document }: Answer) -> Self {
        let mut text = clip_text(&text, MAX_TEXT_CHARS);
        let (document, is_cut) = fit_document(document);
        if is_cut {
            text.push_str(CUT_NOTE);
        }
        let mut result = Self::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(document);
        result
    }
}

pub(crate) fn convert_failure(failure: &Failure) -> CallToolResult {
    let drawn = plan_view::draw_failure(failure, Paint::new(false));
    let code = format!("[{}]", failure.code);
    // Adds a line with the code of the failure, unless the text already contains the code.
    let text = if drawn.contains(&code) {
        drawn
    } else {
        format!("error{code}: {}\n{drawn}", failure.message)
    };
    let mut result =
        CallToolResult::error(vec![ContentBlock::text(clip_text(&text, MAX_TEXT_CHARS))]);
    result.structured_content = Some(fit_document(failure.to_json()).0);
    result
}

fn list_items(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

fn paint_without_colors() -> Paint {
    Paint::new(false)
}

/// Removes null fields from the objects of a list, because the output schemas allow no null.
fn remove_nulls(list: Option<&mut Value>) {
    let list = list.and_then(Value::as_array_mut);
    for fields in list.into_iter().flatten().filter_map(Value::as_object_mut) {
        fields.retain(|_, value| !value.is_null());
    }
}

pub(crate) fn plan_answer(mut plan: Value) -> Answer {
    remove_nulls(plan.get_mut("diagnostics"));
    remove_nulls(plan.get_mut("tools"));
    let typed = Plan::deserialize(&plan).unwrap_or_default();
    let mut text = format!("{}\n", plan_view::draw_plan(&typed, paint_without_colors()));
    let problems = plan_view::draw_diagnostics(&typed.diagnostics, "", paint_without_colors());
    if !problems.is_empty() {
        let _ = writeln!(text, "{problems}");
    }
    let id = plan["planId"].as_str().unwrap_or_default();
    let _ = write!(text, "to execute it, call `execute` with `id: {id}`");
    Answer { text, document: plan }
}

pub(crate) fn validation_answer(mut payload: Value) -> Answer {
    remove_nulls(payload.get_mut("diagnostics"));
    let (plan, diagnostics) = (&payload["plan"], &payload["diagnostics"]);
    let is_valid = !plan.is_null();
    let mut text = if is_valid {
        let order: Vec<&str> =
            list_items(&plan["executionOrder"]).filter_map(Value::as_str).collect();
        format!("the plan is valid: {}", order.join(", "))
    } else {
        "the plan is not valid".to_owned()
    };
    let found: Vec<Diagnostic> = Deserialize::deserialize(diagnostics).unwrap_or_default();
    let problems = plan_view::draw_diagnostics(&found, "", paint_without_colors());
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

pub(crate) fn execution_answer(mut found: Value) -> Answer {
    let state = found["state"].as_str().unwrap_or_default().to_owned();
    let replanning = Replanning::from_execution(&found);
    let is_finished = matches!(state.as_str(), "COMPLETED" | "FAILED" | "CANCELLED");
    let is_done =
        is_finished && !matches!(replanning, Replanning::Pending | Replanning::Started(_));
    let mut results = found["executionResults"].take();
    let mut outputs = found["outputs"].take();
    let mut variables = results["variables"].take();
    let mut is_cut = shorten_outputs(&mut outputs) | shorten_outputs(&mut variables);
    let mut document = Map::new();
    let mut set_field = |key: &str, value: Value| {
        if !value.is_null() {
            document.insert(key.to_owned(), value);
        }
    };
    for key in ["executionId", "requestId", "planId"] {
        set_field(key, found[key].take());
    }
    set_field("state", json!(state));
    set_field("done", json!(is_done));
    for key in ["total", "successful", "failed", "skipped", "cancelled", "startedAt", "finishedAt"]
    {
        set_field(key, found[key].take());
    }
    set_field("outputs", outputs);
    set_field("variables", variables);
    for (key, mut list) in [
        ("errors", results["errors"].take()),
        ("steps", found["steps"].take()),
        ("waitsFor", found["waitsFor"].take()),
    ] {
        remove_nulls(Some(&mut list));
        is_cut |= truncate_list(&mut list);
        set_field(key, list);
    }
    let mut document = Value::Object(document);
    if is_cut {
        document["cut"] = json!(true);
    }
    if let Some(next) =
        replanning.suggest_call(&document).or_else(|| suggest_call(&document, is_finished))
    {
        document["next"] = json!(next);
    }
    Answer { text: draw_execution(&document), document }
}

enum Replanning {
    None,
    Pending,
    Started(String),
    GivenUp(String),
}

impl Replanning {
    fn from_execution(execution: &Value) -> Self {
        let replanning = &execution["replanning"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match replanning["state"].as_str() {
            Some("PENDING") => Self::Pending,
            Some("BEGUN") => Self::Started(text(&execution["next"]["executionId"])),
            Some("GIVEN_UP") => Self::GivenUp(text(&replanning["givenUp"])),
            _ => Self::None,
        }
    }

    fn suggest_call(&self, document: &Value) -> Option<String> {
        let text = |key: &str| document[key].as_str().unwrap_or_default();
        Some(match self {
            Self::None => return None,
            Self::Pending => format!(
                "a model is writing the next plan: call `status` with `id: {}` and `wait: true` to \
                 wait until it is executed",
                text("executionId")
            ),
            Self::Started(id) => {
                format!("it was replanned and continues as `{id}`: call `status` with `id: {id}`")
            }
            Self::GivenUp(reason) => format!(
                "it was not replanned: {reason}; call `debug` with `id: {}` to see everything about \
                 it",
                text("requestId")
            ),
        })
    }
}

fn suggest_call(document: &Value, is_finished: bool) -> Option<String> {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    let id = text("executionId");
    if document["state"] == "FAILED" {
        return Some(format!("call `debug` with `id: {}` to see why it failed", text("requestId")));
    }
    if is_finished {
        return None;
    }
    let person = list_items(&document["waitsFor"])
        .find(|wait| matches!(wait["kind"].as_str(), Some("approval" | "decision")));
    if let Some(wait) = person {
        let step = wait["stepId"].as_str().unwrap_or_default();
        return Some(format!(
            "it waits for a person: ask the user, then call `approve` with `id: {id}`, `stepId: \
             {step}` and `approved`"
        ));
    }
    let signal = list_items(&document["waitsFor"]).find(|wait| wait["kind"] == "signal");
    if let Some(name) = signal.and_then(|wait| wait["name"].as_str()) {
        return Some(format!(
            "it waits for a signal: call `signal` with `id: {id}` and `name: {name}` to send it, or \
             `status` with `wait: true` to wait for it"
        ));
    }
    Some(format!(
        "it still runs: call `status` with `id: {id}` and `wait: true` to wait until it finishes"
    ))
}

fn draw_execution(document: &Value) -> String {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    let mut text = format!(
        "{}  {} of {} steps  {}  {}",
        text("state"),
        document["successful"],
        document["total"],
        text("executionId"),
        text("requestId"),
    );
    for error in list_items(&document["errors"]) {
        let part = |key: &str| error[key].as_str().unwrap_or_default();
        let item = error["index"].as_u64().map(|index| format!("[{index}]")).unwrap_or_default();
        let (code, step, message) = (part("code"), part("stepId"), part("message"));
        let _ = write!(text, "\nerror[{code}]: {step}{item}: {message}");
    }
    for step in list_items(&document["steps"]) {
        let name = step["stepId"].as_str().unwrap_or_default();
        for warning in list_items(&step["warnings"]).filter_map(Value::as_str) {
            let _ = write!(text, "\nwarning: {name}: {warning}");
        }
    }
    for wait in list_items(&document["waitsFor"]) {
        let _ = write!(text, "\nwaits: {}", wait["message"].as_str().unwrap_or_default());
    }
    if document["outputs"].as_object().is_some_and(|outputs| !outputs.is_empty()) {
        let _ = write!(
            text,
            "\noutputs: {}",
            clip_text(&pretty_json(&document["outputs"]), MAX_OUTPUT_CHARS)
        );
    }
    if document["cut"] == true {
        text.push_str("\nlarge values were shortened: run `faber debug --full` to see everything");
    }
    if let Some(next) = document["next"].as_str() {
        let _ = write!(text, "\n{next}");
    }
    text
}

pub(crate) fn request_answer(document: Value) -> Answer {
    let request = Request::deserialize(&document).unwrap_or_default();
    Answer {
        text: draw_report(&request, None, true, paint_without_colors()),
        document: shorten_request(document),
    }
}

pub(crate) fn tools_answer(found: Value, max_tools: usize) -> Answer {
    let Value::Array(mut tools) = found else {
        return Answer { text: String::new(), document: json!({ "tools": [] }) };
    };
    let more = tools.len().saturating_sub(max_tools);
    tools.truncate(max_tools);
    let mut text = String::new();
    for tool in &tools {
        let part = |key: &str| tool[key].as_str().unwrap_or_default();
        let effect = part("effect").to_lowercase();
        let _ =
            writeln!(text, "{}  ({effect})  {}", part("name"), clip_text(part("description"), 200));
    }
    let mut document = json!({ "tools": tools });
    if more > 0 {
        let _ = writeln!(text, "and {more} more: narrow the list with `search` or `toolSet`");
        document["more"] = json!(more);
    }
    Answer { text, document }
}

pub(crate) fn matches_answer(found: &Value) -> Answer {
    let matches = list_items(found).map(|found| {
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
        let hit = if found["hit"] == true { "" } else { "  (no hit)" };
        let _ = writeln!(
            text,
            "{score:.3}  {}{hit}  {}",
            part("name"),
            clip_text(part("description"), 200)
        );
    }
    Answer { text, document: json!({ "matches": matches }) }
}

pub(crate) fn saved_plans_answer(mut found: Value) -> Answer {
    remove_nulls(Some(&mut found));
    let mut text = String::new();
    for saved in list_items(&found) {
        let part = |key: &str| saved[key].as_str().unwrap_or_default();
        let _ = writeln!(text, "{}  {}", part("name"), part("planId"));
    }
    if text.is_empty() {
        text.push_str("there are no saved plans");
    }
    Answer { text, document: json!({ "plans": found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_next_call() {
        let wait = |kind: &str| json!([{ "kind": kind, "stepId": "s", "name": "go" }]);
        let replanning = |state: &str| json!({ "state": state, "givenUp": "no more" });
        for (found, is_done, expected) in [
            (
                json!({ "state": "WAITING", "waitsFor": wait("approval") }),
                false,
                "call `approve` with",
            ),
            (
                json!({ "state": "WAITING", "waitsFor": wait("signal") }),
                false,
                "`signal` with `id: e` and `name: go`",
            ),
            (
                json!({ "state": "IN_PROGRESS", "waitsFor": [] }),
                false,
                "it still runs: call `status`",
            ),
            (json!({ "state": "FAILED" }), true, "`debug` with `id: r`"),
            (
                json!({ "state": "COMPLETED", "replanning": replanning("PENDING") }),
                false,
                "a model is writing",
            ),
            (
                json!({ "state": "FAILED", "replanning": replanning("BEGUN"), "next": { "executionId": "n" } }),
                false,
                "continues as `n`",
            ),
            (json!({ "state": "FAILED", "replanning": replanning("GIVEN_UP") }), true, "no more"),
        ] {
            let mut found = found;
            found["executionId"] = json!("e");
            found["requestId"] = json!("r");
            let document = execution_answer(found.clone()).document;
            assert_eq!(document["done"], is_done, "{found}");
            assert!(document["next"].as_str().unwrap().contains(expected), "{document}");
        }
    }

    #[test]
    fn a_large_execution_is_shortened() {
        let large: Map<String, Value> =
            (0..10).map(|n| (format!("v{n}"), json!("x".repeat(1 << 20)))).collect();
        let steps = vec![json!({ "stepId": "s", "toolName": "t", "state": "SUCCEEDED" }); 50_000];
        let errors = vec![json!({ "stepId": "s", "message": "m".repeat(8 << 10) }); 5_000];
        let answer = execution_answer(json!({
            "executionId": "exec_1", "state": "FAILED", "outputs": large, "steps": steps,
            "executionResults": { "variables": large, "errors": errors },
        }));
        let document = answer.document;
        assert!(document.to_string().len() < 2 << 20, "{}", document.to_string().len());
        assert_eq!(document["cut"], true);
        assert_eq!(document["variables"]["v9"]["bytes"], (1 << 20) + 2);
        assert!(!list_items(&document["errors"]).collect::<Vec<_>>().is_empty());
    }
}
