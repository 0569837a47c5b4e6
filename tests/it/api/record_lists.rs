//! Saved plans and calls outside plans as pages.

use serde_json::{Value, json};

use super::test_api::{TestApi, apis_without_server, json_to_text, texts_of_field};

/// Reads all pages of a connection. `field` is the call of the field, such as `things(first: 2`.
async fn read_pages(api: &TestApi, field: &str, selection: &str) -> Vec<Vec<Value>> {
    let query = format!(
        "query ($after: String) {{ {field}, after: $after) {{ totalCount nodes {{ {selection} }}
            edges {{ cursor }} pageInfo {{ hasNextPage hasPreviousPage endCursor }} }} }}"
    );
    let (mut pages, mut after) = (Vec::new(), Value::Null);
    loop {
        let page = api.get(&query, json!({ "after": after })).await;
        assert_eq!(page["pageInfo"]["hasPreviousPage"], json!(after != Value::Null));
        after = page["pageInfo"]["endCursor"].clone();
        assert_eq!(page["edges"].as_array().unwrap().last().unwrap()["cursor"], after);
        pages.push(page["nodes"].as_array().unwrap().clone());
        if page["pageInfo"]["hasNextPage"] == false {
            let total = pages.iter().map(Vec::len).sum::<usize>();
            assert_eq!(page["totalCount"], json!(total));
            return pages;
        }
    }
}

#[tokio::test]
async fn saved_plans_are_paged_by_name() {
    for api in apis_without_server().await {
        let plan = api.plan(json!([{ "name": "flow.noop" }])).await;
        let store = "mutation ($name: String!, $id: ID!, $inputs: JSON) {
            storePlan(name: $name, planId: $id, inputs: $inputs) { name planId inputs plan { id } } }";
        for name in ["c", "a", "e", "b", "d"] {
            let inputs = json!({ "n": { "type": "integer" } });
            let variables = json!({ "name": name, "id": plan, "inputs": inputs });
            let saved = api.get(store, variables).await;
            assert_eq!((&saved["name"], &saved["planId"]), (&json!(name), &json!(plan)));
            assert_eq!(saved["inputs"]["required"], json!(["n"]));
            assert_eq!(saved["plan"]["id"], json!(plan));
        }
        let pages = read_pages(&api, "savedPlanConnection(first: 2", "name").await;
        let names: Vec<_> = pages.iter().map(|page| texts_of_field(page, "name")).collect();
        assert_eq!(names, [vec!["a", "b"], vec!["c", "d"], vec!["e"]]);
        let refused = json!({ "name": " ", "id": plan });
        assert_eq!(api.expect_error(store, refused).await["code"], "INVALID_ARGUMENT");
        let unknown = json!({ "name": "f", "id": "plan_1_aaaaaaaaa" });
        assert_eq!(api.expect_error(store, unknown).await["code"], "NOT_FOUND");
    }
}

#[tokio::test]
async fn calls_outside_plans_are_paged_newest_first() {
    for api in apis_without_server().await {
        let call = "mutation ($name: String!, $n: JSON) { callTool(name: $name, parameters: $n) {
            callId statusEnum } }";
        let mut ids = Vec::new();
        for (n, tool) in ["flow.echo", "flow.noop", "flow.echo", "flow.fail", "flow.echo"]
            .into_iter()
            .enumerate()
        {
            let parameters =
                if tool == "flow.fail" { json!({ "message": "m" }) } else { json!({ "n": n }) };
            let made = api.get(call, json!({ "name": tool, "n": parameters })).await;
            let status = if tool == "flow.fail" { "error" } else { "success" };
            assert_eq!(made["statusEnum"], status, "{made}");
            ids.push(json_to_text(&made["callId"]));
        }
        ids.reverse();
        let pages = read_pages(&api, "toolHistoryConnection(first: 2", "callId").await;
        let found: Vec<_> = pages.iter().map(|page| texts_of_field(page, "callId")).collect();
        assert_eq!(found, [&ids[..2], &ids[2..4], &ids[4..]]);
        let echoes = "toolHistoryConnection(toolName: \"flow.echo\", first: 2";
        let pages = read_pages(&api, echoes, "callId").await;
        let found: Vec<_> = pages.iter().flat_map(|page| texts_of_field(page, "callId")).collect();
        assert_eq!(found, [&ids[0], &ids[2], &ids[4]].map(String::as_str));
        for arguments in ["after: \"x\"", "after: \"5.exec_1_aaaaaaaaa\"", "first: 0", "first: 201"]
        {
            let query = format!("{{ toolHistoryConnection({arguments}) {{ totalCount }} }}");
            assert_eq!(api.expect_error(&query, json!({})).await["code"], "INVALID_ARGUMENT");
        }
    }
}
