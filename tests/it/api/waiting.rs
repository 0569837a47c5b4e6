//! What is waited for, and what nobody else's tool is called in place of.

use std::{sync::Arc, time::Duration};

use executor::options::Options;
use graphql::{embedded::Embedded, engine::Order};
use serde_json::{Value, json};
use shared::{
    execution::ExecutionState,
    store::{Store, memory::Memory},
    tool::{Effect, ToolError},
};
use tokio::time::Instant;
use toolbox::{SetStatus, ToolContext, ToolSet, function};

/// A set with one tool, which says which set it is of.
fn set(name: &'static str, tool: &'static str) -> ToolSet {
    let run = move |_: Value, _: ToolContext| async move { Ok::<_, ToolError>(name) };
    let tool = function(name, tool, "Says where it is.", Effect::Read, run);
    ToolSet::ready(name.parse().unwrap(), "local", "d", [tool])
}

/// A set that is not there yet.
fn connecting(name: &str) -> ToolSet {
    let set = ToolSet::ready(name.parse().unwrap(), "mcp", "d", []);
    ToolSet { status: SetStatus::Connecting, ..set }
}

async fn over(store: &Arc<Memory>, sets: Vec<ToolSet>) -> Embedded {
    let store = Arc::clone(store) as Arc<dyn Store>;
    Embedded::over(store, sets, Options::default()).await.unwrap()
}

#[tokio::test]
async fn a_plan_waits_for_its_own_set_however_another_s_tool_is_called() {
    let store = Arc::new(Memory::new());
    let before = over(&store, vec![set("m2", "m.b"), set("m", "b")]).await;
    let plan = before.plan(json!({ "tools": [{ "id": "x", "name": "m.b" }] })).await.unwrap();
    before.close().await;
    let after = over(&store, vec![set("m2", "m.b"), connecting("m")]).await;
    let id = after.engine().executions.start_plan(plan.id(), Order::default()).await.unwrap();
    let begun = after.engine().executions.reader.load(id).await.unwrap().unwrap();
    assert_eq!(begun.state(), ExecutionState::Pending);
    after.engine().tools.inventory.toolbox().put(set("m", "b"));
    let ended = after.ended(id).await.unwrap();
    assert_eq!(ended.outputs(), json!({ "x": "m" }));
    after.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_waits_for_the_sets_that_may_have_it_and_for_no_others() {
    let faber = over(&Arc::new(Memory::new()), vec![set("m", "b"), connecting("mute")]).await;
    let most = Options::default().connect;
    let (engine, began) = (faber.engine(), Instant::now());
    for name in ["flow.echo", "m.b", "b", "m.nothing"] {
        let _ = faber.plan(json!({ "tools": [{ "name": name }] })).await;
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let began = Instant::now();
    faber.plan(json!({ "tools": [{ "name": "mute.x" }] })).await.unwrap_err();
    assert!(began.elapsed() >= most, "it may be there yet");
    // What needs every tool waits for the first answer of each set, and no longer.
    let began = Instant::now();
    engine.tools.tool_schemas(&[]).await;
    assert!(began.elapsed() >= most);
    let failed = SetStatus::Failed { error: "mute".to_owned() };
    engine.tools.inventory.toolbox().settle(&"mute".parse().unwrap(), failed, Vec::new());
    let began = Instant::now();
    engine.tools.tool_schemas(&[]).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    faber.close().await;
}
