use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use engine::{to_api_form, yaml};
use planner::{compile, draft::Draft};
use serde_json::{Map, Value, json};
use shared::diagnostic::Diagnostic;

use super::{failure::Failure, view::format::clip_text};
use crate::{
    Client,
    types::{DIAGNOSTIC_FIELDS, PlanPayload},
};

const GENERATED_FIELDS: [&str; 12] = [
    "planId",
    "requestId",
    "version",
    "createdAt",
    "planner",
    "executionOrder",
    "layers",
    "diagnostics",
    "mermaid",
    "dot",
    "drawing",
    "layout",
];

#[derive(Debug)]
pub struct WrittenPlan {
    pub input: Value,
    pub notices: Vec<Diagnostic>,
}

impl WrittenPlan {
    fn new(draft: &Draft, written: Value) -> Self {
        let notices = draft.notices.clone();
        // The API rejects unknown fields, so a plan with errors is replaced by the parsed draft,
        // which contains no unknown field.
        let is_readable = !notices.iter().any(Diagnostic::is_error);
        let mut input = if is_readable { written } else { json!(draft) };
        to_api_form(&mut input);
        Self { input, notices }
    }

    /// Returns the plan as an input of the API. If parsing found errors, adds the errors of the
    /// compiler, so that users see all errors in one answer.
    pub async fn check(self, client: &Client) -> Result<Value, Failure> {
        let mut errors = self.error_diagnostics();
        if errors.is_empty() {
            return Ok(self.input);
        }
        let fields = format!("diagnostics {{ {DIAGNOSTIC_FIELDS} }}");
        let arguments = [("input: PlanInput!", self.input)];
        let compiled = client.query::<PlanPayload>("validatePlan", &arguments, &fields).await;
        // If the compiler is unavailable, the errors of parsing are still reported.
        errors.extend(compiled.map(|payload| payload.diagnostics).unwrap_or_default());
        errors.sort_by_key(step_index_of);
        Err(Failure::invalid_plan(&errors))
    }

    /// Returns the errors of this plan. Without errors, returns `failure`, which prevented further
    /// checks.
    pub fn prefer_errors(&self, failure: Failure) -> Failure {
        match self.error_diagnostics() {
            errors if errors.is_empty() => failure,
            errors => Failure::invalid_plan(&errors),
        }
    }

    pub fn has_errors(&self) -> bool {
        self.notices.iter().any(Diagnostic::is_error)
    }

    fn error_diagnostics(&self) -> Vec<Diagnostic> {
        self.notices.iter().filter(|notice| notice.is_error()).cloned().collect()
    }
}

fn step_index_of(diagnostic: &Diagnostic) -> usize {
    let inside = diagnostic.path.strip_prefix("tools[").and_then(|rest| rest.split_once(']'));
    inside.and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

pub async fn read_plan(file: &Path) -> Result<WrittenPlan, Failure> {
    let text = read_text("the plan", file).await?;
    let place = file_label(file);
    let json = yaml_to_json(&text).map_err(|error| {
        let path = place.as_str().unwrap_or_default();
        Failure::usage(format!("`{path}`: {error}")).with("file", place.clone())
    })?;
    parse(&json).map_err(|errors| Failure::invalid_plan(&errors).with("file", place))
}

fn yaml_to_json(text: &str) -> Result<Cow<'_, str>, String> {
    if text.trim_start().starts_with(['{', '[']) {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(yaml::parse(text)?.to_string()))
}

pub fn parse(json: &str) -> Result<WrittenPlan, Vec<Diagnostic>> {
    let Ok(mut input) = serde_json::from_str::<Value>(json) else {
        // The text is not JSON, and `compile::parse` reports the reason.
        return compile::parse(json).map(|draft| WrittenPlan::new(&draft, Value::Null));
    };
    let written = input.clone();
    remove_generated(&mut input)
        .map_err(|error| vec![Diagnostic::error("plan.invalid_json", "", error)])?;
    let changed = (input != written).then(|| input.to_string());
    let draft = compile::parse(changed.as_deref().unwrap_or(json))?;
    Ok(WrittenPlan::new(&draft, input))
}

/// Turns a printed plan into a draft. Leaves a draft unchanged. Rejects other documents that Faber
/// prints.
fn remove_generated(value: &mut Value) -> Result<(), String> {
    let Some(fields) = value.as_object_mut() else { return Ok(()) };
    if !fields.contains_key("tools") {
        return describe_other_document(fields).map_or(Ok(()), Err);
    }
    let was_printed = fields.get("planId").is_some_and(Value::is_string);
    if was_printed {
        fields.retain(|name, _| !GENERATED_FIELDS.contains(&name.as_str()));
    }
    for step in fields.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(step) = step.as_object_mut()
            && (was_printed || step.contains_key("stepId"))
        {
            step_to_draft(step);
        }
    }
    Ok(())
}

fn step_to_draft(step: &mut Map<String, Value>) {
    if !step.contains_key("id")
        && let Some(id) = step.shift_remove("stepId")
    {
        step.insert("id".to_owned(), id);
    }
    step.shift_remove("effect");
    if step.get("plan").is_some_and(|plan| !plan.is_null()) {
        // Removes the tool name of a step with a sub-plan, because Faber prints the plan's id
        // there.
        step.shift_remove("toolName");
    }
    if let Some(undo) = step.get_mut("compensate").and_then(Value::as_object_mut) {
        undo.shift_remove("effect");
    }
}

fn describe_other_document(fields: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    if let Some(error) = fields.get("error").and_then(|error| error.get("message")?.as_str()) {
        return Some(format!("this is not a plan but a printed error: {error}"));
    }
    if let (Some(_), Some(plan)) = (fields.get("executionId"), text("planId")) {
        return Some(format!(
            "this is an execution, not a plan: `faber export {plan}` writes its plan, and `faber \
             execute {plan}` executes the plan again"
        ));
    }
    if let (Some(id), Some(_)) = (text("requestId"), fields.get("plans")) {
        return Some(format!(
            "this is a request, not a plan: `faber export {id}` writes the newest plan of the \
             request"
        ));
    }
    None
}

pub fn file_label(file: &Path) -> Value {
    if file == Path::new("-") {
        return json!("<stdin>");
    }
    // Prints the path without each `.` in it.
    json!(file.components().collect::<PathBuf>())
}

pub async fn read_json(option: &str, text: &str) -> Result<Value, Failure> {
    let json = match text.strip_prefix('@') {
        None => text.to_owned(),
        Some(file) => read_text(option, Path::new(file)).await?,
    };
    serde_json::from_str(&json).map_err(|err| {
        let hint = "a string needs quotes, as in '\"text\"'; `@FILE` reads a file";
        let place = clip_text(text.strip_prefix('@').unwrap_or(text), 80);
        Failure::usage(format!("`{option}`: `{place}` is not JSON: {err}; {hint}"))
    })
}

/// Reads a file, or standard input for `-`, without a byte order mark.
pub async fn read_text(description: &str, file: &Path) -> Result<String, Failure> {
    let unreadable = |err: std::io::Error| {
        Failure::usage(format!("{description}: `{}` cannot be read: {err}", file.display()))
    };
    let mut text = if file == Path::new("-") {
        let read = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
        let read = read.await.map_err(|err| Failure::new("INTERNAL", err.to_string()))?;
        read.map_err(unreadable)?
    } else {
        tokio::fs::read_to_string(file).await.map_err(unreadable)?
    };
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

pub async fn write_file(file: &Path, content: &[u8]) -> Result<(), Failure> {
    let written = tokio::fs::write(file, content).await;
    written.map_err(|err| Failure::usage(format!("`{}` cannot be written: {err}", file.display())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mut value: Value) -> Result<Value, String> {
        remove_generated(&mut value).map(|()| value)
    }

    #[test]
    fn a_printed_plan_is_read_as_a_draft() {
        let printed = json!({
            "planId": "plan_1_aaaaaaaaa", "requestId": "req_1_aaaaaaaaa", "version": 1, "query": "q",
            "createdAt": "2026-01-01T00:00:00Z", "planner": "offline", "executionOrder": ["a", "b"],
            "layers": [["a"], ["b"]], "diagnostics": [], "mermaid": "", "dot": "",
            "tools": [
                { "stepId": "a", "toolName": "flow.noop", "effect": "READ", "when": null,
                  "compensate": { "toolName": "flow.noop", "effect": "once", "parameters": {} } },
                { "stepId": "b", "toolName": "plan_1_bbbbbbbbb", "plan": "plan_1_bbbbbbbbb" },
                { "id": "c", "name": "flow.noop" },
            ],
        });
        let draft = json!({
            "query": "q",
            "tools": [
                { "toolName": "flow.noop", "when": null, "id": "a",
                  "compensate": { "toolName": "flow.noop", "parameters": {} } },
                { "plan": "plan_1_bbbbbbbbb", "id": "b" },
                { "id": "c", "name": "flow.noop" },
            ],
        });
        assert_eq!(read(printed), Ok(draft));
    }

    #[test]
    fn a_document_that_is_not_a_printed_plan_stays_unchanged() {
        let drafts = [
            json!({ "tools": [{ "name": "a", "effect": "READ" }], "version": 1, "requestId": "r" }),
            json!({ "tools": [{ "toolName": "a", "plan": "p" }] }),
            json!({ "tols": [] }),
            json!([]),
            json!(null),
        ];
        for draft in drafts {
            assert_eq!(read(draft.clone()), Ok(draft));
        }
    }

    #[test]
    fn another_printed_document_is_named_in_the_error() {
        let table = [
            (json!({ "executionId": "exec_1_a", "planId": "plan_1_a" }), "this is an execution"),
            (json!({ "requestId": "req_1_a", "plans": [] }), "this is a request"),
            (json!({ "error": { "code": "X", "message": "no planner" } }), "no planner"),
        ];
        for (value, part) in table {
            let error = read(value).expect_err("this is not a plan");
            assert!(error.contains(part), "{error}");
        }
    }
}
