//! Findings on the command line: why an execution failed, waits or needs attention, and the
//! remedies.

use serde_json::{Value, json};

use super::workspace::Workspace;

fn workspace_with_tool(tool: &str, effect: &str, command: &[&str]) -> Workspace {
    let workspace = Workspace::new();
    let run = json!(command);
    workspace.file(
        "faber.yaml",
        &format!(
            "toolsets:\n  - name: local\n    active: true\n    source:\n      tools:\n        - \
             {{ name: {tool}, description: d, parameters: {{ type: object }}, effect: {effect}, \
             run: {{ command: {run} }} }}\n"
        ),
    );
    workspace
}

fn finding_codes(execution: &Value) -> Vec<&str> {
    let found = execution["findings"].as_array().unwrap();
    found.iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_execution_of_a_killed_process_is_reported_without_a_worker() {
    let workspace = workspace_with_tool("label", "idempotent", &["sleep", "600"]);
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"label"}]}"#);
    let mut process = workspace.spawn(&["run", "--plan", &plan]);
    process.wait_for_line("executing exec_").await;
    let running = loop {
        let list = workspace.json(&["list", "executions"], 0).await;
        if list[0]["steps"][0]["state"] == "RUNNING" {
            break list;
        }
    };
    assert_eq!(finding_codes(&running[0]), ["wait.call"], "{running:#}");
    process.signal("-KILL");
    process.wait_for_exit().await;
    let id = running[0]["executionId"].as_str().unwrap();
    let output = workspace.run(&["debug", id]).await.out;
    let expected = "waits: no worker runs it: the worker `work_";
    assert!(
        output.contains(expected) && output.contains("has stopped while `label` ran"),
        "{output}"
    );
    assert!(!output.contains("is being called"), "{output}");
    // `debug` opens no toolsets, so it does not know whether this node lacks the tool.
    assert!(!output.contains("which this node lacks"), "{output}");
    let (_, next) = output.split_once("\nNext\n").unwrap();
    assert!(next.trim_start().starts_with(&format!("faber execute {id}")), "{next}");
    let list = workspace.run(&["list", "executions"]).await.out;
    assert!(list.contains("no worker runs it"), "{list}");
}

/// If a template has no value, a `READ` tool gets the text of the template itself, unless templates
/// are strict. The call succeeds, so only a warning shows the mistake.
#[tokio::test]
async fn an_unresolved_template_is_a_warning() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"p","name":"flow.echo","parameters":{"name":"Ada"}},
            {"id":"say","name":"flow.echo","parameters":{"text":"{{p.foo}}"}}]}"#,
    );
    let ended = workspace.run(&["run", "--plan", &plan]).await;
    assert_eq!(ended.status, 0, "{ended:?}");
    assert!(ended.err.contains("2 of 2 steps done"), "{ended:?}");
    assert!(ended.err.contains(", with 1 warning  exec_"), "{ended:?}");
    let done = workspace.json(&["run", "--plan", &plan], 0).await;
    assert_eq!(done["outputs"]["say"]["text"], "{{p.foo}}");
    assert_eq!(finding_codes(&done), ["warning.template"]);
    assert_eq!(done["findings"][0]["severity"], "WARNING");
    let id = done["executionId"].as_str().unwrap();
    let output = workspace.run(&["debug", id]).await.out;
    let expected = "warning[warning.template]: `say`: `{{p.foo}}` has no value";
    assert!(output.contains(expected), "{output}");

    // Braces in the output of a tool are data and not a template, so they cause no warning.
    let plan = workspace.file(
        "literal.json",
        r#"{"tools":[{"id":"p","name":"flow.echo","parameters":{"text":"{{{{p.foo}}"}},
            {"id":"say","name":"flow.echo","parameters":{"text":"{{p.text}}"}}]}"#,
    );
    let done = workspace.json(&["run", "--plan", &plan], 0).await;
    assert_eq!(done["outputs"]["say"]["text"], "{{p.foo}}");
    assert!(finding_codes(&done).is_empty(), "{done:#}");
}

#[tokio::test]
async fn a_failed_command_is_reported_with_the_cause_from_its_trace() {
    let trace = "Traceback (most recent call last):\n  File \"a.py\", line 3\n    \
                 export()\nValueError: unknown VAT code\n";
    let script = format!("printf '%s' '{trace}' >&2; exit 1");
    let workspace = workspace_with_tool("export", "once", &["sh", "-c", &script]);
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"export"}]}"#);
    let ended = workspace.run(&["run", "--plan", &plan]).await;
    assert_eq!(ended.status, 1, "{ended:?}");
    let expected = "error[tool.failed]: `export` failed: ValueError: unknown VAT code";
    assert!(ended.err.contains(expected), "{ended:?}");
    let list = workspace.run(&["list", "executions"]).await.out;
    assert!(list.contains("`export` failed: ValueError: unknown VAT code"), "{list}");
}

#[tokio::test]
async fn a_missing_input_has_the_remedy_to_execute_with_an_input() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"name":"flow.effect","parameters":{"text":"{{input.article}}"}}]}"#,
    );
    let ended = workspace.run(&["run", "--plan", &plan]).await;
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(!ended.err.contains("faber retry"), "{ended:?}");
    let done = workspace.json(&["list", "executions"], 0).await;
    let remedy = &done[0]["findings"][0]["remedies"][0];
    let plan = done[0]["planId"].as_str().unwrap();
    let command = format!("faber execute {plan} --input '{{\"article\":\"…\"}}'");
    assert_eq!(remedy["command"], command.as_str(), "{done:#}");
    assert_eq!(remedy["mutation"], "executePlan");
    // A dry run reports the template only once, with the code `template.unresolved`.
    let file = workspace.path("plan.json").display().to_string();
    let dry = workspace.json(&["run", "--plan", &file, "--dry-run"], 1).await;
    assert_eq!(finding_codes(&dry), ["template.unresolved"], "{dry:#}");
    assert_eq!(dry["steps"][0]["warnings"], json!([]));
}

#[tokio::test]
async fn a_request_whose_planning_failed_has_a_state_and_a_finding() {
    let workspace = Workspace::new();
    assert_eq!(workspace.run(&["run", "zzz qqq"]).await.status, 2);
    let list = workspace.run(&["list", "requests"]).await.out;
    assert!(list.contains("PLANNING_FAILED"), "{list}");
    let found = workspace.json(&["debug", &first_request_id(&list)], 0).await;
    assert_eq!(found["findings"][0]["code"], "NO_PLAN_FOUND", "{found:#}");
    assert_eq!(found["findings"][0]["kind"], "FAILURE");
    let report = workspace.run(&["debug", &first_request_id(&list)]).await.out;
    assert!(report.starts_with("PLANNING_FAILED  "), "{report}");
}

fn first_request_id(list: &str) -> String {
    let row = list.lines().nth(1).unwrap();
    row.split(' ').next().unwrap().to_owned()
}

/// Findings are computed from the log up to the given event.
#[tokio::test]
async fn debug_at_an_earlier_event_shows_the_findings_of_that_time() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"a","name":"flow.noop"},
            {"id":"b","name":"flow.fail","parameters":{"message":"no"},"dependsOn":"a"}]}"#,
    );
    let failed = workspace.json(&["run", "--plan", &plan], 1).await;
    assert_eq!(finding_codes(&failed), ["tool.failed"]);
    let seq = failed["findings"][0]["causeSeq"].as_i64().unwrap();
    assert!(seq > 1 && seq < failed["seq"].as_i64().unwrap(), "{failed:#}");
}
