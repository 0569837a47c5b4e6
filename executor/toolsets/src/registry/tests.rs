//! Tests of registries that share a store.

use serde_json::{Value, json};
use shared::{
    clock::WallClock,
    limits,
    store::{KeyValue as _, memory::Memory},
    tool::Effect,
};
use sqlite::Sqlite;
use toolbox::{Found, SetStatus, ToolContext, ToolSet};

use super::*;

fn node(store: &Arc<Memory>, configured: Value) -> Registry {
    node_over(Arc::clone(store) as Arc<dyn Store>, configured)
}

fn node_over(store: Arc<dyn Store>, configured: Value) -> Registry {
    node_with(store, configured, &json!({ "shop": { "adminMode": false, "n": 1 } }))
}

fn node_with(store: Arc<dyn Store>, configured: Value, contexts: &Value) -> Registry {
    let toolbox = Toolbox::default();
    Registry::new(Parts {
        sources: Sources::new(&toolbox, limits::OUTPUT_BYTES),
        toolbox,
        store,
        clock: Arc::new(WallClock),
        configured: serde_json::from_value(configured).unwrap(),
        contexts: serde_json::from_value(contexts.clone()).unwrap(),
        base: PathBuf::from("/"),
        secrets: Some(BTreeSet::from(["FABER_TEST_TOLD".to_owned()])),
    })
}

fn tools(names: &[&str]) -> Value {
    json!({ "tools": names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>() })
}

fn set(name: &str, names: &[&str]) -> Value {
    json!({ "name": name, "description": format!("the set {name}"), "source": tools(names) })
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "description": "d", "run": { "command": ["date"] } })
}

/// Returns the names of the sets, with `+` if active and `-` if not. Leaves out the sets that
/// always exist.
async fn sets(registry: &Registry) -> Vec<String> {
    registry.sync().await.unwrap();
    let sets = registry.toolbox().sets().into_iter();
    let sets = sets.filter(|set| ![TOOL_SET, flow::SET].contains(&set.name.as_str()));
    sets.map(|set| format!("{}{}", set.name, if set.is_active { "+" } else { "-" })).collect()
}

async fn find_set(registry: &Registry, name: &str) -> ToolSet {
    registry.sync().await.unwrap();
    registry.toolbox().sets().into_iter().find(|set| set.name.as_str() == name).unwrap()
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn added_sets_appear_on_every_node_in_the_same_order() {
    let store = Arc::new(Memory::new());
    let configured = json!([set("a", &["x"])]);
    let (one, other) = (node(&store, configured.clone()), node(&store, configured.clone()));
    one.add_set(set("b", &["y"])).await.unwrap();
    other.add_set(set("c", &["z"])).await.unwrap();
    other.register_tool(None, tool("t")).await.unwrap();
    let third = node(&store, configured);
    for node in [&one, &other, &third] {
        assert_eq!(sets(node).await, ["a+", "b+", "c+", "local+"]);
    }
    assert_eq!(find_set(&third, "b").await.source, "local");
    assert!(third.remove_set(&"b".parse().unwrap()).await.unwrap());
    assert!(!third.remove_set(&"b".parse().unwrap()).await.unwrap());
    assert!(one.remove_set(&"local".parse().unwrap()).await.unwrap());
    for node in [&one, &other, &third] {
        assert_eq!(sets(node).await, ["a+", "c+"]);
    }
}

#[tokio::test]
async fn effect_rules_apply_to_added_sets_and_registered_tools() {
    let store = Arc::new(Memory::new());
    let effects = |effects: Value| {
        let mut set = set("b", &["find_x", "pay"]);
        set["source"]["effects"] = effects;
        set
    };
    let (one, other) = (node(&store, json!([])), node(&store, json!([])));
    let rules = json!({ "find_*": "read", "b.pay": "idempotent", "nothing": "read" });
    one.add_set(effects(rules)).await.unwrap();
    one.register_tool(Some("b"), tool("find_y")).await.unwrap();
    one.register_tool(Some("b"), tool("send")).await.unwrap();
    for node in [&one, &other] {
        let set = find_set(node, "b").await;
        let found = set.tools.iter().map(|tool| {
            let definition = tool.definition();
            (definition.name.to_string(), definition.effect)
        });
        let found: Vec<_> = found.collect();
        let expected = [
            ("find_x", Effect::Read),
            ("pay", Effect::Idempotent),
            ("find_y", Effect::Read),
            ("send", Effect::Once),
        ];
        assert_eq!(found, expected.map(|(name, effect)| (name.to_owned(), effect)));
        assert_eq!(node.unmatched_effects().await.unwrap(), ["`nothing` of `b`"]);
    }
    for (wrong, expected) in [
        (json!({ "*": "often" }), "write `read`, `idempotent` or `once`"),
        (json!({ "flow.*": "read" }), "cannot be set"),
        (json!(["*"]), "write a map"),
    ] {
        let mut set = effects(wrong);
        set["name"] = json!("c");
        let err = one.add_set(set).await.unwrap_err();
        assert!(matches!(&err, RegistryError::Invalid(why) if why.contains(expected)), "{err}");
    }
    let builtin = json!({ "builtin": "file_tools", "effects": { "*": "read" } });
    let err = one.add_set(json!({ "name": "d", "source": builtin })).await.unwrap_err();
    assert!(err.to_string().contains("effects of built-in sets cannot be set"), "{err}");
}

#[tokio::test]
async fn existing_sets_and_tools_are_not_overwritten() {
    let store = Arc::new(Memory::new());
    let registry = node(&store, json!([set("a", &["x"])]));
    for name in ["a", "flow", "ToolSet", "faber_agent"] {
        let err = registry.add_set(set(name, &["y"])).await.unwrap_err();
        assert_eq!(err, RegistryError::Exists { what: "a toolset", name: name.to_owned() });
    }
    assert_eq!(find_set(&registry, "a").await.tools[0].definition().name.as_str(), "x");
    for (set, name) in [(None, "x"), (Some("a"), "x"), (None, "flow.echo")] {
        let err = registry.register_tool(set, tool(name)).await.unwrap_err();
        assert_eq!(err, RegistryError::Exists { what: "a tool", name: name.to_owned() });
    }
    // No plan could call the tool by this name.
    let err = registry.register_tool(None, tool("flow.x")).await.unwrap_err().to_string();
    assert!(err.contains("also a tool of the toolset `flow`"), "{err}");
    let of_mine = registry.register_tool(Some("mine"), tool("flow.x")).await.unwrap();
    assert_eq!(of_mine.as_str(), "mine.flow.x");
    assert!(registry.unregister(&of_mine).await.unwrap());
    assert_eq!(registry.register_tool(Some("mine"), tool("x")).await.unwrap().as_str(), "mine.x");
    let err = registry.register_tool(Some("mine"), tool("x")).await.unwrap_err();
    assert!(matches!(err, RegistryError::Exists { .. }), "{err}");
    for own in ["flow", "faber_agent"] {
        let err = registry.register_tool(Some(own), tool("x")).await.unwrap_err();
        assert!(err.to_string().contains("come from its source"), "{err}");
    }
    let err = registry.remove_set(&"a".parse().unwrap()).await.unwrap_err();
    assert!(err.to_string().contains("remove it from the configuration"), "{err}");
    let err = registry.unregister(&"flow.echo".parse().unwrap()).await.unwrap_err();
    assert!(err.to_string().contains("comes with the toolset `flow`"), "{err}");
    assert!(!registry.unregister(&"nothing".parse().unwrap()).await.unwrap());
    assert!(registry.unregister(&"mine.x".parse().unwrap()).await.unwrap());
    assert_eq!(sets(&registry).await, ["a+"]);
}

#[tokio::test]
async fn a_wrong_set_or_tool_is_explained() {
    let registry = node(&Arc::new(Memory::new()), json!([]));
    for (settings, why) in [
        (json!({ "name": "b" }), "missing field `source`"),
        (json!({ "name": "b!", "source": tools(&[]) }), "a toolset name"),
        (json!({ "name": "b", "source": { "x": 1 } }), "unknown field `x`"),
        (json!({ "name": "b", "source": tools(&[]), "condition": "a &&" }), "`condition`: line 1"),
    ] {
        let err = registry.add_set(settings.clone()).await.unwrap_err().to_string();
        assert!(err.contains(why), "{settings}: {err}");
    }
    let odd =
        json!({ "name": "t", "parameters": { "type": "strnig" }, "run": { "command": ["x"] } });
    let err = registry.register_tool(None, odd).await.unwrap_err().to_string();
    assert!(err.contains("not a JSON Schema"), "{err}");
    for kind in [json!("array"), json!(["string", "null"])] {
        let odd =
            json!({ "name": "t", "parameters": { "type": kind }, "run": { "command": ["x"] } });
        let err = registry.register_tool(None, odd).await.unwrap_err().to_string();
        assert!(err.contains("the `parameters` of `t` do not describe an object"), "{err}");
    }
    let err = registry.set_context("shop", &json!(1)).await.unwrap_err().to_string();
    assert!(err.contains("is an object"), "{err}");
    assert_eq!(sets(&registry).await, [""; 0]);
}

/// A caller who adds a set cannot send any variable of the environment to a server.
#[tokio::test]
async fn added_sets_use_only_allowed_secrets() {
    let store = Arc::new(Memory::new());
    let secret = |name: &str| json!({ "secret": name });
    let sources = |name: &str| {
        let http = json!({ "url": "http://a/", "headers": { "x": secret(name) } });
        let query = json!({ "url": "http://a/", "query": { "x": secret(name) } });
        let command = json!({ "command": ["date"], "env": { "A": secret(name) } });
        let confined = json!({ "command": ["date"], "confine": { "pass": [name] } });
        let user = json!({ "username": "me", "password": secret(name) });
        let mut sources: Vec<Value> = [http, query]
            .map(|http| json!({ "http": http }))
            .into_iter()
            .chain([command, confined])
            .map(|run| json!({ "tools": [{ "name": "t", "run": run }] }))
            .collect();
        sources.extend([
            json!({ "mcp": { "command": "there-is-none", "env": { "A": secret(name) } } }),
            json!({ "mcp": { "url": "http://a/", "headers": { "x": secret(name) } } }),
            json!({ "openapi": { "document": "./x", "headers": { "x": secret(name) } } }),
            json!({ "openapi": { "document": "./x", "auth": { "key": secret(name) } } }),
            json!({ "openapi": { "document": "./x", "auth": { "login": user } } }),
            json!({ "graphql": { "url": "http://a/", "auth": secret(name) } }),
            json!({ "graphql": { "url": "http://a/", "headers": { "x": secret(name) } } }),
            json!({ "builtin": "system_tools", "system": { "confine": { "pass": [name] } } }),
        ]);
        sources
    };
    // Configured sets may use any variable.
    let configured: Vec<Value> = sources("HOME")
        .into_iter()
        .enumerate()
        .map(|(n, source)| json!({ "name": format!("c{n}"), "source": source }))
        .collect();
    let registry = node(&store, json!(configured));
    for (n, source) in sources("HOME").into_iter().enumerate() {
        let set = json!({ "name": format!("s{n}"), "source": source });
        let err = registry.add_set(set.clone()).await.unwrap_err();
        assert_eq!(err, RegistryError::Secret("HOME".to_owned()), "{set}");
    }
    let told = sources("FABER_TEST_TOLD");
    for (n, source) in told.iter().enumerate() {
        let set = json!({ "name": format!("s{n}"), "source": source });
        let is_confined = source["tools"][0]["run"].get("confine").is_some();
        let added = registry.add_set(set).await;
        assert_eq!(added.is_err(), is_confined, "nothing can confine it here: {added:?}");
    }
    assert_eq!(sets(&registry).await.len(), 2 * told.len() - 1);
    let tool = |name: &str| {
        let run = json!({ "http": { "url": "http://a/", "headers": { "x": secret(name) } } });
        json!({ "name": "t", "run": run })
    };
    let err = registry.register_tool(Some("mine"), tool("HOME")).await.unwrap_err().to_string();
    assert!(err.contains("`HOME`") && err.contains("`access.secrets`"), "{err}");
    registry.register_tool(Some("mine"), tool("FABER_TEST_TOLD")).await.unwrap();
}

#[tokio::test]
async fn added_commands_get_a_clean_environment() {
    let store = Arc::new(Memory::new());
    let env = |name: &str| {
        let run = json!({ "command": ["env"], "env": { "OWN": "1" } });
        json!({ "name": name, "effect": "read", "run": run })
    };
    let configured = json!([{ "name": "c", "source": { "tools": [env("configured")] } }]);
    let registry = node(&store, configured);
    let added = json!({ "name": "s", "source": { "tools": [env("clean")] } });
    registry.add_set(added).await.unwrap();
    registry.register_tool(Some("c"), env("registered")).await.unwrap();
    for name in ["configured", "clean", "registered"] {
        let Found::Tool(tool) = registry.toolbox().find(&name.parse().unwrap()) else {
            panic!("{name} is there")
        };
        let said = tool.tool().call(Arc::new(json!({})), ToolContext::detached()).await.unwrap();
        let said = said.as_str().unwrap();
        assert!(said.contains("PATH=") && said.contains("OWN=1"), "{name}: {said}");
        assert!(!said.contains("CARGO_MANIFEST_DIR="), "{name}: {said}");
    }
}

#[tokio::test]
async fn a_switch_applies_to_every_node_and_names_unknown_sets() {
    let store = Arc::new(Memory::new());
    let off = json!({ "name": "b", "active": false, "source": tools(&["y"]) });
    let configured = json!([set("a", &["x"]), off]);
    let (one, other) = (node(&store, configured.clone()), node(&store, configured.clone()));
    assert_eq!(sets(&one).await, ["a+", "b-"]);
    let names = strings(&["b", "nope", "a", "nope", "b"]);
    let switched = one.switch(&names, true).await.unwrap();
    let expected = SwitchResult {
        changed: strings(&["b"]),
        not_found: strings(&["nope"]),
        refused: Vec::new(),
    };
    assert_eq!(switched, expected);
    assert_eq!(sets(&other).await, ["a+", "b+"]);
    let names = strings(&["ToolSet", "a", "flow"]);
    let switched = other.switch(&names, false).await.unwrap();
    assert_eq!(switched.changed, ["a"]);
    assert_eq!(
        switched.refused,
        ["ToolSet", "flow"],
        "without these sets, no set could be activated again"
    );
    assert_eq!(sets(&one).await, ["a-", "b+"]);
    assert_eq!(sets(&node(&store, configured)).await, ["a-", "b+"], "the switch is stored");
}

#[tokio::test]
async fn sets_appear_and_disappear_with_the_data_of_a_context() {
    let store = Arc::new(Memory::new());
    let admin = json!({
        "name": "admin", "context": "shop", "condition": "adminMode == true", "source": tools(&["x"]),
    });
    let configured = json!([admin, set("b", &["y"])]);
    let (one, other) = (node(&store, configured.clone()), node(&store, configured));
    assert_eq!(sets(&one).await, ["b+"]);
    one.set_context("shop", &json!({ "adminMode": true })).await.unwrap();
    assert_eq!(sets(&other).await, ["admin+", "b+"], "in the place that the configuration has");
    assert_eq!(find_set(&other, "admin").await.source, "shop");
    assert_eq!(other.context("shop").await, Some(json!({ "adminMode": true, "n": 1 })));
    other.set_context("shop", &json!({ "n": null, "m": 2 })).await.unwrap();
    assert_eq!(sets(&one).await, ["admin+", "b+"]);
    assert_eq!(one.context("shop").await, Some(json!({ "adminMode": true, "m": 2 })));
    one.set_context("shop", &json!({ "adminMode": false })).await.unwrap();
    assert_eq!(sets(&other).await, ["b+"]);
}

#[tokio::test]
async fn documents_of_a_context_become_a_toolset() {
    let store = Arc::new(Memory::new());
    let (one, other) = (node(&store, json!([])), node(&store, json!([set("a", &["x"])])));
    assert_eq!(sets(&one).await, [""; 0]);
    let rag = json!({ "manual": [{ "content": "tea" }] });
    one.set_context("shop", &json!({ "rag": rag, "adminMode": true })).await.unwrap();
    assert_eq!(sets(&other).await, ["a+", "shop_rag+"]);
    assert_eq!(find_set(&other, "shop_rag").await.source, "shop");
    let data = Some(json!({ "adminMode": true, "n": 1 }));
    assert_eq!(other.context("shop").await, data, "conditions do not ask for documents");
    let ask = async |node: &Registry, context: &str, id: &str| {
        let name = format!("{context}_rag.query_rag").parse().unwrap();
        let Found::Tool(tool) = node.toolbox().find(&name) else { panic!("{name}") };
        let query = json!({ "ragId": id, "query": "tea" });
        let called = tool.tool().call(Arc::new(query), ToolContext::detached()).await;
        called.map_err(|err| err.message.to_string())
    };
    assert_eq!(ask(&other, "shop", "manual").await.unwrap()[0]["content"], "tea");
    // Another context has its own set.
    other.set_context("club", &json!({ "rag": { "rules": [] } })).await.unwrap();
    assert_eq!(sets(&one).await, ["club_rag+", "shop_rag+"]);
    let missing = Err("RAG with ID manual not found in context club".to_owned());
    assert_eq!(ask(&one, "club", "manual").await, missing);
    // A patch changes one collection.
    let change = json!({ "rag": { "prices": [{ "content": "tea 4.50" }] } });
    one.set_context("shop", &change).await.unwrap();
    one.switch(&strings(&["shop_rag"]), false).await.unwrap();
    assert_eq!(sets(&other).await, ["a+", "club_rag+", "shop_rag-"]);
    other.switch(&strings(&["shop_rag"]), true).await.unwrap();
    one.sync().await.unwrap();
    assert_eq!(ask(&one, "shop", "prices").await.unwrap()[0]["content"], "tea 4.50");
    assert_eq!(ask(&one, "shop", "manual").await.unwrap()[0]["content"], "tea");
    let wrong = one.set_context("shop", &json!({ "rag": { "x": 1 } })).await.unwrap_err();
    assert!(matches!(wrong, RegistryError::Invalid(_)), "{wrong}");
    let wrong = one.set_context("my shop", &json!({ "rag": { "x": [] } })).await.unwrap_err();
    assert!(wrong.to_string().contains("cannot be a toolset"), "{wrong}");
    one.set_context("shop", &json!({ "rag": null })).await.unwrap();
    assert_eq!(sets(&other).await, ["a+", "club_rag+"]);
}

#[tokio::test]
async fn an_unchanged_set_is_not_connected_again() {
    let store = Arc::new(Memory::new());
    let server = json!({ "name": "m", "source": { "mcp": { "command": "there-is-none" } } });
    let registry = node(&store, json!([server]));
    registry.sync().await.unwrap();
    let name = "m".parse().unwrap();
    registry.toolbox().wait_for_set(&name, CONNECT_TIMEOUT).await;
    assert!(matches!(find_set(&registry, "m").await.status, SetStatus::Failed { .. }));
    registry.register_tool(None, tool("t")).await.unwrap();
    registry.switch(&strings(&["m"]), false).await.unwrap();
    assert_eq!(sets(&registry).await, ["m-", "local+"]);
    assert!(matches!(find_set(&registry, "m").await.status, SetStatus::Failed { .. }));
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_model_can_switch_every_set_but_tool_set_itself() {
    let registry = node(&Arc::new(Memory::new()), json!([set("a", &["x"])]));
    let call = async |name: &str, parameters: Value| {
        let Found::Tool(tool) = registry.toolbox().find(&name.parse().unwrap()) else {
            panic!("{name} is always there")
        };
        tool.tool().call(Arc::new(parameters), ToolContext::detached()).await.unwrap()
    };
    registry.sync().await.unwrap();
    let names = json!({ "toolSetNames": ["a", "nope", "ToolSet"] });
    assert_eq!(
        call("deactivate_toolset", names).await,
        json!({ "success": false, "changed": ["a"], "notFound": ["nope"], "refused": ["ToolSet"] })
    );
    let listed = call("ToolSet.list_toolset", json!({})).await;
    assert_eq!(listed["success"], true);
    let a = listed["toolSets"].as_array().unwrap().iter().find(|set| set["name"] == "a").unwrap();
    let expected = json!({
        "name": "a", "description": "the set a", "active": false, "source": "local", "tools": ["x"],
    });
    assert_eq!(*a, expected);
    let on = call("activate_toolset", json!({ "toolSetNames": ["a"] })).await;
    assert_eq!(on, json!({ "success": true, "changed": ["a"], "notFound": [] }));
    assert_eq!(sets(&registry).await, ["a+"]);
}

#[tokio::test]
async fn thousands_of_tools_can_be_registered() {
    let store = Arc::new(Memory::new());
    let (one, other) = (node(&store, json!([])), node(&store, json!([])));
    for n in 0..1_000 {
        one.register_tool(Some("many"), tool(&format!("t{n}"))).await.unwrap();
    }
    for node in [&one, &other] {
        assert_eq!(find_set(node, "many").await.tools.len(), 1_000);
        let name = "many.t999".parse().unwrap();
        assert!(matches!(node.toolbox().find(&name), Found::Tool(_)));
    }
}

async fn names(registry: &Registry, set: &str) -> Vec<String> {
    let tools = find_set(registry, set).await.tools;
    tools.iter().map(|tool| tool.definition().name.to_string()).collect()
}

/// SQLite takes time for writes, so the operations of the nodes interleave.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tools_registered_in_parallel_exist_once_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let open = || node_over(Arc::new(Sqlite::open(&path).unwrap()), json!([]));
    let (one, other) = (open(), open());
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    for node in [&one, &other] {
        tasks.spawn(node.clone().watch(stop.clone()));
        // Queries read the sets concurrently.
        let (node, stop) = (node.clone(), stop.clone());
        tasks.spawn(async move {
            while !stop.is_cancelled() {
                node.sync().await.unwrap();
                tokio::task::yield_now().await;
            }
        });
    }
    let registered = futures::future::join_all((0..60).map(async |n| {
        let node = if n % 3 == 0 { &other } else { &one };
        node.register_tool(Some("many"), tool(&format!("t{n:02}"))).await.unwrap()
    }));
    registered.await;
    let expected: Vec<_> = (0..60).map(|n| format!("t{n:02}")).collect();
    for node in [&one, &other] {
        let mut found = names(node, "many").await;
        found.sort();
        assert_eq!(found, expected);
    }
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn parallel_changes_of_a_context_are_all_applied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let open = || node_over(Arc::new(Sqlite::open(&path).unwrap()), json!([]));
    let (one, other) = (open(), open());
    let changed = futures::future::join_all((0..20).map(async |n| {
        let node = if n % 2 == 0 { &one } else { &other };
        node.set_context("shop", &json!({ format!("f{n:02}"): n })).await.unwrap();
    }));
    changed.await;
    for node in [&one, &other] {
        node.sync().await.unwrap();
        let data = node.context("shop").await.unwrap();
        assert_eq!(data.as_object().unwrap().len(), 22, "{data}");
    }
}

#[tokio::test]
async fn a_deactivated_set_is_never_visible_as_active() {
    let store = Arc::new(Memory::new());
    let (one, other) = (node(&store, json!([])), node(&store, json!([])));
    one.register_tool(Some("b"), tool("x")).await.unwrap();
    one.switch(&strings(&["b"]), false).await.unwrap();
    other.sync().await.unwrap();
    one.register_tool(Some("b"), tool("y")).await.unwrap();
    let config = other.0.applied.lock().await.wanted[0].config.clone();
    assert!(config.active, "as it is written");
    let (toolbox, name) = (other.toolbox().clone(), config.name);
    let watching = std::thread::spawn(move || {
        while toolbox.tools(&name).len() < 2 {
            assert!(!toolbox.set(&name).unwrap().is_active);
        }
        toolbox.set(&name).unwrap().is_active
    });
    other.sync().await.unwrap();
    assert!(!watching.join().unwrap());
    assert_eq!(sets(&other).await, ["b-"]);
}

#[tokio::test]
async fn configured_sets_and_tools_in_them_cannot_be_removed() {
    let registry = node(&Arc::new(Memory::new()), json!([set("a", &["x"])]));
    registry.register_tool(Some("a"), tool("y")).await.unwrap();
    registry.switch(&strings(&["a"]), false).await.unwrap();
    let err = registry.remove_set(&"a".parse().unwrap()).await.unwrap_err();
    assert!(err.to_string().contains("remove it from the configuration"), "{err}");
    assert_eq!(sets(&registry).await, ["a-"]);
    assert_eq!(names(&registry, "a").await, ["x", "y"]);
}

#[tokio::test]
async fn a_set_with_a_false_condition_is_kept() {
    let store = Arc::new(Memory::new());
    let (one, other) = (node(&store, json!([])), node(&store, json!([])));
    let settings = |condition: &str| {
        let mut set = set("vip", &["x"]);
        set["context"] = json!("shop");
        set["condition"] = json!(condition);
        set
    };
    // The field does not exist yet, so the condition has no result.
    let added = one.add_set(settings("isVip")).await.unwrap();
    assert_eq!((added.name.as_str(), added.is_active, added.tools.len()), ("vip", false, 0));
    let err = other.add_set(settings("isVip")).await.unwrap_err();
    assert!(matches!(err, RegistryError::Exists { .. }), "{err}");
    let err = other.register_tool(Some("vip"), tool("y")).await.unwrap_err();
    assert_eq!(err, RegistryError::Hidden("vip".to_owned()));
    assert_eq!(sets(&other).await, [""; 0]);
    other.set_context("shop", &json!({ "isVip": true })).await.unwrap();
    assert_eq!(sets(&one).await, ["vip+"]);
    other.register_tool(Some("vip"), tool("y")).await.unwrap();
    assert_eq!(names(&one, "vip").await, ["x", "y"]);
    one.set_context("shop", &json!({ "isVip": false })).await.unwrap();
    assert!(one.unregister(&"vip.y".parse().unwrap()).await.unwrap(), "though it is not there");
    assert!(one.remove_set(&"vip".parse().unwrap()).await.unwrap());
    assert!(!one.remove_set(&"vip".parse().unwrap()).await.unwrap());
}

#[tokio::test]
async fn a_tool_with_the_name_of_another_is_rejected() {
    let registry = node(&Arc::new(Memory::new()), json!([set("blog", &["createAuthor"])]));
    let err = registry.register_tool(None, tool("blog.createAuthor")).await.unwrap_err();
    assert!(matches!(err, RegistryError::Exists { .. }), "{err}");
    registry.register_tool(Some("a"), tool("b")).await.unwrap();
    let err = registry.register_tool(Some("a"), tool("a.b")).await.unwrap_err();
    assert!(matches!(err, RegistryError::Exists { .. }), "{err}");
    // The short name of another tool is free.
    assert_eq!(registry.register_tool(None, tool("echo")).await.unwrap().as_str(), "local.echo");
    let Found::Tool(found) = registry.toolbox().find(&"echo".parse().unwrap()) else { panic!() };
    assert_eq!(found.definition().qualified_name().as_str(), "local.echo");
}

#[tokio::test]
async fn removing_a_set_removes_its_switch() {
    let store = Arc::new(Memory::new());
    let registry = node(&store, json!([]));
    for (removed, name) in [("set", "local"), ("tool", "local"), ("set", "b")] {
        let add = async || match name {
            "b" => drop(registry.add_set(set("b", &["t"])).await.unwrap()),
            _ => drop(registry.register_tool(None, tool("t")).await.unwrap()),
        };
        add().await;
        registry.switch(&strings(&[name]), false).await.unwrap();
        let is_removed = match removed {
            "set" => registry.remove_set(&name.parse().unwrap()).await.unwrap(),
            _ => registry.unregister(&"local.t".parse().unwrap()).await.unwrap(),
        };
        assert!(is_removed);
        assert_eq!(store.find_record(RecordKind::Switch, name).await.unwrap(), None);
        // Another node may have written an activation later.
        let left = Record {
            kind: RecordKind::Switch,
            name: name.to_owned(),
            value: Arc::new(json!(false)),
            at: WallClock.now(),
        };
        store.put_record(&left, WriteCondition::Never).await.unwrap();
        add().await;
        assert_eq!(sets(&registry).await, [format!("{name}+")], "{removed}");
        registry.remove_set(&name.parse().unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_tool_is_removed_by_its_own_or_qualified_name_only() {
    let registry = node(&Arc::new(Memory::new()), json!([]));
    registry.register_tool(Some("a"), tool("x.y")).await.unwrap();
    registry.register_tool(Some("b"), tool("z")).await.unwrap();
    for short in ["y", "a.y", "nothing"] {
        assert!(!registry.unregister(&short.parse().unwrap()).await.unwrap(), "{short}");
    }
    assert!(registry.unregister(&"x.y".parse().unwrap()).await.unwrap());
    assert!(registry.unregister(&"b.z".parse().unwrap()).await.unwrap());
    assert_eq!(sets(&registry).await, [""; 0]);
}

/// The order of the sets decides which tool a short name means.
#[tokio::test]
async fn a_set_keeps_its_place_after_its_first_tool_is_removed() {
    let store = Arc::new(Memory::new());
    let registry = node(&store, json!([]));
    for (set, name) in [("a", "x"), ("b", "y"), ("a", "y"), ("a", "z")] {
        registry.register_tool(Some(set), tool(name)).await.unwrap();
    }
    for gone in ["a.x", "a.y"] {
        assert!(registry.unregister(&gone.parse().unwrap()).await.unwrap());
        registry.register_tool(Some("a"), tool("w")).await.ok();
        for node in [&registry, &node(&store, json!([]))] {
            assert_eq!(sets(node).await, ["a+", "b+"], "without {gone}");
        }
    }
    assert!(registry.remove_set(&"a".parse().unwrap()).await.unwrap());
    registry.register_tool(Some("a"), tool("x")).await.unwrap();
    assert_eq!(sets(&registry).await, ["b+", "a+"], "a set with the same name is a new set");
}

/// Older versions called the record `set.` and the tool's own name.
#[tokio::test]
async fn two_records_of_one_tool_do_not_fail_their_set() {
    let store = Arc::new(Memory::new());
    let registry = node(&store, json!([]));
    registry.register_tool(Some("a"), tool("b")).await.unwrap();
    assert_ne!(store.find_record(RecordKind::Tool, "a.b").await.unwrap(), None);
    let value = Arc::new(json!({ "set": "a", "tool": tool("a.b") }));
    let record =
        Record { kind: RecordKind::Tool, name: "a.a.b".to_owned(), value, at: WallClock.now() };
    store.put_record(&record, WriteCondition::Never).await.unwrap();
    for n in 0..2 {
        let set = find_set(&registry, "a").await;
        assert_eq!((set.status, set.tools.len()), (SetStatus::Ready, 1), "{n}");
        assert!(registry.unregister(&"a.b".parse().unwrap()).await.unwrap(), "{n}");
    }
    assert_eq!(sets(&registry).await, [""; 0]);
    let record = store.find_record(RecordKind::Tool, "a.a.b").await.unwrap();
    assert_eq!(record, None);
    registry.register_tool(Some("a"), tool("a.b")).await.unwrap();
    assert_ne!(
        store.find_record(RecordKind::Tool, "a.b").await.unwrap(),
        None,
        "one name, one record"
    );
}

#[tokio::test]
async fn an_invalid_tool_does_not_hide_others_of_its_set() {
    let odd = json!({ "name": "odd", "parameters": { "type": "strnig" } });
    let configured = json!([{ "name": "a", "source": { "tools": [odd.clone()] } }]);
    let registry = node(&Arc::new(Memory::new()), configured);
    let bad = find_set(&registry, "a").await.status;
    assert!(matches!(&bad, SetStatus::Failed { error } if error.contains("`odd`")), "{bad:?}");
    registry.register_tool(Some("a"), tool("t")).await.unwrap();
    registry.register_tool(Some("a"), tool("u")).await.unwrap();
    let set = find_set(&registry, "a").await;
    assert_eq!((set.status, set.tools.len(), set.left_out.len()), (SetStatus::Ready, 2, 1));
    // An added set is checked first.
    let added = json!({ "name": "b", "source": { "tools": [{ "name": "t" }, odd] } });
    let err = registry.add_set(added).await.unwrap_err();
    assert!(matches!(&err, RegistryError::Invalid(why) if why.contains("`odd`")), "{err}");
    for name in ["../x", "a b", "activate_toolset"] {
        let err = registry.register_tool(Some("a"), tool(name)).await.unwrap_err();
        let says = |why: &str| why.contains(&format!("`{name}`"));
        assert!(matches!(&err, RegistryError::Invalid(why) if says(why)), "{err}");
        let added = json!({ "name": "b", "source": tools(&[name]) });
        let err = registry.add_set(added).await.unwrap_err();
        assert!(matches!(&err, RegistryError::Invalid(why) if says(why)), "{err}");
    }
    let twins = json!({ "name": "b", "source": tools(&["t", "b.t"]) });
    let err = registry.add_set(twins).await.unwrap_err();
    assert!(matches!(&err, RegistryError::Invalid(why) if why.contains("rename one")), "{err}");
    assert_eq!(sets(&registry).await, ["a+"]);
}

#[tokio::test]
async fn documents_cannot_take_the_name_of_an_existing_set() {
    let store = Arc::new(Memory::new());
    let hidden = json!({ "name": "g_rag", "condition": "false", "source": tools(&["x"]) });
    let registry = node(&store, json!([set("f_rag", &["x"]), hidden]));
    let rag = json!({ "rag": { "manual": [{ "content": "tea" }] } });
    for name in ["f", "g"] {
        let err = registry.set_context(name, &rag).await.unwrap_err();
        let name = format!("{name}_rag");
        assert_eq!(err, RegistryError::Exists { what: "a toolset", name });
    }
    registry.set_context("f", &json!({ "rag": {}, "n": 1 })).await.unwrap();
    registry.set_context("h", &rag).await.unwrap();
    registry.set_context("h", &json!({ "rag": { "more": [] } })).await.unwrap();
    assert_eq!(sets(&registry).await, ["f_rag+", "h_rag+"]);
    let err = registry.remove_set(&"h_rag".parse().unwrap()).await.unwrap_err().to_string();
    assert!(err.contains("the context `h`: set its `rag` to null"), "{err}");
    let err = registry.remove_set(&"flow".parse().unwrap()).await.unwrap_err().to_string();
    assert!(err.contains("part of Faber"), "{err}");
    // The activation is removed with the documents.
    registry.switch(&strings(&["h_rag"]), false).await.unwrap();
    registry.set_context("h", &json!({ "rag": null })).await.unwrap();
    assert_eq!(store.find_record(RecordKind::Switch, "h_rag").await.unwrap(), None);
    registry.set_context("h", &rag).await.unwrap();
    assert_eq!(sets(&registry).await, ["f_rag+", "h_rag+"]);
}

#[tokio::test]
async fn a_context_record_keeps_a_limited_number_of_removals() {
    let store = Arc::new(Memory::new());
    let registry = node(&store, json!([]));
    registry.set_context("shop", &json!({ "n": null })).await.unwrap();
    let many = |value: Value| -> Value {
        (0..MAX_REMOVED_FIELDS + 200).map(|n| (format!("f{n}"), value.clone())).collect()
    };
    registry.set_context("shop", &many(json!(1))).await.unwrap();
    registry.set_context("shop", &many(json!(null))).await.unwrap();
    let record = store.find_record(RecordKind::Context, "shop").await.unwrap().unwrap();
    let removed = record.value.as_object().unwrap();
    assert_eq!(
        removed.len(),
        MAX_REMOVED_FIELDS + 1,
        "removed fields that no context has are forgotten"
    );
    assert!(removed.contains_key("n") && removed.contains_key("f200"), "{removed:?}");
    assert_eq!(registry.context("shop").await, Some(json!({ "adminMode": false })));
}

/// A node whose configuration lacks a field must keep its removal for other nodes.
#[tokio::test]
async fn a_field_removed_from_a_context_disappears_on_every_node() {
    let store = Arc::new(Memory::new());
    let file =
        |contexts: Value| node_with(Arc::clone(&store) as Arc<dyn Store>, json!([]), &contexts);
    let has = file(json!({ "shop": { "mode": "a", "n": 1, "users": { "ann": 1 } } }));
    let (lacks, knows_none) = (file(json!({ "shop": { "mode": "b" } })), file(json!({})));
    // On a node that never had the field.
    lacks.set_context("shop", &json!({ "n": null })).await.unwrap();
    // On a node that applies another change later.
    has.set_context("shop", &json!({ "users": { "ann": null } })).await.unwrap();
    knows_none.set_context("shop", &json!({ "open": true })).await.unwrap();
    has.sync().await.unwrap();
    let data = has.context("shop").await;
    assert_eq!(data, Some(json!({ "mode": "a", "users": {}, "open": true })));
    // A new object does not contain fields of the removed one.
    has.set_context("shop", &json!({ "users": null })).await.unwrap();
    has.set_context("shop", &json!({ "users": { "bob": 2 } })).await.unwrap();
    let data = has.context("shop").await;
    assert_eq!(data, Some(json!({ "mode": "a", "users": { "bob": 2 }, "open": true })));
}

#[tokio::test]
async fn a_complaint_about_a_record_is_not_repeated() {
    let registry = node(&Arc::new(Memory::new()), json!([set("a", &["x"])]));
    let settings = json!({ "name": "a", "source": tools(&["y"]) });
    let put = registry.put_record(RecordKind::ToolSet, "a", settings, WriteCondition::Never).await;
    put.unwrap();
    registry.sync().await.unwrap();
    let said = registry.0.applied.lock().await.complaints.clone();
    assert_eq!(said, [("a".to_owned(), "the configuration has one, too".to_owned())]);
    registry.register_tool(None, tool("t")).await.unwrap();
    assert_eq!(registry.0.applied.lock().await.complaints, said);
}

#[tokio::test]
async fn an_unchanged_tool_is_not_created_again() {
    let store = Arc::new(Memory::new());
    let (one, other) = (node(&store, json!([])), node(&store, json!([])));
    one.register_tool(None, tool("a")).await.unwrap();
    let before = find_set(&other, "local").await.tools;
    one.register_tool(None, tool("b")).await.unwrap();
    let after = find_set(&other, "local").await.tools;
    assert_eq!(after.len(), 2);
    assert!(Arc::ptr_eq(before[0].tool(), after[0].tool()));
}

#[tokio::test]
async fn a_registered_command_runs_in_its_folder_on_every_node() {
    let store = Arc::new(Memory::new());
    let (one, other) = (node(&store, json!([])), node(&store, json!([])));
    let settings = json!({ "name": "where", "run": { "command": ["pwd"], "cwd": "usr" } });
    let name = one.register_tool(None, settings).await.unwrap();
    other.sync().await.unwrap();
    for node in [&one, &other] {
        let Found::Tool(found) = node.toolbox().find(&name) else { panic!("it is there") };
        let called = found.tool().call(Arc::new(json!({})), ToolContext::detached()).await;
        assert_eq!(called.unwrap(), json!("/usr"));
    }
}

#[tokio::test]
async fn the_method_of_a_registered_tool_decides_its_effect() {
    let registry = node(&Arc::new(Memory::new()), json!([]));
    for (method, effect) in [
        ("GET", Effect::Read),
        ("HEAD", Effect::Read),
        ("PUT", Effect::Idempotent),
        ("DELETE", Effect::Idempotent),
        ("POST", Effect::Once),
    ] {
        let run = json!({ "http": { "method": method, "url": "http://127.0.0.1:9/" } });
        let settings = json!({ "name": method, "effect": null, "run": run });
        let name = registry.register_tool(None, settings).await.unwrap();
        let Found::Tool(found) = registry.toolbox().find(&name) else { panic!("it is there") };
        assert_eq!(found.definition().effect, effect, "{method}");
    }
}
