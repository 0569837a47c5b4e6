//! Whole reports, of executions that were recorded.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn check(recorded: &str, expected: Expect) {
    let request: Value = serde_json::from_str(recorded).expect("it was recorded");
    expected.assert_eq(&report(&request, None, Paint::new(false)));
}

#[test]
fn of_what_went_well() {
    check(include_str!("cases/completed.json"), expect![[""]]);
}

#[test]
fn of_what_failed() {
    check(include_str!("cases/failed.json"), expect![[""]]);
}

#[test]
fn of_what_waits() {
    check(include_str!("cases/waiting.json"), expect![[""]]);
}

#[test]
fn of_lists() {
    check(include_str!("cases/loop.json"), expect![[""]]);
}

#[test]
fn of_what_was_undone() {
    check(include_str!("cases/undone.json"), expect![[""]]);
}

#[test]
fn of_a_long_plan() {
    check(include_str!("cases/long.json"), expect![[""]]);
}

#[test]
fn of_what_was_never_executed() {
    let mut request = json!({
        "requestId": "req_1_aaaaaaaaa", "query": "dance", "plans": [], "executions": [],
        "transcript": [{ "kind": "error",
            "content": { "code": "NO_PLAN_FOUND", "message": "no tool fits `dance`" } }],
    });
    expect![[""]].assert_eq(&report(&request, None, Paint::new(false)));
    request["transcript"] = json!([]);
    request["plans"] = json!([{ "planId": "plan_1_aaaaaaaaa", "version": 1, "planner": "offline", "tools": [{}] }]);
    expect![[""]].assert_eq(&report(&request, None, Paint::new(false)));
}
