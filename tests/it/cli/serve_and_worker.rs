use serde_json::json;
use tests::toolset::{is_running, wait_until};

use super::{
    plain_http::get_text,
    running_command::RunningCommand,
    workspace::{DEMO_QUERY, Workspace},
};

/// An MCP server that ignores SIGTERM and the end of its input, and leaves a background process.
const STUBBORN_SERVER: &str = "trap '' TERM HUP; echo $$ > server; \
    setsid sh -c 'echo $$ > away; exec sleep 1000' & while :; do sleep 1; done";

#[tokio::test]
async fn commands_work_through_a_server() {
    let workspace = Workspace::new();
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let with_address = |arguments: &[&str]| -> Vec<String> {
        let all = [arguments, &["--server", url]].concat();
        all.iter().map(|argument| (*argument).to_owned()).collect()
    };
    let run = with_address(&["run", DEMO_QUERY]);
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    let done = workspace.json(&run, 0).await;
    assert_eq!((&done["state"], &done["total"]), (&json!("COMPLETED"), &json!(2)));
    assert_eq!(workspace.run(&run).await.status, 1, "the e-mail address is taken");

    let listed = with_address(&["list", "executions", "--state", "COMPLETED"]);
    let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
    let listed = workspace.json(&listed, 0).await;
    assert_eq!(listed[0]["executionId"], done["executionId"]);
    let debug = with_address(&["debug", done["requestId"].as_str().unwrap()]);
    let debug: Vec<&str> = debug.iter().map(String::as_str).collect();
    assert_eq!(workspace.json(&debug, 0).await["query"], DEMO_QUERY);
    let missing = with_address(&["watch", "exec_1_aaaaaaaaa"]);
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    assert_eq!(workspace.json(&missing, 2).await["error"]["code"], "NOT_FOUND");

    let figures = get_text(url.trim_start_matches("http://"), "/metrics").await;
    for figure in ["faber_pruned_total{kind=\"execution\"} 0", "faber_calls_waiting 0"] {
        assert!(figures.contains(figure), "{figure}: {figures}");
    }
    let prune = async |age: &str| {
        let prune = with_address(&["prune", "--older-than", age]);
        workspace.json(&prune.iter().map(String::as_str).collect::<Vec<_>>(), 0).await
    };
    let nothing = json!({ "executions": 0, "plans": 0, "requests": 0 });
    assert_eq!(prune("1h").await, nothing);
    assert_eq!(prune("0s").await["executions"], 2, "the server prunes on request");
    assert_eq!(prune("0s").await, nothing);
    server.signal("-TERM");
    let ended = server.wait_for_exit().await;
    assert_eq!((ended.status, ended.out.as_str()), (0, ""), "{ended:?}");
    assert_eq!(workspace.run(&run).await.status, 3);
}

#[tokio::test]
async fn serve_on_all_interfaces_without_tokens_prints_a_warning() {
    let workspace = Workspace::new();
    let mut server = workspace.spawn(&["serve", "--listen", "0.0.0.0:0", "--store", "memory:"]);
    server.wait_for_line("no access tokens").await;
    server.wait_for_line("listening on http://0.0.0.0:").await;
    server.signal("-INT");
    assert_eq!(server.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn a_worker_continues_an_execution_that_another_process_left() {
    let workspace = Workspace::new();
    let plan = workspace
        .file("plan.json", r#"{"tools":[{"name":"flow.wait","parameters":{"name":"go"}}]}"#);
    let mut run = workspace.spawn(&["run", "--plan", &plan]);
    run.wait_for_line("waits for signal go").await;
    run.signal("-INT");
    assert_eq!(run.wait_for_exit().await.status, 130);
    let mut worker = workspace.spawn(&["worker"]);
    worker.wait_for_line("working on sqlite:").await;
    let all = workspace.json(&["list", "executions"], 0).await;
    let id = all[0]["executionId"].as_str().unwrap();
    assert_eq!(workspace.run(&["signal", id, "go"]).await.status, 0);
    assert_eq!(workspace.run(&["watch", id]).await.status, 0);
    worker.signal("-TERM");
    assert_eq!(worker.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn workers_are_listed_with_the_names_of_their_nodes() {
    let workspace = Workspace::new();
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0", "--node", "node-1"]);
    let line = server.wait_for_line(" on node node-1").await;
    let id = line.split(' ').nth(1).unwrap().to_owned();
    assert!(id.starts_with("work_"), "{line}");
    let url = server.wait_for_line("listening on http://").await;
    let url = url.rsplit(' ').next().unwrap();
    let mut command = workspace.command(&["worker"]);
    command.env("FABER_NODE", "node-2");
    let mut worker = RunningCommand::new(command.spawn().unwrap());
    worker.wait_for_line(" on node node-2").await;
    worker.wait_for_line("working on sqlite:").await;
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"w","name":"flow.sleep","parameters":{"ms":600000}}]}"#,
    );
    let mut run = workspace.spawn(&["run", "--plan", &plan, "--server", url]);
    run.wait_for_line("executing exec_").await;
    let table = workspace.run(&["list", "workers"]).await.out;
    assert!(table.starts_with("WORKER"), "{table}");
    let of_server = table.lines().find(|line| line.starts_with(&id)).unwrap_or_default();
    assert!(of_server.contains("node-1"), "{table}");
    assert!(table.contains("node-2"), "{table}");
    let listed = workspace.json(&["list", "workers", "--server", url], 0).await;
    let nodes: Vec<&str> =
        listed.as_array().unwrap().iter().filter_map(|worker| worker["node"].as_str()).collect();
    assert!(nodes.contains(&"node-1") && nodes.contains(&"node-2"), "{listed}");
    for process in [&run, &worker, &server] {
        process.signal("-INT");
    }
    for process in [run, worker, server] {
        process.wait_for_exit().await;
    }
}

/// SIGHUP reloads the configuration, unless the terminal was closed.
#[tokio::test]
async fn serve_and_worker_continue_after_sighup() {
    let workspace = Workspace::new();
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for (arguments, line) in [(&serve[..], "listening on http://"), (&["worker"], "working on")] {
        let mut process = workspace.spawn(arguments);
        process.wait_for_line(line).await;
        process.signal("-HUP");
        process.wait_for_line("reloaded the configuration; changed: nothing").await;
        process.signal("-TERM");
        process.wait_for_line("stopping").await;
        assert_eq!(process.wait_for_exit().await.status, 0, "{arguments:?}");
    }
}

/// `doctor --server` reports a failed toolset as an error. With `--ready`, it checks only whether
/// the server can work.
#[tokio::test]
async fn doctor_reports_a_ready_server_although_a_toolset_failed() {
    let workspace = Workspace::new();
    let source = json!({ "mcp": { "command": "false" } });
    let sets = json!([{ "name": "broken", "source": source },
        { "name": "idle", "active": false, "source": source }]);
    workspace.file("faber.yaml", &json!({ "toolsets": sets }).to_string());
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let ready = workspace.json(&["doctor", "--ready", "--server", url], 0).await;
    assert_eq!(ready[0]["ok"], json!(true), "{ready}");
    let checks = workspace.json(&["doctor", "--server", url], 3).await;
    let of = |name: &str| {
        let mut all = checks.as_array().unwrap().iter();
        all.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{checks:#}"))["ok"]
            .clone()
    };
    let oks = ["server", "toolset flow", "toolset broken", "toolset idle"].map(of);
    assert_eq!(oks, [json!(true), json!(true), json!(false), json!(true)], "{checks:#}");
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
    let gone = workspace.json(&["doctor", "--ready", "--server", url], 3).await;
    assert_eq!(gone[0]["ok"], json!(false), "{gone}");
    assert_eq!(workspace.run(&["doctor", "--ready"]).await.status, 2, "`--ready` needs a server");
}

/// Regression: MCP servers that ignore the end of their input survived.
#[tokio::test]
async fn mcp_servers_end_when_faber_is_killed() {
    let workspace = Workspace::new();
    let mcp = json!({ "command": "sh", "args": ["-c", STUBBORN_SERVER] });
    let set = json!({ "name": "s", "source": { "mcp": mcp } });
    workspace.file("faber.yaml", &json!({ "toolsets": [set] }).to_string());
    let mut faber = workspace.spawn(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    faber.wait_for_line("listening on http://").await;
    let pid = |name: &str| {
        let text = std::fs::read_to_string(workspace.path(name)).ok()?;
        text.ends_with('\n').then_some(text)
    };
    wait_until("the MCP server runs", || pid("server").is_some() && pid("away").is_some()).await;
    let pids = ["server", "away"].map(|name| pid(name).unwrap());
    assert!(pids.iter().all(|pid| is_running(pid)));
    faber.signal("-KILL");
    for pid in pids {
        wait_until("the MCP server ends", || !is_running(&pid)).await;
    }
}

/// If the server accepted writes, it would write to a file that no other process can open, and the
/// data would be lost.
#[tokio::test]
async fn a_server_whose_store_file_was_moved_refuses_writes() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let doctor = ["doctor", "--ready", "--server", url];
    assert_eq!(workspace.run(&doctor).await.status, 0);
    workspace.json(&["run", "--plan", &plan, "--server", url], 0).await;

    std::fs::rename(workspace.path("faber.db"), workspace.path("moved.db")).unwrap();
    let error = workspace.json(&["run", "--plan", &plan, "--server", url], 3).await;
    assert_eq!(error["error"]["code"], "STORE_UNAVAILABLE", "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("faber.db` was removed or replaced"), "{message}");
    assert!(message.contains("move the file back, or restart Faber"), "{message}");
    let ready = async |status| {
        // The server caches its readiness for a second, so the first answers can be old.
        while workspace.run(&doctor).await.status != status {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(tests::toolset::MAX_WAIT, ready(3))
        .await
        .expect("the server becomes unready");

    std::fs::rename(workspace.path("moved.db"), workspace.path("faber.db")).unwrap();
    workspace.json(&["run", "--plan", &plan, "--server", url], 0).await;
    tokio::time::timeout(tests::toolset::MAX_WAIT, ready(0))
        .await
        .expect("the server becomes ready again");
}
