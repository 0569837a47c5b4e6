//! Outputs that are larger in a log than in memory.

use serde_json::json;

use super::home::Home;
use crate::mongod::Mongod;

/// A command that reads, counts its calls, and prints three million control characters: eighteen
/// million bytes in a log.
const CONFIG: &str = r"
limits: { output_bytes: 8388608 }
toolsets:
  - name: local
    source:
      tools:
        - name: controls
          description: Prints control characters.
          parameters: { type: object }
          effect: read
          run: { command: [sh, controls.sh] }
";
const SCRIPT: &str = "echo called >>calls; head -c 3000000 /dev/zero | tr '\\000' '\\001'\n";

/// Its execution was set aside for ten minutes at a time, and called the tool again each time.
#[tokio::test]
async fn an_output_that_no_log_can_hold_fails_its_step_at_once() {
    for store in ["sqlite:large.db".to_owned(), Mongod::shared().await.fresh_url()] {
        let home = Home::new();
        home.file("faber.yaml", &format!("store: {store:?}\n{CONFIG}"));
        home.file("controls.sh", SCRIPT);
        let plan = home.file("plan.json", r#"{"tools":[{"name":"controls"}]}"#);
        let failed = home.json(&["run", "--plan", &plan, "--deadline-ms", "60000"], 1).await;
        assert_eq!(failed["state"], "FAILED", "{failed:#}");
        let error = &failed["executionResults"]["errors"][0];
        assert_eq!(error["code"], "tool.output_too_large", "{failed:#}");
        assert_eq!(error["attempt"], json!(1));
        let calls = std::fs::read_to_string(home.path("calls")).unwrap();
        assert_eq!(calls.lines().count(), 1, "{calls}");
    }
}
