//! Executions whose process was killed, and commands that are stopped by a signal.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;

use super::workspace::Workspace;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

async fn newest_execution(workspace: &Workspace) -> String {
    text(&workspace.json(&["list", "executions"], 0).await[0]["executionId"]).to_owned()
}

async fn wait_for_file(path: &Path) {
    let written = async {
        while !path.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_WAIT, written).await.expect("the tool is called");
}

/// Returns a plan with two calls: `reserve` succeeds, and `hang` never returns. `release`
/// compensates `reserve`.
fn shop_plan(workspace: &Workspace) -> String {
    let tool = |name: &str, effect: &str, script: &str| json!({ "name": name, "effect": effect, "run": { "command": ["sh", "-c", script] } });
    let tools = [
        tool("reserve", "once", "echo 1"),
        tool("hang", "read", "echo called >called; exec sleep 60"),
        tool("release", "idempotent", "echo undone >undone"),
    ];
    let set = json!({ "name": "shop", "source": { "tools": tools } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    let plan = json!({ "tools": [
        { "name": "reserve", "compensate": { "name": "release" } },
        { "name": "hang", "dependsOn": ["reserve"] },
    ] });
    workspace.file("plan.json", &plan.to_string())
}

async fn kill_after_reserve(workspace: &Workspace) -> String {
    let plan = shop_plan(workspace);
    let running = workspace.spawn(&["run", "--plan", &plan]);
    wait_for_file(&workspace.path("called")).await;
    running.signal("-KILL");
    running.wait_for_exit().await;
    newest_execution(workspace).await
}

#[tokio::test]
async fn cancel_compensates_the_steps_of_a_killed_process() {
    let workspace = Workspace::new();
    let id = kill_after_reserve(&workspace).await;
    let ended = workspace.run(&["cancel", &id]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(
        ended.err.contains("these calls undo the execution:\n  reserve  shop.release\n"),
        "{ended:?}"
    );
    assert!(workspace.path("undone").exists());
    assert_eq!(workspace.json(&["watch", &id], 1).await["state"], "CANCELLED");
}

#[tokio::test]
async fn cancel_ends_an_execution_whose_once_call_was_killed_as_cancelled() {
    let workspace = Workspace::new();
    let plan = shop_plan(&workspace);
    let config = std::fs::read_to_string(workspace.path("faber.yaml")).unwrap();
    workspace.file("faber.yaml", &config.replace(r#""effect":"read""#, r#""effect":"once""#));
    let running = workspace.spawn(&["run", "--plan", &plan]);
    wait_for_file(&workspace.path("called")).await;
    running.signal("-KILL");
    running.wait_for_exit().await;
    let id = newest_execution(&workspace).await;
    assert_eq!(workspace.run(&["cancel", &id]).await.status, 0);
    assert!(workspace.path("undone").exists());
    let ended = workspace.json(&["watch", &id], 1).await;
    assert_eq!(ended["state"], "CANCELLED", "{ended}");
    assert_eq!(ended["steps"][1]["error"]["code"], "tool.outcome_unknown", "{ended}");
}

#[tokio::test]
async fn cancel_without_the_compensating_tools_is_recorded_and_names_them() {
    let workspace = Workspace::new();
    let id = kill_after_reserve(&workspace).await;
    let config = workspace.file("other.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    // From the second cancellation on, the compensations have already started.
    for _ in 0..2 {
        let output = workspace.run(&["cancel", &id, "--config", &config]).await;
        assert_eq!(output.status, 3, "{output:?}");
        assert!(!output.err.contains(" WARN "), "{output:?}");
        let error = workspace.json(&["cancel", &id, "--config", &config], 3).await;
        assert_eq!(error["error"]["code"], "TOOL_UNAVAILABLE", "{error}");
        let message = text(&error["error"]["message"]);
        for part in ["`shop.release`", &config, &format!("run `faber execute {id}` to undo")] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let state = &workspace.json(&["list", "executions"], 0).await[0]["state"];
        assert_eq!(state, "COMPENSATING");
    }
    let ended = workspace.run(&["cancel", &id]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(workspace.path("undone").exists());
    assert_eq!(workspace.json(&["watch", &id], 1).await["state"], "CANCELLED");
}

fn payment_plan(workspace: &Workspace, policy: &Value) -> String {
    let script = "echo called >called; sleep 1; echo paid";
    let tool = json!({ "name": "pay", "run": { "command": ["sh", "-c", script] } });
    let set = json!({ "name": "shop", "source": { "tools": [tool] } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    let mut pay = json!({ "name": "pay" });
    pay.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    let next = json!({ "id": "next", "name": "flow.noop", "dependsOn": ["pay"] });
    workspace.file("plan.json", &json!({ "tools": [pay, next] }).to_string())
}

#[tokio::test]
async fn a_termination_signal_lets_running_calls_finish() {
    for signal in ["-TERM", "-HUP", "-INT"] {
        let workspace = Workspace::new();
        let plan = payment_plan(&workspace, &json!({}));
        let running = workspace.spawn(&["run", "--plan", &plan]);
        wait_for_file(&workspace.path("called")).await;
        running.signal(signal);
        let ended = running.wait_for_exit().await;
        assert_eq!(ended.status, 130, "{signal} {ended:?}");
        let id = newest_execution(&workspace).await;
        assert!(ended.err.contains("stopping: waits up to 10 s for running calls"), "{ended:?}");
        assert!(ended.err.contains(&format!("`faber execute {id}` continues it")), "{ended:?}");
        let done = workspace.json(&["execute", &id], 0).await;
        assert_eq!(done["outputs"]["pay"], "paid", "{signal} {done}");
    }
}

/// The signal arrives during the last call of the execution, so the execution ends before the
/// command stops.
#[tokio::test]
async fn a_signal_during_the_last_call_reports_that_the_execution_ended() {
    let workspace = Workspace::new();
    payment_plan(&workspace, &json!({}));
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"pay"}]}"#);
    let running = workspace.spawn(&["run", "--plan", &plan]);
    wait_for_file(&workspace.path("called")).await;
    running.signal("-TERM");
    let ended = running.wait_for_exit().await;
    assert_eq!(ended.status, 130, "{ended:?}");
    let id = newest_execution(&workspace).await;
    let expected = format!("detached; `{id}` ended as COMPLETED: `faber debug {id}` shows it");
    assert!(ended.err.contains(&expected), "{ended:?}");
    assert!(!ended.err.contains("continues it"), "{ended:?}");
}

#[tokio::test]
async fn a_termination_signal_lets_calls_started_by_approve_finish() {
    let workspace = Workspace::new();
    let plan = payment_plan(&workspace, &json!({ "requiresApproval": true }));
    assert_eq!(workspace.run(&["run", "--plan", &plan]).await.status, 4);
    let id = newest_execution(&workspace).await;
    let mut running = workspace.spawn(&["approve", &id, "pay"]);
    running.wait_for_line(&format!("recorded; continuing {id} (Ctrl-C detaches)")).await;
    wait_for_file(&workspace.path("called")).await;
    running.signal("-TERM");
    assert_eq!(running.wait_for_exit().await.status, 130);
    assert_eq!(workspace.json(&["execute", &id], 0).await["outputs"]["pay"], "paid");
}

/// No worker is alive to read the answer, so waiting for a worker would be useless.
#[tokio::test]
async fn approve_and_signal_do_not_wait_when_no_worker_is_alive() {
    let workspace = Workspace::new();
    let plan = r#"{"tools":[{"id":"ask","name":"flow.noop","requiresApproval":true},
        {"id":"w","name":"flow.wait","parameters":{"name":"go"},"dependsOn":"ask"}]}"#;
    let plan = workspace.file("plan.json", plan);
    assert_eq!(workspace.run(&["run", "--plan", &plan]).await.status, 4);
    let id = newest_execution(&workspace).await;
    let before = Instant::now();
    workspace.json(&["approve", &id, "ask", "--no-run"], 0).await;
    workspace.json(&["signal", &id, "go", "--no-run"], 0).await;
    // Regression: each of the two commands took five seconds.
    assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
    assert_eq!(workspace.json(&["execute", &id], 0).await["state"], "COMPLETED");
}

#[tokio::test]
async fn execute_names_the_tools_or_signals_that_it_waits_for() {
    let workspace = Workspace::new();
    let id = kill_after_reserve(&workspace).await;
    let config = workspace.file("other.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    let mut waiting = workspace.spawn(&["execute", &id, "--wait", "--config", &config]);
    waiting
        .wait_for_line("this process lacks tools of the plan: `shop.hang`, `shop.release`")
        .await;
    waiting.signal("-INT");
    assert_eq!(waiting.wait_for_exit().await.status, 130);
    let plan = r#"{"tools":[{"id":"w","name":"flow.wait","parameters":{"name":"go"}}]}"#;
    let plan = workspace.file("plan.json", plan);
    let mut waiting = workspace.spawn(&["run", "--plan", &plan]);
    waiting.wait_for_line("(Ctrl-C detaches)").await;
    waiting.signal("-INT");
    assert_eq!(waiting.wait_for_exit().await.status, 130);
}
