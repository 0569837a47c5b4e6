//! Subscriptions miss no event and repeat none.

use futures::StreamExt;
use serde_json::{Value, json};

use super::test_api::{apis_without_server, collect_all, next_item, texts_of_field, two_processes};

fn retrying_steps() -> Value {
    json!([
        { "name": "flow.echo", "id": "a", "parameters": { "x": 1 } },
        { "name": "flow.fail", "id": "b", "parameters": { "message": "m", "times": 1, "retryable": true },
          "retry": { "maxAttempts": 2, "backoffMs": 1 }, "dependsOn": "a" },
        { "name": "flow.echo", "id": "c", "parameters": { "y": "{{a.x}}" }, "dependsOn": "b" },
    ])
}

#[tokio::test]
async fn a_subscription_can_start_after_every_event() {
    for api in apis_without_server().await {
        let id = api.start(retrying_steps(), json!({})).await;
        let live = api.events(&id).await;
        let kinds = texts_of_field(&live, "type");
        assert!(kinds.contains(&"step_retry_scheduled".to_owned()), "{kinds:?}");
        for after in 0..=live.len() {
            let behind = api.events_after(&id, after as u64).await;
            assert_eq!(behind, live[after..], "behind {after}");
        }
        assert_eq!(api.events_after(&id, 1_000_000).await, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn a_subscriber_that_reconnects_gets_every_event_once() {
    let [asking, _working] = two_processes().await;
    let id = asking.start(retrying_steps(), json!({})).await;
    let query = "subscription ($id: ID!, $after: Int) {
        executionEvents(executionId: $id, afterSeq: $after) { seq type } }";
    let (mut seen, mut is_over) = (Vec::new(), false);
    while !is_over {
        // The client disconnects after each event, and subscribes again after the last event that
        // it got.
        let after = seen.len();
        let mut events = asking.subscribe(query, json!({ "id": id, "after": after }));
        let event = next_item(&mut events).await;
        is_over = event["type"] == "finished";
        seen.push(event["seq"].as_u64());
    }
    let counted: Vec<_> = (1..=seen.len() as u64).map(Some).collect();
    assert_eq!(seen, counted);
}

#[tokio::test]
async fn execution_status_is_sent_at_every_change() {
    for api in apis_without_server().await {
        let wait = json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }]);
        let id = api.start(wait, json!({})).await;
        let query = "subscription ($id: ID!) { executionStatus(executionId: $id) {
            state seq steps { state } successful } }";
        let mut states = api.subscribe(query, json!({ "id": id }));
        api.wait_for_step(&id, "w", "WAITING").await;
        let signal = "mutation ($id: ID!) {
            signalExecution(executionId: $id, name: \"go\", payload: { n: 1 }) { executionId } }";
        api.get(signal, json!({ "id": id })).await;
        let mut received = vec![next_item(&mut states).await];
        received.extend(collect_all(states).await);
        let seqs: Vec<_> = received.iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert!(seqs.is_sorted_by(|a, b| a < b), "{received:#?}");
        let last = received.last().unwrap();
        assert_eq!((&last["state"], &last["successful"]), (&json!("COMPLETED"), &json!(1)));
        // A subscription to a finished execution sends the status once and ends.
        let again = collect_all(api.subscribe(query, json!({ "id": id }))).await;
        assert_eq!(again, received[received.len() - 1..]);
    }
}

#[tokio::test]
async fn execution_status_sends_every_state_of_fast_changes() {
    for api in apis_without_server().await {
        let id = api
            .start(
                json!([
                    { "name": "flow.wait", "id": "w", "parameters": { "name": "go" } },
                    { "name": "flow.noop", "id": "a", "dependsOn": "w" },
                    { "name": "flow.noop", "id": "b", "dependsOn": "a" },
                    { "name": "flow.echo", "id": "c", "dependsOn": "b", "forEach": "{{list.all}}" },
                    { "name": "flow.echo", "id": "list", "parameters": { "all": [1, 2, 3] } },
                ]),
                json!({}),
            )
            .await;
        api.wait_for_step(&id, "w", "WAITING").await;
        let query = "subscription ($id: ID!) { executionStatus(executionId: $id) {
            state seq steps { stepId state } } }";
        let mut states = api.subscribe(query, json!({ "id": id }));
        let first = next_item(&mut states).await["seq"].as_u64().unwrap();
        let signal = "mutation ($id: ID!) {
            signalExecution(executionId: $id, name: \"go\") { executionId } }";
        api.get(signal, json!({ "id": id })).await;
        let received = collect_all(states).await;
        let seqs: Vec<_> = received.iter().filter_map(|event| event["seq"].as_u64()).collect();
        let events = api.events_after(&id, first).await;
        let changes = events
            .iter()
            .filter(|event| event["stepId"].is_string() || event["type"] == "finished");
        let changes: Vec<_> = changes.filter_map(|event| event["seq"].as_u64()).collect();
        assert!(
            changes.len() > 10 && changes.iter().all(|seq| seqs.contains(seq)),
            "{seqs:?} {events:#?}"
        );
        assert!(
            received.iter().any(|status| status["steps"][1]["state"] == "RUNNING"),
            "{received:#?}"
        );
    }
}

#[tokio::test]
async fn request_events_include_later_executions_of_the_request() {
    for api in apis_without_server().await {
        let draft = json!({ "tools": [{ "name": "flow.noop" }] }).to_string();
        let run =
            "mutation ($query: String!) { run(query: $query) { executionId requestId planId } }";
        let started = api.get(run, json!({ "query": draft })).await;
        let query = "subscription ($id: ID!) { requestEvents(requestId: $id) {
            requestId planId executionId type seq data at } }";
        let mut events = api.subscribe(query, json!({ "id": started["requestId"] }));
        let mut kinds = Vec::new();
        while kinds.last().is_none_or(|kind| kind != "finished") {
            let event = next_item(&mut events).await;
            assert_eq!(event["requestId"], started["requestId"]);
            if event["seq"].is_number() {
                assert_eq!(event["executionId"], started["executionId"]);
                assert_eq!(event["planId"], started["planId"]);
            }
            kinds.push(event["type"].as_str().unwrap().to_owned());
        }
        let planning = ["transcript", "transcript", "transcript", "plan_created", "transcript"];
        let planned: Vec<_> =
            kinds.iter().filter(|kind| planning.contains(&kind.as_str())).collect();
        assert_eq!(planned.len(), planning.len(), "{kinds:?}");
        let later = "mutation ($id: ID!) { executeByRequestId(requestId: $id) { executionId } }";
        let later = api.get(later, json!({ "id": started["requestId"] })).await;
        let rest = events.by_ref().take_while(|event| {
            let is_last = event["type"] == "finished";
            async move { !is_last }
        });
        let rest = collect_all(rest).await;
        assert_eq!(rest[0]["type"], "created");
        assert!(rest.iter().all(|event| event["executionId"] == later["executionId"]), "{rest:#?}");
    }
}
