//! What did not get to its end, planned anew.

use serde_json::{Value, json};
use tests::toolset::PATIENCE;
use tokio::{net::TcpListener, time::timeout};

use super::{super::mcp::Client, Home, Model, SEED, configure, kinds, plan};

/// Returns a plan whose second step fails, as a model writes it.
fn failing() -> String {
    let mut failing: Value = serde_json::from_str(&plan("alice@test.com")).unwrap();
    failing["tools"][1] = json!({ "name": "flow.fail", "id": "createBlog",
        "dependsOn": ["createAuthor"], "parameters": { "message": "the blog is closed" } });
    failing.to_string()
}

#[tokio::test]
async fn a_plan_is_mended_after_a_failure_and_keeps_what_succeeded() {
    let home = Home::new();
    let answers = json!([
        { "content": failing() },
        // It would make another author, and is told so.
        { "content": plan("alicia@test.com") },
        { "content": plan("alice@test.com") },
    ]);
    let model = Model::answering(&home, "model", answers).await;
    configure(&home, &model.speaking("openai"));
    let failed = home.json(&["run", SEED], 1).await;
    assert_eq!((&failed["state"], &failed["successful"]), (&json!("FAILED"), &json!(1)));
    let id = failed["executionId"].as_str().unwrap();
    let offline = home.json(&["replan", id, "--planner", "offline"], 3).await;
    assert_eq!(offline["error"]["code"], "PLANNER_UNAVAILABLE", "{offline:#}");

    let ran = home.json(&["replan", id], 0).await;
    assert_eq!((&ran["state"], &ran["successful"]), (&json!("COMPLETED"), &json!(2)), "{ran:#}");
    assert_eq!(ran["requestId"], failed["requestId"]);
    assert_ne!(ran["planId"], failed["planId"]);
    let made = &ran["outputs"]["createAuthor"];
    assert_eq!(made, &failed["outputs"]["createAuthor"], "it is the same author");
    assert_eq!(ran["outputs"]["createBlog"]["authorId"], made["_id"]);

    let request = home.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
    let kinds = kinds(&request);
    let anew = kinds.iter().rposition(|kind| kind == "replan").expect("it is on record");
    let expected =
        ["replan", "selection", "prompt", "reply", "repair", "prompt", "reply", "usage", "draft"];
    assert_eq!(kinds[anew..anew + expected.len()], expected);
    let versions: Vec<_> = request["plans"].as_array().unwrap().iter().collect();
    assert_eq!(versions.iter().map(|version| &version["version"]).collect::<Vec<_>>(), [1, 2]);
    let asked = model.asked().await;
    let told = asked[1]["body"]["messages"][1]["content"].as_str().unwrap();
    for expected in ["the blog is closed", "\"state\":\"succeeded\"", "<plan>", "<endings>"] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let complaint = asked[2]["body"]["messages"].to_string();
    assert!(complaint.contains("plan.done_twice"), "{complaint}");

    let again = home.json(&["replan", ran["executionId"].as_str().unwrap()], 2).await;
    assert_eq!(again["error"]["code"], "CONFLICT", "{again:#}");
    // Whoever asks a second time is told what goes on, and nothing is done twice.
    let twice = home.json(&["replan", id], 2).await;
    assert_eq!(twice["error"]["code"], "CONFLICT", "{twice:#}");
    let message = twice["error"]["message"].as_str().unwrap();
    assert!(message.contains(ran["executionId"].as_str().unwrap()), "{message}");
    assert_eq!(model.asked().await.len(), 3, "the model is not even asked");
}

/// A step by another name is the same call, and a person is asked about what they were asked about.
#[tokio::test]
async fn what_was_done_is_not_done_under_another_name() {
    let home = Home::new();
    let mut first: Value = serde_json::from_str(&failing()).unwrap();
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
        { "content": plan("alice@test.com") },
    ]);
    let model = Model::answering(&home, "model", answers).await;
    configure(&home, &model.speaking("openai"));
    let failed = home.json(&["run", SEED], 1).await;
    // The model does not say that anybody is to be asked, and is not obeyed.
    let ran = home.json(&["replan", failed["executionId"].as_str().unwrap()], 4).await;
    assert_eq!(ran["state"], "WAITING", "{ran:#}");
    assert_eq!(ran["outputs"]["createAuthor"], failed["outputs"]["createAuthor"]);
    let complaint = model.asked().await[2]["body"]["messages"].to_string();
    assert!(complaint.contains("would repeat the call of `createAuthor`"), "{complaint}");
}

#[tokio::test]
async fn an_agent_is_not_planned_anew() {
    let home = Home::new();
    let model =
        Model::answering(&home, "model", json!([{ "error": { "message": "no" }, "status": 400 }]))
            .await;
    configure(&home, &model.speaking("openai"));
    let failed = home.json(&["agent", SEED], 1).await;
    let refused = home.json(&["replan", failed["executionId"].as_str().unwrap()], 2).await;
    assert_eq!(refused["error"]["code"], "CONFLICT", "{refused:#}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("belongs to an agent"), "{message}");
    assert_eq!(model.asked().await.len(), 1);
}

/// What cannot be planned anew leaves the request with what was tried, and begins nothing.
#[tokio::test]
async fn what_cannot_be_planned_anew_stays_failed() {
    let home = Home::new();
    let impossible = json!({ "content": "{\"impossible\": \"the blog is closed for good\"}" });
    let model =
        Model::answering(&home, "model", json!([{ "content": failing() }, impossible])).await;
    configure(&home, &model.speaking("openai"));
    let failed = home.json(&["run", SEED], 1).await;
    let refused = home.json(&["replan", failed["executionId"].as_str().unwrap()], 2).await;
    assert_eq!(refused["error"]["code"], "NO_PLAN_FOUND", "{refused:#}");
    assert_eq!(refused["error"]["requestId"], failed["requestId"]);
    let executions = home.json(&["list", "executions"], 0).await;
    assert_eq!(executions.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_fails_goes_on_by_itself_and_is_followed() {
    let home = Home::new();
    let answers = json!([{ "content": failing() }, { "content": plan("alice@test.com") }]);
    let model = Model::answering(&home, "model", answers).await;
    configure(&home, &model.speaking("openai"));
    let ran = home.run(&["run", SEED, "--replans", "2"]).await;
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.err.contains("replanned as version 2 because `createBlog` failed"), "{ran:?}");
    assert_eq!(model.asked().await.len(), 2);
    let executions = home.json(&["list", "executions"], 0).await;
    let executions = executions.as_array().unwrap();
    let states: Vec<_> =
        executions.iter().map(|execution| execution["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["COMPLETED", "FAILED"], "{executions:#?}");
    assert_eq!(executions[0]["retryOf"], executions[1]["executionId"]);
    // Whoever watches the first one is led to the last one.
    let watched = home.json(&["watch", executions[1]["executionId"].as_str().unwrap()], 0).await;
    assert_eq!(watched["executionId"], executions[0]["executionId"]);
    let request = home.json(&["debug", watched["requestId"].as_str().unwrap()], 0).await;
    let runs = request["executions"].as_array().unwrap();
    let first = runs.iter().find(|run| run["state"] == "FAILED").unwrap();
    assert_eq!(first["next"]["executionId"], watched["executionId"]);
    assert_eq!(first["replanning"]["state"], "BEGUN", "{first:#}");
    let second = runs.iter().find(|run| run["state"] == "COMPLETED").unwrap();
    assert_eq!(second["outputs"]["createAuthor"], first["outputs"]["createAuthor"]);
}

/// A program that lets Faber plan was told that all was done while a model planned what follows.
#[tokio::test]
async fn a_client_waits_for_what_goes_on_by_itself() {
    let home = Home::new();
    let fails = json!({ "tools": [{ "name": "flow.fail", "parameters": { "message": "no" } }] });
    let answers = json!([
        { "content": failing() }, { "content": plan("alice@test.com") },
        { "content": fails.to_string() },
        { "content": "{\"impossible\": \"it is closed for good\"}" },
    ]);
    let model = Model::answering(&home, "model", answers).await;
    configure(&home, &model.speaking("openai"));
    let mut client = Client::of(&home, &[]).await;
    let (ran, _) = client.done("run", json!({ "query": SEED, "replans": 2 })).await;
    assert_eq!((&ran["state"], &ran["done"]), (&json!("COMPLETED"), &json!(true)), "{ran:#}");
    assert!(ran["outputs"]["createBlog"].is_object(), "{ran:#}");
    // Whoever asks for the first one is told which goes on.
    let executions = home.json(&["list", "executions"], 0).await;
    let first = executions
        .as_array()
        .unwrap()
        .iter()
        .find(|execution| execution["state"] == "FAILED")
        .unwrap();
    let (status, told) = client.done("status", json!({ "id": first["executionId"] })).await;
    assert_eq!((&status["state"], &status["done"]), (&json!("FAILED"), &json!(false)));
    let onward = ran["executionId"].as_str().unwrap();
    assert!(told.contains(&format!("continues as `{onward}`")), "{told}");
    let asked = json!({ "id": first["executionId"], "wait": true });
    let (status, _) = client.done("status", asked).await;
    assert_eq!(status["executionId"], ran["executionId"]);
    // What is given up says so.
    let asked = json!({ "query": "Do what cannot be done", "replans": 1 });
    let (failed, told) = client.done("run", asked).await;
    assert_eq!((&failed["state"], &failed["done"]), (&json!("FAILED"), &json!(true)), "{failed:#}");
    assert!(told.contains("closed for good"), "{told}");
}

/// A model says that what follows depends on what a step returns.
#[tokio::test]
async fn a_plan_asks_for_the_next_one() {
    let home = Home::new();
    let mut first: Value = serde_json::from_str(&plan("alice@test.com")).unwrap();
    let look = json!({ "name": "flow.replan", "id": "look", "dependsOn": ["createAuthor"],
        "parameters": { "goal": "write the blog" } });
    first["tools"][1] = look;
    first["executionOrder"] = json!(["createAuthor", "look"]);
    let answers = json!([{ "content": first.to_string() }, { "content": plan("alice@test.com") }]);
    let model = Model::answering(&home, "model", answers).await;
    configure(&home, &model.speaking("openai"));
    let ran = home.json(&["run", SEED], 0).await;
    assert_eq!((&ran["state"], &ran["plan"]["version"]), (&json!("COMPLETED"), &json!(2)));
    assert!(ran["outputs"]["createBlog"].is_object(), "{ran:#}");
    let asked = model.asked().await;
    assert_eq!(asked.len(), 2);
    assert!(asked[0]["body"].to_string().contains("flow.replan"), "the rules tell of it");
    let told = asked[1]["body"]["messages"][1]["content"].as_str().unwrap();
    assert!(told.contains("`look` asks for it: write the blog"), "{told}");
}

#[tokio::test]
async fn what_is_given_up_says_so_and_stays_failed() {
    let home = Home::new();
    let impossible = json!({ "content": "{\"impossible\": \"the blog is closed for good\"}" });
    let model =
        Model::answering(&home, "model", json!([{ "content": failing() }, impossible])).await;
    configure(&home, &model.speaking("openai"));
    let failed = home.json(&["run", SEED, "--replans", "3"], 1).await;
    assert_eq!(failed["replanning"]["state"], "GIVEN_UP", "{failed:#}");
    let why = failed["replanning"]["givenUp"].as_str().unwrap();
    assert!(why.contains("closed for good"), "{why}");
    let request = home.json(&["debug", failed["requestId"].as_str().unwrap()], 0).await;
    assert_eq!(kinds(&request).last().unwrap(), "replan_given_up");
    assert_eq!(model.asked().await.len(), 2);
    // Nobody asks again, whoever looks after it.
    home.json(&["execute", failed["executionId"].as_str().unwrap()], 1).await;
    assert_eq!(model.asked().await.len(), 2);
}

/// The process is killed while the model thinks: another one goes on, once.
#[tokio::test]
async fn what_was_being_planned_anew_when_its_process_was_killed_goes_on() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let silent = format!(
        "provider: openai, model: m, base_url: 'http://127.0.0.1:{port}/v1', timeout_ms: 600000"
    );
    configure(&home, &silent);
    let file = home.file("plan.json", &failing());
    let running = home.begin(&["run", "--plan", &file, "--replans", "1"]);
    let asked = timeout(PATIENCE, listener.accept()).await;
    let _asked = asked.expect("the model is asked").unwrap();
    running.signal("-KILL");
    assert_ne!(running.end().await.status, 0);
    let executions = home.json(&["list", "executions"], 0).await;
    let [ended] = executions.as_array().unwrap().as_slice() else { panic!("{executions:#}") };
    assert_eq!(ended["state"], "FAILED");
    let id = ended["executionId"].as_str().unwrap();
    let model =
        Model::answering(&home, "model", json!([{ "content": plan("alice@test.com") }])).await;
    configure(&home, &model.speaking("openai"));
    let ran = home.json(&["execute", id], 0).await;
    assert_eq!((&ran["state"], &ran["retryOf"]), (&json!("COMPLETED"), &json!(id)), "{ran:#}");
    assert_eq!(model.asked().await.len(), 1);
    home.json(&["execute", id], 0).await;
    assert_eq!(model.asked().await.len(), 1, "it went on once");
    let executions = home.json(&["list", "executions"], 0).await;
    assert_eq!(executions.as_array().unwrap().len(), 2);
}
