//! Tokens with `see: own`: objects of other tokens answer as unknown ids, on every store.

use engine::{
    access::{Access, Grant, Role, See, Token},
    store::open_store,
};
use serde_json::{Map, Value, json};
use shared::blob::{self, Blob, BlobId};

use super::test_api::{ProcessRole, TestApi, apis_without_server, collect_all, json_to_text};
use crate::mongod::Mongod;

mod nodes;
mod schema_walk;

/// Operators. `ann` and `bob` see only what is their own, and `ops` sees all.
fn grants() -> [Grant; 3] {
    let token = |name: &str, see| {
        let mut token = Token::new(name, &format!("the-secret-of-{name}"), Role::Operator);
        token.see = see;
        token
    };
    let tokens = [token("ann", See::Own), token("bob", See::Own), token("ops", See::All)];
    let access = Access::new(tokens);
    ["ann", "bob", "ops"].map(|name| access.find_grant_by_name(name).unwrap())
}

async fn apis() -> Vec<TestApi> {
    let url = Mongod::shared().await.new_database_url();
    let mongo = TestApi::over(&open_store(&url).await.unwrap(), ProcessRole::ApiAndWorker, None);
    apis_without_server().await.into_iter().chain([mongo]).collect()
}

struct Owned {
    request: String,
    plan: String,
    execution: String,
}

async fn run_one(api: &TestApi, caller: &Grant, key: Option<&str>) -> Owned {
    let create = "mutation { createPlan(input: { tools: [
        { id: \"a\", name: \"flow.echo\", parameters: { n: 1 } }] }) { plan { planId requestId } } }";
    let made = api.get_as(caller, create, json!({})).await;
    let plan = json_to_text(&made["plan"]["planId"]);
    let request = json_to_text(&made["plan"]["requestId"]);
    let options = json!({ "idempotencyKey": key, "labels": { "team": "red" } });
    let execution = execute(api, caller, &plan, options).await;
    Owned { request, plan, execution }
}

async fn execute(api: &TestApi, caller: &Grant, plan: &str, options: Value) -> String {
    let query = "mutation ($id: ID!, $options: ExecutionOptions) {
        executePlan(planId: $id, options: $options) { executionId } }";
    let started = api.get_as(caller, query, json!({ "id": plan, "options": options })).await;
    let id = json_to_text(&started["executionId"]);
    let events = "subscription ($id: ID!) { executionEvents(executionId: $id) { type } }";
    let events = collect_all(api.subscribe_as(caller, events, json!({ "id": id }))).await;
    assert_eq!(events.last().unwrap()["type"], "finished");
    id
}

const TOTALS: &str = "{ requests { totalCount nodes { requestId labels } }
    plans { totalCount nodes { planId } }
    executions(filter: { labels: { team: \"red\" } }) { totalCount nodes { executionId labels } }
    executionCounts(groupBy: [STATE]) { keys count } }";

fn ids(connection: &Value, field: &str) -> Vec<String> {
    connection["nodes"].as_array().unwrap().iter().map(|node| json_to_text(&node[field])).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_and_counts_contain_only_own_objects() {
    let [ann, bob, ops] = grants();
    let local = Grant::default();
    for api in apis().await {
        let of_ann = [run_one(&api, &ann, None).await, run_one(&api, &ann, None).await];
        let of_bob = run_one(&api, &bob, None).await;
        run_one(&api, &local, None).await;
        for (caller, owned) in
            [(&ann, of_ann.iter().rev().collect::<Vec<_>>()), (&bob, vec![&of_bob])]
        {
            let count = owned.len() as u64;
            let seen = api.ask_as(caller, TOTALS, json!({})).await["data"].take();
            for (list, field, id) in [
                (
                    "requests",
                    "requestId",
                    (|of: &Owned| of.request.clone()) as fn(&Owned) -> String,
                ),
                ("plans", "planId", |of: &Owned| of.plan.clone()),
                ("executions", "executionId", |of: &Owned| of.execution.clone()),
            ] {
                assert_eq!(seen[list]["totalCount"], count, "{list}: {seen}");
                let expected: Vec<String> = owned.iter().map(|of| id(of)).collect();
                assert_eq!(ids(&seen[list], field), expected, "{list}: {seen}");
            }
            assert_eq!(seen["executions"]["nodes"][0]["labels"], json!({ "team": "red" }));
            assert_eq!(seen["requests"]["nodes"][0]["labels"], json!({}));
            let counts = json!([{ "keys": ["COMPLETED"], "count": count }]);
            assert_eq!(seen["executionCounts"], counts);
        }
        for caller in [&ops, &local] {
            let seen = api.ask_as(caller, TOTALS, json!({})).await;
            assert_eq!(seen["data"]["executions"]["totalCount"], 4);
            assert_eq!(seen["data"]["executionCounts"][0]["count"], 4);
            assert_eq!(seen["data"]["plans"]["totalCount"], 4);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_and_children_belong_to_the_first_owner() {
    let [ann, bob, ops] = grants();
    for api in apis().await {
        let inner = run_one(&api, &ann, None).await;
        let create = "mutation ($plan: String!) { createPlan(input: { tools: [
            { id: \"sub\", plan: $plan, parameters: {} }] }) { plan { planId } } }";
        let made = api.get_as(&ann, create, json!({ "plan": inner.plan })).await;
        let outer = json_to_text(&made["plan"]["planId"]);
        let parent = execute(&api, &ann, &outer, json!({})).await;
        let retry = "mutation ($id: ID!) { retryExecution(executionId: $id) { executionId } }";
        let retried = api.get_as(&ops, retry, json!({ "id": parent })).await;
        let retried = json_to_text(&retried["executionId"]);
        let fields = "query ($id: ID!) { execution(executionId: $id) { planId state
            steps { child { executionId parentExecutionId } } } }";
        let is_done = |found: &Value| found["state"] == "COMPLETED";
        let of_ann = api.get_as_until(&ann, fields, json!({ "id": retried }), is_done).await;
        let child = &of_ann["steps"][0]["child"];
        assert_eq!(child["parentExecutionId"], json!(retried), "{of_ann}");
        for id in [&retried, &json_to_text(&child["executionId"])] {
            assert!(!api.get_as(&ann, fields, json!({ "id": id })).await.is_null());
            assert!(api.get_as(&bob, fields, json!({ "id": id })).await.is_null());
        }
        // If a caller that sees all starts a foreign plan, the execution belongs to this caller.
        let of_ops = execute(&api, &ops, &inner.plan, json!({})).await;
        assert!(api.get_as(&ann, fields, json!({ "id": of_ops })).await.is_null());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotency_keys_of_other_owners_do_not_exist() {
    let [ann, bob, ops] = grants();
    for api in apis().await {
        let first = run_one(&api, &ann, Some("k")).await;
        let options = json!({ "idempotencyKey": "k", "labels": { "team": "red" } });
        let again = execute(&api, &ann, &first.plan, options.clone()).await;
        assert_eq!(again, first.execution);
        for other in [&bob, &ops] {
            assert_ne!(run_one(&api, other, Some("k")).await.execution, first.execution);
        }
        let query = "mutation ($id: ID!) { executePlan(planId: $id, options: {
            idempotencyKey: \"k\" }) { executionId } }";
        let refused = api.ask_as(&ann, query, json!({ "id": first.plan })).await;
        let message = json_to_text(&refused["errors"][0]["message"]);
        let expected = format!("the idempotency key `k` belongs to `{}`", first.execution);
        assert!(message.starts_with(&expected), "{message}");
    }
}

/// A client repeats a start that it did not see succeed, and the configuration has changed `see` of
/// its token in the meantime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_stays_when_the_view_of_its_token_changes() {
    let grant = |name: &str, see| {
        let mut token = Token::new(name, &format!("the-secret-of-{name}"), Role::Operator);
        token.see = see;
        Access::new([token]).find_grant_by_name(name).unwrap()
    };
    for api in apis().await {
        for (before, after, key) in [(See::Own, See::All, "a"), (See::All, See::Own, "b")] {
            let first = run_one(&api, &grant("ann", before), Some(key)).await;
            let again = async |plan: &str| {
                let options = json!({ "idempotencyKey": key, "labels": { "team": "red" } });
                execute(&api, &grant("ann", after), plan, options).await
            };
            assert_eq!(again(&first.plan).await, first.execution, "{key}");
            let of_bob = run_one(&api, &grant("bob", after), Some(key)).await;
            assert_ne!(of_bob.execution, first.execution, "{key}");
            assert_eq!(again(&first.plan).await, first.execution, "{key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_plan_is_shared_but_its_request_is_not() {
    let [ann, bob, _] = grants();
    for api in apis().await {
        let local = Grant::default();
        let shared = run_one(&api, &local, None).await;
        let plan = "query ($id: ID!) { plan(planId: $id) { planId request { requestId } } }";
        assert!(api.get_as(&ann, plan, json!({ "id": shared.plan })).await.is_null());
        let save = "mutation ($id: ID!) { savePlan(name: \"shared\", planId: $id) }";
        api.get_as(&local, save, json!({ "id": shared.plan })).await;
        let seen = api.get_as(&ann, plan, json!({ "id": shared.plan })).await;
        assert_eq!(seen, json!({ "planId": shared.plan, "request": null }));
        let run = "mutation { runSavedPlan(name: \"shared\") { executionId } }";
        let started = api.get_as(&ann, run, json!({})).await;
        let fields = "query ($id: ID!) { execution(executionId: $id) { state
            plan { executions { executionId } } } }";
        let variables = json!({ "id": started["executionId"] });
        let is_done = |found: &Value| found["state"] == "COMPLETED";
        let of_ann = api.get_as_until(&ann, fields, variables.clone(), is_done).await;
        assert_eq!(of_ann["plan"]["executions"], json!([started]), "{of_ann}");
        assert!(api.get_as(&bob, fields, variables.clone()).await.is_null());
        // The execution stays readable when the name is gone.
        let remove = "mutation { removeSavedPlan(name: \"shared\") }";
        api.get_as(&local, remove, json!({})).await;
        assert_eq!(api.get_as(&ann, fields, variables).await, of_ann);
        assert!(api.get_as(&bob, plan, json!({ "id": shared.plan })).await.is_null());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_blobs_outside_plans_belong_to_their_caller() {
    let [ann, bob, ops] = grants();
    for api in apis().await {
        let call = "mutation ($n: Int!) { callTool(name: \"flow.echo\", parameters: { n: $n }) {
            status } }";
        for (caller, n) in [(&ann, 1), (&bob, 2), (&Grant::default(), 3), (&ann, 4)] {
            api.get_as(caller, call, json!({ "n": n })).await;
        }
        let unknown_tool =
            "mutation { callTool(name: \"nothing.here\", parameters: {}) { status } }";
        api.get_as(&bob, unknown_tool, json!({})).await;
        let history = "{ toolHistory(first: 2) { tool parameters } }";
        let echo = |n: i32| json!({ "tool": "flow.echo", "parameters": { "n": n } });
        assert_eq!(api.get_as(&ann, history, json!({})).await, json!([echo(4), echo(1)]));
        let of_bob = api.get_as(&bob, history, json!({})).await;
        assert_eq!((&of_bob[0]["tool"], &of_bob[1]), (&json!("nothing.here"), &echo(2)));
        let all = "{ toolHistory(first: 9) { tool } }";
        assert_eq!(api.get_as(&ops, all, json!({})).await.as_array().unwrap().len(), 5);
        let only_echo = "{ toolHistory(toolName: \"flow.echo\") { tool } }";
        assert_eq!(api.get_as(&ops, only_echo, json!({})).await.as_array().unwrap().len(), 4);

        let store = api.engine.store();
        let id = BlobId::new(None, &"0a".repeat(32)).unwrap();
        let at = api.engine.clock().now();
        let image = Blob { id, mime_type: "image/png".to_owned(), bytes: 3, at };
        let query = "query ($id: ID!) { blob(id: $id) { data } }";
        let variables = json!({ "id": image.id.to_string() });
        let sees =
            async |caller: &Grant| !api.get_as(caller, query, variables.clone()).await.is_null();
        blob::save_blob_of(&**store, &image, "AQID", Some("ann")).await.unwrap();
        assert!(sees(&ann).await && sees(&ops).await && !sees(&bob).await);
        // Another caller stores the same content.
        blob::save_blob_of(&**store, &image, "AQID", Some("bob")).await.unwrap();
        blob::save_blob(&**store, &image, "AQID").await.unwrap();
        assert!(sees(&ann).await && sees(&bob).await);
    }
}
