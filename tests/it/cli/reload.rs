//! SIGHUP reloads the configuration of a real server.

use std::process::Stdio;

use serde_json::{Value, json};
use tests::{installed::find_program, toolset::MAX_WAIT};
use tokio::time::timeout;

use super::{plain_http::get_answer, workspace::Workspace};

fn secret_config() -> String {
    let run = json!({ "command": ["sh", "-c", "printf %s ${#KEY}"],
        "env": { "KEY": { "secret_file": "secret" } }, "pass": ["PATH"] });
    let tool = json!({ "name": "measure", "description": "Measures.", "effect": "read",
        "parameters": { "type": "object" }, "run": run });
    json!({ "toolsets": [{ "name": "local", "source": { "tools": [tool] } }] }).to_string()
}

#[tokio::test]
async fn a_reload_reads_secret_files_again() {
    let workspace = Workspace::new();
    workspace.file("served.yaml", &secret_config());
    workspace.file("secret", "12345678\n");
    let mut server =
        workspace.spawn(&["serve", "--config", "served.yaml", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let call = async || {
        let called =
            workspace.run(&["tools", "call", "local.measure", "--server", url, "--json"]).await;
        assert_eq!(called.status, 0, "{called:?}");
        called.out
    };
    assert!(call().await.contains('8'));

    workspace.file("secret", "123456789");
    server.signal("-HUP");
    server.wait_for_line("reloaded the configuration; changed: `toolsets`").await;
    assert!(call().await.contains('9'));

    std::fs::remove_file(workspace.path("secret")).unwrap();
    server.signal("-HUP");
    server.wait_for_line("the toolset `local`: a secret is missing: `secret` cannot be read").await;
    assert!(call().await.contains('9'));
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
}

fn config(tool: &str, lease_ms: u64) -> String {
    let tool = json!({ "name": tool, "description": "Says hello.", "effect": "read",
        "parameters": { "type": "object" }, "run": { "command": ["echo", "hello"] } });
    let set = json!({ "name": "local", "source": { "tools": [tool] } });
    json!({ "toolsets": [set], "limits": { "lease_ms": lease_ms } }).to_string()
}

#[tokio::test]
async fn a_reload_changes_toolsets_and_tokens_and_names_what_needs_a_restart() {
    let workspace = Workspace::new();
    // The commands that ask the server must not read its configuration.
    workspace.file("served.yaml", &config("hello", 5_000));
    let mut server =
        workspace.spawn(&["serve", "--config", "served.yaml", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let names = async || {
        let tools = workspace.json(&["tools", "list", "--server", url], 0).await;
        tools.to_string()
    };
    assert!(names().await.contains("hello"));

    workspace.file("served.yaml", &config("goodbye", 6_000));
    server.signal("-HUP");
    server.wait_for_line("reloaded the configuration; changed: `toolsets`").await;
    server.wait_for_line("restart to apply the changes of `limits.lease_ms`").await;
    assert!(names().await.contains("goodbye"));

    workspace.file("served.yaml", "toolsets: 3");
    server.signal("-HUP");
    server.wait_for_line("the configuration has a mistake, so nothing was changed").await;
    assert!(names().await.contains("goodbye"));

    std::fs::remove_file(workspace.path("served.yaml")).unwrap();
    server.signal("-HUP");
    server.wait_for_line("the configuration has a mistake, so nothing was changed").await;
    assert!(names().await.contains("goodbye"));

    let mut with_token: Value = serde_json::from_str(&config("goodbye", 5_000)).unwrap();
    let token = json!({ "name": "owner", "token_file": "owner.token", "role": "admin" });
    with_token["access"] = json!({ "tokens": [token] });
    workspace.file("owner.token", "a-token-of-20-letters\n");
    workspace.file("served.yaml", &with_token.to_string());
    server.signal("-HUP");
    server.wait_for_line("changed: added the token `owner`").await;
    let (status, _) = get_answer(url.trim_start_matches("http://"), "/metrics").await;
    assert_eq!(status, 401, "a caller without the new token has no access");

    // An emptied file must not remove the tokens.
    workspace.file("served.yaml", "");
    server.signal("-HUP");
    server.wait_for_line("served.yaml` is empty").await;
    // Neither must a file that has lost its end.
    workspace.file("served.yaml", &config("goodbye", 5_000));
    server.signal("-HUP");
    server.wait_for_line("`access.tokens` is empty now").await;
    let (status, _) = get_answer(url.trim_start_matches("http://"), "/metrics").await;
    assert_eq!(status, 401);
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn a_closed_terminal_ends_a_server() {
    let workspace = Workspace::new();
    let serve = format!("{} serve --listen 127.0.0.1:0 2>log", tests::binary::faber().display());
    // `script` gives the server a terminal, and closes it when it is killed.
    let mut command = tokio::process::Command::new(find_program("script"));
    command.args(["-qec", &serve, "/dev/null"]).current_dir(workspace.path(".")).env_clear();
    command.env("HOME", workspace.path(".")).env("PATH", std::env::var_os("PATH").unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    let mut terminal = command.spawn().unwrap();
    let wait_for = async |part: &str| {
        let reading = async {
            while !std::fs::read_to_string(workspace.path("log"))
                .is_ok_and(|log| log.contains(part))
            {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        timeout(MAX_WAIT, reading).await.unwrap_or_else(|_| panic!("no `{part}`"));
    };
    wait_for("listening on http://").await;
    terminal.kill().await.unwrap();
    wait_for("stopping").await;
}
