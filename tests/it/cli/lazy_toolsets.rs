//! Commands start only the servers of the toolsets that they need.

use serde_json::{Value, json};
use tests::binary::faber;

use super::workspace::Workspace;

fn workspace_with_servers() -> Workspace {
    let workspace = Workspace::new();
    let binary = faber();
    let server = |name: &str, is_active: bool| {
        let script =
            format!("touch {name}.started; exec {} blog-mcp --file {name}.json", binary.display());
        let source = json!({ "mcp": { "command": "sh", "args": ["-c", script] } });
        json!({ "name": name, "active": is_active, "source": source })
    };
    let sets = json!([server("blog", true), server("other", true), server("off", false)]);
    workspace.file("faber.yaml", &json!({ "toolsets": sets }).to_string());
    workspace
}

fn take_started(workspace: &Workspace) -> Vec<&'static str> {
    let mut started = Vec::new();
    for name in ["blog", "other", "off"] {
        if std::fs::remove_file(workspace.path(&format!("{name}.started"))).is_ok() {
            started.push(name);
        }
    }
    started
}

#[tokio::test]
async fn a_command_that_only_reads_or_steers_starts_no_server() {
    let workspace = workspace_with_servers();
    let steps = json!([
        { "id": "ask", "name": "blog.listAuthors", "requiresApproval": true },
        { "id": "wait", "name": "flow.wait", "parameters": { "name": "go" } },
    ]);
    let plan = workspace.file("plan.json", &json!({ "tools": steps }).to_string());
    let waiting = workspace.json(&["run", "--plan", &plan], 4).await;
    assert_eq!(take_started(&workspace), ["blog"]);
    let id = waiting["executionId"].as_str().unwrap();
    for command in [
        &["list", "executions"][..],
        &["list", "plans"],
        &["debug", id],
        &["pause", id],
        &["approve", id, "ask", "--no-run"],
        &["signal", id, "go", "--no-run"],
        &["cancel", id],
        &["watch", id],
    ] {
        let ended = workspace.run(command).await;
        assert!([0, 1, 4].contains(&ended.status), "{command:?}: {ended:?}");
        assert_eq!(take_started(&workspace), [""; 0], "{command:?}");
    }
}

#[tokio::test]
async fn a_command_that_calls_tools_starts_only_their_servers() {
    let workspace = workspace_with_servers();
    workspace.json(&["tools", "call", "blog.listAuthors"], 0).await;
    assert_eq!(take_started(&workspace), ["blog"]);
    let plan = workspace.file("plan.yaml", "tools:\n  - name: other.listAuthors\n");
    let done = workspace.json(&["run", "--plan", &plan], 0).await;
    assert_eq!(take_started(&workspace), ["other"]);
    workspace.json(&["execute", done["planId"].as_str().unwrap()], 0).await;
    assert_eq!(take_started(&workspace), ["other"]);
    workspace.json(&["retry", done["executionId"].as_str().unwrap(), "--all"], 0).await;
    assert_eq!(take_started(&workspace), ["other"]);
    let child = json!({ "tools": [{ "plan": { "tools": [{ "name": "blog.listAuthors" }] } }] });
    let child = workspace.file("child.json", &child.to_string());
    workspace.json(&["run", "--plan", &child], 0).await;
    assert_eq!(take_started(&workspace), ["blog"]);
}

#[tokio::test]
async fn planning_starts_the_active_toolsets() {
    let workspace = workspace_with_servers();
    let query = "Create author Alice with email alice@test.com";
    let plan: Value = workspace.json(&["plan", query], 0).await;
    assert_eq!(take_started(&workspace), ["blog", "other"], "{plan}");
    workspace.json(&["plan", query, "--toolset", "other"], 0).await;
    assert_eq!(take_started(&workspace), ["other"]);
    let listed = workspace.json(&["toolsets", "list"], 0).await;
    assert_eq!(take_started(&workspace), ["blog", "other", "off"], "{listed}");
}
