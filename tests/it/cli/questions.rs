//! Questions of an operator: which errors are frequent, which tool failed, and whether a signal
//! reaches a step.

use serde_json::json;

use super::workspace::Workspace;

const FAIL_PLAN: &str = r#"{"tools":[{"name":"flow.fail","parameters":{"message":"no"}}]}"#;

#[tokio::test]
async fn failures_are_counted_by_tool_and_error() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", FAIL_PLAN);
    for _ in 0..2 {
        assert_eq!(workspace.run(&["run", "--plan", &plan]).await.status, 1);
    }
    let counts = workspace.json(&["counts", "--since", "1h"], 0).await;
    assert_eq!(counts.as_array().map(Vec::len), Some(1), "{counts}");
    assert_eq!(counts[0]["keys"], json!(["flow.fail", "tool.failed"]), "{counts}");
    assert_eq!(counts[0]["count"], 2, "{counts}");
    let table = workspace.run(&["counts", "--by", "tool,state", "--failed-tool", "fail"]).await;
    let row = table.out.lines().nth(1).unwrap_or_default();
    assert!(row.starts_with("2      flow.fail  FAILED"), "{table:?}");
    let by_time = workspace.json(&["counts", "--by", "bucket", "--bucket", "1d"], 0).await;
    assert_eq!(by_time[0]["count"], 2, "{by_time}");
    let early = workspace.run(&["counts", "--until", "1h"]).await;
    assert_eq!((early.status, early.err.as_str()), (0, "nothing found\n"));
    for wrong in [&["--by", "label"][..], &["--by", "tool", "--bucket", "1h"], &["--since", "x"]] {
        let output = workspace.run(&[&["counts"], wrong].concat()).await;
        assert_eq!(output.status, 2, "{wrong:?}: {output:?}");
    }
}

#[tokio::test]
async fn a_failed_tool_is_found_by_its_name_alone() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", FAIL_PLAN);
    assert_eq!(workspace.run(&["run", "--plan", &plan]).await.status, 1);
    for name in ["flow.fail", "fail"] {
        let arguments = ["list", "executions", "--failed-tool", name, "--from", "1h"];
        let found = workspace.json(&arguments, 0).await;
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{name}: {found}");
    }
    let unknown = workspace.run(&["list", "executions", "--failed-tool", "fial"]).await;
    assert_eq!(unknown.status, 2, "{unknown:?}");
    assert!(unknown.err.contains("a tool `fial`: `flow.fail` failed"), "{unknown:?}");
}

#[tokio::test]
async fn a_signal_that_no_step_waits_for_is_reported() {
    let workspace = Workspace::new();
    let plan = r#"{"tools":[{"name":"flow.wait","parameters":{"name":"payment"}}]}"#;
    let plan = workspace.file("plan.json", plan);
    let mut run = workspace.spawn(&["run", "--plan", &plan]);
    let line = run.wait_for_line("executing exec_").await;
    let id = line.rsplit(' ').next().unwrap();
    run.signal("-INT");
    run.wait_for_exit().await;
    let unknown = workspace.run(&["signal", id, "paymnt", "--no-run"]).await;
    assert_eq!(unknown.status, 0, "{unknown:?}");
    let expected =
        "no step waits for the signal `paymnt`, so it has no effect: the steps wait for `payment`";
    assert!(unknown.err.contains(expected), "{unknown:?}");
    let known = workspace.run(&["signal", id, "payment"]).await;
    assert_eq!(known.status, 0, "{known:?}");
    assert!(!known.err.contains("no step waits"), "{known:?}");
}
