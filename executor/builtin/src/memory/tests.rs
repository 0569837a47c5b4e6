//! The tools as their callers see them, with the store in memory and with SQLite.

use std::{fmt::Write, sync::Mutex};

use expect_test::expect;
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    store::{Record, RecordKind, RecordPage, WriteCondition, memory::Memory as InMemory},
    tool::ErrorCode,
};
use sqlite::Sqlite;
use tempfile::TempDir;

use super::{
    memory_store::{MAX_MEMORIES, MAX_VALUE_BYTES},
    *,
};

#[derive(Debug, Default)]
struct TickingClock(Mutex<i64>);

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        let mut seconds = self.0.lock().unwrap();
        *seconds += 1;
        Timestamp::from_timestamp(*seconds, 0).unwrap()
    }
}

struct MemoryTools {
    store: Arc<dyn Store>,
    tools: Vec<Arc<dyn Tool>>,
}

impl MemoryTools {
    fn new(store: Arc<dyn Store>) -> Self {
        let tools = tools(Arc::clone(&store), Arc::new(TickingClock::default()));
        Self { store, tools }
    }

    fn in_file(folder: &TempDir) -> Self {
        Self::new(Arc::new(Sqlite::open(&folder.path().join("faber.db")).unwrap()))
    }

    async fn try_call(&self, name: &str, args: Value) -> Result<String, ToolError> {
        let tool = self.tools.iter().find(|tool| tool.definition().name.as_str() == name).unwrap();
        let out = tool.call(Arc::new(args), ToolContext::detached()).await?;
        Ok(out.as_str().unwrap().to_owned())
    }

    async fn call(&self, name: &str, args: Value) -> String {
        self.try_call(name, args.clone()).await.unwrap_or_else(|err| panic!("{name} {args}: {err}"))
    }

    async fn call_and_fail(&self, name: &str, args: Value) -> String {
        let err = self.try_call(name, args).await.unwrap_err();
        assert!(!err.retryable, "{err}");
        err.message.to_string()
    }

    async fn save(&self, key: &str, value: &str) {
        self.call("save_context", json!({ "key": key, "value": value })).await;
    }

    async fn put_record(&self, name: String, value: Value) {
        let (kind, at) = (RecordKind::Memory, Timestamp::UNIX_EPOCH);
        let record = Record { kind, name, value: Arc::new(value), at };
        assert!(self.store.put_record(&record, WriteCondition::Never).await.unwrap());
    }
}

fn tools_on_each_store() -> [(MemoryTools, TempDir); 2] {
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    [(MemoryTools::new(Arc::new(InMemory::new())), one), (MemoryTools::in_file(&other), other)]
}

#[test]
fn memory_tools_have_their_documented_names_and_parameters() {
    let mut table = String::new();
    for tool in tools(Arc::new(InMemory::new()), Arc::new(TickingClock::default())) {
        let definition = tool.definition();
        let schema = &definition.input_schema;
        assert_eq!(schema["additionalProperties"], json!(false));
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let parameters = schema["properties"].as_object().unwrap().iter().map(|(name, schema)| {
            assert!(schema["description"].is_string(), "{name}");
            let mark = if required.contains(&json!(name)) { "!" } else { "" };
            let default =
                schema.get("default").map(|default| format!(" = {default}")).unwrap_or_default();
            format!("{name}{mark}: {}{default}", schema["type"])
        });
        let parameters = parameters.collect::<Vec<_>>().join(", ");
        let (name, effect) = (definition.qualified_name(), definition.effect);
        writeln!(table, "{name}({parameters}) {effect:?}").unwrap();
    }
    expect![[r#"
        memory_tools.clear_memory(key: "string" = null, scope: "string" = "project") Idempotent
        memory_tools.get_snippet(name!: "string") Read
        memory_tools.list_memories(scope: "string" = "project") Read
        memory_tools.recall_context(key!: "string", scope: "string" = "project") Read
        memory_tools.save_context(key!: "string", value!: "string", scope: "string" = "project", tags: ["array","null"] = null) Idempotent
        memory_tools.save_snippet(name!: "string", code!: "string", language!: "string", description: ["string","null"] = null, tags: ["array","null"] = null) Idempotent
        memory_tools.search_memory(query!: "string", scope: "string" = "project") Read
    "#]].assert_eq(&table);
}

#[tokio::test]
async fn a_saved_value_is_recalled_unchanged() {
    for (memory_tools, _folder) in tools_on_each_store() {
        let value = "  Grüße\r\n\0 \"alle\" {{a.b}} 👋\n";
        for key in ["k", "a/b/../c", "%-", "line\nbreak\0", "ключ 日本", "%J"] {
            let args = json!({ "key": key, "value": value, "scope": "global", "tags": ["t", " "] });
            memory_tools.call("save_context", args).await;
            let args = json!({ "key": key, "scope": "global" });
            assert_eq!(memory_tools.call("recall_context", args).await, value, "{key}");
        }
        let list = memory_tools.call("list_memories", json!({ "scope": "global" })).await;
        expect![[r#"
            6 memories in global:
            - %- [t]: Grüße "alle" {{a.b}} 👋
            - %J [t]: Grüße "alle" {{a.b}} 👋
            - a/b/../c [t]: Grüße "alle" {{a.b}} 👋
            - k [t]: Grüße "alle" {{a.b}} 👋
            - line\nbreak\u{0} [t]: Grüße "alle" {{a.b}} 👋
            - ключ 日本 [t]: Grüße "alle" {{a.b}} 👋"#]]
        .assert_eq(&list);
        memory_tools.save("k", "one").await;
        memory_tools.save("k", "two").await;
        assert_eq!(memory_tools.call("recall_context", json!({ "key": "k" })).await, "two");
        assert!(
            memory_tools.call("list_memories", json!({})).await.starts_with("1 memory in project:")
        );
    }
}

#[tokio::test]
async fn memories_survive_a_restart() {
    let folder = TempDir::new().unwrap();
    let memory_tools = MemoryTools::in_file(&folder);
    memory_tools.save("k", "v").await;
    memory_tools.call("save_snippet", json!({ "name": "s", "code": "c", "language": "l" })).await;
    drop(memory_tools);
    let memory_tools = MemoryTools::in_file(&folder);
    assert_eq!(memory_tools.call("recall_context", json!({ "key": "k" })).await, "v");
    assert_eq!(
        memory_tools.call("get_snippet", json!({ "name": "s" })).await,
        "Snippet 's' (l)\n\nc"
    );
}

#[tokio::test]
async fn a_key_can_have_a_value_in_each_scope() {
    for (memory_tools, _folder) in tools_on_each_store() {
        memory_tools.save("k", "of the project").await;
        let global = json!({ "key": "k", "scope": "global" });
        let err = memory_tools.call_and_fail("recall_context", global.clone()).await;
        assert_eq!(
            err,
            "nothing is saved as 'k' in global, but the key exists in project: use that scope"
        );
        let err = memory_tools.call_and_fail("recall_context", json!({ "key": "x" })).await;
        expect!["nothing is saved as 'x' in project: use `list_memories` or `search_memory`"]
            .assert_eq(&err);
        assert_eq!(
            memory_tools.call("clear_memory", global).await,
            "Nothing to clear: there is no 'k' in global"
        );
        assert_eq!(
            memory_tools.call("list_memories", json!({ "scope": "snippets" })).await,
            "No memories in snippets"
        );
        let err = memory_tools.call_and_fail("list_memories", json!({ "scope": "team" })).await;
        expect!["unknown variant `team`, expected one of `global`, `project`, `snippets`"]
            .assert_eq(&err);
        assert_eq!(
            memory_tools.call("recall_context", json!({ "key": "k" })).await,
            "of the project"
        );
    }
}

#[tokio::test]
async fn a_snippet_is_shown_with_its_description_and_tags() {
    for (memory_tools, _folder) in tools_on_each_store() {
        let args = json!({
            "name": "retry", "code": "fn retry() {\n    todo()\n}\n", "language": "rust",
            "description": "Calls again after a while.", "tags": ["http", "backoff"],
        });
        assert_eq!(memory_tools.call("save_snippet", args.clone()).await, "Saved snippet 'retry'");
        let again = memory_tools.call("save_snippet", args).await;
        assert_eq!(again, "Saved snippet 'retry'", "a second call is like the first");
        expect![[r"
            Snippet 'retry' (rust): Calls again after a while.
            Tags: http, backoff

            fn retry() {
                todo()
            }
        "]]
        .assert_eq(&memory_tools.call("get_snippet", json!({ "name": "retry" })).await);
        let code = memory_tools
            .call("recall_context", json!({ "key": "retry", "scope": "snippets" }))
            .await;
        assert_eq!(code, "fn retry() {\n    todo()\n}\n", "the code alone, for plans");
        for query in ["AFTER A while", "Backoff", "retr", "TODO"] {
            let args = json!({ "query": query, "scope": "snippets" });
            assert!(
                memory_tools.call("search_memory", args).await.contains("- retry (rust)"),
                "{query}"
            );
        }
        let all = memory_tools
            .store
            .list_records(RecordKind::Memory, RecordPage::first_records(9))
            .await
            .unwrap();
        // Guards the stored format, because later versions must be able to read it.
        expect![[r#"snippets/retry {"value":"fn retry() {\n    todo()\n}\n","tags":["http","backoff"],"language":"rust","description":"Calls again after a while."}"#]].assert_eq(&format!("{} {}", all[0].name, all[0].value));
    }
}

#[tokio::test]
async fn a_search_ignores_case_in_keys_texts_and_tags() {
    for (memory_tools, _folder) in tools_on_each_store() {
        memory_tools.save("Zürich office", "Bahnhofstrasse 1").await;
        memory_tools
            .save("a note", "the office in ZÜRICH closes at five\nand opens at eight")
            .await;
        let args = json!({ "key": "b", "value": "x", "tags": ["Zürich", "travel"] });
        memory_tools.call("save_context", args).await;
        memory_tools.save("c", "nothing of that").await;
        expect![[r"
            Found 3 memories matching 'zürich' in project:
            - Zürich office: Bahnhofstrasse 1
            - b [Zürich, travel]: x
            - a note: the office in ZÜRICH closes at five and opens at eight"]]
        .assert_eq(&memory_tools.call("search_memory", json!({ "query": " zürich " })).await);
        let none = memory_tools.call("search_memory", json!({ "query": "%" })).await;
        assert_eq!(none, "No memories matching '%' in project");
        let err = memory_tools.call_and_fail("search_memory", json!({ "query": " \n" })).await;
        assert_eq!(err, "`query` is empty: `list_memories` shows all memories");
    }
}

#[tokio::test]
async fn a_search_shows_ten_matches_and_their_total() {
    for (memory_tools, _folder) in tools_on_each_store() {
        for n in 0..80 {
            memory_tools.save(&format!("n{n:02}"), if n % 2 == 0 { "even" } else { "odd" }).await;
        }
        memory_tools.save("the even ones", "").await;
        let found = memory_tools.call("search_memory", json!({ "query": "EVEN" })).await;
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines[0], "Found 41 memories matching 'EVEN' in project, the first 10:");
        assert_eq!(
            lines[1], "- the even ones",
            "a match in a key counts more than a match in a text"
        );
        assert_eq!((lines.len(), lines[10]), (11, "- n16: even"));
        let ten = memory_tools.call("search_memory", json!({ "query": "n1" })).await;
        assert!(ten.starts_with("Found 10 memories matching 'n1' in project:\n"), "{ten}");
    }
}

#[tokio::test]
async fn a_search_reads_a_bounded_number_of_memories() {
    let memory_tools = MemoryTools::new(Arc::new(InMemory::new()));
    for n in 0..100 {
        memory_tools
            .put_record(format!("project/{n:03}"), json!({ "value": "x".repeat(1_000) }))
            .await;
    }
    let notebook =
        MemoryStore::new(Arc::clone(&memory_tools.store), Arc::new(TickingClock::default()));
    let cx = ToolContext::detached();
    let found = notebook.search_memories(Scope::Project, "x", 40_000, &cx.cancel).await.unwrap();
    assert!(found.starts_with("Found 64 memories"), "{found}");
    let end = "\n(only the first 64 memories were searched, because there is too much text)";
    assert!(found.ends_with(end), "{found}");
    let found = notebook.search_memories(Scope::Project, "x", 100_000, &cx.cancel).await.unwrap();
    assert!(found.starts_with("Found 100 memories") && !found.contains("only"), "{found}");
    cx.cancel.cancel();
    let err = notebook.search_memories(Scope::Project, "x", 100_000, &cx.cancel).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::CANCELLED);
    assert!(notebook.clear(Scope::Project, &cx.cancel).await.is_err());
    assert_eq!(memory_tools.store.count_records(RecordKind::Memory, "", 1_000).await.unwrap(), 100);
}

#[tokio::test]
async fn clearing_a_scope_leaves_other_scopes() {
    for (memory_tools, _folder) in tools_on_each_store() {
        for n in 0..70 {
            memory_tools.save(&n.to_string(), "x").await;
        }
        memory_tools
            .call("save_context", json!({ "key": "0", "value": "x", "scope": "global" }))
            .await;
        memory_tools
            .call("save_snippet", json!({ "name": "0", "code": "x", "language": "" }))
            .await;
        assert_eq!(
            memory_tools.call("clear_memory", json!({ "key": "5" })).await,
            "Cleared '5' from project"
        );
        assert_eq!(
            memory_tools.call("clear_memory", json!({})).await,
            "Cleared 69 memories from project"
        );
        assert_eq!(
            memory_tools.call("clear_memory", json!({})).await,
            "Cleared 0 memories from project"
        );
        let global = json!({ "scope": "global" });
        assert!(
            memory_tools
                .call("list_memories", global.clone())
                .await
                .starts_with("1 memory in global")
        );
        assert_eq!(memory_tools.call("clear_memory", global).await, "Cleared 1 memory from global");
        assert_eq!(
            memory_tools.call("get_snippet", json!({ "name": "0" })).await,
            "Snippet '0'\n\nx"
        );
    }
}

#[tokio::test]
async fn clearing_an_empty_key_is_rejected() {
    let memory_tools = MemoryTools::new(Arc::new(InMemory::new()));
    memory_tools.save("k", "v").await;
    let err = memory_tools.call_and_fail("clear_memory", json!({ "key": "" })).await;
    assert_eq!(err, "a key is a text that is not empty");
    let err = memory_tools.call_and_fail("clear_memory", json!({ "key": null })).await;
    assert!(err.contains("invalid type: null"), "{err}");
    assert_eq!(memory_tools.call("recall_context", json!({ "key": "k" })).await, "v");
}

#[tokio::test]
async fn a_too_large_value_or_tag_is_rejected_with_advice() {
    for (memory_tools, _folder) in tools_on_each_store() {
        let save =
            |value: &str, tags: &[String]| json!({ "key": "k", "value": value, "tags": tags });
        let tags = |n: usize| (0..n).map(|number| number.to_string()).collect::<Vec<_>>();
        let err = memory_tools
            .call_and_fail("save_context", save(&"x".repeat(MAX_VALUE_BYTES + 1), &[]))
            .await;
        assert!(err.contains("shorten it, or split it"), "{err}");
        let err = memory_tools.call_and_fail("save_context", save("v", &tags(33))).await;
        assert_eq!(err, "33 tags are too many; the limit is 32");
        let err = memory_tools.call_and_fail("save_context", save("v", &["x".repeat(129)])).await;
        assert!(err.starts_with("a tag has 129 bytes"), "{err}");
        let err = memory_tools
            .call_and_fail("save_context", json!({ "key": "x".repeat(257), "value": "" }))
            .await;
        assert!(err.contains("put the text into the value"), "{err}");
        let err = memory_tools
            .call_and_fail("save_context", json!({ "key": "k", "value": "v", "ttl": 1 }))
            .await;
        assert!(err.starts_with("unknown field `ttl`"), "{err}");
        assert_eq!(memory_tools.call("list_memories", json!({})).await, "No memories in project");
        let too_many_escapes = "\n".repeat(MAX_VALUE_BYTES / 2);
        let err = memory_tools.call_and_fail("save_context", save(&too_many_escapes, &[])).await;
        assert!(err.contains("the text as JSON has"), "{err}");
        let largest = "\n".repeat(MAX_VALUE_BYTES / 2 - 1);
        memory_tools.call("save_context", save(&largest, &tags(32))).await;
        let found = memory_tools.call("recall_context", json!({ "key": "k" })).await;
        assert!(found == largest);
    }
}

#[tokio::test]
async fn saving_into_a_full_scope_is_rejected() {
    for (memory_tools, _folder) in tools_on_each_store() {
        let put =
            |n: &usize| memory_tools.put_record(format!("project/{n}"), json!({ "value": "v" }));
        for chunk in (0..MAX_MEMORIES).collect::<Vec<_>>().chunks(500) {
            futures::future::join_all(chunk.iter().map(put)).await;
        }
        let err =
            memory_tools.call_and_fail("save_context", json!({ "key": "new", "value": "v" })).await;
        assert!(err.contains("remove some with `clear_memory`"), "{err}");
        memory_tools.save("7", "another").await;
        assert_eq!(memory_tools.call("recall_context", json!({ "key": "7" })).await, "another");
        memory_tools
            .call("save_context", json!({ "key": "new", "value": "v", "scope": "global" }))
            .await;
        let list = memory_tools.call("list_memories", json!({})).await;
        assert!(list.starts_with("10000 memories in project:\n- 0: v\n"), "{list}");
        assert!(list.ends_with("\n… and 9800 more: `search_memory` finds them"));
        assert_eq!(list.lines().count(), 202);
        memory_tools.call("clear_memory", json!({ "key": "7" })).await;
        memory_tools.save("new", "v").await;
    }
}

#[tokio::test]
async fn a_damaged_record_does_not_hide_other_memories() {
    let memory_tools = MemoryTools::new(Arc::new(InMemory::new()));
    memory_tools.put_record("project/a".to_owned(), json!({ "text": 1 })).await;
    memory_tools.put_record("project/%x".to_owned(), json!({ "value": "x" })).await;
    memory_tools.save("b", "v").await;
    assert!(memory_tools.call("list_memories", json!({})).await.ends_with("- b: v"));
    let err = memory_tools.call_and_fail("recall_context", json!({ "key": "a" })).await;
    assert!(err.starts_with("`project/a` is damaged in the store"), "{err}");
    assert_eq!(
        memory_tools.call("clear_memory", json!({})).await,
        "Cleared 3 memories from project"
    );
}
