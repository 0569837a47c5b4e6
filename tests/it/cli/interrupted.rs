//! Executions whose process died, and commands that a signal stops.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tests::toolset::PATIENCE;

use super::home::Home;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

async fn newest(home: &Home) -> String {
    text(&home.json(&["list", "executions"], 0).await[0]["executionId"]).to_owned()
}

/// Waits until a tool has written a file.
async fn await_file(path: &Path) {
    let written = async {
        while !path.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.expect("the tool is called");
}

/// `reserve` succeeds and `hang` hangs. `release` undoes `reserve`.
fn shop(home: &Home) -> String {
    let tool = |name: &str, effect: &str, script: &str| json!({ "name": name, "effect": effect, "run": { "command": ["sh", "-c", script] } });
    let tools = [
        tool("reserve", "once", "echo 1"),
        tool("hang", "read", "echo called >called; exec sleep 60"),
        tool("release", "idempotent", "echo undone >undone"),
    ];
    let set = json!({ "name": "shop", "source": { "tools": tools } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    home.file("faber.yaml", &config.to_string());
    let plan = json!({ "tools": [
        { "name": "reserve", "compensate": { "name": "release" } },
        { "name": "hang", "dependsOn": ["reserve"] },
    ] });
    home.file("plan.json", &plan.to_string())
}

/// Kills the process of an execution after `reserve`, and returns the execution.
async fn killed(home: &Home) -> String {
    let plan = shop(home);
    let running = home.begin(&["run", "--plan", &plan]);
    await_file(&home.path("called")).await;
    running.signal("-KILL");
    running.end().await;
    newest(home).await
}

#[tokio::test]
async fn a_cancellation_undoes_what_a_killed_process_did() {
    let home = Home::new();
    let id = killed(&home).await;
    let ended = home.run(&["cancel", &id]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(
        ended.err.contains("these calls undo what was done:\n  reserve  shop.release\n"),
        "{ended:?}"
    );
    assert!(home.path("undone").exists());
    assert_eq!(home.json(&["watch", &id], 1).await["state"], "CANCELLED");
}

#[tokio::test]
async fn a_cancellation_without_the_tools_is_recorded_and_names_them() {
    let home = Home::new();
    let id = killed(&home).await;
    let config = home.file("other.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    // The second time, the execution compensates already.
    for _ in 0..2 {
        let told = home.run(&["cancel", &id, "--config", &config]).await;
        assert_eq!(told.status, 3, "{told:?}");
        assert!(!told.err.contains(" WARN "), "{told:?}");
        let error = home.json(&["cancel", &id, "--config", &config], 3).await;
        assert_eq!(error["error"]["code"], "TOOL_UNAVAILABLE", "{error}");
        let message = text(&error["error"]["message"]);
        for part in ["`shop.release`", &config, &format!("`faber execute {id}` undoes")] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let state = &home.json(&["list", "executions"], 0).await[0]["state"];
        assert_eq!(state, "COMPENSATING");
    }
    let ended = home.run(&["cancel", &id]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(home.path("undone").exists());
    assert_eq!(home.json(&["watch", &id], 1).await["state"], "CANCELLED");
}

/// Writes a plan whose *once* call writes `called`, and takes a second.
fn payment(home: &Home, policy: &Value) -> String {
    let script = "echo called >called; sleep 1; echo paid";
    let tool = json!({ "name": "pay", "run": { "command": ["sh", "-c", script] } });
    let set = json!({ "name": "shop", "source": { "tools": [tool] } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    home.file("faber.yaml", &config.to_string());
    let mut pay = json!({ "name": "pay" });
    pay.as_object_mut().unwrap().extend(policy.as_object().unwrap().clone());
    let next = json!({ "id": "next", "name": "flow.noop", "dependsOn": ["pay"] });
    home.file("plan.json", &json!({ "tools": [pay, next] }).to_string())
}

#[tokio::test]
async fn a_signal_lets_running_calls_end() {
    for signal in ["-TERM", "-HUP", "-INT"] {
        let home = Home::new();
        let plan = payment(&home, &json!({}));
        let running = home.begin(&["run", "--plan", &plan]);
        await_file(&home.path("called")).await;
        running.signal(signal);
        let ended = running.end().await;
        assert_eq!(ended.status, 130, "{signal} {ended:?}");
        let id = newest(&home).await;
        assert!(ended.err.contains(&format!("`faber execute {id}` continues it")), "{ended:?}");
        let done = home.json(&["execute", &id], 0).await;
        assert_eq!(done["outputs"]["pay"], "paid", "{signal} {done}");
    }
}

#[tokio::test]
async fn a_signal_lets_the_calls_of_an_approval_end() {
    let home = Home::new();
    let plan = payment(&home, &json!({ "requiresApproval": true }));
    assert_eq!(home.run(&["run", "--plan", &plan]).await.status, 4);
    let id = newest(&home).await;
    let mut running = home.begin(&["approve", &id, "pay"]);
    running.line(&format!("recorded; continuing {id} (Ctrl-C detaches)")).await;
    await_file(&home.path("called")).await;
    running.signal("-TERM");
    assert_eq!(running.end().await.status, 130);
    assert_eq!(home.json(&["execute", &id], 0).await["outputs"]["pay"], "paid");
}

/// No worker is alive, so none reads the answer.
#[tokio::test]
async fn an_answer_does_not_wait_for_a_worker_that_is_not_there() {
    let home = Home::new();
    let plan = r#"{"tools":[{"id":"ask","name":"flow.noop","requiresApproval":true},
        {"id":"w","name":"flow.wait","parameters":{"name":"go"},"dependsOn":"ask"}]}"#;
    let plan = home.file("plan.json", plan);
    assert_eq!(home.run(&["run", "--plan", &plan]).await.status, 4);
    let id = newest(&home).await;
    let before = Instant::now();
    home.json(&["approve", &id, "ask", "--no-run"], 0).await;
    home.json(&["signal", &id, "go", "--no-run"], 0).await;
    // Each of the two took five seconds.
    assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
    assert_eq!(home.json(&["execute", &id], 0).await["state"], "COMPLETED");
}

/// The command line tells what an execution waits for that it does not carry on by itself.
#[tokio::test]
async fn a_command_tells_what_it_waits_for() {
    let home = Home::new();
    let id = killed(&home).await;
    let config = home.file("other.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    let mut waiting = home.begin(&["execute", &id, "--wait", "--config", &config]);
    waiting.line("this process lacks tools of the plan: `shop.hang`, `shop.release`").await;
    waiting.signal("-INT");
    assert_eq!(waiting.end().await.status, 130);
    let plan = r#"{"tools":[{"id":"w","name":"flow.wait","parameters":{"name":"go"}}]}"#;
    let plan = home.file("plan.json", plan);
    let mut waiting = home.begin(&["run", "--plan", &plan]);
    waiting.line("(Ctrl-C detaches)").await;
    waiting.signal("-INT");
    assert_eq!(waiting.end().await.status, 130);
}
