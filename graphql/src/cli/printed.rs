//! Plans as they were printed, read again: what `--json` shows of one has more than a draft.

use serde_json::{Map, Value};

/// What is printed of a plan and is not the author's: it is made anew.
const OF_PLAN: [&str; 12] = [
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

/// Makes a draft of a plan that was printed, and leaves a draft as it is.
///
/// What is neither and is known, is said.
pub(super) fn as_draft(value: &mut Value) -> Result<(), String> {
    let Some(fields) = value.as_object_mut() else { return Ok(()) };
    if !fields.contains_key("tools") {
        return other(fields).map_or(Ok(()), Err);
    }
    let was_printed = fields.get("planId").is_some_and(Value::is_string);
    if was_printed {
        fields.retain(|name, _| !OF_PLAN.contains(&name.as_str()));
    }
    for step in fields.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(step) = step.as_object_mut()
            && (was_printed || step.contains_key("stepId"))
        {
            as_step(step);
        }
    }
    Ok(())
}

fn as_step(step: &mut Map<String, Value>) {
    if !step.contains_key("id")
        && let Some(id) = step.shift_remove("stepId")
    {
        step.insert("id".to_owned(), id);
    }
    step.shift_remove("effect");
    if step.get("plan").is_some_and(|it| !it.is_null()) {
        // The plan is what it names; the name of the tool is only how that is shown.
        step.shift_remove("toolName");
    }
    if let Some(undo) = step.get_mut("compensate").and_then(Value::as_object_mut) {
        undo.shift_remove("effect");
    }
}

/// Says what something is that was printed and is not a plan.
fn other(fields: &Map<String, Value>) -> Option<String> {
    if let Some(error) = fields.get("error").and_then(|it| it.get("message")?.as_str()) {
        return Some(format!("this is no plan but an error that was printed: {error}"));
    }
    if let (Some(_), Some(Value::String(plan))) = (fields.get("executionId"), fields.get("planId"))
    {
        return Some(format!(
            "this is an execution, not a plan: `faber export {plan}` writes its plan, and \
             `faber execute {plan}` executes that again"
        ));
    }
    if let (Some(Value::String(id)), Some(_)) = (fields.get("requestId"), fields.get("plans")) {
        return Some(format!(
            "this is a request, not a plan: `faber export {id}` writes the newest plan of it"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mut value: Value) -> Result<Value, String> {
        as_draft(&mut value).map(|()| value)
    }

    #[test]
    fn what_is_printed_of_a_plan_becomes_a_draft() {
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
    fn what_a_person_wrote_stays_as_it_is() {
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
    fn what_else_is_printed_is_named() {
        let table = [
            (json!({ "executionId": "exec_1_a", "planId": "plan_1_a" }), "this is an execution"),
            (json!({ "requestId": "req_1_a", "plans": [] }), "this is a request"),
            (json!({ "error": { "code": "X", "message": "no planner" } }), "no planner"),
        ];
        for (value, part) in table {
            let why = read(value).expect_err("this is no plan");
            assert!(why.contains(part), "{why}");
        }
    }
}
