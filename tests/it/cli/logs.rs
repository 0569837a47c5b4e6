use std::fs;

use serde_json::{Value, json};

use super::{running_command::RunningCommand, workspace::Workspace};

/// Writes a tool that hangs unless the file `go` exists, a tool that always fails, and a plan for
/// each of them.
fn write_tools(workspace: &Workspace) {
    let script = "test -e go || exec sleep 600; echo done";
    let tools = json!([
        { "name": "slow", "effect": "read", "run": { "command": ["sh", "-c", script] } },
        { "name": "broken", "effect": "read", "run": { "command": ["false"] } },
    ]);
    let sets = json!([{ "name": "local", "active": true, "source": { "tools": tools } }]);
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": sets });
    workspace.file("faber.yaml", &config.to_string());
    workspace.file("slow.json", r#"{"tools":[{"name":"local.slow","id":"wait"}]}"#);
    let retry = json!({ "name": "local.broken", "id": "last", "retry": { "maxAttempts": 1 } });
    workspace.file("broken.json", &json!({ "tools": [retry] }).to_string());
}

fn start(workspace: &Workspace, arguments: &[&str]) -> RunningCommand {
    let mut command = workspace.command(arguments);
    command.env("PATH", "/usr/bin:/bin").env("FABER_LOG", "info");
    RunningCommand::new(command.spawn().unwrap())
}

fn parse_log_line(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|err| panic!("{err}: {line}"))
}

#[tokio::test]
async fn a_json_log_tells_start_end_and_take_over_of_an_execution() {
    let workspace = Workspace::new();
    write_tools(&workspace);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--log-format", "json"];
    let mut server = start(&workspace, &serve);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap().to_owned();
    let run = start(&workspace, &["run", "--plan", "slow.json", "--server", &url]);

    let started = parse_log_line(&server.wait_for_line("execution started").await);
    assert_eq!(started["level"], "INFO");
    let id = started["execution"].as_str().unwrap().to_owned();
    assert!(id.starts_with("exec_") && started["request"].as_str().unwrap().starts_with("req_"));
    let trace = started["trace_id"].as_str().unwrap();
    assert!(trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit()), "{trace}");

    server.signal("-KILL");
    run.signal("-KILL");
    fs::write(workspace.path("go"), "").unwrap();
    let mut worker = start(&workspace, &["worker", "--log-format", "json"]);
    let taken = parse_log_line(&worker.wait_for_line("execution taken over").await);
    assert_eq!((&taken["execution"], &taken["interrupted"]), (&json!(id), &json!(1)));
    assert!(taken["lost_worker"].as_str().unwrap().starts_with("work_"), "{taken}");
    let ended = parse_log_line(&worker.wait_for_line("execution ended").await);
    assert_eq!((&ended["execution"], &ended["state"]), (&json!(id), &json!("COMPLETED")));
    assert_eq!((&ended["steps"], &ended["successful"]), (&json!(1), &json!(1)));
    assert_eq!(ended["trace_id"], started["trace_id"]);
    assert!(ended["duration_ms"].is_u64() && ended["error"].is_null(), "{ended}");
    worker.signal("-TERM");
    assert_eq!(worker.wait_for_exit().await.status, 0);
}

/// No call runs during a sleep, so the log of the execution does not show the loss of the worker.
#[tokio::test]
async fn the_loss_of_a_worker_between_calls_is_logged() {
    let workspace = Workspace::new();
    // The worker keeps the execution in memory during the sleep.
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [], "limits": { "park_after_ms": 600_000 } });
    workspace.file("faber.yaml", &config.to_string());
    let plan = r#"{"tools":[{"name":"flow.sleep","parameters":{"ms":60000}}]}"#;
    let plan = workspace.file("plan.json", plan);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--node", "first"];
    let mut server = start(&workspace, &serve);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let run = start(&workspace, &["run", "--plan", &plan, "--server", url]);
    server.wait_for_line("execution started").await;
    server.signal("-KILL");
    run.signal("-KILL");
    let mut worker = start(&workspace, &["worker", "--log-format", "json"]);
    let taken = parse_log_line(&worker.wait_for_line("execution taken over").await);
    assert_eq!((&taken["lost_node"], &taken["interrupted"]), (&json!("first"), &json!(0)));
    worker.signal("-KILL");
}

#[tokio::test]
async fn a_failed_execution_is_one_line_with_its_step_and_code() {
    let workspace = Workspace::new();
    write_tools(&workspace);
    let plan = workspace.path("broken.json");
    let run = |form: &'static str| {
        let mut command = workspace.command(&["run", "--plan", plan.to_str().unwrap()]);
        command.env("PATH", "/usr/bin:/bin").env("FABER_LOG", "faber::execution=info");
        command.env("FABER_LOG_FORMAT", form);
        async move { String::from_utf8(command.output().await.unwrap().stderr).unwrap() }
    };
    let human = run("human").await;
    let ended: Vec<&str> = human.lines().filter(|line| line.contains("execution ended")).collect();
    let [ended] = ended[..] else { panic!("{human}") };
    for part in [
        "INFO",
        "state=\"FAILED\"",
        "step=\"last\"",
        "tool=\"local.broken\"",
        "error=\"tool.failed\"",
        "failed=1",
    ] {
        assert!(ended.contains(part), "{part}: {ended}");
    }
    let json = run("json").await;
    let ended = json.lines().find(|line| line.contains("execution ended"));
    let ended = parse_log_line(ended.unwrap_or_else(|| panic!("{json}")));
    assert_eq!((&ended["step"], &ended["error"]), (&json!("last"), &json!("tool.failed")));
}

#[tokio::test]
async fn the_end_of_a_cancelled_execution_names_the_actor() {
    let workspace = Workspace::new();
    let plan =
        workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop","requiresApproval":true}]}"#);
    let waiting = workspace.json(&["run", "--plan", &plan], 4).await;
    let id = waiting["executionId"].as_str().unwrap();
    let mut command = workspace.command(&["cancel", id, "--log-format", "json"]);
    command.env("FABER_LOG", "faber::execution=info").env("USER", "ada");
    let output = command.output().await.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{id}  CANCELLED\n"));
    let log = String::from_utf8(output.stderr).unwrap();
    let ended = log.lines().find(|line| line.contains("execution ended"));
    let ended = parse_log_line(ended.unwrap_or_else(|| panic!("{log}")));
    assert_eq!(ended["cancelled_by"], "user `ada`", "{ended}");
    let report = workspace.run(&["debug", id]).await.out;
    assert!(report.contains("the execution was cancelled by user `ada` at "), "{report}");
}

#[tokio::test]
async fn a_refused_request_is_logged() {
    let workspace = Workspace::new();
    let token = json!({ "name": "ci", "token_env": "CI_TOKEN", "role": "viewer" });
    let config = json!({ "toolsets": [], "access": { "tokens": [token] }, "log_format": "json" });
    workspace.file("faber.yaml", &config.to_string());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:"];
    let mut command = workspace.command(&arguments);
    command.env("FABER_LOG", "faber::refusal=info").env("CI_TOKEN", "a-token-of-enough-letters");
    let mut server = RunningCommand::new(command.spawn().unwrap());
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let list = ["list", "executions", "--server", url];
    assert_ne!(workspace.run(&list).await.status, 0);
    let refused = parse_log_line(&server.wait_for_line("request refused").await);
    assert_eq!(
        (&refused["code"], &refused["status"], &refused["path"]),
        (&json!("UNAUTHENTICATED"), &json!(401), &json!("/graphql"))
    );
    assert_eq!(refused["peer"], "127.0.0.1");
    let mut run = workspace.command(&["run", "anything", "--server", url]);
    let forbidden = run.env("FABER_TOKEN", "a-token-of-enough-letters").output().await.unwrap();
    assert_eq!(forbidden.status.code(), Some(2), "{forbidden:?}");
    let refused = parse_log_line(&server.wait_for_line("operation refused").await);
    assert_eq!(refused["code"], "FORBIDDEN");
    assert!(refused["message"].as_str().unwrap().contains("the token `ci` has `viewer`"));
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn an_unknown_log_format_is_refused() {
    let workspace = Workspace::new();
    let refused = workspace.run(&["doctor", "--log-format", "xml"]).await;
    assert_eq!(refused.status, 2, "{refused:?}");
    workspace.file("faber.yaml", "log_format: xml\n");
    let refused = workspace.run(&["list", "executions"]).await;
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(
        refused.err.contains("`log_format` is \"xml\"; write `human` or `json`"),
        "{refused:?}"
    );
}
