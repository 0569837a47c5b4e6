use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;

use super::workspace::{DEMO_QUERY, Workspace};

const APPROVAL_PLAN: &str = r#"{"tools":[{"id":"a","name":"flow.echo","parameters":{"x":1}},
    {"id":"b","name":"flow.echo","requiresApproval":true,"parameters":{"y":"{{a.x}}"}}]}"#;
const WAIT_PLAN: &str = r#"{"tools":[{"id":"first","name":"flow.noop"},
    {"id":"w","name":"flow.wait","parameters":{"name":"go"},"dependsOn":["first"]}]}"#;

async fn newest_execution(workspace: &Workspace) -> String {
    let all = workspace.json(&["list", "executions"], 0).await;
    all[0]["executionId"].as_str().unwrap().to_owned()
}

/// Pauses an execution that no process runs. On a busy machine the command can end before the pause
/// is recorded, so it is repeated.
async fn pause_execution(workspace: &Workspace, id: &str) {
    let asking = async { while workspace.json(&["pause", id], 0).await["state"] != "PAUSED" {} };
    tokio::time::timeout(MAX_WAIT, asking).await.expect("the execution pauses");
}

#[tokio::test]
async fn the_demo_query_runs_against_a_real_server_and_fails_the_second_time() {
    let workspace = Workspace::new();
    let ended = workspace.run(&["run", DEMO_QUERY]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    let outputs: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(outputs["createAuthor"]["email"], "alice@test.com");
    assert_eq!(outputs["createBlog"]["authorId"], outputs["createAuthor"]["_id"]);
    for part in ["← createAuthor", "✓ createBlog", "COMPLETED", "faber debug req_"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    assert!(!ended.err.contains('\u{1b}'), "no colours in a pipe");

    let again = workspace.json(&["run", DEMO_QUERY], 1).await;
    assert_eq!(again["state"], "FAILED");
    let step = |id: &str| {
        let steps = again["steps"].as_array().unwrap();
        steps.iter().find(|step| step["stepId"] == id).unwrap()["state"].clone()
    };
    assert_eq!((step("createAuthor"), step("createBlog")), ("FAILED".into(), "SKIPPED".into()));
    assert_eq!(again["executionResults"]["errors"][0]["code"], "tool.failed");
    assert!(again["plan"]["tools"].is_array() && again["outputs"].is_object());

    let request = again["requestId"].as_str().unwrap();
    let answer = workspace.json(&["debug", request], 0).await;
    assert_eq!(answer["executions"][0]["steps"][0]["attempts"], 1);
    assert!(!answer["timeline"].as_array().unwrap().is_empty());
    let output = workspace.run(&["debug", request]).await;
    for part in [
        "FAILED  0 of 2 steps done, 1 failed, 1 skipped",
        "error[tool.failed]: `createAuthor` failed: ",
        "`createBlog` did not run, because `createAuthor` failed",
        "faber retry exec_",
        "alice@test.com",
    ] {
        assert!(output.out.contains(part), "{part}: {}", output.out);
    }
    let full = workspace.run(&["debug", request, "--full"]).await;
    assert!(full.out.contains("error[tool.failed]"), "{full:?}");
    let failed = workspace.json(&["list", "executions", "--state", "FAILED"], 0).await;
    assert_eq!(failed.as_array().unwrap().len(), 1);
    assert_eq!(workspace.run(&["watch", request]).await.status, 1);
}

#[tokio::test]
async fn run_reads_a_plan_from_a_file_or_standard_input() {
    use std::process::Stdio;
    use tokio::io::AsyncWriteExt as _;

    let workspace = Workspace::new();
    let text = r#"{"tools":[{"id":"a","name":"flow.echo","parameters":{"n":9007199254740993}}]}"#;
    let plan = workspace.file("plan.json", text);
    let done = workspace.json(&["run", "--plan", &plan, "--mode", "sequential"], 0).await;
    assert_eq!((&done["mode"], &done["state"]), (&json!("SEQUENTIAL"), &json!("COMPLETED")));
    assert_eq!(done["outputs"].to_string(), r#"{"a":{"n":9007199254740993}}"#);

    let mut child =
        workspace.command(&["run", "--plan", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).await.unwrap();
    assert!(child.wait_with_output().await.unwrap().status.success());

    let id = done["planId"].as_str().unwrap();
    let again = workspace.json(&["execute", id], 0).await;
    assert_ne!(again["executionId"], done["executionId"]);
    let same = workspace.json(&["execute", again["executionId"].as_str().unwrap()], 0).await;
    assert_eq!(same["executionId"], again["executionId"]);
}

#[tokio::test]
async fn a_repeated_idempotency_key_returns_the_same_execution() {
    let workspace = Workspace::new();
    let arguments = ["run", DEMO_QUERY, "--idempotency-key", "k"];
    let first = workspace.json(&arguments, 0).await;
    let again = workspace.json(&arguments, 0).await;
    assert_eq!(first["executionId"], again["executionId"]);
    let error = workspace.json(&[&arguments[..], &["--mode", "sequential"]].concat(), 2).await;
    assert_eq!(error["error"]["code"], "CONFLICT");
}

#[tokio::test]
async fn an_execution_that_waits_for_an_approval_exits_with_4() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", APPROVAL_PLAN);
    let waits = workspace.run(&["run", "--plan", &plan]).await;
    assert_eq!(waits.status, 4, "{waits:?}");
    let id = newest_execution(&workspace).await;
    assert!(waits.err.contains(&format!("faber approve {id} b")), "{waits:?}");
    assert_eq!(workspace.json(&["watch", &id], 4).await["state"], "WAITING");
    let output = workspace.run(&["approve", &id, "b", "--no-run"]).await;
    assert_eq!(output.status, 0, "{output:?}");
    let execute = format!("faber execute {id}");
    assert!(output.err.contains(&execute), "{output:?}");
    // The output shows the approval and the command that continues the execution, and does not ask
    // for the approval again.
    let watched = workspace.run(&["watch", &id]).await;
    assert_eq!(watched.status, 4, "{watched:?}");
    let debugged = workspace.run(&["debug", &id]).await;
    assert!(!watched.err.contains("waits for approval"), "{watched:?}");
    for text in [&watched.err, &debugged.out] {
        assert!(text.contains("approved") && text.contains(&execute), "{text}");
        assert!(!text.contains("faber approve"), "{text}");
    }
    let done = workspace.json(&["execute", &id], 0).await;
    assert_eq!((&done["state"], &done["outputs"]["b"]["y"]), (&json!("COMPLETED"), &json!(1)));
    assert_eq!(workspace.json(&["approve", &id, "b"], 2).await["error"]["code"], "CONFLICT");

    assert_eq!(workspace.run(&["run", "--plan", &plan]).await.status, 4);
    let id = newest_execution(&workspace).await;
    workspace.json(&["approve", &id, "b", "--reject", "--comment", "no", "--no-run"], 0).await;
    // Only the first answer to an approval counts, even if no worker has recorded it yet.
    assert_eq!(workspace.json(&["approve", &id, "b"], 2).await["error"]["code"], "CONFLICT");
    workspace.run(&["resume", &id]).await;
    let refused = workspace.json(&["watch", &id], 1).await;
    assert_eq!(refused["state"], "FAILED");
    assert_eq!(refused["executionResults"]["errors"][0]["code"], "step.rejected");
    assert_eq!(workspace.run(&["watch", &id]).await.status, 1);
}

#[tokio::test]
async fn ctrl_c_detaches_and_another_command_continues_the_execution() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", WAIT_PLAN);
    let mut process = workspace.spawn(&["run", "--plan", &plan]);
    process.wait_for_line("waits for signal go").await;
    process.signal("-INT");
    let ended = process.wait_for_exit().await;
    let id = newest_execution(&workspace).await;
    assert_eq!((ended.status, ended.out.as_str()), (130, ""), "{ended:?}");
    assert!(ended.err.contains(&format!("faber watch {id}")), "{ended:?}");

    let done = workspace.json(&["signal", &id, "go", r#"{"v":2}"#], 0).await;
    assert_eq!((&done["state"], &done["outputs"]["w"]), (&json!("COMPLETED"), &json!({ "v": 2 })));
}

#[tokio::test]
async fn a_signal_reaches_an_execution_of_another_process() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", WAIT_PLAN);
    let mut process = workspace.spawn(&["run", "--plan", &plan, "--json"]);
    process.wait_for_line("waits for signal go").await;
    let id = newest_execution(&workspace).await;
    let output = workspace.run(&["signal", &id, "go", "7"]).await;
    assert_eq!(output.status, 0, "{output:?}");
    let ended = process.wait_for_exit().await;
    assert_eq!(ended.status, 0, "{ended:?}");
    let done: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(done["outputs"]["w"], 7);
    let error = workspace.json(&["signal", &id, "go", "not json"], 2).await;
    assert_eq!(error["error"]["code"], "INVALID_ARGUMENT");
}

#[tokio::test]
async fn cancel_ends_an_execution_that_no_process_runs() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", WAIT_PLAN);
    let mut process = workspace.spawn(&["run", "--plan", &plan]);
    process.wait_for_line("waits for signal go").await;
    process.signal("-INT");
    assert_eq!(process.wait_for_exit().await.status, 130);
    let id = newest_execution(&workspace).await;
    pause_execution(&workspace, &id).await;
    let ended = workspace.json(&["cancel", &id, "--reason", "enough"], 0).await;
    assert_eq!(ended["state"], "CANCELLED");
    assert_eq!(workspace.run(&["watch", &id]).await.status, 1);
    assert_eq!(workspace.json(&["resume", &id], 2).await["error"]["code"], "CONFLICT");
}

/// Regression: if a step had been approved, it still ran after a cancellation or a pause.
#[tokio::test]
async fn cancel_and_pause_start_no_step_that_was_approved_before() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"a","name":"flow.effect","requiresApproval":true},
            {"id":"b","name":"flow.effect","dependsOn":["a"]}]}"#,
    );
    for (stop, state) in [("cancel", "CANCELLED"), ("pause", "PAUSED")] {
        assert_eq!(workspace.run(&["run", "--plan", &plan]).await.status, 4);
        let id = newest_execution(&workspace).await;
        workspace.json(&["approve", &id, "a", "--no-run"], 0).await;
        workspace.run(&[stop, &id]).await;
        let request = workspace.json(&["debug", &id], 0).await;
        let execution = &request["executions"][0];
        assert_eq!(execution["state"], state, "{execution:#}");
        assert_eq!(execution["successful"], 0, "{execution:#}");
    }
}

#[tokio::test]
async fn resume_continues_a_paused_execution_in_this_process() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"first","name":"flow.noop"},
            {"id":"w","name":"flow.wait","parameters":{"name":"go"},"dependsOn":["first"]},
            {"id":"last","name":"flow.noop","dependsOn":["w"]}]}"#,
    );
    let mut process = workspace.spawn(&["run", "--plan", &plan]);
    process.wait_for_line("waits for signal go").await;
    process.signal("-INT");
    assert_eq!(process.wait_for_exit().await.status, 130);
    let id = newest_execution(&workspace).await;
    pause_execution(&workspace, &id).await;
    let answer = workspace.json(&["signal", &id, "go"], 0).await;
    assert_eq!((&answer["state"], &answer["successful"]), (&json!("PAUSED"), &json!(1)));
    let done = workspace.json(&["resume", &id], 0).await;
    assert_eq!(done["state"], "COMPLETED");
}

#[tokio::test]
async fn watch_reports_that_no_worker_drives_the_execution() {
    let workspace = Workspace::new();
    let script = "echo called >ledger; exec sleep 60";
    let tool =
        json!({ "name": "hang", "effect": "read", "run": { "command": ["sh", "-c", script] } });
    let set = json!({ "name": "own", "source": { "tools": [tool] } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    let plan = workspace.file("plan.json", r#"{"tools":[{"id":"a","name":"hang"}]}"#);
    let running = workspace.spawn(&["run", "--plan", &plan]);
    let called = async {
        while !workspace.path("ledger").exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, called).await.expect("the tool is called");
    running.signal("-KILL");
    running.wait_for_exit().await;

    let id = newest_execution(&workspace).await;
    let mut watching = workspace.spawn(&["watch", &id]);
    watching
        .wait_for_line(&format!("no worker drives this execution: run `faber execute {id}`"))
        .await;
    watching.signal("-INT");
    assert_eq!(watching.wait_for_exit().await.status, 130);
    let output = workspace.run(&["signal", &id, "go", "--no-run"]).await;
    assert!(output.err.contains("no worker drives the execution"), "{output:?}");
}
