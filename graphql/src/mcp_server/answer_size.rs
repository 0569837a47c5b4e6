//! Limits the size of results. A cut value reports its original size.

use serde_json::{Value, json};
use shared::json;

use crate::cli::view::format::clip;

/// The most bytes of outputs in one result. More would fill a model's context.
const OUTPUTS: usize = 256 << 10;
/// The most bytes of one output if all of them together are too large.
const OUTPUT: usize = 8 << 10;
/// The most bytes of an unabridged request.
const REQUEST: usize = 4 * OUTPUTS;
/// The most steps, errors or waits of an execution.
const LISTED: usize = 1_000;

/// Shortens outputs that are too large together. Returns `true` if they were.
pub(crate) fn shorten(outputs: &mut Value) -> bool {
    if json::json_size(outputs) <= OUTPUTS {
        return false;
    }
    for output in outputs.as_object_mut().into_iter().flat_map(|outputs| outputs.values_mut()) {
        cut(output);
    }
    // Thousands of small outputs may still be too large.
    if json::json_size(outputs) > OUTPUTS {
        *outputs = json!({});
    }
    true
}

/// Drops the end of a long list. Returns `true` if it did.
pub(crate) fn few(all: &mut Value) -> bool {
    first(all, LISTED, OUTPUTS)
}

/// Shortens a large request: drops its timeline and cuts parameters and outputs.
pub(crate) fn bounded(mut request: Value) -> Value {
    if json::json_size(&request) <= REQUEST {
        return request;
    }
    if let Some(fields) = request.as_object_mut() {
        fields.shift_remove("timeline");
    }
    for entry in each(&mut request, "transcript") {
        change(entry, &["content"], cut);
    }
    for plan in each(&mut request, "plans") {
        of_plan(plan);
    }
    for execution in each(&mut request, "executions") {
        of_execution(execution);
    }
    // The newest executions come last and are kept.
    let turn = |all: &mut Value| all.as_array_mut().into_iter().for_each(|all| all.reverse());
    change(&mut request, &["executions"], |all| {
        turn(all);
        first(all, LISTED, 2 * REQUEST);
        turn(all);
    });
    change(&mut request, &["transcript", "plans"], |all| {
        first(all, LISTED, REQUEST);
    });
    request["cut"] = json!(true);
    request
}

fn of_execution(execution: &mut Value) {
    let short = |outputs: &mut Value| {
        shorten(outputs);
    };
    change(execution, &["outputs"], short);
    change(execution, &["input"], cut);
    change(execution, &["executionResults"], |results| {
        change(results, &["outputs", "variables"], short);
        change(results, &["errors"], listed);
    });
    change(execution, &["plan"], of_plan);
    for step in each(execution, "steps") {
        of_step(step);
    }
    change(execution, &["waitsFor", "steps"], listed);
}

fn of_plan(plan: &mut Value) {
    for tool in each(plan, "tools") {
        change(tool, &["parameters"], cut);
    }
    change(plan, &["tools", "diagnostics", "executionOrder", "layers"], |all| {
        first(all, LISTED, OUTPUTS / 4);
    });
}

/// Cuts the values of a step, of its items, and of its compensation.
fn of_step(step: &mut Value) {
    change(step, &["resolvedParameters", "output"], cut);
    change(step, &["warnings"], |warnings| {
        first(warnings, LISTED, OUTPUT);
    });
    change(step, &["compensation"], of_step);
    for item in each(step, "items") {
        of_step(item);
    }
    change(step, &["items"], |items| {
        first(items, LISTED, OUTPUTS / 4);
    });
}

fn listed(all: &mut Value) {
    few(all);
}

fn change(of: &mut Value, keys: &[&str], change: impl Fn(&mut Value)) {
    for key in keys {
        of.get_mut(*key).into_iter().for_each(&change);
    }
}

/// Returns the objects of a list field.
fn each<'a>(of: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    let all = of.get_mut(key).and_then(Value::as_array_mut);
    all.into_iter().flatten().filter(|item| item.is_object())
}

/// Cuts a large value and reports its size.
fn cut(value: &mut Value) {
    let bytes = json::json_size(value);
    if bytes > OUTPUT {
        *value = json!({ "$cut": clip(&value.to_string(), OUTPUT / 8), "bytes": bytes });
    }
}

/// Returns the bytes of a value in JSON with a comma.
pub(crate) fn written(value: &Value) -> usize {
    value.to_string().len() + 1
}

/// Keeps the start of a list within both limits. Returns `true` if items were dropped.
pub(crate) fn first(all: &mut Value, most: usize, bytes: usize) -> bool {
    let Some(all) = all.as_array_mut() else { return false };
    let mut left = bytes;
    let fits = |item: &&Value| {
        let rest = left.checked_sub(written(item));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let kept = all.iter().take(most).take_while(fits).count();
    let is_cut = kept < all.len();
    all.truncate(kept);
    is_cut
}

/// The most bytes of a document.
const MOST: usize = 4 << 20;
/// The most bytes of a number or an empty value in JSON.
const FIELD: usize = 32;
/// The most bytes of a character in JSON.
const LETTER: usize = 6;

/// Cuts a large document and sets `cut` in it. Each field gets an equal share, and the schema still
/// holds. Returns `true` if the document was too large.
pub(crate) fn fitted(mut document: Value) -> (Value, bool) {
    if written(&document) <= MOST {
        return (document, false);
    }
    confine(&mut document, MOST - FIELD);
    if let Some(fields) = document.as_object_mut() {
        fields.insert("cut".to_owned(), json!(true));
    }
    (document, true)
}

/// Cuts a value to at most `bytes` bytes.
fn confine(value: &mut Value, bytes: usize) {
    if written(value) <= bytes {
        return;
    }
    match value {
        Value::String(text) => *text = clip(text, bytes.saturating_sub(FIELD) / LETTER),
        Value::Array(_) => {
            first(value, usize::MAX, bytes);
        }
        Value::Object(fields) => {
            let names: usize = fields.keys().map(|name| LETTER * name.len() + FIELD).sum();
            let room = bytes.checked_sub(names).map_or(0, |room| room / fields.len().max(1));
            if room < FIELD {
                return fields.clear();
            }
            fields.values_mut().for_each(|value| confine(value, room));
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn a_request_is_bounded_wherever_it_is_large() {
        let large = json!({ "text": "x".repeat(1 << 20) });
        let item = json!({ "state": "FAILED", "resolvedParameters": large, "output": large });
        let step = |n: usize| {
            json!({
                "stepId": format!("s{n}"), "resolvedParameters": large, "output": large,
                "items": [item], "compensation": item, "warnings": ["w".repeat(1 << 20)],
            })
        };
        let steps: Vec<_> = (0..20).map(step).collect();
        let tools = json!([{ "stepId": "s0", "parameters": large }]);
        let execution = |n: usize| {
            json!({
                "executionId": format!("exec_{n}"), "input": large, "outputs": { "s0": large },
                "executionResults": { "outputs": { "s0": large }, "variables": { "v": large },
                    "errors": [{ "message": "m".repeat(1 << 20) }] },
                "plan": { "planId": "plan_1", "tools": tools }, "steps": steps,
            })
        };
        let request = json!({
            "requestId": "req_1", "executions": [execution(1), execution(2)],
            "plans": [{ "planId": "plan_1", "tools": tools }],
            "transcript": [{ "kind": "prompt", "content": large }],
            "timeline": [{ "detail": large }],
        });
        let told = bounded(request);
        assert!(told.to_string().len() < 4 * REQUEST, "{}", told.to_string().len());
        assert_eq!(told["cut"], true);
        let newest = &told["executions"][1];
        assert_eq!(newest["executionId"], "exec_2");
        assert_eq!(newest["steps"].as_array().map(Vec::len), Some(20));
        let bytes = json::json_size(&large);
        let step = &newest["steps"][3];
        for cut in [
            &step["output"],
            &step["items"][0]["output"],
            &step["compensation"]["resolvedParameters"],
            &newest["executionResults"]["variables"]["v"],
            &newest["plan"]["tools"][0]["parameters"],
            &told["transcript"][0]["content"],
        ] {
            assert_eq!(cut["bytes"], bytes, "{cut}");
        }
        let keys = |value: &Value| -> Vec<String> {
            value.as_object().into_iter().flat_map(|value| value.keys().cloned()).collect()
        };
        let told_of = ["state", "resolvedParameters", "output"];
        assert_eq!(keys(&step["items"][0]), told_of, "nothing is there that was not");
        assert_eq!(keys(&newest["plan"]), ["planId", "tools"]);
        let small = json!({ "requestId": "req_1", "timeline": [1], "executions": [] });
        assert_eq!(bounded(small.clone()), small);
    }

    #[test]
    fn lists_have_an_end() {
        let mut steps = Value::from(vec![1; LISTED + 1]);
        assert!(few(&mut steps) && !few(&mut steps));
        assert_eq!(steps.as_array().map(Vec::len), Some(LISTED));
        let mut errors = Value::from(vec!["m".repeat(OUTPUTS / 4); 10]);
        assert!(few(&mut errors));
        assert_eq!(errors.as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        let document = json!({ "a": "x".repeat(MOST / 2), "b": (0..5_000).collect::<Vec<_>>() });
        assert_eq!(fitted(document.clone()), (document, false));
    }

    #[test]
    fn what_is_too_large_keeps_its_shape() {
        let text = "\u{1}ö".repeat(3_000);
        let step = json!({ "stepId": "a", "output": { "deep": [text.clone(), [text.clone()]] } });
        let many: Map<_, _> = (0..900).map(|n| (n.to_string(), step.clone())).collect();
        // Each level multiplies the size.
        let wide = (0..5).fold(json!("x".repeat(60)), |value, _| json!(vec![value; 10]));
        let fields =
            |of: Value| -> Value { (0..40).map(|n| (n.to_string(), of.clone())).collect() };
        let full = (0..3).fold(json!("x".repeat(63)), |value, _| fields(value));
        for document in [
            json!({ "id": "i", "n": 7, "text": text.repeat(1_000) }),
            json!({ "id": "i", "n": 7, "steps": vec![step.clone(); 900] }),
            json!({ "id": "i", "n": 7, "outputs": many }),
            json!({ "id": "i", "n": 7, "wide": wide }),
            json!({ "id": "i", "n": 7, "full": full }),
        ] {
            let (short, is_cut) = fitted(document.clone());
            assert!(is_cut && short.to_string().len() <= MOST);
            assert_eq!((&short["id"], &short["n"]), (&json!("i"), &json!(7)));
            assert_eq!(short["cut"], true);
            for (name, value) in document.as_object().unwrap() {
                let kind = std::mem::discriminant(value);
                assert_eq!(std::mem::discriminant(&short[name]), kind, "{name}");
            }
        }
        // A shortened list keeps its first items.
        let (short, _) = fitted(json!({ "steps": vec![step.clone(); 900] }));
        assert_eq!(short["steps"][0]["stepId"], "a");
    }
}
