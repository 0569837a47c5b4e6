//! Limits the size of results, because they go into a model's context.
//!
//! A value that is too large is replaced by its beginning and its size, so that the result still
//! fits its schema.

use client::view::format::clip_text;
use serde_json::{Value, json};
use shared::json;

/// Maximum sum of the bytes of all outputs in one result.
const MAX_OUTPUTS_BYTES: usize = 256 << 10;
/// Maximum number of bytes of one output in a result that exceeds `MAX_OUTPUTS_BYTES`.
const MAX_OUTPUT_BYTES: usize = 8 << 10;
const MAX_REQUEST_BYTES: usize = 4 * MAX_OUTPUTS_BYTES;
const MAX_ITEMS: usize = 1_000;

/// Shortens outputs whose sum is too large. Returns `true` if it shortened them.
pub(crate) fn shorten_outputs(outputs: &mut Value) -> bool {
    if json::json_size(outputs) <= MAX_OUTPUTS_BYTES {
        return false;
    }
    for output in outputs.as_object_mut().into_iter().flat_map(|outputs| outputs.values_mut()) {
        cut_value(output);
    }
    // Thousands of small outputs can still be too large together.
    if json::json_size(outputs) > MAX_OUTPUTS_BYTES {
        *outputs = json!({});
    }
    true
}

pub(crate) fn truncate_list(list: &mut Value) -> bool {
    keep_first(list, MAX_ITEMS, MAX_OUTPUTS_BYTES)
}

/// Shortens a large request: drops its timeline, cuts parameters and outputs, and shortens long
/// lists.
pub(crate) fn shorten_request(mut request: Value) -> Value {
    if json::json_size(&request) <= MAX_REQUEST_BYTES {
        return request;
    }
    if let Some(fields) = request.as_object_mut() {
        fields.shift_remove("timeline");
    }
    for entry in objects_of_field(&mut request, "transcript") {
        update_fields(entry, &["content"], cut_value);
    }
    for plan in objects_of_field(&mut request, "plans") {
        shorten_plan(plan);
    }
    for execution in objects_of_field(&mut request, "executions") {
        shorten_execution(execution);
    }
    // Reverses the list and back, because the newest executions come last and must be kept.
    let reverse =
        |list: &mut Value| list.as_array_mut().into_iter().for_each(|list| list.reverse());
    update_fields(&mut request, &["executions"], |list| {
        reverse(list);
        keep_first(list, MAX_ITEMS, 2 * MAX_REQUEST_BYTES);
        reverse(list);
    });
    update_fields(&mut request, &["transcript", "plans"], |list| {
        keep_first(list, MAX_ITEMS, MAX_REQUEST_BYTES);
    });
    request["cut"] = json!(true);
    request
}

fn shorten_execution(execution: &mut Value) {
    let shorten = |outputs: &mut Value| {
        shorten_outputs(outputs);
    };
    update_fields(execution, &["outputs"], shorten);
    update_fields(execution, &["input"], cut_value);
    update_fields(execution, &["executionResults"], |results| {
        update_fields(results, &["outputs", "variables"], shorten);
        update_fields(results, &["errors"], truncate_items);
    });
    update_fields(execution, &["plan"], shorten_plan);
    for step in objects_of_field(execution, "steps") {
        shorten_step(step);
    }
    update_fields(execution, &["waitsFor", "steps"], truncate_items);
}

fn shorten_plan(plan: &mut Value) {
    for tool in objects_of_field(plan, "tools") {
        update_fields(tool, &["parameters"], cut_value);
    }
    update_fields(plan, &["tools", "diagnostics", "executionOrder", "layers"], |list| {
        keep_first(list, MAX_ITEMS, MAX_OUTPUTS_BYTES / 4);
    });
}

fn shorten_step(step: &mut Value) {
    update_fields(step, &["resolvedParameters", "output"], cut_value);
    update_fields(step, &["warnings"], |warnings| {
        keep_first(warnings, MAX_ITEMS, MAX_OUTPUT_BYTES);
    });
    update_fields(step, &["compensation"], shorten_step);
    for item in objects_of_field(step, "items") {
        shorten_step(item);
    }
    update_fields(step, &["items"], |items| {
        keep_first(items, MAX_ITEMS, MAX_OUTPUTS_BYTES / 4);
    });
}

fn truncate_items(list: &mut Value) {
    truncate_list(list);
}

fn update_fields(object: &mut Value, keys: &[&str], update: impl Fn(&mut Value)) {
    for key in keys {
        object.get_mut(*key).into_iter().for_each(&update);
    }
}

fn objects_of_field<'a>(object: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = object.get_mut(key).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter(|item| item.is_object())
}

fn cut_value(value: &mut Value) {
    let bytes = json::json_size(value);
    if bytes > MAX_OUTPUT_BYTES {
        *value =
            json!({ "$cut": clip_text(&value.to_string(), MAX_OUTPUT_BYTES / 8), "bytes": bytes });
    }
}

pub(crate) fn written_size(value: &Value) -> usize {
    value.to_string().len() + 1
}

/// Keeps the first items of a list: at most `max_items`, with at most `bytes` in JSON. Returns
/// `true` if items were dropped.
pub(crate) fn keep_first(list: &mut Value, max_items: usize, bytes: usize) -> bool {
    let Some(list) = list.as_array_mut() else { return false };
    let mut left = bytes;
    let fits = |item: &&Value| {
        let rest = left.checked_sub(written_size(item));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let kept = list.iter().take(max_items).take_while(fits).count();
    let is_cut = kept < list.len();
    list.truncate(kept);
    is_cut
}

const MAX_DOCUMENT_BYTES: usize = 4 << 20;
/// Maximum number of bytes of a number or an empty value in JSON.
const MAX_SCALAR_BYTES: usize = 32;
const MAX_CHAR_BYTES: usize = 6;

/// Cuts a large document and sets `cut` in it. Each field gets an equal share of the bytes, and the
/// document still fits its schema. Also returns whether the document was too large.
pub(crate) fn fit_document(mut document: Value) -> (Value, bool) {
    if written_size(&document) <= MAX_DOCUMENT_BYTES {
        return (document, false);
    }
    shrink_value(&mut document, MAX_DOCUMENT_BYTES - MAX_SCALAR_BYTES);
    if let Some(fields) = document.as_object_mut() {
        fields.insert("cut".to_owned(), json!(true));
    }
    (document, true)
}

fn shrink_value(value: &mut Value, bytes: usize) {
    if written_size(value) <= bytes {
        return;
    }
    match value {
        Value::String(text) => {
            *text = clip_text(text, bytes.saturating_sub(MAX_SCALAR_BYTES) / MAX_CHAR_BYTES);
        }
        Value::Array(_) => {
            keep_first(value, usize::MAX, bytes);
        }
        Value::Object(fields) => {
            let names: usize =
                fields.keys().map(|name| MAX_CHAR_BYTES * name.len() + MAX_SCALAR_BYTES).sum();
            let room = bytes.checked_sub(names).map_or(0, |room| room / fields.len().max(1));
            if room < MAX_SCALAR_BYTES {
                return fields.clear();
            }
            fields.values_mut().for_each(|value| shrink_value(value, room));
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn every_large_part_of_a_request_is_shortened() {
        // Twenty values of this size exceed the limit of an answer.
        let long = "x".repeat(MAX_OUTPUTS_BYTES);
        let large = json!({ "text": long });
        let item = json!({ "state": "FAILED", "resolvedParameters": large, "output": large });
        let step = |n: usize| {
            json!({
                "stepId": format!("s{n}"), "resolvedParameters": large, "output": large,
                "items": [item], "compensation": item, "warnings": [long],
            })
        };
        let steps: Vec<_> = (0..20).map(step).collect();
        let tools = json!([{ "stepId": "s0", "parameters": large }]);
        let execution = |n: usize| {
            json!({
                "executionId": format!("exec_{n}"), "input": large, "outputs": { "s0": large },
                "executionResults": { "outputs": { "s0": large }, "variables": { "v": large },
                    "errors": [{ "message": long }] },
                "plan": { "planId": "plan_1", "tools": tools }, "steps": steps,
            })
        };
        let request = json!({
            "requestId": "req_1", "executions": [execution(1), execution(2)],
            "plans": [{ "planId": "plan_1", "tools": tools }],
            "transcript": [{ "kind": "prompt", "content": large }],
            "timeline": [{ "detail": large }],
        });
        let answer = shorten_request(request);
        assert!(answer.to_string().len() < 4 * MAX_REQUEST_BYTES, "{}", answer.to_string().len());
        assert_eq!(answer["cut"], true);
        let newest = &answer["executions"][1];
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
            &answer["transcript"][0]["content"],
        ] {
            assert_eq!(cut["bytes"], bytes, "{cut}");
        }
        let keys = |value: &Value| -> Vec<String> {
            value.as_object().into_iter().flat_map(|value| value.keys().cloned()).collect()
        };
        let expected = ["state", "resolvedParameters", "output"];
        assert_eq!(keys(&step["items"][0]), expected, "no key was added");
        assert_eq!(keys(&newest["plan"]), ["planId", "tools"]);
        let small = json!({ "requestId": "req_1", "timeline": [1], "executions": [] });
        assert_eq!(shorten_request(small.clone()), small);
    }

    #[test]
    fn long_lists_are_truncated() {
        let mut steps = Value::from(vec![1; MAX_ITEMS + 1]);
        assert!(truncate_list(&mut steps) && !truncate_list(&mut steps));
        assert_eq!(steps.as_array().map(Vec::len), Some(MAX_ITEMS));
        let mut errors = Value::from(vec!["m".repeat(MAX_OUTPUTS_BYTES / 4); 10]);
        assert!(truncate_list(&mut errors));
        assert_eq!(errors.as_array().map(Vec::len), Some(3));
    }

    #[test]
    fn a_document_that_fits_does_not_change() {
        let document =
            json!({ "a": "x".repeat(MAX_DOCUMENT_BYTES / 2), "b": (0..5_000).collect::<Vec<_>>() });
        assert_eq!(fit_document(document.clone()), (document, false));
    }

    #[test]
    fn a_document_that_is_too_large_keeps_its_shape() {
        // Together these steps are larger than `MAX_DOCUMENT_BYTES`.
        const STEPS: usize = 150;
        let text = "\u{1}ö".repeat(3_000);
        let step = json!({ "stepId": "a", "output": { "deep": [text.clone(), [text.clone()]] } });
        let many: Map<_, _> = (0..STEPS).map(|n| (n.to_string(), step.clone())).collect();
        // Each of the five levels makes the value ten times larger.
        let wide = (0..5).fold(json!("x".repeat(60)), |value, _| json!(vec![value; 10]));
        let fields =
            |value: Value| -> Value { (0..40).map(|n| (n.to_string(), value.clone())).collect() };
        let full = (0..3).fold(json!("x".repeat(63)), |value, _| fields(value));
        for document in [
            json!({ "id": "i", "n": 7, "text": text.repeat(250) }),
            json!({ "id": "i", "n": 7, "steps": vec![step.clone(); STEPS] }),
            json!({ "id": "i", "n": 7, "outputs": many }),
            json!({ "id": "i", "n": 7, "wide": wide }),
            json!({ "id": "i", "n": 7, "full": full }),
        ] {
            let (short, is_cut) = fit_document(document.clone());
            assert!(is_cut && short.to_string().len() <= MAX_DOCUMENT_BYTES);
            assert_eq!((&short["id"], &short["n"]), (&json!("i"), &json!(7)));
            assert_eq!(short["cut"], true);
            for (name, value) in document.as_object().unwrap() {
                let kind = std::mem::discriminant(value);
                assert_eq!(std::mem::discriminant(&short[name]), kind, "{name}");
            }
        }
        let (short, _) = fit_document(json!({ "steps": vec![step.clone(); STEPS] }));
        assert_eq!(short["steps"][0]["stepId"], "a");
    }
}
