//! Command tools: real commands, including misbehaving ones.

use std::{fs, time::Duration};

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use shared::{limits, tool::ErrorCode};
use tests::toolset::{Connected, MAX_WAIT, is_running, second_attempt, wait_until};

fn connect_command(command: &[&str]) -> Connected {
    let parameters = json!({
        "type": "object",
        "properties": { "text": {}, "n": {}, "absent": {} },
    });
    let tool = json!({ "name": "t", "parameters": parameters, "run": { "command": command } });
    Connected::start_connecting(&json!({ "tools": [tool] }))
}

async fn assert_output(command: &[&str], parameters: Value, expected: Expect) {
    let text = match connect_command(command).call("s.t", parameters).await {
        Ok(value) => value.to_string(),
        Err(err) => format!("{err} (retryable: {}, definite: {})", err.retryable, err.is_definite),
    };
    expected.assert_eq(&text);
}

fn shell_command(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

#[tokio::test]
async fn a_command_reads_parameters_as_json_and_its_output_is_a_value() {
    let parameters = json!({ "z": 9_007_199_254_740_993_i64, "a": 0.1, "ü": "🎉" });
    assert_output(&["cat"], parameters, expect![[r#"{"z":9007199254740993,"a":0.1,"ü":"🎉"}"#]])
        .await;
    assert_output(&["printf", r"a\n\n"], json!({}), expect![[r#""a\n""#]]).await;
    assert_output(&["printf", r"\377"], json!({}), expect![[r#""�""#]]).await;
    assert_output(&["true"], json!({}), expect![[r#""""#]]).await;
    assert_output(&shell_command("echo null; echo"), json!({}), expect!["null"]).await;
}

#[tokio::test]
async fn templates_in_arguments_are_not_interpreted_by_a_shell() {
    let parameters = json!({ "text": "$(date) 'x' \"y\"; *", "n": 1.50 });
    let command = ["printf", "%s|%s|%s", "{{text}}", "{{absent}}", "n={{n}}"];
    assert_output(&command, parameters, expect![[r#""$(date) 'x' \"y\"; *|n=1.5|""#]]).await;
    let nul = json!({ "text": "a\0b" });
    assert_output(&["echo", "{{text}}"], nul, expect!["tool.invalid_parameters: `echo` could not be started: nul byte found in provided data (retryable: false, definite: true)"]).await;
}

#[tokio::test]
async fn a_failed_command_reports_its_status_or_signal_and_its_last_output() {
    assert_output(
        &shell_command("echo oops >&2; exit 3"),
        json!({}),
        expect!["tool.failed: `sh` exited with status 3: oops (retryable: true, definite: true)"],
    )
    .await;
    assert_output(
        &shell_command("kill -9 $$"),
        json!({}),
        expect!["tool.failed: `sh` was ended by signal 9 (retryable: true, definite: false)"],
    )
    .await;
    assert_output(&["no-such-program-anywhere"], json!({}), expect!["tool.unavailable: `no-such-program-anywhere` was not found: install it, or write its full path (retryable: true, definite: true)"]).await;
    assert_output(
        &["/"],
        json!({}),
        expect![
            "tool.unavailable: `/` may not be run: check that it is an executable file (Permission \
             denied (os error 13)) (retryable: true, definite: true)"
        ],
    )
    .await;
    let run = json!({ "command": ["true"], "cwd": "/no/such/folder" });
    let tool = json!({ "name": "t", "run": run });
    let err = Connected::start_connecting(&json!({ "tools": [tool] }))
        .call("t", json!({}))
        .await
        .unwrap_err();
    expect!["tool.unavailable: `true` cannot run in `/no/such/folder`: there is no such directory"]
        .assert_eq(&err.to_string());
}

#[tokio::test]
async fn a_command_that_prints_too_much_is_stopped() {
    assert_output(&["yes"], json!({}), expect!["tool.output_too_large: `yes` printed more than 1048576 bytes and was stopped: let it write a file and print the file's name (retryable: false, definite: true)"]).await;
    // The shell exits before Faber has read all output, so Faber finds the limit only after the
    // exit.
    let late = shell_command("head -c 2000000 /dev/zero & wait");
    let err = connect_command(&late).call("t", json!({})).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::OUTPUT_TOO_LARGE);

    let noisy = shell_command("yes noise | head -c 18000000 >&2; echo end >&2; exit 1");
    let err = connect_command(&noisy).call("t", json!({})).await.unwrap_err();
    assert!(err.message.ends_with("noise\nend") && err.message.len() < limits::MESSAGE_BYTES);
}

#[tokio::test]
async fn a_command_may_leave_its_input_unread() {
    let long = json!({ "a": "x".repeat(1 << 20) });
    assert_output(&shell_command("exec <&-; echo done"), long.clone(), expect![[r#""done""#]])
        .await;
    assert_output(&["true"], long, expect![[r#""""#]]).await;
}

#[tokio::test]
async fn a_command_gets_key_execution_step_and_attempt_as_variables() {
    let cx = second_attempt();
    let key = cx.idempotency_key().unwrap();
    let script = shell_command(
        r#"echo "$FABER_IDEMPOTENCY_KEY $FABER_EXECUTION_ID/$FABER_STEP_ID $FABER_ATTEMPT""#,
    );
    let output = connect_command(&script).call_in("t", json!({}), cx).await;
    assert_eq!(output, Ok(json!(format!("{key} {key} 2"))));
}

#[tokio::test]
async fn standard_error_of_a_successful_command_is_kept() {
    let long = "x".repeat(5_000);
    for (script, expected) in [
        ("echo 1; echo ' one is old' >&2".to_owned(), Some("one is old".to_owned())),
        ("echo 1; echo >&2".to_owned(), None),
        (format!("echo 1; printf 'begin {long}' >&2"), Some(long[..4_096].to_owned())),
        (r"echo 1; printf 'a\377b' >&2".to_owned(), Some("a\u{fffd}b".to_owned())),
    ] {
        let cx = second_attempt();
        let aside = cx.aside.clone();
        assert_eq!(
            connect_command(&shell_command(&script)).call_in("t", json!({}), cx).await,
            Ok(json!(1))
        );
        assert_eq!(aside.take(), expected, "{script}");
    }
    let cx = second_attempt();
    let aside = cx.aside.clone();
    let failed =
        connect_command(&shell_command("echo oops >&2; exit 3")).call_in("t", json!({}), cx).await;
    assert!(failed.unwrap_err().message.ends_with("oops"));
    assert_eq!(aside.take(), None, "the error contains the text");
}

#[tokio::test]
async fn a_background_process_does_not_delay_the_end_of_its_command() {
    assert_output(&shell_command("sleep 1000 & echo hi"), json!({}), expect![[r#""hi""#]]).await;
}

struct ProcessTree {
    connected: Connected,
    folder: tempfile::TempDir,
}

impl ProcessTree {
    fn new(before: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let pid = folder.path().join("pid");
        let script = format!(
            "{before} sleep 1000 & echo $! > '{pid}.new'; mv '{pid}.new' '{pid}'; wait; wait",
            pid = pid.display()
        );
        Self { connected: connect_command(&shell_command(&script)), folder }
    }

    fn pid(&self) -> Option<String> {
        fs::read_to_string(self.folder.path().join("pid")).ok()
    }
}

/// After a signal, a command can clean up and exit with 0. Faber must not report such a call as
/// successful.
#[tokio::test]
async fn exit_status_0_after_a_cancellation_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let start_marker = folder.path().join("begun");
    let trap = "trap 'exit 0' TERM";
    let script = format!("{trap}; echo > {}; sleep 60 & wait", start_marker.display());
    let (cx, connected) = (second_attempt(), connect_command(&shell_command(&script)));
    let cancel = cx.cancel.clone();
    let stop = async {
        wait_until("the command begins", || start_marker.exists()).await;
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(connected.call_in("t", json!({}), cx), stop);
    let err = result.unwrap_err();
    let expected = "Faber told `sh` to stop, and the program exited with status 0: it is unknown \
                    whether its work was done";
    assert_eq!((&err.code, &*err.message), (&ErrorCode::CANCELLED, expected));
    assert!(!err.is_definite, "{err}");
}

#[tokio::test]
async fn cancelling_a_call_ends_the_command_and_its_children() {
    for before in ["", "trap '' TERM;"] {
        let tree = ProcessTree::new(before);
        let cx = second_attempt();
        let cancel = cx.cancel.clone();
        let call = tree.connected.call_in("t", json!({}), cx);
        let started = async {
            wait_until("the child starts", || tree.pid().is_some()).await;
            cancel.cancel();
        };
        let (result, ()) = tokio::join!(call, started);
        let err = result.unwrap_err();
        assert_eq!((err.code, err.is_definite), (ErrorCode::CANCELLED, false));
        let pid = tree.pid().unwrap();
        wait_until("the child ends", || !is_running(&pid)).await;
    }
}

#[tokio::test]
async fn dropping_a_call_ends_the_command_and_its_children() {
    let tree = ProcessTree::new("");
    let mut call = Box::pin(tree.connected.call("t", json!({})));
    let mut pid = None;
    while pid.is_none() {
        let waited = tokio::time::timeout(Duration::from_millis(5), &mut call).await;
        assert!(waited.is_err(), "the command waits");
        pid = tree.pid();
    }
    let pid = pid.unwrap();
    assert!(is_running(&pid));
    drop(call);
    wait_until("the child ends", || !is_running(&pid)).await;
    assert!(MAX_WAIT > limits::CANCEL_GRACE);
}

#[tokio::test]
async fn a_tool_without_a_command_cannot_be_called() {
    let tool = json!({ "name": "t", "description": "d", "examples": ["e"] });
    let connected = Connected::start_connecting(&json!({ "tools": [tool] }));
    assert!(!connected.tool("s.t").definition().is_callable);
    let err = connected.call("t", json!({})).await.unwrap_err();
    expect!["tool.unavailable: `t` has no `run`: add it"].assert_eq(&err.to_string());
}
