use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use backup::{BackupError, Counts, Report, VerifiedBackup};
use engine::store::open_store;
use serde_json::{Value, json};
use shared::{
    actor::Actor,
    blob::{self, Blob, BlobId},
    clock::Timestamp,
    event::{Event, RecordedEvent, encode_events},
    id::{ExecutionId, Seq},
    request::TranscriptEntry,
    store::{
        AuditAction, AuditEntry, AuditFilter, AuditTarget, Command, ExecutionFilter, KeyValue as _,
        Page, PlanFilter, Record, RecordKind, RecordPage, RequestFilter, SentCommand, Store,
        WriteCondition, load_execution, memory::Memory,
    },
};
use tempfile::TempDir;
use tests::{
    conformance::{at, command_id, head, some_events},
    faulty::{Dice, FaultRates, FaultyStore},
};
use tokio::time;

use super::test_api::{ProcessRole, TestApi};
use crate::mongod::Mongod;

fn largest_page() -> Page {
    Page::first_items(10_000)
}

async fn write_backup(store: &dyn Store, path: &Path) -> Report {
    backup::write_backup(store, "test", path, &|_| ()).await.unwrap()
}

async fn restore(store: &dyn Store, path: &Path) -> Result<Counts, BackupError> {
    let mut file = VerifiedBackup::open(path, &|_| ()).await?;
    backup::restore(store, &mut file, &|_| ()).await
}

async fn read_log(store: &dyn Store, id: ExecutionId) -> Vec<RecordedEvent> {
    let mut log = Vec::new();
    loop {
        let after = log.last().map_or(Seq::START, |event: &RecordedEvent| event.seq);
        let events = store.read(id, after).await.unwrap();
        if events.is_empty() {
            return log;
        }
        log.extend(events);
    }
}

/// Returns everything that a backup must keep, as text.
async fn read_all(store: &dyn Store) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (_, request) in
        store.list_requests(&RequestFilter::default(), &largest_page()).await.unwrap().items
    {
        let transcript = store.transcript(request.id).await.unwrap();
        found.insert(request.id.to_string(), format!("{request:?} {transcript:?}"));
    }
    for (_, plan) in store.list_plans(&PlanFilter::default(), &largest_page()).await.unwrap().items
    {
        let plan = store.plan(plan.id).await.unwrap().unwrap();
        found.insert(plan.id().to_string(), plan.to_json());
    }
    for (_, head) in
        store.list_heads(&ExecutionFilter::default(), &largest_page()).await.unwrap().items
    {
        let id = head.execution;
        found.insert(id.to_string(), encode_events(&read_log(store, id).await));
        // Includes only fields that the log determines, because a stored head can lag behind its
        // log, and a restored head does not.
        let head = (head.state, head.owner, head.priority, head.finished_at, head.parent);
        found.insert(format!("head of {id}"), format!("{head:?}"));
        let commands = store.list_commands(Some(id)).await.unwrap();
        found.insert(format!("inbox of {id}"), format!("{commands:?}"));
    }
    let others = [RecordKind::Key, RecordKind::SavedPlan, RecordKind::Output, RecordKind::Usage];
    for kind in RecordKind::DOCUMENTS.into_iter().chain(others) {
        let page = RecordPage::first_records(10_000);
        for Record { name, mut value, at, .. } in store.list_records(kind, page).await.unwrap() {
            // Removes nulls, because some stores save a missing schema of a saved plan as null, and
            // other stores leave the field out.
            if let (RecordKind::SavedPlan, Some(saved)) =
                (kind, Arc::make_mut(&mut value).as_object_mut())
            {
                saved.retain(|_, value| !value.is_null());
            }
            // Sorts the fields, because an object that a store builds from the columns of a table
            // has its fields in another sequence.
            let fields: Option<BTreeMap<_, _>> =
                value.as_object().map(|fields| fields.iter().collect());
            let value = fields.map_or_else(|| value.to_string(), |fields| format!("{fields:?}"));
            found.insert(format!("{} {name}", kind.as_str()), format!("{at} {value}"));
        }
    }
    let audit = store.list_audit_entries(&AuditFilter::default(), &largest_page()).await.unwrap();
    found.extend(audit.items.into_iter().map(|(_, entry)| {
        let text = serde_json::to_string(&entry).unwrap();
        (entry.id.to_string(), text)
    }));
    found
}

async fn execute_many_plans(store: &Arc<dyn Store>) {
    let api = TestApi::over(store, ProcessRole::ApiAndWorker, None);
    let echo = |id: &str| json!({ "name": "flow.echo", "id": id, "parameters": { "x": "ö\n" } });
    let done = api.start(json!([echo("a"), echo("b")]), json!({ "idempotencyKey": "once" })).await;
    api.events(&done).await;
    let failed = json!([{ "name": "flow.fail", "parameters": { "message": "no" } }]);
    let failed = api.start(failed, json!({})).await;
    api.events(&failed).await;
    let inner = api.plan(json!([echo("in")])).await;
    let save = "mutation ($plan: ID!) { savePlan(name: \"inner\", planId: $plan) }";
    api.get(save, json!({ "plan": inner })).await;
    let whole = api.start(json!([{ "id": "sub", "plan": "inner" }]), json!({})).await;
    api.events(&whole).await;
    let items = json!([{ "name": "flow.echo", "id": "list", "parameters": { "x": [1, 2, 3] } },
        { "name": "flow.echo", "id": "each", "forEach": "{{list.x}}", "parameters": { "n": "{{item}}" } }]);
    api.events(&api.start(items, json!({})).await).await;
    let waits =
        api.plan(json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }]));
    let waits = waits.await;
    let inner_waits = json!([{ "id": "sub", "plan": waits }]);
    let parent = api.start(inner_waits, json!({ "priority": 3 })).await;
    let child = api.wait_for_execution(&parent, "steps { childExecutionId }", |execution| {
        execution["steps"][0]["childExecutionId"].is_string()
    });
    let child = child.await["steps"][0]["childExecutionId"].as_str().unwrap().to_owned();
    api.wait_for_step(&child, "w", "WAITING").await;
    let sleeps = json!([{ "name": "flow.sleep", "id": "s", "parameters": { "ms": 3_600_000 } }]);
    let sleeps = api.start(sleeps, json!({})).await;
    api.wait_for_step(&sleeps, "s", "RUNNING").await;
    drop(api);
    add_data_without_plans(&**store, done.parse().unwrap(), child.parse().unwrap()).await;
}

/// Adds data that no plan creates: commands, an audit entry, a long transcript, a blob, and
/// records.
async fn add_data_without_plans(store: &dyn Store, done: ExecutionId, waiting: ExecutionId) {
    let command = Command::Signal { name: "other".to_owned(), payload: Arc::new(json!([1])) };
    let command =
        SentCommand { id: command_id(1), execution: waiting, at: at(0), by: None, command };
    store.send_command(command).await.unwrap();
    let ada = Arc::new(Actor::user(Some("ada")));
    let (id, command) =
        (command_id(2), Command::Signal { name: "ours".to_owned(), payload: Arc::new(json!(2)) });
    let command =
        SentCommand { id, execution: waiting, at: at(1), by: Some(Arc::clone(&ada)), command };
    store.send_command(command).await.unwrap();
    let target = AuditTarget::named("shop");
    let detail = json!({ "z": u64::MAX, "a": [0.5, "\u{0}"] });
    let action = AuditAction::SET_CONTEXT;
    let entry = AuditEntry::new(at(2), ada, action, target, detail);
    assert_eq!(store.put_audit_entries(&[entry]).await, Ok(1));
    let request = store.head(done).await.unwrap().unwrap().request;
    let entry = |n: usize| TranscriptEntry {
        at: at(0),
        kind: "draft".to_owned(),
        content: json!({ "n": n, "text": "x".repeat(2 << 20) }),
    };
    store.add_transcript(request, &[0, 1, 2, 3, 4].map(entry)).await.unwrap();
    let hash = "0123456789abcdef".repeat(4);
    let id = BlobId::new(Some(done), &hash).unwrap();
    let blob = Blob { id, mime_type: "image/png".to_owned(), bytes: 7_000_000, at: at(0) };
    blob::save_blob(store, &blob, &"AAAA".repeat(2_000_000)).await.unwrap();
    let later = store.shared_time().await.unwrap() + Duration::from_hours(1);
    for (kind, name, value, at) in [
        (RecordKind::Memory, "note", json!({ "z": u64::MAX, "a": "\u{0}" }), at(1)),
        (RecordKind::Context, "shop", json!({ "open": true }), at(2)),
        (RecordKind::Settlement, &*format!("{done}/a"), json!({ "outcome": "succeeded" }), at(3)),
        (RecordKind::Output, "cached", json!([1, null]), later),
    ] {
        let (name, value) = (name.to_owned(), Arc::new(value));
        let record = Record { kind, name, value, at };
        assert!(store.put_record(&record, WriteCondition::Never).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_moves_unchanged_through_every_kind_of_store() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let first: Arc<dyn Store> = Arc::new(Memory::new());
    execute_many_plans(&first).await;
    let expected = read_all(&*first).await;
    let sqlite = open_store(&format!("sqlite:{}", path("faber.db").display())).await.unwrap();
    let mongo = open_store(&Mongod::shared().await.new_database_url()).await.unwrap();
    let last: Arc<dyn Store> = Arc::new(Memory::new());
    let mut counts = Vec::new();
    for (n, (from, to)) in
        [(&first, &sqlite), (&sqlite, &mongo), (&mongo, &last)].into_iter().enumerate()
    {
        let file = path(&n.to_string());
        let report = write_backup(&**from, &file).await;
        assert!(report.damaged.is_empty(), "{report:?}");
        assert_eq!(restore(&**to, &file).await.unwrap(), report.counts);
        assert_eq!(to.check_restored().await, Ok(()));
        let found = read_all(&**to).await;
        for (name, text) in &expected {
            assert!(found.get(name) == Some(text), "{n}: {name}: {:?}", found.get(name));
        }
        assert_eq!(found.len(), expected.len());
        let full = restore(&**to, &file).await.unwrap_err();
        assert!(matches!(full, BackupError::NotEmpty { .. }), "{full}");
        counts.push(report.counts);
    }
    assert!(counts[0].executions >= 8 && counts[0].blobs == 1 && counts[0].commands >= 2);
    assert!(counts[0].audit_entries >= 2, "{counts:?}");
    assert!(counts.iter().all(|other| *other == counts[0]), "{counts:?}");
}

#[tokio::test]
async fn a_restored_execution_continues_where_the_backup_ended() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup");
    let first: Arc<dyn Store> = Arc::new(Memory::new());
    execute_many_plans(&first).await;
    write_backup(&*first, &file).await;
    let second: Arc<dyn Store> = Arc::new(Memory::new());
    restore(&*second, &file).await.unwrap();
    let unfinished = ExecutionFilter { is_root: true, ..ExecutionFilter::default() };
    let heads = second.list_heads(&unfinished, &largest_page()).await.unwrap().items;
    let parent = heads.iter().find(|(_, head)| head.priority == 3).unwrap().1.execution;
    let child =
        second.list_heads(&ExecutionFilter::default(), &largest_page()).await.unwrap().items;
    let child = child.iter().find(|(_, head)| head.parent == Some(parent)).unwrap().1.execution;
    time::sleep(Duration::from_millis(300)).await;
    let (before, copy) = (read_log(&*first, child).await, read_log(&*second, child).await);
    assert_eq!(before, copy, "nothing continues without a worker");
    let api = TestApi::over(&second, ProcessRole::ApiAndWorker, None);
    let signal =
        "mutation ($id: ID!) { signalExecution(executionId: $id, name: \"go\") { state } }";
    api.get(signal, json!({ "id": child.to_string() })).await;
    api.events(&parent.to_string()).await;
    let ended = api.execution(&parent.to_string(), "state outputs").await;
    assert_eq!(ended["state"], "COMPLETED", "{ended:#}");
    let log = read_log(&*second, child).await;
    let is_heard = |event: &RecordedEvent| matches!(&event.event, Event::SignalReceived { name, .. } if name == "other");
    assert_eq!(log.iter().filter(|event| is_heard(event)).count(), 1);
}

/// Every restored log is the beginning of the original log, and the log of a parent names each
/// restored child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_busy_store_can_be_restored() {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("faber.db").display());
    let store = open_store(&url).await.unwrap();
    let api = TestApi::over(&store, ProcessRole::ApiAndWorker, None);
    let inner = api.plan(json!([{ "name": "flow.sleep", "parameters": { "ms": 1 } }])).await;
    let steps = json!([{ "id": "one", "plan": inner },
        { "id": "two", "plan": inner, "dependsOn": ["one"] }]);
    let work = async {
        for _ in 0..40 {
            let (one, other) = tokio::join!(
                api.start(steps.clone(), json!({})),
                api.start(steps.clone(), json!({}))
            );
            api.events(&one).await;
            api.events(&other).await;
        }
    };
    let backups = async {
        let mut files = Vec::new();
        for n in 0..12 {
            let file = folder.path().join(format!("backup {n}"));
            let report = write_backup(&*store, &file).await;
            assert!(report.damaged.is_empty(), "{report:?}");
            files.push(file);
            time::sleep(Duration::from_millis(20)).await;
        }
        files
    };
    let ((), files) = tokio::join!(work, backups);
    drop(api);
    let mut unfinished = 0;
    for file in files {
        let copy: Arc<dyn Store> = Arc::new(Memory::new());
        restore(&*copy, &file).await.unwrap();
        for (_, head) in
            copy.list_heads(&ExecutionFilter::default(), &largest_page()).await.unwrap().items
        {
            let (copied, whole) =
                (read_log(&*copy, head.execution).await, read_log(&*store, head.execution).await);
            assert!(whole.starts_with(&copied), "{}", head.execution);
            unfinished += usize::from(!head.state.is_finished());
            if let Some(parent) = head.parent {
                let log = read_log(&*copy, parent).await;
                let starts = |event: &RecordedEvent| matches!(&event.event, Event::StepStarted(started) if started.child == Some(head.execution));
                assert!(log.iter().any(starts), "{parent} does not know {}", head.execution);
            }
            if !head.state.is_finished() {
                assert!(head.owner.is_some() || head.due.is_some(), "{head:?} is never claimed");
            }
        }
    }
    assert!(unfinished > 0, "the backups were made between executions only");
}

#[tokio::test]
async fn a_damaged_log_is_left_out_and_reported() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup");
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    execute_many_plans(&store).await;
    let whole = write_backup(&*store, &file).await;
    let damaged = head(1, 3);
    store.append(some_events(damaged.execution, 0, 3)).await.unwrap();
    store.put_head(damaged.clone()).await.unwrap();
    let report = write_backup(&*store, &file).await;
    assert_eq!((report.damaged.total, report.counts), (1, whole.counts));
    assert!(report.damaged.shown[0].contains(&damaged.execution.to_string()), "{report:?}");
    let copy = Memory::new();
    assert_eq!(restore(&copy, &file).await.unwrap(), whole.counts);
}

#[tokio::test]
async fn an_interrupted_restore_is_completed_by_the_same_file_only() {
    let folder = TempDir::new().unwrap();
    let (file, other) = (folder.path().join("backup"), folder.path().join("other"));
    let first: Arc<dyn Store> = Arc::new(Memory::new());
    write_backup(&*first, &other).await;
    execute_many_plans(&first).await;
    write_backup(&*first, &file).await;
    let expected = read_all(&*first).await;
    let rates = FaultRates {
        failures_before: 0,
        failures_after: 0,
        failures_before_inbox: 0,
        stalls: 1_000,
        max_stall: Duration::from_millis(20),
    };
    for limit in [0, 200, 600, 1_000, 1_500] {
        let memory: Arc<dyn Store> = Arc::new(Memory::new());
        let slow = FaultyStore::new(Arc::clone(&memory), Dice::new(limit), rates);
        let stopped = time::timeout(Duration::from_millis(limit), restore(&slow, &file)).await;
        if stopped.is_err() && memory.find_restore().await.unwrap().is_some() {
            memory.check_restored().await.unwrap_err();
            let refused = restore(&*memory, &other).await.unwrap_err();
            assert!(matches!(refused, BackupError::OtherRestore { .. }), "{refused}");
        }
        if memory.find_restore().await.unwrap().is_some() || stopped.is_err() {
            restore(&*memory, &file).await.unwrap();
        }
        assert_eq!(memory.check_restored().await, Ok(()));
        assert!(read_all(&*memory).await == expected, "after {limit} ms");
    }
}

#[tokio::test]
async fn an_import_adds_what_is_missing_and_refuses_what_differs() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("history.jsonl");
    let first: Arc<dyn Store> = Arc::new(Memory::new());
    execute_many_plans(&first).await;
    let export =
        async |since| backup::export_to_file(&*first, since, &file, &|_| ()).await.unwrap().counts;
    let nothing = export(Timestamp::MAX_UTC).await;
    assert_eq!(nothing, Counts::default());
    let exported = export(Timestamp::MIN_UTC).await;
    let text = std::fs::read_to_string(&file).unwrap();
    let types: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    for expected in ["request", "plan", "events", "execution", "record", "audit"] {
        assert!(types.contains(&json!(expected)), "{types:?}");
    }
    assert!(!text.contains("\"memory\""), "settings are not part of the history");
    let second = Memory::new();
    let import = async |store: &dyn Store| backup::import(store, &file, &|_| ()).await;
    let mut imported = import(&second).await.unwrap();
    // The import adds the waiting command before the audit entries. It then already knows the entry
    // that this command has written.
    assert_eq!(imported.known.audit_entries, 1);
    imported.new.audit_entries += 1;
    // The file can contain copies of one plan, and the import counts each further copy as a known
    // plan. So the test checks `known` only for executions.
    assert_eq!((imported.new, imported.known.executions), (exported, 0));
    let again = import(&second).await.unwrap();
    assert_eq!((again.new, again.known.events), (Counts::default(), exported.events));
    let (one, other) = (read_all(&*first).await, read_all(&second).await);
    for (name, text) in other {
        assert!(one.get(&name) == Some(&text), "{name}");
    }
    let third = Memory::new();
    import(&third).await.unwrap();
    let saved = RecordPage::first_records(1);
    let saved = third.list_records(RecordKind::SavedPlan, saved).await.unwrap().remove(0);
    let other = Record { value: Arc::new(json!({ "other": 1 })), ..saved };
    third.put_record(&other, WriteCondition::Never).await.unwrap();
    let refused = import(&third).await.unwrap_err();
    assert!(matches!(&refused, BackupError::Different(list) if list.total == 1), "{refused}");
    assert!(refused.to_string().contains("the saved_plan `inner`"), "{refused}");
}

#[tokio::test]
async fn a_wrong_line_of_an_import_is_refused_before_anything_is_written() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("history.jsonl");
    let first: Arc<dyn Store> = Arc::new(Memory::new());
    execute_many_plans(&first).await;
    backup::export_to_file(&*first, Timestamp::MIN_UTC, &file, &|_| ()).await.unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let without = |type_name: &str| {
        let pattern = format!("{{\"type\":\"{type_name}\"");
        let place = lines.iter().position(|line| line.starts_with(&pattern)).unwrap();
        let mut lines = lines.clone();
        lines.remove(place);
        lines.join("\n")
    };
    for (text, why) in [
        (without("events"), "is missing"),
        (without("execution"), "has no end"),
        (without("plan"), "does not stand before its execution"),
        (format!("{text}{{\"type\":\"x\"}}"), "the type `x` is unknown"),
        (text.replace("\"state\":\"COMPLETED\"", "\"state\":\"FAILED\""), "does not end as"),
        (text[..text.len() - 20].to_owned(), "line "),
    ] {
        std::fs::write(&file, text).unwrap();
        let store = Memory::new();
        let refused = backup::import(&store, &file, &|_| ()).await.unwrap_err();
        assert!(matches!(refused, BackupError::Damaged { .. }), "{refused}");
        assert!(refused.to_string().contains(why), "{why}: {refused}");
        assert!(read_all(&store).await.is_empty(), "{why}");
    }
}

/// A log that is too long for one read is backed up and restored in parts.
#[tokio::test]
async fn a_long_log_is_backed_up_in_parts() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("backup");
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let api = TestApi::over(&store, ProcessRole::ApiAndWorker, None);
    let waits = json!([{ "name": "flow.wait", "id": "w", "parameters": { "name": "go" } }]);
    let id = api.start(waits, json!({})).await;
    api.wait_for_step(&id, "w", "WAITING").await;
    let signal = "mutation ($id: ID!, $text: JSON) {
        signalExecution(executionId: $id, name: \"x\", payload: $text) { state } }";
    for _ in 0..24 {
        let text = json!("x".repeat(900_000));
        api.get(signal, json!({ "id": id, "text": text })).await;
    }
    let id: ExecutionId = id.parse().unwrap();
    let hearing = async {
        while load_execution(&*store, id).await.unwrap().unwrap().signals().len() < 24 {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(Duration::from_mins(1), hearing).await.unwrap();
    drop(api);
    let report = write_backup(&*store, &file).await;
    let copy: Arc<dyn Store> = Arc::new(Memory::new());
    assert_eq!(restore(&*copy, &file).await.unwrap(), report.counts);
    assert!(read_log(&*copy, id).await == read_log(&*store, id).await);
    let state = async |store: &dyn Store| {
        let head = store.head(id).await.unwrap().unwrap();
        (head.state, head.owner)
    };
    assert_eq!(state(&*copy).await, state(&*store).await);
}
