//! Answers of a size that clients read: what is too large is cut, and says how large it is.

use serde_json::{Value, json};
use shared::json;

use super::super::render::clip;

/// The most bytes of what steps returned in one answer: contexts of models are no larger.
const OUTPUTS: usize = 256 << 10;
/// The most bytes of one output where all of them are too much.
const OUTPUT: usize = 8 << 10;
/// The most bytes of a request that is told as it is.
const REQUEST: usize = 4 * OUTPUTS;
/// The most steps, errors or waits of an execution.
const LISTED: usize = 1_000;

/// Takes the place of outputs that are too large together. Returns whether they were.
pub(super) fn shorten(outputs: &mut Value) -> bool {
    if json::bytes(outputs) <= OUTPUTS {
        return false;
    }
    for output in outputs.as_object_mut().into_iter().flat_map(|it| it.values_mut()) {
        cut(output);
    }
    // Thousands of small ones may be too much as well.
    if json::bytes(outputs) > OUTPUTS {
        *outputs = json!({});
    }
    true
}

/// Drops the end of a list that is too long. Returns whether it was.
pub(super) fn few(all: &mut Value) -> bool {
    first(all, LISTED, OUTPUTS)
}

/// Returns a request as it is, or, where it is too large, without what its executions tell twice,
/// and with the beginnings of what steps were given and returned.
pub(super) fn bounded(mut request: Value) -> Value {
    if json::bytes(&request) <= REQUEST {
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
    // The newest are the last.
    let turn = |all: &mut Value| all.as_array_mut().into_iter().for_each(|it| it.reverse());
    change(&mut request, &["executions"], |all| {
        turn(all);
        first(all, LISTED, 2 * REQUEST);
        turn(all);
    });
    change(&mut request, &["transcript", "plans"], |it| {
        first(it, LISTED, REQUEST);
    });
    request["cut"] = json!(true);
    request
}

fn of_execution(execution: &mut Value) {
    let short = |it: &mut Value| {
        shorten(it);
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
    change(plan, &["tools", "diagnostics", "executionOrder", "layers"], |it| {
        first(it, LISTED, OUTPUTS / 4);
    });
}

/// Cuts what a step has, or one of its items, or what undoes it.
fn of_step(step: &mut Value) {
    change(step, &["resolvedParameters", "output"], cut);
    change(step, &["warnings"], |it| {
        first(it, LISTED, OUTPUT);
    });
    change(step, &["compensation"], of_step);
    for item in each(step, "items") {
        of_step(item);
    }
    change(step, &["items"], |it| {
        first(it, LISTED, OUTPUTS / 4);
    });
}

fn listed(all: &mut Value) {
    few(all);
}

/// Changes fields of an object, those that are there.
fn change(of: &mut Value, keys: &[&str], change: impl Fn(&mut Value)) {
    for key in keys {
        of.get_mut(*key).into_iter().for_each(&change);
    }
}

/// Returns the objects of a list that a field is.
fn each<'a>(of: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    let all = of.get_mut(key).and_then(Value::as_array_mut);
    all.into_iter().flatten().filter(|it| it.is_object())
}

/// Keeps the beginning of a large value, and says how large it is.
fn cut(value: &mut Value) {
    let bytes = json::bytes(value);
    if bytes > OUTPUT {
        *value = json!({ "$cut": clip(&value.to_string(), OUTPUT / 8), "bytes": bytes });
    }
}

/// Returns how many bytes a value has in an answer, with what is behind it.
pub(super) fn written(value: &Value) -> usize {
    value.to_string().len() + 1
}

/// Keeps as much of the beginning of a list as may be. Returns whether anything was dropped.
pub(super) fn first(all: &mut Value, most: usize, bytes: usize) -> bool {
    let Some(all) = all.as_array_mut() else { return false };
    let mut left = bytes;
    let fits = |it: &&Value| {
        let rest = left.checked_sub(written(it));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let kept = all.iter().take(most).take_while(fits).count();
    let is_cut = kept < all.len();
    all.truncate(kept);
    is_cut
}

#[cfg(test)]
mod tests {
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
        let bytes = json::bytes(&large);
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
        let keys = |it: &Value| -> Vec<String> {
            it.as_object().into_iter().flat_map(|it| it.keys().cloned()).collect()
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
}
