//! The guard of plans, with a model that acts on questions.

use serde_json::{Value, json};

use super::{
    super::terminal_output::run_on_terminal_with_input, MockModel, Workspace, configure,
    transcript_kinds,
};

const QUESTION: &str = "Should I delete the author 507f1f77bcf86cd799439011?";

async fn model_that_deletes(workspace: &Workspace) -> MockModel {
    let plan = json!({ "tools": [{ "name": "deleteAuthor",
        "parameters": { "id": "507f1f77bcf86cd799439011" } }] });
    MockModel::with_answers(workspace, "model", json!([{ "content": plan.to_string() }])).await
}

#[tokio::test]
async fn a_model_that_acts_on_a_question_waits_for_a_person() {
    let workspace = Workspace::new();
    let model = model_that_deletes(&workspace).await;
    configure(&workspace, &model.planner_settings("openai"));
    let ran = workspace.json(&["run", QUESTION], 4).await;
    assert_eq!(ran["state"], "WAITING", "{ran:#}");
    assert_eq!(ran["steps"][0]["attempts"], 0, "{ran:#}");
    let request = workspace.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
    let found = &request["plans"][0]["diagnostics"][0];
    assert_eq!((&found["code"], &found["severity"]), (&json!("plan.not_asked"), &json!("WARNING")));
    let message = found["message"].as_str().unwrap();
    assert!(message.contains("`Should I delete the author"), "{message}");
    assert!(transcript_kinds(&request).contains(&"guard".to_owned()));
    for (typed, expected) in [("n\n", "nothing was executed"), ("y\n", "deleteAuthor")] {
        let output = run_on_terminal_with_input(&workspace, &["run", QUESTION], typed).await;
        assert!(
            output.contains("Execute this plan? [y/N]") && output.contains(expected),
            "{output}"
        );
        assert!(!output.contains("waits: needs approval"), "{output}");
    }
}

#[tokio::test]
async fn a_strict_guard_refuses_and_a_loose_one_warns() {
    let workspace = Workspace::new();
    let model = model_that_deletes(&workspace).await;
    let settings = |guard: &str| format!("{}, guard: {guard}", model.planner_settings("openai"));
    configure(&workspace, &settings("strict"));
    for more in [&[][..], &["--guard", "off"]] {
        let refused = workspace.json(&[&["run", QUESTION], more].concat(), 2).await;
        let error = &refused["error"];
        assert_eq!(error["code"], "INVALID_PLAN", "{refused:#}");
        let found = &error["diagnostics"][0];
        let expected = (&json!("plan.not_asked"), &json!("ERROR"));
        assert_eq!((&found["code"], &found["severity"]), expected, "{refused:#}");
    }
    assert_eq!(workspace.json(&["list", "plans"], 0).await, json!([]));
    configure(&workspace, &settings("off"));
    let planned = workspace.json(&["plan", QUESTION], 0).await;
    assert_eq!(planned["diagnostics"][0]["code"], "plan.not_asked");
    assert_eq!(planned["tools"][0]["requiresApproval"], Value::Bool(false));
    let refused = workspace.json(&["plan", QUESTION, "--guard", "strict"], 2).await;
    assert_eq!(refused["error"]["code"], "INVALID_PLAN");
}
