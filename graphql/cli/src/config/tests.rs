use std::path::Path;

use engine::{
    Guard, PlanCache,
    retention::{RetentionAges, RetentionPolicy, RetentionRule},
};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use shared::store::LabelFilter;

use super::{Config, Environment, Flags, Origin, PlannerConfig, file, retention::AuditAge, show};

fn parse(text: &str, base: &Path) -> Result<file::File, String> {
    file::parse(text, base).map_err(|mistakes| mistakes[0].to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn check_refused(text: &str, expected: Expect) {
    expected.assert_eq(&parse(text, Path::new("/etc/faber")).unwrap_err());
}

fn environment_with_home(home: &Path) -> Environment {
    Environment { home: Some(home.to_owned()), ..Environment::default() }
}

#[test]
fn flags_override_the_environment_the_file_and_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("faber.yaml");
    std::fs::write(&path, "store: sqlite:./file.db\nlimits: { lease_ms: 750 }\n").unwrap();
    let mut flags = Flags::default();
    let mut environment = environment_with_home(folder.path());
    let store = |flags: &Flags, environment: &Environment| {
        let store = Config::load(flags, environment).unwrap().store;
        (store.value, store.origin)
    };

    let default = format!("sqlite:{}", folder.path().join(".local/share/faber/faber.db").display());
    assert_eq!(store(&flags, &environment), (default, Origin::Default));
    flags.config = Some(path);
    let in_file = format!("sqlite:{}/file.db", folder.path().display());
    assert_eq!(store(&flags, &environment), (in_file, Origin::File));
    environment.store = Some("sqlite:env.db".to_owned());
    let by_variable = ("sqlite:env.db".to_owned(), Origin::Environment("FABER_STORE"));
    assert_eq!(store(&flags, &environment), by_variable);
    flags.store = Some("memory:".to_owned());
    assert_eq!(store(&flags, &environment), ("memory:".to_owned(), Origin::Flag("--store")));

    let limits = Config::load(&flags, &environment).unwrap().limits.options();
    assert_eq!(limits.lease.as_millis(), 750);
}

#[test]
fn an_unknown_key_is_reported_with_its_line_and_a_suggestion() {
    check_refused(
        "store: a\nlimits:\n  lease: 1\n",
        expect!["line 3: `limits.lease` is unknown: did you mean `lease_ms`?"],
    );
    check_refused(
        "toolsets:\n  - name: local\n    source:\n      tools:\n        - name: a\n        - name: get_time\n          effekt: read\n",
        expect![
            "line 7: `toolsets[0].source.tools[1].effekt` (`get_time`): `effekt` is unknown: did you mean `effect`?"
        ],
    );
    check_refused(
        "planner:\n  provider: openai\n  model: x\n  retries: 3\n",
        expect!["line 4: `planner.retries`: `retries` is unknown: did you mean `max_retries`?"],
    );
    check_refused(
        "toolsets: [{ name: a, source: { mcp: { command: x, zzz: 1 } } }]\n",
        expect![
            "line 1: `toolsets[0].source.mcp.zzz`: `zzz` is unknown: the keys are `command`, `args`, `pass`, `env`, `cwd`, `roots`, `elicitation`"
        ],
    );
}

#[test]
fn a_json_configuration_is_read() {
    let text = r#"{"toolsets": [{"name": "s", "source": {"mcp": {"command": "./x"}}}]}"#;
    let (sets, _) = parse(text, Path::new("/etc")).unwrap().toolsets.unwrap();
    assert_eq!(sets[0].name.as_str(), "s");
    assert_eq!(parse("", Path::new("/")).unwrap(), file::File::default());
    assert_eq!(parse("# nothing\n", Path::new("/")).unwrap(), file::File::default());
}

#[test]
fn an_unknown_value_is_rejected_with_the_known_ones() {
    check_refused("tolsets: []", expect!["line 1: `tolsets` is unknown: did you mean `toolsets`?"]);
    check_refused(
        "limits: { lease: 1 }",
        expect!["line 1: `limits.lease` is unknown: did you mean `lease_ms`?"],
    );
    check_refused(
        "limits: { lease_ms: soon }",
        expect![[
            r#"line 1: `limits.lease_ms` is "soon"; write a whole number from 100 to 86400000"#
        ]],
    );
    check_refused(
        "toolsets: [{ name: s, sorce: {} }]",
        expect!["line 1: `toolsets[0].sorce`: `sorce` is unknown: did you mean `source`?"],
    );
    check_refused(
        "toolsets: [{ name: flow, source: { tools: [] } }]",
        expect![
            "line 1: `toolsets[0].name`: a toolset called `flow` exists already: use another name"
        ],
    );
    check_refused("[]", expect!["this is not a map of settings: write `key: value`"]);
    let err = parse("store: [", Path::new("/")).unwrap_err();
    assert!(err.starts_with("this is not YAML: "), "{err}");
}

#[test]
fn retention_is_parsed_as_a_duration() {
    let kept = |text: &str| parse(text, Path::new("/")).map(|file| file.retention);
    let days = |n: u64| Some(std::time::Duration::from_hours(24 * n));
    assert_eq!(kept("retention: 30d"), Ok(days(30).map(RetentionPolicy::from)));
    assert_eq!(kept("retention: { age: 30d }"), kept("retention: 30d"));
    let by_state = RetentionAges { completed: days(7), failed: days(90), cancelled: None };
    assert_eq!(kept("retention: { succeeded: 7d, failed: 90d }"), Ok(Some(by_state.into())));
    let file = parse("retention: { failed: 90d, audit: 365d }", Path::new("/")).unwrap();
    assert_eq!(
        file.retention,
        Some(RetentionAges { failed: days(90), ..RetentionAges::default() }.into())
    );
    assert_eq!(file.audit_retention, Some(AuditAge(days(365))));
    let file = parse("retention: { audit: null }", Path::new("/")).unwrap();
    assert_eq!((file.retention, file.audit_retention), (None, Some(AuditAge(None))));
    assert_eq!(kept("retention: null"), Ok(None));
    assert_eq!(kept("{}"), Ok(None));
    check_refused(
        "retention: 30",
        expect![
            "line 1: `retention`: `30` is not a duration: write one such as `30d`, `12h`, `90m` or `3600s`"
        ],
    );
    check_refused(
        "retention: { failed: 1s }",
        expect!["line 1: `retention.failed` is `1s`; the shortest is 60s"],
    );
    check_refused(
        "retention: { suceeded: 1d }",
        expect!["line 1: `retention.suceeded` is unknown: did you mean `succeeded`?"],
    );
    check_refused("retention: 59s", expect!["line 1: `retention` is `59s`; the shortest is 60s"]);
    check_refused(
        "retention: { age: 1d, failed: 2d }",
        expect!["line 1: `retention` has `age` and an age of a state: write one of them"],
    );
}

#[test]
fn retention_has_rules_by_labels() {
    let text = "retention:
  succeeded: 30d
  rules:
    - { labels: { keep: null } }
    - { labels: { team: batch, env: test }, age: 1d }
    - { labels: { team: batch }, failed: 7d }
";
    let policy = parse(text, Path::new("/")).unwrap().retention.unwrap();
    let label = |key: &str, value: Option<&str>| LabelFilter {
        key: key.to_owned(),
        value: value.map(str::to_owned),
    };
    let days = |n: u64| Some(std::time::Duration::from_hours(24 * n));
    let failed = RetentionAges { failed: days(7), ..RetentionAges::default() };
    let rule = |labels, ages| RetentionRule { labels, ages };
    let expected = RetentionPolicy {
        ages: RetentionAges { completed: days(30), ..RetentionAges::default() },
        rules: vec![
            rule(vec![label("keep", None)], RetentionAges::default()),
            rule(
                vec![label("team", Some("batch")), label("env", Some("test"))],
                days(1).unwrap().into(),
            ),
            rule(vec![label("team", Some("batch"))], failed),
        ],
        audit: None,
    };
    assert_eq!(policy, expected);
    let shown = super::retention::show_policy(&policy);
    assert_eq!(shown["rules"][1]["labels"], json!({ "team": "batch", "env": "test" }));
    assert_eq!(super::retention::read(Some(shown)).unwrap().executions, Some(expected));
    check_refused(
        "retention: { rules: [{ age: 1d }] }",
        expect![
            "line 1: `retention.rules[0]` needs 1 to 16 `labels`: write a rule such as `{ labels: { team: shop }, age: 7d }`"
        ],
    );
    check_refused(
        "retention: { rules: [{ labels: { v: 1 }, age: 1d }] }",
        expect![
            "line 1: `retention.rules[0].labels.v` is 1: write a text in quotes, or `null` for any value"
        ],
    );
    check_refused(
        "retention: { rules: [{ labels: { team: a }, agee: 1d }] }",
        expect!["line 1: `retention.rules[0].agee` is unknown: did you mean `age`?"],
    );
    check_refused(
        "retention: { rules: [{ labels: { team: a }, failed: 5s }] }",
        expect!["line 1: `retention.rules[0].failed` is `5s`; the shortest is 60s"],
    );
}

#[test]
fn limits_on_calls_are_read_from_limits() {
    let text = "limits: { calls: [{ toolset: shop, rate: 5/s }] }";
    let limits = parse(text, Path::new("/")).unwrap().limits;
    assert!(limits.call_limits().has_limit(&"shop.charge".parse().unwrap()));
    check_refused(
        "limits: { call: [] }",
        expect!["line 1: `limits.call` is unknown: did you mean `calls`?"],
    );
}

#[test]
fn the_selection_margin_may_be_negative() {
    let margin = |text: &str| parse(text, Path::new("/")).map(|file| file.margin);
    assert_eq!(margin("selection: { margin: -0.01 }"), Ok(Some(-0.01)));
    assert_eq!(margin("selection: {}"), Ok(None));
    for text in [
        "selection: 1",
        "selection: { margin: x }",
        "selection: { margins: 1 }",
        "selection: { margin: 3 }",
    ] {
        assert!(margin(text).unwrap_err().starts_with("line 1: `selection"), "{text}");
    }
}

#[test]
fn the_plan_cache_setting_is_off_or_exact() {
    let read = |text: &str| parse(text, Path::new("/")).map(|file| (file.planner, file.plan_cache));
    let offline = Some(PlannerConfig::Offline);
    assert_eq!(read("planner: offline"), Ok((offline.clone(), None)));
    assert_eq!(read("planner: { cache: off }"), Ok((None, Some(PlanCache::Off))));
    let both = read("planner: { provider: offline, cache: exact }");
    assert_eq!(both, Ok((offline, Some(PlanCache::Exact))));
    check_refused(
        "planner: { cache: fuzzy }",
        expect![[r#"line 1: `planner.cache` is "fuzzy"; write `off` or `exact`"#]],
    );
    let home = tempfile::tempdir().unwrap();
    let config = Config::load(&Flags::default(), &environment_with_home(home.path())).unwrap();
    assert_eq!(config.plan_cache.value, PlanCache::Exact);
}

#[test]
fn the_guard_is_strict_approve_or_off() {
    let read = |text: &str| parse(text, Path::new("/")).map(|file| (file.planner, file.guard));
    assert_eq!(read("planner: { guard: strict }"), Ok((None, Some(Guard::Strict))));
    assert_eq!(read("planner: { guard: off, cache: off }"), Ok((None, Some(Guard::Off))));
    let offline = Some(PlannerConfig::Offline);
    let both = read("planner: { provider: offline, guard: approve }");
    assert_eq!(both, Ok((offline, Some(Guard::Approve))));
    check_refused(
        "planner: { guard: loud }",
        expect![[r#"line 1: `planner.guard` is "loud"; write `strict` or `approve` or `off`"#]],
    );
    let home = tempfile::tempdir().unwrap();
    let config = Config::load(&Flags::default(), &environment_with_home(home.path())).unwrap();
    assert_eq!(config.guard.value, Guard::Approve);
}

/// Regression: the check rejected sources that are valid.
#[test]
fn a_toolset_accepts_each_kind_of_source() {
    for source in [
        "mcp: { url: 'http://localhost:1/mcp' }",
        "openapi: { document: ./petstore.yaml, base_url: 'http://localhost:1' }",
        "graphql: { url: 'http://localhost:1/graphql' }",
        "builtin: file_tools",
        "tools: []",
    ] {
        let text = format!("toolsets: [{{ name: s, source: {{ {source} }} }}]");
        parse(&text, Path::new("/")).unwrap_or_else(|err| panic!("{source}: {err}"));
    }
}

#[test]
fn the_file_may_contain_each_kind_of_source() {
    let text = "toolsets:
        - { name: a, source: { mcp: { url: 'http://x/mcp' } } }
        - { name: b, source: { openapi: { document: ./pets.yaml } } }
        - { name: c, source: { graphql: { url: 'http://x/graphql' } } }
        - { name: d, source: { builtin: code_tools, git: allowed } }";
    let (sets, _) = parse(text, Path::new("/etc")).unwrap().toolsets.unwrap();
    assert_eq!(sets.len(), 4);
    check_refused(
        "toolsets: [{ name: s, source: { openapi: {} } }]",
        expect!["line 1: `toolsets[0].source.openapi`: missing field `document`"],
    );
}

#[test]
fn a_wrong_effect_is_reported_with_its_own_line() {
    let set = "toolsets:\n- name: s\n  source:\n    tools: []\n    effects:\n      find_*: read\n";
    for (rule, expected) in [
        (
            "      send.x: often\n",
            "line 7: `toolsets[0].source.effects.send.x` is \"often\": write",
        ),
        ("      a b: read\n", "line 7: `toolsets[0].source.effects.a b`: write the name of a tool"),
        ("      flow.*: read\n", "line 7: `toolsets[0].source.effects.flow.*`: the effects of"),
    ] {
        let error = parse(&format!("{set}{rule}"), Path::new("/base")).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn toolkit_files_are_merged_into_one_graph() {
    let folder = tempfile::tempdir().unwrap();
    let chain = |text: &str| {
        format!(
            "tools: [{{ name: t }}]\nactions: [&a {{ name: {text}, tools: [{{ name: t }}] }}]\ntoolkit: [[*a, {{ name: nobody }}]]"
        )
    };
    for (file, text) in
        [("a.yml", chain("look")), ("b.yml", chain("think")), ("c.yml", "[".to_owned())]
            .into_iter()
            .chain([("d.yml", "actions: []\ntoolz: []\n".to_owned())])
    {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let read = |text: &str| parse(text, folder.path());
    let found = read("{ toolkit_files: [a.yml, b.yml], learning: false }").unwrap();
    assert_eq!(found.learning, Some(false));
    let found = found.toolkit.unwrap();
    assert_eq!((found.toolkit.len(), found.toolkit.edge_count(), found.warnings.len()), (3, 2, 2));
    assert!(found.warnings[0].contains("a.yml`: line 3: `toolkit[0][1]`: there is no"));
    for (text, part) in [
        ("toolkit_files: x", "`toolkit_files` must be a list of files"),
        ("toolkit_files: [nowhere.yml]", "nowhere.yml`: "),
        ("toolkit_files: [c.yml]", "c.yml`: this is not YAML"),
        ("toolkit_files: [d.yml]", "d.yml`: line 2: `toolz` is unknown: did you mean `tools`?"),
        ("learning: 7", "`learning` must be true or false"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_built_in_embedder_follows_the_configured_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let flags = Flags { config: Some(path.clone()), ..Flags::default() };
        Config::load(&flags, &environment_with_home(folder.path()))
    };
    let source = |text: &str| {
        load(text).unwrap().embedding_source().map(|source| source.to_string()).unwrap_or_default()
    };
    let builtin = "the built-in encoder";
    assert_eq!(source("limits: {}"), builtin);
    assert_eq!(source("embedding: { builtin: true }"), builtin);
    assert!(source("embedding: { builtin: false }").is_empty());
    let describe = |path: &Path| format!("the model in `{}`", path.display());
    let here = folder.path().join("minilm");
    assert_eq!(source("embedding: { model: minilm }"), describe(&here));
    let fetched = load("limits: {}").unwrap().models_folder().join("minilm");
    std::fs::create_dir_all(&fetched).unwrap();
    assert_eq!(source("embedding: { model: minilm }"), describe(&fetched));
    std::fs::create_dir(&here).unwrap();
    assert_eq!(source("embedding: { model: minilm }"), describe(&here));
    let server = "embedding: { base_url: 'http://h/v1', model: m }";
    assert_eq!(source(server), "the model `m` at http://h/v1");
    let keyed = "embedding: { base_url: 'http://h/v1', model: m, api_key_env: FABER_NOT_SET }";
    let wanted = load(keyed).unwrap().embedding_source().unwrap();
    assert!(
        matches!(wanted, planner::embed::Source::Invalid(reason) if reason.contains("FABER_NOT_SET"))
    );
    for text in [
        "embedding: {}",
        "embedding: { base_url: 'http://h/v1' }",
        "embedding: { model: m, builtin: true }",
        "embedding: { model: m, api_key_env: X }",
        "embedding: { base_url: 'http://me:secret@h/v1', model: m }",
        "embedding: local",
    ] {
        let err = load(text).unwrap_err().to_string();
        assert!(err.contains("write `{ builtin: true }`"), "{text}: {err}");
    }
    let err = load("embedding: { modle: m }").unwrap_err().to_string();
    assert!(err.contains("`model`"), "{err}");
}

#[test]
fn tools_files_become_one_toolset() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        let tools = format!(r#"{{"tools_list": [{{"name": "{name}", "arguments": {{}}}}]}}"#);
        std::fs::write(folder.path().join(format!("{name}.json")), tools).unwrap();
    }
    let path = folder.path().join("c.yaml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let flags = Flags { config: Some(path.clone()), ..Flags::default() };
        Config::load(&flags, &environment_with_home(folder.path()))
    };
    let config = load("tools_files: [a.json, b.json]\ncontexts: { shop: { n: 1 } }").unwrap();
    let names: Vec<&str> = config.toolsets.value.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["blog", "tools"]);
    let toolsets::sources::Source::Tools(tools) = &config.toolsets.value[1].source else {
        panic!("described tools")
    };
    assert_eq!(tools.len(), 2);
    assert_eq!(config.contexts["shop"]["n"], 1);
    for (text, reason) in [
        ("tools_files: [a.json, b.json, ./a.json]", "a.json` also has a tool `a`: rename one"),
        ("tools_files: [c.json]", "c.json`: the configuration cannot be read"),
        ("tools_files: [c.yaml]", "c.yaml`: this is not JSON"),
        ("tools_files: [a.json]\ntoolsets: [{ name: tools, source: { tools: [] } }]", "rename it"),
        ("contexts: { shop: 1 }", "`contexts.shop` must be a map"),
    ] {
        let err = load(text).unwrap_err().to_string();
        assert!(err.contains(reason), "{text}: {err}");
    }
}

#[test]
fn the_shown_configuration_hides_secrets() {
    let masked = show::mask_url("mongodb://user:secret@host:1/db?x=1");
    assert_eq!(masked, "mongodb://user:***@host:1/db?x=1");
    assert_eq!(show::mask_url("mongodb://host/db"), "mongodb://host/db");
    assert_eq!(show::mask_url("sqlite:/a@b.db"), "sqlite:/a@b.db");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    let text = "toolsets: [{ name: s, source: { mcp: { command: x, env: { KEY: hunter2 } } } }]";
    std::fs::write(&path, text).unwrap();
    let flags = Flags { config: Some(path), ..Flags::default() };
    let config = Config::load(&flags, &environment_with_home(folder.path())).unwrap();
    let text = config.to_json().to_string();
    assert!(text.contains(r#""KEY":"***""#) && !text.contains("hunter2"), "{text}");
}

#[test]
fn the_shown_configuration_has_tools_files_and_contexts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    std::fs::write(folder.path().join("t.json"), r#"{"tools_list": []}"#).unwrap();
    let text = "tools_files: [./t.json]\nretention: 90m\ncontexts:\n  shop:\n    open: true\n    \
                rag: { manual: [{ content: tea }, { content: milk }] }\n";
    std::fs::write(&path, text).unwrap();
    let mut flags = Flags { config: Some(path), ..Flags::default() };
    let load = |flags: &Flags| {
        let config = Config::load(flags, &environment_with_home(folder.path())).unwrap().to_json();
        ["tools_files", "contexts", "retention"].map(|key| config[key].clone())
    };
    let file = |value: Value| json!({ "value": value, "from": "file" });
    assert_eq!(
        load(&flags),
        [
            file(json!([folder.path().join("t.json")])),
            file(json!({ "shop": { "open": true, "rag": { "manual": 2 } } })),
            file(json!("90m")),
        ]
    );
    flags.config = None;
    let default = |value: Value| json!({ "value": value, "from": "default" });
    assert_eq!(load(&flags), [default(json!([])), default(json!({})), default(Value::Null)]);
}

#[test]
fn the_listen_setting_must_be_a_socket_address() {
    let environment = environment_with_home(Path::new("/nowhere"));
    let with = |listen: &str| {
        let flags = Flags { listen: Some(listen.to_owned()), ..Flags::default() };
        Config::load(&flags, &environment).map(|config| config.listen.value.to_string())
    };
    assert_eq!(with("localhost:0").unwrap(), "127.0.0.1:0");
    assert!(with("8080").unwrap_err().to_string().contains("(--listen)"));
    let metrics = |address: Option<&str>| {
        let flags = Flags { metrics: address.map(str::to_owned), ..Flags::default() };
        let metrics = Config::load(&flags, &environment).map(|config| config.metrics);
        metrics.map(|metrics| metrics.map(|address| address.value.to_string()))
    };
    assert_eq!(metrics(None), Ok(None), "a worker serves nothing by default");
    assert_eq!(metrics(Some("localhost:9")), Ok(Some("127.0.0.1:9".to_owned())));
    assert!(metrics(Some("9")).unwrap_err().to_string().contains("(--metrics)"));
}
