//! One process without a server carries a plan in a plan out to its end, and another one goes on
//! where it was killed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shared::store::ExecutionHead;
use tempfile::TempDir;

use super::world::World;
use crate::mongod::Mongod;

/// A plan that executes another one twice, which executes yet another one.
fn plan(seconds: f64) -> Value {
    let youngest = json!({ "tools": [
        { "id": "x", "name": "flow.echo", "parameters": { "n": "{{input.n}}" } },
    ] });
    let middle = json!({ "tools": [
        { "id": "own", "name": "ledger.read",
          "parameters": { "n": "{{input.n}}", "seconds": seconds } },
        { "id": "sub", "plan": youngest, "parameters": { "n": "{{own.n}}" } },
    ] });
    json!({ "tools": [
        { "id": "list", "name": "flow.echo", "parameters": { "all": [1, 2] } },
        { "id": "each", "forEach": "{{list.all}}", "plan": middle,
          "parameters": { "n": "{{item}}" } },
        { "id": "last", "name": "flow.echo", "parameters": { "all": "{{each}}" } },
    ] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_alone_carries_families_out() {
    let folder = tempfile::tempdir().unwrap();
    let (file, set) = (sqlite(&folder).await, World::new(&json!({})).await);
    tokio::join!(runs_to_the_end(&file), runs_to_the_end(&set));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_alone_goes_on_where_another_one_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let url = Mongod::shared().await.fresh_url();
    let (file, set) = (sqlite(&folder).await, World::over(url, &json!({})).await);
    tokio::join!(goes_on(&file), goes_on(&set));
}

async fn sqlite(folder: &TempDir) -> World {
    let url = format!("sqlite:{}", folder.path().join("faber.db").display());
    World::over(url, &json!({})).await
}

async fn runs_to_the_end(world: &World) {
    write(world, 0.0);
    let status = world.home.begin(&["run", "--plan", "plan.json"]).end().await;
    assert!(status.success(), "{status}");
    assert_whole(world).await;
}

async fn goes_on(world: &World) {
    write(world, 3.0);
    let first = world.home.begin(&["run", "--plan", "plan.json"]);
    world.until_said("a child is about", |said| said.iter().any(|mark| mark.begins)).await;
    first.kill().await;
    let parent = root(world).await.execution.to_string();
    let status = world.home.begin(&["execute", &parent]).end().await;
    assert!(status.success(), "{status}");
    assert_whole(world).await;
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for mark in world.home.ledger().into_iter().filter(|mark| mark.begins) {
        *calls.entry(mark.key).or_default() += 1;
    }
    assert!(calls.values().any(|count| *count > 1), "it was killed too late: {calls:?}");
}

fn write(world: &World, seconds: f64) {
    std::fs::write(world.home.path("plan.json"), plan(seconds).to_string()).unwrap();
}

async fn root(world: &World) -> ExecutionHead {
    let heads = world.heads().await;
    heads.into_iter().find(|head| head.parent.is_none()).expect("there is one")
}

/// Nobody else will: when the process has ended, everything is over.
async fn assert_whole(world: &World) {
    world.all_completed(5).await;
    let all = json!([1, 2].map(|n| json!({ "own": { "n": n }, "sub": { "x": { "n": n } } })));
    let outputs = world.replay(&root(world).await).await.outputs();
    assert_eq!(outputs["last"], json!({ "all": all }));
}
