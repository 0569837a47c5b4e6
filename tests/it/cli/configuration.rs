use std::fs;

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

    // With `--json`, the error of each command contains these mistakes.
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
async fn the_store_and_secrets_can_be_in_files() {
    let workspace = Workspace::new();
    workspace.file("store", "mongodb://faber:secret@db.example/faber\n");
    workspace.file("faber.yaml", "store_file: store\n");
    let shown = workspace.run(&["config", "--json"]).await;
    assert_eq!(shown.status, 0, "{shown:?}");
    assert!(shown.out.contains("mongodb://faber:***@db.example/faber"), "{shown:?}");
    assert!(!shown.out.contains("secret@"), "{shown:?}");

    fs::remove_file(workspace.path("store")).unwrap();
    let missing = workspace.run(&["list", "plans"]).await;
    assert_eq!(missing.status, 2, "{missing:?}");
    assert!(missing.err.contains("`store_file`: `store` cannot be read"), "{missing:?}");
    let flag = workspace.json(&["list", "plans", "--store", "memory:"], 0).await;
    assert_eq!(flag, json!([]));

    let text = "store: \"memory:\"\nstore_file: store\n";
    workspace.file("faber.yaml", text);
    let error = workspace.json(&["config", "check"], 2).await;
    let first = &error["error"]["errors"][0];
    let place = json!([first["line"], first["path"], first["message"]]);
    let message = "`store_file`: name one of `store` and `store_file`";
    assert_eq!(place, json!([2, "store_file", message]), "{error}");
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

#[tokio::test]
async fn tools_add_writes_a_toolset_that_answers() {
    let workspace = Workspace::new();
    let text = "# my tools\ntoolsets:\n  - name: own # the first\n    source: { tools: [] }\n\nlimits: {} # none\n";
    workspace.file("faber.yaml", text);
    let read = || fs::read_to_string(workspace.path("faber.yaml")).unwrap();
    let demo = ["tools", "add", "mcp", "blog", "--", "faber", "blog-mcp", "--file", "b.json"];
    let without_json = workspace.run(&demo).await;
    assert_eq!(without_json.status, 0, "{without_json:?}");
    assert!(without_json.out.starts_with("added `blog` to `faber.yaml`: "), "{without_json:?}");
    let edited = read();
    assert!(text.lines().all(|line| edited.lines().any(|other| other == line)), "{edited}");
    let sets = workspace.json(&["toolsets", "list"], 0).await;
    let names: Vec<_> = sets.as_array().unwrap().iter().map(|set| &set["name"]).collect();
    assert!(names.contains(&&json!("own")) && names.contains(&&json!("blog")), "{sets}");

    let again = workspace.run(&demo).await;
    assert!(again.status == 2 && again.err.contains("`blog` exists already"), "{again:?}");
    let broken = workspace.run(&["tools", "add", "mcp", "broken", "--", "false"]).await;
    assert!(broken.status == 3 && broken.err.contains("the file is unchanged"), "{broken:?}");
    let missing = workspace.run(&["tools", "add", "openapi", "pets", "./missing.yaml"]).await;
    assert_eq!(missing.status, 3, "{missing:?}");
    assert_eq!(read(), edited);

    let document = json!({
        "openapi": "3.0.0", "info": { "title": "t", "version": "1" },
        "servers": [{ "url": "http://127.0.0.1:1" }],
        "paths": { "/pets": { "get": { "operationId": "listPets", "responses": {} } } },
    });
    workspace.file("pets.json", &document.to_string());
    let added = workspace.json(&["tools", "add", "openapi", "pets", "pets.json"], 0).await;
    assert_eq!((&added["toolSet"], &added["tools"]), (&json!("pets"), &json!(1)));

    let empty = Workspace::new();
    let created = empty.run(&demo).await;
    assert!(created.status == 0 && empty.path("faber.yaml").exists(), "{created:?}");
}
