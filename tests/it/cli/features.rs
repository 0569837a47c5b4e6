//! Retries, dry runs, saved plans, sub-plans, loops, compensations, pruning and tools from the
//! command line.

use serde_json::{Value, json};

use super::workspace::Workspace;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}

#[tokio::test]
async fn retry_runs_an_execution_again_from_a_step() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"a","name":"flow.echo","parameters":{"x":"{{input.x}}"}},
            {"id":"b","name":"flow.fail","parameters":{"message":"no {{a.x}}"}}]}"#,
    );
    let input = workspace.file("input.json", r#"{"x":7}"#);
    let failed =
        workspace.json(&["run", "--plan", &plan, "--input", &format!("@{input}")], 1).await;
    assert_eq!(failed["input"], json!({ "x": 7 }));
    assert_eq!(failed["executionResults"]["errors"][0]["message"], "no 7");
    let id = text(&failed["executionId"]);
    let again = workspace.json(&["retry", id, "--from-step", "b"], 1).await;
    assert_eq!((&again["retryOf"], &again["steps"][0]["reused"]), (&json!(id), &json!(true)));
    let failed = workspace.json(&["retry", id], 1).await;
    assert_eq!(failed["steps"][0]["reused"], json!(true), "a step that succeeded is reused");
    let all = workspace.json(&["retry", id, "--all"], 1).await;
    assert_eq!(all["steps"][0]["reused"], json!(false));
    let refused = workspace.json(&["retry", id, "--from-step", "c"], 2).await;
    assert_eq!(refused["error"]["code"], "NOT_FOUND");
    let again = text(&again["executionId"]);
    let output = workspace.run(&["debug", again]).await;
    for part in ["again", id, "{\"message\":\"no 7\"}", &format!("faber retry {again}")] {
        assert!(output.out.contains(part), "{part}: {}", output.out);
    }
    let first = workspace.run(&["debug", id]).await;
    assert!(first.out.contains(&format!("as {again} (FAILED)")), "{}", first.out);
    let watched = workspace.run(&["watch", id]).await;
    assert!(watched.err.contains(&format!("retried as: {again}")), "{watched:?}");
    let full = workspace.run(&["debug", again, "--full"]).await;
    assert!(full.out.contains("reused"), "{}", full.out);
}

#[tokio::test]
async fn a_dry_run_reports_invalid_parameters_without_calling_tools() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"s","name":"flow.sleep","parameters":{"ms":"{{input.ms}}"}}]}"#,
    );
    let run = |input: &'static str| {
        let arguments = ["run", "--plan", &plan, "--dry-run", "--input", input].map(str::to_owned);
        let workspace = &workspace;
        async move { workspace.run(&arguments.each_ref().map(String::as_str)).await }
    };
    let fits = run(r#"{"ms":60000}"#).await;
    assert_eq!(fits.status, 0, "{fits:?}");
    assert!(fits.err.contains("it fits"), "{fits:?}");
    let unfit = run(r#"{"ms":"soon"}"#).await;
    assert_eq!(unfit.status, 1, "{unfit:?}");
    assert!(unfit.err.contains("tool.invalid_parameters"), "{unfit:?}");
    let nonsense = run("soon").await;
    assert_eq!(nonsense.status, 2, "{nonsense:?}");
    assert!(nonsense.err.contains("`--input`: `soon` is not JSON"), "{nonsense:?}");
}

#[tokio::test]
async fn a_saved_plan_runs_by_its_name() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"e","name":"flow.echo","parameters":{"hi":"{{input.name}}"}}]}"#,
    );
    let done = workspace.json(&["run", "--plan", &plan, "--input", r#"{"name":"A"}"#], 0).await;
    let id = text(&done["planId"]);
    let saved = workspace.json(&["save", "hello", id, "--inputs", r#"{"name":"string"}"#], 0).await;
    assert_eq!(saved, json!({ "name": "hello", "planId": id }));
    let done = workspace.json(&["run", "--saved", "hello", "--input", r#"{"name":"B"}"#], 0).await;
    assert_eq!(done["outputs"], json!({ "e": { "hi": "B" } }));
    let refused = workspace.json(&["run", "--saved", "hello"], 2).await;
    assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT");
    assert_eq!(
        workspace.json(&["run", "--saved", "nobody"], 2).await["error"]["code"],
        "NOT_FOUND"
    );
}

/// The child is shown in one tree with its parent, and `approve` on the parent answers for the step
/// of the child.
#[tokio::test]
async fn run_names_the_child_that_waits_for_an_approval() {
    let workspace = Workspace::new();
    // The command releases a waiting execution without a delay, even if the drain limit is long,
    // because no call runs.
    workspace.file("faber.yaml", "limits: { drain_ms: 86400000 }\n");
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"sub","plan":{"tools":[{"id":"first","name":"flow.noop"},
            {"id":"ask","name":"flow.noop","requiresApproval":true,"dependsOn":"first"}]}}]}"#,
    );
    let waits = workspace.run(&["run", "--plan", &plan]).await;
    assert_eq!(waits.status, 4, "{waits:?}");
    assert!(waits.err.contains("✓ sub › first"), "{waits:?}");
    assert!(!waits.err.contains("waits for its execution"), "the child asks: {waits:?}");
    let hint = waits.err.lines().find(|line| line.starts_with("faber approve exec_")).unwrap();
    let child = hint.split(' ').nth(2).unwrap();
    let parent = workspace.json(&["list", "executions", "--state", "IN_PROGRESS"], 0).await;
    let parent = text(&parent[0]["executionId"]).to_owned();
    assert_ne!(child, parent);
    let output = workspace.run(&["debug", &parent]).await;
    assert!(output.out.contains(&format!("part of {parent}")), "{}", output.out);
    let output = workspace.run(&["debug", &parent, "--full"]).await;
    assert!(
        output.out.contains("waits: needs approval of `ask`, which calls `flow.noop`"),
        "{}",
        output.out
    );
    assert!(
        output.out.contains(&format!("waits: `sub` waits for its execution `{child}`")),
        "{}",
        output.out
    );
    assert_eq!(workspace.run(&["approve", child, "ask"]).await.status, 0);
    let done = workspace.json(&["execute", &parent], 0).await;
    assert_eq!(done["outputs"], json!({ "sub": { "first": null, "ask": null } }));
}

#[tokio::test]
async fn run_and_debug_print_counts_of_items_and_compensations() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"done","name":"flow.echo","parameters":{"n":"{{item}}"},"forEach":"{{input}}",
              "compensate":{"name":"flow.noop"}},
            {"id":"l","name":"flow.fail","forEach":"{{input}}","onError":"ignore","dependsOn":"done",
             "parameters":{"message":"item","times":"{{item}}"}},
            {"id":"skip","name":"flow.noop","when":"input[0] == 5"},
            {"id":"end","name":"flow.fail","parameters":{"message":"end"},"dependsOn":["l"]}]}"#,
    );
    let ended =
        workspace.run(&["run", "--plan", &plan, "--input", "[0,1,0]", "--compensate"]).await;
    assert_eq!(ended.status, 1, "{ended:?}");
    for part in [
        "✓ done",
        "3 items",
        "✗ l[1]",
        "3 items, 1 of them failed",
        "its condition `input[0] == 5` does not hold",
        "compensating",
        "↩ done[2] (undo)",
    ] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    let list = workspace.json(&["list", "executions"], 0).await;
    let id = text(&list[0]["executionId"]);
    let output = workspace.run(&["debug", id]).await;
    for part in
        ["2 of 3 items ✓, 1 failed", "undone by `flow.noop`: `done[0]`, `done[1]` and `done[2]`"]
    {
        assert!(output.out.contains(part), "{part}: {}", output.out);
    }
    let output = workspace.run(&["debug", id, "--full"]).await;
    assert!(output.out.contains("[1]  FAILED  tool.failed: item"), "{}", output.out);
}

#[tokio::test]
async fn prune_removes_only_executions_older_than_its_age() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    workspace.json(&["run", "--plan", &plan], 0).await;
    let removed = workspace.json(&["prune", "--older-than", "1h"], 0).await;
    assert_eq!(removed, json!({ "executions": 0, "plans": 0, "requests": 0 }));
    let listed = workspace.json(&["list", "executions"], 0).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    for (field, expected) in
        [("steps", &json!("flow.noop")), ("plan", &json!("flow.noop")), ("outputs", &json!(null))]
    {
        let found = match field {
            "steps" => &listed[0]["steps"][0]["toolName"],
            "plan" => &listed[0]["plan"]["tools"][0]["toolName"],
            _ => &listed[0]["executionResults"]["outputs"]["flow.noop"],
        };
        assert_eq!(found, expected, "{field}: {listed:#}");
    }
    for age in ["30", "soon", "-1d"] {
        let refused = workspace.json(&["prune", &format!("--older-than={age}")], 2).await;
        assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT", "{age}");
    }
    let output = workspace.run(&["prune", "--older-than", "30d"]).await;
    assert_eq!(output.out.trim(), "removed 0 executions, 0 plans, 0 requests");
    let removed = workspace.json(&["prune", "--older-than", "0s"], 0).await;
    assert_eq!(
        removed,
        json!({ "executions": 1, "plans": 1, "requests": 1 }),
        "the newer one is removed on request"
    );
    assert_eq!(workspace.json(&["list", "requests"], 0).await, json!([]));
}

#[tokio::test]
async fn tools_can_be_loaded_and_called_and_their_usage_is_counted() {
    let workspace = Workspace::new();
    let described =
        |name: &str| json!({ "name": name, "examples": [], "arguments": { "q": "A query." } });
    let mut cat = described("cat");
    cat["run"] = json!({ "command": ["cat"] });
    cat["effect"] = json!("read");
    let file = workspace
        .file("tools.json", &json!({ "tools_list": [described("find"), cat] }).to_string());
    let loaded = workspace.json(&["tools", "load", &file], 0).await;
    let status = |status: &str| json!([{ "name": "find", "status": status }, { "name": "cat", "status": status }]);
    assert_eq!(loaded, status("OK"));
    assert_eq!(workspace.json(&["tools", "load", &file], 0).await, status("ALREADY EXISTS"));
    let called = workspace.json(&["tools", "call", "cat", r#"{"q":1}"#], 0).await;
    assert_eq!((&called["tool"], &called["result"]), (&json!("tools.cat"), &json!({ "q": 1 })));
    let failed = workspace.json(&["tools", "call", "tools.cat"], 1).await;
    assert_eq!(failed["status"], "error");
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"find","parameters":{"q":"x"}}]}"#);
    let error = workspace.json(&["run", "--plan", &plan], 2).await;
    assert_eq!(error["error"]["diagnostics"][0]["code"], "plan.not_callable");
    let usage = workspace.json(&["tools", "usage"], 0).await;
    assert_eq!((&usage[0]["calls"], &usage[0]["failures"]), (&json!(2), &json!(1)), "{usage}");
    let history = workspace.json(&["tools", "history", "cat", "--first", "1"], 0).await;
    assert_eq!(history[0]["status"], "error");
    let output = workspace.run(&["tools", "call", "nothing"]).await;
    assert_eq!((output.status, output.out.as_str()), (2, ""));
    assert!(output.err.contains("there is no tool `nothing`"), "{output:?}");
}

#[tokio::test]
async fn toolsets_can_be_activated_and_deactivated() {
    let workspace = Workspace::new();
    let active = async |name: &str| {
        let sets = workspace.json(&["toolsets", "list"], 0).await;
        let set = sets.as_array().unwrap().iter().find(|set| set["name"] == name).cloned();
        set.unwrap_or_else(|| panic!("no `{name}`"))["active"] == true
    };
    assert!(!active("file_tools").await);
    let change = workspace.json(&["toolsets", "activate", "file_tools", "nope"], 2).await;
    assert_eq!(change["changed"], json!(["file_tools"]));
    assert_eq!(change["notFound"], json!(["nope"]));
    assert!(active("file_tools").await, "the state is stored");
    workspace.file("a.txt", "x");
    let found =
        workspace.json(&["tools", "call", "file_tools.glob", r#"{"pattern":"*.txt"}"#], 0).await;
    assert!(found["result"].as_str().unwrap().contains("a.txt"), "{found}");
    workspace.json(&["toolsets", "deactivate", "file_tools"], 0).await;
    workspace.json(&["tools", "call", "file_tools.glob", r#"{"pattern":"*"}"#], 1).await;
    let change = workspace.json(&["toolsets", "deactivate", "ToolSet"], 2).await;
    assert_eq!(change["refused"], json!(["ToolSet"]));
}
