//! Reports of test results: lines for people, JSON, and `JUnit` XML for build servers.

use std::fmt::Write as _;

use client::view::{format::count_noun, plain};
use serde_json::{Value, json};

use super::{MockCall, TestResult};

pub(crate) fn to_json(file: &str, results: &[TestResult]) -> Value {
    let tests = results.iter().map(|result| {
        let calls = result.calls.iter().map(|MockCall { tool, step, parameters }| {
            json!({ "tool": tool, "step": step, "parameters": parameters })
        });
        json!({
            "name": result.name,
            "passed": result.has_passed(),
            "failures": result.failures,
            "state": result.state,
            "calls": calls.collect::<Vec<_>>(),
            "virtualMs": result.virtual_ms,
        })
    });
    let passed = results.iter().filter(|result| result.has_passed()).count();
    json!({
        "file": file,
        "passed": passed,
        "failed": results.len() - passed,
        "tests": tests.collect::<Vec<_>>(),
    })
}

/// Returns the lines of a test for people.
pub(crate) fn draw_result(result: &TestResult) -> String {
    let word = if result.has_passed() { "ok    " } else { "FAILED" };
    let mut text = format!("{word}  {}", plain::safe_line(&result.name));
    for failure in &result.failures {
        let _ = write!(text, "\n        {}", plain::safe_line(failure));
    }
    text
}

pub(crate) fn draw_summary(results: &[TestResult]) -> String {
    let passed = results.iter().filter(|result| result.has_passed()).count();
    let tests = count_noun(results.len() as u64, "test");
    format!("{tests}: {passed} passed, {} failed", results.len() - passed)
}

pub(crate) fn to_junit(file: &str, results: &[TestResult]) -> String {
    let suite = escape_xml(file);
    let failed = results.iter().filter(|result| !result.has_passed()).count();
    let seconds: f64 = results.iter().map(|result| result.took.as_secs_f64()).sum();
    let count = results.len();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{suite}\" \
         tests=\"{count}\" failures=\"{failed}\" errors=\"0\" time=\"{seconds:.3}\">\n"
    );
    for result in results {
        let (name, time) = (escape_xml(&result.name), result.took.as_secs_f64());
        let _ =
            write!(xml, "    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{time:.3}\"");
        let Some(first) = result.failures.first() else {
            xml.push_str("/>\n");
            continue;
        };
        let (first, all) = (escape_xml(first), escape_xml(&result.failures.join("\n")));
        let _ =
            write!(xml, ">\n      <failure message=\"{first}\">{all}</failure>\n    </testcase>\n");
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Escapes a text for XML. Replaces characters that XML 1.0 does not allow.
fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other if other.is_control() && other != '\t' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::expect;
    use shared::execution::ExecutionState;

    use super::*;

    fn results() -> Vec<TestResult> {
        let result = |name: &str, failures: &[&str]| TestResult {
            name: name.to_owned(),
            failures: failures.iter().map(|failure| (*failure).to_owned()).collect(),
            state: Some(ExecutionState::Completed),
            calls: Vec::new(),
            virtual_ms: 1,
            took: Duration::from_millis(5),
        };
        vec![result("pays", &[]), result("<refuses>\u{1}", &["state: \"x\" & y", "two"])]
    }

    #[test]
    fn a_report_is_valid_xml() {
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuites>
              <testsuite name="a.yaml" tests="2" failures="1" errors="0" time="0.010">
                <testcase classname="a.yaml" name="pays" time="0.005"/>
                <testcase classname="a.yaml" name="&lt;refuses&gt;�" time="0.005">
                  <failure message="state: &quot;x&quot; &amp; y">state: &quot;x&quot; &amp; y&#10;two</failure>
                </testcase>
              </testsuite>
            </testsuites>
        "#]]
        .assert_eq(&to_junit("a.yaml", &results()));
    }

    #[test]
    fn people_see_each_failure_on_a_line() {
        let lines: Vec<String> = results().iter().map(draw_result).collect();
        assert_eq!(lines[0], "ok      pays");
        assert!(lines[1].ends_with("\n        state: \"x\" & y\n        two"), "{}", lines[1]);
        assert_eq!(draw_summary(&results()), "2 tests: 1 passed, 1 failed");
        let json = to_json("a.yaml", &results());
        assert_eq!((&json["passed"], &json["failed"]), (&json!(1), &json!(1)));
        assert_eq!(json["tests"][1]["failures"][1], "two");
    }
}
