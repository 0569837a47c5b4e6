//! Logins to an MCP server, with the official SDK as the server.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Stdio};

use serde_json::{Value, json};
use tests::{installed, toolset::MAX_WAIT};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::workspace::{CommandOutput, Workspace};

struct OAuthServer {
    _child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    url: String,
}

impl OAuthServer {
    async fn start() -> Self {
        let modules = installed::find_path("FABER_TEST_MCP_MODULES", "mcp/node_modules");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/mcp/guarded.mjs");
        let mut command = Command::new(installed::find_program("node"));
        command.arg(script).arg(modules).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = timeout(MAX_WAIT, lines.next_line()).await.unwrap().unwrap().unwrap();
        Self { input: child.stdin.take().unwrap(), _child: child, lines, url }
    }

    /// Sends an instruction to the server. Returns the requests that the server has received so
    /// far.
    async fn send(&mut self, line: &str) -> Value {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let reply = timeout(MAX_WAIT, self.lines.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str(&reply).unwrap()
    }
}

struct LoginTest {
    workspace: Workspace,
    server: OAuthServer,
    /// The output of all commands. The tests check that it contains no secret.
    printed: String,
}

impl LoginTest {
    async fn new() -> Self {
        let (workspace, server) = (Workspace::new(), OAuthServer::start().await);
        let mcp = json!({ "url": server.url, "auth": "oauth" });
        let set = json!({ "name": "s", "source": { "mcp": mcp } });
        workspace.file("faber.yaml", &json!({ "toolsets": [set] }).to_string());
        Self { workspace, server, printed: String::new() }
    }

    async fn run(&mut self, arguments: &[&str]) -> CommandOutput {
        let mut command = self.workspace.command(arguments);
        command.env("BROWSER", concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/browser"));
        command.env("FABER_LOG", "trace").envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        let output = timeout(MAX_WAIT, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        self.printed.extend([out.as_str(), "\n", err.as_str(), "\n"]);
        CommandOutput { status: output.status.code().unwrap_or(-1), out, err }
    }

    async fn login(&mut self) -> Value {
        let ended = self.run(&["login", "s", "--json"]).await;
        assert_eq!(ended.status, 0, "{ended:?}");
        serde_json::from_str(&ended.out).unwrap()
    }

    async fn call(&mut self, tool: &str) -> Result<String, String> {
        let ended = self.run(&["tools", "call", tool, "{}", "--json"]).await;
        if ended.status == 0 { Ok(ended.out) } else { Err(ended.out) }
    }

    fn login_files(&self) -> Vec<PathBuf> {
        let folder = self.workspace.path(".local/share/faber/logins");
        let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
        let files = files.map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn assert_needs_login(called: &Result<String, String>) {
    let message = called.as_ref().unwrap_err();
    assert!(message.contains("`s` needs a login: run `faber login s`"), "{message}");
}

#[tokio::test]
async fn a_login_is_used_and_refreshed_until_the_server_forgets_it() {
    let mut test = LoginTest::new().await;
    assert_needs_login(&test.call("s.whoami").await);
    let doctor = test.run(&["doctor"]).await;
    assert_eq!(doctor.status, 3);
    assert!(doctor.out.contains("`s` needs a login: run `faber login s`"), "{}", doctor.out);
    assert!(doctor.out.contains("log in on this machine"), "{}", doctor.out);

    let logged_in = test.login().await;
    assert_eq!((&logged_in["scopes"], &logged_in["isRenewed"]), (&json!(["read"]), &json!(true)));
    let [file] = test.login_files().try_into().unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Faber masks the token in the output, even if the server repeats it.
    let called = test.call("s.whoami").await.unwrap();
    assert!(called.contains("whoami with ***ACCESS_TOKEN***"), "{called}");
    let reply = test.server.send("tell").await;
    assert_eq!((&reply["logins"], &reply["refreshed"]), (&json!(1), &json!(0)));

    test.server.send("end access").await;
    test.call("s.whoami").await.unwrap();
    test.call("s.whoami").await.unwrap();
    let reply = test.server.send("lasts 0").await;
    assert_eq!(reply["refreshed"], 1, "the token is refreshed once");
    test.server.send("end access").await;
    test.call("s.whoami").await.unwrap();
    test.call("s.whoami").await.unwrap();
    let reply = test.server.send("end all").await;
    assert!(
        reply["refreshed"].as_u64() >= Some(3),
        "a token that expires soon is refreshed before: {reply}"
    );

    assert_needs_login(&test.call("s.whoami").await);
    assert_needs_login(&test.call("s.whoami").await);
    let all = test.server.send("tell").await;
    assert_eq!(all["refreshed"], reply["refreshed"]);
    let resources = all["resources"].as_array().unwrap();
    assert!(resources.iter().all(|resource| *resource == test.server.url), "{resources:?}");
    for secret in all["secrets"].as_array().unwrap().iter().map(|secret| secret.as_str().unwrap()) {
        assert!(!test.printed.contains(secret), "{secret} was printed");
    }
}

#[tokio::test]
async fn a_login_after_a_missing_scope_asks_for_that_scope() {
    let mut test = LoginTest::new().await;
    test.login().await;
    let error = test.call("s.change").await.unwrap_err();
    let expected = "`s` needs a login that allows `read write`: run `faber login s`";
    assert!(error.contains(expected), "{error}");
    test.call("s.whoami").await.unwrap();
    assert_eq!(test.login().await["scopes"], json!(["read", "write"]));
    test.call("s.change").await.unwrap();
    let reply = test.server.send("tell").await;
    assert_eq!(reply["scopes"], json!([["read"], ["read", "write"]]));
    let states = reply["states"].as_array().unwrap();
    assert!(states[0] != states[1] && states[0].as_str().unwrap().len() > 15, "{states:?}");
}

#[tokio::test]
async fn a_login_registers_a_new_client_when_the_server_forgot_the_old_one() {
    let mut test = LoginTest::new().await;
    test.login().await;
    test.server.send("end access").await;
    test.server.send("forget clients").await;
    assert_needs_login(&test.call("s.whoami").await);
    test.login().await;
    test.call("s.whoami").await.unwrap();
    assert_eq!(test.server.send("tell").await["logins"], 2);
}

#[tokio::test]
async fn logout_revokes_the_token_and_removes_the_login_file() {
    let mut test = LoginTest::new().await;
    test.login().await;
    let out = test.run(&["logout", "s"]).await;
    assert_eq!((out.status, out.out.trim()), (0, "the login to `s` was removed"));
    assert_eq!(test.server.send("tell").await["revoked"], 1);
    assert!(test.login_files().is_empty());
    assert_needs_login(&test.call("s.whoami").await);
    let again = test.run(&["logout", "s"]).await;
    assert_eq!((again.status, again.out.as_str()), (0, ""));
}

#[tokio::test]
async fn login_explains_why_it_cannot_log_in() {
    let workspace = Workspace::new();
    let set = |name: &str, mcp: Value| json!({ "name": name, "source": { "mcp": mcp } });
    let program = json!({ "grant": "client_credentials", "client_id": "c", "client_secret": { "secret": "S" } });
    let sets = json!([
        set("plain", json!({ "url": "https://127.0.0.1:1/mcp" })),
        set("here", json!({ "command": "true" })),
        set("program", json!({ "url": "https://127.0.0.1:1/mcp", "auth": program })),
        set("gone", json!({ "url": "http://127.0.0.1:1/mcp", "auth": "oauth" })),
    ]);
    workspace.file("faber.yaml", &json!({ "toolsets": sets }).to_string());
    for (name, status, reason) in [
        ("none", 2, "there is no toolset `none`"),
        ("plain", 2, "`plain` has no login: its source has no `auth: oauth`"),
        ("here", 2, "`here` has no login: Faber starts it as a command"),
        ("program", 2, "`program` has no login: its `grant` is for programs"),
        ("gone", 3, "`127.0.0.1:1` cannot be reached"),
    ] {
        let failed = workspace.json(&["login", name], status).await;
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(reason), "{message}");
    }
    let elsewhere = workspace.run(&["login", "gone", "--server", "http://127.0.0.1:1"]).await;
    assert!(
        elsewhere.err.contains("a login is stored on the machine that calls the tools"),
        "{elsewhere:?}"
    );
}
