//! SQLite files of other layouts: updates of old files, and nodes of neighbouring layouts.

use std::{path::Path, sync::Arc};

use rusqlite::{Connection, params};
use serde_json::{Value, json};
use shared::{
    actor::Actor,
    execution::ExecutionState,
    id::Seq,
    store::{
        Append, AuditAction, AuditEntry, AuditFilter, AuditLog, AuditTarget, Command, Documents,
        ExecutionFilter, ExecutionHead, HeadQuery, Inbox, KeyValue, Lease, Log, Page, RecordKind,
        Store, StoreError, TextHash, Vectors, WriteCondition,
        backend::{LAYOUT, OLDEST_LAYOUT},
    },
};
use sqlite::Sqlite;
use tempfile::TempDir;
use tests::conformance::{
    at, command_id, execution, head, inbox_command, plan, plan_id, record, request, request_id,
    some_events, worker,
};

use super::{
    check_neighbours,
    sqlite::{as_store, run_sql},
};

#[tokio::test]
async fn a_store_with_a_newer_schema_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    drop(Sqlite::open(&path).unwrap());
    let (oldest, newer) = (LAYOUT + 1, LAYOUT + 2);
    run_sql(
        &path,
        &format!(
            "UPDATE meta SET value = '{newer}' WHERE name = 'schema_version';
             UPDATE meta SET value = '{oldest}' WHERE name = 'oldest_version'"
        ),
    );
    let err = Sqlite::open(&path).map(drop).unwrap_err();
    assert_eq!(err, StoreError::TooNew { found: newer, newest_known: LAYOUT });
}

/// A node of the next layout adds columns and tables, but a node of this layout can read what it
/// writes.
#[tokio::test]
async fn a_node_of_the_next_layout_may_use_the_same_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let next = Sqlite::open(&path).unwrap();
    run_sql(
        &path,
        "UPDATE meta SET value = value + 1 WHERE name = 'schema_version';
         ALTER TABLE executions ADD COLUMN colour TEXT; ALTER TABLE workers ADD COLUMN colour TEXT;
         CREATE TABLE colours (at INTEGER)",
    );
    let this = Sqlite::open(&path).unwrap();
    let due = ExecutionHead { due: Some(at(0)), ..head(1, 2) };
    let append = Append { head: Some(due.clone()), ..some_events(execution(1), 0, 2) };
    next.append(append).await.unwrap();
    let json = json!([
        { "at": 1, "actor": { "token": "ci" }, "type": "paused", "command": "cmd_1_aaaaaaaaa" },
        { "at": 1, "type": "paused", "command": "cmd_1_aaaaaaaaa" },
    ]);
    run_sql(&path, &format!("UPDATE events SET json = '{json}'"));
    assert_eq!(this.read(execution(1), Seq(0)).await.unwrap().len(), 2);
    assert_eq!(this.find_heads(HeadQuery::Due { now: at(0), turn: 0 }, 10).await.unwrap(), [due]);
    this.append(some_events(execution(1), 2, 1)).await.unwrap();
    assert_eq!(next.read(execution(1), Seq(2)).await.unwrap().len(), 1);
    let lease = Lease { worker: worker(1), node: "n".to_owned(), until: at(9) };
    this.renew_lease(lease).await.unwrap();
    let layout = "SELECT layout FROM workers";
    let layout: u32 =
        Connection::open(&path).unwrap().query_row(layout, [], |row| row.get(0)).unwrap();
    assert_eq!(layout, LAYOUT);
}

/// A worker that uses the previous store layout runs while a node of the present layout opens the
/// file.
#[tokio::test]
async fn a_node_of_the_previous_layout_works_beside_a_newer_node() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let old = Sqlite::open_as(&path, LAYOUT - 1).unwrap();
    let lease = |n| Lease { worker: worker(n), node: "n".to_owned(), until: at(4_000_000_000) };
    old.renew_lease(lease(1)).await.unwrap();
    old.put_request(&request(1, "old", 1)).await.unwrap();
    assert_eq!(read_versions(&path), [LAYOUT - 1, OLDEST_LAYOUT]);
    let new = Sqlite::open(&path).unwrap();
    assert_eq!(read_versions(&path), [LAYOUT, OLDEST_LAYOUT]);
    new.renew_lease(lease(2)).await.unwrap();
    let restarted = Sqlite::open_as(&path, LAYOUT - 1).unwrap();
    check_neighbours(&old, &new, &restarted).await;
    let layouts = "SELECT group_concat(layout, ' ' ORDER BY layout) FROM workers";
    let layouts: String =
        Connection::open(&path).unwrap().query_row(layouts, [], |row| row.get(0)).unwrap();
    assert_eq!(layouts, format!("{} {LAYOUT}", LAYOUT - 1));
}

/// Returns the layout of a file, and the oldest layout that may use it.
fn read_versions(path: &Path) -> [u32; 2] {
    let connection = Connection::open(path).unwrap();
    ["schema_version", "oldest_version"].map(|name| {
        let sql = "SELECT value FROM meta WHERE name = ?1";
        let value: String = connection.query_row(sql, [name], |row| row.get(0)).unwrap();
        value.parse().unwrap()
    })
}

/// A file of layout 6 has no table of audit entries if an early version of this layout wrote it.
#[tokio::test]
async fn a_file_without_audit_entries_gets_their_table() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    drop(Sqlite::open(&path).unwrap());
    run_sql(&path, "DROP TABLE audit");
    let (one, other) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    let actor = Arc::new(Actor::token("ops"));
    let (action, target) = (AuditAction::PRUNE, AuditTarget::default());
    let entry = AuditEntry::new(at(1), actor, action, target, json!({}));
    assert_eq!(one.put_audit_entries(std::slice::from_ref(&entry)).await, Ok(1));
    assert_eq!(other.count_audit_entries(&AuditFilter::default()).await, Ok(1));
}

fn create_version_1(path: &Path) {
    run_sql(path, "PRAGMA journal_mode = WAL");
    run_sql(path, include_str!("version_1.sql"));
    let connection = Connection::open(path).unwrap();
    let micros = at(0).timestamp_micros();
    for (n, state, due) in [(1, "COMPLETED", None), (2, "PENDING", Some(micros))] {
        let number = i64::try_from(n).unwrap();
        let (id, json) = (execution(n).to_string(), some_events(execution(n), 0, 2));
        let json = &json.documents[0].json;
        connection.execute("INSERT INTO logs VALUES (?1, ?2)", params![number, id]).unwrap();
        let event = "INSERT INTO events (log, first, len, json) VALUES (?1, 1, 2, ?2)";
        connection.execute(event, params![number, json]).unwrap();
        let head = "INSERT INTO heads VALUES (?1, ?2, ?3, ?4, ?5, ?6, 2, 0, NULL, ?7, 0)";
        let (request, plan_id) = (request_id(n).to_string(), plan_id(n).to_string());
        connection
            .execute(head, params![number, id, request, plan_id, state, micros, due])
            .unwrap();
        let key = "INSERT INTO keys VALUES (?1, ?2, 'print')";
        connection.execute(key, params![format!("key {n}"), id]).unwrap();
        let plan = plan(n, n, 1, &["a.b"]);
        let kept = "INSERT INTO plans VALUES (?1, ?2, 1, ?3, 'q', ?4)";
        let row = params![plan_id, request, micros, plan.to_json()];
        connection.execute(kept, row).unwrap();
    }
    let waiting = inbox_command(1, 2, Command::Pause);
    let sql = "INSERT INTO inbox (id, execution, json) VALUES (?1, ?2, ?3)";
    let json = serde_json::to_string(&waiting).unwrap();
    let row = params![waiting.id.to_string(), execution(2).to_string(), json];
    connection.execute(sql, row).unwrap();
}

#[tokio::test]
async fn a_sqlite_file_of_version_1_is_updated() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    create_version_1(&path);
    let open = || {
        let path = path.clone();
        std::thread::spawn(move || Sqlite::open(&path).unwrap())
    };
    // Three threads open the old file at the same time, and only one of them converts it.
    let openings = [open(), open(), open()];
    let [store, other, _] = openings.map(|thread| thread.join().unwrap());
    let over =
        ExecutionHead { state: ExecutionState::Completed, finished_at: Some(at(0)), ..head(1, 2) };
    assert_eq!(store.head(execution(1)).await.unwrap(), Some(over), "its log does not replay");
    let due = ExecutionHead { due: Some(at(0)), ..head(2, 2) };
    assert_eq!(other.find_heads(HeadQuery::Due { now: at(0), turn: 0 }, 10).await.unwrap(), [due]);
    assert_eq!(as_store(&store).next_due_at().await.unwrap(), Some(at(0)));
    assert_eq!(store.list_commands(None).await.unwrap(), [inbox_command(1, 2, Command::Pause)]);
    assert_eq!(
        as_store(&store).find_reservation("key 2").await.unwrap().unwrap().execution,
        execution(2)
    );
    assert_eq!(store.read(execution(2), Seq(0)).await.unwrap().len(), 2);
    other.append(some_events(execution(2), 2, 1)).await.unwrap();
    store
        .renew_lease(Lease { worker: worker(1), node: "n".to_owned(), until: at(9) })
        .await
        .unwrap();
    let pruned = store.prune(at(1), 10).await.unwrap();
    assert_eq!((pruned.executions, pruned.plans), (1, 1));
    assert!(other.plan(plan_id(2)).await.unwrap().is_some());
    let version = "SELECT value FROM meta WHERE name = 'schema_version'";
    let version: String =
        Connection::open(&path).unwrap().query_row(version, [], |row| row.get(0)).unwrap();
    assert_eq!(version, LAYOUT.to_string());
}

#[tokio::test]
async fn a_sqlite_file_of_version_2_is_updated() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    create_version_1(&path);
    run_sql(&path, include_str!("version_2.sql"));
    let open = || {
        let path = path.clone();
        std::thread::spawn(move || Sqlite::open(&path).unwrap())
    };
    let openings = [open(), open(), open()];
    let [store, other, _] = openings.map(|thread| thread.join().unwrap());
    let over =
        ExecutionHead { state: ExecutionState::Completed, finished_at: Some(at(0)), ..head(1, 2) };
    assert_eq!(store.head(execution(1)).await.unwrap(), Some(over), "the head is unchanged");
    assert_eq!(other.list_commands(None).await.unwrap(), [inbox_command(1, 2, Command::Pause)]);
    assert_eq!(store.records_revision().await.unwrap(), 0);
    let kept = record(RecordKind::Tool, "a", json!(1), 0);
    assert!(store.put_record(&kept, WriteCondition::Exists).await.unwrap());
    assert_eq!(other.find_record(RecordKind::Tool, "a").await.unwrap(), Some(kept));
    assert_eq!(other.records_revision().await.unwrap(), 1);
    let version = "SELECT value FROM meta WHERE name = 'schema_version'";
    let version: String =
        Connection::open(&path).unwrap().query_row(version, [], |row| row.get(0)).unwrap();
    assert_eq!(version, LAYOUT.to_string());
    drop((store, other));
    let store = Sqlite::open(&path).unwrap();
    assert_eq!(store.records_revision().await.unwrap(), 1, "opening the file changes nothing");
}

#[tokio::test]
async fn a_sqlite_file_of_version_3_is_updated() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    create_version_1(&path);
    run_sql(&path, include_str!("version_2.sql"));
    run_sql(&path, include_str!("version_3.sql"));
    let open = || {
        let path = path.clone();
        std::thread::spawn(move || Sqlite::open(&path).unwrap())
    };
    let openings = [open(), open(), open()];
    let [store, other, _] = openings.map(|thread| thread.join().unwrap());
    let kept = record(RecordKind::Tool, "a", json!(1), 0);
    assert_eq!(
        other.find_record(RecordKind::Tool, "a").await.unwrap(),
        Some(kept),
        "the record exists"
    );
    let text = TextHash([1; 32]);
    store.put_vectors("m", &[(text, vec![0.5, 0.25])]).await.unwrap();
    assert_eq!(other.find_vectors("m", &[text]).await.unwrap(), [Some(vec![0.5, 0.25])]);
    let version = "SELECT value FROM meta WHERE name = 'schema_version'";
    let version: String =
        Connection::open(&path).unwrap().query_row(version, [], |row| row.get(0)).unwrap();
    assert_eq!(version, LAYOUT.to_string());
}

/// Adds an execution as version 4 wrote it, with each of these events in an append of its own.
fn add_version_4_execution(path: &Path, n: usize, state: &str, events: &[Value]) {
    let connection = Connection::open(path).unwrap();
    let (id, number) = (execution(n).to_string(), i64::try_from(n).unwrap());
    let (request, plan_id, at) =
        (request_id(n).to_string(), plan_id(n).to_string(), at(0).timestamp_micros());
    let created = json!({
        "type": "created", "plan": plan_id, "request": request,
        "options": { "mode": "PARALLEL", "max_parallel": 7 },
    });
    let claimed =
        json!({ "type": "claimed", "worker": worker(9).to_string(), "node": "n", "epoch": 1 });
    connection.execute("INSERT INTO logs VALUES (?1, ?2)", params![number, id]).unwrap();
    for (first, event) in (1..).zip([&created, &claimed].into_iter().chain(events)) {
        let mut json = json!([{ "at": at }]);
        let fields = event.as_object().unwrap().clone();
        json[0].as_object_mut().unwrap().extend(fields);
        let event = "INSERT INTO events (log, first, len, json) VALUES (?1, ?2, 1, ?3)";
        connection.execute(event, params![number, first, json.to_string()]).unwrap();
    }
    let step = |id: &str| {
        json!({ "id": id, "tool": "flow.echo", "parameters": {}, "depends_on": [],
            "policy": { "timeout_ms": 1, "on_error": "wait" } })
    };
    let plan = json!({
        "about": { "id": plan_id, "request": request, "version": 1, "query": "Wait for it",
            "planner": "explicit", "created_at": at },
        "steps": [step("a"), step("b")],
    });
    let sql = "INSERT INTO plans VALUES (?1, ?2, 1, ?3, 'q', ?4)";
    connection.execute(sql, params![plan_id, request, at, plan.to_string()]).unwrap();
    let sql = "INSERT INTO heads VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, NULL, NULL, 0, NULL, NULL)";
    let seq = i64::try_from(events.len() + 2).unwrap();
    connection.execute(sql, params![number, id, request, plan_id, state, at, seq]).unwrap();
}

#[tokio::test]
async fn an_updated_sqlite_file_of_version_4_knows_which_executions_need_a_person() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    create_version_1(&path);
    for version in [
        include_str!("version_2.sql"),
        include_str!("version_3.sql"),
        include_str!("version_4.sql"),
    ] {
        run_sql(&path, version);
    }
    let started =
        |step| json!({ "type": "step_started", "step": step, "attempt": 1, "parameters": {} });
    let waiting = || {
        json!({ "type": "step_waiting", "step": "a", "reason": { "for": "approval" },
            "parameters": {} })
    };
    let command = command_id(1).to_string();
    let approved = json!({ "type": "step_approved", "step": "a", "command": &command });
    let paused = json!({ "type": "paused", "command": &command });
    add_version_4_execution(&path, 11, "WAITING", &[waiting()]);
    add_version_4_execution(&path, 12, "IN_PROGRESS", &[waiting(), started("b")]);
    add_version_4_execution(&path, 13, "WAITING", &[waiting(), approved, started("a")]);
    add_version_4_execution(&path, 14, "PAUSED", &[started("a"), paused]);
    add_version_4_execution(&path, 15, "IN_PROGRESS", &[started("a")]);
    let store = Sqlite::open(&path).unwrap();
    let filter = ExecutionFilter { needs_person: Some(true), ..ExecutionFilter::default() };
    let found = store.list_heads(&filter, &Page::first_items(9)).await.unwrap();
    let needing = found.items.iter().map(|(_, head)| head.execution).collect::<Vec<_>>();
    assert_eq!(needing, [14, 12, 11].map(execution));
    let head = &found.items[1].1;
    assert_eq!((&*head.query, head.steps_total, head.needs_person), ("Wait for it", 2, true));
    assert!(!store.head(execution(13)).await.unwrap().unwrap().needs_person);
}
