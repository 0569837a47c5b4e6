//! Plans in doubt: commands show the plan. If the plan has an effect, they ask the user on a
//! terminal, and fail without a terminal.

use serde_json::{Value, json};

use super::{terminal_output::run_on_terminal_with_input, workspace::Workspace};

/// A query for a tool with an effect. The plan uses every word except the last one, so it is in
/// doubt.
const ACTING_QUERY: &str = "close ticket T-77, it was solved by phone";
/// A query for a tool that only reads. The plan uses every word except the last one, so it is in
/// doubt.
const READING_QUERY: &str = "show ticket T-77 by phone";

/// Returns a workspace with tools for tickets. `closed` is a file that exists after `close_ticket`.
fn workspace_with_tickets() -> Workspace {
    let workspace = Workspace::new();
    let parameters = json!({ "type": "object", "required": ["ticket_id"], "properties": {
        "ticket_id": { "type": "string", "description": "Ticket ID, e.g. T-77" },
        "resolution": { "type": "string", "description": "How the problem was solved" } } });
    let closed = workspace.path("closed").display().to_string();
    let tool = |name: &str, description: &str, effect: &str, command: &[&str]| {
        json!({ "name": name, "description": description, "parameters": parameters,
            "effect": effect, "run": { "command": command } })
    };
    let tools = json!([
        tool("close_ticket", "Close a support ticket.", "once", &["touch", &closed]),
        tool("get_ticket", "Get a support ticket.", "read", &["echo", "{}"]),
    ]);
    let set = json!({ "name": "support", "source": { "tools": tools } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    workspace
}

fn diagnostic_codes(diagnostics: &Value) -> Vec<&str> {
    let all = diagnostics.as_array().unwrap();
    all.iter().map(|found| found["code"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn run_without_a_terminal_fails_with_the_draft_and_the_doubts() {
    let workspace = workspace_with_tickets();
    let failed = workspace.json(&["run", ACTING_QUERY], 2).await;
    let error = &failed["error"];
    assert_eq!(error["code"], "INVALID_PLAN", "{failed:#}");
    assert_eq!(diagnostic_codes(&error["diagnostics"]), ["plan.unplaced_words"], "{failed:#}");
    assert!(error["message"].as_str().unwrap().contains("`phone`"), "{failed:#}");
    for draft in [&error["draft"], &error["extensions"]["draft"]] {
        let step = &draft["tools"][0];
        assert_eq!(step["parameters"], json!({ "ticket_id": "T-77" }), "{failed:#}");
        assert_eq!(step["requiresApproval"], true, "{failed:#}");
    }
    let output = workspace.run(&["run", ACTING_QUERY]).await;
    assert_eq!(output.status, 2, "{output:?}");
    for part in
        ["solved by »phone«", "warning[plan.unplaced_words]", "error[INVALID_PLAN]", "--yes"]
    {
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
    assert_eq!(workspace.json(&["list", "executions"], 0).await, json!([]));
    assert!(!workspace.path("closed").exists());
    let done = workspace.json(&["run", ACTING_QUERY, "--yes"], 0).await;
    assert_eq!(done["state"], "COMPLETED", "{done:#}");
    assert!(workspace.path("closed").exists());
}

#[tokio::test]
async fn run_on_a_terminal_shows_the_doubts_and_asks() {
    let workspace = workspace_with_tickets();
    for (typed, is_done) in [("n\n", false), ("\n", false), ("y\n", true)] {
        let output = run_on_terminal_with_input(&workspace, &["run", ACTING_QUERY], typed).await;
        assert!(output.contains("»phone«") && output.contains("needs approval"), "{output}");
        assert!(output.contains("Execute this plan? [y/N]"), "{output}");
        assert_eq!(output.contains("nothing was executed"), !is_done, "{output}");
        assert_eq!(workspace.path("closed").exists(), is_done, "{output}");
    }
    let executions = workspace.json(&["list", "executions"], 0).await;
    assert_eq!(executions.as_array().unwrap().len(), 1);
    assert_eq!(executions[0]["state"], "COMPLETED");
    let output = run_on_terminal_with_input(&workspace, &["run", ACTING_QUERY, "--yes"], "").await;
    assert!(!output.contains("[y/N]"), "{output}");
}

#[tokio::test]
async fn a_plan_that_only_reads_runs_with_its_doubts_listed() {
    let workspace = workspace_with_tickets();
    let done = workspace.run(&["run", READING_QUERY]).await;
    assert_eq!(done.status, 0, "{done:?}");
    assert!(done.err.contains("warning[plan.unplaced_words]"), "{done:?}");
    let output = run_on_terminal_with_input(&workspace, &["run", READING_QUERY], "").await;
    assert!(!output.contains("[y/N]"), "{output}");
}

#[tokio::test]
async fn plan_shows_a_draft_in_doubt_and_refuses_with_status_2() {
    let workspace = workspace_with_tickets();
    let planned = workspace.run(&["plan", ACTING_QUERY]).await;
    assert_eq!(planned.status, 0, "{planned:?}");
    assert!(
        planned.err.contains("in doubt: close ticket T-77, it was solved by »phone«"),
        "{planned:?}"
    );
    let planned = workspace.json(&["plan", ACTING_QUERY], 0).await;
    assert_eq!(diagnostic_codes(&planned["diagnostics"]), ["plan.unplaced_words"]);
    let refused = workspace.json(&["plan", "Should I close ticket T-77?"], 2).await;
    assert_eq!(refused["error"]["code"], "NO_PLAN_FOUND");
}

#[tokio::test]
async fn a_dry_run_of_a_plan_in_doubt_asks_nothing() {
    let workspace = workspace_with_tickets();
    let done = workspace.json(&["run", ACTING_QUERY, "--dry-run"], 0).await;
    assert_eq!(done["state"], "COMPLETED", "{done:#}");
    assert!(!workspace.path("closed").exists());
}
