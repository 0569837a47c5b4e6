//! Commands that execute no plan, and `faber bench`.

use serde_json::Value;

use super::workspace::{DEMO_QUERY, Workspace};

#[tokio::test]
async fn wrong_usage_exits_with_2_and_prints_only_to_standard_error() {
    let workspace = Workspace::new();
    workspace.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    for arguments in [
        &["bogus"][..],
        &["run"],
        &["run", "x", "--plan", "y"],
        &["plan", "x", "--format", "svg"],
        &["list", "plans", "--config", "missing.yaml"],
        &["list", "plans", "--store", "nowhere"],
        &["serve", "--listen", "nowhere"],
        &["run", "--plan", "missing.json"],
        &["prune"],
        &["bench", "plan", "--server", "http://127.0.0.1:1"],
        &["run", "--plan", "plan.json", "--start-at", "yesterday"],
    ] {
        let ended = workspace.run(arguments).await;
        assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{arguments:?}: {ended:?}");
        assert!(!ended.err.is_empty(), "{arguments:?}");
    }
    let ended = workspace.run(&["run"]).await;
    assert!(ended.err.contains("<QUERY|--plan FILE|--saved NAME>"), "{ended:?}");
    let error = workspace.json(&["bogus"], 2).await;
    assert_eq!(error["error"]["code"], "INVALID_ARGUMENT");
    // A command with wrong arguments stores nothing.
    assert_eq!(workspace.json(&["list", "requests"], 0).await, serde_json::json!([]));
}

#[tokio::test]
async fn an_unknown_id_exits_with_2_and_not_found() {
    let workspace = Workspace::new();
    for arguments in [
        ["execute", "plan_1_aaaaaaaaa"],
        ["execute", "req_1_aaaaaaaaa"],
        ["watch", "exec_1_aaaaaaaaa"],
        ["watch", "nonsense"],
        ["cancel", "exec_1_aaaaaaaaa"],
        ["pause", "exec_1_aaaaaaaaa"],
        ["resume", "req_1_aaaaaaaaa"],
        ["debug", "req_1_aaaaaaaaa"],
        ["debug", "plan_1_aaaaaaaaa"],
    ] {
        let error = workspace.json(&arguments, 2).await;
        assert_eq!(error["error"]["code"], "NOT_FOUND", "{arguments:?}: {error}");
    }
}

#[tokio::test]
async fn an_unreachable_server_or_store_exits_with_3() {
    let workspace = Workspace::new();
    let error = workspace.json(&["list", "plans", "--server", "http://127.0.0.1:1"], 3).await;
    assert_eq!(error["error"]["code"], "SERVER_UNAVAILABLE");
    let error = workspace.json(&["list", "plans", "--store", "sqlite:/proc/none/x.db"], 3).await;
    assert_eq!(error["error"]["code"], "STORE_UNAVAILABLE");
}

#[tokio::test]
async fn plans_are_shown_in_every_format() {
    let workspace = Workspace::new();
    let plan = workspace.json(&["plan", DEMO_QUERY], 0).await;
    assert_eq!(plan["executionOrder"], serde_json::json!(["createAuthor", "createBlog"]));
    assert_eq!(plan["tools"][1]["parameters"]["authorId"], "{{createAuthor._id}}");
    assert!(plan["diagnostics"].is_array());

    let text = workspace.run(&["plan", DEMO_QUERY]).await;
    assert!(text.out.contains("← createAuthor"), "{text:?}");
    for (format, part) in [("json", "\"planId\""), ("mermaid", "flowchart"), ("dot", "digraph")] {
        let output = workspace.run(&["plan", DEMO_QUERY, "--format", format]).await;
        assert!(output.status == 0 && output.out.contains(part), "{format}: {output:?}");
    }
    let listed = workspace.json(&["list", "plans", "--first", "2"], 0).await;
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["tools"].as_array().map(Vec::len), Some(2), "{listed:#}");
    assert_eq!(listed[0]["diagnostics"], serde_json::json!([]));
    let id = plan["planId"].as_str().unwrap();
    let (request, all) = (plan["requestId"].as_str().unwrap(), "requests");
    let found = workspace.json(&["list", "plans", "--request", request], 0).await;
    assert_eq!(found[0]["planId"], id);
    assert_eq!(
        workspace.json(&["list", all, "--search", "nobody said"], 0).await,
        Value::Array(vec![])
    );

    let revised = workspace.file("next.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    let next = workspace.json(&["revise", id, &revised], 0).await;
    assert_eq!((&next["version"], &next["requestId"]), (&2.into(), &plan["requestId"]));
}

#[tokio::test]
async fn a_query_without_a_fitting_tool_exits_with_2_and_keeps_its_transcript() {
    let workspace = Workspace::new();
    let error = workspace.json(&["plan", "fly to the moon"], 2).await;
    assert_eq!(error["error"]["code"], "NO_PLAN_FOUND");
    let request = error["error"]["requestId"].as_str().unwrap();
    let answer = workspace.json(&["debug", request], 0).await;
    assert_eq!(answer["query"], "fly to the moon");
    assert!(!answer["transcript"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn all_diagnostics_of_a_plan_are_printed_at_once() {
    let workspace = Workspace::new();
    let text = r#"{"tools":[{"name":"flow.ech"},{"name":"flow.noop","dependsOn":["q"]}]}"#;
    let plan = workspace.file("plan.json", text);
    let ended = workspace.run(&["run", "--plan", &plan]).await;
    assert_eq!((ended.status, ended.out.as_str()), (2, ""));
    assert!(ended.err.contains("error[plan.unknown_tool]"), "{ended:?}");
    assert!(ended.err.contains("plan.json: tools[0].name"), "{ended:?}");
    assert!(ended.err.contains("= help: did you mean `flow.echo`?"), "{ended:?}");
    let error = workspace.json(&["run", "--plan", &plan], 2).await;
    assert_eq!(error["error"]["code"], "INVALID_PLAN");
    assert_eq!(error["error"]["diagnostics"].as_array().unwrap().len(), 2);

    // The file has unknown fields, and its plan has other mistakes. One answer reports all of them.
    let text = r#"{"colour": 1, "tools":[{"name":"createAuthor","paramters":{"name":"Al"}},
        {"id":"a","name":"flow.noop","dependsOn":["b"],"why":"so"},
        {"id":"b","name":"flow.noop","dependsOn":["a"]},{"name":"flow.ech"}]}"#;
    let plan = workspace.file("misspelt.json", text);
    for command in [&["run", "--plan", &plan][..], &["save", "mine", "--plan", &plan]] {
        let error = workspace.json(command, 2).await;
        let found = error["error"]["diagnostics"].as_array().unwrap();
        let mut codes: Vec<_> =
            found.iter().map(|diagnostic| diagnostic["code"].as_str().unwrap()).collect();
        codes.sort_unstable();
        let expected = [
            "plan.cycle",
            "plan.missing_parameter",
            "plan.unknown_field",
            "plan.unknown_field",
            "plan.unknown_field",
            "plan.unknown_tool",
        ];
        assert_eq!(codes, expected, "{error:#}");
    }

    let plan = workspace.file("none.json", "{");
    let error = workspace.json(&["run", "--plan", &plan], 2).await;
    assert_eq!(error["error"]["diagnostics"][0]["code"], "plan.invalid_json");
}

#[tokio::test]
async fn tools_and_toolsets_are_listed() {
    let workspace = Workspace::new();
    let sets = workspace.json(&["toolsets", "list"], 0).await;
    assert_eq!((&sets[0]["name"], &sets[1]["name"]), (&"flow".into(), &"blog".into()));
    assert_eq!(sets[1]["tools"].as_array().unwrap().len(), 18);
    let tools = workspace.json(&["tools", "list", "--toolset", "blog"], 0).await;
    assert_eq!(tools.as_array().unwrap().len(), 18);
    let tool = workspace.json(&["tools", "show", "createAuthor"], 0).await;
    assert!(tool["inputSchema"]["properties"]["email"].is_object(), "{tool}");
    let error = workspace.json(&["tools", "show", "createAuthr"], 2).await;
    assert!(error["error"]["message"].as_str().unwrap().contains("did you mean `createAuthor`?"));
}

#[tokio::test]
async fn schema_version_completions_and_configuration_are_printed() {
    let workspace = Workspace::new();
    let schema = workspace.run(&["schema"]).await;
    assert!(schema.out.contains("type Execution") && schema.err.is_empty(), "{schema:?}");
    let version = workspace.run(&["--version"]).await;
    assert!(version.status == 0 && version.out.starts_with("faber "), "{version:?}");
    let script = workspace.run(&["completions", "bash"]).await;
    assert!(script.out.contains("_faber"), "{script:?}");

    let text = "store: sqlite:./own.db\nlimits: { lease_ms: 900 }\n";
    workspace.file("faber.yaml", text);
    let config = workspace.json(&["config"], 0).await;
    assert_eq!(config["file"], "faber.yaml");
    assert_eq!(config["store"]["from"], "file");
    assert_eq!(config["limits"]["lease_ms"]["value"], 900);
    let config = workspace.json(&["config", "--store", "memory:"], 0).await;
    assert_eq!(config["store"]["from"], "--store");
    assert_eq!(workspace.json(&["list", "plans"], 0).await, Value::Array(vec![]));
    assert!(!workspace.path("own.db").exists(), "a list creates no store");
    workspace.json(&["tools", "call", "flow.noop"], 0).await;
    assert!(workspace.path("own.db").exists(), "a relative path starts at the configuration file");
    workspace.file("faber.yaml", "planner: { provider: opnai, model: x }\n");
    let ended = workspace.run(&["list", "plans"]).await;
    assert_eq!(ended.status, 2);
    assert!(ended.err.contains("did you mean `openai`?"), "{ended:?}");
}

#[tokio::test]
async fn the_toolkit_can_be_shown_recommended_and_loaded() {
    let workspace = Workspace::new();
    workspace
        .file("faber.yaml", "toolsets: []\ntoolkit_files: [kit.yml]\nstore: sqlite:./own.db\n");
    let kit = "
tools: [&t { name: flow.echo }]
actions:
  - &a { name: look, desc: Looks., tools: [*t] }
  - &b { name: think }
toolkit: [[*a, { name: think, score: 0.4 }, { name: nobody }]]
";
    workspace.file("kit.yml", kit);
    let all = workspace.json(&["toolkit", "show"], 0).await;
    assert_eq!(all["actions"][0]["name"], "look", "{all}");
    assert_eq!(all["tools"][0]["toolSet"], "flow");
    assert_eq!(all["edges"].as_array().map(Vec::len), Some(2));
    assert!(all["svg"].as_str().unwrap().starts_with("<svg "), "{all}");
    let output = workspace.run(&["toolkit", "show"]).await;
    assert!(
        output.out.contains("then think  0.4") && output.out.contains("calls flow.echo  1"),
        "{output:?}"
    );
    assert!(
        output.err.contains("there is no action `nobody`"),
        "the missing action is a warning: {output:?}"
    );
    for (format, part) in [
        ("json", "\"edges\""),
        ("yaml", "toolkit:"),
        ("mermaid", "flowchart"),
        ("dot", "digraph"),
        ("svg", "<svg"),
    ] {
        let output = workspace.run(&["toolkit", "show", "--format", format]).await;
        assert!(output.status == 0 && output.out.contains(part), "{format}: {output:?}");
    }
    let recommend = |more: &'static [&str]| {
        let arguments = [&["toolkit", "recommend", "look"], more].concat();
        let workspace = &workspace;
        async move { workspace.json(&arguments, 0).await["actions"].as_array().map(Vec::len) }
    };
    assert_eq!(recommend(&["--hops", "3"]).await, Some(1));
    assert_eq!(recommend(&["--hops", "3", "--threshold", "0.4"]).await, Some(2));
    assert_unknown_names_are_reported(&workspace).await;
    workspace.file("more.yml", "actions: [&c { name: rest }]\ntoolkit: [[*c]]\n");
    let loaded = workspace.run(&["toolkit", "load", "more.yml"]).await;
    assert!(loaded.out.contains("3 actions, 1 tool, 2 edges"), "{loaded:?}");
    // After the first change, Faber reads the stored toolkit, and ignores the toolkit file of the
    // configuration.
    workspace.file("kit.yml", "actions: [&a { name: look }]\ntoolkit: [[*a]]\n");
    let part = workspace.json(&["toolkit", "show", "look", "rest", "think"], 0).await;
    assert_eq!(part["actions"].as_array().map(Vec::len), Some(2), "{part}");
    workspace.file("kit.yml", "tools: [x]");
    let ended = workspace.run(&["toolkit", "show"]).await;
    assert!(ended.status == 2 && ended.err.contains("kit.yml`: line 1: `tools[0]`"), "{ended:?}");
}

async fn assert_unknown_names_are_reported(workspace: &Workspace) {
    for (arguments, part) in [
        (
            ["show", "thing"],
            "the toolkit has neither action nor tool `thing`: did you mean `think`?",
        ),
        (["recommend", "loko"], "the toolkit has no action `loko`: did you mean `look`?"),
        (["recommend", "echo"], "`echo` is a tool, but recommendations start from actions"),
    ] {
        let error = workspace.json(&["toolkit", arguments[0], arguments[1]], 2).await;
        assert_eq!(error["error"]["code"], "NOT_FOUND", "{error}");
        assert_eq!(error["error"]["message"], part, "{error}");
    }
    let both = workspace.run(&["toolkit", "recommend", "look", "nope"]).await;
    assert!(both.status == 0 && both.out.contains("1 action, 1 tool"), "{both:?}");
    assert!(both.err.contains("no action `nope`: `faber toolkit show`"), "{both:?}");
    for threshold in ["nan", "inf", "x"] {
        let ended =
            workspace.run(&["toolkit", "recommend", "look", "--threshold", threshold]).await;
        assert!(ended.status == 2 && ended.err.contains("not a number"), "{ended:?}");
        let ended = workspace.run(&["tools", "collisions", "--threshold", threshold]).await;
        assert!(ended.status == 2 && ended.err.contains("not a number"), "{ended:?}");
    }
}

#[tokio::test]
async fn doctor_reports_broken_toolsets() {
    let workspace = Workspace::new();
    let checks = workspace.json(&["doctor"], 0).await;
    assert!(checks.as_array().unwrap().iter().all(|check| check["ok"] == true), "{checks}");
    let text = "toolsets: [{ name: broken, source: { mcp: { command: ./nothing-there } } }]";
    workspace.file("faber.yaml", text);
    let checks = workspace.json(&["doctor"], 3).await;
    let broken = checks.as_array().unwrap().iter().find(|check| check["name"] == "toolset broken");
    assert_eq!(broken.unwrap()["ok"], false);
    assert!(broken.unwrap()["help"].is_string());
    // Regression: only the log reported a condition that cannot be evaluated.
    let source = "{ tools: [{ name: t, run: { command: [cat] } }] }";
    let text = format!("toolsets: [{{ name: odd, condition: nobody, source: {source} }}]");
    workspace.file("faber.yaml", &text);
    let checks = workspace.json(&["doctor"], 3).await;
    let odd =
        checks.as_array().unwrap().iter().find(|check| check["name"] == "toolset odd").unwrap();
    let reason = odd["detail"].as_str().unwrap();
    assert!(odd["ok"] == false && reason.starts_with("its condition: "), "{odd}");
}

#[tokio::test]
async fn doctor_checks_the_valid_parts_of_a_wrong_configuration() {
    let workspace = Workspace::new();
    let tool = "{ name: t, run: { command: [cat] } }";
    let sets = format!("toolsets: [{{ name: own, source: {{ tools: [{tool}] }} }}]");
    workspace
        .file("faber.yaml", &format!("{sets}\nstore: 'memory:'\nplaner: x\nretention: soon\n"));
    let checks = workspace.json(&["doctor"], 3).await;
    let of = |name: &str| -> Vec<Value> {
        let all = checks.as_array().unwrap().iter();
        all.filter(|check| check["name"] == name).cloned().collect()
    };
    let wrong: Vec<_> =
        of("configuration").iter().map(|check| check["detail"].to_string()).collect();
    assert_eq!(wrong.len(), 2, "{checks:#}");
    assert!(wrong[0].contains("`planer` is unknown: did you mean `planner`?"), "{wrong:?}");
    assert!(wrong[1].contains("`retention`: `soon` is not a duration"), "{wrong:?}");
    assert_eq!((&of("store")[0]["ok"], &of("toolset own")[0]["ok"]), (&true.into(), &true.into()));

    workspace.file("faber.yaml", "store: memory:\ntoolsets: []\n");
    let checks = workspace.json(&["doctor"], 3).await;
    let reason = checks[0]["detail"].as_str().unwrap();
    assert!(
        reason.contains(
            "line 1: a value that ends with a colon needs quotes: write `store: \"memory:\"`"
        ),
        "{reason}"
    );
    assert!(checks.as_array().unwrap().iter().all(|check| check["name"] != "store"), "{checks:#}");
    let checks = workspace.json(&["doctor", "--store", "memory:"], 3).await;
    assert!(
        checks
            .as_array()
            .unwrap()
            .iter()
            .any(|check| check["name"] == "store" && check["ok"] == true)
    );

    // If a setting is invalid, `doctor` uses no default for it, and does not report it as fine.
    workspace.file("faber.yaml", "store: { url: 1 }\naccess: all\nplanner: [x]\ntoolsets: 7\n");
    let checks = workspace.json(&["doctor"], 3).await;
    for name in ["store", "access", "planner", "toolset blog"] {
        assert!(checks.as_array().unwrap().iter().all(|check| check["name"] != name), "{checks:#}");
    }
    assert!(!workspace.path(".local/share/faber/faber.db").exists());
}

#[tokio::test]
async fn activate_and_deactivate_print_the_new_state_of_the_toolset() {
    let workspace = Workspace::new();
    workspace.file("faber.yaml", "toolsets: []\nstore: sqlite:./own.db\n");
    for (verb, expected) in
        [("activate", "code_tools: activated"), ("deactivate", "code_tools: deactivated")]
    {
        let switched = workspace.run(&["toolsets", verb, "code_tools"]).await;
        assert_eq!((switched.status, switched.out.trim()), (0, expected), "{switched:?}");
    }
}

#[tokio::test]
async fn doctor_reports_ambiguous_names_missing_secrets_confinement_and_access() {
    let workspace = Workspace::new();
    let text = "
toolsets:
  - { name: one, source: { tools: [{ name: get, run: { command: [date] } }] } }
  - name: two
    source:
      tools:
        - name: get
          run: { http: { url: 'http://127.0.0.1:1/', headers: { key: { secret: FABER_TEST_GONE } } } }
";
    workspace.file("faber.yaml", text);
    let find = |checks: &Value, name: &str| {
        let mut checks = checks.as_array().unwrap().iter();
        checks
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no check `{name}`"))
            .clone()
    };
    let checks = workspace.json(&["doctor"], 3).await;
    let names = find(&checks, "names of tools");
    assert_eq!(names["ok"], true, "the name is not ambiguous: {names}");
    assert!(names["detail"].as_str().unwrap().contains("`get` is `one.get`, not `two.get`"));
    let secret = find(&checks, "secret FABER_TEST_GONE");
    assert_eq!(secret["detail"], "it is not in the environment; `two` needs it");
    assert_eq!(secret["ok"], false);
    let confinement = find(&checks, "confinement");
    assert!(confinement["detail"].as_str().unwrap().contains("limits"), "{confinement}");
    let access = find(&checks, "access");
    let alone = "no tokens: only this machine can connect, and it has all rights";
    assert_eq!((&access["detail"], &access["ok"]), (&alone.into(), &true.into()));
    let token = "access: { tokens: [{ name: ci, token_env: FABER_TEST_TOKEN, role: admin }] }\n";
    workspace.file("faber.yaml", token);
    let access = find(&workspace.json(&["doctor"], 3).await, "access");
    assert!(access["detail"].as_str().unwrap().contains("set `FABER_TEST_TOKEN`"), "{access}");
}

/// Regression: an execution whose last steps are long sleeps was parked, and no worker claimed it
/// again.
#[tokio::test]
async fn bench_dag_waits_for_long_sleeps() {
    let workspace = Workspace::new();
    let steps =
        r#"{"steps":[{"id":"a","ms":2500},{"id":"b","ms":2300},{"id":"c","after":["a"],"ms":10}]}"#;
    let graph = workspace.file("graph.json", steps);
    let figures = workspace.json(&["bench", "dag", "--file", &graph], 0).await;
    assert_eq!((&figures["workload"], &figures["steps"]), (&"dag".into(), &3.into()));
    let [makespan, bound] =
        ["makespan_s", "lower_bound_s"].map(|name| figures[name].as_f64().unwrap());
    assert!(makespan >= bound && bound > 2.5, "{figures:#}");
}

#[tokio::test]
async fn bench_removes_its_store() {
    let workspace = Workspace::new();
    let figures = workspace.json(&["bench", "chain", "--steps", "2", "--runs", "3"], 0).await;
    assert_eq!((&figures["workload"], &figures["runs"]), (&"chain".into(), &3.into()));
    let data = std::fs::read_dir(workspace.path(".local/share/faber")).unwrap();
    assert_eq!(data.count(), 0);
}
