//! Forks of finished executions, on every store.

use engine::{
    access::{Access, Role, See, Token},
    store::open_store,
};
use serde_json::{Value, json};

use super::test_api::{ProcessRole, TestApi, apis_without_server, json_to_text, texts_of_field};
use crate::mongod::Mongod;

const FORK: &str = "mutation ($id: ID!, $plan: ID, $input: JSON, $set: [StepChangeInput!]) {
    forkExecution(executionId: $id, planId: $plan, input: $input, set: $set) {
        executionId requestId planId forkedFrom retryOf priority labels } }";

const PREVIEW: &str = "query ($id: ID!, $plan: ID, $input: JSON, $set: [StepChangeInput!]) {
    execution(executionId: $id) { forkPreview(planId: $plan, input: $input, set: $set) {
        keptSteps onceCalls { stepId toolName calls repeated outcomeUnknown } } } }";

async fn apis() -> Vec<TestApi> {
    let url = Mongod::shared().await.new_database_url();
    let mongo = TestApi::over(&open_store(&url).await.unwrap(), ProcessRole::ApiAndWorker, None);
    apis_without_server().await.into_iter().chain([mongo]).collect()
}

/// Step `pay` has an effect, and `c` fails. Steps `a` and `b` read different fields of the input.
async fn failed_execution(api: &TestApi) -> String {
    let steps = json!([
        { "name": "flow.echo", "id": "a", "parameters": { "n": "{{input.n}}" } },
        { "name": "flow.echo", "id": "b", "parameters": { "m": "{{input.m}}" } },
        { "name": "flow.effect", "id": "pay", "dependsOn": "a" },
        { "name": "flow.fail", "id": "c", "parameters": { "message": "no {{b.m}}" }, "dependsOn": "pay" },
        { "name": "flow.effect", "id": "last", "dependsOn": "c" },
    ]);
    let options = json!({
        "input": { "n": 7, "m": 1 }, "priority": 3, "labels": { "team": "red" },
        "compensateOnFailure": false,
    });
    let id = api.start(steps, options).await;
    api.events(&id).await;
    id
}

fn arguments(id: &str, changes: Value) -> Value {
    let mut arguments = changes;
    arguments["id"] = json!(id);
    arguments
}

fn calls(preview: &Value) -> Vec<String> {
    let calls =
        preview["forkPreview"]["onceCalls"].as_array().unwrap_or_else(|| panic!("{preview}"));
    let line = |call: &Value| {
        let again = if call["repeated"] == true { " again" } else { "" };
        format!("{} {}{again}", json_to_text(&call["stepId"]), call["calls"])
    };
    calls.iter().map(line).collect()
}

struct ForkCase {
    changes: Value,
    kept: Vec<&'static str>,
    once_calls: Vec<&'static str>,
    states: [&'static str; 5],
}

fn fork_cases() -> Vec<ForkCase> {
    let done = ["SUCCEEDED"; 5];
    let fails = ["SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED", "SKIPPED"];
    let set = |change: Value| json!({ "set": [change] });
    let case = |changes, kept: &[&'static str], once_calls: &[&'static str], states| ForkCase {
        changes,
        kept: kept.to_vec(),
        once_calls: once_calls.to_vec(),
        states,
    };
    vec![
        case(
            set(json!({ "stepId": "c", "output": "by hand" })),
            &["a", "b", "pay"],
            &["last 1"],
            done,
        ),
        case(
            set(json!({ "stepId": "c", "parameters": null, "output": null })),
            &["a", "b", "pay"],
            &["last 1"],
            done,
        ),
        case(json!({ "input": { "n": 7, "m": 2 } }), &["a", "pay"], &["last 1"], fails),
        case(
            set(json!({ "stepId": "a", "parameters": { "n": 8 }, "output": null })),
            &["b"],
            &["pay 1 again", "last 1"],
            fails,
        ),
        case(
            set(json!({ "stepId": "a", "parameters": { "n": "{{input.n}}" } })),
            &["a", "b", "pay"],
            &["last 1"],
            fails,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_keeps_the_outputs_that_still_fit() {
    for api in apis().await {
        let id = failed_execution(&api).await;
        let before = api.execution(&id, "state seq outputs planId requestId").await;
        let mut forks = Vec::new();
        for ForkCase { changes, kept, once_calls, states } in fork_cases() {
            let arguments = arguments(&id, changes.clone());
            let preview = api.get(PREVIEW, arguments.clone()).await;
            assert_eq!(preview["forkPreview"]["keptSteps"], json!(kept), "{changes}");
            assert_eq!(calls(&preview), once_calls, "{changes}");
            let forked = api.get(FORK, arguments).await;
            assert_eq!((&forked["forkedFrom"], &forked["retryOf"]), (&json!(id), &Value::Null));
            assert_eq!(forked["requestId"], before["requestId"]);
            assert_eq!(
                (&forked["priority"], &forked["labels"]["team"]),
                (&json!(3), &json!("red"))
            );
            assert_eq!(forked["labels"].as_object().map(serde_json::Map::len), Some(1));
            let is_new_version = changes["set"][0]["parameters"]["n"] == 8;
            assert_eq!(forked["planId"] != before["planId"], is_new_version, "{changes}");
            let fork = json_to_text(&forked["executionId"]);
            let events = api.events(&fork).await;
            assert_eq!(events[0]["data"]["forkedFrom"], json!(id));
            let ended = api
                .execution(&fork, "plan { version } steps { stepId state reused attempts }")
                .await;
            let steps = ended["steps"].as_array().unwrap();
            assert_eq!(texts_of_field(steps, "state"), states, "{changes}");
            for step in steps {
                let is_kept = kept.contains(&step["stepId"].as_str().unwrap());
                let is_given = changes["set"][0]["stepId"] == step["stepId"]
                    && changes["set"][0].get("output").is_some()
                    && changes["set"][0]["parameters"].is_null();
                assert_eq!(step["reused"] == true, is_kept || is_given, "{changes} {step}");
            }
            assert_eq!(ended["plan"]["version"], if is_new_version { 2 } else { 1 });
            forks.push(fork);
        }
        let after = api.execution(&id, "state seq outputs planId requestId").await;
        assert_eq!(after, before, "the old execution stays as it is");
        let found = api.execution(&id, "forks { executionId } retries { executionId }").await;
        let mut listed = texts_of_field(found["forks"].as_array().unwrap(), "executionId");
        listed.sort();
        forks.sort();
        assert_eq!((listed, &found["retries"]), (forks.clone(), &json!([])));
        let of_fork = api.execution(&forks[0], "forkedFrom forks { executionId }").await;
        assert_eq!(of_fork, json!({ "forkedFrom": id, "forks": [] }));
    }
}

/// A retry of a fork is no fork, and neither is its child.
#[tokio::test]
async fn retries_of_a_fork_do_not_inherit_its_origin() {
    let [api, _] = apis_without_server().await;
    let id = failed_execution(&api).await;
    let forked = api.get(FORK, arguments(&id, json!({}))).await;
    let fork = json_to_text(&forked["executionId"]);
    api.events(&fork).await;
    let retry = "mutation ($id: ID!) { retryExecution(executionId: $id, mode: FAILED) {
        executionId forkedFrom retryOf } }";
    let retried = api.get(retry, json!({ "id": fork })).await;
    assert_eq!((&retried["forkedFrom"], &retried["retryOf"]), (&Value::Null, &json!(fork)));
    let found = api.execution(&id, "forks { executionId }").await;
    assert_eq!(found["forks"], json!([{ "executionId": fork }]));
    let query =
        "query ($id: ID!) { execution(executionId: $id) { repeatedCalls { stepId calls } } }";
    let repeated = api.get(query, json!({ "id": fork })).await;
    let expected = json!([{ "stepId": "pay", "calls": 1 }]);
    assert_eq!(repeated["repeatedCalls"], expected, "the origin made the call");
}

#[tokio::test]
async fn another_version_of_the_plan_can_be_forked_to() {
    for api in apis_without_server().await {
        let id = failed_execution(&api).await;
        let plan = api.execution(&id, "planId").await["planId"].clone();
        let revise = "mutation ($id: ID!) { revisePlan(planId: $id, input: { tools: [
            { name: \"flow.echo\", id: \"a\", parameters: { n: \"{{input.n}}\" } },
            { name: \"flow.echo\", id: \"c\", parameters: { n: \"{{a.n}}\" } },
        ] }) { plan { planId } } }";
        let revised = api.get(revise, json!({ "id": plan })).await["plan"]["planId"].clone();
        let forked = api.get(FORK, arguments(&id, json!({ "plan": revised }))).await;
        assert_eq!(forked["planId"], revised);
        let fork = json_to_text(&forked["executionId"]);
        api.events(&fork).await;
        let ended = api.execution(&fork, "state outputs steps { reused }").await;
        assert_eq!(
            (&ended["state"], &ended["outputs"]["c"]),
            (&json!("COMPLETED"), &json!({ "n": 7 }))
        );
        assert_eq!(ended["steps"], json!([{ "reused": true }, { "reused": false }]));
        let foreign = failed_execution(&api).await;
        let foreign = api.execution(&foreign, "planId").await["planId"].clone();
        for (plan, code) in
            [(foreign, "INVALID_ARGUMENT"), (json!("plan_1_aaaaaaaaa"), "NOT_FOUND")]
        {
            let refused = api.expect_error(FORK, arguments(&id, json!({ "plan": plan }))).await;
            assert_eq!(refused["code"], code, "{refused}");
        }
    }
}

#[tokio::test]
async fn wrong_forks_are_refused() {
    let [api, _] = apis_without_server().await;
    let id = failed_execution(&api).await;
    let plans = api.execution(&id, "request { plans { planId } }").await;
    for (set, code, message) in [
        (json!([{ "stepId": "a" }]), "INVALID_ARGUMENT", "needs either `parameters` or `output`"),
        (
            json!([{ "stepId": "a", "parameters": {}, "output": 1 }]),
            "INVALID_ARGUMENT",
            "needs either `parameters` or `output`",
        ),
        (json!([{ "stepId": "pai", "output": 1 }]), "INVALID_ARGUMENT", "did you mean `pay`"),
        (
            json!([{ "stepId": "a", "output": 1 }, { "stepId": "a", "output": 2 }]),
            "INVALID_ARGUMENT",
            "`set` has the step `a` twice",
        ),
        (json!([{ "stepId": "a", "parameters": { "n": "{{nothing.x}}" } }]), "INVALID_PLAN", ""),
    ] {
        for query in [FORK, PREVIEW] {
            let refused = api.expect_error(query, arguments(&id, json!({ "set": set }))).await;
            assert_eq!(refused["code"], code, "{set} {refused}");
            assert!(json_to_text(&refused["message"]).contains(message), "{refused}");
        }
    }
    assert_eq!(api.execution(&id, "request { plans { planId } }").await, plans);
    let missing = api.expect_error(FORK, json!({ "id": "exec_1_aaaaaaaaa" })).await;
    assert_eq!(missing["code"], "NOT_FOUND");
    let wait = json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }]);
    let open = api.start(wait, json!({})).await;
    let refused = api.expect_error(FORK, json!({ "id": open })).await;
    assert_eq!(refused["code"], "CONFLICT", "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_belongs_to_the_owner_of_its_origin() {
    let token = |name: &str, see| {
        let mut token = Token::new(name, &format!("the-secret-of-{name}"), Role::Operator);
        token.see = see;
        token
    };
    let access = Access::new([
        token("ann", See::Own),
        token("bob", See::Own),
        token("ops", See::All),
        Token::new("eve", "the-secret-of-eve", Role::Viewer),
    ]);
    let [ann, bob, ops, eve] =
        ["ann", "bob", "ops", "eve"].map(|name| access.find_grant_by_name(name).unwrap());
    for api in apis().await {
        let create = "mutation { createPlan(input: { tools: [
            { id: \"a\", name: \"flow.echo\", parameters: { n: 1 } }] }) { plan { planId } } }";
        let plan = api.get_as(&ann, create, json!({})).await["plan"]["planId"].clone();
        let start = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
        let id = api.get_as(&ann, start, json!({ "id": plan })).await["executionId"].clone();
        let fields = "query ($id: ID!) { execution(executionId: $id) { state forkedFrom
            forks { executionId } } }";
        let is_done = |found: &Value| found["state"] == "COMPLETED";
        api.get_as_until(&ann, fields, json!({ "id": id }), is_done).await;
        for refused in [&bob, &eve] {
            let answer = api.ask_as(refused, FORK, json!({ "id": id })).await;
            assert!(answer["errors"][0]["message"].is_string(), "{answer}");
        }
        let set = json!([{ "stepId": "a", "parameters": { "n": 2 } }]);
        let forked = api.get_as(&ops, FORK, json!({ "id": id, "set": set })).await;
        let fork = forked["executionId"].clone();
        let of_ann = api.get_as_until(&ann, fields, json!({ "id": fork }), is_done).await;
        assert_eq!(of_ann["forkedFrom"], id);
        let origin = api.get_as(&ann, fields, json!({ "id": id })).await;
        assert_eq!(origin["forks"], json!([{ "executionId": fork }]));
        assert!(api.get_as(&bob, fields, json!({ "id": fork })).await.is_null());
    }
}
