//! Executions from the command line, without a server.

use serde_json::{Value, json};
use tests::toolset::PATIENCE;

use super::home::{Home, SEED};

const APPROVAL: &str = r#"{"tools":[{"id":"a","name":"flow.echo","parameters":{"x":1}},
    {"id":"b","name":"flow.echo","requiresApproval":true,"parameters":{"y":"{{a.x}}"}}]}"#;
const WAIT: &str = r#"{"tools":[{"id":"first","name":"flow.noop"},
    {"id":"w","name":"flow.wait","parameters":{"name":"go"},"dependsOn":["first"]}]}"#;

async fn newest(home: &Home) -> String {
    let all = home.json(&["list", "executions"], 0).await;
    all[0]["executionId"].as_str().unwrap().to_owned()
}

/// Pauses what nobody has. An answer waits for two seconds until it has been heard, so on a machine
/// that does other things it takes another one.
async fn pause(home: &Home, id: &str) {
    let asking = async { while home.json(&["pause", id], 0).await["state"] != "PAUSED" {} };
    tokio::time::timeout(PATIENCE, asking).await.expect("it is paused");
}

#[tokio::test]
async fn the_seed_runs_over_a_real_server_and_only_once() {
    let home = Home::new();
    let ended = home.run(&["run", SEED]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    let outputs: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(outputs["createAuthor"]["email"], "alice@test.com");
    assert_eq!(outputs["createBlog"]["authorId"], outputs["createAuthor"]["_id"]);
    for part in ["← createAuthor", "✓ createBlog", "COMPLETED", "faber debug req_"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    assert!(!ended.err.contains('\u{1b}'), "no colours in a pipe");

    let again = home.json(&["run", SEED], 1).await;
    assert_eq!(again["state"], "FAILED");
    let step = |id: &str| {
        let steps = again["steps"].as_array().unwrap();
        steps.iter().find(|step| step["stepId"] == id).unwrap()["state"].clone()
    };
    assert_eq!((step("createAuthor"), step("createBlog")), ("FAILED".into(), "SKIPPED".into()));
    assert_eq!(again["executionResults"]["errors"][0]["code"], "tool.failed");
    assert!(again["plan"]["tools"].is_array() && again["outputs"].is_object());

    let request = again["requestId"].as_str().unwrap();
    let told = home.json(&["debug", request], 0).await;
    assert_eq!(told["executions"][0]["steps"][0]["attempts"], 1);
    assert!(!told["timeline"].as_array().unwrap().is_empty());
    let told = home.run(&["debug", request]).await;
    for part in [
        "FAILED  0 of 2 steps done, 1 failed, 1 skipped",
        "error[tool.failed]: `createAuthor` failed: ",
        "`createBlog` did not run, because `createAuthor` failed",
        "faber retry exec_",
        "alice@test.com",
    ] {
        assert!(told.out.contains(part), "{part}: {}", told.out);
    }
    let full = home.run(&["debug", request, "--full"]).await;
    assert!(full.out.contains("error[tool.failed]"), "{full:?}");
    let failed = home.json(&["list", "executions", "--state", "FAILED"], 0).await;
    assert_eq!(failed.as_array().unwrap().len(), 1);
    assert_eq!(home.run(&["watch", request]).await.status, 1);
}

#[tokio::test]
async fn a_plan_comes_from_a_file_or_from_standard_input() {
    use std::process::Stdio;
    use tokio::io::AsyncWriteExt as _;

    let home = Home::new();
    let text = r#"{"tools":[{"id":"a","name":"flow.echo","parameters":{"n":9007199254740993}}]}"#;
    let plan = home.file("plan.json", text);
    let done = home.json(&["run", "--plan", &plan, "--mode", "sequential"], 0).await;
    assert_eq!((&done["mode"], &done["state"]), (&json!("SEQUENTIAL"), &json!("COMPLETED")));
    assert_eq!(done["outputs"].to_string(), r#"{"a":{"n":9007199254740993}}"#);

    let mut child = home.command(&["run", "--plan", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).await.unwrap();
    assert!(child.wait_with_output().await.unwrap().status.success());

    let id = done["planId"].as_str().unwrap();
    let again = home.json(&["execute", id], 0).await;
    assert_ne!(again["executionId"], done["executionId"]);
    let same = home.json(&["execute", again["executionId"].as_str().unwrap()], 0).await;
    assert_eq!(same["executionId"], again["executionId"]);
}

#[tokio::test]
async fn a_key_gives_the_same_execution() {
    let home = Home::new();
    let arguments = ["run", SEED, "--idempotency-key", "k"];
    let first = home.json(&arguments, 0).await;
    let again = home.json(&arguments, 0).await;
    assert_eq!(first["executionId"], again["executionId"]);
    let error = home.json(&[&arguments[..], &["--mode", "sequential"]].concat(), 2).await;
    assert_eq!(error["error"]["code"], "CONFLICT");
}

#[tokio::test]
async fn what_waits_for_a_person_is_4() {
    let home = Home::new();
    let plan = home.file("plan.json", APPROVAL);
    let waits = home.run(&["run", "--plan", &plan]).await;
    assert_eq!(waits.status, 4, "{waits:?}");
    let id = newest(&home).await;
    assert!(waits.err.contains(&format!("faber approve {id} b")), "{waits:?}");
    assert_eq!(home.json(&["watch", &id], 4).await["state"], "WAITING");
    let told = home.run(&["approve", &id, "b", "--no-run"]).await;
    assert_eq!(told.status, 0, "{told:?}");
    let execute = format!("faber execute {id}");
    assert!(told.err.contains(&execute), "{told:?}");
    // Nobody is asked again; the answer is told, and the command that carries it on.
    let watched = home.run(&["watch", &id]).await;
    assert_eq!(watched.status, 4, "{watched:?}");
    let debugged = home.run(&["debug", &id]).await;
    assert!(!watched.err.contains("waits for approval"), "{watched:?}");
    for told in [&watched.err, &debugged.out] {
        assert!(told.contains("approved") && told.contains(&execute), "{told}");
        assert!(!told.contains("faber approve"), "{told}");
    }
    let done = home.json(&["execute", &id], 0).await;
    assert_eq!((&done["state"], &done["outputs"]["b"]["y"]), (&json!("COMPLETED"), &json!(1)));
    assert_eq!(home.json(&["approve", &id, "b"], 2).await["error"]["code"], "CONFLICT");

    assert_eq!(home.run(&["run", "--plan", &plan]).await.status, 4);
    let id = newest(&home).await;
    home.json(&["approve", &id, "b", "--reject", "--comment", "no", "--no-run"], 0).await;
    // The first answer counts, also before anybody has heard it.
    assert_eq!(home.json(&["approve", &id, "b"], 2).await["error"]["code"], "CONFLICT");
    home.run(&["resume", &id]).await;
    let refused = home.json(&["watch", &id], 1).await;
    assert_eq!(refused["state"], "FAILED");
    assert_eq!(refused["executionResults"]["errors"][0]["code"], "step.rejected");
    assert_eq!(home.run(&["watch", &id]).await.status, 1);
}

#[tokio::test]
async fn ctrl_c_detaches_and_others_go_on() {
    let home = Home::new();
    let plan = home.file("plan.json", WAIT);
    let mut begun = home.begin(&["run", "--plan", &plan]);
    begun.line("waits for signal go").await;
    begun.signal("-INT");
    let ended = begun.end().await;
    let id = newest(&home).await;
    assert_eq!((ended.status, ended.out.as_str()), (130, ""), "{ended:?}");
    assert!(ended.err.contains(&format!("faber watch {id}")), "{ended:?}");

    let done = home.json(&["signal", &id, "go", r#"{"v":2}"#], 0).await;
    assert_eq!((&done["state"], &done["outputs"]["w"]), (&json!("COMPLETED"), &json!({ "v": 2 })));
}

#[tokio::test]
async fn a_signal_reaches_an_execution_that_another_process_has() {
    let home = Home::new();
    let plan = home.file("plan.json", WAIT);
    let mut begun = home.begin(&["run", "--plan", &plan, "--json"]);
    begun.line("waits for signal go").await;
    let id = newest(&home).await;
    let told = home.run(&["signal", &id, "go", "7"]).await;
    assert_eq!(told.status, 0, "{told:?}");
    let ended = begun.end().await;
    assert_eq!(ended.status, 0, "{ended:?}");
    let done: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(done["outputs"]["w"], 7);
    let error = home.json(&["signal", &id, "go", "not json"], 2).await;
    assert_eq!(error["error"]["code"], "INVALID_ARGUMENT");
}

#[tokio::test]
async fn what_nobody_has_is_cancelled_here() {
    let home = Home::new();
    let plan = home.file("plan.json", WAIT);
    let mut begun = home.begin(&["run", "--plan", &plan]);
    begun.line("waits for signal go").await;
    begun.signal("-INT");
    assert_eq!(begun.end().await.status, 130);
    let id = newest(&home).await;
    pause(&home, &id).await;
    let ended = home.json(&["cancel", &id, "--reason", "enough"], 0).await;
    assert_eq!(ended["state"], "CANCELLED");
    assert_eq!(home.run(&["watch", &id]).await.status, 1);
    assert_eq!(home.json(&["resume", &id], 2).await["error"]["code"], "CONFLICT");
}

/// Whoever stopped it let what somebody had allowed happen first.
#[tokio::test]
async fn what_is_to_stop_begins_nothing() {
    let home = Home::new();
    let plan = home.file(
        "plan.json",
        r#"{"tools":[{"id":"a","name":"flow.effect","requiresApproval":true},
            {"id":"b","name":"flow.effect","dependsOn":["a"]}]}"#,
    );
    for (stop, state) in [("cancel", "CANCELLED"), ("pause", "PAUSED")] {
        assert_eq!(home.run(&["run", "--plan", &plan]).await.status, 4);
        let id = newest(&home).await;
        home.json(&["approve", &id, "a", "--no-run"], 0).await;
        home.run(&[stop, &id]).await;
        let request = home.json(&["debug", &id], 0).await;
        let execution = &request["executions"][0];
        assert_eq!(execution["state"], state, "{execution:#}");
        assert_eq!(execution["successful"], 0, "{execution:#}");
    }
}

#[tokio::test]
async fn what_was_paused_is_resumed_here() {
    let home = Home::new();
    let plan = home.file(
        "plan.json",
        r#"{"tools":[{"id":"first","name":"flow.noop"},
            {"id":"w","name":"flow.wait","parameters":{"name":"go"},"dependsOn":["first"]},
            {"id":"last","name":"flow.noop","dependsOn":["w"]}]}"#,
    );
    let mut begun = home.begin(&["run", "--plan", &plan]);
    begun.line("waits for signal go").await;
    begun.signal("-INT");
    assert_eq!(begun.end().await.status, 130);
    let id = newest(&home).await;
    pause(&home, &id).await;
    let told = home.json(&["signal", &id, "go"], 0).await;
    assert_eq!((&told["state"], &told["successful"]), (&json!("PAUSED"), &json!(1)));
    let done = home.json(&["resume", &id], 0).await;
    assert_eq!(done["state"], "COMPLETED");
}

#[tokio::test]
async fn who_watches_hears_that_nobody_carries_it_on() {
    let home = Home::new();
    let script = "echo called >ledger; exec sleep 60";
    let tool =
        json!({ "name": "hang", "effect": "read", "run": { "command": ["sh", "-c", script] } });
    let set = json!({ "name": "own", "source": { "tools": [tool] } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    home.file("faber.yaml", &config.to_string());
    let plan = home.file("plan.json", r#"{"tools":[{"id":"a","name":"hang"}]}"#);
    let running = home.begin(&["run", "--plan", &plan]);
    let called = async {
        while !home.path("ledger").exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, called).await.expect("it is called");
    running.signal("-KILL");
    running.end().await;

    let id = newest(&home).await;
    let mut watching = home.begin(&["watch", &id]);
    watching.line(&format!("no worker drives it: `faber execute {id}` does")).await;
    watching.signal("-INT");
    assert_eq!(watching.end().await.status, 130);
    let told = home.run(&["signal", &id, "go", "--no-run"]).await;
    assert!(told.err.contains("no worker drives it"), "{told:?}");
}
