use super::*;

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
    assert_eq!(sets(&other).await, ["admin+", "b+"], "the set has its place in the configuration");
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
        let ToolLookup::Tool(tool) = node.toolbox().find(&name) else { panic!("{name}") };
        let query = json!({ "ragId": id, "query": "tea" });
        let called = tool.tool().call(Arc::new(query), ToolContext::detached()).await;
        called.map_err(|err| err.message.to_string())
    };
    assert_eq!(ask(&other, "shop", "manual").await.unwrap()[0]["content"], "tea");
    other.set_context("club", &json!({ "rag": { "rules": [] } })).await.unwrap();
    assert_eq!(sets(&one).await, ["club_rag+", "shop_rag+"]);
    let missing = Err("RAG with ID manual not found in context club".to_owned());
    assert_eq!(ask(&one, "club", "manual").await, missing);
    // The patch changes one collection, and the other collection stays.
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
    assert!(wrong.to_string().contains("need a toolset"), "{wrong}");
    one.set_context("shop", &json!({ "rag": null })).await.unwrap();
    assert_eq!(sets(&other).await, ["a+", "club_rag+"]);
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
    assert!(
        one.unregister(&"vip.y".parse().unwrap()).await.unwrap(),
        "even though the set is hidden"
    );
    assert!(one.remove_set(&"vip".parse().unwrap()).await.unwrap());
    assert!(!one.remove_set(&"vip".parse().unwrap()).await.unwrap());
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
        assert_eq!(err, RegistryError::Exists { kind: "a toolset", name });
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

/// A node whose configuration lacks a field must keep the removal of the field for other nodes.
#[tokio::test]
async fn a_field_removed_from_a_context_disappears_on_every_node() {
    let store = Arc::new(Memory::new());
    let file =
        |contexts: Value| node_with(Arc::clone(&store) as Arc<dyn Store>, json!([]), &contexts);
    let has = file(json!({ "shop": { "mode": "a", "n": 1, "users": { "ann": 1 } } }));
    let (lacks, knows_none) = (file(json!({ "shop": { "mode": "b" } })), file(json!({})));
    // Removes a field on a node that never had it.
    lacks.set_context("shop", &json!({ "n": null })).await.unwrap();
    // Removes a field on a node that has it. Another node then changes the context.
    has.set_context("shop", &json!({ "users": { "ann": null } })).await.unwrap();
    knows_none.set_context("shop", &json!({ "open": true })).await.unwrap();
    has.sync().await.unwrap();
    let data = has.context("shop").await;
    assert_eq!(data, Some(json!({ "mode": "a", "users": {}, "open": true })));
    // A new object does not contain fields of the removed object.
    has.set_context("shop", &json!({ "users": null })).await.unwrap();
    has.set_context("shop", &json!({ "users": { "bob": 2 } })).await.unwrap();
    let data = has.context("shop").await;
    assert_eq!(data, Some(json!({ "mode": "a", "users": { "bob": 2 }, "open": true })));
}
