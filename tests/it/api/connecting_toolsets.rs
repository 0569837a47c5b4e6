//! The lookup of a tool's name waits for the connecting toolsets that may contain the tool, and
//! never returns a tool of another set.

use std::{sync::Arc, time::Duration};

use engine::{Order, embedded::Embedded};
use executor::options::Options;
use serde_json::{Value, json};
use shared::{
    execution::ExecutionState,
    store::{Store, memory::Memory},
    tool::{Effect, ToolError},
};
use tokio::time::Instant;
use toolbox::{SetStatus, ToolContext, ToolSet, function};

fn toolset(name: &'static str, tool: &'static str) -> ToolSet {
    let run = move |_: Value, _: ToolContext| async move { Ok::<_, ToolError>(name) };
    let tool = function(name, tool, "Says where it is.", Effect::Read, run);
    ToolSet::ready(name.parse().unwrap(), "local", "d", [tool])
}

fn connecting_toolset(name: &str) -> ToolSet {
    let set = ToolSet::ready(name.parse().unwrap(), "mcp", "d", []);
    ToolSet { status: SetStatus::Connecting, ..set }
}

async fn open_embedded(store: &Arc<Memory>, sets: Vec<ToolSet>) -> Embedded {
    let store = Arc::clone(store) as Arc<dyn Store>;
    Embedded::open_over(store, sets, Options::default()).await.unwrap()
}

#[tokio::test]
async fn a_stored_plan_waits_for_its_own_toolset_and_calls_no_tool_with_a_similar_name() {
    let store = Arc::new(Memory::new());
    let before = open_embedded(&store, vec![toolset("m2", "m.b"), toolset("m", "b")]).await;
    let plan = before.plan(json!({ "tools": [{ "id": "x", "name": "m.b" }] })).await.unwrap();
    before.close().await;
    let after = open_embedded(&store, vec![toolset("m2", "m.b"), connecting_toolset("m")]).await;
    let id = after.engine().executions.start_plan(plan.id(), Order::default()).await.unwrap();
    let started = after.engine().executions.reader.load(id).await.unwrap().unwrap();
    assert_eq!(started.state(), ExecutionState::Pending);
    after.engine().tools.inventory.toolbox().put_set(toolset("m", "b"));
    let ended = after.ended(id).await.unwrap();
    assert_eq!(ended.outputs(), json!({ "x": "m" }));
    after.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_name_waits_only_for_toolsets_that_may_contain_it() {
    let faber = open_embedded(
        &Arc::new(Memory::new()),
        vec![toolset("m", "b"), connecting_toolset("mute")],
    )
    .await;
    let connect_timeout = Options::default().connect;
    let (engine, began) = (faber.engine(), Instant::now());
    for name in ["flow.echo", "m.b", "b", "m.nothing"] {
        let _ = faber.plan(json!({ "tools": [{ "name": name }] })).await;
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let began = Instant::now();
    faber.plan(json!({ "tools": [{ "name": "mute.x" }] })).await.unwrap_err();
    assert!(began.elapsed() >= connect_timeout, "the name waits for sets that still connect");
    // A list of all tools waits until each set has connected or failed, but not longer than
    // `connect_timeout`.
    let began = Instant::now();
    engine.tools.tool_schemas(&[]).await;
    assert!(began.elapsed() >= connect_timeout);
    let failed = SetStatus::Failed { error: "mute".to_owned() };
    engine.tools.inventory.toolbox().update_set(&"mute".parse().unwrap(), failed, Vec::new());
    let began = Instant::now();
    engine.tools.tool_schemas(&[]).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    faber.close().await;
}
