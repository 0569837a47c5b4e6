//! A real server with TLS, and real clients.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    running_command::RunningCommand,
    workspace::{CommandOutput, Workspace},
};

const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/tls");
const CONFIG: &str = "server: { tls: { cert_file: server.pem, key_file: server.key } }
toolsets: []
";

fn install(workspace: &Workspace, chain: &str, key: &str) {
    for (from, to) in [(chain, "server.pem"), (key, "server.key")] {
        fs::copy(Path::new(CERTIFICATES).join(from), workspace.path(to)).unwrap();
    }
}

async fn start_server(workspace: &Workspace) -> (RunningCommand, String) {
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on https://").await;
    (server, line.rsplit(' ').next().unwrap().to_owned())
}

/// Runs a command whose system trusts only the certificate in `trusted`.
async fn run_client(workspace: &Workspace, url: &str, trusted: &str) -> CommandOutput {
    let mut command = workspace.command(&["list", "plans", "--server", url, "--json"]);
    command.env("SSL_CERT_FILE", Path::new(CERTIFICATES).join(trusted));
    let output = timeout(MAX_WAIT, command.output()).await.unwrap().unwrap();
    CommandOutput {
        status: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

async fn fetch_subject(url: &str) -> String {
    let address = url.trim_start_matches("https://").to_owned();
    let mut command = tokio::process::Command::new("openssl");
    command.args(["s_client", "-connect", &address, "-tls1_2"]);
    command.stdin(std::process::Stdio::null());
    let output = timeout(MAX_WAIT, command.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with("subject="));
    line.unwrap_or_else(|| panic!("{text}")).replace(' ', "")
}

#[tokio::test]
async fn a_server_with_tls_answers_clients_that_trust_it() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", CONFIG);
    install(&workspace, "first.pem", "first.key");
    let (server, url) = start_server(&workspace).await;

    let answer = run_client(&workspace, &url, "ca.pem").await;
    assert_eq!(answer.status, 0, "{answer:?}");
    assert_eq!(serde_json::from_str::<Value>(&answer.out).unwrap(), json!([]));
    let refused = run_client(&workspace, &url, "second.pem").await;
    assert_eq!(refused.status, 3, "{refused:?}");

    // A client without TLS gets no HTTP answer, and does not disturb others.
    let mut plain = TcpStream::connect(url.trim_start_matches("https://")).await.unwrap();
    plain.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // Ignores a reset, because only the answer counts.
    let _ = timeout(MAX_WAIT, plain.read_to_end(&mut answer)).await.unwrap();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert_eq!(run_client(&workspace, &url, "ca.pem").await.status, 0);

    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn a_reload_replaces_the_certificate_unless_it_is_wrong() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", CONFIG);
    install(&workspace, "first.pem", "first.key");
    let (mut server, url) = start_server(&workspace).await;
    assert_eq!(fetch_subject(&url).await, "subject=CN=first");

    install(&workspace, "second.pem", "first.key");
    server.signal("-HUP");
    server.wait_for_line("the certificate and the key do not fit").await;
    assert_eq!(fetch_subject(&url).await, "subject=CN=first");

    install(&workspace, "second.pem", "second.key");
    server.signal("-HUP");
    server.wait_for_line("reloaded the configuration; changed: `server.tls`").await;
    assert_eq!(fetch_subject(&url).await, "subject=CN=second");
    assert_eq!(run_client(&workspace, &url, "ca.pem").await.status, 0);

    workspace.file("faber.yaml", "toolsets: []");
    server.signal("-HUP");
    server.wait_for_line("restart to apply the changes of `server.tls`").await;
    assert_eq!(fetch_subject(&url).await, "subject=CN=second");
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
}

#[tokio::test]
async fn a_server_with_a_wrong_certificate_does_not_start() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", CONFIG);
    install(&workspace, "first.pem", "second.key");
    let ended = workspace.run(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(ended.status, 2, "{ended:?}");
    assert!(
        ended.err.contains("`server.tls`: the certificate and the key do not fit"),
        "{ended:?}"
    );
}
