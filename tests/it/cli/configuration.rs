//! The configuration file and its mistakes.

use serde_json::json;

use super::workspace::Workspace;

#[tokio::test]
async fn config_check_prints_every_mistake_with_its_line_and_path() {
    let workspace = Workspace::new();
    let text = "toolsets:\n  - name: pets\n    source:\n      mcp:\n        comand: x\n  - name: own\n    \
                source: { tools: 7 }\nlimits: { lease_ms: soon }\n";
    workspace.file("faber.yaml", text);
    let printed = workspace.run(&["config", "check"]).await;
    assert_eq!((printed.status, printed.out.as_str()), (2, ""), "{printed:?}");
    let lines: Vec<&str> = printed.err.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, expected) in lines.iter().zip([
        "line 5: `toolsets[0].source.mcp.comand`: `comand` is unknown: did you mean `command`?",
        "line 7: `toolsets[1].source`: `tools` must be a list",
        "line 8: `limits.lease_ms` is \"soon\"",
    ]) {
        let expected = format!("error[INVALID_ARGUMENT]: `faber.yaml`: {expected}");
        assert!(line.starts_with(&expected), "{line}");
    }

    // The error of each other command has the same mistakes.
    for command in [&["config", "check"][..], &["list", "plans"]] {
        let error = workspace.json(command, 2).await;
        let errors = error["error"]["errors"].as_array().unwrap();
        let places: Vec<_> = errors
            .iter()
            .map(|error| json!([error["file"], error["line"], error["path"]]))
            .collect();
        let expected = [
            json!(["faber.yaml", 5, "toolsets[0].source.mcp.comand"]),
            json!(["faber.yaml", 7, "toolsets[1].source.tools"]),
            json!(["faber.yaml", 8, "limits.lease_ms"]),
        ];
        assert_eq!(places, expected, "{command:?}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.ends_with("(the file has 3 mistakes: `faber config check` lists them)"));
    }
}

#[tokio::test]
async fn config_check_names_the_line_of_wrong_yaml_and_accepts_a_valid_file() {
    let workspace = Workspace::new();
    let other = workspace.file("other.yaml", "store: \"memory:\"\nlimits: [\n");
    let error = workspace.json(&["config", "check", &other], 2).await;
    let first = &error["error"]["errors"][0];
    assert!(first["line"].is_u64() && first["path"].is_null(), "{error}");
    workspace.json(&["config", "check", "missing.yaml"], 2).await;

    workspace.file("faber.yaml", "store: nowhere/x.db\nplanner: offline\n");
    let checked = workspace.json(&["config", "check"], 0).await;
    assert_eq!(checked, json!({ "file": "faber.yaml", "valid": true }));
    let checked = workspace.run(&["config", "check"]).await;
    assert_eq!((checked.status, checked.out.as_str()), (0, "`faber.yaml` is valid\n"));
    let absent = Workspace::new().run(&["config", "check"]).await;
    assert_eq!(absent.status, 0, "{absent:?}");
    assert!(!workspace.path(".local/share/faber").exists(), "a check opens no store");
}

#[tokio::test]
async fn the_schemas_are_printed() {
    let workspace = Workspace::new();
    for (command, key) in
        [(&["config", "schema"][..], "toolsets"), (&["config", "schema", "--plan"], "tools")]
    {
        let schema = workspace.json(command, 0).await;
        assert!(schema["properties"][key].is_object(), "{schema}");
    }
}
