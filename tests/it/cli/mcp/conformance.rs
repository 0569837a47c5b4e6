//! MCP's conformance suite and inspector, with `faber serve` and `faber mcp` as the server.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tests::binary::faber;

use super::{super::workspace::Workspace, http::Server};
use crate::mcp::conformance::{inspector_command, suite_command};

const SUPPORTED_SCENARIOS: [&str; 4] =
    ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"];

const NEEDS_EXAMPLE_SERVER: &str = "the scenario calls a tool of the suite's example server";
const NOT_OFFERED: &str = "Faber offers only tools, and declares that";
const NEEDS_SESSIONS: &str =
    "requests are stateless, so there are no sessions and no streams to resume";

/// Scenarios that do not apply to Faber, with the reason.
const EXCLUDED_SCENARIOS: [(&str, &str); 28] = [
    ("logging-set-level", NOT_OFFERED),
    ("completion-complete", NOT_OFFERED),
    ("tools-call-simple-text", NEEDS_EXAMPLE_SERVER),
    ("tools-call-image", NEEDS_EXAMPLE_SERVER),
    ("tools-call-audio", NEEDS_EXAMPLE_SERVER),
    ("tools-call-embedded-resource", NEEDS_EXAMPLE_SERVER),
    ("tools-call-mixed-content", NEEDS_EXAMPLE_SERVER),
    ("tools-call-with-logging", NEEDS_EXAMPLE_SERVER),
    ("tools-call-error", NEEDS_EXAMPLE_SERVER),
    ("tools-call-with-progress", NEEDS_EXAMPLE_SERVER),
    ("tools-call-sampling", NEEDS_EXAMPLE_SERVER),
    ("tools-call-elicitation", NEEDS_EXAMPLE_SERVER),
    ("json-schema-2020-12", NEEDS_EXAMPLE_SERVER),
    ("elicitation-sep1034-defaults", NEEDS_EXAMPLE_SERVER),
    ("server-sse-polling", NEEDS_SESSIONS),
    ("server-sse-multiple-streams", NEEDS_SESSIONS),
    ("elicitation-sep1330-enums", NEEDS_EXAMPLE_SERVER),
    ("resources-list", NOT_OFFERED),
    ("resources-read-text", NOT_OFFERED),
    ("resources-read-binary", NOT_OFFERED),
    ("resources-templates-read", NOT_OFFERED),
    ("resources-subscribe", NOT_OFFERED),
    ("resources-unsubscribe", NOT_OFFERED),
    ("prompts-list", NOT_OFFERED),
    ("prompts-get-simple", NOT_OFFERED),
    ("prompts-get-with-args", NOT_OFFERED),
    ("prompts-get-embedded-resource", NOT_OFFERED),
    ("prompts-get-with-image", NOT_OFFERED),
];

#[tokio::test]
async fn faber_passes_the_supported_scenarios_of_the_server_suite() {
    let server = Server::new(None).await;
    for scenario in SUPPORTED_SCENARIOS {
        let results = tempfile::tempdir().unwrap();
        let mut command = suite_command();
        command.args(["server", "--url", &server.url, "--scenario", scenario, "--output-dir"]);
        let ended = command.arg(results.path()).output().await.unwrap();
        let printed = format!(
            "{}{}",
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr)
        );
        let folders = std::fs::read_dir(results.path()).unwrap().map(|entry| entry.unwrap().path());
        let checks = folders.map(|folder| folder.join("checks.json")).filter(|file| file.exists());
        let checks: String = checks.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let checks: Vec<Value> = serde_json::from_str(&checks).unwrap_or_default();
        let passed = checks.iter().filter(|check| check["status"] == "SUCCESS").count();
        let is_bad = |check: &&Value| check["status"] == "FAILURE" || check["status"] == "WARNING";
        let bad: Vec<_> = checks.iter().filter(is_bad).collect();
        assert!(passed > 0 && bad.is_empty(), "{scenario}: {passed} passed\n{bad:#?}\n{printed}");
    }
}

#[tokio::test]
async fn every_scenario_of_the_server_suite_is_supported_or_excluded() {
    let listed = suite_command().args(["list", "--server"]).output().await.unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let listed: BTreeSet<_> = listed
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- ")?.split_whitespace().next())
        .collect();
    let known = EXCLUDED_SCENARIOS.iter().map(|(name, _)| *name).chain(SUPPORTED_SCENARIOS);
    assert_eq!(listed, known.collect());
}

#[tokio::test]
async fn the_mcp_inspector_reports_no_warning() {
    let (server, workspace) = (Server::new(None).await, Workspace::new());
    let binary = faber().display().to_string();
    for place in [&[server.url.as_str()][..], &[binary.as_str(), "mcp"]] {
        let ask = async |more: &[&str]| {
            let mut command = inspector_command();
            command.arg("--cli").args(place).args(more).env("HOME", workspace.path("."));
            let ended = command.current_dir(workspace.path(".")).output().await.unwrap();
            let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(ended.status.success(), "{place:?} {more:?}: {printed}");
            let answer: Value = serde_json::from_slice(&ended.stdout).unwrap();
            (answer, printed)
        };
        let (listed, printed) = ask(&["--method", "tools/list", "--strict"]).await;
        assert_eq!(listed["tools"].as_array().unwrap().len(), 14);
        assert!(!printed.contains("Warning:") && !printed.contains("Error:"), "{printed}");
        let call = ["--method", "tools/call", "--tool-name", "run", "--tool-arg"];
        let (answer, _) = ask(&[&call[..], &["query=List all authors"]].concat()).await;
        let done = &answer["structuredContent"];
        assert_eq!((&done["state"], &done["successful"]), (&json!("COMPLETED"), &json!(1)));
    }
}
