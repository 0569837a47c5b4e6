use super::*;

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
        assert!(
            matches!(&err, RegistryError::Invalid(reason) if reason.contains(expected)),
            "{err}"
        );
    }
    let builtin = json!({ "builtin": "file_tools", "effects": { "*": "read" } });
    let err = one.add_set(json!({ "name": "d", "source": builtin })).await.unwrap_err();
    assert!(err.to_string().contains("`effects` is not allowed beside `builtin`"), "{err}");
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
        let ToolLookup::Tool(tool) = registry.toolbox().find(&name.parse().unwrap()) else {
            panic!("the toolbox has {name}")
        };
        let output = tool.tool().call(Arc::new(json!({})), ToolContext::detached()).await.unwrap();
        let output = output.as_str().unwrap();
        assert!(output.contains("PATH=") && output.contains("OWN=1"), "{name}: {output}");
        assert!(!output.contains("CARGO_MANIFEST_DIR="), "{name}: {output}");
    }
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
        assert!(matches!(node.toolbox().find(&name), ToolLookup::Tool(_)));
    }
}

#[tokio::test]
async fn a_tool_with_the_name_of_another_is_rejected() {
    let registry = node(&Arc::new(Memory::new()), json!([set("blog", &["createAuthor"])]));
    let err = registry.register_tool(None, tool("blog.createAuthor")).await.unwrap_err();
    assert!(matches!(err, RegistryError::Exists { .. }), "{err}");
    registry.register_tool(Some("a"), tool("b")).await.unwrap();
    let err = registry.register_tool(Some("a"), tool("a.b")).await.unwrap_err();
    assert!(matches!(err, RegistryError::Exists { .. }), "{err}");
    // A tool in another set can have the short name of `flow.echo`.
    assert_eq!(registry.register_tool(None, tool("echo")).await.unwrap().as_str(), "local.echo");
    let ToolLookup::Tool(found) = registry.toolbox().find(&"echo".parse().unwrap()) else {
        panic!()
    };
    assert_eq!(found.definition().qualified_name().as_str(), "local.echo");
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
    // The tools of an added set are checked before the set is stored, so one mistake rejects the
    // set.
    let added = json!({ "name": "b", "source": { "tools": [{ "name": "t" }, odd] } });
    let err = registry.add_set(added).await.unwrap_err();
    assert!(matches!(&err, RegistryError::Invalid(reason) if reason.contains("`odd`")), "{err}");
    for name in ["../x", "a b", "activate_toolset"] {
        let err = registry.register_tool(Some("a"), tool(name)).await.unwrap_err();
        let says = |reason: &str| reason.contains(&format!("`{name}`"));
        assert!(matches!(&err, RegistryError::Invalid(reason) if says(reason)), "{err}");
        let added = json!({ "name": "b", "source": tools(&[name]) });
        let err = registry.add_set(added).await.unwrap_err();
        assert!(matches!(&err, RegistryError::Invalid(reason) if says(reason)), "{err}");
    }
    let twins = json!({ "name": "b", "source": tools(&["t", "b.t"]) });
    let err = registry.add_set(twins).await.unwrap_err();
    assert!(
        matches!(&err, RegistryError::Invalid(reason) if reason.contains("rename one")),
        "{err}"
    );
    assert_eq!(sets(&registry).await, ["a+"]);
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
        let ToolLookup::Tool(found) = node.toolbox().find(&name) else {
            panic!("the toolbox has the tool")
        };
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
        let ToolLookup::Tool(found) = registry.toolbox().find(&name) else {
            panic!("the toolbox has the tool")
        };
        assert_eq!(found.definition().effect, effect, "{method}");
    }
}
