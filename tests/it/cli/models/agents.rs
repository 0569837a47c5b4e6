//! Agents over real HTTP, and tools that return much.

use serde_json::json;

use super::{Home, Model};

/// Whatever one turn brings, the model is asked again.
#[tokio::test]
async fn an_agent_that_has_read_very_much_still_answers() {
    let home = Home::new();
    let call = json!({ "name": "local_quotes", "arguments": "{}" });
    let answers = json!([
        { "toolCalls": vec![call; 32] },
        { "content": "These were quotation marks." },
    ]);
    let model = Model::answering(&home, "model", answers).await;
    let print = "head -c 32000 /dev/zero | tr '\\0' '\"'";
    let quotes = json!({
        "name": "quotes", "description": "Prints quotation marks.", "effect": "read",
        "parameters": { "type": "object" }, "run": { "command": ["/bin/sh", "-c", print] },
    });
    let toolsets = json!([{ "name": "local", "source": { "tools": [quotes] } }]);
    home.file(
        "faber.yaml",
        &format!(
            "store: sqlite:./faber.db\nplanner: {{ {} }}\ntoolsets: {toolsets}\n",
            model.speaking("openai")
        ),
    );
    let ran = home.json(&["agent", "Read all of it"], 0).await;
    assert_eq!(ran["state"], "COMPLETED", "{}", ran["executionResults"]["errors"]);
    assert_eq!(ran["outputs"]["answer"]["answer"], "These were quotation marks.");
    let read = ran["outputs"]["read_1"].as_array().unwrap();
    assert_eq!(read.len(), 32);
    for it in read {
        assert_eq!((&it["status"], &it["cut"]), (&json!("success"), &json!(true)), "{it}");
    }
}
