//! `faber fork`: changes, kept outputs, and the calls that it lists.

use serde_json::{Value, json};

use super::{terminal_output::run_on_terminal_with_input, workspace::Workspace};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}

/// Step `paid` has an effect and succeeds, `slow` has an unknown outcome, and `fails` fails.
async fn failed_execution(workspace: &Workspace) -> String {
    let slow = json!({ "name": "slow", "effect": "once", "run": { "command": ["sleep", "60"] } });
    let set = json!({ "name": "own", "source": { "tools": [slow] } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    let plan = json!({ "tools": [
        { "id": "read", "name": "flow.echo", "parameters": { "n": "{{input.n}}" } },
        { "id": "paid", "name": "flow.effect" },
        { "id": "slow", "name": "slow", "timeoutMs": 100, "onError": "ignore", "dependsOn": "paid" },
        { "id": "fails", "name": "flow.fail", "parameters": { "message": "no {{read.n}}" }, "dependsOn": "slow" },
    ] });
    let plan = workspace.file("plan.json", &plan.to_string());
    let ended = workspace.json(&["run", "--plan", &plan, "--input", "{\"n\":1}"], 1).await;
    text(&ended["executionId"]).to_owned()
}

#[tokio::test]
async fn a_fork_changes_input_parameters_and_outputs() {
    let workspace = Workspace::new();
    let id = failed_execution(&workspace).await;
    let done = ["--output", "slow=null", "--output", "fails={\"fine\":true}"];
    let forked = workspace.json(&[&["fork", &id], &done[..]].concat(), 0).await;
    assert_eq!(forked["forkedFrom"], json!(id));
    assert_eq!(forked["outputs"]["fails"], json!({ "fine": true }));
    let reused = |execution: &Value| -> Vec<bool> {
        let steps = execution["steps"].as_array().unwrap_or_else(|| panic!("{execution}"));
        steps.iter().map(|step| step["reused"] == true).collect()
    };
    assert_eq!(reused(&forked), [true; 4]);
    let changed = [
        &["fork", &id, "--input", "{\"n\":2}", "--set", "fails.message=still {{read.n}}"],
        &done[..2],
    ];
    let forked = workspace.json(&changed.concat(), 1).await;
    assert_eq!(reused(&forked), [false, true, true, false]);
    assert_eq!(forked["executionResults"]["errors"][0]["message"], "still 2");
    assert_ne!(forked["planId"], workspace.json(&["debug", &id], 0).await["planId"]);
    let debug = workspace.run(&["debug", &id]).await;
    assert!(debug.out.contains("forked"), "{}", debug.out);
    let debug = workspace.run(&["debug", text(&forked["executionId"])]).await;
    assert!(debug.out.contains(&format!("fork of  {id}")), "{}", debug.out);
    let watched = workspace.run(&["watch", &id]).await;
    assert!(watched.err.contains("forked as: exec_"), "{watched:?}");
    for (arguments, message) in [
        (["--set", "fials.message=x"], "did you mean `fails`"),
        (["--set", "fails"], "is not `STEP.PATH=VALUE`"),
        (["--output", "none=1"], "has no step `none`"),
        (["--output", "slow=x"], "is not JSON"),
        (["--plan", "plan_1_aaaaaaaaa"], "there is no plan"),
    ] {
        let answer = workspace.json(&[&["fork", id.as_str()], &arguments[..]].concat(), 2).await;
        assert!(text(&answer["error"]["message"]).contains(message), "{answer}");
    }
}

#[tokio::test]
async fn a_fork_lists_the_calls_that_it_makes_and_asks() {
    let workspace = Workspace::new();
    let id = failed_execution(&workspace).await;
    let refused = workspace.run(&["fork", &id]).await;
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.err.contains("slow  own.slow  1 call, with an unknown outcome"), "{refused:?}");
    assert!(refused.err.contains("`--yes`"), "{refused:?}");
    let all = ["fork", &id, "--set", "paid={\"x\":1}", "--output", "slow=1"];
    for (typed, is_forked) in [("n\n", false), ("y\n", true)] {
        let output = run_on_terminal_with_input(&workspace, &all, typed).await;
        assert!(output.contains("paid  flow.effect  1 call, made before"), "{output}");
        assert!(output.contains("make them? (y/N)"), "{output}");
        assert_eq!(output.contains("nothing was forked"), !is_forked, "{output}");
    }
    let config = workspace.file("other.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    let lacking = workspace.json(&["fork", &id, "--yes", "--config", &config], 3).await;
    assert_eq!(lacking["error"]["code"], "TOOL_UNAVAILABLE", "{lacking}");
}
