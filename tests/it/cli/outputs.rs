//! Outputs that are larger in a log than in memory.

use serde_json::json;

use super::home::Home;
use crate::mongod::Mongod;

/// Writes a configuration with a command that reads, notes its calls, and prints three million control
/// characters: eighteen million bytes in a log.
fn configure(home: &Home, store: &str) {
    let print = "head -c 3000000 /dev/zero | tr '\\000' '\\001'";
    let calls = home.path("calls").display().to_string();
    let script = home.file("controls.sh", &format!("echo called >>'{calls}'; {print}\n"));
    let tool = json!({
        "name": "controls", "description": "Prints control characters.", "effect": "read",
        "parameters": { "type": "object" }, "run": { "command": ["sh", script] },
    });
    let set = json!({ "name": "local", "source": { "tools": [tool] } });
    let limits = json!({ "output_bytes": 8 << 20 });
    let config = json!({ "store": store, "limits": limits, "toolsets": [set] });
    home.file("faber.yaml", &config.to_string());
}

/// Its execution was set aside for ten minutes at a time, and called the tool again each time.
#[tokio::test]
async fn an_output_that_no_log_can_hold_fails_its_step_at_once() {
    for store in ["sqlite:large.db".to_owned(), Mongod::shared().await.fresh_url()] {
        let home = Home::new();
        configure(&home, &store);
        let plan = home.file("plan.json", r#"{"tools":[{"name":"controls"}]}"#);
        let failed = home.json(&["run", "--plan", &plan, "--deadline-ms", "60000"], 1).await;
        assert_eq!(failed["state"], "FAILED", "{failed:#}");
        let error = &failed["executionResults"]["errors"][0];
        assert_eq!(error["code"], "tool.output_too_large", "{failed:#}");
        let calls = std::fs::read_to_string(home.path("calls")).unwrap();
        assert_eq!(calls.lines().count(), 1, "{calls}");
    }
}
