//! Tests of plans from the query to the timeline, of their versions, and of idempotency keys.

use serde_json::{Value, json};

use super::test_api::{
    TestApi, api, apis_without_server, json_to_text, texts_of_field, two_processes,
};

fn blog_steps() -> Value {
    json!([
        { "name": "flow.echo", "id": "blog", "parameters": {
            "title": "by {{author.name}}", "authorId": "{{author._id}}" } },
        { "name": "flow.echo", "id": "author", "parameters": { "_id": 7, "name": "Alice" },
          "outputMapping": { "name": "who", "nothing": "none" } },
        { "name": "flow.fail", "id": "broken", "parameters": { "message": "on purpose" },
          "onError": "ignore" },
        { "name": "flow.noop", "id": "last", "dependsOn": ["broken", "blog"] },
    ])
}

#[tokio::test]
async fn a_plan_is_made_executed_and_shown_in_its_request() {
    for api in apis_without_server().await {
        assert_life_of_a_plan(&api).await;
    }
}

async fn assert_life_of_a_plan(api: &TestApi) {
    let query = "mutation ($query: String!) { createPlanWithRequestId(query: $query) {
        planId requestId version planner executionOrder layers diagnostics { code }
        tools { stepId toolName dependsOn outputMapping effect onError timeoutMs requiresApproval }
    } }";
    let draft = json!({ "tools": blog_steps() }).to_string();
    let plan = api.get(query, json!({ "query": draft })).await;
    assert_eq!(plan["executionOrder"], json!(["author", "blog", "broken", "last"]));
    assert_eq!(plan["layers"], json!([["author", "broken"], ["blog"], ["last"]]));
    assert_eq!((&plan["version"], &plan["planner"]), (&json!(1), &json!("literal")));
    assert_eq!(plan["tools"][1]["dependsOn"], json!(["author"]));
    assert_eq!(plan["tools"][0]["outputMapping"], json!({ "name": "who", "nothing": "none" }));
    let flags = ["effect", "onError", "timeoutMs", "requiresApproval"]
        .map(|field| &plan["tools"][2][field]);
    assert_eq!(flags, [&json!("READ"), &json!("ignore"), &json!(300_000), &json!(false)]);

    let request = json_to_text(&plan["requestId"]);
    let query = "mutation ($id: ID!) { executeByRequestId(requestId: $id) {
        executionId planId total } }";
    let started = api.get(query, json!({ "id": request })).await;
    assert_eq!((&started["planId"], &started["total"]), (&plan["planId"], &json!(4)));
    let id = json_to_text(&started["executionId"]);
    let events = api.events(&id).await;
    assert_eq!(events.first().map(|event| &event["type"]), Some(&json!("created")));
    assert_eq!(events.last().map(|event| &event["data"]), Some(&json!({ "state": "COMPLETED" })));
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_execution(api, &id).await;
    assert_request(api, &request, events.len()).await;
}

async fn assert_execution(api: &TestApi, id: &str) {
    let fields = "state mode total successful failed skipped cancelled node outputs
        startedAt finishedAt executionResults { outputs errors { stepId code message attempt } variables }
        steps { stepId state attempts resolvedParameters output durationMs error { code } warnings }
        step(stepId: \"blog\") { toolName } none: step(stepId: \"x\") { state }
        events(afterSeq: 1, first: 2) { seq }";
    let execution = api.execution(id, fields).await;
    let outputs = json!({
        "author": { "_id": 7, "name": "Alice" },
        "blog": { "title": "by Alice", "authorId": 7 },
        "broken": null,
        "last": null,
    });
    assert_eq!(execution["outputs"].to_string(), outputs.to_string());
    assert_eq!(execution["executionResults"]["outputs"], outputs);
    assert_eq!(execution["executionResults"]["variables"], json!({ "who": "Alice" }));
    let error = json!([{ "stepId": "broken", "code": "tool.failed", "message": "on purpose", "attempt": 1 }]);
    assert_eq!(execution["executionResults"]["errors"], error);
    let counts =
        ["total", "successful", "failed", "skipped", "cancelled"].map(|n| execution[n].as_u64());
    assert_eq!(counts, [4, 3, 1, 0, 0].map(Some));
    assert_eq!(
        (&execution["state"], &execution["mode"]),
        (&json!("COMPLETED"), &json!("PARALLEL"))
    );
    assert_eq!(execution["node"], "here");
    let steps = execution["steps"].as_array().unwrap();
    assert_eq!(texts_of_field(steps, "state"), ["SUCCEEDED", "SUCCEEDED", "FAILED", "SUCCEEDED"]);
    assert_eq!(steps[1]["resolvedParameters"], outputs["blog"]);
    assert!(steps[0]["durationMs"].as_f64().is_some_and(|millis| millis >= 0.0));
    assert_eq!(
        (&execution["step"]["toolName"], &execution["none"]),
        (&json!("flow.echo"), &Value::Null)
    );
    assert_eq!(execution["events"], json!([{ "seq": 2 }, { "seq": 3 }]));
    let moments = [&execution["startedAt"], &execution["finishedAt"]].map(json_to_text);
    assert!(
        moments[0] < moments[1]
            && moments.iter().all(|moment| moment.ends_with('Z') && moment.len() == 27)
    );
}

async fn assert_request(api: &TestApi, request: &str, events: usize) {
    let query = "query ($id: ID!) { request(requestId: $id) {
        requestId query plans { version executions { state } } executions { state request { requestId } }
        transcript { kind } timeline { at kind node stepId attempt message durationMs } } }";
    let found = api.get(query, json!({ "id": request })).await;
    assert_eq!(found["plans"], json!([{ "version": 1, "executions": [{ "state": "COMPLETED" }] }]));
    assert_eq!(found["executions"][0]["request"]["requestId"], request);
    let transcript = texts_of_field(found["transcript"].as_array().unwrap(), "kind");
    assert_eq!(transcript, ["selection", "candidates", "draft", "plan"]);
    let timeline = found["timeline"].as_array().unwrap();
    assert_eq!(timeline.len(), 1 + transcript.len() + 1 + events);
    assert_eq!(timeline[0]["kind"], "request");
    let moments = texts_of_field(timeline, "at");
    assert!(moments.is_sorted(), "{moments:?}");
    let ended = timeline.iter().find(|entry| entry["kind"] == "step_succeeded").unwrap();
    assert_eq!(ended["node"], "here");
    assert!(ended["durationMs"].is_number() && ended["attempt"] == 1);
    let last = timeline.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["message"]),
        (&json!("finished"), &json!("finished: COMPLETED"))
    );
}

#[tokio::test]
async fn the_request_of_an_explicit_plan_is_older_than_the_plan() {
    for api in apis_without_server().await {
        let plan = api.plan(json!([{ "name": "flow.noop" }])).await;
        let query = "query ($id: ID!) { plan(planId: $id) {
            createdAt request { createdAt timeline { at kind message } } } }";
        let found = api.get(query, json!({ "id": plan })).await;
        assert!(
            json_to_text(&found["request"]["createdAt"]) <= json_to_text(&found["createdAt"]),
            "{found}"
        );
        let timeline = found["request"]["timeline"].as_array().unwrap();
        let kinds = texts_of_field(timeline, "kind");
        assert_eq!(kinds[0], "request", "{timeline:#?}");
        let draft = timeline.iter().position(|entry| entry["message"] == "planning: draft");
        let made = kinds.iter().position(|kind| kind == "plan_created");
        assert!(draft.is_some() && draft < made, "{timeline:#?}");
        assert!(texts_of_field(timeline, "at").is_sorted());
    }
}

#[tokio::test]
async fn a_worker_executes_what_another_process_started() {
    let [asking, working] = two_processes().await;
    let id = asking.start(blog_steps(), json!({ "mode": "SEQUENTIAL" })).await;
    let events = asking.events(&id).await;
    assert_eq!(events.last().map(|event| &event["type"]), Some(&json!("finished")));
    assert_eq!(working.events(&id).await, events);
    let states = [&asking, &working].map(|api| api.execution(&id, "state outputs node"));
    let [a, b] = futures::future::join_all(states).await.try_into().unwrap();
    assert_eq!(a, b);
    assert_eq!(a["state"], "COMPLETED");
}

#[tokio::test]
async fn revising_a_plan_creates_the_next_version() {
    let api = api().await;
    let first = api.plan(json!([{ "name": "flow.noop" }])).await;
    let query = "mutation ($id: ID!, $input: PlanInput!) { revisePlan(planId: $id, input: $input) {
        plan { planId requestId version query tools { stepId } } diagnostics { code } } }";
    let input = json!({ "tools": [{ "toolName": "flow.echo" }] });
    let payload = api.get(query, json!({ "id": first, "input": input })).await;
    let plan = &payload["plan"];
    assert_eq!((&plan["version"], &plan["query"]), (&json!(2), &json!("flow.noop")));
    let query = "query ($id: ID!) { plansByRequestId(requestId: $id) { planId version } }";
    let plans = api.get(query, json!({ "id": plan["requestId"] })).await;
    assert_eq!(plans[0]["planId"], first);
    assert_eq!(plans[1]["planId"], plan["planId"]);
    let query = "mutation ($id: ID!) { executeByRequestId(requestId: $id) { planId } }";
    let newest = api.get(query, json!({ "id": plan["requestId"] })).await;
    assert_eq!(newest["planId"], plan["planId"]);
}

/// A repeated key returns the version that the first request executed, even if a newer version
/// exists or the fields of the input are in another sequence.
#[tokio::test]
async fn a_repeated_key_returns_the_version_that_was_executed_first() {
    let api = api().await;
    let first = api.plan(json!([{ "name": "flow.noop" }])).await;
    let query = "query ($id: ID!) { plan(planId: $id) { requestId } }";
    let request = api.get(query, json!({ "id": first })).await["requestId"].clone();
    let query = "mutation ($id: ID!, $options: ExecutionOptions) {
        executeByRequestId(requestId: $id, options: $options) { executionId planId } }";
    let under = |key: &str, input: Value| json!({ "id": request, "options": { "idempotencyKey": key, "input": input } });
    let one = api.get(query, under("k", json!({ "a": 1, "b": { "c": 1, "d": 2 } }))).await;
    assert_eq!(one["planId"], first);
    let revise =
        "mutation ($id: ID!, $input: PlanInput!) { revisePlan(planId: $id, input: $input) {
        plan { planId } } }";
    let input = json!({ "tools": [{ "toolName": "flow.echo" }] });
    let second =
        api.get(revise, json!({ "id": first, "input": input })).await["plan"]["planId"].clone();
    let again = api.get(query, under("k", json!({ "b": { "d": 2, "c": 1 }, "a": 1 }))).await;
    assert_eq!(again, one);
    let other = api.get(query, under("l", json!({ "a": 1 }))).await;
    assert_eq!(other["planId"], second);
    assert_eq!(api.expect_error(query, under("k", json!({ "a": 1 }))).await["code"], "CONFLICT");
}

#[tokio::test]
async fn a_repeated_key_returns_the_same_execution() {
    let api = api().await;
    let query = "mutation ($query: String!, $options: ExecutionOptions) {
        run(query: $query, execution: $options) { executionId requestId } }";
    let draft = json!({ "tools": [{ "name": "flow.noop" }] }).to_string();
    let request_for = |key: &str| json!({ "query": draft, "options": { "idempotencyKey": key } });
    let one = api.get(query, request_for("k")).await;
    assert_eq!(api.get(query, request_for("k")).await, one);
    assert_ne!(api.get(query, request_for("l")).await, one);
    let other = json!({ "query": draft, "options": { "idempotencyKey": "k", "priority": 1 } });
    assert_eq!(api.expect_error(query, other).await["code"], "CONFLICT");
}

/// Regression: each request called the planner, and all plans except one were useless.
#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_requests_with_one_key_plan_once() {
    let api = api().await;
    let query =
        "mutation ($query: String!) { run(query: $query, execution: { idempotencyKey: \"k\" }) {
        executionId requestId } }";
    let draft = json!({ "tools": [{ "name": "flow.noop" }] }).to_string();
    let hashes = (0..8).map(|_| api.get(query, json!({ "query": draft })));
    let started = futures::future::join_all(hashes).await;
    assert!(started.iter().all(|id| *id == started[0]), "{started:#?}");
    let requests = api.get("{ requests { nodes { requestId } } }", json!({})).await;
    assert_eq!(requests["nodes"].as_array().unwrap().len(), 1, "{requests:#}");
}

/// Regression: some requests failed after eight attempts, because another request had taken the
/// next version each time.
#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_revisions_of_a_plan_get_different_versions() {
    for api in apis_without_server().await {
        let first = api.plan(json!([{ "name": "flow.noop" }])).await;
        let revise =
            "mutation ($id: ID!, $input: PlanInput!) { revisePlan(planId: $id, input: $input) {
            plan { version } } }";
        let input = json!({ "tools": [{ "toolName": "flow.echo" }] });
        let requests = (0..24).map(|_| api.get(revise, json!({ "id": first, "input": input })));
        let made = futures::future::join_all(requests).await;
        let mut versions: Vec<_> =
            made.iter().map(|revised| revised["plan"]["version"].as_u64().unwrap()).collect();
        versions.sort_unstable();
        assert_eq!(versions, (2..26).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn tools_and_toolsets_are_listed_by_the_api() {
    let api = api().await;
    let query = "{ tools(search: \"its PARAMETERS\") {
        name qualifiedName toolSet source active callable effect inputSchema outputSchema examples } }";
    let echo = json!({
        "name": "flow.echo", "qualifiedName": "flow.echo", "toolSet": "flow", "source": "builtin",
        "active": true, "callable": true, "effect": "READ", "inputSchema": { "type": "object" },
        "outputSchema": null, "examples": [],
    });
    assert_eq!(api.get(query, json!({})).await, json!([echo]));
    let query = "{ tool(name: \"flow.wait\") { name description } }";
    assert_eq!(api.get(query, json!({})).await["name"], "flow.wait");
    let query = "{ toolSets { name active status error tools { name } } }";
    let sets = api.get(query, json!({})).await;
    assert_eq!((&sets[0]["name"], &sets[0]["status"]), (&json!("flow"), &json!("ready")));
    assert_eq!(sets[0]["tools"].as_array().map(Vec::len), Some(8));
    for none in ["{ tool(name: \"x\") { name } }", "{ tool(name: \"\") { name } }"] {
        assert_eq!(api.get(none, json!({})).await, Value::Null);
    }
    let query = "{ tools(toolSet: \"x\", activeOnly: true) { name } }";
    assert_eq!(api.get(query, json!({})).await, json!([]));
}
