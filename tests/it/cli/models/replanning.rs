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

    let ran = home.json(&["replan", id], 0).await;
    assert_eq!((&ran["state"], &ran["successful"]), (&json!("COMPLETED"), &json!(2)), "{ran:#}");
    assert_eq!(ran["requestId"], failed["requestId"]);
    assert_ne!(ran["planId"], failed["planId"]);
    let made = &ran["outputs"]["createAuthor"];
    assert_eq!(made, &failed["outputs"]["createAuthor"], "it is the same author");
    assert_eq!(ran["outputs"]["createBlog"]["authorId"], made["_id"]);

    let request = home.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
    let kinds = kinds(&request);
    let anew = kinds.iter().position(|it| it == "replan").expect("it is on record");
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
    let offline = home.json(&["replan", id, "--planner", "offline"], 3).await;
    assert_eq!(offline["error"]["code"], "PLANNER_UNAVAILABLE", "{offline:#}");
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
