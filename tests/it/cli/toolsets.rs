//! Toolsets from the command line: failures, effects and suggestions.

use std::fs;

use serde_json::{Value, json};

use super::{plain_http::get_text, workspace::Workspace};

/// A configuration with a toolset that works, and a toolset whose server does not exist.
const CONFIG_WITH_FAILED_SET: &str = "
toolsets:
  - { name: good, source: { tools: [{ name: get_time, run: { command: [date] } }] } }
  - { name: mail, source: { mcp: { command: ./nothing-there } } }
";

fn message(error: &Value) -> &str {
    error["error"]["message"].as_str().unwrap_or_else(|| panic!("{error}"))
}

#[tokio::test]
async fn a_failed_toolset_is_one_readable_warning() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", CONFIG_WITH_FAILED_SET);
    let listed = workspace.run(&["tools", "list"]).await;
    assert_eq!(listed.status, 0, "{listed:?}");
    assert!(listed.out.contains("get_time"), "{listed:?}");
    let warned: Vec<_> = listed.err.lines().collect();
    assert_eq!(warned.len(), 1, "{listed:?}");
    assert!(warned[0].starts_with("warning: the toolset `mail` failed: "), "{listed:?}");
    assert!(warned[0].contains("nothing-there` was not found"), "{listed:?}");

    let named = workspace.run(&["tools", "list", "--toolset", "mail"]).await;
    assert_eq!((named.status, named.out.as_str()), (3, ""), "{named:?}");
    assert!(named.err.contains("the toolset `mail` failed: "), "{named:?}");
    assert_eq!(named.err.trim_end().lines().count(), 1, "{named:?}");
    let fine = workspace.run(&["tools", "list", "--toolset", "good"]).await;
    assert_eq!((fine.status, fine.err.as_str()), (0, ""), "{fine:?}");
    let error = workspace.json(&["tools", "list", "--toolset", "goood"], 2).await;
    assert_eq!(message(&error), "there is no toolset `goood`: did you mean `good`?");
}

#[tokio::test]
async fn an_inactive_toolset_that_failed_gives_no_warning_and_no_alert() {
    let workspace = Workspace::new();
    let config = "toolsets:\n  - { name: files, active: false, source: { builtin: file_tools, root: ./missing } }\n";
    workspace.file("faber.yaml", config);
    let sets = workspace.json(&["toolsets", "list"], 0).await;
    let set = sets.as_array().unwrap().iter().find(|set| set["name"] == "files");
    assert_eq!(set.unwrap()["status"], "failed", "{sets}");
    let listed = workspace.run(&["tools", "list"]).await;
    assert_eq!((listed.status, listed.err.as_str()), (0, ""), "{listed:?}");
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on").await;
    let (_, address) = line.trim().split_once("http://").unwrap();
    let metrics = get_text(address, "/metrics").await;
    assert!(metrics.contains("faber_toolsets{status=\"failed\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn a_tool_of_a_failed_toolset_is_not_called_unknown() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", CONFIG_WITH_FAILED_SET);
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"send_mail"}]}"#);
    let ended = workspace.run(&["run", "--plan", &plan]).await;
    assert_eq!((ended.status, ended.out.as_str()), (3, ""), "{ended:?}");
    assert!(ended.err.contains("mail`"), "{ended:?}");
    assert!(ended.err.contains("failed: ") && ended.err.contains("was not found"), "{ended:?}");
    assert!(!ended.err.contains("WARN"), "{ended:?}");
    // The failed toolset does not prevent the suggestion for a misspelled name.
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"get_tme"}]}"#);
    let error = workspace.json(&["run", "--plan", &plan], 2).await;
    let help = error["error"]["diagnostics"][0]["help"].as_str().unwrap();
    assert!(
        help.starts_with("did you mean `get_time`? Or perhaps in `mail`, which failed"),
        "{help}"
    );
    let error = workspace.json(&["tools", "call", "send_mail"], 3).await;
    assert!(message(&error).contains("perhaps in `mail`, which failed"), "{error}");
    let error = workspace.json(&["tools", "show", "mail.send_mail"], 3).await;
    assert!(message(&error).contains("perhaps in `mail`, which failed"), "{error}");
    let called = workspace.json(&["tools", "call", "mail.send_mail"], 3).await;
    assert_eq!(called["status"], "error");
}

#[tokio::test]
async fn doctor_reports_command_tools_whose_program_is_missing() {
    let workspace = Workspace::new();
    let text = "toolsets: [{ name: own, source: { tools: [
        { name: a, run: { command: [date] } }, { name: b, run: { command: [no-such-program] } }] } }]";
    workspace.file("faber.yaml", text);
    let checks = workspace.json(&["doctor"], 3).await;
    let own = checks.as_array().unwrap().iter().find(|check| check["name"] == "toolset own");
    let detail = own.unwrap()["detail"].as_str().unwrap();
    assert!(detail.starts_with("`b`: `no-such-program` was not found: install it"), "{detail}");
    assert!(!workspace.path(".local/share/faber/faber.db").exists(), "the doctor creates no store");
}

#[tokio::test]
async fn commands_that_find_nothing_create_no_store() {
    let workspace = Workspace::new();
    workspace.json(&["doctor"], 0).await;
    let error = workspace.json(&["run", "--saved", "unknown"], 2).await;
    assert_eq!(error["error"]["code"], "NOT_FOUND");
    let error = workspace.json(&["login", "blgo"], 2).await;
    assert_eq!(message(&error), "there is no toolset `blgo`: did you mean `blog`?");
    assert!(!workspace.path(".local/share/faber/faber.db").exists());
    let switched = workspace.run(&["toolsets", "activate", "blgo"]).await;
    assert_eq!(switched.status, 2, "{switched:?}");
    let expected = "blgo: there is no such toolset: did you mean `blog`?";
    assert_eq!(switched.out.trim(), expected, "{switched:?}");
}

#[tokio::test]
async fn a_wrong_key_in_a_toolset_names_the_tool_and_the_line() {
    let workspace = Workspace::new();
    let tool =
        "        - name: get_time\n          retries: 3\n          run: { command: [date] }\n";
    workspace.file(
        "faber.yaml",
        &format!("toolsets:\n  - name: own\n    source:\n      tools:\n{tool}"),
    );
    let error = workspace.json(&["tools", "list"], 2).await;
    let expected =
        "line 6: `toolsets[0].source.tools[0].retries` (`get_time`): `retries` is unknown: ";
    assert!(message(&error).contains(expected), "{error}");
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop","retries":3}]}"#);
    workspace.file("faber.yaml", "");
    let error = workspace.json(&["run", "--plan", &plan], 2).await;
    assert_eq!(error["error"]["diagnostics"][0]["help"], "did you mean `retry`?");
}

/// The first call of the tool hangs. Faber calls the tool again only if the configured effect says
/// that a second call is harmless.
#[tokio::test]
async fn an_effect_set_in_the_configuration_applies_to_stored_plans() {
    let workspace = Workspace::new();
    let script = "if [ -e begun ]; then echo done; else touch begun; sleep 60; fi";
    let configure = |effects: &str| {
        let tool = json!({ "name": "work", "run": { "command": ["sh", "-c", script] } });
        let source = format!("{{ tools: [{tool}], effects: {{ {effects} }} }}");
        workspace.file("faber.yaml", &format!("toolsets: [{{ name: own, source: {source} }}]\n"));
    };
    configure("");
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"w","name":"work","timeoutMs":500,"retry":{"maxAttempts":2,"backoffMs":1}}]}"#,
    );
    let failed = workspace.json(&["run", "--plan", &plan], 1).await;
    let errors = &failed["executionResults"]["errors"];
    assert_eq!(errors[0]["code"], "tool.outcome_unknown", "{failed}");
    configure("'wo?k': idempotent");
    fs::remove_file(workspace.path("begun")).unwrap();
    let id = failed["planId"].as_str().unwrap();
    let done = workspace.json(&["execute", id, "--idempotency-key", "again"], 0).await;
    assert_eq!(done["outputs"], json!({ "w": "done" }));
    let listed = workspace.json(&["tools", "list", "--toolset", "own"], 0).await;
    assert_eq!(listed[0]["effect"], "IDEMPOTENT");
}

#[tokio::test]
async fn an_effect_pattern_without_a_tool_is_a_warning_and_an_invalid_effect_an_error() {
    let workspace = Workspace::new();
    let configure = |source: &str| {
        workspace.file("faber.yaml", &format!("toolsets: [{{ name: own, source: {source} }}]\n"));
    };
    let tools = "tools: [{ name: t, run: { command: [date] } }]";
    configure(&format!("{{ {tools}, effects: {{ 'own.x*': read, t: read }} }}"));
    let checks = workspace.json(&["doctor"], 0).await;
    let check = checks.as_array().unwrap().iter().find(|check| check["name"] == "effects");
    let check = check.unwrap_or_else(|| panic!("no warning: {checks}"));
    assert_eq!(check["detail"], "no tool matches `own.x*` of `own`");
    assert_eq!((&check["ok"], &check["warning"]), (&json!(true), &json!(true)));
    configure("{ builtin: file_tools, effects: { '*': read } }");
    let error = workspace.json(&["tools", "list"], 2).await;
    assert!(message(&error).contains("Faber sets the effects of built-in tools"), "{error}");

    let list = json!({
        "tools_list": [{ "name": "look", "run": { "command": ["date"] } }],
        "effects": { "lo*": "read" },
    });
    workspace.file("tools.json", &list.to_string());
    workspace.file("faber.yaml", "tools_files: [tools.json]\n");
    let listed = workspace.json(&["tools", "list", "--toolset", "tools"], 0).await;
    assert_eq!(listed[0]["effect"], "READ");
}
