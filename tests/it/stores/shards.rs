//! Checks the shard keys with one server: its profile shows the filter of every
//! operation.
//!
//! An operation that names the shard key goes to one shard, any other to all. So logs and heads are
//! always read by their execution, except for the few queries that `docs/reference/stores.md`
//! lists.

use futures::TryStreamExt;
use mongo::Mongo;
use mongodb::{
    Client, Database,
    bson::{Bson, Document, doc},
};
use shared::{
    execution::ExecutionState,
    id::Seq,
    store::{
        Append, Command, ExecutionFilter, ExecutionHead, HeadQuery, Lease, Page, RequestFilter,
        Store,
    },
};
use tests::conformance::{
    at, concurrency_limit, execution, head, inbox_command, permit_request, plan, request,
    some_events, worker,
};

use crate::mongod::Mongod;

/// Fields of the filters that may go to all shards: claims, retention and lists.
const SCATTERED: [&[&str]; 10] = [
    &["priority", "wakeMicros"],
    &["wakeMicros"],
    &["owner"],
    &["finishedAtMicros", "owner", "state"],
    &["planId"],
    &["requestId"],
    &["createdAtMicros"],
    &["state"],
    &["$expr", "state"],
    &[],
];

async fn set_profile_level(database: &Database, level: i32) {
    database.run_command(doc! { "profile": level }).await.unwrap();
}

/// Runs each kind of operation that an engine needs.
async fn run_typical_operations(store: &dyn Store) {
    let lease = Lease { worker: worker(1), node: "n".to_owned(), until: at(100) };
    store.renew_lease(lease).await.unwrap();
    for n in 1..=5 {
        store.put_request(&request(n, "q", 0)).await.unwrap();
        store.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
        let due = ExecutionHead { due: Some(at(0)), ..head(n, 2) };
        let append = Append { head: Some(due), ..some_events(execution(n), 0, 2) };
        store.append(append).await.unwrap();
        store.send_command(inbox_command(n, n, Command::Pause)).await.unwrap();
    }
    store.find_heads(HeadQuery::Due { now: at(1) }, 3).await.unwrap();
    store.next_due_at().await.unwrap();
    for n in 1..=5 {
        for after in [0, 1, 2, 7] {
            store.read(execution(n), Seq(after)).await.unwrap();
        }
        let state = ExecutionState::Completed;
        let over = ExecutionHead { state, finished_at: Some(at(1)), ..head(n, 4) };
        let append = Append { head: Some(over), ..some_events(execution(n), 2, 2) };
        store.append(append).await.unwrap();
        let request = permit_request("h", 1, &[concurrency_limit("k", 1)]);
        store.acquire_permits(&request, at(0)).await.unwrap();
        store.release_permits(vec![request.permit]).await.unwrap();
        store.head(execution(n)).await.unwrap();
    }
    store.find_heads(HeadQuery::Orphans { now: at(1) }, 10).await.unwrap();
    let page = Page { first: 2, after: None };
    store.list_heads(&ExecutionFilter::default(), &page).await.unwrap();
    let states = vec![ExecutionState::Completed];
    store
        .list_heads(&ExecutionFilter { states, ..ExecutionFilter::default() }, &page)
        .await
        .unwrap();
    let state = Some(ExecutionState::Completed);
    store.list_requests(&RequestFilter { state, ..RequestFilter::default() }, &page).await.unwrap();
    assert_eq!(store.prune(at(50), 10).await.unwrap().executions, 5);
}

/// Returns the filter of an operation, if it has one.
fn filter_of(operation: &Document) -> Option<Document> {
    let command = operation.get_document("originatingCommand");
    let command = command.or_else(|_| operation.get_document("command")).unwrap();
    for field in ["filter", "query", "q"] {
        if let Ok(query) = command.get_document(field) {
            return Some(query.clone());
        }
    }
    let first = command.get_array("pipeline").ok()?.first()?.as_document()?;
    first.get_document("$match").ok().cloned()
}

fn is_by_execution(query: &Document) -> bool {
    query.get_str("_id.x").is_ok_and(|id| id.starts_with("exec_"))
}

fn is_by_id(query: &Document) -> bool {
    match query.get("_id") {
        Some(Bson::String(_)) => true,
        Some(Bson::Document(query)) => query.contains_key("$in") || query.contains_key("$eq"),
        _ => false,
    }
}

fn is_known_scatter(query: &Document) -> bool {
    let mut fields: Vec<&str> = query.keys().map(String::as_str).collect();
    fields.sort_unstable();
    SCATTERED.contains(&fields.as_slice())
}

#[tokio::test]
async fn every_operation_names_its_shard_or_is_listed_as_scattered() {
    let url = Mongod::shared().await.new_database_url();
    let store = Mongo::open(&url).await.unwrap();
    let client = Client::with_uri_str(&url).await.unwrap();
    let database = client.default_database().unwrap();
    set_profile_level(&database, 2).await;
    run_typical_operations(&store).await;
    set_profile_level(&database, 0).await;
    let found = database.collection::<Document>("system.profile").find(doc! {}).await.unwrap();
    let operations: Vec<Document> = found.try_collect().await.unwrap();
    let (mut logs, mut heads) = (0, 0);
    for operation in &operations {
        let collection = operation.get_str("ns").unwrap().split_once('.').unwrap().1;
        let kind = operation.get_str("op").unwrap();
        let plan = operation.get_str("planSummary").unwrap_or_default();
        if !["events", "executions"].contains(&collection) || kind == "insert" {
            continue;
        }
        let query = filter_of(operation).unwrap_or_default();
        if collection == "events" {
            logs += 1;
            assert!(["query", "getmore", "remove"].contains(&kind), "{operation}");
            assert!(is_by_execution(&query), "the filter lacks the shard key: {operation}");
            assert!(
                plan.contains("{ _id: 1 }"),
                "the operation does not use its index: {operation}"
            );
        } else {
            heads += 1;
            let is_read = ["query", "getmore", "command"].contains(&kind);
            let is_known = is_by_id(&query) || (is_read && is_known_scatter(&query));
            assert!(is_known, "a scattered query that is not listed: {operation}");
            assert!(!plan.contains("COLLSCAN"), "a query without an index: {operation}");
        }
    }
    assert!(logs >= 20 && heads >= 20, "{logs} {heads} of {}", operations.len());
}
