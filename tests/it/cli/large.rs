//! Requests with many executions, and with large ones: whatever a request has, it is found by what
//! was asked for, told of as that, and steered as that.

use serde_json::{Value, json};

use super::home::Home;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn all(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// A plan that executes another one for each item of its input; a part waits for a person, or not.
fn family(home: &Home, asks: bool) -> String {
    let part = json!({ "tools": [{ "id": "in", "name": "flow.noop", "requiresApproval": asks }] });
    let step = json!({ "id": "each", "plan": part, "forEach": "{{input}}" });
    home.file("family.json", &json!({ "tools": [step] }).to_string())
}

fn items(n: usize) -> String {
    json!((0..n).collect::<Vec<_>>()).to_string()
}

/// Returns the execution that no step began, and its request.
async fn root(home: &Home) -> (String, String) {
    let found = home.json(&["list", "executions", "--first", "200"], 0).await;
    let root =
        all(&found).iter().find(|execution| execution["parentExecutionId"].is_null()).unwrap();
    (text(&root["executionId"]).to_owned(), text(&root["requestId"]).to_owned())
}

#[tokio::test]
async fn a_request_is_its_own_execution_and_not_a_part_of_it() {
    let home = Home::new();
    let plan = family(&home, true);
    assert_eq!(home.run(&["run", "--plan", &plan, "--input", "[1]"]).await.status, 4);
    let (root, request) = root(&home).await;
    let watched = home.json(&["watch", &request], 4).await;
    assert_eq!(watched["executionId"], json!(root));
    let told = home.run(&["list", "requests"]).await;
    assert!(told.out.contains("IN_PROGRESS"), "{told:?}");
    home.json(&["cancel", &request], 0).await;
    let ended = home.json(&["watch", &root], 1).await;
    assert_eq!(ended["state"], "CANCELLED", "{ended:#}");
    assert_eq!(home.json(&["watch", &request], 1).await["executionId"], json!(root));
}

#[tokio::test]
async fn a_request_with_many_parts_is_told_by_what_was_asked_for() {
    let home = Home::new();
    let plan = family(&home, false);
    let ran = home.json(&["run", "--plan", &plan, "--input", &items(60)], 0).await;
    let (root, request) = (text(&ran["executionId"]), text(&ran["requestId"]));
    for id in [request, root] {
        let told = home.json(&["debug", id], 0).await;
        assert_eq!(told["executions"][0]["executionId"], root, "{id}");
        assert!(all(&told["executions"]).len() > 50);
        let told = home.run(&["debug", id]).await;
        assert!(told.out.starts_with("COMPLETED"), "{}", told.out);
        assert!(!told.out.contains("NOT EXECUTED"), "{}", told.out);
    }
    let told = home.run(&["list", "requests"]).await;
    assert!(told.out.contains("COMPLETED"), "{told:?}");
}

#[tokio::test]
async fn parts_that_nobody_follows_are_waited_for_as_well() {
    let home = Home::new();
    let plan = family(&home, true);
    let waits = home.run(&["run", "--plan", &plan, "--input", &items(70)]).await;
    assert_eq!(waits.status, 4, "{waits:?}");
}

#[tokio::test]
async fn everything_about_a_request_is_told_however_large_it_is() {
    let home = Home::new();
    let step = |n: usize| json!({ "id": format!("s{n}"), "name": "flow.echo", "parameters": { "x": "{{input}}" } });
    let plan = home
        .file("plan.json", &json!({ "tools": (0..8).map(step).collect::<Vec<_>>() }).to_string());
    let input = home.file("input.json", &json!("x".repeat(1_000_000)).to_string());
    let ran = home.json(&["run", "--plan", &plan, "--input", &format!("@{input}")], 0).await;
    let (first, request) = (text(&ran["executionId"]), text(&ran["requestId"]));
    for _ in 0..2 {
        home.json(&["retry", first], 0).await;
    }
    let told = home.json(&["debug", request], 0).await;
    let executions = all(&told["executions"]);
    assert_eq!(executions.len(), 3);
    assert_eq!(executions[0]["executionId"], first, "the oldest is the first");
    for execution in executions {
        assert_eq!(text(&execution["outputs"]["s7"]["x"]).len(), 1_000_000);
    }
    let told = home.run(&["list", "requests"]).await;
    assert!(told.status == 0 && told.out.contains("COMPLETED"), "{}", told.err);
}

#[tokio::test]
async fn a_timeline_is_told_to_its_end() {
    let home = Home::new();
    let step = json!({ "id": "l", "name": "flow.noop", "forEach": "{{input}}" });
    let plan = home.file("plan.json", &json!({ "tools": [step] }).to_string());
    let input = home.file("input.json", &items(6_000));
    let ran = home.json(&["run", "--plan", &plan, "--input", &format!("@{input}")], 0).await;
    let told = home.json(&["debug", text(&ran["requestId"])], 0).await;
    let timeline = all(&told["timeline"]);
    assert!(timeline.len() > 12_000, "{}", timeline.len());
    assert_eq!(timeline.last().unwrap()["kind"], "finished");
}
