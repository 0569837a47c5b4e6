//! The audit log has every action of people and of Faber with its actor: through the API, the
//! command line and MCP.

use serde_json::{Value, json};

use super::{
    access::{ADMIN, OPERATOR, Server, VIEWER},
    mcp::Client,
    workspace::Workspace,
};

const AUDIT_QUERY: &str = "query($filter: AuditFilter, $first: Int, $after: String) { \
    audit(filter: $filter, first: $first, after: $after) { totalCount \
    nodes { id at actor { kind name client } action requestId planId executionId stepId name detail } \
    pageInfo { hasNextPage endCursor } } }";

async fn list_audit_entries(server: &Server, filter: Value) -> Vec<Value> {
    let variables = json!({ "filter": filter, "first": 200 });
    let page = server.expect_data(ADMIN, AUDIT_QUERY, variables).await["audit"].take();
    let nodes = page["nodes"].as_array().unwrap().clone();
    assert_eq!(page["totalCount"], nodes.len());
    nodes
}

/// Returns a line for each entry, the oldest first: the action, the actor, and the step and the
/// name of the object if the entry has them.
fn describe_entries(entries: &[Value]) -> Vec<String> {
    let describe = |entry: &Value| {
        let texts = [&entry["action"], &entry["actor"]["name"], &entry["stepId"], &entry["name"]];
        let texts: Vec<&str> = texts.into_iter().filter_map(Value::as_str).collect();
        texts.join(" ")
    };
    entries.iter().rev().map(describe).collect()
}

#[tokio::test]
async fn calls_outside_plans_are_listed_with_their_outcomes() {
    let server = Server::new().await;
    let call = "mutation($name: String!, $parameters: JSON) { \
                callTool(name: $name, parameters: $parameters) { callId status } }";
    let call = async |token: &str, name: &str, parameters: Value| {
        let variables = json!({ "name": name, "parameters": parameters });
        server.expect_data(token, call, variables).await["callTool"].take()
    };
    let done = call(OPERATOR, "flow.echo", json!({ "text": "secret" })).await;
    let failed = call(ADMIN, "flow.fail", json!({ "message": "secret" })).await;
    assert_eq!((&done["status"], &failed["status"]), (&json!("success"), &json!("error")));
    // A call of an unknown tool gets no entry in the audit log.
    assert_eq!(call(OPERATOR, "flow.nothing", json!({})).await["status"], "error");

    let entries = list_audit_entries(&server, json!({ "action": "call_tool" })).await;
    assert_eq!(
        describe_entries(&entries),
        ["call_tool hands flow.echo", "call_tool owner flow.fail"]
    );
    for (entry, called, outcome) in
        [(&entries[1], &done, "SUCCEEDED"), (&entries[0], &failed, "FAILED")]
    {
        let detail = json!({ "callId": called["callId"], "outcome": outcome });
        assert_eq!(entry["detail"], detail);
    }
    assert!(!json!(entries).to_string().contains("secret"), "{entries:#?}");
    server.wait_for_exit().await;
}

async fn control_an_execution(server: &Server) -> (String, String) {
    let create = "mutation($tools: [ToolExecutionInput!]!) { createPlan(input: { tools: $tools }) { \
                  plan { planId } } }";
    let tools = json!([
        { "id": "a", "name": "flow.echo", "parameters": { "x": 1 }, "requiresApproval": true },
        { "id": "w", "name": "flow.wait", "parameters": { "name": "go" } },
        { "id": "b", "name": "flow.echo", "parameters": { "x": 2 }, "requiresApproval": true,
          "dependsOn": ["a"], "onError": "ignore" },
        { "id": "v", "name": "flow.wait", "parameters": { "name": "never" } },
    ]);
    let plan = server.expect_data(OPERATOR, create, json!({ "tools": tools })).await;
    let plan = plan["createPlan"]["plan"]["planId"].as_str().unwrap().to_owned();
    let execute = "mutation($plan: ID!) { executePlan(planId: $plan) { executionId } }";
    let started = server.expect_data(OPERATOR, execute, json!({ "plan": plan })).await;
    let id = started["executePlan"]["executionId"].as_str().unwrap().to_owned();
    for (token, call) in [
        (ADMIN, "approveStep(executionId: $id, stepId: \"a\", approved: true)"),
        (OPERATOR, "pauseExecution(executionId: $id)"),
        (ADMIN, "resumeExecution(executionId: $id)"),
        (OPERATOR, "signalExecution(executionId: $id, name: \"go\", payload: \"secret\")"),
        (
            ADMIN,
            "approveStep(executionId: $id, stepId: \"b\", approved: false, comment: \"secret\")",
        ),
        (OPERATOR, "cancelExecution(executionId: $id, reason: \"secret\")"),
    ] {
        let mutation = format!("mutation($id: ID!) {{ {call} {{ state }} }}");
        let mut answer = server.graphql(token, &mutation, json!({ "id": id })).await.1;
        // Repeats the mutation, because perhaps the step does not wait yet.
        while answer["errors"][0]["extensions"]["code"] == "CONFLICT" {
            answer = server.graphql(token, &mutation, json!({ "id": id })).await.1;
        }
        assert_eq!(answer["errors"], Value::Null, "{answer}");
    }
    (plan, id)
}

async fn wait_until_finished(server: &Server, id: &str) {
    let query = "query($id: ID!) { execution(executionId: $id) { state } }";
    loop {
        let found = server.expect_data(ADMIN, query, json!({ "id": id })).await;
        if ["COMPLETED", "FAILED", "CANCELLED"]
            .contains(&found["execution"]["state"].as_str().unwrap())
        {
            return;
        }
    }
}

#[tokio::test]
async fn commands_to_executions_are_listed_with_their_actors() {
    let server = Server::new().await;
    let (plan, id) = control_an_execution(&server).await;
    wait_until_finished(&server, &id).await;
    let retry = "mutation($id: ID!) { retryExecution(executionId: $id) { executionId } }";
    let retried = server.expect_data(OPERATOR, retry, json!({ "id": id })).await;
    let retried = &retried["retryExecution"]["executionId"];

    let entries = list_audit_entries(&server, Value::Null).await;
    assert_eq!(
        describe_entries(&entries),
        [
            "plan hands",
            "execute hands",
            "approve owner a",
            "pause hands",
            "resume owner",
            "signal hands go",
            "reject owner b",
            "cancel hands",
            "retry hands",
        ]
    );
    assert!(!json!(entries).to_string().contains("secret"), "{entries:#?}");
    let retry = &entries[0];
    assert_eq!((&retry["executionId"], &retry["detail"]), (retried, &json!({ "retryOf": id })));
    assert_eq!(retry["actor"], json!({ "kind": "TOKEN", "name": "hands", "client": null }));
    assert_eq!(entries[8]["planId"], plan);
    assert!(entries[8]["requestId"].as_str().unwrap().starts_with("req_"));
    assert_eq!(entries[8]["detail"], json!({ "version": 1, "planner": "explicit" }));

    for (filter, count) in [
        (json!({ "executionId": id }), 7),
        (json!({ "executionId": id, "actorName": "owner" }), 3),
        (json!({ "executionId": "nonsense" }), 0),
        (json!({ "actorKind": "TOKEN", "actorName": "hands", "action": "pause" }), 1),
        (json!({ "actorKind": "USER" }), 0),
        (json!({ "from": entries[2]["at"], "to": entries[0]["at"] }), 2),
    ] {
        assert_eq!(list_audit_entries(&server, filter.clone()).await.len(), count, "{filter}");
    }
    let first = json!({ "filter": { "actorName": "hands" }, "first": 4 });
    let page = server.expect_data(ADMIN, AUDIT_QUERY, first).await["audit"].take();
    assert_eq!((&page["totalCount"], &page["pageInfo"]["hasNextPage"]), (&json!(6), &json!(true)));
    let after = &page["pageInfo"]["endCursor"];
    let next = json!({ "filter": { "actorName": "hands" }, "first": 4, "after": after });
    let page = server.expect_data(ADMIN, AUDIT_QUERY, next).await["audit"].take();
    assert_eq!(page["nodes"].as_array().unwrap().len(), 2);
    server.wait_for_exit().await;
}

#[tokio::test]
async fn changes_of_plans_tools_and_data_are_listed_with_their_actors() {
    let server = Server::new().await;
    let create = "mutation { createPlan(input: { tools: [{ id: \"a\", name: \"flow.noop\" }] }) { \
                  plan { planId } } }";
    let plan = server.expect_data(ADMIN, create, json!({})).await;
    let plan = &plan["createPlan"]["plan"]["planId"];
    for mutation in [
        "revisePlan(planId: $plan, input: { tools: [{ id: \"b\", name: \"flow.noop\" }] }) { plan { version } }",
        "savePlan(name: \"daily\", planId: $plan)",
        "removeSavedPlan(name: \"daily\")",
        "registerTool(input: { name: \"now\", description: \"The time.\", parameters: {}, run: {} }) { name }",
        "removeTool(name: \"now\")",
        "addToolSet(input: { name: \"extra\", description: \"More.\", source: { tools: [] } }) { name }",
        "deactivateToolSets(names: [\"extra\", \"nothing\"]) { changed }",
        "activateToolSets(names: [\"extra\"]) { changed }",
        "removeToolSet(name: \"extra\")",
        "setContext(name: \"shop\", data: { open: true })",
        "addAction(input: { name: \"pay\", description: \"Pays.\" }) { warnings }",
        "connectTool(name: \"local.hello\", actions: [{ name: \"pay\" }]) { warnings }",
        "setScore(from: \"pay\", to: \"local.hello\", score: 0.5)",
        "disconnectTool(name: \"local.hello\")",
        "removeAction(name: \"pay\")",
        "updateToolkit(yaml: \"actions: []\") { warnings }",
        "bulkControl(filter: {}, action: CANCEL)",
        "prune(olderThan: \"30d\") { executions }",
        // Repeated removals change nothing, so they must add no entry.
        "removeSavedPlan(name: \"daily\")",
        "removeTool(name: \"now\")",
        "removeToolSet(name: \"extra\")",
        "removeAction(name: \"pay\")",
        "activateToolSets(names: [\"nothing\"]) { changed }",
    ] {
        let used = if mutation.contains("$plan") { "($plan: ID!)" } else { "" };
        let text = format!("mutation{used} {{ {mutation} }}");
        server.expect_data(ADMIN, &text, json!({ "plan": plan })).await;
    }
    let entries = list_audit_entries(&server, Value::Null).await;
    assert_eq!(
        describe_entries(&entries),
        [
            "plan owner",
            "plan owner",
            "save_plan owner daily",
            "remove_saved_plan owner daily",
            "register_tool owner local.now",
            "remove_tool owner now",
            "add_tool_set owner extra",
            "deactivate_tool_set owner extra",
            "activate_tool_set owner extra",
            "remove_tool_set owner extra",
            "set_context owner shop",
            "add_action owner pay",
            "connect_tool owner local.hello",
            "set_score owner pay",
            "disconnect_tool owner local.hello",
            "remove_action owner pay",
            "update_toolkit owner",
            "bulk_control owner",
            "prune owner",
        ]
    );
    let pruned = json!({ "olderThan": "30d", "executions": 0, "plans": 0, "requests": 0 });
    assert_eq!(entries[0]["detail"], pruned);
    assert_eq!(entries[1]["detail"], json!({ "action": "CANCEL", "executions": 0 }));
    server.wait_for_exit().await;
}

#[tokio::test]
async fn only_an_admin_reads_the_audit_log() {
    let server = Server::new().await;
    for token in [VIEWER, OPERATOR] {
        let (code, message) = server.expect_refusal(token, "{ audit { totalCount } }").await;
        assert_eq!(code, "FORBIDDEN");
        assert!(message.contains("`audit` needs the role `admin`"), "{message}");
    }
    let unknown = "{ audit(filter: { action: \"dance\" }) { totalCount } }";
    let (code, message) = server.expect_refusal(ADMIN, unknown).await;
    assert_eq!(code, "INVALID_ARGUMENT");
    assert!(message.contains("`approve`"), "{message}");
    let context = "mutation { setContext(name: \"shop\", data: { open: true }) }";
    server.expect_data(ADMIN, context, json!({})).await;
    let (status, out) = server.run(ADMIN, &["audit", "--actor", "owner"]).await;
    assert_eq!(status, Some(0));
    assert!(out.contains("token:owner  set_context  shop"), "{out}");
    assert_eq!(server.run(OPERATOR, &["audit"]).await.0, Some(2));
    server.wait_for_exit().await;
}

#[tokio::test]
async fn the_audit_log_names_users_mcp_clients_and_restores() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", r#"{"tools":[{"id":"a","name":"flow.noop"}]}"#);
    let mut run = workspace.command(&["run", "--plan", &plan, "--json"]);
    let done = run.env("USER", "ada").output().await.unwrap();
    assert!(done.status.success(), "{done:?}");
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    let id = done["executionId"].as_str().unwrap();
    let audit = async |arguments: &[&str]| {
        let listed = workspace.json(&[&["audit"], arguments].concat(), 0).await;
        listed.as_array().unwrap().clone()
    };
    let entries = audit(&["--actor", "ada", "--since", "1d"]).await;
    assert_eq!(describe_entries(&entries), ["plan ada", "execute ada"]);
    assert_eq!(entries[0]["actor"]["kind"], "USER");
    assert_eq!(audit(&["--execution", id, "--actor", "user:ada"]).await, entries[..1]);
    assert_eq!(audit(&["--action", "plan", "--first", "1"]).await, entries[1..]);
    assert_eq!(audit(&["--until", "1d"]).await.len(), 0);

    let mut client = Client::start_in(&workspace, &[]).await;
    client.call_ok("execute", json!({ "id": done["planId"] })).await;
    let entries = audit(&["--action", "execute"]).await;
    assert_eq!(entries[0]["actor"]["client"], "tests", "{entries:#?}");

    workspace.json(&["backup", "b.fbk"], 0).await;
    workspace.json(&["restore", "b.fbk", "--store", "sqlite:copy.db"], 0).await;
    let mut before = audit(&[]).await;
    assert_eq!(before.remove(0)["action"], "backup", "it is recorded when the backup is complete");
    let after = audit(&["--store", "sqlite:copy.db"]).await;
    assert_eq!(after[1..], before);
    assert_eq!(
        (&after[0]["action"], &after[0]["actor"]["kind"]),
        (&json!("restore"), &json!("USER"))
    );
    let wrong = workspace.json(&["audit", "--action", "dance"], 2).await;
    assert_eq!(wrong["error"]["code"], "INVALID_ARGUMENT", "{wrong}");
}
