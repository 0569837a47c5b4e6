//! Commands that cannot be confined, and misuse of the subcommand that confines.

use std::{fs, process::Command};

use sandbox::kernel_support;
use serde_json::json;
use shared::tool::ErrorCode;
use tests::binary::faber;

use super::{Sandbox, confined_tool, expect_refusal_if};

#[tokio::test]
async fn a_refusal_to_confine_is_unavailable_and_not_failed() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.root().join("faber.yaml"), "own").unwrap();
    let err = sandbox.expect_background_refusal(&["faber.yaml"]).await;
    assert_eq!((err.code.clone(), err.retryable), (ErrorCode::UNAVAILABLE, false), "{err}");
    // With a limit of three open files, Faber cannot confine a command.
    let tool = confined_tool(&json!({ "open_files": 3 }), &["true"], &sandbox.root());
    let err = tool.call("t", json!({})).await.unwrap_err();
    assert_eq!((err.code.clone(), err.retryable), (ErrorCode::UNAVAILABLE, false), "{err}");
    // The launcher reports a refusal with status 125. If the command itself exits with 125, the
    // call has failed and was not refused.
    let err = sandbox.call_bash("echo no such image >&2; exit 125").await.unwrap_err();
    assert!(err.code == ErrorCode::FAILED || !kernel_support().files, "{err}");
}

#[tokio::test]
async fn command_tools_with_confine_are_confined() {
    let sandbox = Sandbox::new();
    let secret = sandbox.secret_path();
    let script = format!("cat; cat {secret}");
    let tool = confined_tool(
        &json!({ "write": [sandbox.root()] }),
        &["sh", "-c", &script],
        &sandbox.root(),
    );
    let result = tool.call("t", json!({})).await;
    expect_refusal_if(result.map(|output| output.to_string()), kernel_support().files);
    let tool = confined_tool(
        &json!({}),
        &["sh", "-c", "cat; echo $FABER_ATTEMPT $CARGO_PKG_NAME"],
        &sandbox.root(),
    );
    assert_eq!(tool.call("t", json!({})).await.unwrap(), json!("{}2"));
    let tool = confined_tool(&json!({}), &["no-such-program"], &sandbox.root());
    let err = tool.call("t", json!({})).await.unwrap_err();
    assert!(
        err.message
            .ends_with("`no-such-program` was not found: install it, or write its full path"),
        "{err}"
    );
}

#[test]
fn the_confined_subcommand_needs_an_order_of_faber() {
    let run = |order: Option<&str>| {
        let mut command = Command::new(faber());
        command.args(["confined", "--", "true"]).env_remove("FABER_CONFINED");
        command.envs(order.map(|order| ("FABER_CONFINED", order)));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, output) = run(None);
    assert_eq!(code, Some(125));
    assert_eq!(
        output,
        "the command is not confined: `FABER_CONFINED` is not set: only Faber itself uses this \
         subcommand\n"
    );
    assert_eq!(run(Some("{}")).0, Some(125));
    let help = Command::new(faber()).arg("--help").output().unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains("confined"));
}

/// Faber passes the parameters in an unnamed file, which is in no folder that the command may read.
#[tokio::test]
async fn a_confined_command_reads_its_parameters() {
    let sandbox = Sandbox::new();
    let parameters = json!({ "text": "x".repeat(100_000) });
    for command in [&["cat"][..], &["cat", "/dev/stdin"], &["sh", "-c", "cat /proc/self/fd/0"]] {
        let tool = confined_tool(&json!({}), command, &sandbox.root());
        let read = tool.call("t", parameters.clone()).await.unwrap();
        assert!(read == parameters, "{command:?}");
    }
}
