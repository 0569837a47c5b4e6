//! Compares what happened with what a test expects.

use engine::Finding;
use serde_json::{Map, Value, json};
use shared::{execution::Execution, json};

use super::{
    MockCall,
    file::{Expectation, ExpectedCall},
};

const MAX_SHOWN_CHARS: usize = 200;

/// What happened in a test.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) execution: Execution,
    pub(super) findings: Vec<Finding>,
    /// The steps of the plan in the order in which they started.
    pub(super) started: Vec<String>,
    pub(super) calls: Vec<MockCall>,
}

/// Returns the differences. What the expectation does not name is not compared.
pub(super) fn compare(expected: &Expectation, observed: &Observation) -> Vec<String> {
    let mut failures = Vec::new();
    let state = observed.execution.state();
    if let Some(expected) = expected.state.filter(|expected| *expected != state) {
        let cause = observed.execution.first_error();
        let cause = cause.map(|(_, error)| format!(" ({error})")).unwrap_or_default();
        failures.push(format!(
            "state: expected {}, found {}{cause}",
            expected.as_str(),
            state.as_str()
        ));
    }
    if let Some(outputs) = &expected.outputs {
        let expected = Value::Object(outputs.clone());
        compare_value("outputs", &expected, &observed.execution.outputs(), &mut failures);
    }
    compare_calls(&expected.calls, &observed.calls, &mut failures);
    compare_order(&expected.order, &observed.started, &mut failures);
    compare_findings(&expected.findings, &observed.findings, &mut failures);
    failures
}

/// Adds the differences between a value and the parts of it that are expected. A list must have the
/// expected length.
fn compare_value(place: &str, expected: &Value, found: &Value, failures: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (key, expected) in expected {
                let place = format!("{place}.{key}");
                match found.get(key) {
                    Some(found) => compare_value(&place, expected, found, failures),
                    None => failures.push(format!(
                        "{place}: expected {}, found nothing",
                        shorten_value(expected)
                    )),
                }
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (n, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare_value(&format!("{place}[{n}]"), expected, found, failures);
            }
        }
        _ if json::equals_normalized(expected, found) => (),
        _ => failures.push(format!(
            "{place}: expected {}, found {}",
            shorten_value(expected),
            shorten_value(found)
        )),
    }
}

fn contains_parts(expected: &Value, found: &Value) -> bool {
    let mut differences = Vec::new();
    compare_value("", expected, found, &mut differences);
    differences.is_empty()
}

fn compare_calls(expected: &[ExpectedCall], calls: &[MockCall], failures: &mut Vec<String>) {
    let is_meant = |expected: &ExpectedCall, call: &MockCall| {
        let has_name = call.tool == expected.tool
            || call.tool.split_once('.').is_some_and(|(_, short)| short == expected.tool);
        let parameters = expected.parameters.as_ref();
        has_name && parameters.is_none_or(|parts| contains_parts(parts, &call.parameters))
    };
    // Each call answers one expectation, so that two equal entries need two calls.
    let mut left: Vec<&MockCall> = calls.iter().collect();
    for wanted in expected {
        if let Some(times) = wanted.times {
            let count = calls.iter().filter(|call| is_meant(wanted, call)).count() as u64;
            if count != times {
                let call = describe_call(wanted);
                failures.push(format!("calls: expected {times} of {call}, found {count}"));
            }
            continue;
        }
        if let Some(index) = left.iter().position(|call| is_meant(wanted, call)) {
            left.remove(index);
            continue;
        }
        let made: Vec<String> = calls
            .iter()
            .map(|call| format!("{} {}", call.tool, shorten_value(&call.parameters)))
            .collect();
        let made = if made.is_empty() { "no call".to_owned() } else { made.join("; ") };
        let call = describe_call(wanted);
        failures.push(format!("calls: expected {call}, found {made}"));
    }
}

fn describe_call(call: &ExpectedCall) -> String {
    let parameters =
        call.parameters.as_ref().map(|parameters| format!(" {}", shorten_value(parameters)));
    format!("{}{}", call.tool, parameters.unwrap_or_default())
}

fn compare_order(expected: &[String], started: &[String], failures: &mut Vec<String>) {
    let mut rest = started.iter();
    for step in expected {
        if !rest.any(|started| started == step) {
            let reason = if started.contains(step) { "started earlier" } else { "did not start" };
            failures.push(format!(
                "order: `{step}` {reason}; the steps started as {}",
                started.join(", ")
            ));
            return;
        }
    }
}

fn compare_findings(
    expected: &[Map<String, Value>],
    findings: &[Finding],
    failures: &mut Vec<String>,
) {
    let found: Vec<Value> = findings.iter().map(finding_to_json).collect();
    for wanted in expected {
        let is_meant = |found: &&Value| {
            wanted.iter().all(|(key, expected)| match (key.as_str(), expected, &found[key]) {
                ("message", Value::String(part), Value::String(message)) => message.contains(part),
                (_, expected, found) => json::equals_normalized(expected, found),
            })
        };
        if !found.iter().any(|finding| is_meant(&finding)) {
            let codes: Vec<&str> = findings.iter().map(|finding| &*finding.code).collect();
            let codes = if codes.is_empty() { "no finding".to_owned() } else { codes.join(", ") };
            let wanted = shorten_value(&Value::Object(wanted.clone()));
            failures.push(format!("findings: expected {wanted}, found {codes}"));
        }
    }
}

fn finding_to_json(finding: &Finding) -> Value {
    json!({
        "code": finding.code,
        "severity": finding.severity,
        "stepId": finding.step,
        "index": finding.index,
        "message": finding.message,
    })
}

fn shorten_value(value: &Value) -> String {
    client::view::format::clip_text(&value.to_string(), MAX_SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differences(expected: &Value, found: &Value) -> Vec<String> {
        let mut failures = Vec::new();
        compare_value("outputs", expected, found, &mut failures);
        failures
    }

    #[test]
    fn only_named_parts_are_compared() {
        let found = json!({ "a": { "x": 1, "y": [1, { "z": 2, "w": 3 }] }, "b": null });
        for expected in [
            json!({}),
            json!({ "a": { "x": 1.0 } }),
            json!({ "a": { "y": [1, { "z": 2 }] }, "b": null }),
        ] {
            assert_eq!(differences(&expected, &found), [""; 0], "{expected}");
        }
        for (expected, failure) in [
            (json!({ "a": { "x": 2 } }), "outputs.a.x: expected 2, found 1"),
            (
                json!({ "a": { "y": [1] } }),
                "outputs.a.y: expected [1], found [1,{\"z\":2,\"w\":3}]",
            ),
            (json!({ "c": 1 }), "outputs.c: expected 1, found nothing"),
            (json!({ "a": { "y": [1, { "z": 3 }] } }), "outputs.a.y[1].z: expected 3, found 2"),
        ] {
            assert_eq!(differences(&expected, &found), [failure]);
        }
    }

    #[test]
    fn each_call_answers_one_expectation() {
        let call = |tool: &str, parameters: Value| MockCall {
            tool: tool.to_owned(),
            step: "s".to_owned(),
            parameters,
        };
        let calls = [
            call("shop.pay", json!({ "sum": 1, "to": "a" })),
            call("shop.pay", json!({ "sum": 2 })),
        ];
        let expect = |expected: Vec<ExpectedCall>| {
            let mut failures = Vec::new();
            compare_calls(&expected, &calls, &mut failures);
            failures
        };
        let wanted = |tool: &str, parameters: Option<Value>, times| ExpectedCall {
            tool: tool.to_owned(),
            parameters,
            times,
        };
        let one = || wanted("pay", Some(json!({ "sum": 1 })), None);
        assert_eq!(
            expect(vec![wanted("shop.pay", None, None), wanted("pay", None, Some(2))]),
            [""; 0]
        );
        assert_eq!(expect(vec![wanted("refund", None, Some(0))]), [""; 0]);
        let twice = expect(vec![one(), one()]);
        assert!(
            twice[0].starts_with("calls: expected pay {\"sum\":1}, found shop.pay"),
            "{twice:?}"
        );
        let paid_once = expect(vec![wanted("pay", None, Some(1))]);
        assert_eq!(paid_once, ["calls: expected 1 of pay, found 2"]);
    }

    #[test]
    fn the_order_ignores_steps_that_are_not_named() {
        let started = ["a", "b", "c"].map(str::to_owned);
        let check = |expected: &[&str]| {
            let expected: Vec<String> = expected.iter().map(|step| (*step).to_owned()).collect();
            let mut failures = Vec::new();
            compare_order(&expected, &started, &mut failures);
            failures.join("")
        };
        assert_eq!(check(&["a", "c"]), "");
        assert_eq!(check(&["c", "a"]), "order: `a` started earlier; the steps started as a, b, c");
        assert_eq!(check(&["a", "x"]), "order: `x` did not start; the steps started as a, b, c");
    }
}
