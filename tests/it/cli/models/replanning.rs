//! What did not get to its end, planned anew.

use serde_json::{Value, json};

use super::{Home, Model, SEED, configure, kinds, plan};

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
    let anew = kinds.iter().rposition(|it| it == "replan").expect("it is on record");
    let expected =
        ["replan", "selection", "prompt", "reply", "repair", "prompt", "reply", "usage", "draft"];
    assert_eq!(kinds[anew..anew + expected.len()], expected);
    let versions: Vec<_> = request["plans"].as_array().unwrap().iter().collect();
    assert_eq!(versions.iter().map(|it| &it["version"]).collect::<Vec<_>>(), [1, 2]);
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
    assert!(complaint.contains("would do what `createAuthor` did"), "{complaint}");
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
    assert!(message.contains("is an agent's"), "{message}");
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
