//! Every command that executes nothing.

use serde_json::Value;

use super::home::{Home, SEED};

#[tokio::test]
async fn wrong_usage_is_2_and_says_so_on_standard_error() {
    let home = Home::new();
    home.file("plan.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
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
        let ended = home.run(arguments).await;
        assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{arguments:?}: {ended:?}");
        assert!(!ended.err.is_empty(), "{arguments:?}");
    }
    let ended = home.run(&["run"]).await;
    assert!(ended.err.contains("<QUERY|--plan FILE|--saved NAME>"), "{ended:?}");
    let error = home.json(&["bogus"], 2).await;
    assert_eq!(error["error"]["code"], "INVALID_ARGUMENT");
    // Nothing was made for what could not begin.
    assert_eq!(home.json(&["list", "requests"], 0).await, serde_json::json!([]));
}

#[tokio::test]
async fn what_is_not_there_is_2() {
    let home = Home::new();
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
        let error = home.json(&arguments, 2).await;
        assert_eq!(error["error"]["code"], "NOT_FOUND", "{arguments:?}: {error}");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_3() {
    let home = Home::new();
    let error = home.json(&["list", "plans", "--server", "http://127.0.0.1:1"], 3).await;
    assert_eq!(error["error"]["code"], "SERVER_UNAVAILABLE");
    let error = home.json(&["list", "plans", "--store", "sqlite:/proc/none/x.db"], 3).await;
    assert_eq!(error["error"]["code"], "STORE_UNAVAILABLE");
}

#[tokio::test]
async fn plans_are_shown_in_every_format() {
    let home = Home::new();
    let plan = home.json(&["plan", SEED], 0).await;
    assert_eq!(plan["executionOrder"], serde_json::json!(["createAuthor", "createBlog"]));
    assert_eq!(plan["tools"][1]["parameters"]["authorId"], "{{createAuthor._id}}");
    assert!(plan["diagnostics"].is_array());

    let text = home.run(&["plan", SEED]).await;
    assert!(text.out.contains("← createAuthor"), "{text:?}");
    for (format, part) in [("json", "\"planId\""), ("mermaid", "flowchart"), ("dot", "digraph")] {
        let shown = home.run(&["plan", SEED, "--format", format]).await;
        assert!(shown.status == 0 && shown.out.contains(part), "{format}: {shown:?}");
    }
    let listed = home.json(&["list", "plans", "--first", "2"], 0).await;
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(listed[0]["tools"].as_array().map(Vec::len), Some(2), "{listed:#}");
    assert_eq!(listed[0]["diagnostics"], serde_json::json!([]));
    let id = plan["planId"].as_str().unwrap();
    let (request, all) = (plan["requestId"].as_str().unwrap(), "requests");
    let found = home.json(&["list", "plans", "--request", request], 0).await;
    assert_eq!(found[0]["planId"], id);
    assert_eq!(home.json(&["list", all, "--search", "nobody said"], 0).await, Value::Array(vec![]));

    let revised = home.file("next.json", r#"{"tools":[{"name":"flow.noop"}]}"#);
    let next = home.json(&["revise", id, &revised], 0).await;
    assert_eq!((&next["version"], &next["requestId"]), (&2.into(), &plan["requestId"]));
}

#[tokio::test]
async fn a_query_that_no_tool_answers_is_2_and_can_be_debugged() {
    let home = Home::new();
    let error = home.json(&["plan", "fly to the moon"], 2).await;
    assert_eq!(error["error"]["code"], "NO_PLAN_FOUND");
    let request = error["error"]["requestId"].as_str().unwrap();
    let told = home.json(&["debug", request], 0).await;
    assert_eq!(told["query"], "fly to the moon");
    assert!(!told["transcript"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn problems_of_a_plan_are_said_all_at_once() {
    let home = Home::new();
    let text = r#"{"tools":[{"name":"flow.ech"},{"name":"flow.noop","dependsOn":["q"]}]}"#;
    let plan = home.file("plan.json", text);
    let ended = home.run(&["run", "--plan", &plan]).await;
    assert_eq!((ended.status, ended.out.as_str()), (2, ""));
    assert!(ended.err.contains("error[plan.unknown_tool]"), "{ended:?}");
    assert!(ended.err.contains("plan.json: tools[0].name"), "{ended:?}");
    assert!(ended.err.contains("= help: did you mean `flow.echo`?"), "{ended:?}");
    let error = home.json(&["run", "--plan", &plan], 2).await;
    assert_eq!(error["error"]["code"], "INVALID_PLAN");
    assert_eq!(error["error"]["diagnostics"].as_array().unwrap().len(), 2);

    // What is wrong in the file hides nothing that is wrong with the plan.
    let text = r#"{"colour": 1, "tools":[{"name":"createAuthor","paramters":{"name":"Al"}},
        {"id":"a","name":"flow.noop","dependsOn":["b"],"why":"so"},
        {"id":"b","name":"flow.noop","dependsOn":["a"]},{"name":"flow.ech"}]}"#;
    let plan = home.file("misspelt.json", text);
    for command in [&["run", "--plan", &plan][..], &["save", "mine", "--plan", &plan]] {
        let error = home.json(command, 2).await;
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

    let plan = home.file("none.json", "{");
    let error = home.json(&["run", "--plan", &plan], 2).await;
    assert_eq!(error["error"]["diagnostics"][0]["code"], "plan.invalid_json");
}

#[tokio::test]
async fn tools_and_toolsets_are_listed() {
    let home = Home::new();
    let sets = home.json(&["toolsets", "list"], 0).await;
    assert_eq!((&sets[0]["name"], &sets[1]["name"]), (&"flow".into(), &"blog".into()));
    assert_eq!(sets[1]["tools"].as_array().unwrap().len(), 18);
    let tools = home.json(&["tools", "list", "--toolset", "blog"], 0).await;
    assert_eq!(tools.as_array().unwrap().len(), 18);
    let tool = home.json(&["tools", "show", "createAuthor"], 0).await;
    assert!(tool["inputSchema"]["properties"]["email"].is_object(), "{tool}");
    let error = home.json(&["tools", "show", "createAuthr"], 2).await;
    assert!(error["error"]["message"].as_str().unwrap().contains("did you mean `createAuthor`?"));
}

#[tokio::test]
async fn the_process_says_what_it_works_with() {
    let home = Home::new();
    let schema = home.run(&["schema"]).await;
    assert!(schema.out.contains("type Execution") && schema.err.is_empty(), "{schema:?}");
    let version = home.run(&["--version"]).await;
    assert!(version.status == 0 && version.out.starts_with("faber "), "{version:?}");
    let script = home.run(&["completions", "bash"]).await;
    assert!(script.out.contains("_faber"), "{script:?}");

    let text = "store: sqlite:./own.db\nlimits: { lease_ms: 900 }\n";
    home.file("faber.yaml", text);
    let config = home.json(&["config"], 0).await;
    assert_eq!(config["file"], "faber.yaml");
    assert_eq!(config["store"]["from"], "file");
    assert_eq!(config["limits"]["lease_ms"]["value"], 900);
    let config = home.json(&["config", "--store", "memory:"], 0).await;
    assert_eq!(config["store"]["from"], "--store");
    assert_eq!(home.json(&["list", "plans"], 0).await, Value::Array(vec![]));
    assert!(!home.path("own.db").exists(), "a list makes no store");
    home.json(&["tools", "call", "flow.noop"], 0).await;
    assert!(home.path("own.db").exists(), "relative paths are relative to the file");
    home.file("faber.yaml", "planner: { provider: opnai, model: x }\n");
    let ended = home.run(&["list", "plans"]).await;
    assert_eq!(ended.status, 2);
    assert!(ended.err.contains("did you mean `openai`?"), "{ended:?}");
}

#[tokio::test]
async fn the_toolkit_is_shown_recommended_and_loaded() {
    let home = Home::new();
    home.file("faber.yaml", "toolsets: []\ntoolkit_files: [kit.yml]\nstore: sqlite:./own.db\n");
    let kit = "
tools: [&t { name: flow.echo }]
actions:
  - &a { name: look, desc: Looks., tools: [*t] }
  - &b { name: think }
toolkit: [[*a, { name: think, score: 0.4 }, { name: nobody }]]
";
    home.file("kit.yml", kit);
    let all = home.json(&["toolkit", "show"], 0).await;
    assert_eq!(all["actions"][0]["name"], "look", "{all}");
    assert_eq!(all["tools"][0]["toolSet"], "flow");
    assert_eq!(all["edges"].as_array().map(Vec::len), Some(2));
    assert!(all["svg"].as_str().unwrap().starts_with("<svg "), "{all}");
    let shown = home.run(&["toolkit", "show"]).await;
    assert!(
        shown.out.contains("then think  0.4") && shown.out.contains("calls flow.echo  1"),
        "{shown:?}"
    );
    assert!(
        shown.err.contains("there is no action `nobody`"),
        "what was left out is told: {shown:?}"
    );
    for (format, part) in [
        ("json", "\"edges\""),
        ("yaml", "toolkit:"),
        ("mermaid", "flowchart"),
        ("dot", "digraph"),
        ("svg", "<svg"),
    ] {
        let shown = home.run(&["toolkit", "show", "--format", format]).await;
        assert!(shown.status == 0 && shown.out.contains(part), "{format}: {shown:?}");
    }
    let recommend = |more: &'static [&str]| {
        let arguments = [&["toolkit", "recommend", "look"], more].concat();
        let home = &home;
        async move { home.json(&arguments, 0).await["actions"].as_array().map(Vec::len) }
    };
    assert_eq!(recommend(&["--hops", "3"]).await, Some(1));
    assert_eq!(recommend(&["--hops", "3", "--threshold", "0.4"]).await, Some(2));
    what_is_not_there_is_told(&home).await;
    home.file("more.yml", "actions: [&c { name: rest }]\ntoolkit: [[*c]]\n");
    let loaded = home.run(&["toolkit", "load", "more.yml"]).await;
    assert!(loaded.out.contains("3 actions, 1 tool, 2 edges"), "{loaded:?}");
    // What was loaded is kept; the file of the configuration may change.
    home.file("kit.yml", "actions: [&a { name: look }]\ntoolkit: [[*a]]\n");
    let part = home.json(&["toolkit", "show", "look", "rest", "think"], 0).await;
    assert_eq!(part["actions"].as_array().map(Vec::len), Some(2), "{part}");
    home.file("kit.yml", "tools: [x]");
    let ended = home.run(&["toolkit", "show"]).await;
    assert!(ended.status == 2 && ended.err.contains("kit.yml`: `tools[0]`"), "{ended:?}");
}

/// It was nothing, and well.
async fn what_is_not_there_is_told(home: &Home) {
    for (asked, part) in [
        (
            ["show", "thing"],
            "the toolkit has neither action nor tool `thing`: did you mean `think`?",
        ),
        (["recommend", "loko"], "the toolkit has no action `loko`: did you mean `look`?"),
        (["recommend", "echo"], "`echo` is a tool, and recommendations begin with actions"),
    ] {
        let error = home.json(&["toolkit", asked[0], asked[1]], 2).await;
        assert_eq!(error["error"]["code"], "NOT_FOUND", "{error}");
        assert_eq!(error["error"]["message"], part, "{error}");
    }
    let both = home.run(&["toolkit", "recommend", "look", "nope"]).await;
    assert!(both.status == 0 && both.out.contains("1 action, 1 tool"), "{both:?}");
    assert!(both.err.contains("no action `nope`: `faber toolkit show`"), "{both:?}");
    for threshold in ["nan", "inf", "x"] {
        let ended = home.run(&["toolkit", "recommend", "look", "--threshold", threshold]).await;
        assert!(ended.status == 2 && ended.err.contains("not a number"), "{ended:?}");
        let ended = home.run(&["tools", "collisions", "--threshold", threshold]).await;
        assert!(ended.status == 2 && ended.err.contains("not a number"), "{ended:?}");
    }
}

#[tokio::test]
async fn the_doctor_finds_what_is_broken() {
    let home = Home::new();
    let checks = home.json(&["doctor"], 0).await;
    assert!(checks.as_array().unwrap().iter().all(|check| check["ok"] == true), "{checks}");
    let text = "toolsets: [{ name: broken, source: { mcp: { command: ./nothing-there } } }]";
    home.file("faber.yaml", text);
    let checks = home.json(&["doctor"], 3).await;
    let broken = checks.as_array().unwrap().iter().find(|check| check["name"] == "toolset broken");
    assert_eq!(broken.unwrap()["ok"], false);
    assert!(broken.unwrap()["help"].is_string());
    // Only the log said so.
    let source = "{ tools: [{ name: t, run: { command: [cat] } }] }";
    let text = format!("toolsets: [{{ name: odd, condition: nobody, source: {source} }}]");
    home.file("faber.yaml", &text);
    let checks = home.json(&["doctor"], 3).await;
    let odd =
        checks.as_array().unwrap().iter().find(|check| check["name"] == "toolset odd").unwrap();
    let why = odd["detail"].as_str().unwrap();
    assert!(odd["ok"] == false && why.starts_with("its condition: "), "{odd}");
}

#[tokio::test]
async fn the_doctor_looks_at_what_it_can_where_the_configuration_is_wrong() {
    let home = Home::new();
    let tool = "{ name: t, run: { command: [cat] } }";
    let sets = format!("toolsets: [{{ name: own, source: {{ tools: [{tool}] }} }}]");
    home.file("faber.yaml", &format!("{sets}\nstore: 'memory:'\nplaner: x\nretention: soon\n"));
    let checks = home.json(&["doctor"], 3).await;
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

    home.file("faber.yaml", "store: memory:\ntoolsets: []\n");
    let checks = home.json(&["doctor"], 3).await;
    let why = checks[0]["detail"].as_str().unwrap();
    assert!(
        why.contains(
            "line 1: a value that ends with a colon needs quotes: write `store: \"memory:\"`"
        ),
        "{why}"
    );
    assert!(checks.as_array().unwrap().iter().all(|check| check["name"] != "store"), "{checks:#}");
    let checks = home.json(&["doctor", "--store", "memory:"], 3).await;
    assert!(
        checks
            .as_array()
            .unwrap()
            .iter()
            .any(|check| check["name"] == "store" && check["ok"] == true)
    );

    // Nothing is opened, and nothing called well, that only stands in for what is wrong.
    home.file("faber.yaml", "store: { url: 1 }\naccess: all\nplanner: [x]\ntoolsets: 7\n");
    let checks = home.json(&["doctor"], 3).await;
    for name in ["store", "access", "planner", "toolset blog"] {
        assert!(checks.as_array().unwrap().iter().all(|check| check["name"] != name), "{checks:#}");
    }
    assert!(!home.path(".local/share/faber/faber.db").exists());
}

#[tokio::test]
async fn toolsets_say_how_they_were_switched() {
    let home = Home::new();
    home.file("faber.yaml", "toolsets: []\nstore: sqlite:./own.db\n");
    for (verb, said) in
        [("activate", "code_tools: activated"), ("deactivate", "code_tools: deactivated")]
    {
        let switched = home.run(&["toolsets", verb, "code_tools"]).await;
        assert_eq!((switched.status, switched.out.trim()), (0, said), "{switched:?}");
    }
}

#[tokio::test]
async fn the_doctor_tells_what_names_mean_and_what_is_safe() {
    let home = Home::new();
    let text = "
toolsets:
  - { name: one, source: { tools: [{ name: get, run: { command: [date] } }] } }
  - name: two
    source:
      tools:
        - name: get
          run: { http: { url: 'http://127.0.0.1:1/', headers: { key: { secret: FABER_TEST_GONE } } } }
";
    home.file("faber.yaml", text);
    let find = |checks: &Value, name: &str| {
        let mut checks = checks.as_array().unwrap().iter();
        checks
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no check `{name}`"))
            .clone()
    };
    let checks = home.json(&["doctor"], 3).await;
    let names = find(&checks, "names of tools");
    assert_eq!(names["ok"], true, "the rule says what is meant: {names}");
    assert!(names["detail"].as_str().unwrap().contains("`get` is `one.get`, not `two.get`"));
    let secret = find(&checks, "secret FABER_TEST_GONE");
    assert_eq!(secret["detail"], "it is not in the environment; `two` needs it");
    assert_eq!(secret["ok"], false);
    let confinement = find(&checks, "confinement");
    assert!(confinement["detail"].as_str().unwrap().contains("limits"), "{confinement}");
    let access = find(&checks, "access");
    let alone = "no tokens: only this machine may connect, and it may do everything";
    assert_eq!((&access["detail"], &access["ok"]), (&alone.into(), &true.into()));
    let token = "access: { tokens: [{ name: ci, token_env: FABER_TEST_TOKEN, role: admin }] }\n";
    home.file("faber.yaml", token);
    let access = find(&home.json(&["doctor"], 3).await, "access");
    assert!(access["detail"].as_str().unwrap().contains("set `FABER_TEST_TOKEN`"), "{access}");
}

#[tokio::test]
async fn the_bench_of_tools_measures_all_that_it_says() {
    let home = Home::new();
    let figures = home
        .json(&["bench", "tools", "--steps", "50", "--runs", "20", "--concurrency", "2"], 0)
        .await;
    for name in [
        "builtin_discovery_ms",
        "servers_ratio",
        "function_overhead_p50_us",
        "mcp_overhead_p50_us",
        "four_slow_tools_ms",
        "register_last_tenth_us",
        "many_tools_find_p50_us",
        "many_tools_compile_p50_us",
        "many_tools_plan_words_p50_us",
    ] {
        assert!(figures[name].is_number(), "{name}: {figures:#}");
    }
    assert_eq!((&figures["servers"], &figures["builtin_tools"]), (&2.into(), &29.into()));
    assert_eq!((&figures["workload"], &figures["tools"]), (&"tools".into(), &50.into()));
}

/// An execution of which nothing but long sleeps was left went out of memory, and nobody took it again.
#[tokio::test]
async fn the_bench_of_a_graph_waits_for_long_sleeps() {
    let home = Home::new();
    let steps =
        r#"{"steps":[{"id":"a","ms":2500},{"id":"b","ms":2300},{"id":"c","after":["a"],"ms":10}]}"#;
    let graph = home.file("graph.json", steps);
    let figures = home.json(&["bench", "dag", "--file", &graph], 0).await;
    assert_eq!((&figures["workload"], &figures["steps"]), (&"dag".into(), &3.into()));
    let [makespan, bound] =
        ["makespan_s", "lower_bound_s"].map(|name| figures[name].as_f64().unwrap());
    assert!(makespan >= bound && bound > 2.5, "{figures:#}");
}

#[tokio::test]
async fn the_bench_leaves_no_store_behind() {
    let home = Home::new();
    let figures = home.json(&["bench", "chain", "--steps", "2", "--runs", "3"], 0).await;
    assert_eq!((&figures["workload"], &figures["runs"]), (&"chain".into(), &3.into()));
    let data = std::fs::read_dir(home.path(".local/share/faber")).unwrap();
    assert_eq!(data.count(), 0);
}
