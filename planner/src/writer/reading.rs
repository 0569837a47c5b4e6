//! Reads plans as models write them: in code fences, amid prose, with trailing commas and other
//! field names.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use shared::{diagnostic::Diagnostic, limits};

use crate::{
    calls::{CatalogNames, lenient},
    catalog::Catalog,
    compile,
    draft::Draft,
};

const STEP_LIST_NAMES: [&str; 8] =
    ["tools", "steps", "tool_calls", "toolCalls", "calls", "selectedTools", "tasks", "actions"];
const PLAN_FIELDS: [&str; 5] = ["plan", "answer", "result", "response", "output"];
const REASON_FIELDS: [&str; 5] = ["reason", "refusal", "error", "message", "explanation"];
const FIELD_NAMES: [(&str, &[&str]); 9] = [
    ("id", &["stepId", "step_id", "step", "key"]),
    ("name", &["toolName", "tool_name", "tool", "function", "action"]),
    ("parameters", &["params", "args", "arguments", "input", "inputs"]),
    ("dependsOn", &["depends_on", "dependencies", "needs", "after"]),
    ("outputMapping", &["output_mapping"]),
    ("forEach", &["for_each", "foreach"]),
    ("when", &["condition", "if"]),
    ("onError", &["on_error"]),
    ("timeoutMs", &["timeout_ms"]),
];
const FIELDS_WITHOUT_ALIASES: [&str; 7] = [
    "retry",
    "requiresApproval",
    "maxParallel",
    "compensate",
    "idleTimeoutMs",
    "cacheTtlMs",
    "strictTemplates",
];

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ParsedAnswer {
    Draft(Box<Draft>),
    Impossible(String),
    Prose(String),
}

pub(super) fn read_answer(
    text: &str,
    catalog: &Catalog,
    known_plans: &BTreeSet<&str>,
) -> Result<ParsedAnswer, Vec<Diagnostic>> {
    if text.len() > limits::REPLY_BYTES {
        let message =
            format!("the answer has {} bytes; the limit is {}", text.len(), limits::REPLY_BYTES);
        return Err(vec![Diagnostic::error("plan.too_large", "", message)]);
    }
    let Some(found) = find_plan(text) else {
        if is_prose(text) {
            return Ok(ParsedAnswer::Prose(text.trim().to_owned()));
        }
        return Err(vec![no_json_error()]);
    };
    if let Some(reason) = impossible_reason(&found) {
        return Ok(ParsedAnswer::Impossible(reason));
    }
    let mut warnings = Vec::new();
    let draft = shape_plan(found, catalog, known_plans, &mut warnings);
    let draft = compile::parse_value(draft)?;
    warnings.extend(draft.notices.iter().cloned());
    Ok(ParsedAnswer::Draft(Box::new(Draft { notices: warnings, ..draft })))
}

pub(super) fn no_json_error() -> Diagnostic {
    let message = "there is no JSON object in the answer";
    let help = "answer with `{\"tools\": [{\"name\": …, \"parameters\": {…}}]}` and nothing else";
    Diagnostic::error("plan.invalid_json", "", message).with_help(help)
}

/// Returns whether an answer is prose. A truncated or unreadable plan is not prose.
fn is_prose(text: &str) -> bool {
    text.chars().any(char::is_alphabetic) && !text.contains(['{', '}'])
}

/// Returns the plan in a text: the whole text if it is a JSON object or list, otherwise the value
/// that looks most like a plan.
fn find_plan(text: &str) -> Option<Value> {
    let whole = text.trim().trim_start_matches('\u{feff}');
    if let Ok(value @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(whole) {
        return Some(value);
    }
    let mut found = lenient::read_all(text);
    let best =
        found.iter().enumerate().max_by_key(|(index, value)| (plan_likeness(value), *index))?.0;
    Some(found.swap_remove(best)).filter(|value| plan_likeness(value) > 0)
}

/// Returns how much a value looks like a plan. Of equally likely plans the last plan is used,
/// because models correct themselves.
fn plan_likeness(value: &Value) -> u8 {
    match value {
        Value::Object(fields) if find_step_list_name(fields).is_some() => 4,
        Value::Object(fields) if fields.contains_key("impossible") => 3,
        Value::Object(fields)
            if PLAN_FIELDS.iter().any(|name| fields.get(*name).is_some_and(is_nested)) =>
        {
            3
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(is_step) => 2,
        value if is_step(value) => 1,
        _ => 0,
    }
}

fn is_nested(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

fn find_step_list_name(fields: &Map<String, Value>) -> Option<&'static str> {
    STEP_LIST_NAMES.into_iter().find(|name| fields.get(*name).is_some_and(Value::is_array))
}

fn is_step(value: &Value) -> bool {
    let names = || std::iter::once("name").chain(FIELD_NAMES[1].1.iter().copied());
    value.as_object().is_some_and(|fields| names().any(|name| fields.contains_key(name)))
}

fn impossible_reason(found: &Value) -> Option<String> {
    let fields = found.as_object().filter(|fields| {
        find_step_list_name(fields)
            .is_none_or(|steps| fields[steps].as_array().is_some_and(Vec::is_empty))
    })?;
    // `{"tools": [], "reason": "…"}` declines the request, too.
    let reason = || REASON_FIELDS.into_iter().find_map(|name| fields.get(name));
    let reason = match fields.get("impossible") {
        Some(reason) => reason,
        None => {
            reason().filter(|reason| reason.is_string() && find_step_list_name(fields).is_some())?
        }
    };
    match reason {
        Value::String(reason) if !reason.trim().is_empty() => Some(reason.trim().to_owned()),
        Value::Bool(true) => Some("the model says that no tool fits the request".to_owned()),
        _ => None,
    }
}

fn shape_plan(
    found: Value,
    catalog: &Catalog,
    known_plans: &BTreeSet<&str>,
    warnings: &mut Vec<Diagnostic>,
) -> Value {
    let mut fields = match found {
        Value::Object(fields) => unwrap_plan(fields),
        Value::Array(steps) => Map::from_iter([("tools".to_owned(), Value::Array(steps))]),
        other => return other,
    };
    if find_step_list_name(&fields).is_none() && is_step(&Value::Object(fields.clone())) {
        fields = Map::from_iter([("tools".to_owned(), json!([fields]))]);
    }
    let Some(key) = find_step_list_name(&fields) else { return Value::Object(fields) };
    let steps = fields.shift_remove(key).unwrap_or_default();
    let names = CatalogNames::new(catalog);
    let steps = steps.as_array().cloned().unwrap_or_default().into_iter().enumerate();
    let steps: Vec<Value> = steps
        .map(|(index, written)| {
            shape_step(
                written,
                &mut StepReader { step_index: index, names: &names, known_plans, warnings },
            )
        })
        .collect();
    let mut draft = Map::from_iter([("tools".to_owned(), Value::Array(steps))]);
    let order = fields.shift_remove("executionOrder");
    let order = order.or_else(|| fields.shift_remove("execution_order"));
    if let Some(order) = order.filter(is_order) {
        draft.insert("executionOrder".to_owned(), order);
    }
    Value::Object(draft)
}

fn is_order(order: &Value) -> bool {
    order.as_array().is_some_and(|ids| ids.iter().all(Value::is_string))
}

fn unwrap_plan(mut fields: Map<String, Value>) -> Map<String, Value> {
    for _ in 0..PLAN_FIELDS.len() {
        if find_step_list_name(&fields).is_some() {
            break;
        }
        let inside = PLAN_FIELDS.iter().find(|name| fields.get(**name).is_some_and(is_nested));
        match inside.and_then(|name| fields.shift_remove(*name)) {
            Some(Value::Object(inner)) => fields = inner,
            Some(steps) => {
                fields.insert("tools".to_owned(), steps);
            }
            None => break,
        }
    }
    fields
}

struct StepReader<'a, 'b> {
    step_index: usize,
    names: &'a CatalogNames<'b>,
    known_plans: &'a BTreeSet<&'b str>,
    warnings: &'a mut Vec<Diagnostic>,
}

impl StepReader<'_, '_> {
    fn add_notice(&mut self, field: &str, message: String) {
        let path = format!("tools[{}].{field}", self.step_index);
        self.warnings.push(Diagnostic::warning("plan.understood", path, message));
    }
}

fn shape_step(written: Value, reading: &mut StepReader<'_, '_>) -> Value {
    let mut fields = match written {
        Value::Object(fields) => fields,
        other => return other,
    };
    // Reads the form `{"type": "function", "function": {"name": …, "arguments": …}}`.
    if let Some(Value::Object(inner)) = fields.get("function").cloned() {
        fields.shift_remove("function");
        fields.shift_remove("type");
        inner.into_iter().for_each(|(key, value)| {
            fields.entry(key).or_insert(value);
        });
    }
    let mut step = Map::new();
    for (name, others) in FIELD_NAMES {
        let all_names = std::iter::once(name).chain(others.iter().copied());
        let given: Vec<Value> = all_names
            .filter_map(|name| fields.shift_remove(name))
            .filter(|value| !value.is_null())
            .collect();
        if let Some(value) = given.into_iter().next() {
            step.insert(name.to_owned(), value);
        }
    }
    for name in FIELDS_WITHOUT_ALIASES {
        if let Some(value) = fields.shift_remove(name).filter(|value| !value.is_null()) {
            step.insert(name.to_owned(), value);
        }
    }
    // If a step names a tool, `plan` is a description and not a sub-plan.
    let plan = fields.get("plan").and_then(Value::as_str).filter(|_| !step.contains_key("name"));
    if plan.is_some_and(|plan| reading.known_plans.contains(plan)) {
        step.extend(fields.shift_remove("plan").map(|plan| ("plan".to_owned(), plan)));
    } else if step.contains_key("name") {
        fields.shift_remove("plan");
    }
    if let Some(unread) = fields.keys().next() {
        reading.add_notice(unread, format!("a step has no field `{unread}`: it was left out"));
    }
    repair_fields(&mut step, reading);
    Value::Object(step)
}

fn repair_fields(step: &mut Map<String, Value>, reading: &mut StepReader<'_, '_>) {
    if let Some(Value::Number(id)) = step.get("id") {
        // Adds a prefix, because a template begins with the step's id and `{{1.x}}` looks like a
        // number.
        let id = format!("step_{id}");
        reading.add_notice("id", format!("the id is a number; it was read as `{id}`"));
        step.insert("id".to_owned(), json!(id));
    }
    if let Some(Value::String(name)) = step.get("name")
        && let Some(tool) = reading.names.find(name)
        && tool.name.as_str() != name
        && tool.name.as_str().eq_ignore_ascii_case(name)
    {
        let (name, tool_name) = (name.clone(), tool.name.to_string());
        reading.add_notice("name", format!("`{name}` was read as the tool `{tool_name}`"));
        step.insert("name".to_owned(), json!(tool_name));
    }
    if let Some(Value::String(text)) = step.get("parameters") {
        let object = match text.trim() {
            "" => Some(json!({})),
            text => find_first_object(text),
        };
        if let Some(object) = object {
            reading.add_notice("parameters", "the parameters are text; it was read".to_owned());
            step.insert("parameters".to_owned(), object);
        }
    }
    let nothing = |value: &Value| {
        value.as_str().is_some_and(|text| {
            matches!(text.trim().to_ascii_lowercase().as_str(), "" | "none" | "null" | "[]")
        })
    };
    if step.get("dependsOn").is_some_and(nothing) {
        step.shift_remove("dependsOn");
    }
    for name in ["when", "forEach"] {
        if step.get(name).is_some_and(nothing) {
            step.shift_remove(name);
        }
    }
}

fn find_first_object(text: &str) -> Option<Value> {
    let strict = serde_json::from_str(text).ok().filter(Value::is_object);
    strict.or_else(|| lenient::read_all(text).into_iter().find(Value::is_object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::tests::make_catalog;

    fn read_draft(text: &str) -> Draft {
        match read_answer(text, &make_catalog(), &BTreeSet::new()) {
            Ok(ParsedAnswer::Draft(draft)) => *draft,
            other => panic!("{text}: {other:?}"),
        }
    }

    const REPLIES: [(&str, &str); 14] = [
        ("as it should be", include_str!("replies/plain.txt")),
        ("in a fence, amid prose", include_str!("replies/fenced.txt")),
        ("with commas too many and comments", include_str!("replies/commas.txt")),
        ("in single quotes", include_str!("replies/single_quotes.txt")),
        ("with `toolName` and text for parameters", include_str!("replies/text_parameters.txt")),
        ("as calls of functions", include_str!("replies/functions.txt")),
        ("as a list", include_str!("replies/list.txt")),
        ("inside an answer", include_str!("replies/nested.txt")),
        ("in another order, and with a wrong one", include_str!("replies/order.txt")),
        ("with names in another case", include_str!("replies/case.txt")),
        ("with words beside the steps", include_str!("replies/words.txt")),
        ("with thoughts and a first try before it", include_str!("replies/second_try.txt")),
        ("with keys that have no quotes", include_str!("replies/bare_keys.txt")),
        ("with nothing where nothing is", include_str!("replies/nulls.txt")),
    ];

    #[test]
    fn a_plan_is_read_in_every_accepted_shape() {
        for (how, reply) in REPLIES {
            let about = crate::writer::tests::plan_info();
            let plan = compile::compile(&read_draft(reply), about, &make_catalog());
            let plan = plan.unwrap_or_else(|err| panic!("{how}: {err:?}"));
            let steps = plan.steps().iter();
            let steps: Vec<Value> =
                steps.map(|step| json!([step.tool.as_str(), &*step.parameters])).collect();
            let expected = json!([
                ["blog.createAuthor", { "name": "Alice", "email": "alice@test.com" }],
                ["blog.createBlog", {
                    "authorId": "{{createAuthor._id}}",
                    "title": "It's {new}",
                    "content": "about // nothing, really",
                }],
            ]);
            assert_eq!(json!(steps), expected, "{how}");
        }
    }

    #[test]
    fn an_answer_without_a_plan_is_reported() {
        for (text, code) in [
            ("", "plan.invalid_json"),
            ("…", "plan.invalid_json"),
            ("{I cannot do that.}", "plan.invalid_json"),
            (
                "{\"tools\": [{\"name\": \"createAuthor\", \"parameters\": {\"name\": \"Al",
                "plan.invalid_json",
            ),
            ("{\"a\": 1}", "plan.unknown_field"),
            ("{\"tools\": [1]}", "plan.invalid_json"),
            ("[1, 2]", "plan.invalid_json"),
        ] {
            let diagnostics = read_answer(text, &make_catalog(), &BTreeSet::new()).unwrap_err();
            assert!(
                diagnostics.iter().any(|diagnostic| diagnostic.code == code),
                "{text}: {diagnostics:?}"
            );
        }
        let long = " ".repeat(limits::REPLY_BYTES + 1);
        assert_eq!(
            read_answer(&long, &make_catalog(), &BTreeSet::new()).unwrap_err()[0].code,
            "plan.too_large"
        );
    }

    #[test]
    fn an_answer_may_say_that_the_request_is_impossible() {
        for text in [
            r#"{"impossible": "no tool sends mail"}"#,
            r#"{"tools": [], "impossible": " no tool sends mail "}"#,
            "Sorry:\n```json\n{'impossible': 'no tool sends mail',}\n```",
        ] {
            let expected = ParsedAnswer::Impossible("no tool sends mail".to_owned());
            assert_eq!(
                read_answer(text, &make_catalog(), &BTreeSet::new()),
                Ok(expected),
                "{text}"
            );
        }
        let both = r#"{"tools": [{"name": "listAuthors"}], "impossible": "x"}"#;
        assert!(matches!(
            read_answer(both, &make_catalog(), &BTreeSet::new()),
            Ok(ParsedAnswer::Draft(_))
        ));
    }

    #[test]
    fn prose_is_not_read_as_a_plan() {
        for text in ["I cannot do that.", " Das kann ich nicht [siehe oben]. "] {
            let expected = ParsedAnswer::Prose(text.trim().to_owned());
            assert_eq!(
                read_answer(text, &make_catalog(), &BTreeSet::new()),
                Ok(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn sub_plans_are_kept_only_if_the_earlier_plan_had_them() {
        let text = r#"{"tools": [{"id": "a", "plan": "nightly"}, {"id": "b", "plan": {"tools": []}},
            {"name": "listAuthors", "plan": "first of all"}]}"#;
        let plans = |known: &[&str]| {
            let known_plans = known.iter().copied().collect();
            let Ok(ParsedAnswer::Draft(draft)) = read_answer(text, &make_catalog(), &known_plans)
            else {
                panic!()
            };
            let unread = draft.notices.iter().map(|notice| notice.path.clone()).collect::<Vec<_>>();
            (draft.tools.into_iter().map(|step| step.plan).collect::<Vec<_>>(), unread)
        };
        let nightly = || Some("nightly".into());
        assert_eq!(
            plans(&[]),
            (vec![None, None, None], vec!["tools[0].plan".to_owned(), "tools[1].plan".to_owned()])
        );
        let (plan_names, unread) = plans(&["nightly"]);
        assert_eq!(
            (plan_names, unread),
            (vec![nightly(), None, None], vec!["tools[1].plan".to_owned()])
        );
    }

    #[test]
    fn numbers_of_an_answer_are_kept_exactly() {
        let text = r#"{"tools": [{"name": "listAuthors", "parameters": {"n": 9007199254740993, "x": 0.1}}]}"#;
        let parameters = read_draft(text).tools.remove(0).parameters.unwrap();
        assert_eq!(parameters.to_string(), r#"{"n":9007199254740993,"x":0.1}"#);
    }

    #[test]
    fn corrections_of_an_answer_become_warnings() {
        let read = read_draft(
            r#"{"steps": [{"step": 1, "tool": "CREATEAUTHOR", "args": "{'a': 1}", "why": "x"}]}"#,
        );
        let noticed: Vec<&str> = read.notices.iter().map(|notice| notice.path.as_str()).collect();
        let expected = ["tools[0].why", "tools[0].id", "tools[0].name", "tools[0].parameters"];
        assert_eq!(noticed, expected);
    }
}
