//! Events name who caused them: a token, a user of the command line, or an MCP client.

use serde_json::{Value, json};

use super::{
    access::{ADMIN, OPERATOR, Server},
    mcp::Client,
    workspace::Workspace,
};

const PLAN: &str = r#"{"tools":[{"id":"a","name":"flow.echo","requiresApproval":true,"parameters":{"x":1}},
    {"id":"w","name":"flow.wait","parameters":{"name":"go"},"dependsOn":["a"]}]}"#;
const EVENTS_QUERY: &str = "query($id: ID!) { execution(executionId: $id) { createdBy { kind name client } \
    events { type actor { kind name client } } request { timeline { kind message } } } }";

fn list_actors(execution: &Value) -> Vec<(String, Value)> {
    let events = execution["events"].as_array().unwrap().iter();
    let named = events.filter(|event| !event["actor"].is_null());
    named
        .map(|event| (event["type"].as_str().unwrap().to_owned(), event["actor"].clone()))
        .collect()
}

#[tokio::test]
async fn events_name_the_tokens_that_caused_them() {
    let server = Server::new().await;
    let create = "mutation($tools: [ToolExecutionInput!]!) { createPlan(input: { tools: $tools }) { \
                  plan { planId } } }";
    let tools = serde_json::from_str::<Value>(PLAN).unwrap()["tools"].take();
    let plan = server.expect_data(OPERATOR, create, json!({ "tools": tools })).await;
    let plan = &plan["createPlan"]["plan"]["planId"];
    let execute = "mutation($plan: ID!) { executePlan(planId: $plan) { executionId } }";
    let started = server.expect_data(OPERATOR, execute, json!({ "plan": plan })).await;
    let id = &started["executePlan"]["executionId"];
    let approve = "mutation($id: ID!) { approveStep(executionId: $id, stepId: \"a\", approved: true) { state } }";
    let mut approved = server.graphql(ADMIN, approve, json!({ "id": id })).await.1;
    // Repeats the approval, because perhaps the step does not wait for it yet.
    while approved["errors"][0]["extensions"]["code"] == "CONFLICT" {
        approved = server.graphql(ADMIN, approve, json!({ "id": id })).await.1;
    }
    assert_eq!(approved["errors"], Value::Null, "{approved}");
    let cancel = "mutation($id: ID!) { cancelExecution(executionId: $id) { state } }";
    server.expect_data(OPERATOR, cancel, json!({ "id": id })).await;

    let execution = server.expect_data(ADMIN, EVENTS_QUERY, json!({ "id": id })).await;
    let execution = &execution["execution"];
    let token = |name: &str| json!({ "kind": "TOKEN", "name": name, "client": null });
    assert_eq!(execution["createdBy"], token("hands"));
    let expected = [
        ("created".to_owned(), token("hands")),
        ("step_approved".to_owned(), token("owner")),
        ("cancel_requested".to_owned(), token("hands")),
    ];
    assert_eq!(list_actors(execution), expected, "{execution:#}");
    let timeline = execution["request"]["timeline"].as_array().unwrap();
    let messages: Vec<&str> =
        timeline.iter().filter_map(|entry| entry["message"].as_str()).collect();
    assert!(messages.contains(&"`a` was approved by token `owner`"), "{messages:#?}");
    server.wait_for_exit().await;
}

#[tokio::test]
async fn events_name_the_user_of_the_command_line() {
    let workspace = Workspace::new();
    let plan =
        r#"{"tools":[{"id":"a","name":"flow.echo","requiresApproval":true,"parameters":{}}]}"#;
    let plan = workspace.file("plan.json", plan);
    let run = async |arguments: &[&str]| {
        let mut command = workspace.command(arguments);
        let output = command.env("USER", "ada").output().await.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // The execution stops at the approval, because the command asks no user without a terminal.
    let (_, out) = run(&["run", "--plan", &plan, "--json"]).await;
    let execution: Value = serde_json::from_str(&out).unwrap();
    let id = execution["executionId"].as_str().unwrap();
    run(&["approve", id, "a"]).await;
    let shown = workspace.json(&["debug", id, "--full"], 0).await;
    let timeline = shown["timeline"].as_array().unwrap().iter();
    let messages: Vec<&str> = timeline.filter_map(|entry| entry["message"].as_str()).collect();
    let has = |end: &str| messages.iter().any(|message| message.ends_with(end));
    assert!(has("created by user `ada`"), "{messages:#?}");
    assert!(has("`a` was approved by user `ada`"), "{messages:#?}");
}

#[tokio::test]
async fn events_name_the_mcp_client() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    let plan = json!({ "tools": [{ "id": "a", "name": "flow.noop" }] });
    let (plan, _) = client.call_ok("create_plan", json!({ "plan": plan })).await;
    let (done, _) = client.call_ok("execute", json!({ "id": plan["planId"] })).await;
    let id = done["executionId"].as_str().unwrap();
    let shown = workspace.json(&["debug", id, "--full"], 0).await;
    let timeline = shown["timeline"].as_array().unwrap().iter();
    let messages: Vec<&str> = timeline.filter_map(|entry| entry["message"].as_str()).collect();
    assert!(messages.iter().any(|message| message.ends_with(" through `tests`")), "{messages:#?}");
}
