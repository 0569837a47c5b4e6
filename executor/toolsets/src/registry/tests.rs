use serde_json::{Value, json};
use shared::{
    clock::WallClock,
    limits,
    store::{KeyValue as _, memory::Memory},
    tool::Effect,
};
use sqlite::Sqlite;
use toolbox::{SetStatus, ToolContext, ToolLookup, ToolSet};

use super::*;

mod concurrency;
mod contexts;
mod tools;

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

async fn names(registry: &Registry, set: &str) -> Vec<String> {
    let tools = find_set(registry, set).await.tools;
    tools.iter().map(|tool| tool.definition().name.to_string()).collect()
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
async fn existing_sets_and_tools_are_not_overwritten() {
    let store = Arc::new(Memory::new());
    let registry = node(&store, json!([set("a", &["x"])]));
    for name in ["a", "flow", "ToolSet", "faber_agent"] {
        let err = registry.add_set(set(name, &["y"])).await.unwrap_err();
        assert_eq!(err, RegistryError::Exists { kind: "a toolset", name: name.to_owned() });
    }
    assert_eq!(find_set(&registry, "a").await.tools[0].definition().name.as_str(), "x");
    for (set, name) in [(None, "x"), (Some("a"), "x"), (None, "flow.echo")] {
        let err = registry.register_tool(set, tool(name)).await.unwrap_err();
        assert_eq!(err, RegistryError::Exists { kind: "a tool", name: name.to_owned() });
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
        assert!(err.to_string().contains("has another source"), "{err}");
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
    for (settings, reason) in [
        (json!({ "name": "b" }), "missing field `source`"),
        (json!({ "name": "b!", "source": tools(&[]) }), "a toolset name"),
        (json!({ "name": "b", "source": { "x": 1 } }), "unknown field `x`"),
        (json!({ "name": "b", "source": tools(&[]), "condition": "a &&" }), "`condition`: line 1"),
    ] {
        let err = registry.add_set(settings.clone()).await.unwrap_err().to_string();
        assert!(err.contains(reason), "{settings}: {err}");
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

/// A caller who adds a set must not be able to send any variable of the environment to a server.
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
    let sources_read = sources("FABER_TEST_TOLD");
    for (n, source) in sources_read.iter().enumerate() {
        let set = json!({ "name": format!("s{n}"), "source": source });
        let is_confined = source["tools"][0]["run"].get("confine").is_some();
        let added = registry.add_set(set).await;
        assert_eq!(
            added.is_err(),
            is_confined,
            "nothing can confine the tool in this test: {added:?}"
        );
    }
    assert_eq!(sets(&registry).await.len(), 2 * sources_read.len() - 1);
    let tool = |name: &str| {
        let run = json!({ "http": { "url": "http://a/", "headers": { "x": secret(name) } } });
        json!({ "name": "t", "run": run })
    };
    let err = registry.register_tool(Some("mine"), tool("HOME")).await.unwrap_err().to_string();
    assert!(err.contains("`HOME`") && err.contains("`access.secrets`"), "{err}");
    registry.register_tool(Some("mine"), tool("FABER_TEST_TOLD")).await.unwrap();
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
        let ToolLookup::Tool(tool) = registry.toolbox().find(&name.parse().unwrap()) else {
            panic!("the set {name} always exists")
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
async fn a_complaint_about_a_record_is_not_repeated() {
    let registry = node(&Arc::new(Memory::new()), json!([set("a", &["x"])]));
    let settings = json!({ "name": "a", "source": tools(&["y"]) });
    let put = registry.put_record(RecordKind::ToolSet, "a", settings, WriteCondition::Never).await;
    put.unwrap();
    registry.sync().await.unwrap();
    let complaints = registry.0.applied.lock().await.complaints.clone();
    assert_eq!(
        complaints,
        [("a".to_owned(), "the configuration already has a toolset of this name".to_owned())]
    );
    registry.register_tool(None, tool("t")).await.unwrap();
    assert_eq!(registry.0.applied.lock().await.complaints, complaints);
}
