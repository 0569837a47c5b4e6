use std::{fs, time::Duration};

use expect_test::expect;
use serde_json::{Value, json};
use shared::{
    limits,
    tool::{Effect, ErrorCode, ToolError},
};
use tests::{
    installed,
    toolset::{Connected, MAX_WAIT, is_running, second_attempt, wait_until},
};
use toolbox::{SetStatus, ToolLookup};

pub(super) struct ServerTest {
    pub(super) connected: Connected,
    folder: tempfile::TempDir,
}

impl ServerTest {
    fn start_connecting(mode: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/mcp/hostile.mjs");
        let record = folder.path().join("record");
        let mcp =
            json!({ "command": installed::find_program("node"), "args": [script, mode, record] });
        Self { connected: Connected::start_connecting(&json!({ "mcp": mcp })), folder }
    }

    pub(super) async fn connect() -> Self {
        let test = Self::start_connecting("normal");
        assert_eq!(test.connected.status().await, SetStatus::Ready);
        test
    }

    pub(super) async fn call(&self, name: &str, parameters: Value) -> Result<Value, ToolError> {
        self.connected.call(name, parameters).await
    }

    async fn connection_error(mode: &str) -> String {
        match Self::start_connecting(mode).connected.status().await {
            SetStatus::Failed { error } => error,
            other => panic!("{other:?}"),
        }
    }

    fn record(&self) -> String {
        fs::read_to_string(self.folder.path().join("record")).unwrap_or_default()
    }
}

#[tokio::test]
async fn all_pages_of_a_tool_list_are_read() {
    let test = ServerTest::connect().await;
    assert_eq!(
        test.connected.toolbox.sets()[0].tools.len(),
        23,
        "a tool without name and one without schema are left out"
    );
    let effect = |name: &str| test.connected.tool(name).definition().effect;
    assert_eq!(effect("die"), Effect::Read);
    assert_eq!(effect("die_idempotent"), Effect::Idempotent);
    assert_eq!(effect("die_once"), Effect::Once);
}

#[tokio::test]
async fn the_server_is_told_about_dropped_and_cancelled_calls() {
    let test = ServerTest::connect().await;
    let hang = test.call("hang", json!({}));
    assert!(tokio::time::timeout(Duration::from_millis(50), hang).await.is_err());
    assert_eq!(test.call("cancelled", json!({})).await, Ok(json!(1)));

    let test = ServerTest::connect().await;
    let cx = second_attempt();
    let cancel = cx.cancel.clone();
    let hang = test.connected.call_in("hang", json!({}), cx);
    let (hang, ()) = tokio::join!(hang, async {
        test.call("starts", json!({})).await.unwrap();
        cancel.cancel();
    });
    let err = hang.unwrap_err();
    assert_eq!((err.code, err.is_definite), (ErrorCode::CANCELLED, false));
    assert_eq!(test.call("cancelled", json!({})).await, Ok(json!(1)));
}

#[tokio::test]
async fn a_read_call_is_repeated_when_the_server_dies() {
    let test = ServerTest::connect().await;
    assert_eq!(test.call("die_first", json!({})).await, Ok(json!("alive")));
    assert_eq!(test.call("starts", json!({})).await, Ok(json!(2)));
}

#[tokio::test]
async fn a_removed_set_answers_its_running_calls_and_then_ends() {
    let test = ServerTest::connect().await;
    let pid = test.record().trim().trim_start_matches("start ").to_owned();
    let running = test.call("report", json!({ "every": 300, "times": 2 }));
    let (answer, ()) = tokio::join!(running, async {
        test.call("starts", json!({})).await.unwrap();
        test.connected.sources.remove(&"s".parse().unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(is_running(&pid), "a call runs");
    });
    assert_eq!(answer, Ok(json!(2)));
    wait_until("the server ends after its last call", || !is_running(&pid)).await;
}

#[tokio::test]
async fn a_removed_set_answers_a_call_that_waits_for_its_start() {
    let test = ServerTest::connect().await;
    let (answer, ()) = tokio::join!(test.call("die_first", json!({})), async {
        wait_until("the second start", || test.record().lines().count() == 2).await;
        test.connected.sources.remove(&"s".parse().unwrap());
    });
    assert_eq!(answer, Ok(json!("alive")));
    wait_until("the server ends", || test.record().contains("end")).await;
}

#[tokio::test]
async fn a_call_is_repeated_once_at_most() {
    for tool in ["die", "die_idempotent"] {
        let test = ServerTest::connect().await;
        let err = test.call(tool, json!({})).await.unwrap_err();
        assert_eq!((err.code, err.is_definite), (ErrorCode::UNAVAILABLE, false));
        assert_eq!(test.record().lines().count(), 2);
        assert_eq!(test.call("starts", json!({})).await, Ok(json!(3)));
    }
}

#[tokio::test]
async fn half_an_answer_of_a_dead_server_is_no_answer() {
    let test = ServerTest::connect().await;
    let err = test.call("half_once", json!({})).await.unwrap_err();
    assert_eq!((err.code.clone(), err.is_definite), (ErrorCode::OUTCOME_UNKNOWN, false), "{err}");
    assert_eq!(test.call("starts", json!({})).await, Ok(json!(2)));
}

#[tokio::test]
async fn a_once_call_is_never_repeated() {
    let test = ServerTest::connect().await;
    let err = test.call("die_once", json!({})).await.unwrap_err();
    assert!(!err.is_definite && !err.retryable);
    expect!["tool.outcome_unknown: the MCP server of `s` ended while `s.die_once` was called; it is unknown whether the call took effect, and it may still do so: check before you retry"].assert_eq(&err.to_string());
    assert_eq!(test.call("starts", json!({})).await, Ok(json!(2)));
}

#[tokio::test]
async fn an_output_that_violates_its_schema_fails_the_call() {
    let test = ServerTest::connect().await;
    assert_eq!(test.call("promise", json!({ "n": 1 })).await, Ok(json!({ "n": 1 })));
    let err = test.call("promise", json!({ "n": "str" })).await.unwrap_err();
    expect![[r#"tool.failed: the server's output does not fit the tool's `outputSchema`: at `/n`: "str" is not of type "integer""#]].assert_eq(&err.to_string());
    assert!(
        err.is_definite && !err.retryable,
        "the call had its effect, so it must not be repeated"
    );
}

#[tokio::test]
async fn a_server_that_died_while_idle_is_restarted() {
    let test = ServerTest::connect().await;
    assert_eq!(test.call("quit", json!({})).await, Ok(json!("bye")));
    let pid = test.record().trim().trim_start_matches("start ").to_owned();
    wait_until("the server ends", || !is_running(&pid)).await;
    assert_eq!(test.call("starts", json!({})).await, Ok(json!(2)));
}

#[tokio::test]
async fn a_server_that_dies_repeatedly_is_restarted_with_delays() {
    let test = ServerTest::connect().await;
    // After the server has died four times, Faber delays its fifth start by two seconds, and a call
    // does not wait so long. A later call makes the server die again, and then the delay is four
    // seconds.
    let dying = async {
        loop {
            let err = test.call("die", json!({})).await.unwrap_err();
            if err.message.contains("may be started again in") {
                return err;
            }
        }
    };
    let err = tokio::time::timeout(MAX_WAIT, dying).await.expect("a restart is delayed");
    assert_eq!((err.code.clone(), err.is_definite), (ErrorCode::UNAVAILABLE, true));
    assert!(err.message.contains("exited with status 7"), "{err}");
    let lives = test.record().lines().filter(|line| line.starts_with("start ")).count();
    assert!(lives >= 4, "{lives}");
}

#[tokio::test]
async fn an_output_over_the_limit_fails_its_call_only() {
    let test = ServerTest::connect().await;
    let fits = limits::OUTPUT_BYTES - 2;
    let output = test.call("huge", json!({ "bytes": fits })).await.unwrap();
    assert_eq!(output.as_str().unwrap().len(), fits);
    // The second output is longer than any line that Faber stores in memory.
    for bytes in [fits + 1, 50 << 20] {
        let err = test.call("huge", json!({ "bytes": bytes })).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::OUTPUT_TOO_LARGE, "{bytes}");
    }
    assert_eq!(test.call("starts", json!({})).await, Ok(json!(1)));
}

#[tokio::test]
async fn a_server_that_prints_garbage_stays_usable() {
    let test = ServerTest::connect().await;
    for garbage in ["garbage", "torrent"] {
        assert_eq!(test.call(garbage, json!({})).await, Ok(json!("still here")), "{garbage}");
    }
    let err = test.call("not_mcp", json!({})).await.unwrap_err();
    assert!(err.to_string().contains("not a valid MCP message"), "{err}");
    assert!(!err.is_definite, "the outcome of the call is unknown");
    let kept = json!([7, { "type": "hologram", "depth": 3 }]);
    assert_eq!(test.call("strange", json!({})).await, Ok(kept));
    assert_eq!(test.call("starts", json!({})).await, Ok(json!(1)));
}

#[tokio::test]
async fn errors_of_a_server_keep_their_meaning() {
    let test = ServerTest::connect().await;
    let cases = [
        (-32602, "`a` is missing", "tool.invalid_parameters: `a` is missing"),
        (-32602, "Unknown tool: x", "tool.unavailable: Unknown tool: x"),
        (-32603, "boom", "tool.failed: boom"),
    ];
    for (code, message, expected) in cases {
        let parameters = json!({ "code": code, "message": message });
        let err = test.call("rpc_error", parameters).await.unwrap_err();
        assert_eq!((err.to_string().as_str(), err.is_definite), (expected, true));
    }
}

#[tokio::test]
async fn an_mcp_call_carries_the_idempotency_key() {
    let test = ServerTest::connect().await;
    let cx = second_attempt();
    let key = cx.idempotency_key();
    let meta = test.connected.call_in("meta", json!({}), cx).await.unwrap();
    assert_eq!(meta["faber/idempotencyKey"], json!(key));
}

#[tokio::test]
async fn tools_that_a_server_adds_are_found() {
    let test = ServerTest::connect().await;
    let name = "s.grown".parse().unwrap();
    let toolbox = &test.connected.toolbox;
    assert!(matches!(toolbox.find(&name), ToolLookup::Unknown));
    let mut changes = toolbox.subscribe_changes();
    test.call("grow", json!({})).await.unwrap();
    let found = async {
        while !matches!(toolbox.find(&name), ToolLookup::Tool(_)) {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(MAX_WAIT, found).await.unwrap();
}

#[tokio::test]
async fn a_slow_server_becomes_ready() {
    let test = ServerTest::start_connecting("slow");
    let name = "s.starts".parse().unwrap();
    assert!(matches!(test.connected.toolbox.find(&name), ToolLookup::Connecting));
    assert_eq!(test.connected.status().await, SetStatus::Ready);
    assert_eq!(test.call("starts", json!({})).await, Ok(json!(1)));
}

#[tokio::test]
async fn a_server_that_cannot_start_fails_with_its_error() {
    let broken = ServerTest::connection_error("broken").await;
    expect!["`node` exited with status 3: Error: cannot find the moon"].assert_eq(&broken);
    let circle = ServerTest::connection_error("circle").await;
    expect!["`node` does not serve MCP: its list of tools repeats the page `again`"]
        .assert_eq(&circle);
    let torrent = ServerTest::connection_error("torrent").await;
    expect!["`node` does not serve MCP: the answer is too long"].assert_eq(&torrent);
    // Faber closes the input of the server, which then ends. Faber must report the earlier error,
    // not the end.
    let odd = "`node` does not serve MCP: its answer to `initialize` could not be read: ";
    for mode in ["rubbish", "odd", "stranger"] {
        let error = ServerTest::connection_error(mode).await;
        assert!(error.starts_with(odd), "{mode}: {error}");
    }
    let refusal = ServerTest::connection_error("refusal").await;
    expect!["`node` does not serve MCP: not today"].assert_eq(&refusal);
    let absent = Connected::start_connecting(&json!({ "mcp": { "command": "no-such-server" } }));
    let SetStatus::Failed { error } = absent.status().await else {
        panic!("the toolset has not failed")
    };
    expect!["`no-such-server` was not found: install it, or write its full path"].assert_eq(&error);
    let what_is_no_server = Connected::start_connecting(&json!({ "mcp": { "command": "true" } }));
    let SetStatus::Failed { error } = what_is_no_server.status().await else {
        panic!("the toolset has not failed")
    };
    expect!["`true` exited with status 0"].assert_eq(&error);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_fails_after_30_seconds() {
    for mode in ["mute", "deaf"] {
        let test = ServerTest::start_connecting(mode);
        let name = "s".parse().unwrap();
        let status = test.connected.toolbox.wait_for_set(&name, Duration::from_mins(1)).await;
        let Some(SetStatus::Failed { error }) = status else { panic!("{status:?}") };
        expect!["`node` did not answer as an MCP server within 30 s"].assert_eq(&error);
    }
}

#[tokio::test]
async fn a_failed_toolset_reconnects_on_request() {
    let test = ServerTest::start_connecting("broken");
    assert!(matches!(test.connected.status().await, SetStatus::Failed { .. }));
    assert_eq!(test.record().lines().count(), 1);
    assert!(matches!(test.connected.status().await, SetStatus::Failed { .. }));
    assert_eq!(test.record().lines().count(), 2);
}

#[tokio::test]
async fn mcp_servers_end_with_their_toolset() {
    let test = ServerTest::connect().await;
    let ServerTest { connected, folder } = test;
    connected.sources.close().await;
    let record = fs::read_to_string(folder.path().join("record")).unwrap();
    assert!(record.ends_with("end\n"), "{record}");

    let test = ServerTest::connect().await;
    let pid = test.record().trim().trim_start_matches("start ").to_owned();
    assert!(is_running(&pid));
    drop(test);
    wait_until("the server ends", || !is_running(&pid)).await;
}
