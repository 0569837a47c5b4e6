//! Commands say why an execution failed, waits or needs attention, and what helps.

use serde_json::{Value, json};

use super::home::Home;

/// Makes a home with a tool that runs a command.
fn home_with(tool: &str, effect: &str, command: &[&str]) -> Home {
    let home = Home::new();
    let run = json!(command);
    home.file(
        "faber.yaml",
        &format!(
            "toolsets:\n  - name: local\n    active: true\n    source:\n      tools:\n        - \
             {{ name: {tool}, description: d, parameters: {{ type: object }}, effect: {effect}, \
             run: {{ command: {run} }} }}\n"
        ),
    );
    home
}

fn codes(execution: &Value) -> Vec<&str> {
    let found = execution["findings"].as_array().unwrap();
    found.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_execution_whose_process_was_killed_has_no_worker() {
    let home = home_with("label", "idempotent", &["sleep", "600"]);
    let plan = home.file("plan.json", r#"{"tools":[{"name":"label"}]}"#);
    let mut begun = home.begin(&["run", "--plan", &plan]);
    begun.line("executing exec_").await;
    let running = loop {
        let list = home.json(&["list", "executions"], 0).await;
        if list[0]["steps"][0]["state"] == "RUNNING" {
            break list;
        }
    };
    assert_eq!(codes(&running[0]), ["wait.call"], "{running:#}");
    begun.signal("-KILL");
    begun.end().await;
    let id = running[0]["executionId"].as_str().unwrap();
    let told = home.run(&["debug", id]).await.out;
    let expected = "waits: no worker runs it: the worker `work_";
    assert!(told.contains(expected) && told.contains("has stopped while `label` ran"), "{told}");
    assert!(!told.contains("is being called"), "{told}");
    // `debug` opens no toolsets, so it cannot know whether this node lacks the tool.
    assert!(!told.contains("which this node lacks"), "{told}");
    let (_, next) = told.split_once("\nNext\n").unwrap();
    assert!(next.trim_start().starts_with(&format!("faber execute {id}")), "{next}");
    let list = home.run(&["list", "executions"]).await.out;
    assert!(list.contains("no worker runs it"), "{list}");
}

/// The text stays, as the contract says, but nobody overlooks it.
#[tokio::test]
async fn a_template_that_was_left_standing_is_a_warning() {
    let home = Home::new();
    let plan = home.file(
        "plan.json",
        r#"{"tools":[{"id":"p","name":"flow.echo","parameters":{"name":"Ada"}},
            {"id":"say","name":"flow.echo","parameters":{"text":"{{p.foo}}"}}]}"#,
    );
    let ended = home.run(&["run", "--plan", &plan]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.err.contains("2 of 2 steps done"), "{ended:?}");
    assert!(ended.err.contains(", with 1 warning  exec_"), "{ended:?}");
    let done = home.json(&["run", "--plan", &plan], 0).await;
    assert_eq!(done["outputs"]["say"]["text"], "{{p.foo}}");
    assert_eq!(codes(&done), ["warning.template"]);
    assert_eq!(done["findings"][0]["severity"], "WARNING");
    let id = done["executionId"].as_str().unwrap();
    let told = home.run(&["debug", id]).await.out;
    let expected = "warning[warning.template]: `say`: `{{p.foo}}` found nothing";
    assert!(told.contains(expected), "{told}");

    // Braces in the output of a tool are data.
    let plan = home.file(
        "literal.json",
        r#"{"tools":[{"id":"p","name":"flow.echo","parameters":{"text":"{{{{p.foo}}"}},
            {"id":"say","name":"flow.echo","parameters":{"text":"{{p.text}}"}}]}"#,
    );
    let done = home.json(&["run", "--plan", &plan], 0).await;
    assert_eq!(done["outputs"]["say"]["text"], "{{p.foo}}");
    assert!(codes(&done).is_empty(), "{done:#}");
}

#[tokio::test]
async fn a_failed_command_is_told_by_the_cause_in_its_trace() {
    let trace = "Traceback (most recent call last):\n  File \"a.py\", line 3\n    \
                 export()\nValueError: unknown VAT code\n";
    let script = format!("printf '%s' '{trace}' >&2; exit 1");
    let home = home_with("export", "once", &["sh", "-c", &script]);
    let plan = home.file("plan.json", r#"{"tools":[{"name":"export"}]}"#);
    let ended = home.run(&["run", "--plan", &plan]).await;
    assert_eq!(ended.status, 1, "{ended:?}");
    let expected = "error[tool.failed]: `export` failed: ValueError: unknown VAT code";
    assert!(ended.err.contains(expected), "{ended:?}");
    let list = home.run(&["list", "executions"]).await.out;
    assert!(list.contains("`export` failed: ValueError: unknown VAT code"), "{list}");
}

#[tokio::test]
async fn a_missing_input_is_asked_for_before_a_retry() {
    let home = Home::new();
    let plan = home.file(
        "plan.json",
        r#"{"tools":[{"name":"flow.effect","parameters":{"text":"{{input.article}}"}}]}"#,
    );
    let ended = home.run(&["run", "--plan", &plan]).await;
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(!ended.err.contains("faber retry"), "{ended:?}");
    let done = home.json(&["list", "executions"], 0).await;
    let remedy = &done[0]["findings"][0]["remedies"][0];
    let plan = done[0]["planId"].as_str().unwrap();
    let command = format!("faber execute {plan} --input '{{\"article\":\"…\"}}'");
    assert_eq!(remedy["command"], command.as_str(), "{done:#}");
    assert_eq!(remedy["mutation"], "executePlan");
    // A dry run does not say of the same template that it stands as it was written.
    let file = home.path("plan.json").display().to_string();
    let dry = home.json(&["run", "--plan", &file, "--dry-run"], 1).await;
    assert_eq!(codes(&dry), ["template.unresolved"], "{dry:#}");
    assert_eq!(dry["steps"][0]["warnings"], json!([]));
}

#[tokio::test]
async fn a_failed_planning_has_a_state_and_a_reason() {
    let home = Home::new();
    assert_eq!(home.run(&["run", "zzz qqq"]).await.status, 2);
    let list = home.run(&["list", "requests"]).await.out;
    assert!(list.contains("PLANNING_FAILED"), "{list}");
    let found = home.json(&["debug", &request_of(&list)], 0).await;
    assert_eq!(found["findings"][0]["code"], "NO_PLAN_FOUND", "{found:#}");
    assert_eq!(found["findings"][0]["kind"], "FAILURE");
}

fn request_of(list: &str) -> String {
    let row = list.lines().nth(1).unwrap();
    row.split(' ').next().unwrap().to_owned()
}

/// The log alone says what it said then.
#[tokio::test]
async fn findings_of_a_position_are_those_of_that_time() {
    let home = Home::new();
    let plan = home.file(
        "plan.json",
        r#"{"tools":[{"id":"a","name":"flow.noop"},
            {"id":"b","name":"flow.fail","parameters":{"message":"no"},"dependsOn":"a"}]}"#,
    );
    let failed = home.json(&["run", "--plan", &plan], 1).await;
    assert_eq!(codes(&failed), ["tool.failed"]);
    let seq = failed["findings"][0]["causeSeq"].as_i64().unwrap();
    assert!(seq > 1 && seq < failed["seq"].as_i64().unwrap(), "{failed:#}");
}
