//! Tests of lists: pages, filters, damaged executions, and limits on searches and answers.

use serde_json::{Value, json};
use shared::limits;

use super::test_api::{api, apis_without_server, json_to_text, texts_of_field};

#[tokio::test]
async fn lists_are_paged_and_filtered() {
    for api in apis_without_server().await {
        let mut ids = Vec::new();
        for n in 0..5 {
            let tool = if n == 2 { "flow.echo" } else { "flow.noop" };
            let id = api.start(json!([{ "name": tool }]), json!({})).await;
            api.events(&id).await;
            ids.push(id);
        }
        for list in ["executions", "plans", "requests"] {
            let query = format!(
                "query ($after: String) {{ {list}(first: 2, after: $after) {{
                    edges {{ cursor node {{ requestId createdAt }} }} nodes {{ requestId }}
                    pageInfo {{ hasNextPage hasPreviousPage startCursor endCursor }} }} }}"
            );
            let (mut after, mut parts, mut seen) = (Value::Null, Vec::new(), Vec::new());
            loop {
                let part = api.get(&query, json!({ "after": after })).await;
                let nodes = part["nodes"].as_array().unwrap();
                let edges = part["edges"].as_array().unwrap();
                assert_eq!(edges.len(), nodes.len());
                assert_eq!(edges[0]["cursor"], part["pageInfo"]["startCursor"]);
                assert_eq!(part["pageInfo"]["hasPreviousPage"], json!(after != Value::Null));
                after = part["pageInfo"]["endCursor"].clone();
                assert_eq!(edges.last().unwrap()["cursor"], after);
                parts.push(nodes.len());
                seen.extend(edges.iter().map(|edge| json_to_text(&edge["node"]["createdAt"])));
                if part["pageInfo"]["hasNextPage"] == false {
                    break;
                }
            }
            assert_eq!(parts, [2, 2, 1], "{list}");
            assert!(seen.is_sorted_by(|a, b| a >= b), "{list} {seen:?}");
        }
        assert_filters(&api, &ids).await;
    }
}

#[tokio::test]
async fn lists_are_paged_backwards() {
    for api in apis_without_server().await {
        for _ in 0..5 {
            let id = api.start(json!([{ "name": "flow.noop" }]), json!({})).await;
            api.events(&id).await;
        }
        for list in ["executions", "plans", "requests"] {
            let all = format!("{{ {list} {{ nodes {{ id }} }} }}");
            let all = api.get(&all, json!({})).await["nodes"].take();
            let query = format!(
                "query ($before: String, $first: Int, $last: Int) {{
                    {list}(first: $first, last: $last, before: $before) {{ nodes {{ id }}
                    pageInfo {{ hasNextPage hasPreviousPage startCursor }} }} }}"
            );
            let (mut before, mut lengths, mut seen) = (Value::Null, Vec::new(), Vec::new());
            loop {
                let part = api.get(&query, json!({ "last": 2, "before": before })).await;
                let nodes = part["nodes"].as_array().unwrap();
                assert_eq!(part["pageInfo"]["hasNextPage"], json!(before != Value::Null));
                before = part["pageInfo"]["startCursor"].clone();
                lengths.push(nodes.len());
                seen.splice(0..0, nodes.iter().cloned());
                if part["pageInfo"]["hasPreviousPage"] == false {
                    break;
                }
            }
            assert_eq!((lengths, json!(seen)), (vec![2, 2, 1], all), "{list}");
            let without_first = format!("{{ {list}(last: 2) {{ nodes {{ id }} }} }}");
            let last = api.get(&without_first, json!({})).await;
            assert_eq!(last["nodes"], json!(seen[3..]), "{list}");
            for variables in [
                json!({ "first": 2, "last": 2 }),
                json!({ "last": 0 }),
                json!({ "last": 201 }),
                json!({ "last": -1 }),
                json!({ "last": 2, "before": "nonsense" }),
            ] {
                let refusal = api.expect_error(&query, variables).await;
                assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{list} {refusal}");
            }
        }
    }
}

async fn assert_filters(api: &super::test_api::TestApi, ids: &[String]) {
    let query = "query ($filter: ExecutionFilter) {
        executions(filter: $filter) { nodes { executionId } } }";
    let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
    let created = api.execution(&ids[2], "createdAt requestId planId").await;
    let one = vec![ids[2].clone()];
    for (filter, expected) in [
        (json!(null), &newest_first),
        (json!({ "state": ["COMPLETED", "FAILED"] }), &newest_first),
        (json!({ "state": ["FAILED"] }), &Vec::new()),
        (json!({ "state": [] }), &Vec::new()),
        (json!({ "toolName": "flow.echo" }), &one),
        (json!({ "requestId": created["requestId"] }), &one),
        (json!({ "planId": created["planId"] }), &one),
        (json!({ "planId": "nonsense" }), &Vec::new()),
        (json!({ "requestId": "plan_1_aaaaaaaaa" }), &Vec::new()),
        (json!({ "from": created["createdAt"] }), &newest_first[..3].to_vec()),
        (json!({ "to": created["createdAt"] }), &newest_first[3..].to_vec()),
    ] {
        let found = api.get(query, json!({ "filter": filter })).await;
        assert_eq!(
            &texts_of_field(found["nodes"].as_array().unwrap(), "executionId"),
            expected,
            "{filter}"
        );
    }
    let query = "query ($filter: PlanFilter) { plans(filter: $filter) { nodes { planId } } }";
    let found = api.get(query, json!({ "filter": { "search": "FLOW.ECHO" } })).await;
    assert_eq!(found["nodes"], json!([{ "planId": created["planId"] }]));
    let query = "query ($filter: RequestFilter) {
        requests(filter: $filter) { nodes { requestId } } }";
    for (filter, expected) in
        [(json!({ "search": "echo", "state": "COMPLETED" }), 1), (json!({ "state": "WAITING" }), 0)]
    {
        let found = api.get(query, json!({ "filter": filter })).await;
        assert_eq!(found["nodes"].as_array().map(Vec::len), Some(expected), "{filter}");
    }
}

#[tokio::test]
async fn a_damaged_execution_does_not_hide_others_in_a_list() {
    let [_, api] = apis_without_server().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = api.start(json!([{ "name": "flow.noop" }]), json!({})).await;
        api.events(&id).await;
        ids.push(id);
    }
    let file = rusqlite::Connection::open(api.file().unwrap()).unwrap();
    file.execute_batch("UPDATE events SET json = '[{]' WHERE log = 2").unwrap();
    let list = api.get("{ executions { nodes { executionId } } }", json!({})).await;
    let left: Vec<String> = texts_of_field(list["nodes"].as_array().unwrap(), "executionId");
    assert_eq!(left, [ids[2].clone(), ids[0].clone()]);
    let one = json!({ "id": ids[1] });
    let refused =
        api.expect_error("query ($id: ID!) { execution(executionId: $id) { state } }", one);
    assert_eq!(refused.await["code"], "INTERNAL");
}

#[tokio::test]
async fn a_search_with_too_many_words_is_refused() {
    for api in apis_without_server().await {
        let query = "query ($search: String!) {
            requests(filter: { search: $search }) { nodes { requestId } }
            plans(filter: { search: $search }) { nodes { planId } } }";
        let words =
            |n: usize| (0..n).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
        let longest_search = api.ask(query, json!({ "search": words(64) })).await;
        assert!(longest_search.get("errors").is_none(), "{longest_search:#}");
        let same = api.ask(query, json!({ "search": "word WORD ".repeat(2_000) })).await;
        assert!(same.get("errors").is_none(), "{same:#}");
        let many = api.ask(query, json!({ "search": words(1_500) })).await;
        for error in many["errors"].as_array().unwrap() {
            assert_eq!(error["extensions"]["code"], "LIMIT_EXCEEDED", "{error:#}");
        }
    }
}

#[tokio::test]
async fn pages_of_large_events_are_smaller() {
    let api = api().await;
    let large = "x".repeat(limits::OUTPUT_BYTES - 100);
    let tools: Vec<_> = (0..4)
        .map(|_| json!({ "name": "flow.echo", "parameters": { "x": "{{input}}" } }))
        .collect();
    let mut ids = Vec::new();
    for _ in 0..5 {
        let id = api.start(json!(tools), json!({ "input": large })).await;
        api.events(&id).await;
        ids.insert(0, id);
    }
    // Each execution has nine large values: its input, and the parameters and output of each step.
    let (mut found, mut after, mut parts) = (Vec::new(), Value::Null, 0);
    loop {
        let query = "query ($after: String) { executions(first: 5, after: $after) {
            nodes { executionId } pageInfo { hasNextPage endCursor } } }";
        let part = api.get(query, json!({ "after": after })).await;
        let nodes = part["nodes"].as_array().unwrap();
        found.extend(nodes.iter().map(|node| json_to_text(&node["executionId"])));
        after = part["pageInfo"]["endCursor"].clone();
        parts += 1;
        if part["pageInfo"]["hasNextPage"] == false {
            break;
        }
    }
    assert_eq!((found, parts), (ids.clone(), 2));
    let first = &ids[0];
    let whole = api.execution(first, "events(first: 10000) { seq }").await;
    assert!(whole["events"].as_array().unwrap().len() > 9, "nine large events fit into one page");
    let request = api.execution(first, "request { timeline { kind } }").await;
    assert!(request["request"]["timeline"].is_array());
}
