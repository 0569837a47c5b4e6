//! Tests of SQLite alone: reopened and shared files, locks, damage, permissions, and updates of the
//! schema.

use std::{path::Path, sync::Arc, time::Duration};

use engine::store::{open_encrypted_store, open_store};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use shared::{
    actor::Actor,
    clock::Timestamp,
    execution::ExecutionState,
    id::Seq,
    limits,
    store::{
        Append, AuditAction, AuditEntry, AuditFilter, AuditLog, AuditTarget, Command, Documents,
        ExecutionFilter, ExecutionHead, HeadQuery, Inbox, KeyValue, Lease, Log, Page, Permission,
        Permits, RecordKind, RecordPage, SavedPlan, Store, StoreError, TextHash, Vectors,
        WriteCondition,
        backend::{LAYOUT, OLDEST_LAYOUT},
    },
};
use sqlite::Sqlite;
use tempfile::TempDir;
use tests::conformance::{
    StorePair, at, command_id, concurrency_limit, execution, head, inbox_command, permit_request,
    plan, plan_id, record, request, request_id, some_events, total_limit, worker,
};

use super::check_neighbours;

pub(crate) async fn open_once() -> StorePair {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("faber.db").display());
    StorePair::new(open_store(&url).await.unwrap(), folder)
}

pub(crate) async fn open_encrypted() -> StorePair {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("faber.db").display());
    let open = async || open_encrypted_store(&url, super::keyring()).await.unwrap();
    StorePair::shared(open().await, open().await, folder)
}

pub(crate) async fn open_twice() -> StorePair {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("faber.db").display());
    StorePair::shared(open_store(&url).await.unwrap(), open_store(&url).await.unwrap(), folder)
}

/// Opens a store as a node that uses the previous store layout, and as a node that uses the present
/// layout.
pub(crate) async fn open_with_two_layouts() -> StorePair {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let old = Sqlite::open_as(&path, LAYOUT - 1).unwrap();
    StorePair::shared(Arc::new(old), Arc::new(Sqlite::open(&path).unwrap()), folder)
}

fn as_store(store: &Sqlite) -> &dyn Store {
    store
}

fn run_sql(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_reopened_store_has_everything_that_was_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    let append = Append { head: Some(head(1, 3)), ..some_events(execution(1), 0, 3) };
    store.append(append).await.unwrap();
    store.put_request(&request(1, "q", 0)).await.unwrap();
    store.put_plan(&plan(1, 1, 1, &["a.b"])).await.unwrap();
    drop(store);
    assert!(!folder.path().join("faber.db-wal").exists(), "closing folds the WAL into the file");

    let store = Sqlite::open(&path).unwrap();
    assert_eq!(store.read(execution(1), Seq(0)).await.unwrap().len(), 3);
    assert_eq!(store.head(execution(1)).await.unwrap(), Some(head(1, 3)));
    assert!(store.plan(plan_id(1)).await.unwrap().is_some());
    assert_eq!(
        store.append(some_events(execution(1), 0, 1)).await.unwrap_err().to_string(),
        "the log has grown"
    );
    store.append(some_events(execution(1), 3, 1)).await.unwrap();
}

#[tokio::test]
async fn executions_of_a_dead_sqlite_process_are_orphans_at_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let (dead, alive) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    for (n, store) in [(1, &dead), (2, &alive)] {
        let lease = Lease { worker: worker(n), node: "here".to_owned(), until: at(1_000) };
        store.renew_lease(lease).await.unwrap();
        let head = ExecutionHead { owner: Some(worker(n)), ..head(n, 1) };
        let append = Append { head: Some(head), ..some_events(execution(n), 0, 1) };
        store.append(append).await.unwrap();
    }
    assert_eq!(alive.find_heads(HeadQuery::Orphans { now: at(0) }, 10).await.unwrap(), []);
    assert_eq!(dead.find_heads(HeadQuery::Orphans { now: at(0) }, 10).await.unwrap(), []);
    drop(dead);
    let orphans = alive.find_heads(HeadQuery::Orphans { now: at(0) }, 10).await.unwrap();
    assert_eq!(orphans.iter().map(|head| head.execution).collect::<Vec<_>>(), [execution(1)]);
    // The first query also removed the row of the dead worker. The second query must find the same
    // orphan.
    assert_eq!(alive.find_heads(HeadQuery::Orphans { now: at(0) }, 10).await.unwrap(), orphans);
    let mut locks = std::fs::read_dir(folder.path().join("faber.db-workers")).unwrap();
    let lock = locks.next().unwrap().unwrap().file_name();
    assert_eq!(lock.to_str().unwrap(), format!("{}.lock", worker(2)));
    alive.remove_worker(worker(2)).await.unwrap();
    assert_eq!(alive.find_heads(HeadQuery::Orphans { now: at(0) }, 10).await.unwrap().len(), 2);
    assert_eq!(std::fs::read_dir(folder.path().join("faber.db-workers")).unwrap().count(), 0);
}

#[tokio::test]
async fn damage_affects_only_the_damaged_execution_or_plan() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    for n in 1..=4 {
        let append = Append { head: Some(head(n, 1)), ..some_events(execution(n), 0, 1) };
        store.append(append).await.unwrap();
        store.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    run_sql(
        &path,
        "UPDATE events SET json = '[{]' WHERE log = 1; UPDATE events SET first = 2 WHERE log = 2;
         UPDATE executions SET state = 'DANCING' WHERE number = 3;
         UPDATE plans SET json = '{}' WHERE planId LIKE '%1';",
    );
    // Opens the file again, because the store that wrote the plan has a good copy in its cache.
    let store = Sqlite::open(&path).unwrap();
    let is_damaged = |err: &StoreError| matches!(err, StoreError::Corrupt { .. });
    for n in [1, 2] {
        let err = store.read(execution(n), Seq(0)).await.unwrap_err();
        assert!(is_damaged(&err) && err.to_string().contains(&execution(n).to_string()), "{err}");
    }
    assert!(is_damaged(&store.head(execution(3)).await.unwrap_err()));
    assert!(is_damaged(&store.plan(plan_id(1)).await.unwrap_err()));
    assert_eq!(store.read(execution(3), Seq(0)).await.unwrap().len(), 1);
    assert!(store.plan(plan_id(2)).await.unwrap().is_some());
    let page = Page::first_items(10);
    let heads = store.list_heads(&ExecutionFilter::default(), &page).await.unwrap();
    assert_eq!(heads.items.len(), 3, "a list leaves the damaged execution out");
    store.append(some_events(execution(3), 1, 1)).await.unwrap();
}

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
    assert_eq!(err, StoreError::TooNew { found: newer, known: LAYOUT });
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

/// The queries of lists use indexes that have the sequence of the list, so that a page reads few
/// rows.
#[tokio::test]
async fn audit_lists_use_indexes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    drop(Sqlite::open(&path).unwrap());
    let file = Connection::open(&path).unwrap();
    for (condition, index) in [
        ("TRUE", "audit"),
        ("actorName = 'a'", "audit_actor"),
        ("actorKind = 'faber'", "audit_faber"),
        ("action = 'plan'", "audit_action"),
        ("executionId = 'e'", "audit_execution"),
    ] {
        let sql = format!(
            "EXPLAIN QUERY PLAN SELECT json FROM audit WHERE {condition}
             AND (createdAt, auditId) < (5, 'x') ORDER BY createdAt DESC, auditId DESC LIMIT 21"
        );
        let mut statement = file.prepare(&sql).unwrap();
        let plan = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let plan: Vec<String> = plan.map(Result::unwrap).collect();
        let plan = plan.join("; ");
        assert!(plan.starts_with("SEARCH audit") && plan.contains(index), "{condition}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{condition}: {plan}");
    }
}

/// The requests and plans of a token are found by an index, so that the cost of a list does not grow
/// with the requests of other tokens.
#[tokio::test]
async fn lists_of_a_token_use_indexes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    drop(Sqlite::open(&path).unwrap());
    let file = Connection::open(&path).unwrap();
    let token = r#"labels IS NOT NULL AND
        CASE WHEN json_valid(labels) THEN labels ->> '$."@token"' END"#;
    let requests = format!(
        "SELECT query FROM requests WHERE TRUE AND {token} = 'ci' AND (createdAt, requestId) < (5, 'x')
         ORDER BY createdAt DESC, requestId DESC LIMIT 21"
    );
    let plans = format!(
        "SELECT planId FROM (SELECT requestId AS ownedId FROM requests WHERE {token} = 'ci')
         AS owned CROSS JOIN plans ON requestId = ownedId WHERE TRUE
         ORDER BY createdAt DESC, planId DESC LIMIT 21"
    );
    for (sql, is_sorted) in [(requests, true), (plans, false)] {
        let mut statement = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let plan = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let plan: Vec<String> = plan.map(Result::unwrap).collect();
        let plan = plan.join("; ");
        assert!(plan.starts_with("SEARCH requests USING"), "{plan}");
        assert!(plan.contains("requests_token (<expr>=?") && !plan.contains("SCAN"), "{plan}");
        assert_eq!(plan.contains("TEMP B-TREE"), !is_sorted, "{plan}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "these are my notes, and they are long enough to be read").unwrap();
    let err = Sqlite::open(&path).map(drop).unwrap_err();
    assert!(err.to_string().contains("not a SQLite database"), "{err}");
    let err = Sqlite::open(folder.path()).map(drop).unwrap_err();
    assert!(matches!(err, StoreError::Unavailable(_)), "{err}");
    let err = Sqlite::open(&path.join("below/faber.db")).map(drop).unwrap_err();
    assert!(err.to_string().contains("there is no folder"), "{err}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_sqlite_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    store.append(some_events(execution(1), 0, 1)).await.unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&folder.path().join("faber.db-wal")), 0o600);
}

#[tokio::test]
async fn a_locked_file_is_named_in_the_error() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Arc::new(Sqlite::open(&path).unwrap());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let err = as_store(&store).check_writable().await.unwrap_err();
    assert!(err.to_string().contains("another program has kept the file locked"), "{err}");
    other.execute_batch("ROLLBACK").unwrap();
    as_store(&store).check_writable().await.unwrap();
}

#[tokio::test]
async fn the_history_view_shows_events_as_sql_rows() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    store.append(some_events(execution(1), 0, 2)).await.unwrap();
    let query = "SELECT executionId || ' ' || first || ' ' || (json ->> '$[1].type') FROM history";
    let row: String =
        Connection::open(&path).unwrap().query_row(query, [], |row| row.get(0)).unwrap();
    assert_eq!(row, format!("{} 1 paused", execution(1)));
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
    // Several processes open an old file at the same time, and only one of them converts it.
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

#[tokio::test]
async fn recorded_calls_are_limited_in_number() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    run_sql(
        &path,
        "INSERT INTO records WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
         WHERE i < 10100) SELECT 'call', printf('%06d', i), i, '1' FROM n;
         INSERT INTO records WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
         WHERE i < 10100) SELECT 'memory', printf('%06d', i), i, '1' FROM n;",
    );
    let call = record(RecordKind::Call, "new", json!(1), 0);
    store.put_record(&call, WriteCondition::Never).await.unwrap();
    let all = RecordPage::first_records(usize::MAX);
    let calls = store.list_records(RecordKind::Call, all.clone()).await.unwrap();
    assert!((limits::CALL_HISTORY - 500..=limits::CALL_HISTORY).contains(&calls.len()));
    assert_eq!(calls.last(), Some(&call));
    assert_eq!(calls[calls.len() - 2].name, "010100", "the oldest call is removed");
    assert_eq!(store.list_records(RecordKind::Memory, all).await.unwrap().len(), 10_100);
}

#[tokio::test]
async fn a_damaged_record_does_not_hide_other_records() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    for name in ["a", "b", "c"] {
        let kept = record(RecordKind::Tool, name, json!(1), 0);
        store.put_record(&kept, WriteCondition::Never).await.unwrap();
    }
    run_sql(&path, "UPDATE records SET json = '{' WHERE name = 'a'");
    let err = store.find_record(RecordKind::Tool, "a").await.unwrap_err();
    assert!(matches!(&err, StoreError::Corrupt { what, .. } if what == "tool a"), "{err}");
    let found = store.list_records(RecordKind::Tool, RecordPage::first_records(2)).await.unwrap();
    assert_eq!(found.iter().map(|record| record.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert!(store.remove_record(RecordKind::Tool, "a").await.unwrap());
}

#[tokio::test]
async fn a_damaged_saved_plan_does_not_hide_others() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    for name in ["a", "b", "c", "d"] {
        let saved = SavedPlan { name: name.to_owned(), plan: plan_id(1), inputs: None, at: at(1) };
        as_store(&store).save_plan(&saved).await.unwrap();
    }
    run_sql(&path, "UPDATE saved SET inputs = '{' WHERE name = 'b'");
    let names = async |after, first| {
        let found = as_store(&store).list_saved_plans(after, first).await.unwrap();
        found.into_iter().map(|record| record.name).collect::<Vec<_>>()
    };
    assert_eq!(
        names(None, 2).await,
        ["a", "c"],
        "a shorter page would mean that there are no more"
    );
    assert_eq!(names(Some("c"), 2).await, ["d"]);
    assert_eq!(names(None, 0).await, [""; 0]);
}

#[tokio::test]
async fn permits_of_a_dead_sqlite_process_are_free_at_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let (dead, alive) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    for (n, store) in [(1, &dead), (2, &alive)] {
        let lease = Lease { worker: worker(n), node: "here".to_owned(), until: at(1_000) };
        store.renew_lease(lease).await.unwrap();
    }
    let limit = [concurrency_limit("k", 1)];
    assert_eq!(
        dead.acquire_permits(&permit_request("a", 1, &limit), at(0)).await.unwrap(),
        Permission::Granted
    );
    let next = permit_request("b", 2, &limit);
    assert_eq!(alive.acquire_permits(&next, at(0)).await.unwrap(), Permission::Full);
    assert_eq!(alive.list_workers(at(0)).await.unwrap(), [worker(1), worker(2)]);
    drop(dead);
    assert_eq!(alive.acquire_permits(&next, at(0)).await.unwrap(), Permission::Granted);
    assert_eq!(alive.list_workers(at(0)).await.unwrap(), [worker(2)]);
}

#[tokio::test]
async fn cached_outputs_and_rates_are_limited_in_number() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    run_sql(
        &path,
        "INSERT INTO outputs WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
         WHERE i < 100100) SELECT 'key ' || i, i, '1' FROM n;
         INSERT INTO rates WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n
         WHERE i < 100) SELECT 'key ' || i, i, '' FROM n;",
    );
    as_store(&store).cache_output("new", &json!(1), at(9)).await.unwrap();
    let count = |table: &str| -> usize {
        let sql = format!("SELECT count(*) FROM {table}");
        let count: i64 =
            Connection::open(&path).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap();
        usize::try_from(count).unwrap()
    };
    assert!(
        (limits::OUTPUT_CACHE_ENTRIES - 1_000..limits::OUTPUT_CACHE_ENTRIES)
            .contains(&count("outputs"))
    );
    assert_eq!(as_store(&store).find_output("key 1", Timestamp::UNIX_EPOCH).await.unwrap(), None);
    assert!(
        as_store(&store).find_output("key 100100", Timestamp::UNIX_EPOCH).await.unwrap().is_some()
    );
    assert!(as_store(&store).find_output("new", at(0)).await.unwrap().is_some());
    for n in 0..20 {
        let limit = [total_limit("now", 100)];
        store.acquire_permits(&permit_request(&n.to_string(), 1, &limit), at(0)).await.unwrap();
    }
    assert_eq!(count("rates"), 1, "expired rates are removed");
}

#[tokio::test]
async fn a_sub_plan_is_pruned_after_the_plan_that_uses_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    for n in 1..=2 {
        store.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    let parts = format!("INSERT INTO plan_parts VALUES ('{}', '{}')", plan_id(1), plan_id(2));
    run_sql(&path, &parts);
    let first = store.prune(at(100), 10).await.unwrap();
    assert_eq!((first.plans, first.more), (1, true));
    assert!(store.plan(plan_id(2)).await.unwrap().is_some());
    let second = store.prune(at(100), 10).await.unwrap();
    assert_eq!((second.plans, second.more), (1, false));
}

#[tokio::test]
async fn a_cached_plan_is_used_for_a_minute_after_its_removal() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let (one, other) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    for n in 1..=2 {
        one.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    let kept = Append { head: Some(head(2, 1)), ..some_events(execution(2), 0, 1) };
    one.append(kept).await.unwrap();
    assert_eq!(other.prune(at(100), 10).await.unwrap().plans, 1);
    let copy = one.plan(plan_id(2)).await.unwrap().unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(one.plan(plan_id(1)).await.unwrap().is_none(), "the plan was removed a minute ago");
    let same = one.plan(plan_id(2)).await.unwrap().unwrap();
    assert!(Arc::ptr_eq(&copy, &same), "the cached copy is used");
}
