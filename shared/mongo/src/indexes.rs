use std::time::Duration;

use mongodb::{
    Database, IndexModel,
    bson::{Document, doc},
    options::IndexOptions,
};
use shared::store::StoreError;

use super::{
    connection::to_store_error,
    lists::{CREATED, REQUEST_TOKEN},
    log::WAKE,
    records::{AT_MICROS, CALL, RECORDS},
    rows::{STORED_BYTES, TOKEN, WAKE_TOKEN},
};

pub(super) async fn create_indexes(database: &Database) -> Result<(), StoreError> {
    for (collection, indexes) in index_models() {
        let collection = database.collection::<Document>(collection);
        collection.create_indexes(indexes).await.map_err(|err| to_store_error(&err))?;
    }
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "a table of all indexes")]
fn index_models() -> [(&'static str, Vec<IndexModel>); 10] {
    let plain = |keys| IndexModel::builder().keys(keys).build();
    let only_with = |keys, field: &str| {
        let filter = doc! { field: { "$exists": true } };
        let options = IndexOptions::builder().partial_filter_expression(filter).build();
        IndexModel::builder().keys(keys).options(options).build()
    };
    let only_calls = |keys| {
        let options = IndexOptions::builder().partial_filter_expression(doc! { "_id.k": CALL });
        IndexModel::builder().keys(keys).options(options.build()).build()
    };
    let only_needing = |keys| {
        let filter = doc! { "needsPerson": true };
        let options = IndexOptions::builder().partial_filter_expression(filter).build();
        IndexModel::builder().keys(keys).options(options).build()
    };
    let only_of_faber = |keys| {
        let options =
            IndexOptions::builder().partial_filter_expression(doc! { "actor.kind": "faber" });
        IndexModel::builder().keys(keys).options(options.build()).build()
    };
    let expiring = |keys| {
        let options = IndexOptions::builder().expire_after(Duration::ZERO).build();
        IndexModel::builder().keys(keys).options(options).build()
    };
    let unique = |keys| {
        let options = IndexOptions::builder().unique(true).build();
        IndexModel::builder().keys(keys).options(options).build()
    };
    [
        (
            "executions",
            vec![
                plain(doc! { "requestId": 1, "state": 1 }),
                plain(doc! { "planId": 1 }),
                plain(doc! { CREATED: -1, "_id": -1 }),
                plain(doc! { "state": 1, CREATED: -1, "_id": -1 }),
                only_with(doc! { "priority": -1, WAKE: 1, "_id": 1 }, WAKE),
                only_with(doc! { WAKE: 1, "_id": 1 }, WAKE),
                only_with(doc! { WAKE_TOKEN: 1, "priority": -1, WAKE: 1, "_id": 1 }, WAKE_TOKEN),
                only_with(doc! { TOKEN: 1, "state": 1, STORED_BYTES: 1 }, TOKEN),
                only_with(doc! { "owner": 1, "_id": 1 }, "owner"),
                only_with(doc! { "finishedAtMicros": 1, "_id": 1 }, "finishedAtMicros"),
                only_with(doc! { "labelTerms": 1, CREATED: -1, "_id": -1 }, "labelTerms"),
                only_with(doc! { "errorCode": 1, CREATED: -1, "_id": -1 }, "errorCode"),
                only_with(doc! { "failedTool": 1, CREATED: -1, "_id": -1 }, "failedTool"),
                only_with(doc! { CREATED: -1, "_id": -1, "errorCode": 1 }, "errorCode"),
                only_needing(doc! { "needsPerson": 1, CREATED: -1, "_id": -1 }),
            ],
        ),
        (
            "plans",
            vec![
                unique(doc! { "requestId": 1, "version": 1 }),
                plain(doc! { CREATED: -1, "_id": -1 }),
                plain(doc! { "tools": 1 }),
                only_with(doc! { "subPlans": 1 }, "subPlans"),
            ],
        ),
        ("keys", vec![plain(doc! { "executionId": 1 })]),
        ("outputs", vec![plain(doc! { "until": 1 }), expiring(doc! { "expires": 1 })]),
        ("permits", vec![plain(doc! { "holders.w": 1 }), expiring(doc! { "expires": 1 })]),
        (RECORDS, vec![only_calls(doc! { AT_MICROS: 1 })]),
        ("saved", vec![plain(doc! { "planId": 1 })]),
        (
            "requests",
            vec![
                plain(doc! { CREATED: -1, "_id": -1 }),
                only_with(doc! { REQUEST_TOKEN: 1, CREATED: -1, "_id": -1 }, REQUEST_TOKEN),
            ],
        ),
        (
            "audit",
            vec![
                plain(doc! { CREATED: -1, "_id": -1 }),
                plain(doc! { "action": 1, CREATED: -1, "_id": -1 }),
                only_with(doc! { "actor.name": 1, CREATED: -1, "_id": -1 }, "actor.name"),
                only_with(doc! { "executionId": 1, CREATED: -1, "_id": -1 }, "executionId"),
                only_of_faber(doc! { "actor.kind": 1, CREATED: -1, "_id": -1 }),
            ],
        ),
        ("inbox", vec![plain(doc! { "n": 1 }), plain(doc! { "executionId": 1, "n": 1 })]),
    ]
}
