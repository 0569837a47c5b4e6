//! Replans of failed executions: requested, automatic, and by a step of the plan.

use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;
use tokio::{net::TcpListener, time::timeout};

use super::{
    super::mcp::Client, DEMO_QUERY, MockModel, Workspace, configure, demo_plan, transcript_kinds,
};

/// Returns a plan whose second step fails, as a model writes it.
fn failing_plan() -> String {
    let mut failing: Value = serde_json::from_str(&demo_plan("alice@test.com")).unwrap();
    failing["tools"][1] = json!({ "name": "flow.fail", "id": "createBlog",
        "dependsOn": ["createAuthor"], "parameters": { "message": "the blog is closed" } });
    failing.to_string()
}

#[tokio::test]
async fn replan_after_a_failure_reuses_the_steps_that_succeeded() {
    let workspace = Workspace::new();
    let answers = json!([
        { "content": failing_plan() },
        // This version would create a second author, so it is rejected with a diagnostic.
        { "content": demo_plan("alicia@test.com") },
        { "content": demo_plan("alice@test.com") },
    ]);
    let model = MockModel::with_answers(&workspace, "model", answers).await;
    configure(&workspace, &model.planner_settings("openai"));
    let failed = workspace.json(&["run", DEMO_QUERY], 1).await;
    assert_eq!((&failed["state"], &failed["successful"]), (&json!("FAILED"), &json!(1)));
    let id = failed["executionId"].as_str().unwrap();
    let offline = workspace.json(&["replan", id, "--planner", "offline"], 3).await;
    assert_eq!(offline["error"]["code"], "PLANNER_UNAVAILABLE", "{offline:#}");

    let ran = workspace.json(&["replan", id], 0).await;
    assert_eq!((&ran["state"], &ran["successful"]), (&json!("COMPLETED"), &json!(2)), "{ran:#}");
    assert_eq!(ran["requestId"], failed["requestId"]);
    assert_ne!(ran["planId"], failed["planId"]);
    let made = &ran["outputs"]["createAuthor"];
    assert_eq!(made, &failed["outputs"]["createAuthor"], "the author is reused");
    assert_eq!(ran["outputs"]["createBlog"]["authorId"], made["_id"]);

    let request = workspace.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
    let kinds = transcript_kinds(&request);
    let anew =
        kinds.iter().rposition(|kind| kind == "replan").expect("the transcript has the replan");
    let expected =
        ["replan", "selection", "prompt", "reply", "repair", "prompt", "reply", "usage", "draft"];
    assert_eq!(kinds[anew..anew + expected.len()], expected);
    let versions: Vec<_> = request["plans"].as_array().unwrap().iter().collect();
    assert_eq!(versions.iter().map(|version| &version["version"]).collect::<Vec<_>>(), [1, 2]);
    let requests = model.requests().await;
    let prompt = requests[1]["body"]["messages"][1]["content"].as_str().unwrap();
    for expected in ["the blog is closed", "\"state\":\"succeeded\"", "<plan>", "<results>"] {
        assert!(prompt.contains(expected), "{expected}: {prompt}");
    }
    let complaint = requests[2]["body"]["messages"].to_string();
    assert!(complaint.contains("plan.done_twice"), "{complaint}");

    let again = workspace.json(&["replan", ran["executionId"].as_str().unwrap()], 2).await;
    assert_eq!(again["error"]["code"], "CONFLICT", "{again:#}");
    // A failed execution is replanned only once. The error names the execution that the first
    // replan started.
    let twice = workspace.json(&["replan", id], 2).await;
    assert_eq!(twice["error"]["code"], "CONFLICT", "{twice:#}");
    let message = twice["error"]["message"].as_str().unwrap();
    assert!(message.contains(ran["executionId"].as_str().unwrap()), "{message}");
    assert_eq!(model.requests().await.len(), 3, "the model is not asked");
}

/// The model renames a step, which stays the same call, and leaves out an approval, which Faber
/// keeps.
#[tokio::test]
async fn a_replan_reuses_a_call_that_the_model_renamed() {
    let workspace = Workspace::new();
    let mut first: Value = serde_json::from_str(&failing_plan()).unwrap();
    first["tools"][1]["requiresApproval"] = json!(false);
    let publish = json!({ "name": "createBlog", "id": "publish", "requiresApproval": true,
        "dependsOn": ["createBlog"], "parameters": {
            "authorId": "{{createAuthor._id}}", "title": "Hello", "content": "about world" } });
    first["tools"].as_array_mut().unwrap().push(publish);
    let renamed = json!({ "tools": [
        { "id": "author_again", "name": "createAuthor",
          "parameters": { "name": "Alice", "email": "alice@test.com" } },
    ] });
    let answers = json!([
        { "content": first.to_string() },
        { "content": renamed.to_string() },
        { "content": demo_plan("alice@test.com") },
    ]);
    let model = MockModel::with_answers(&workspace, "model", answers).await;
    configure(&workspace, &model.planner_settings("openai"));
    let failed = workspace.json(&["run", DEMO_QUERY], 1).await;
    // The next version waits for the approval that the model left out.
    let ran = workspace.json(&["replan", failed["executionId"].as_str().unwrap()], 4).await;
    assert_eq!(ran["state"], "WAITING", "{ran:#}");
    assert_eq!(ran["outputs"]["createAuthor"], failed["outputs"]["createAuthor"]);
    let complaint = model.requests().await[2]["body"]["messages"].to_string();
    assert!(complaint.contains("would repeat the call of `createAuthor`"), "{complaint}");
}

#[tokio::test]
async fn an_agent_cannot_be_replanned() {
    let workspace = Workspace::new();
    let model = MockModel::with_answers(
        &workspace,
        "model",
        json!([{ "error": { "message": "no" }, "status": 400 }]),
    )
    .await;
    configure(&workspace, &model.planner_settings("openai"));
    let failed = workspace.json(&["agent", DEMO_QUERY], 1).await;
    let refused = workspace.json(&["replan", failed["executionId"].as_str().unwrap()], 2).await;
    assert_eq!(refused["error"]["code"], "CONFLICT", "{refused:#}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("belongs to an agent"), "{message}");
    assert_eq!(model.requests().await.len(), 1);
}

/// The transcript of the request records the refused replan, and no execution starts.
#[tokio::test]
async fn a_replan_that_the_model_declines_leaves_the_execution_failed() {
    let workspace = Workspace::new();
    let impossible = json!({ "content": "{\"impossible\": \"the blog is closed for good\"}" });
    let model = MockModel::with_answers(
        &workspace,
        "model",
        json!([{ "content": failing_plan() }, impossible]),
    )
    .await;
    configure(&workspace, &model.planner_settings("openai"));
    let failed = workspace.json(&["run", DEMO_QUERY], 1).await;
    let refused = workspace.json(&["replan", failed["executionId"].as_str().unwrap()], 2).await;
    assert_eq!(refused["error"]["code"], "NO_PLAN_FOUND", "{refused:#}");
    assert_eq!(refused["error"]["requestId"], failed["requestId"]);
    let executions = workspace.json(&["list", "executions"], 0).await;
    assert_eq!(executions.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn run_follows_an_automatic_replan_of_a_failed_execution() {
    let workspace = Workspace::new();
    let answers =
        json!([{ "content": failing_plan() }, { "content": demo_plan("alice@test.com") }]);
    let model = MockModel::with_answers(&workspace, "model", answers).await;
    configure(&workspace, &model.planner_settings("openai"));
    let ran = workspace.run(&["run", DEMO_QUERY, "--replans", "2"]).await;
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("replanned as version 2 because `createBlog` failed"), "{ran:?}");
    assert_eq!(model.requests().await.len(), 2);
    let executions = workspace.json(&["list", "executions"], 0).await;
    let executions = executions.as_array().unwrap();
    let states: Vec<_> =
        executions.iter().map(|execution| execution["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["COMPLETED", "FAILED"], "{executions:#?}");
    assert_eq!(executions[0]["retryOf"], executions[1]["executionId"]);
    // A command that follows the first execution continues with the last one.
    let watched =
        workspace.json(&["watch", executions[1]["executionId"].as_str().unwrap()], 0).await;
    assert_eq!(watched["executionId"], executions[0]["executionId"]);
    let request = workspace.json(&["debug", watched["requestId"].as_str().unwrap()], 0).await;
    let runs = request["executions"].as_array().unwrap();
    let first = runs.iter().find(|run| run["state"] == "FAILED").unwrap();
    assert_eq!(first["next"]["executionId"], watched["executionId"]);
    assert_eq!(first["replanning"]["state"], "BEGUN", "{first:#}");
    let second = runs.iter().find(|run| run["state"] == "COMPLETED").unwrap();
    assert_eq!(second["outputs"]["createAuthor"], first["outputs"]["createAuthor"]);
}

/// Regression: an MCP client got `done: true` while the model still replanned.
#[tokio::test]
async fn an_mcp_client_waits_for_an_automatic_replan() {
    let workspace = Workspace::new();
    let fails = json!({ "tools": [{ "name": "flow.fail", "parameters": { "message": "no" } }] });
    let answers = json!([
        { "content": failing_plan() }, { "content": demo_plan("alice@test.com") },
        { "content": fails.to_string() },
        { "content": "{\"impossible\": \"it is closed for good\"}" },
    ]);
    let model = MockModel::with_answers(&workspace, "model", answers).await;
    configure(&workspace, &model.planner_settings("openai"));
    let mut client = Client::start_in(&workspace, &[]).await;
    let (ran, _) = client.call_ok("run", json!({ "query": DEMO_QUERY, "replans": 2 })).await;
    assert_eq!((&ran["state"], &ran["done"]), (&json!("COMPLETED"), &json!(true)), "{ran:#}");
    assert!(ran["outputs"]["createBlog"].is_object(), "{ran:#}");
    // The status of the first execution names the execution that continues it.
    let executions = workspace.json(&["list", "executions"], 0).await;
    let first = executions
        .as_array()
        .unwrap()
        .iter()
        .find(|execution| execution["state"] == "FAILED")
        .unwrap();
    let (status, text) = client.call_ok("status", json!({ "id": first["executionId"] })).await;
    assert_eq!((&status["state"], &status["done"]), (&json!("FAILED"), &json!(false)));
    let onward = ran["executionId"].as_str().unwrap();
    assert!(text.contains(&format!("continues as `{onward}`")), "{text}");
    let request = json!({ "id": first["executionId"], "wait": true });
    let (status, _) = client.call_ok("status", request).await;
    assert_eq!(status["executionId"], ran["executionId"]);
    // If the model finds no plan, the answer contains the reason.
    let request = json!({ "query": "Do what cannot be done", "replans": 1 });
    let (failed, text) = client.call_ok("run", request).await;
    assert_eq!((&failed["state"], &failed["done"]), (&json!("FAILED"), &json!(true)), "{failed:#}");
    assert!(text.contains("closed for good"), "{text}");
}

/// The first plan of the model ends with a step that asks for the next version.
#[tokio::test]
async fn flow_replan_asks_for_the_next_version_of_the_plan() {
    let workspace = Workspace::new();
    let mut first: Value = serde_json::from_str(&demo_plan("alice@test.com")).unwrap();
    let look = json!({ "name": "flow.replan", "id": "look", "dependsOn": ["createAuthor"],
        "parameters": { "goal": "write the blog" } });
    first["tools"][1] = look;
    first["executionOrder"] = json!(["createAuthor", "look"]);
    let answers =
        json!([{ "content": first.to_string() }, { "content": demo_plan("alice@test.com") }]);
    let model = MockModel::with_answers(&workspace, "model", answers).await;
    configure(&workspace, &model.planner_settings("openai"));
    let ran = workspace.json(&["run", DEMO_QUERY], 0).await;
    assert_eq!((&ran["state"], &ran["plan"]["version"]), (&json!("COMPLETED"), &json!(2)));
    assert!(ran["outputs"]["createBlog"].is_object(), "{ran:#}");
    let requests = model.requests().await;
    assert_eq!(requests.len(), 2);
    assert!(
        requests[0]["body"].to_string().contains("flow.replan"),
        "the prompt explains `flow.replan`"
    );
    let prompt = requests[1]["body"]["messages"][1]["content"].as_str().unwrap();
    assert!(prompt.contains("`look` asks for it: write the blog"), "{prompt}");
}

#[tokio::test]
async fn an_automatic_replan_that_is_given_up_leaves_the_execution_failed_with_the_reason() {
    let workspace = Workspace::new();
    let impossible = json!({ "content": "{\"impossible\": \"the blog is closed for good\"}" });
    let model = MockModel::with_answers(
        &workspace,
        "model",
        json!([{ "content": failing_plan() }, impossible]),
    )
    .await;
    configure(&workspace, &model.planner_settings("openai"));
    let failed = workspace.json(&["run", DEMO_QUERY, "--replans", "3"], 1).await;
    assert_eq!(failed["replanning"]["state"], "GIVEN_UP", "{failed:#}");
    let reason = failed["replanning"]["givenUp"].as_str().unwrap();
    assert!(reason.contains("closed for good"), "{reason}");
    let request = workspace.json(&["debug", failed["requestId"].as_str().unwrap()], 0).await;
    assert_eq!(transcript_kinds(&request).last().unwrap(), "replan_given_up");
    assert_eq!(model.requests().await.len(), 2);
    // Another process must not ask the model again.
    workspace.json(&["execute", failed["executionId"].as_str().unwrap()], 1).await;
    assert_eq!(model.requests().await.len(), 2);
}

/// The process is killed while the model works. Another process replans once.
#[tokio::test]
async fn another_process_replans_once_when_the_first_was_killed_meanwhile() {
    let workspace = Workspace::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let silent = format!(
        "provider: openai, model: m, base_url: 'http://127.0.0.1:{port}/v1', timeout_ms: 600000"
    );
    configure(&workspace, &silent);
    let file = workspace.file("plan.json", &failing_plan());
    let running = workspace.spawn(&["run", "--plan", &file, "--replans", "1"]);
    let request = timeout(MAX_WAIT, listener.accept()).await;
    let _asked = request.expect("the model is asked").unwrap();
    running.signal("-KILL");
    assert_ne!(running.wait_for_exit().await.status, 0);
    let executions = workspace.json(&["list", "executions"], 0).await;
    let [ended] = executions.as_array().unwrap().as_slice() else { panic!("{executions:#}") };
    assert_eq!(ended["state"], "FAILED");
    let id = ended["executionId"].as_str().unwrap();
    let model = MockModel::with_answers(
        &workspace,
        "model",
        json!([{ "content": demo_plan("alice@test.com") }]),
    )
    .await;
    // The guard would put the plan in doubt, because no word of the query asks for a blog. So the
    // test switches the guard off.
    configure(&workspace, &format!("{}, guard: off", model.planner_settings("openai")));
    let ran = workspace.json(&["execute", id], 0).await;
    assert_eq!((&ran["state"], &ran["retryOf"]), (&json!("COMPLETED"), &json!(id)), "{ran:#}");
    assert_eq!(model.requests().await.len(), 1);
    workspace.json(&["execute", id], 0).await;
    assert_eq!(model.requests().await.len(), 1, "the model is asked once");
    let executions = workspace.json(&["list", "executions"], 0).await;
    assert_eq!(executions.as_array().unwrap().len(), 2);
}
