//! Stores of earlier layouts are converted, even if the process is killed during the conversion. A
//! store is not converted while a worker of an earlier version uses it.

use std::{fs, path::Path, time::Duration};

use engine::store::open_store;
use futures::TryStreamExt;
use mongodb::{
    Client, Database,
    bson::{Bson, Document, doc},
};
use rusqlite::Connection;
use shared::{
    execution::ExecutionState,
    id::Seq,
    store::{ExecutionFilter, ExecutionHead, HeadQuery, Page, Store, StoreError, load_execution},
};
use tempfile::TempDir;

use super::{FOLDER, VERSIONS, load_dump};
use crate::{cli::workspace::Workspace, mongod::Mongod};

/// Number of copies of an execution. The conversion of this number takes so long that a test can
/// kill it.
const COPY_COUNT: usize = 1_500;
/// Number of kills before the test lets the conversion finish.
const KILL_COUNT: u32 = 4;

async fn heads_of(store: &dyn Store) -> Vec<ExecutionHead> {
    let page = Page::first_items(10_000);
    let found = store.list_heads(&ExecutionFilter::default(), &page).await.unwrap();
    found.items.into_iter().map(|(_, head)| head).collect()
}

/// Checks that each head agrees with its log, and that every part of the store can be read.
async fn check_converted(store: &dyn Store, executions: usize) {
    let heads = heads_of(store).await;
    assert_eq!(heads.len(), executions);
    for head in &heads {
        let execution = load_execution(store, head.execution).await.unwrap().unwrap();
        let mut derived = ExecutionHead { query: "".into(), ..head.clone() };
        derived.add_derived(&execution);
        assert_eq!(*head, derived);
        let plan = store.plan(head.plan).await.unwrap().unwrap();
        assert_eq!(&*head.query, plan.info().query);
        assert!(head.steps_total > 0, "{head:?}");
        assert!(store.request(head.request).await.unwrap().is_some());
        store.transcript(head.request).await.unwrap();
    }
    let failed = heads.iter().find(|head| head.state == ExecutionState::Failed).unwrap();
    let error = failed.error.as_ref().unwrap();
    assert_eq!(
        (error.code.as_str(), error.tool.as_ref().unwrap().as_str()),
        ("tool.failed", "mail.bounce")
    );
    assert_eq!((failed.steps_done, failed.steps_total), (2, 2));
    assert!(store.find_saved_plan("child").await.unwrap().is_some());
    assert!(store.find_reservation("completed").await.unwrap().is_some());
}

fn copy_file(version: &str, folder: &TempDir) -> std::path::PathBuf {
    let path = folder.path().join("old.db");
    fs::copy(format!("{FOLDER}/{version}.sqlite"), &path).unwrap();
    path
}

#[tokio::test]
async fn a_sqlite_file_of_each_earlier_version_is_converted() {
    for (version, executions) in VERSIONS {
        let folder = TempDir::new().unwrap();
        let path = copy_file(version, &folder);
        let url = format!("sqlite:{}", path.display());
        let (one, other) = tokio::join!(open_store(&url), open_store(&url));
        check_converted(&*one.unwrap(), executions).await;
        check_converted(&*other.unwrap(), executions).await;
        let file = Connection::open(&path).unwrap();
        let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        for old in [
            "SELECT count(*) FROM events WHERE json LIKE '%\"step\":%'",
            "SELECT count(*) FROM events WHERE json LIKE '%max_parallel%'",
            "SELECT count(*) FROM plans WHERE json LIKE '%timeout_ms%'",
            "SELECT count(*) FROM meta WHERE name = 'migration'",
        ] {
            assert_eq!(count(old), 0, "{version}: {old}");
        }
        assert!(count("SELECT count(*) FROM plans WHERE json LIKE '%\"maxAttempts\":%'") > 0);
        for (name, expected) in [("schema_version", 7), ("oldest_version", 6)] {
            let value = format!("SELECT CAST(value AS INTEGER) FROM meta WHERE name = '{name}'");
            assert_eq!(count(&value), expected, "{version}: {name}");
        }
    }
}

async fn database_of(url: &str) -> Database {
    Client::with_uri_str(url).await.unwrap().default_database().unwrap()
}

#[tokio::test]
async fn a_mongodb_database_of_each_earlier_version_is_converted() {
    for (version, executions) in VERSIONS {
        let url = Mongod::shared().await.new_database_url();
        load_dump(&url, version).await;
        let (one, other) = tokio::join!(open_store(&url), open_store(&url));
        check_converted(&*one.unwrap(), executions).await;
        check_converted(&*other.unwrap(), executions).await;
        let database = database_of(&url).await;
        let count = async |collection: &str, query: Document| {
            database.collection::<Document>(collection).count_documents(query).await.unwrap()
        };
        for (collection, old) in [
            ("events", doc! { "events": { "$type": "string" } }),
            ("plans", doc! { "json": { "$exists": true } }),
            ("transcripts", doc! { "json": { "$exists": true } }),
            ("records", doc! { "json": { "$exists": true } }),
            ("executions", doc! { "at": { "$exists": true } }),
            ("requests", doc! { "at": { "$exists": true } }),
            ("meta", doc! { "migration": { "$exists": true } }),
        ] {
            assert_eq!(count(collection, old.clone()).await, 0, "{version}: {collection} {old}");
        }
        assert!(count("events", doc! { "events.type": "step_failed" }).await > 0);
        assert!(count("events", doc! { "events.stepId": "send" }).await > 0);
        assert!(count("plans", doc! { "steps.policy.retry.maxAttempts": 1 }).await > 0);
        assert!(count("transcripts", doc! { "kind": { "$type": "string" } }).await > 0);
        assert_eq!(count("meta", doc! { "version": 7, "oldest": 6 }).await, 1);
    }
}

/// Heads of version 1 have no end time, and heads of finished executions have a due time.
#[tokio::test]
async fn a_mongodb_database_of_version_1_is_converted() {
    let url = Mongod::shared().await.new_database_url();
    load_dump(&url, "81ccf61a").await;
    let database = database_of(&url).await;
    let meta = database.collection::<Document>("meta");
    let version = doc! { "$set": { "version": 1 } };
    meta.update_one(doc! { "_id": "schema" }, version).await.unwrap();
    let heads = database.collection::<Document>("executions");
    let old = doc! { "$unset": { "finishedAt": "", "needsPerson": "" }, "$set": { "wake": 1_i64 } };
    let finished = doc! { "state": { "$in": ["COMPLETED", "FAILED"] } };
    heads.update_many(finished, old).await.unwrap();
    let store = open_store(&url).await.unwrap();
    let now = store.shared_time().await.unwrap();
    let heads = heads_of(&*store).await;
    let finished: Vec<_> = heads.iter().filter(|head| head.state.is_finished()).collect();
    assert!(finished.len() >= 3);
    for head in finished {
        let end = head.finished_at.unwrap();
        assert!(now - end < chrono::TimeDelta::minutes(1), "none is pruned too early: {head:?}");
    }
    let due = store.find_heads(HeadQuery::Due { now, turn: 0 }, 100).await.unwrap();
    assert!(due.iter().all(|head| !head.state.is_finished()));
}

/// A damaged document stays as it is, and does not stop the conversion of other documents.
#[tokio::test]
async fn damaged_documents_are_left_as_they_are() {
    let url = Mongod::shared().await.new_database_url();
    load_dump(&url, "81ccf61a").await;
    let database = database_of(&url).await;
    let heads = database.collection::<Document>("executions");
    let completed = heads.find_one(doc! { "state": "COMPLETED" }).await.unwrap().unwrap();
    let id = completed.get_str("_id").unwrap();
    let of = doc! { "_id.x": id };
    let damage = doc! { "$set": { "events": "[{" } };
    database.collection::<Document>("events").update_one(of, damage).await.unwrap();
    let store = open_store(&url).await.unwrap();
    let damaged = store.read(id.parse().unwrap(), Seq::START).await.unwrap_err();
    assert!(matches!(damaged, StoreError::Corrupt { .. }), "{damaged}");
    let heads = heads_of(&*store).await;
    assert_eq!(heads.len(), 12);
    let head = heads.iter().find(|head| head.execution.to_string() == id).unwrap();
    assert_eq!((head.state, head.steps_total), (ExecutionState::Completed, 0));
}

#[tokio::test]
async fn a_store_is_not_converted_while_a_worker_of_an_earlier_version_uses_it() {
    let url = Mongod::shared().await.new_database_url();
    load_dump(&url, "81ccf61a").await;
    let workers = database_of(&url).await.collection::<Document>("workers");
    let lease = doc! { "_id": "work_1_aaaaaaaaa", "node": "n7", "until": i64::MAX };
    workers.insert_one(lease).await.unwrap();
    let why = open_store(&url).await.map(drop).unwrap_err().to_string();
    assert!(why.contains("the worker `work_1_aaaaaaaaa` on `n7` uses it: stop all"), "{why}");
    workers.delete_one(doc! { "_id": "work_1_aaaaaaaaa" }).await.unwrap();
    open_store(&url).await.unwrap();

    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", copy_file("81ccf61a", &folder).display());
    let locks = folder.path().join("old.db-workers");
    fs::create_dir(&locks).unwrap();
    let lock = fs::File::create(locks.join("work_1_aaaaaaaaa.lock")).unwrap();
    lock.lock().unwrap();
    let why = open_store(&url).await.map(drop).unwrap_err().to_string();
    assert!(why.contains("a worker on this machine uses it: stop all"), "{why}");
    drop(lock);
    open_store(&url).await.unwrap();
}

fn copy_executions(path: &Path) {
    let file = Connection::open(path).unwrap();
    file.execute_batch(&format!(
        "CREATE TEMP TABLE source AS SELECT * FROM heads WHERE state = 'FAILED' LIMIT 1;
         CREATE TEMP TABLE copies AS WITH RECURSIVE n(i) AS
             (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {COPY_COUNT})
             SELECT 1000 + i AS number, printf('exec_1700000000_%09d', i) AS id FROM n;
         INSERT INTO logs SELECT number, id FROM copies;
         INSERT INTO events (log, first, len, json)
             SELECT copies.number, first, len, json FROM copies JOIN events
             WHERE log = (SELECT number FROM source);
         INSERT INTO heads SELECT copies.number, copies.id, request, plan, state, created_at, seq,
             epoch, owner, due, priority, finished_at, parent FROM copies JOIN source;"
    ))
    .unwrap();
}

async fn copy_documents(url: &str) {
    let database = database_of(url).await;
    let heads = database.collection::<Document>("executions");
    let head = heads.find_one(doc! { "state": "FAILED" }).await.unwrap().unwrap();
    let events = database.collection::<Document>("events");
    let log = events.find(doc! { "_id.x": head.get_str("_id").unwrap() }).await.unwrap();
    let log: Vec<Document> = log.try_collect().await.unwrap();
    let (mut new_heads, mut new_events) = (Vec::new(), Vec::new());
    for n in 0..COPY_COUNT {
        let id = format!("exec_1700000000_{n:09}");
        new_heads.push(with_id(&head, id.as_str().into()));
        for row in &log {
            let first = row.get_document("_id").unwrap().get_i64("s").unwrap();
            new_events.push(with_id(row, doc! { "x": &id, "s": first }.into()));
        }
    }
    events.insert_many(new_events).await.unwrap();
    heads.insert_many(new_heads).await.unwrap();
}

fn with_id(row: &Document, id: Bson) -> Document {
    let mut copy = row.clone();
    copy.insert("_id", id);
    copy
}

/// Kills the binary again and again while it converts a store, each time a little later.
async fn kill_conversions(workspace: &Workspace) -> u32 {
    let mut killed = 0;
    for round in 0..KILL_COUNT {
        let mut child = workspace.command(&["list", "plans"]).spawn().unwrap();
        let wait = Duration::from_millis(250 + u64::from(round) * 150);
        if let Ok(ended) = tokio::time::timeout(wait, child.wait()).await {
            assert!(ended.unwrap().success());
        } else {
            child.kill().await.unwrap();
            killed += 1;
        }
    }
    killed
}

#[tokio::test]
async fn a_conversion_of_a_sqlite_file_continues_after_kills() {
    let workspace = Workspace::new();
    let path = workspace.path("old.db");
    fs::copy(format!("{FOLDER}/81ccf61a.sqlite"), &path).unwrap();
    copy_executions(&path);
    workspace.file("faber.yaml", "store: sqlite:old.db");
    assert!(kill_conversions(&workspace).await > 0, "the store is too small");
    let store = open_store(&format!("sqlite:{}", path.display())).await.unwrap();
    check_converted(&*store, 12 + COPY_COUNT).await;
}

#[tokio::test]
async fn a_conversion_of_a_mongodb_database_continues_after_kills() {
    let url = Mongod::shared().await.new_database_url();
    load_dump(&url, "81ccf61a").await;
    copy_documents(&url).await;
    let workspace = Workspace::new();
    workspace.file("faber.yaml", &format!("store: {url}"));
    assert!(kill_conversions(&workspace).await > 0, "the store is too small");
    let store = open_store(&url).await.unwrap();
    check_converted(&*store, 12 + COPY_COUNT).await;
}
