use std::{sync::Arc, time::Instant};

use async_graphql::{Request, Variables};
use engine::access::{Access, Role, Token};
use graphql::schema::ClientGone;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    id::CommandId,
    limits,
    store::{Command, SentCommand, Store, memory::Memory},
};
use tests::toolset::MAX_WAIT;
use tokio::time::timeout;

use super::test_api::{ProcessRole, TestApi, api, apis_without_server, json_to_text};

const BULK_MUTATION: &str =
    "mutation ($filter: ExecutionFilter!, $action: BulkAction!, $perSecond: Float) {
    bulkControl(filter: $filter, action: $action, perSecond: $perSecond) }";

fn wait_step() -> Value {
    json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }])
}

async fn start_waiting(api: &TestApi, n: usize) -> (String, Vec<String>) {
    let plan = api.plan(wait_step()).await;
    let mut ids = Vec::new();
    for _ in 0..n {
        let query = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
        let id = json_to_text(&api.get(query, json!({ "id": plan })).await["executionId"]);
        api.wait_for_step(&id, "w", "WAITING").await;
        ids.push(id);
    }
    (plan, ids)
}

async fn bulk_control(api: &TestApi, filter: Value, action: &str) -> Value {
    api.get(BULK_MUTATION, json!({ "filter": filter, "action": action })).await
}

/// Waits until an execution is paused, or until it is not.
async fn wait_for_pause(api: &TestApi, id: &str, paused: bool) {
    let wait = async {
        while (api.execution(id, "state").await["state"] == "PAUSED") != paused {
            tokio::task::yield_now().await;
        }
    };
    timeout(MAX_WAIT, wait).await.expect("the execution pauses or resumes");
}

#[tokio::test]
async fn bulk_control_changes_and_counts_only_matching_executions() {
    for api in apis_without_server().await {
        let (plan, ids) = start_waiting(&api, 3).await;
        let (_, others) = start_waiting(&api, 1).await;
        let of_plan = json!({ "planId": plan });
        let count = |action: &'static str| bulk_control(&api, of_plan.clone(), action);
        assert_eq!(count("RETRY").await, 0, "none is finished");
        assert_eq!(count("RESUME").await, 0, "none is paused");
        assert_eq!(count("PAUSE").await, 3);
        for id in &ids {
            wait_for_pause(&api, id, true).await;
        }
        assert_eq!(count("PAUSE").await, 0, "all are paused");
        assert_eq!(count("RESUME").await, 3);
        assert_eq!(count("CANCEL").await, 3);
        for id in &ids {
            let events = api.events(id).await;
            assert_eq!(
                events.last().map(|event| &event["data"]["state"]),
                Some(&json!("CANCELLED"))
            );
        }
        assert_eq!(count("CANCEL").await, 0, "all are finished");
        assert_eq!(bulk_control(&api, json!({ "planId": "nonsense" }), "CANCEL").await, 0);
        assert_eq!(api.execution(&others[0], "state").await["state"], "WAITING");
        // The executions that the bulk retry starts match the filter, too, but they are not
        // retried.
        assert_eq!(count("RETRY").await, 3);
        let query = "query ($id: ID!) { plan(planId: $id) { executions { retryOf } } }";
        let found = api.get(query, json!({ "id": plan })).await;
        let retries: Vec<_> = found["executions"].as_array().unwrap().iter().collect();
        let of: Vec<_> = retries
            .iter()
            .filter(|execution| execution["retryOf"].is_string())
            .map(|execution| json_to_text(&execution["retryOf"]))
            .collect();
        assert_eq!(of, ids, "in the order of creation");
    }
}

#[tokio::test]
async fn a_paced_bulk_retry_spreads_start_times() {
    let api = api().await;
    let (plan, _) = start_waiting(&api, 3).await;
    let of_plan = json!({ "planId": plan });
    bulk_control(&api, of_plan.clone(), "CANCEL").await;
    let ended = json!({ "planId": plan, "state": ["CANCELLED"] });
    let query = "query ($filter: ExecutionFilter) {
        executions(filter: $filter) { nodes { state } } }";
    let all_have = |found: &Value| found["nodes"].as_array().map(Vec::len) == Some(3);
    api.get_until(query, json!({ "filter": ended }), all_have).await;
    let started_at = Instant::now();
    let variables = json!({ "filter": ended, "action": "RETRY", "perSecond": 0.001 });
    assert_eq!(api.get(BULK_MUTATION, variables).await, 3);
    assert!(started_at.elapsed().as_secs() < 100, "the request does not wait for the starts");
    let query = "query ($id: ID!) { plan(planId: $id) { executions {
        retryOf state startAt createdAt waitsFor { kind until } } } }";
    let found = api.get(query, json!({ "id": plan })).await;
    let new: Vec<&Value> = found["executions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|execution| execution["retryOf"].is_string())
        .collect();
    assert_eq!(new.len(), 3);
    assert_eq!(new[0]["startAt"], Value::Null);
    for execution in &new[1..] {
        assert_eq!(execution["state"], "PENDING");
        assert_eq!(execution["waitsFor"][0]["kind"], "start");
        assert_eq!(execution["waitsFor"][0]["until"], execution["startAt"]);
    }
    assert!(json_to_text(&new[1]["startAt"]) < json_to_text(&new[2]["startAt"]));
}

#[tokio::test]
async fn a_paced_bulk_cancel_answers_after_the_last_execution() {
    let api = api().await;
    let (plan, _) = start_waiting(&api, 3).await;
    let started_at = Instant::now();
    let variables = json!({ "filter": { "planId": plan }, "action": "CANCEL", "perSecond": 20.0 });
    assert_eq!(api.get(BULK_MUTATION, variables).await, 3);
    assert!(started_at.elapsed().as_millis() >= 100, "{:?}", started_at.elapsed());
}

#[tokio::test]
async fn bulk_control_finds_executions_that_need_a_person() {
    for api in apis_without_server().await {
        let (_, ids) = start_waiting(&api, 2).await;
        let sleep = json!([{ "name": "flow.sleep", "id": "s", "parameters": { "ms": 600_000 } }]);
        let plan = api.plan(sleep).await;
        let query = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
        let sleeps = json_to_text(&api.get(query, json!({ "id": plan })).await["executionId"]);
        api.wait_for_step(&sleeps, "s", "RUNNING").await;
        let needs = json!({ "needsPerson": true });
        let list = "query ($filter: ExecutionFilter) { executions(filter: $filter) {
            nodes { executionId } } }";
        let found = api.get(list, json!({ "filter": needs })).await;
        let mut found: Vec<String> = found["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|execution| json_to_text(&execution["executionId"]))
            .collect();
        found.sort();
        let mut expected = ids.clone();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(bulk_control(&api, needs, "CANCEL").await, 2);
        assert_eq!(api.execution(&sleeps, "state").await["state"], "IN_PROGRESS");
    }
}

#[tokio::test]
async fn bulk_control_stops_when_the_client_disconnects() {
    let api = api().await;
    let (plan, ids) = start_waiting(&api, 3).await;
    let leaving = ClientGone::default();
    let variables = json!({ "filter": { "planId": plan }, "action": "CANCEL", "perSecond": 0.001 });
    let request = Request::new(BULK_MUTATION).variables(Variables::from_json(variables));
    let asking = api.schema.execute(request.data(leaving.clone()));
    let left = async {
        api.events(&ids[0]).await;
        leaving.0.cancel();
    };
    let (answer, ()) = futures::join!(asking, left);
    let answer = serde_json::to_value(&answer).unwrap();
    assert_eq!(answer["data"], json!({ "bulkControl": 1 }));
    for id in &ids[1..] {
        assert_eq!(api.execution(id, "state").await["state"], "WAITING");
    }
}

#[tokio::test]
async fn a_pace_that_is_not_above_zero_is_refused() {
    let api = api().await;
    for pace in [json!(0), json!(-1), json!(1e-300)] {
        let variables = json!({ "filter": {}, "action": "CANCEL", "perSecond": pace });
        let refusal = api.expect_error(BULK_MUTATION, variables).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{pace} {refusal}");
    }
}

#[tokio::test]
async fn bulk_control_continues_after_an_execution_with_a_full_inbox() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let api = TestApi::over(&store, ProcessRole::ApiOnly, None);
    let (mut ids, now) = (Vec::new(), WallClock.now());
    for _ in 0..3 {
        ids.push(api.start(wait_step(), json!({})).await);
    }
    let full = ids[1].parse().unwrap();
    for _ in 0..limits::INBOX_COMMANDS {
        let id = CommandId::draw(now);
        let pause = SentCommand { id, execution: full, at: now, by: None, command: Command::Pause };
        store.send_command(pause).await.unwrap();
    }
    assert_eq!(bulk_control(&api, json!({}), "CANCEL").await, 2);
    for (id, expected) in ids.iter().zip([1, limits::INBOX_COMMANDS, 1]) {
        let waiting = store.list_commands(Some(id.parse().unwrap())).await.unwrap();
        assert_eq!(waiting.len(), expected, "{id}");
    }
}

/// A bulk retry runs without a person, so it must not pay twice.
#[tokio::test]
async fn a_bulk_retry_skips_executions_with_an_unknown_outcome() {
    for api in apis_without_server().await {
        let register = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
        let pay = json!({ "name": "pay", "description": "Pays.", "parameters": { "type": "object" }, "effect": "ONCE",
            "run": { "command": ["sleep", "60"] } });
        api.get(register, json!({ "input": pay })).await;
        let paying = json!([{ "name": "pay", "timeoutMs": 50 }]);
        let failing = json!([{ "name": "flow.fail", "parameters": { "message": "no" } }]);
        let unknown = api.start(paying, json!({})).await;
        let failed = api.start(failing, json!({})).await;
        for id in [&unknown, &failed] {
            api.events(id).await;
        }
        assert_eq!(bulk_control(&api, json!({ "state": ["FAILED"] }), "RETRY").await, 1);
        let settle = "mutation ($id: ID!) {
            settleStep(executionId: $id, stepId: \"pay\", outcome: SUCCEEDED) {
                state failed steps { settled } } }";
        let settled = api.get(settle, json!({ "id": unknown })).await;
        let expected =
            json!({ "state": "FAILED", "failed": 1, "steps": [{ "settled": "SUCCEEDED" }] });
        assert_eq!(settled, expected);
        let of_plan = api.execution(&unknown, "planId").await;
        let filter = json!({ "planId": of_plan["planId"] });
        assert_eq!(bulk_control(&api, filter, "RETRY").await, 1, "the call is settled");
    }
}

/// A plan that the token is not allowed to use must not stop the action for other plans.
#[tokio::test]
async fn a_bulk_resume_skips_plans_with_forbidden_tools() {
    let mut token = Token::new("ops", "the-secret-of-ops", Role::Admin);
    token.tools = Some(vec!["flow.wait".parse().unwrap()]);
    let ops = Access::new([token]).find_grant_by_name("ops").unwrap();
    for api in apis_without_server().await {
        let (_, allowed) = start_waiting(&api, 1).await;
        let forbidden = json!([
            { "name": "flow.wait", "id": "w", "parameters": { "name": "go" } },
            { "name": "flow.echo", "parameters": {}, "dependsOn": "w" },
        ]);
        let forbidden = api.start(forbidden, json!({})).await;
        api.wait_for_step(&forbidden, "w", "WAITING").await;
        assert_eq!(bulk_control(&api, json!({}), "PAUSE").await, 2);
        for id in [&allowed[0], &forbidden] {
            wait_for_pause(&api, id, true).await;
        }
        let resume = json!({ "filter": {}, "action": "RESUME" });
        assert_eq!(api.get_as(&ops, BULK_MUTATION, resume).await, 1);
        wait_for_pause(&api, &allowed[0], false).await;
        assert_eq!(api.execution(&forbidden, "state").await["state"], "PAUSED");
    }
}
