//! Requests with many or large executions: commands find the parent execution, follow it and
//! control it.

use serde_json::{Value, json};

use super::workspace::Workspace;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}

fn as_list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list"))
}

/// Returns a plan that runs a sub-plan for each item of its input. With `needs_approval`, each
/// child waits for an approval.
fn plan_with_children(workspace: &Workspace, needs_approval: bool) -> String {
    let part = json!({ "tools": [{ "id": "in", "name": "flow.noop", "requiresApproval": needs_approval }] });
    let step = json!({ "id": "each", "plan": part, "forEach": "{{input}}" });
    workspace.file("family.json", &json!({ "tools": [step] }).to_string())
}

fn input_with_items(n: usize) -> String {
    json!((0..n).collect::<Vec<_>>()).to_string()
}

async fn root_execution(workspace: &Workspace) -> (String, String) {
    let found = workspace.json(&["list", "executions", "--first", "200"], 0).await;
    let root =
        as_list(&found).iter().find(|execution| execution["parentExecutionId"].is_null()).unwrap();
    (text(&root["executionId"]).to_owned(), text(&root["requestId"]).to_owned())
}

#[tokio::test]
async fn watch_and_cancel_of_a_request_use_the_parent_and_not_a_child() {
    let workspace = Workspace::new();
    let plan = plan_with_children(&workspace, true);
    assert_eq!(workspace.run(&["run", "--plan", &plan, "--input", "[1]"]).await.status, 4);
    let (root, request) = root_execution(&workspace).await;
    let watched = workspace.json(&["watch", &request], 4).await;
    assert_eq!(watched["executionId"], json!(root));
    let output = workspace.run(&["list", "requests"]).await;
    assert!(output.out.contains("IN_PROGRESS"), "{output:?}");
    workspace.json(&["cancel", &request], 0).await;
    let ended = workspace.json(&["watch", &root], 1).await;
    assert_eq!(ended["state"], "CANCELLED", "{ended:#}");
    assert_eq!(workspace.json(&["watch", &request], 1).await["executionId"], json!(root));
}

#[tokio::test]
async fn debug_of_a_request_with_many_children_shows_the_parent_first() {
    let workspace = Workspace::new();
    let plan = plan_with_children(&workspace, false);
    let ran = workspace.json(&["run", "--plan", &plan, "--input", &input_with_items(60)], 0).await;
    let (root, request) = (text(&ran["executionId"]), text(&ran["requestId"]));
    for id in [request, root] {
        let answer = workspace.json(&["debug", id], 0).await;
        assert_eq!(answer["executions"][0]["executionId"], root, "{id}");
        assert!(as_list(&answer["executions"]).len() > 50);
        let output = workspace.run(&["debug", id]).await;
        assert!(output.out.starts_with("COMPLETED"), "{}", output.out);
        assert!(!output.out.contains("NOT EXECUTED"), "{}", output.out);
    }
    let output = workspace.run(&["list", "requests"]).await;
    assert!(output.out.contains("COMPLETED"), "{output:?}");
}

#[tokio::test]
async fn run_exits_with_4_when_unfollowed_children_wait() {
    let workspace = Workspace::new();
    let plan = plan_with_children(&workspace, true);
    let waits = workspace.run(&["run", "--plan", &plan, "--input", &input_with_items(70)]).await;
    assert_eq!(waits.status, 4, "{waits:?}");
}

#[tokio::test]
async fn debug_shows_all_executions_of_a_request_with_large_outputs() {
    let workspace = Workspace::new();
    let step = |n: usize| json!({ "id": format!("s{n}"), "name": "flow.echo", "parameters": { "x": "{{input}}" } });
    let plan = workspace
        .file("plan.json", &json!({ "tools": (0..8).map(step).collect::<Vec<_>>() }).to_string());
    let input = workspace.file("input.json", &json!("x".repeat(1_000_000)).to_string());
    let ran = workspace.json(&["run", "--plan", &plan, "--input", &format!("@{input}")], 0).await;
    let (first, request) = (text(&ran["executionId"]), text(&ran["requestId"]));
    for _ in 0..2 {
        workspace.json(&["retry", first], 0).await;
    }
    let answer = workspace.json(&["debug", request], 0).await;
    let executions = as_list(&answer["executions"]);
    assert_eq!(executions.len(), 3);
    assert_eq!(executions[0]["executionId"], first, "the oldest execution is first");
    for execution in executions {
        assert_eq!(text(&execution["outputs"]["s7"]["x"]).len(), 1_000_000);
    }
    let output = workspace.run(&["list", "requests"]).await;
    assert!(output.status == 0 && output.out.contains("COMPLETED"), "{}", output.err);
}

#[tokio::test]
async fn debug_shows_the_whole_timeline_of_a_long_execution() {
    let workspace = Workspace::new();
    let step = json!({ "id": "l", "name": "flow.noop", "forEach": "{{input}}" });
    let plan = workspace.file("plan.json", &json!({ "tools": [step] }).to_string());
    let input = workspace.file("input.json", &input_with_items(6_000));
    let ran = workspace.json(&["run", "--plan", &plan, "--input", &format!("@{input}")], 0).await;
    let answer = workspace.json(&["debug", text(&ran["requestId"])], 0).await;
    let timeline = as_list(&answer["timeline"]);
    assert!(timeline.len() > 12_000, "{}", timeline.len());
    assert_eq!(timeline.last().unwrap()["kind"], "finished");
}
