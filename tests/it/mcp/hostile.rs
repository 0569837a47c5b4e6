use std::{fs, time::Duration};

use expect_test::expect;
use serde_json::{Value, json};
use shared::{
    limits,
    tool::{Effect, ErrorCode, ToolError},
};
use tests::toolset::{Connected, PATIENCE, is_running, step, until};
use toolbox::{Found, SetStatus};

pub(super) struct World {
    pub(super) connected: Connected,
    folder: tempfile::TempDir,
}

impl World {
    fn begin(mode: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/mcp/hostile.mjs");
        let record = folder.path().join("record");
        let mcp = json!({ "command": "node", "args": [script, mode, record] });
        Self { connected: Connected::begin(&json!({ "mcp": mcp })), folder }
    }

    pub(super) async fn ready() -> Self {
        let world = Self::begin("normal");
        assert_eq!(world.connected.status().await, SetStatus::Ready);
        world
    }

    pub(super) async fn call(&self, name: &str, parameters: Value) -> Result<Value, ToolError> {
        self.connected.call(name, parameters).await
    }

    async fn failure(mode: &str) -> String {
        match Self::begin(mode).connected.status().await {
            SetStatus::Failed { error } => error,
            other => panic!("{other:?}"),
        }
    }

    fn record(&self) -> String {
        fs::read_to_string(self.folder.path().join("record")).unwrap_or_default()
    }
}

#[tokio::test]
async fn all_pages_of_tools_are_read() {
    let world = World::ready().await;
    assert_eq!(world.connected.toolbox.sets()[0].tools.len(), 23, "one has no name, one no schema");
    let effect = |name: &str| world.connected.tool(name).definition().effect;
    assert_eq!(effect("die"), Effect::Read);
    assert_eq!(effect("die_idempotent"), Effect::Idempotent);
    assert_eq!(effect("die_once"), Effect::Once);
}

#[tokio::test]
async fn a_call_that_is_dropped_or_cancelled_is_announced() {
    let world = World::ready().await;
    let hang = world.call("hang", json!({}));
    assert!(tokio::time::timeout(Duration::from_millis(50), hang).await.is_err());
    assert_eq!(world.call("cancelled", json!({})).await, Ok(json!(1)));

    let world = World::ready().await;
    let cx = step();
    let cancel = cx.cancel.clone();
    let hang = world.connected.call_in("hang", json!({}), cx);
    let (hang, ()) = tokio::join!(hang, async {
        world.call("starts", json!({})).await.unwrap();
        cancel.cancel();
    });
    let err = hang.unwrap_err();
    assert_eq!((err.code, err.is_definite), (ErrorCode::CANCELLED, false));
    assert_eq!(world.call("cancelled", json!({})).await, Ok(json!(1)));
}

#[tokio::test]
async fn a_call_without_effect_is_made_again_when_the_server_dies() {
    let world = World::ready().await;
    assert_eq!(world.call("die_first", json!({})).await, Ok(json!("alive")));
    assert_eq!(world.call("starts", json!({})).await, Ok(json!(2)));
}

#[tokio::test]
async fn a_call_is_made_again_only_once() {
    for tool in ["die", "die_idempotent"] {
        let world = World::ready().await;
        let err = world.call(tool, json!({})).await.unwrap_err();
        assert_eq!((err.code, err.is_definite), (ErrorCode::UNAVAILABLE, false));
        assert_eq!(world.record().lines().count(), 2);
        assert_eq!(world.call("starts", json!({})).await, Ok(json!(3)));
    }
}

#[tokio::test]
async fn a_server_that_dies_in_the_middle_of_its_answer_has_not_answered() {
    let world = World::ready().await;
    let err = world.call("half_once", json!({})).await.unwrap_err();
    assert_eq!((err.code.clone(), err.is_definite), (ErrorCode::OUTCOME_UNKNOWN, false), "{err}");
    assert_eq!(world.call("starts", json!({})).await, Ok(json!(2)));
}

#[tokio::test]
async fn a_call_with_an_effect_is_never_made_again() {
    let world = World::ready().await;
    let err = world.call("die_once", json!({})).await.unwrap_err();
    assert!(!err.is_definite && !err.retryable);
    expect!["tool.outcome_unknown: the MCP server of `s` ended while `s.die_once` was called; whether the call took effect is unknown, it may yet happen: look before you retry"].assert_eq(&err.to_string());
    assert_eq!(world.call("starts", json!({})).await, Ok(json!(2)));
}

#[tokio::test]
async fn an_output_is_what_its_schema_promises() {
    let world = World::ready().await;
    assert_eq!(world.call("promise", json!({ "n": 1 })).await, Ok(json!({ "n": 1 })));
    let err = world.call("promise", json!({ "n": "str" })).await.unwrap_err();
    expect![[r#"tool.failed: the server's output does not fit the tool's `outputSchema`: at `/n`: "str" is not of type "integer""#]].assert_eq(&err.to_string());
    assert!(err.is_definite && !err.retryable, "it was done, and once more is once too often");
}

#[tokio::test]
async fn a_server_that_died_idle_is_started_again() {
    let world = World::ready().await;
    assert_eq!(world.call("quit", json!({})).await, Ok(json!("bye")));
    let pid = world.record().trim().trim_start_matches("start ").to_owned();
    until("the server ends", || !is_running(&pid)).await;
    assert_eq!(world.call("starts", json!({})).await, Ok(json!(2)));
}

#[tokio::test]
async fn a_server_that_dies_again_and_again_is_put_off() {
    let world = World::ready().await;
    // Behind four short lives the fifth begins in two seconds, which is too long to wait for;
    // whoever asks too late for that has it die once more, and then it is in four.
    let dying = async {
        loop {
            let err = world.call("die", json!({})).await.unwrap_err();
            if err.message.contains("may be started again in") {
                return err;
            }
        }
    };
    let err = tokio::time::timeout(PATIENCE, dying).await.expect("it is put off");
    assert_eq!((err.code.clone(), err.is_definite), (ErrorCode::UNAVAILABLE, true));
    assert!(err.message.contains("exited with status 7"), "{err}");
    let lives = world.record().lines().filter(|it| it.starts_with("start ")).count();
    assert!(lives >= 4, "{lives}");
}

#[tokio::test]
async fn outputs_have_a_limit() {
    let world = World::ready().await;
    let fits = limits::OUTPUT_BYTES - 2;
    let output = world.call("huge", json!({ "bytes": fits })).await.unwrap();
    assert_eq!(output.as_str().unwrap().len(), fits);
    // The second is longer than any line that is kept.
    for bytes in [fits + 1, 50 << 20] {
        let err = world.call("huge", json!({ "bytes": bytes })).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::OUTPUT_TOO_LARGE, "{bytes}");
    }
    assert_eq!(world.call("starts", json!({})).await, Ok(json!(1)));
}

#[tokio::test]
async fn garbage_is_survived() {
    let world = World::ready().await;
    for garbage in ["garbage", "torrent"] {
        assert_eq!(world.call(garbage, json!({})).await, Ok(json!("still here")), "{garbage}");
    }
    let err = world.call("not_mcp", json!({})).await.unwrap_err();
    assert!(err.to_string().contains("not MCP"), "{err}");
    assert!(!err.is_definite, "it was called, and nobody knows what came of it");
    let kept = json!([7, { "type": "hologram", "depth": 3 }]);
    assert_eq!(world.call("strange", json!({})).await, Ok(kept));
    assert_eq!(world.call("starts", json!({})).await, Ok(json!(1)));
}

#[tokio::test]
async fn errors_keep_their_meaning() {
    let world = World::ready().await;
    let cases = [
        (-32602, "`a` is missing", "tool.invalid_parameters: `a` is missing"),
        (-32602, "Unknown tool: x", "tool.unavailable: Unknown tool: x"),
        (-32603, "boom", "tool.failed: boom"),
    ];
    for (code, message, expected) in cases {
        let parameters = json!({ "code": code, "message": message });
        let err = world.call("rpc_error", parameters).await.unwrap_err();
        assert_eq!((err.to_string().as_str(), err.is_definite), (expected, true));
    }
}

#[tokio::test]
async fn the_server_gets_the_idempotency_key() {
    let world = World::ready().await;
    let cx = step();
    let key = cx.idempotency_key();
    let meta = world.connected.call_in("meta", json!({}), cx).await.unwrap();
    assert_eq!(meta["faber/idempotencyKey"], json!(key));
}

#[tokio::test]
async fn new_tools_are_found() {
    let world = World::ready().await;
    let name = "s.grown".parse().unwrap();
    let toolbox = &world.connected.toolbox;
    assert!(matches!(toolbox.find(&name), Found::Unknown));
    let mut changes = toolbox.subscribe_changes();
    world.call("grow", json!({})).await.unwrap();
    let found = async {
        while !matches!(toolbox.find(&name), Found::Tool(_)) {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap();
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    let world = World::begin("slow");
    let name = "s.starts".parse().unwrap();
    assert!(matches!(world.connected.toolbox.find(&name), Found::Connecting));
    assert_eq!(world.connected.status().await, SetStatus::Ready);
    assert_eq!(world.call("starts", json!({})).await, Ok(json!(1)));
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let broken = World::failure("broken").await;
    expect!["`node` exited with status 3: Error: cannot find the moon"].assert_eq(&broken);
    let circle = World::failure("circle").await;
    expect!["`node` does not serve MCP: its list of tools repeats the page `again`"]
        .assert_eq(&circle);
    let torrent = World::failure("torrent").await;
    expect!["`node` does not serve MCP: the answer is too long"].assert_eq(&torrent);
    // It ends when it is let go of, which is not what is wrong with it.
    let odd = "`node` does not serve MCP: its answer to `initialize` could not be read: ";
    for mode in ["rubbish", "odd", "stranger"] {
        let error = World::failure(mode).await;
        assert!(error.starts_with(odd), "{mode}: {error}");
    }
    let refusal = World::failure("refusal").await;
    expect!["`node` does not serve MCP: not today"].assert_eq(&refusal);
    let absent = Connected::begin(&json!({ "mcp": { "command": "no-such-server" } }));
    let SetStatus::Failed { error } = absent.status().await else { panic!("it has failed") };
    expect!["`no-such-server` was not found: install it, or write its full path"].assert_eq(&error);
    let what_is_no_server = Connected::begin(&json!({ "mcp": { "command": "true" } }));
    let SetStatus::Failed { error } = what_is_no_server.status().await else {
        panic!("it has failed")
    };
    expect!["`true` exited with status 0"].assert_eq(&error);
}

#[tokio::test(start_paused = true)]
async fn a_mute_server_is_given_up() {
    for mode in ["mute", "deaf"] {
        let world = World::begin(mode);
        let name = "s".parse().unwrap();
        let status = world.connected.toolbox.wait_for_set(&name, Duration::from_mins(1)).await;
        let Some(SetStatus::Failed { error }) = status else { panic!("{status:?}") };
        expect!["`node` did not answer as an MCP server within 30 s"].assert_eq(&error);
    }
}

#[tokio::test]
async fn a_failed_set_is_connected_again_when_wanted() {
    let world = World::begin("broken");
    assert!(matches!(world.connected.status().await, SetStatus::Failed { .. }));
    assert_eq!(world.record().lines().count(), 1);
    assert!(matches!(world.connected.status().await, SetStatus::Failed { .. }));
    assert_eq!(world.record().lines().count(), 2);
}

#[tokio::test]
async fn servers_end_with_their_owner() {
    let world = World::ready().await;
    let World { connected, folder } = world;
    connected.sources.close().await;
    let record = fs::read_to_string(folder.path().join("record")).unwrap();
    assert!(record.ends_with("end\n"), "{record}");

    let world = World::ready().await;
    let pid = world.record().trim().trim_start_matches("start ").to_owned();
    assert!(is_running(&pid));
    drop(world);
    until("the server ends", || !is_running(&pid)).await;
}
