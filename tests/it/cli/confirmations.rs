//! Commands name the calls that they repeat, the tools that they lack and the store that they
//! create, and ask or refuse if the action can do harm. Also tests of messages and suggestions.

use serde_json::{Value, json};

use super::{terminal_output::run_on_terminal_with_input, workspace::Workspace};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}

async fn count_executions(workspace: &Workspace) -> usize {
    workspace.json(&["list", "executions"], 0).await.as_array().map_or(0, Vec::len)
}

/// Step `paid` has an effect and succeeds, `slow` has an unknown outcome, and `fails` fails.
async fn failed_execution(workspace: &Workspace) -> String {
    let slow = json!({ "name": "slow", "effect": "once", "run": { "command": ["sleep", "60"] } });
    let set = json!({ "name": "own", "source": { "tools": [slow] } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    let plan = json!({ "tools": [
        { "id": "paid", "name": "flow.effect" },
        { "id": "slow", "name": "slow", "timeoutMs": 100, "onError": "ignore", "dependsOn": "paid" },
        { "id": "fails", "name": "flow.fail", "parameters": { "message": "no" }, "dependsOn": "slow" },
    ] });
    let plan = workspace.file("plan.json", &plan.to_string());
    let ended = workspace.json(&["run", "--plan", &plan], 1).await;
    text(&ended["executionId"]).to_owned()
}

#[tokio::test]
async fn a_retry_lists_the_calls_that_it_repeats() {
    let workspace = Workspace::new();
    let id = failed_execution(&workspace).await;
    let before = count_executions(&workspace).await;
    // Without a terminal, the command cannot ask, so it must not repeat a call with an unknown
    // outcome.
    let failed = workspace.run(&["retry", &id]).await;
    assert_eq!(failed.status, 2, "{failed:?}");
    assert!(failed.err.contains("slow  own.slow  1 call, with an unknown outcome"), "{failed:?}");
    assert!(!failed.err.contains("flow.effect"), "{failed:?}");
    for part in ["`--yes`", &format!("`faber settle {id} slow --succeeded`")] {
        assert!(failed.err.contains(part), "{part}: {failed:?}");
    }
    let refused = workspace.json(&["retry", &id, "--all"], 2).await;
    assert_eq!(refused["error"]["code"], "CONFLICT", "{refused}");
    assert_eq!(count_executions(&workspace).await, before);
    let all = workspace.run(&["retry", &id, "--all", "--json", "--yes"]).await;
    assert!(all.err.contains("paid  flow.effect  1 call\n"), "{all:?}");
    let document: Value = serde_json::from_str(&all.out).expect("one document");
    assert_eq!(document["retryOf"], json!(id));
    let plan = text(&document["planId"]).to_owned();
    let executed = workspace.run(&["execute", &plan]).await;
    assert_eq!(executed.status, 2, "{executed:?}");
    assert!(executed.err.contains("executed this plan before"), "{executed:?}");
    assert!(executed.err.contains("paid  flow.effect  1 call"), "{executed:?}");
    let executed = workspace.run(&["execute", &plan, "--yes"]).await;
    assert_eq!(executed.status, 1, "{executed:?}");
    let refused = workspace.run(&["retry", &id, "--all", "--failed"]).await;
    assert_eq!(refused.status, 2, "{refused:?}");
}

#[tokio::test]
async fn a_retry_on_a_terminal_asks_before_it_repeats_calls() {
    let workspace = Workspace::new();
    let id = failed_execution(&workspace).await;
    let before = count_executions(&workspace).await;
    for (typed, start_count) in [("n\n", 0), ("\n", 0), ("y\n", 1)] {
        let output = run_on_terminal_with_input(&workspace, &["retry", &id, "--all"], typed).await;
        assert!(output.contains("repeat them? (y/N)"), "{output}");
        assert_eq!(output.contains("nothing was retried"), start_count == 0, "{output}");
        assert_eq!(count_executions(&workspace).await, before + start_count);
    }
    let output =
        run_on_terminal_with_input(&workspace, &["retry", &id, "--all", "--yes"], "").await;
    assert!(!output.contains("(y/N)"), "{output}");
}

#[tokio::test]
async fn a_plan_that_is_executed_again_lists_its_calls_and_asks() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", r#"{"tools":[{"id":"paid","name":"flow.effect"}]}"#);
    let done = workspace.json(&["run", "--plan", &plan], 0).await;
    let (id, request) = (text(&done["planId"]), text(&done["requestId"]));
    // Without a terminal, the command cannot ask. It lists the call and continues, because the
    // outcome of the call is known.
    let again = workspace.run(&["execute", request]).await;
    assert_eq!(again.status, 0, "{again:?}");
    assert!(again.err.contains("paid  flow.effect  1 call\n"), "{again:?}");
    for (typed, arguments, start_count) in [
        ("", &["execute", id, "--dry-run"][..], 1),
        ("n\n", &["execute", id], 0),
        ("y\n", &["execute", id], 1),
        ("", &["execute", id, "--yes"], 1),
    ] {
        let before = count_executions(&workspace).await;
        let output = run_on_terminal_with_input(&workspace, arguments, typed).await;
        assert_eq!(output.contains("repeat them? (y/N)"), !typed.is_empty(), "{output}");
        assert_eq!(count_executions(&workspace).await, before + start_count, "{output}");
    }
    workspace.json(&["save", "pay", "--plan", &plan], 0).await;
    for _ in 0..2 {
        let output = run_on_terminal_with_input(&workspace, &["run", "--saved", "pay"], "").await;
        assert!(!output.contains("(y/N)"), "{output}");
    }
}

#[tokio::test]
async fn a_missing_tool_is_named_and_nothing_is_created() {
    let workspace = Workspace::new();
    let id = failed_execution(&workspace).await;
    let request = text(&workspace.json(&["debug", &id], 0).await["requestId"]).to_owned();
    let plan = text(&workspace.json(&["list", "plans"], 0).await[0]["planId"]).to_owned();
    let config = workspace.file("other.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    let inner = json!({ "tools": [{ "id": "sub", "plan": plan }] });
    let inner = workspace.file("inner.json", &inner.to_string());
    let (requests, before) =
        (workspace.json(&["list", "requests"], 0).await, count_executions(&workspace).await);
    for arguments in [
        &["execute", &plan][..],
        &["execute", &request],
        &["retry", &id, "--yes"],
        &["run", "--plan", &inner],
    ] {
        let other = [arguments, &["--config", &config]].concat();
        let error = workspace.json(&other, 3).await;
        assert_eq!(error["error"]["code"], "TOOL_UNAVAILABLE", "{arguments:?} {error}");
        let message = text(&error["error"]["message"]);
        assert!(message.contains("`own.slow`") && message.contains(&config), "{message}");
    }
    assert_eq!(workspace.json(&["list", "requests"], 0).await, requests);
    assert_eq!(count_executions(&workspace).await, before);
    let gone = json!({ "toolsets": [
        { "name": "gone", "source": { "mcp": { "command": "/no/such/program" } } }] });
    let gone = workspace.file("gone.yaml", &gone.to_string());
    for name in ["gone.buy", "buy"] {
        let plan = json!({ "tools": [{ "name": name }] });
        let plan = workspace.file("gone.json", &plan.to_string());
        let error = workspace.json(&["run", "--plan", &plan, "--config", &gone], 3).await;
        let message = text(&error["error"]["message"]);
        assert!(message.contains("/no/such/program") && message.contains(&gone), "{message}");
    }
    // With `--wait`, the command prints the missing tools for which the execution waits.
    let mut waiting = workspace.spawn(&["retry", &id, "--yes", "--wait", "--config", &config]);
    waiting.wait_for_line("executing exec_").await;
    waiting.signal("-INT");
    assert_eq!(waiting.wait_for_exit().await.status, 130);
}

#[tokio::test]
async fn a_retry_needs_only_the_tools_that_it_calls() {
    let workspace = Workspace::new();
    let read = json!({ "name": "read", "effect": "read", "run": { "command": ["cat"] } });
    let set = json!({ "name": "own", "source": { "tools": [read] } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    let plan = json!({ "tools": [
        { "id": "done", "name": "own.read" },
        { "id": "fails", "name": "flow.fail", "parameters": { "message": "no" }, "dependsOn": "done" },
    ] });
    let plan = workspace.file("plan.json", &plan.to_string());
    let ended = workspace.json(&["run", "--plan", &plan], 1).await;
    let id = text(&ended["executionId"]);
    let config = workspace.file("other.yaml", "store: sqlite:./faber.db\ntoolsets: []\n");
    for (scope, status) in [(&[][..], 1), (&["--from-step", "fails"], 1), (&["--all"], 3)] {
        let arguments = [&["retry", id, "--config", &config], scope].concat();
        let retried = workspace.json(&arguments, status).await;
        assert_eq!(retried["error"]["code"] == "TOOL_UNAVAILABLE", status == 3, "{retried}");
    }
}

#[tokio::test]
async fn approve_continues_the_execution_in_this_process() {
    let workspace = Workspace::new();
    let plan = workspace.file(
        "plan.json",
        r#"{"tools":[{"id":"ask","name":"flow.echo","parameters":{"n":1},"requiresApproval":true},
            {"id":"again","name":"flow.echo","parameters":{"n":2},"requiresApproval":true,
             "dependsOn":"ask"}]}"#,
    );
    let waits = workspace.json(&["run", "--plan", &plan], 4).await;
    let id = text(&waits["executionId"]);
    assert_eq!(workspace.json(&["approve", id, "ask"], 4).await["state"], "WAITING");
    let done = workspace.json(&["approve", id, "again"], 0).await;
    assert_eq!((&done["state"], &done["outputs"]["again"]["n"]), (&json!("COMPLETED"), &json!(2)));
    let waits = workspace.json(&["run", "--plan", &plan], 4).await;
    let id = text(&waits["executionId"]);
    let refused = workspace.json(&["approve", id, "ask", "--reject"], 1).await;
    assert_eq!(refused["state"], "FAILED");
    let output = workspace.run(&["approve", id, "ask"]).await;
    assert_eq!(output.status, 2, "{output:?}");
    assert!(output.err.contains(&format!("`{id}` has ended (FAILED)")), "{output:?}");
}

#[tokio::test]
async fn cancel_of_a_finished_execution_says_that_nothing_was_cancelled() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    let done = workspace.json(&["run", "--plan", &plan], 0).await;
    let id = text(&done["executionId"]);
    let output = workspace.run(&["cancel", id]).await;
    assert_eq!((output.status, output.out.as_str()), (0, format!("{id}  COMPLETED\n").as_str()));
    let expected = format!("`{id}` is already finished (COMPLETED): nothing was cancelled\n");
    assert_eq!(output.err, expected);
    assert_eq!(workspace.json(&["cancel", id], 0).await["state"], "COMPLETED");
}

#[tokio::test]
async fn only_commands_that_store_something_create_a_store() {
    let workspace = Workspace::new();
    let error =
        workspace.json(&["run", "--plan", "x", "--store", "sqlite:./no/such/x.db"], 2).await;
    assert_eq!(error["error"]["code"], "INVALID_ARGUMENT", "the plan is read first");
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    for arguments in [&["run", "--plan", &plan][..], &["list", "requests"], &["watch", "exec_1_a"]]
    {
        let error = [arguments, &["--store", "sqlite:./no/such/x.db"]].concat();
        let error = workspace.json(&error, 3).await;
        assert_eq!(error["error"]["code"], "STORE_UNAVAILABLE", "{error}");
        assert!(text(&error["error"]["message"]).contains("`./no/such`"), "{error}");
    }
    let id = "exec_1_aaaaaaaaa";
    for (arguments, status) in [
        (&["list", "requests"][..], 0),
        (&["list", "saved"], 0),
        (&["debug", id], 2),
        (&["watch", id], 2),
        (&["cancel", id], 2),
        (&["pause", id], 2),
        (&["resume", id], 2),
        (&["retry", id], 2),
        (&["replan", id], 2),
        (&["execute", id], 2),
        (&["approve", id, "a"], 2),
        (&["signal", id, "a"], 2),
        (&["export", "plan_1_aaaaaaaaa"], 2),
        (&["tools", "list"], 0),
    ] {
        let here = workspace.run(&[arguments, &["--store", "sqlite:./x.db"]].concat()).await;
        assert_eq!(here.status, status, "{arguments:?} {here:?}");
        let is_enough = here.err.contains("there is no store at `./x.db` yet");
        assert_eq!(is_enough, arguments[0] != "tools", "{arguments:?} {here:?}");
        let default = workspace.run(arguments).await;
        assert_eq!(default.status, status, "{arguments:?} {default:?}");
    }
    assert!(!workspace.path("no").exists() && !workspace.path("x.db").exists());
    assert!(!workspace.path(".local/share/faber/faber.db").exists());
}

#[tokio::test]
async fn an_unknown_log_level_is_an_error() {
    let workspace = Workspace::new();
    let ended = workspace.command(&["list", "requests"]).env("FABER_LOG", "loud").output().await;
    let ended = ended.unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let printed = String::from_utf8(ended.stderr).unwrap();
    assert!(printed.contains("`FABER_LOG` is `loud`: `loud` is not a log level"), "{printed}");
}

#[tokio::test]
async fn debug_prints_the_same_text_to_a_pipe_and_a_terminal() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    let done = workspace.json(&["run", "--plan", &plan], 0).await;
    let id = text(&done["executionId"]);
    let piped = workspace.run(&["debug", id]).await.out;
    let output = run_on_terminal_with_input(&workspace, &["debug", id], "").await;
    let bare = without_colours(&output);
    assert_eq!(bare.trim(), piped.trim());
}

fn without_colours(shown_text: &str) -> String {
    let mut parts = shown_text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[tokio::test]
async fn mistyped_commands_tools_and_names_get_a_suggestion() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    workspace.json(&["save", "tidy up", "--plan", &plan], 0).await;
    for (arguments, part) in [
        (&["exceute", "x"][..], "'execute'"),
        (&["tools", "call", "flow.nop"], "did you mean `flow.noop`?"),
        (&["run", "--saved", "tidyup"], "did you mean `tidy up`?"),
        (&["export", "tidyup"], "did you mean `tidy up`?"),
        (&["unsave", "tidyup"], "did you mean `tidy up`?"),
    ] {
        let ended = workspace.run(arguments).await;
        assert_eq!(ended.status, 2, "{ended:?}");
        assert!(ended.err.contains(part), "{arguments:?} {ended:?}");
    }
    let bad = workspace.file("bad.yaml", "tools:\n  - name: flow.echo\n   id: x\n");
    let ended = workspace.run(&["run", "--plan", &bad]).await;
    assert!(ended.err.contains(&format!("`{bad}`: this is not YAML: ")), "{ended:?}");
    assert!(ended.err.contains("line 3, column 4") && !ended.err.contains("<input>"), "{ended:?}");
    let listed = workspace.run(&["tools", "list"]).await;
    assert!(listed.out.lines().next().is_some_and(|head| head.contains("ACTIVE")), "{listed:?}");
    let fetch = listed.out.lines().find(|line| line.starts_with("web_tools.")).unwrap();
    assert!(fetch.contains("  no  "), "{fetch}");
}

#[tokio::test]
async fn executions_that_need_a_person_are_listed_until_they_are_answered() {
    let workspace = Workspace::new();
    let asks = json!({ "tools": [
        { "id": "pay", "name": "flow.echo", "requiresApproval": true, "parameters": { "n": 1 } } ] });
    let asks = workspace.file("asks.json", &asks.to_string());
    let done = workspace.file("done.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    workspace.json(&["run", "--plan", &done], 0).await;
    let waiting = workspace.json(&["run", "--plan", &asks], 4).await;
    let id = text(&waiting["executionId"]).to_owned();
    let listed = async |kind: &str, id: &str| {
        let found = workspace.json(&["list", kind, "--needs-person"], 0).await;
        found
            .as_array()
            .unwrap()
            .iter()
            .map(|execution| text(&execution[id]).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed("executions", "executionId").await, std::slice::from_ref(&id));
    assert_eq!(listed("requests", "requestId").await, [text(&waiting["requestId"])]);
    assert_eq!(workspace.run(&["approve", &id, "pay"]).await.status, 0);
    assert_eq!(listed("executions", "executionId").await, [""; 0]);
    assert_eq!(listed("requests", "requestId").await, [""; 0]);
}
