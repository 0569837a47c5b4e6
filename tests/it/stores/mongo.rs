//! Tests of MongoDB alone, such as replica sets, damage, limits, removals, and other layouts.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use encryption::{Key, Keyring, protect};
use engine::store::open_store;
use futures::TryStreamExt;
use mongo::Mongo;
use mongodb::{
    Client, Database,
    bson::{Bson, DateTime, Document, doc},
};
use serde_json::json;
use shared::{
    event::{Event, RecordedEvent},
    id::{Attempt, Part, Seq},
    limits,
    request::TranscriptEntry,
    store::{
        Append, AppendError, Command, Documents, ExecutionFilter, ExecutionHead, HeadQuery, Inbox,
        KeyValue, Lease, Log, Page, Permission, Permits, RecordKind, RecordPage, Store, StoreError,
        WriteCondition,
        backend::{LAYOUT, OLDEST_LAYOUT},
        follow_log,
    },
    tool::ToolError,
};
use tests::conformance::{
    StorePair, at, concurrency_limit, execution, head, inbox_command, permit_request, plan,
    plan_id, record, request, request_id, signal, some_events, worker,
};
use tokio::time::timeout;

use super::check_neighbours;
use crate::mongod::Mongod;

/// A key of 32 zero bytes, in base64.
const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

pub(crate) async fn open_once() -> StorePair {
    let url = Mongod::shared().await.new_database_url();
    StorePair::new(open_store(&url).await.unwrap(), ())
}

pub(crate) async fn open_twice() -> StorePair {
    let url = Mongod::shared().await.new_database_url();
    StorePair::shared(open_store(&url).await.unwrap(), open_store(&url).await.unwrap(), ())
}

/// Opens a store as a node that uses the previous store layout, and as a node that uses the present
/// layout.
pub(crate) async fn open_with_two_layouts() -> StorePair {
    let url = Mongod::shared().await.new_database_url();
    let old = Mongo::open_as(&url, LAYOUT - 1).await.unwrap();
    StorePair::shared(Arc::new(old), open_store(&url).await.unwrap(), ())
}

/// Converts to `dyn Store`, because methods such as `transcript` and `find_output` are defined for
/// that type.
fn as_store(store: &Mongo) -> &dyn Store {
    store
}

async fn edit_document(url: &str, collection: &str, query: Document, update: Document) {
    let client = Client::with_uri_str(url).await.unwrap();
    let database = client.default_database().unwrap();
    let collection = database.collection::<Document>(collection);
    let edited = collection.update_one(query, update).await.unwrap();
    assert_eq!(edited.matched_count, 1);
}

#[tokio::test]
async fn a_reopened_store_has_everything_that_was_written() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    store.append(some_events(execution(1), 0, 3)).await.unwrap();
    store.put_plan(&plan(1, 1, 1, &["a.b"])).await.unwrap();
    drop(store);
    let store = Mongo::open(&url).await.unwrap();
    assert_eq!(store.append(some_events(execution(1), 2, 1)).await, Err(AppendError::Conflict));
    assert_eq!(store.read(execution(1), Seq(0)).await.unwrap().len(), 3);
    store.append(some_events(execution(1), 3, 1)).await.unwrap();
    assert!(store.plan(plan_id(1)).await.unwrap().is_some());
}

/// A follower that stops reading must not block other followers.
#[tokio::test]
async fn a_follower_that_stops_reading_holds_no_connection() {
    let url = format!("{}&maxPoolSize=4", Mongod::shared().await.new_database_url());
    let store = open_store(&url).await.unwrap();
    let follow = |number| {
        Box::pin(follow_log(Arc::clone(&store), execution(number), Seq(0), limits::POLL_INTERVAL))
    };
    for number in 1..=9 {
        store.append(some_events(execution(number), 0, 3)).await.unwrap();
    }
    let mut idle: Vec<_> = (1..=8).map(follow).collect();
    for head in &mut idle {
        assert!(futures::poll!(head.try_next()).is_pending());
    }
    let mut received = follow(9);
    let first = timeout(Duration::from_mins(1), received.try_next()).await;
    assert_eq!(first.expect("a connection is free").unwrap().unwrap().seq, Seq(1));
}

#[tokio::test]
async fn damage_affects_only_the_damaged_execution_or_plan() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    for n in 1..=3 {
        let mut append = some_events(execution(n), 0, 1);
        append.head = Some(head(n, 1));
        store.append(append).await.unwrap();
        store.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    let of = |n: usize| doc! { "_id.x": execution(n).to_string() };
    edit_document(&url, "events", of(1), doc! { "$set": { "events": "[{]" } }).await;
    edit_document(&url, "events", of(2), doc! { "$set": { "n": 7_i64 } }).await;
    let one = doc! { "_id": execution(1).to_string() };
    edit_document(&url, "executions", one, doc! { "$set": { "state": "DANCING" } }).await;
    let first = doc! { "_id": plan_id(1).to_string() };
    edit_document(&url, "plans", first, doc! { "$set": { "steps": {} } }).await;

    let store = Mongo::open(&url).await.unwrap();
    let is_damaged = |err: &StoreError| matches!(err, StoreError::Corrupt { .. });
    for n in [1, 2] {
        let err = store.read(execution(n), Seq(0)).await.unwrap_err();
        assert!(is_damaged(&err) && err.to_string().contains(&execution(n).to_string()), "{err}");
    }
    assert!(is_damaged(&store.head(execution(1)).await.unwrap_err()));
    assert!(is_damaged(&store.plan(plan_id(1)).await.unwrap_err()));
    assert_eq!(store.read(execution(3), Seq(0)).await.unwrap().len(), 1);
    let page = Page::first_items(10);
    let heads = store.list_heads(&ExecutionFilter::default(), &page).await.unwrap();
    assert_eq!(heads.items.len(), 2, "a list leaves the damaged execution out");
}

#[tokio::test]
async fn a_store_with_a_newer_schema_is_refused() {
    let url = Mongod::shared().await.new_database_url();
    drop(Mongo::open(&url).await.unwrap());
    let (oldest, version) = (LAYOUT + 1, LAYOUT + 2);
    let newer = doc! { "version": version.cast_signed(), "oldest": oldest.cast_signed() };
    let newer = doc! { "$set": newer };
    edit_document(&url, "meta", doc! { "_id": "schema" }, newer).await;
    let err = Mongo::open(&url).await.map(drop).unwrap_err();
    assert_eq!(err, StoreError::TooNew { found: version, newest_known: LAYOUT });
}

#[tokio::test]
async fn a_missing_primary_is_named_in_the_error() {
    let url = "mongodb://127.0.0.1:1/x?serverSelectionTimeoutMS=200";
    let err = Mongo::open(url).await.map(drop).unwrap_err();
    assert!(err.to_string().contains("no primary of the MongoDB replica set answers"), "{err}");
}

async fn database_of(url: &str) -> Database {
    Client::with_uri_str(url).await.unwrap().default_database().unwrap()
}

async fn count_documents(url: &str, collection: &str) -> u64 {
    let all = database_of(url).await.collection::<Document>(collection);
    all.count_documents(doc! {}).await.unwrap()
}

/// Counts the documents that match a query, as a developer would write it in the MongoDB shell.
async fn count_found(url: &str, collection: &str, query: Document) -> u64 {
    let documents = database_of(url).await.collection::<Document>(collection);
    documents.count_documents(query).await.unwrap()
}

#[tokio::test]
async fn a_developer_can_query_the_documents() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    let (id, step) = (execution(1), || "a".parse().unwrap());
    let error = ToolError::failed("no such author");
    let (part, command) = (Part::for_item(2), None);
    let attempt = Attempt::FIRST;
    let failed = Event::StepFailed { step: step(), part, attempt, error, command };
    let micros = TimeDelta::microseconds(1);
    let events = [
        signal(1, json!({ "author": { "id": 7 } })),
        RecordedEvent { seq: Seq(2), at: at(9) + micros, by: None, event: failed },
    ];
    let labels = [("team".to_owned(), "blue".to_owned())].into();
    let head = ExecutionHead { labels, finished_at: Some(at(5)), ..head(1, 2) };
    let append = Append { head: Some(head), ..Append::new(id, Seq::START, &events) };
    store.append(append).await.unwrap();
    store.put_plan(&plan(1, 1, 1, &["blog.createAuthor"])).await.unwrap();
    let memory = record(RecordKind::Memory, "a", json!({ "deep": [{ "x": 1.5 }] }), 3);
    store.put_record(&memory, WriteCondition::Never).await.unwrap();
    let content = json!([{ "toolName": "flow.echo" }]);
    let entry = TranscriptEntry { at: at(2), kind: "selection".to_owned(), content };
    store.add_transcript(request_id(1), &[entry]).await.unwrap();
    let date = |seconds| DateTime::from_millis(at(seconds).timestamp_millis());
    let retry = "steps.policy.retry.maxAttempts";
    for (collection, query) in [
        ("events", doc! { "events.type": "step_failed" }),
        ("events", doc! { "events.payload.author.id": 7 }),
        ("events", doc! { "events": { "$elemMatch": { "stepId": "a", "part.index": 2 } } }),
        ("events", doc! { "events.error.code": "tool.failed", "_id.x": id.to_string() }),
        ("events", doc! { "events.at": date(9) }),
        ("plans", doc! { "steps.toolName": "blog.createAuthor", retry: 1 }),
        ("plans", doc! { "requestId": request_id(1).to_string(), "createdAt": date(0) }),
        ("records", doc! { "value.deep.x": 1.5, "at": date(3) }),
        ("transcripts", doc! { "kind": "selection", "content.toolName": "flow.echo" }),
        ("executions", doc! { "labels.team": "blue", "finishedAt": date(5) }),
        ("executions", doc! { "planId": plan_id(1).to_string(), "createdAt": date(0) }),
    ] {
        assert_eq!(count_found(&url, collection, query.clone()).await, 1, "{collection} {query}");
    }
    assert_eq!(store.read(id, Seq::START).await.unwrap(), events);
}

#[tokio::test]
async fn values_that_are_too_large_as_bson_are_stored_whole() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    let numbers = json!(vec![1; 3 << 20]);
    let events = [signal(1, numbers.clone())];
    store.append(Append::new(execution(1), Seq::START, &events)).await.unwrap();
    assert!(store.read(execution(1), Seq::START).await.unwrap() == events);
    assert_eq!(count_found(&url, "events", doc! { "events.type": "signal_received" }).await, 1);
    let large = record(RecordKind::Memory, "a", numbers.clone(), 3);
    assert!(store.put_record(&large, WriteCondition::Exists).await.unwrap());
    assert!(store.find_record(RecordKind::Memory, "a").await.unwrap() == Some(large));
    let entry = TranscriptEntry { at: at(2), kind: "draft".to_owned(), content: numbers };
    store.add_transcript(request_id(1), std::slice::from_ref(&entry)).await.unwrap();
    assert!(as_store(&store).transcript(request_id(1)).await.unwrap() == [entry]);
}

/// A node of the next layout writes fields that this layout does not have, but leaves out none of
/// this layout's fields.
#[tokio::test]
async fn a_node_of_the_next_layout_may_use_the_same_database() {
    let url = Mongod::shared().await.new_database_url();
    let next = Mongo::open(&url).await.unwrap();
    let newer = doc! { "$inc": { "version": 1 } };
    edit_document(&url, "meta", doc! { "_id": "schema" }, newer).await;
    let this = Mongo::open(&url).await.unwrap();
    let due = ExecutionHead { due: Some(at(0)), ..head(1, 2) };
    let append = Append { head: Some(due.clone()), ..some_events(execution(1), 0, 2) };
    next.append(append).await.unwrap();
    let of = doc! { "_id": execution(1).to_string() };
    let added = doc! { "$set": { "colour": "blue", "nested": { "a": 1 } } };
    edit_document(&url, "executions", of, added).await;
    let of = doc! { "_id.x": execution(1).to_string() };
    let added = doc! { "$set": { "events.$[].actor": { "token": "ci" }, "colour": 1 } };
    edit_document(&url, "events", of, added).await;
    assert_eq!(this.read(execution(1), Seq(0)).await.unwrap().len(), 2);
    assert_eq!(this.find_heads(HeadQuery::Due { now: at(0), turn: 0 }, 10).await.unwrap(), [due]);
    this.append(some_events(execution(1), 2, 1)).await.unwrap();
    assert_eq!(next.read(execution(1), Seq(2)).await.unwrap().len(), 1);
    let lease = Lease { worker: worker(1), node: "n".to_owned(), until: at(4_000_000_000) };
    this.renew_lease(lease).await.unwrap();
    let layout = LAYOUT.cast_signed();
    assert_eq!(count_found(&url, "workers", doc! { "layout": layout }).await, 1);
}

/// A worker that uses the previous store layout runs while a node of the present layout opens the
/// database.
#[tokio::test]
async fn a_node_of_the_previous_layout_works_beside_a_newer_node() {
    let url = Mongod::shared().await.new_database_url();
    let old = Mongo::open_as(&url, LAYOUT - 1).await.unwrap();
    let lease = |n| Lease { worker: worker(n), node: "n".to_owned(), until: at(4_000_000_000) };
    old.renew_lease(lease(1)).await.unwrap();
    old.put_request(&request(1, "old", 1)).await.unwrap();
    let new = Mongo::open(&url).await.unwrap();
    let (version, oldest) = (LAYOUT.cast_signed(), OLDEST_LAYOUT.cast_signed());
    let schema = doc! { "version": version, "oldest": oldest };
    assert_eq!(count_found(&url, "meta", schema).await, 1);
    new.renew_lease(lease(2)).await.unwrap();
    let restarted = Mongo::open_as(&url, LAYOUT - 1).await.unwrap();
    check_neighbours(&old, &new, &restarted).await;
    for layout in [version - 1, version] {
        assert_eq!(count_found(&url, "workers", doc! { "layout": layout }).await, 1);
    }
}

#[tokio::test]
async fn recorded_calls_are_limited_in_number() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    let records = database_of(&url).await.collection::<Document>("records");
    for kind in ["call", "memory"] {
        let id = |n: i64| doc! { "k": kind, "n": format!("{n:06}") };
        let row = |n| doc! { "_id": id(n), "atMicros": n, "value": 1 };
        records.insert_many((1..=10_100).map(row)).await.unwrap();
    }
    let call = record(RecordKind::Call, "new", json!(1), 0);
    store.put_record(&call, WriteCondition::Never).await.unwrap();
    let all = RecordPage::first_records(usize::MAX);
    let calls = store.list_records(RecordKind::Call, all.clone()).await.unwrap();
    assert!((limits::CALL_HISTORY - 500..=limits::CALL_HISTORY).contains(&calls.len()));
    assert_eq!(calls.last(), Some(&call));
    assert_eq!(calls[calls.len() - 2].name, "010100", "the oldest call is removed");
    assert_eq!(store.list_records(RecordKind::Memory, all).await.unwrap().len(), 10_100);
}

/// A process died during a removal. The next removal finishes it, and removes nothing else.
#[tokio::test]
async fn a_removal_that_a_crash_interrupted_is_finished() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    for n in 1..=2 {
        let append = Append { head: Some(head(n, 3)), ..some_events(execution(n), 0, 3) };
        store.append(append).await.unwrap();
        store.send_command(inbox_command(n, n, Command::Pause)).await.unwrap();
        let going = database_of(&url).await.collection::<Document>("going");
        let long_ago = DateTime::from_millis(0);
        going.insert_one(doc! { "_id": execution(n).to_string(), "at": long_ago }).await.unwrap();
    }
    let heads = database_of(&url).await.collection::<Document>("executions");
    heads.delete_one(doc! { "_id": execution(1).to_string() }).await.unwrap();
    let part = doc! { "_id": { "x": execution(1).to_string(), "s": 1_i64 } };
    let events = database_of(&url).await.collection::<Document>("events");
    store.append(some_events(execution(1), 3, 1)).await.unwrap();
    assert_eq!(events.delete_one(part).await.unwrap().deleted_count, 1);
    // A log that lacks events is not damaged if its removal has started.
    assert_eq!(store.read(execution(1), Seq(0)).await.unwrap(), []);
    store.prune(at(0), 10).await.unwrap();
    assert_eq!(
        (count_documents(&url, "events").await, count_documents(&url, "inbox").await),
        (1, 1)
    );
    assert_eq!(count_documents(&url, "going").await, 0);
    assert_eq!(store.read(execution(2), Seq(0)).await.unwrap().len(), 3);
    assert!(store.head(execution(2)).await.unwrap().is_some());
}

#[tokio::test]
async fn cached_outputs_are_limited_in_number() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    let outputs = database_of(&url).await.collection::<Document>("outputs");
    let row = |n: i64| doc! { "_id": format!("key {n}"), "until": n, "json": "1" };
    for chunk in 0..10 {
        let rows = (0..10_050_i64).map(|number| row(chunk * 10_050 + number));
        outputs.insert_many(rows).await.unwrap();
    }
    as_store(&store).cache_output("new", &json!(1), at(1_000_000_000)).await.unwrap();
    let left = usize::try_from(count_documents(&url, "outputs").await).unwrap();
    assert!(
        (limits::OUTPUT_CACHE_ENTRIES - 1_000..=limits::OUTPUT_CACHE_ENTRIES).contains(&left),
        "{left}"
    );
    assert!(as_store(&store).find_output("new", at(0)).await.unwrap().is_some());
    assert_eq!(as_store(&store).find_output("key 0", at(-9_999_999_999)).await.unwrap(), None);
}

#[tokio::test]
async fn workers_that_died_long_ago_are_removed_with_their_permits() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    let lease = |n, seconds| Lease { worker: worker(n), node: "n".to_owned(), until: at(seconds) };
    store.renew_lease(lease(1, 0)).await.unwrap();
    let held = permit_request("a", 1, &[concurrency_limit("k", 1)]);
    assert_eq!(store.acquire_permits(&held, at(-1)).await.unwrap(), Permission::Granted);
    for _ in 0..16 {
        store.renew_lease(lease(2, 4_000)).await.unwrap();
    }
    assert_eq!(count_documents(&url, "workers").await, 1);
    let permits = database_of(&url).await.collection::<Document>("permits");
    let kept = permits.find_one(doc! { "_id": "k" }).await.unwrap().unwrap();
    assert_eq!(kept.get_array("holders").unwrap().len(), 0);
    assert!(kept.contains_key("expires"), "MongoDB removes the document when it expires");
}

#[tokio::test]
async fn a_sub_plan_is_pruned_after_the_plan_that_uses_it() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    for n in 1..=2 {
        store.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    let whole = doc! { "_id": plan_id(1).to_string() };
    let parts = doc! { "$set": { "subPlans": [plan_id(2).to_string()] } };
    edit_document(&url, "plans", whole, parts).await;
    let first = store.prune(at(100), 10).await.unwrap();
    assert_eq!((first.plans, first.more), (1, true));
    assert!(store.plan(plan_id(2)).await.unwrap().is_some());
    let second = store.prune(at(100), 10).await.unwrap();
    assert_eq!((second.plans, second.more), (1, false));
}

#[tokio::test]
async fn a_damaged_head_does_not_hide_other_heads() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    for n in 1..=4 {
        let head = ExecutionHead { due: Some(at(5)), ..head(n, 1) };
        store.append(Append { head: Some(head), ..some_events(execution(n), 0, 1) }).await.unwrap();
    }
    let damage = [
        doc! { "priority": "high" },
        doc! { "wakeMicros": Bson::Null, "priority": i64::MAX },
        doc! { "wakeMicros": i64::MIN, "priority": 0.5 },
    ];
    for (n, damage) in (1..).zip(damage) {
        let one = doc! { "_id": execution(n).to_string() };
        edit_document(&url, "executions", one, doc! { "$set": damage }).await;
    }
    let due = store.find_heads(HeadQuery::Due { now: at(10), turn: 0 }, 10).await.unwrap();
    assert_eq!(due.iter().map(|head| head.execution).collect::<Vec<_>>(), [execution(4)]);
    assert_eq!(
        store.find_heads(HeadQuery::DueAfter { now: at(10), after: None }, 10).await.unwrap(),
        due
    );
    assert_eq!(as_store(&store).next_due_at().await.unwrap(), Some(at(5)));
}

#[tokio::test]
async fn owners_are_read_from_the_index_alone() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    for n in 1..=20 {
        let head = ExecutionHead { owner: Some(worker(1)), ..head(n, 1) };
        store.append(Append { head: Some(head), ..some_events(execution(n), 0, 1) }).await.unwrap();
    }
    let lease = Lease { worker: worker(1), node: "here".to_owned(), until: at(10) };
    store.renew_lease(lease).await.unwrap();
    let database = database_of(&url).await;
    database.run_command(doc! { "profile": 2 }).await.unwrap();
    assert_eq!(store.find_heads(HeadQuery::Orphans { now: at(0) }, 10).await.unwrap(), []);
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = database.collection::<Document>("system.profile");
    let profiled =
        profile.find_one(doc! { "command.distinct": "executions" }).await.unwrap().unwrap();
    let count = |key: &str| {
        profiled.get(key).and_then(|value| value.as_i32().map(i64::from).or(value.as_i64()))
    };
    assert_eq!(count("docsExamined"), Some(0), "{profiled}");
    assert!(count("keysExamined").is_some_and(|count| count < 5), "{profiled}");
}

/// Regression: dead workers stayed in the store for an hour.
#[tokio::test]
async fn a_dead_worker_is_removed_once_nothing_refers_to_it() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    let lease = |n, seconds| Lease { worker: worker(n), node: "n".to_owned(), until: at(seconds) };
    for n in [1, 2] {
        store.renew_lease(lease(n, 10)).await.unwrap();
    }
    let owned = ExecutionHead { owner: Some(worker(1)), ..head(1, 1) };
    let append = Append { head: Some(owned.clone()), ..some_events(execution(1), 0, 1) };
    store.append(append).await.unwrap();
    // Only the first heartbeat of a process removes dead workers, so each check opens a new store.
    let remaining = async |seconds| {
        let other = Mongo::open(&url).await.unwrap();
        other.renew_lease(lease(3, seconds)).await.unwrap();
        let workers = database_of(&url).await.collection::<Document>("workers");
        workers.distinct("_id", doc! {}).await.unwrap().len()
    };
    assert_eq!(remaining(60).await, 3, "their leases ended less than a minute before");
    assert_eq!(remaining(71).await, 2, "an execution still belongs to one of the workers");
    store.put_head(ExecutionHead { owner: None, due: Some(at(5)), ..owned }).await.unwrap();
    assert_eq!(remaining(71).await, 1);
}

#[tokio::test]
async fn the_size_of_a_database_is_known_with_and_without_encryption() {
    let url = Mongod::shared().await.new_database_url();
    let store = open_store(&url).await.unwrap();
    let empty = store.stored_bytes().await.unwrap().expect("MongoDB knows the size");
    // The indexes exist from the start.
    assert!(empty > 0);
    let keys = vec![("one".to_owned(), Some(Key::parse(KEY).unwrap()))];
    let keys = Keyring::new(keys, "one", false).unwrap();
    let encrypted = protect(Arc::clone(&store), Some(keys)).await.unwrap();
    assert!(encrypted.stored_bytes().await.unwrap() >= Some(empty));
}
