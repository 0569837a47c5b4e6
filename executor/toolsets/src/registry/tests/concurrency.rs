use super::*;

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
    let config = other.0.applied.lock().await.wanted_sets[0].config.clone();
    assert!(config.active, "the configuration is unchanged");
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

/// Older versions could write a second record for the same tool, such as `a.a.b` for `a.b`.
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
        "each name has one record"
    );
}
