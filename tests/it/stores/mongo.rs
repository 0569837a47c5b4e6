//! What only a replica set does: it is shared, it must be one, it can be damaged.

use mongodb::{
    Client,
    bson::{Document, doc},
};
use shared::{
    id::Seq,
    store::{
        AppendError, Documents, ExecutionFilter, ExecutionLog, Page, StoreError, mongo::Mongo, open,
    },
};
use tests::conformance::{World, execution, head, plan, plan_id, some_events};

use crate::mongod::Mongod;

pub(crate) async fn alone() -> World {
    let url = Mongod::shared().await.fresh_url();
    World::new(open(&url).await.unwrap(), ())
}

/// Two stores on one database, as two nodes have.
pub(crate) async fn twice() -> World {
    let url = Mongod::shared().await.fresh_url();
    World::shared(open(&url).await.unwrap(), open(&url).await.unwrap(), ())
}

async fn edit(url: &str, collection: &str, query: Document, update: Document) {
    let client = Client::with_uri_str(url).await.unwrap();
    let database = client.default_database().unwrap();
    let collection = database.collection::<Document>(collection);
    let edited = collection.update_one(query, update).await.unwrap();
    assert_eq!(edited.matched_count, 1);
}

#[tokio::test]
async fn what_was_written_is_there_when_it_is_opened_again() {
    let url = Mongod::shared().await.fresh_url();
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

#[tokio::test]
async fn damage_stays_where_it_is() {
    let url = Mongod::shared().await.fresh_url();
    let store = Mongo::open(&url).await.unwrap();
    for n in 1..=3 {
        let mut append = some_events(execution(n), 0, 1);
        append.head = Some(head(n, 1));
        store.append(append).await.unwrap();
        store.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    let of = |n: usize| doc! { "_id.x": execution(n).to_string() };
    edit(&url, "events", of(1), doc! { "$set": { "events": "[{]" } }).await;
    edit(&url, "events", of(2), doc! { "$set": { "n": 7_i64 } }).await;
    let one = doc! { "_id": execution(1).to_string() };
    edit(&url, "executions", one, doc! { "$set": { "state": "DANCING" } }).await;
    let first = doc! { "_id": plan_id(1).to_string() };
    edit(&url, "plans", first, doc! { "$set": { "json": "{}" } }).await;

    let store = Mongo::open(&url).await.unwrap();
    let is_damaged = |it: &StoreError| matches!(it, StoreError::Corrupt { .. });
    for n in [1, 2] {
        let err = store.read(execution(n), Seq(0)).await.unwrap_err();
        assert!(is_damaged(&err) && err.to_string().contains(&execution(n).to_string()), "{err}");
    }
    assert!(is_damaged(&store.head(execution(1)).await.unwrap_err()));
    assert!(is_damaged(&store.plan(plan_id(1)).await.unwrap_err()));
    assert_eq!(store.read(execution(3), Seq(0)).await.unwrap().len(), 1);
    let page = Page { first: 10, after: None };
    let heads = store.heads(&ExecutionFilter::default(), &page).await.unwrap();
    assert_eq!(heads.items.len(), 2, "a list goes on without what is damaged");
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let url = Mongod::shared().await.fresh_url();
    drop(Mongo::open(&url).await.unwrap());
    edit(&url, "meta", doc! { "_id": "schema" }, doc! { "$set": { "version": 7 } }).await;
    let err = Mongo::open(&url).await.map(drop).unwrap_err();
    assert_eq!(err, StoreError::TooNew { found: 7, known: 1 });
}

#[tokio::test]
async fn a_primary_that_does_not_answer_is_said_so() {
    let url = "mongodb://127.0.0.1:1/x?serverSelectionTimeoutMS=200";
    let err = Mongo::open(url).await.map(drop).unwrap_err();
    assert!(err.to_string().contains("no primary of the MongoDB replica set answers"), "{err}");
}
