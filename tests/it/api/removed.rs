//! What is old is removed while people go on asking.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    store::{Store, memory::Memory},
};
use tests::faulty::{Dice, Faulty, Malice};
use tokio::{sync::oneshot, time};

use super::world::{Role, World, text, worlds};

async fn prune(store: &dyn Store) {
    let later = WallClock.now() + TimeDelta::hours(1);
    while store.prune(later, 100).await.unwrap().more {}
}

#[tokio::test]
async fn what_is_over_is_removed_by_asking() {
    for world in worlds().await {
        let prune = "mutation ($age: String!) {
            prune(olderThan: $age) { executions plans requests more } }";
        let mut gone = Vec::new();
        for _ in 0..3 {
            let id = world.start(json!([{ "name": "flow.noop" }]), json!({})).await;
            world.events(&id).await;
            gone.push(id);
        }
        let waits = json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }]);
        let stays = world.start(waits, json!({})).await;
        world.until(&stays, "w", "WAITING").await;
        let nothing = json!({ "executions": 0, "plans": 0, "requests": 0, "more": false });
        assert_eq!(world.get(prune, json!({ "age": "1h" })).await, nothing);
        let removed = json!({ "executions": 3, "plans": 3, "requests": 3, "more": false });
        assert_eq!(world.get(prune, json!({ "age": "0s" })).await, removed);
        for id in gone {
            assert_eq!(world.execution(&id, "state").await, Value::Null);
        }
        assert_eq!(world.execution(&stays, "state").await["state"], "WAITING");
        let refused = world.refused(prune, json!({ "age": "soon" })).await;
        assert_eq!(refused["code"], "INVALID_ARGUMENT");
    }
}

/// In real time: what loads things together waits in a thread of its own, which paused time outruns.
#[tokio::test]
async fn an_execution_that_is_removed_while_it_is_read_is_whole_or_not_there() {
    let (mut gone, mut whole) = (0, 0);
    for seed in 0..40 {
        let memory: Arc<dyn Store> = Arc::new(Memory::new());
        let world = World::over(&memory, Role::Works, None);
        let id = world.start(json!([{ "name": "flow.noop" }]), json!({})).await;
        world.events(&id).await;
        drop(world);
        let malice = Malice {
            fails_before: 0,
            fails_after: 0,
            forgets: 0,
            stalls: 1_000,
            stall: Duration::from_millis(4),
        };
        let slow = Faulty::new(Arc::clone(&memory), Dice::new(seed), malice);
        let mut asked = slow.asked();
        let slow: Arc<dyn Store> = Arc::new(slow);
        let asking = World::over(&slow, Role::Asks, None);
        let (answered, is_answered) = oneshot::channel::<()>();
        let reading = async {
            let found = asking.execution(&id, "state successful").await;
            drop(answered);
            found
        };
        // Before an operation of the reader, each in its turn; where it has fewer, behind them all.
        let removing = async {
            tokio::select! {
                _ = asked.wait_for(|count| *count > seed % 8) => (),
                _ = is_answered => (),
            }
            prune(&*memory).await;
        };
        let (found, ()) = tokio::join!(reading, removing);
        match found {
            Value::Null => gone += 1,
            found => {
                assert_eq!(found, json!({ "state": "COMPLETED", "successful": 1 }));
                whole += 1;
            }
        }
    }
    assert!(gone > 0 && whole > 0, "{gone} gone, {whole} whole");
}

#[tokio::test]
async fn a_version_follows_the_newest_when_older_ones_are_removed() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let world = World::over(&memory, Role::Asks, None);
    let tools = json!([{ "name": "flow.noop" }]);
    let query = "mutation ($id: ID!, $input: PlanInput!) {
        revisePlan(planId: $id, input: $input) { plan { planId version } } }";
    let mut plan = world.plan(tools.clone()).await;
    for version in 2..=4 {
        let input = json!({ "tools": tools });
        let revised = world.get(query, json!({ "id": plan, "input": input })).await;
        assert_eq!(revised["plan"]["version"], version);
        plan = text(&revised["plan"]["planId"]);
        // It is used, so it stays; those before it go.
        let execute = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
        world.get(execute, json!({ "id": plan })).await;
        prune(&*memory).await;
    }
    let query = "query ($id: ID!) { plan(planId: $id) { request { plans { version } } } }";
    let left = world.get(query, json!({ "id": plan })).await;
    assert_eq!(
        left["request"]["plans"],
        json!([2, 3, 4].map(|version| json!({ "version": version })))
    );
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_was_removed_is_executed_for_a_minute_at_most() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let world = World::over(&memory, Role::Asks, None);
    let plan = world.plan(json!([{ "name": "flow.noop" }])).await;
    let execute = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
    prune(&*memory).await;
    time::advance(Duration::from_secs(61)).await;
    let refused = world.refused(execute, json!({ "id": plan })).await;
    assert_eq!(refused["code"], "NOT_FOUND");
}
