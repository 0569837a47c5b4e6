//! Tests of pruning and retention: which data is removed, and what clients get during and after the
//! removal.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use engine::retention::{Retention, RetentionAges};
use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp, WallClock},
    store::{PlanFilter, Store, memory::Memory},
};
use tests::{
    faulty::{Dice, FaultRates, FaultyStore},
    toolset::MAX_WAIT,
};
use tokio::{sync::oneshot, time};

use super::test_api::{ProcessRole, TestApi, apis_without_server, json_to_text};

async fn prune_all(store: &dyn Store) {
    let later = WallClock.now() + TimeDelta::hours(1);
    while store.prune(later, 100).await.unwrap().more {}
}

#[tokio::test]
async fn prune_removes_finished_executions_and_keeps_waiting_ones() {
    for api in apis_without_server().await {
        let prune = "mutation ($age: String!) {
            prune(olderThan: $age) { executions plans requests more } }";
        let mut gone = Vec::new();
        for _ in 0..3 {
            let id = api.start(json!([{ "name": "flow.noop" }]), json!({})).await;
            api.events(&id).await;
            gone.push(id);
        }
        let waits = json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }]);
        let stays = api.start(waits, json!({})).await;
        api.wait_for_step(&stays, "w", "WAITING").await;
        let nothing = json!({ "executions": 0, "plans": 0, "requests": 0, "more": false });
        assert_eq!(api.get(prune, json!({ "age": "1h" })).await, nothing);
        let removed = json!({ "executions": 3, "plans": 3, "requests": 3, "more": false });
        assert_eq!(api.get(prune, json!({ "age": "0s" })).await, removed);
        for id in gone {
            assert_eq!(api.execution(&id, "state").await, Value::Null);
        }
        assert_eq!(api.execution(&stays, "state").await["state"], "WAITING");
        let refused = api.expect_error(prune, json!({ "age": "soon" })).await;
        assert_eq!(refused["code"], "INVALID_ARGUMENT");
    }
}

#[derive(Debug)]
struct OneDayLater;

impl Clock for OneDayLater {
    fn now(&self) -> Timestamp {
        WallClock.now() + TimeDelta::days(1)
    }
}

#[tokio::test]
async fn retention_keeps_each_state_for_its_age() {
    for api in apis_without_server().await {
        let echo = api.plan(json!([{ "name": "flow.echo", "parameters": {} }])).await;
        let done = api.start(json!([{ "id": "sub", "plan": echo }]), json!({})).await;
        api.events(&done).await;
        let fails = json!([{ "name": "flow.fail", "parameters": { "message": "no" } }]);
        let failed = api.start(fails, json!({})).await;
        api.events(&failed).await;
        let waits = json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }]);
        let waiting = api.start(waits, json!({})).await;
        api.wait_for_step(&waiting, "w", "WAITING").await;
        let (hour, days) = (Duration::from_hours(1), Duration::from_hours(48));
        let ages = RetentionAges { completed: Some(hour), failed: Some(days), cancelled: None };
        let store = Arc::clone(api.engine.store());
        let kept_plans = store.count_plans(&PlanFilter::default()).await.unwrap() - 2;
        let retention = Retention::default();
        let is_counted = || {
            let figures = retention.format_metrics();
            figures.contains("faber_pruned_total{kind=\"execution\"} 2")
        };
        // Counts plans in place of reading them, because a store may return a removed plan from its
        // cache for a minute.
        let is_removed = async || {
            is_counted() && store.count_plans(&PlanFilter::default()).await.unwrap() == kept_plans
        };
        // Plans are removed after their executions, and sub-plans after the plans that contain
        // them. So more than one round is needed, and a new start avoids the pause between them.
        let removed = async {
            while !is_removed().await {
                let rounds =
                    retention.prune_forever(Arc::clone(&store), Arc::new(OneDayLater), ages);
                let _ = time::timeout(Duration::from_millis(200), rounds).await;
            }
        };
        time::timeout(MAX_WAIT, removed).await.unwrap();
        for (id, state) in
            [(&done, Value::Null), (&failed, json!("FAILED")), (&waiting, json!("WAITING"))]
        {
            assert_eq!(api.execution(id, "state").await["state"], state);
        }
    }
}

/// Uses real time, because data loaders answer from another thread, and with paused time the time
/// limits expire before the answer.
#[tokio::test]
async fn an_execution_removed_during_a_read_is_complete_or_missing() {
    let (mut gone, mut whole) = (0, 0);
    for seed in 0..40 {
        let memory: Arc<dyn Store> = Arc::new(Memory::new());
        let api = TestApi::over(&memory, ProcessRole::ApiAndWorker, None);
        let id = api.start(json!([{ "name": "flow.noop" }]), json!({})).await;
        api.events(&id).await;
        drop(api);
        let rates = FaultRates {
            failures_before: 0,
            failures_after: 0,
            failures_before_inbox: 0,
            stalls: 1_000,
            max_stall: Duration::from_millis(4),
        };
        let slow = FaultyStore::new(Arc::clone(&memory), Dice::new(seed), rates);
        let mut operations = slow.operations();
        let slow: Arc<dyn Store> = Arc::new(slow);
        let asking = TestApi::over(&slow, ProcessRole::ApiOnly, None);
        let (answered, is_answered) = oneshot::channel::<()>();
        let reading = async {
            let found = asking.execution(&id, "state successful").await;
            drop(answered);
            found
        };
        // The execution is removed before a certain operation of the reader, which the seed
        // chooses, or after all its operations.
        let removing = async {
            tokio::select! {
                _ = operations.wait_for(|count| *count > seed % 8) => (),
                _ = is_answered => (),
            }
            prune_all(&*memory).await;
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
async fn the_next_version_follows_the_newest_plan_after_pruning() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let api = TestApi::over(&memory, ProcessRole::ApiOnly, None);
    let tools = json!([{ "name": "flow.noop" }]);
    let query = "mutation ($id: ID!, $input: PlanInput!) {
        revisePlan(planId: $id, input: $input) { plan { planId version } } }";
    let mut plan = api.plan(tools.clone()).await;
    for version in 2..=4 {
        let input = json!({ "tools": tools });
        let revised = api.get(query, json!({ "id": plan, "input": input })).await;
        assert_eq!(revised["plan"]["version"], version);
        plan = json_to_text(&revised["plan"]["planId"]);
        // The first plan has no execution, so it is removed. This plan stays, because an execution
        // uses it.
        let execute = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
        api.get(execute, json!({ "id": plan })).await;
        prune_all(&*memory).await;
    }
    let query = "query ($id: ID!) { plan(planId: $id) { request { plans { version } } } }";
    let left = api.get(query, json!({ "id": plan })).await;
    assert_eq!(
        left["request"]["plans"],
        json!([2, 3, 4].map(|version| json!({ "version": version })))
    );
}

#[tokio::test(start_paused = true)]
async fn a_removed_plan_cannot_be_executed_after_a_minute() {
    let memory: Arc<dyn Store> = Arc::new(Memory::new());
    let api = TestApi::over(&memory, ProcessRole::ApiOnly, None);
    let plan = api.plan(json!([{ "name": "flow.noop" }])).await;
    let execute = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
    prune_all(&*memory).await;
    time::advance(Duration::from_secs(61)).await;
    let refused = api.expect_error(execute, json!({ "id": plan })).await;
    assert_eq!(refused["code"], "NOT_FOUND");
}
