//! Outputs that need more bytes in a log than in memory, because the log escapes characters.

use serde_json::json;

use super::workspace::Workspace;
use crate::mongod::Mongod;

/// Writes a configuration with a `read` command that logs its calls and prints three million
/// control characters, which take eighteen million bytes in a log.
fn configure(workspace: &Workspace, store: &str) {
    let print = "head -c 3000000 /dev/zero | tr '\\000' '\\001'";
    let calls = workspace.path("calls").display().to_string();
    let script = workspace.file("controls.sh", &format!("echo called >>'{calls}'; {print}\n"));
    let tool = json!({
        "name": "controls", "description": "Prints control characters.", "effect": "read",
        "parameters": { "type": "object" }, "run": { "command": ["sh", script] },
    });
    let set = json!({ "name": "local", "source": { "tools": [tool] } });
    let limits = json!({ "output_bytes": 8 << 20 });
    let config = json!({ "store": store, "limits": limits, "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
}

/// Regression: the execution was retried every ten minutes, and called the tool again each time.
#[tokio::test]
async fn an_output_too_large_for_the_log_fails_its_step_after_one_call() {
    for store in ["sqlite:large.db".to_owned(), Mongod::shared().await.new_database_url()] {
        let workspace = Workspace::new();
        configure(&workspace, &store);
        let plan = workspace.file("plan.json", r#"{"tools":[{"name":"controls"}]}"#);
        let failed = workspace.json(&["run", "--plan", &plan, "--deadline-ms", "60000"], 1).await;
        assert_eq!(failed["state"], "FAILED", "{failed:#}");
        let error = &failed["executionResults"]["errors"][0];
        assert_eq!(error["code"], "tool.output_too_large", "{failed:#}");
        let calls = std::fs::read_to_string(workspace.path("calls")).unwrap();
        assert_eq!(calls.lines().count(), 1, "{calls}");
    }
}
