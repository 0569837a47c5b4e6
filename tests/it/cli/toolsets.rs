//! Toolsets from the command line: failures, effects, and suggestions.

use std::fs;

use serde_json::{Value, json};

use super::home::Home;

/// A set that works, and one whose server does not exist.
const WITH_FAILED: &str = "
toolsets:
  - { name: good, source: { tools: [{ name: get_time, run: { command: [date] } }] } }
  - { name: mail, source: { mcp: { command: ./nothing-there } } }
";

fn message(error: &Value) -> &str {
    error["error"]["message"].as_str().unwrap_or_else(|| panic!("{error}"))
}

#[tokio::test]
async fn a_failed_toolset_is_reported_once_and_in_words() {
    let home = Home::new();
    home.file("faber.yaml", WITH_FAILED);
    let listed = home.run(&["tools", "list"]).await;
    assert_eq!(listed.status, 0, "{listed:?}");
    assert!(listed.out.contains("get_time"), "{listed:?}");
    let warned: Vec<_> = listed.err.lines().collect();
    assert_eq!(warned.len(), 1, "{listed:?}");
    assert!(warned[0].starts_with("warning: the toolset `mail` failed: "), "{listed:?}");
    assert!(warned[0].contains("nothing-there` was not found"), "{listed:?}");

    let named = home.run(&["tools", "list", "--toolset", "mail"]).await;
    assert_eq!((named.status, named.out.as_str()), (3, ""), "{named:?}");
    assert!(named.err.contains("the toolset `mail` failed: "), "{named:?}");
    assert_eq!(named.err.trim_end().lines().count(), 1, "{named:?}");
    let fine = home.run(&["tools", "list", "--toolset", "good"]).await;
    assert_eq!((fine.status, fine.err.as_str()), (0, ""), "{fine:?}");
    let error = home.json(&["tools", "list", "--toolset", "goood"], 2).await;
    assert_eq!(message(&error), "there is no toolset `goood`: did you mean `good`?");
}

#[tokio::test]
async fn a_tool_of_a_failed_toolset_is_not_called_unknown() {
    let home = Home::new();
    home.file("faber.yaml", WITH_FAILED);
    let plan = home.file("plan.json", r#"{"tools":[{"name":"send_mail"}]}"#);
    let ended = home.run(&["run", "--plan", &plan]).await;
    assert_eq!((ended.status, ended.out.as_str()), (3, ""), "{ended:?}");
    assert!(ended.err.contains("mail`"), "{ended:?}");
    assert!(ended.err.contains("failed: ") && ended.err.contains("was not found"), "{ended:?}");
    assert!(!ended.err.contains("WARN"), "{ended:?}");
    // A typo is a typo.
    let plan = home.file("plan.json", r#"{"tools":[{"name":"get_tme"}]}"#);
    let error = home.json(&["run", "--plan", &plan], 2).await;
    let help = error["error"]["diagnostics"][0]["help"].as_str().unwrap();
    assert!(
        help.starts_with("did you mean `get_time`? Or perhaps in `mail`, which failed"),
        "{help}"
    );
    let error = home.json(&["tools", "call", "send_mail"], 3).await;
    assert!(message(&error).contains("perhaps in `mail`, which failed"), "{error}");
    let error = home.json(&["tools", "show", "mail.send_mail"], 3).await;
    assert!(message(&error).contains("perhaps in `mail`, which failed"), "{error}");
    let called = home.json(&["tools", "call", "mail.send_mail"], 3).await;
    assert_eq!(called["status"], "error");
}

#[tokio::test]
async fn the_doctor_looks_for_the_programs_of_commands() {
    let home = Home::new();
    let text = "toolsets: [{ name: own, source: { tools: [
        { name: a, run: { command: [date] } }, { name: b, run: { command: [no-such-program] } }] } }]";
    home.file("faber.yaml", text);
    let checks = home.json(&["doctor"], 3).await;
    let own = checks.as_array().unwrap().iter().find(|check| check["name"] == "toolset own");
    let detail = own.unwrap()["detail"].as_str().unwrap();
    assert!(detail.starts_with("`b`: `no-such-program` was not found: install it"), "{detail}");
    assert!(!home.path(".local/share/faber/faber.db").exists(), "the doctor creates no store");
}

#[tokio::test]
async fn commands_that_find_nothing_create_no_store() {
    let home = Home::new();
    home.json(&["doctor"], 0).await;
    let error = home.json(&["run", "--saved", "unknown"], 2).await;
    assert_eq!(error["error"]["code"], "NOT_FOUND");
    let error = home.json(&["login", "blgo"], 2).await;
    assert_eq!(message(&error), "there is no toolset `blgo`: did you mean `blog`?");
    assert!(!home.path(".local/share/faber/faber.db").exists());
    let switched = home.run(&["toolsets", "activate", "blgo"]).await;
    assert_eq!(switched.status, 2, "{switched:?}");
    let told = "blgo: there is no such toolset: did you mean `blog`?";
    assert_eq!(switched.out.trim(), told, "{switched:?}");
}

#[tokio::test]
async fn a_wrong_key_in_a_toolset_names_the_tool_and_the_line() {
    let home = Home::new();
    let tool =
        "        - name: get_time\n          retries: 3\n          run: { command: [date] }\n";
    home.file(
        "faber.yaml",
        &format!("toolsets:\n  - name: own\n    source:\n      tools:\n{tool}"),
    );
    let error = home.json(&["tools", "list"], 2).await;
    let expected = "line 6: `toolsets[0].source.tools[0]` (`get_time`): `retries` is unknown: ";
    assert!(message(&error).contains(expected), "{error}");
    let plan = home.file("plan.json", r#"{"tools":[{"name":"flow.noop","retries":3}]}"#);
    home.file("faber.yaml", "");
    let error = home.json(&["run", "--plan", &plan], 2).await;
    assert_eq!(error["error"]["diagnostics"][0]["help"], "did you mean `retry`?");
}

/// The first call of the tool hangs. Only a tool with a harmless second call is called again.
#[tokio::test]
async fn an_effect_that_is_set_holds_for_plans_that_were_stored_before() {
    let home = Home::new();
    let script = "if [ -e begun ]; then echo done; else touch begun; sleep 60; fi";
    let configure = |effects: &str| {
        let tool = json!({ "name": "work", "run": { "command": ["sh", "-c", script] } });
        let source = format!("{{ tools: [{tool}], effects: {{ {effects} }} }}");
        home.file("faber.yaml", &format!("toolsets: [{{ name: own, source: {source} }}]\n"));
    };
    configure("");
    let plan = home.file(
        "plan.json",
        r#"{"tools":[{"id":"w","name":"work","timeoutMs":500,"retry":{"maxAttempts":2,"backoffMs":1}}]}"#,
    );
    let failed = home.json(&["run", "--plan", &plan], 1).await;
    let errors = &failed["executionResults"]["errors"];
    assert_eq!(errors[0]["code"], "tool.outcome_unknown", "{failed}");
    configure("'wo?k': idempotent");
    fs::remove_file(home.path("begun")).unwrap();
    let id = failed["planId"].as_str().unwrap();
    let done = home.json(&["execute", id, "--idempotency-key", "again"], 0).await;
    assert_eq!(done["outputs"], json!({ "w": "done" }));
    let listed = home.json(&["tools", "list", "--toolset", "own"], 0).await;
    assert_eq!(listed[0]["effect"], "IDEMPOTENT");
}

#[tokio::test]
async fn effects_for_no_tool_are_a_warning_and_wrong_ones_an_error() {
    let home = Home::new();
    let configure = |source: &str| {
        home.file("faber.yaml", &format!("toolsets: [{{ name: own, source: {source} }}]\n"));
    };
    let tools = "tools: [{ name: t, run: { command: [date] } }]";
    configure(&format!("{{ {tools}, effects: {{ 'own.x*': read, t: read }} }}"));
    let checks = home.json(&["doctor"], 0).await;
    let check = checks.as_array().unwrap().iter().find(|check| check["name"] == "effects");
    let check = check.unwrap_or_else(|| panic!("no warning: {checks}"));
    assert_eq!(check["detail"], "no tool matches `own.x*` of `own`");
    assert_eq!((&check["ok"], &check["warning"]), (&json!(true), &json!(true)));
    configure("{ builtin: file_tools, effects: { '*': read } }");
    let error = home.json(&["tools", "list"], 2).await;
    assert!(message(&error).contains("the effects of built-in sets cannot be set"), "{error}");

    let list = json!({
        "tools_list": [{ "name": "look", "run": { "command": ["date"] } }],
        "effects": { "lo*": "read" },
    });
    home.file("tools.json", &list.to_string());
    home.file("faber.yaml", "tools_files: [tools.json]\n");
    let listed = home.json(&["tools", "list", "--toolset", "tools"], 0).await;
    assert_eq!(listed[0]["effect"], "READ");
}
