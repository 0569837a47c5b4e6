//! `faber test`: mocks, recordings, virtual time, expectations and reports.

use std::fs;

use serde_json::{Value, json};

use super::workspace::Workspace;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}

fn plan() -> Value {
    json!({ "tools": [
        { "id": "find", "name": "shop.find", "parameters": { "name": "{{input.article}}" } },
        { "id": "night", "name": "flow.sleep", "parameters": { "ms": 31_536_000_000_u64 }, "dependsOn": "find" },
        { "id": "pay", "name": "shop.pay", "parameters": { "cents": "{{find.cents}}" }, "dependsOn": "night",
          "requiresApproval": true, "retry": { "maxAttempts": 3, "backoffMs": 600_000, "maxBackoffMs": 600_000 },
          "compensate": { "name": "shop.refund", "parameters": { "of": "{{pay.receipt}}" } } },
        { "id": "go", "name": "flow.wait", "parameters": { "name": "sent" }, "dependsOn": "pay" },
        { "id": "each", "name": "shop.mail", "forEach": "{{find.people}}", "parameters": { "to": "{{item}}" },
          "dependsOn": "go" },
    ] })
}

async fn run_tests(workspace: &Workspace, tests: Value, status: i32) -> Value {
    workspace.file("plan.json", &plan().to_string());
    let file = json!({ "plan": "plan.json", "tests": tests });
    let file = workspace.file("plan.test.yaml", &file.to_string());
    workspace.json(&["test", &file], status).await
}

fn failures(results: &Value) -> Vec<String> {
    let tests = results["tests"].as_array().unwrap_or_else(|| panic!("{results}"));
    let failures = tests.iter().flat_map(|test| test["failures"].as_array().unwrap());
    failures.map(|failure| text(failure).to_owned()).collect()
}

#[tokio::test]
async fn mocks_answers_and_virtual_time_decide_what_happens() {
    let workspace = Workspace::new();
    let find = json!({ "cents": 450, "people": ["a", "b"] });
    let results = run_tests(
        &workspace,
        json!([
            {
                "name": "pays after two failures",
                "input": { "article": "book" },
                "tools": {
                    "shop.find": find,
                    "pay": [{ "error": "busy" }, { "error": { "code": "tool.failed" } }, { "receipt": 7 }],
                    "shop.mail": [1, 2],
                },
                "signals": { "sent": { "by": "post" } },
                "approvals": { "pay": true },
                "expect": {
                    "state": "COMPLETED",
                    "outputs": { "pay": { "receipt": 7 }, "go": { "by": "post" }, "each": [1, 2], "night": null },
                    "calls": [
                        { "tool": "shop.pay", "parameters": { "cents": 450 }, "times": 3 },
                        { "tool": "mail", "parameters": { "to": "b" } },
                        { "tool": "shop.refund", "times": 0 },
                    ],
                    "order": ["find", "night", "pay", "each"],
                },
            },
            {
                "name": "undoes the payment",
                "tools": {
                    "shop.find": find, "shop.pay": { "receipt": 8 }, "shop.refund": null,
                    "shop.mail": { "error": { "code": "tool.failed", "message": "no post", "retryable": false } },
                },
                "input": { "article": 1 },
                "signals": { "sent": [null] },
                "approvals": { "pay": [true] },
                "expect": {
                    "state": "failed",
                    "calls": [{ "tool": "shop.refund", "parameters": { "of": 8 } }],
                    "findings": ["tool.failed", { "stepId": "each", "message": "no post" }],
                },
            },
            {
                "name": "waits for a person",
                "input": { "article": 1 },
                "tools": { "shop.find": find },
                "expect": { "state": "WAITING", "findings": [{ "stepId": "pay" }] },
            },
            {
                "name": "waits for a signal",
                "input": { "article": 1 },
                "tools": { "shop.find": find, "shop.pay": { "receipt": 1 } },
                "approvals": { "pay": true },
                "expect": { "state": "WAITING", "outputs": { "pay": { "receipt": 1 } } },
            },
        ]),
        0,
    )
    .await;
    assert_eq!(failures(&results), [""; 0], "{results}");
    assert_eq!((&results["passed"], &results["failed"]), (&json!(4), &json!(0)));
    let year = results["tests"][0]["virtualMs"].as_i64().unwrap();
    assert!(year > 31_536_000_000 + 600_000, "a year and two retries: {year}");
    let listed = workspace.json(&["list", "executions"], 0).await;
    assert_eq!(listed, json!([]), "nothing is stored");
}

#[tokio::test]
async fn a_failed_test_names_each_difference() {
    let workspace = Workspace::new();
    let find = json!({ "cents": 450, "people": [] });
    let results = run_tests(
        &workspace,
        json!([
            {
                "name": "lacks a mock",
                "input": { "article": "book" },
                "tools": { "shop.find": find },
                "approvals": { "pay": true },
                "expect": { "state": "FAILED" },
            },
            {
                "name": "expects too much",
                "input": { "article": "book" },
                "tools": { "shop.find": find, "shop.pay": { "receipt": 7 } },
                "approvals": { "pay": true },
                "signals": { "sent": 1 },
                "expect": {
                    "state": "FAILED", "outputs": { "pay": { "receipt": 8 }, "none": 1 },
                    "calls": ["shop.mail"], "order": ["pay", "find"], "findings": ["step.rejected"],
                },
            },
        ]),
        1,
    )
    .await;
    let failures = failures(&results);
    for (failure, expected) in failures.iter().zip([
        "`shop.pay` was called by `pay` without a mock: {\"cents\":450}",
        "state: expected FAILED, found COMPLETED",
        "outputs.pay.receipt: expected 8, found 7",
        "outputs.none: expected 1, found nothing",
        "calls: expected shop.mail, found shop.find {\"name\":\"book\"}; shop.pay {\"cents\":450}",
        "order: `find` started earlier",
        "findings: expected {\"code\":\"step.rejected\"}",
    ]) {
        assert!(failure.starts_with(expected), "{failure}");
    }
    assert_eq!(failures.len(), 7, "{failures:?}");
    let report = workspace.path("results.xml");
    let arguments = ["test", "plan.test.yaml", "--junit", "results.xml"];
    let output = workspace.run(&arguments).await;
    assert_eq!(output.status, 1, "{output:?}");
    assert!(output.out.contains("FAILED  lacks a mock\n"), "{output:?}");
    assert!(output.err.contains("2 tests: 0 passed, 2 failed"), "{output:?}");
    let xml = fs::read_to_string(&report).unwrap();
    assert!(xml.contains("tests=\"2\" failures=\"2\""), "{xml}");
    assert!(xml.contains("<testcase classname="), "{xml}");
}

#[tokio::test]
async fn a_wrong_file_or_plan_ends_with_two() {
    let workspace = Workspace::new();
    for (tests, message) in [
        (
            json!([{ "name": "a", "tools": { "shop.pya": 1 } }]),
            "the plan has no tool `shop.pya`: did you mean `shop.pay`",
        ),
        (json!([{ "name": "a", "tools": { "flow.sleep": 1 } }]), "`flow.sleep` cannot be mocked"),
        (json!([{ "name": "a", "mocks": {} }]), "`tests[0]`: `mocks` is unknown"),
        (json!([{ "name": "a", "record": "exec_1_aaaaaaaaa" }]), "there is no execution"),
    ] {
        let refused = run_tests(&workspace, tests, 2).await;
        assert!(text(&refused["error"]["message"]).contains(message), "{refused}");
    }
    let lacking = workspace.json(&["test", "nothing.yaml"], 2).await;
    assert!(text(&lacking["error"]["message"]).contains("cannot be read"), "{lacking}");
    workspace.file("plan.json", r#"{"tools":[{"name":"a.b","parameters":{"x":"{{none.y}}"}}]}"#);
    let file = workspace.file("b.yaml", "plan: plan.json\ntests: [{ name: a }]");
    let invalid = workspace.json(&["test", &file], 2).await;
    assert_eq!(invalid["error"]["code"], "INVALID_PLAN", "{invalid}");
}

/// A saved plan with a sub-plan is tested with the outputs of a real execution.
#[tokio::test]
async fn a_recorded_execution_answers_the_calls_of_a_saved_plan() {
    let workspace = Workspace::new();
    let run = |text: &str| json!({ "command": ["echo", text] });
    let tools = json!([
        { "name": "find", "effect": "read", "run": run("{\"cents\":450}") },
        { "name": "pay", "effect": "once", "run": run("{\"receipt\":7}") },
    ]);
    let set = json!({ "name": "shop", "source": { "tools": tools } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    let inner = json!({ "tools": [{ "id": "pay", "name": "shop.pay" }] });
    let plan = json!({ "tools": [
        { "id": "find", "name": "shop.find" },
        { "id": "sub", "plan": inner, "dependsOn": "find" },
        { "id": "ask", "name": "flow.echo", "parameters": { "receipt": "{{sub.pay.receipt}}" },
          "requiresApproval": true },
    ] });
    let file = workspace.file("plan.json", &plan.to_string());
    let waiting = workspace.json(&["run", "--plan", &file, "--input", "{\"x\":1}"], 4).await;
    let id = text(&waiting["executionId"]).to_owned();
    workspace.json(&["approve", &id, "ask"], 0).await;
    let before = workspace.json(&["list", "executions"], 0).await;
    let plan_id = text(&waiting["planId"]);
    workspace.json(&["save", "order", plan_id], 0).await;
    workspace.file("faber.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    for plan in ["order", plan_id] {
        let tests = json!({ "plan": plan, "tests": [
            {
                "name": "as recorded", "record": id,
                "expect": { "state": "COMPLETED", "outputs": { "ask": { "receipt": 7 } }, "calls": ["pay"] },
            },
            {
                "name": "the bank refuses", "record": id, "tools": { "shop.pay": { "error": "refused" } },
                "expect": { "state": "FAILED", "calls": [{ "tool": "shop.pay", "times": 1 }] },
            },
        ] });
        let tests = workspace.file("order.test.yaml", &tests.to_string());
        let results = workspace.json(&["test", &tests], 0).await;
        assert_eq!(results["passed"], 2, "{results}");
        assert_eq!(results["tests"][0]["calls"][1]["step"], "sub/pay", "{results}");
    }
    let after = workspace.json(&["list", "executions"], 0).await;
    assert_eq!(after, before, "the tests store nothing");
}
