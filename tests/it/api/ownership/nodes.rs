use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_token_is_null() {
    let [ann, bob, ops] = grants();
    for api in apis().await {
        let Owned { request, plan, execution } = run_one(&api, &ann, None).await;
        let step = format!("{execution}/a");
        for id in [&request, &plan, &execution, &step] {
            let node = "query ($id: ID!) { node(id: $id) { id } }";
            for (caller, is_seen) in [(&ann, true), (&bob, false), (&ops, true)] {
                let found = api.get_as(caller, node, json!({ "id": id })).await;
                assert_eq!(found["id"] == **id, is_seen, "{id} {found}");
            }
        }
    }
}

/// A caller that can use only some tools does not find the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_the_caller_cannot_use_is_null() {
    let mut token = Token::new("few", "the-secret-of-few", Role::Operator);
    token.tools = Some(vec!["flow.echo".parse().unwrap()]);
    let few = Access::new([token]).find_grant_by_name("few").unwrap();
    let api = super::super::test_api::api().await;
    let node = "query ($id: ID!) { node(id: $id) { id } }";
    for (id, is_seen) in [
        ("tool:flow.echo", true),
        ("tool:flow.noop", false),
        ("toolset:flow", true),
        ("toolset:file_tools", false),
    ] {
        let found = api.get_as(&few, node, json!({ "id": id })).await;
        assert_eq!(found["id"] == id, is_seen, "{id} {found}");
    }
}
