//! Tests of SQLite alone, such as shared files, locks, damage and permissions.

use std::{path::Path, sync::Arc, time::Duration};

use engine::store::{open_encrypted_store, open_store};
use rusqlite::Connection;
use serde_json::json;
use shared::{
    clock::Timestamp,
    id::Seq,
    limits,
    store::{
        Append, Documents, ExecutionFilter, ExecutionHead, HeadQuery, KeyValue, Lease, Log, Page,
        Permission, Permits, RecordKind, RecordPage, SavedPlan, Store, StoreError, WriteCondition,
        backend::LAYOUT,
    },
};
use sqlite::Sqlite;
use tempfile::TempDir;
use tests::conformance::{
    StorePair, at, concurrency_limit, execution, head, permit_request, plan, plan_id, record,
    request, some_events, total_limit, worker,
};

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

pub(super) fn as_store(store: &Sqlite) -> &dyn Store {
    store
}

pub(super) fn run_sql(path: &Path, sql: &str) {
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
