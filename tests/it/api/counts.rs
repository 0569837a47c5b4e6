use serde_json::{Value, json};

use super::test_api::{TestApi, apis_without_server, only_error, texts_of_field};

/// A query that the planner of these tests reads as a draft.
const NOOP_QUERY: &str = r#"{"tools":[{"name":"flow.noop"}]}"#;

const COUNTS_QUERY: &str =
    "query ($filter: ExecutionFilter, $by: [ExecutionGroup!]!, $ms: Int, $label: String) {
    executionCounts(filter: $filter, groupBy: $by, bucketMs: $ms, label: $label) {
        keys count firstAt lastAt sampleExecutionId p50Ms p95Ms } }";

async fn run_to_end(api: &TestApi, succeeds: bool, labels: Value) -> String {
    let step = if succeeds {
        json!([{ "name": "flow.noop" }])
    } else {
        json!([{ "name": "flow.fail", "parameters": { "message": "the card was declined" } }])
    };
    let id = api.start(step, json!({ "labels": labels })).await;
    api.events(&id).await;
    id
}

async fn count_executions(api: &TestApi, variables: Value) -> Vec<(Vec<Value>, i64)> {
    let counts = api.get(COUNTS_QUERY, variables).await;
    let counts = counts.as_array().unwrap().iter();
    let pair = |found: &Value| {
        (found["keys"].as_array().unwrap().clone(), found["count"].as_i64().unwrap())
    };
    counts.map(pair).collect()
}

#[tokio::test]
async fn executions_are_counted_and_found_by_labels_and_errors() {
    for api in apis_without_server().await {
        let shop = json!({ "team": "shop", "env": "test" });
        let mut failed = Vec::new();
        for succeeds in [true, false, false] {
            let id = run_to_end(&api, succeeds, shop.clone()).await;
            if !succeeds {
                failed.push(id);
            }
        }
        let lone = run_to_end(&api, true, json!({ "team": "mail" })).await;
        let labels = api.execution(&lone, "labels").await["labels"].clone();
        assert_eq!(labels, json!({ "team": "mail" }));

        let by_state = count_executions(&api, json!({ "by": ["STATE"] })).await;
        assert_eq!(by_state.len(), 2, "{by_state:?}");
        assert!(by_state.contains(&(vec![json!("COMPLETED")], 2)), "{by_state:?}");
        assert!(by_state.contains(&(vec![json!("FAILED")], 2)), "{by_state:?}");
        let by_team = count_executions(&api, json!({ "by": ["LABEL"], "label": "team" })).await;
        assert_eq!(by_team, [(vec![json!("shop")], 3), (vec![json!("mail")], 1)]);
        let by_tool = count_executions(&api, json!({ "by": ["TOOL", "STATE"] })).await;
        assert_eq!(by_tool, [(vec![json!("flow.fail"), json!("FAILED")], 2)]);
        let filter = json!({ "labels": { "env": null }, "state": ["FAILED"] });
        let filtered = count_executions(&api, json!({ "by": ["STATE"], "filter": filter })).await;
        assert_eq!(filtered, [(vec![json!("FAILED")], 2)]);
        let day =
            count_executions(&api, json!({ "by": ["BUCKET"], "ms": 86_400_000_i64 * 3_650 })).await;
        assert_eq!(day.iter().map(|(_, count)| count).sum::<i64>(), 4);
        let newest = api.get(COUNTS_QUERY, json!({ "by": ["ERROR"] })).await;
        assert_eq!(newest[0]["sampleExecutionId"], *failed.last().unwrap());
        let code = &newest[0]["keys"][0];

        failed.reverse();
        for (filter, expected) in [
            (json!({ "errorCode": code }), &failed),
            (json!({ "failedTool": "flow.fail" }), &failed),
            (json!({ "failedTool": "flow.echo" }), &Vec::new()),
            (json!({ "errorText": "DECLINED card" }), &failed),
            (json!({ "errorText": "accepted" }), &Vec::new()),
            (json!({ "labels": { "team": "mail" } }), &vec![lone.clone()]),
            (json!({ "labels": { "team": "mail", "env": null } }), &Vec::new()),
            (json!({ "executionIds": [lone, "nonsense"] }), &vec![lone.clone()]),
            (json!({ "executionIds": [] }), &Vec::new()),
        ] {
            let query = "query ($filter: ExecutionFilter) {
                executions(filter: $filter) { totalCount nodes { executionId } } }";
            let found = api.get(query, json!({ "filter": filter })).await;
            let nodes = found["nodes"].as_array().unwrap();
            assert_eq!(&texts_of_field(nodes, "executionId"), expected, "{filter}");
            assert_eq!(found["totalCount"], expected.len(), "{filter}");
        }
        for list in ["requests", "plans"] {
            let total =
                api.get(&format!("{{ {list}(first: 1) {{ totalCount }} }}"), json!({})).await;
            assert_eq!(total["totalCount"], 4, "{list}");
        }
    }
}

#[tokio::test]
async fn children_and_retries_inherit_labels() {
    let [api, _] = apis_without_server().await;
    let inner = api.plan(json!([{ "name": "flow.noop" }])).await;
    let labels = json!({ "team": "shop" });
    let outer = api.start(json!([{ "plan": inner }]), json!({ "labels": labels })).await;
    api.events(&outer).await;
    let query = "{ executions { nodes { labels } } }";
    let all = api.get(query, json!({})).await;
    assert_eq!(all["nodes"], json!([{ "labels": labels }, { "labels": labels }]));
    let retry = "mutation ($id: ID!) { retryExecution(executionId: $id, mode: ALL) { labels } }";
    assert_eq!(api.get(retry, json!({ "id": outer })).await["labels"], labels);
}

#[tokio::test]
async fn executions_inherit_the_labels_of_their_request() {
    for api in apis_without_server().await {
        let plan = "mutation ($query: String!, $labels: JSON) {
            createPlanWithRequestId(query: $query, options: { labels: $labels }) {
                planId request { requestId labels } } }";
        let labels = json!({ "team": "shop", "env": "test" });
        let planned = api.get(plan, json!({ "query": NOOP_QUERY, "labels": labels })).await;
        assert_eq!(planned["request"]["labels"], labels);
        let nodes = api.get("{ requests { nodes { labels } } }", json!({})).await;
        assert_eq!(nodes["nodes"], json!([{ "labels": labels }]));
        let execute = "mutation ($id: ID!, $labels: JSON, $key: String) {
            executePlan(planId: $id, options: { labels: $labels, idempotencyKey: $key }) {
                executionId labels } }";
        let start = |labels: Value, key: Option<&str>| {
            api.ask(execute, json!({ "id": planned["planId"], "labels": labels, "key": key }))
        };
        let own = start(json!({ "env": "live", "zone": "a" }), None).await;
        let expected = json!({ "env": "live", "team": "shop", "zone": "a" });
        assert_eq!(own["data"]["executePlan"]["labels"], expected);
        // This start names no labels. The labels that it gets from the request are not part of the
        // fingerprint of its key.
        let first = start(Value::Null, Some("k")).await;
        assert_eq!(first["data"]["executePlan"]["labels"], labels);
        assert_eq!(start(Value::Null, Some("k")).await, first);
        let other = only_error(&start(labels.clone(), Some("k")).await);
        assert_eq!(other["code"], "CONFLICT", "{other}");
        let many: serde_json::Map<_, _> = (0..15).map(|n| (format!("k{n}"), json!(""))).collect();
        let refused = only_error(&start(json!(many), None).await);
        assert_eq!(refused["code"], "INVALID_ARGUMENT", "{refused}");
    }
}

#[tokio::test]
async fn labels_of_planning_are_part_of_the_fingerprint_of_a_run() {
    let [api, _] = apis_without_server().await;
    let run = "mutation ($query: String!, $labels: JSON) {
        run(query: $query, planning: { labels: $labels },
            execution: { idempotencyKey: \"k\" }) { executionId labels request { labels } } }";
    let labels = json!({ "team": "shop" });
    let with = |labels: &Value| json!({ "query": NOOP_QUERY, "labels": labels });
    let first = api.get(run, with(&labels)).await;
    assert_eq!((&first["labels"], &first["request"]["labels"]), (&labels, &labels));
    assert_eq!(api.get(run, with(&labels)).await, first);
    for other in [Value::Null, json!({ "team": "mail" })] {
        assert_eq!(api.expect_error(run, with(&other)).await["code"], "CONFLICT");
    }
}

#[tokio::test]
async fn wrong_labels_and_counts_are_refused() {
    let [api, _] = apis_without_server().await;
    let plan = api.plan(json!([{ "name": "flow.noop" }])).await;
    let execute = "mutation ($id: ID!, $labels: JSON) {
        executePlan(planId: $id, options: { labels: $labels }) { executionId } }";
    for labels in
        [json!({ "Team": "x" }), json!({ "a": 1 }), json!(["a"]), json!({ "a": "x".repeat(257) })]
    {
        let error = api.expect_error(execute, json!({ "id": plan, "labels": labels })).await;
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{error}");
    }
    let plan = "mutation ($query: String!, $labels: JSON) {
        createPlanWithRequestId(query: $query, options: { labels: $labels }) { planId } }";
    let wrong = json!({ "query": NOOP_QUERY, "labels": { "Team": "x" } });
    let error = api.expect_error(plan, wrong).await;
    assert_eq!(error["code"], "INVALID_ARGUMENT", "{error}");
    let replan = "mutation ($labels: JSON) {
        replanExecution(executionId: \"exec_1_aaaaaaaaa\", options: { labels: $labels }) {
            executionId } }";
    let error = api.expect_error(replan, json!({ "labels": { "team": "x" } })).await;
    assert_eq!(error["code"], "INVALID_ARGUMENT", "{error}");
    for wrong in [
        json!({ "by": [] }),
        json!({ "by": ["STATE", "STATE"] }),
        json!({ "by": ["BUCKET"] }),
        json!({ "by": ["STATE"], "ms": 1_000 }),
        json!({ "by": ["LABEL"] }),
        json!({ "by": ["STATE"], "label": "team" }),
    ] {
        let error = api.expect_error(COUNTS_QUERY, wrong.clone()).await;
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{wrong}: {error}");
    }
}
