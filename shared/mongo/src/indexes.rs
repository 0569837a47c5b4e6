//! Creates the indexes, and brings a database of an older schema version up to date.

use std::time::Duration;

use mongodb::{
    Database, IndexModel,
    bson::{Document, doc},
    options::IndexOptions,
};
use shared::store::StoreError;

use super::{
    connection::{is_duplicate_key, to_store_error},
    records::{CALL, RECORDS},
};

/// The schema version that this program writes, and the newest that it reads.
const SCHEMA_VERSION: i32 = 5;

/// Creates missing indexes, and rejects a database that a newer version wrote. Returns `true` if
/// heads may lack fields that this version writes.
pub(super) async fn prepare_database(database: &Database) -> Result<bool, StoreError> {
    let meta = database.collection::<Document>("meta");
    let found =
        meta.find_one(doc! { "_id": "schema" }).await.map_err(|err| to_store_error(&err))?;
    let has_old_heads = found.as_ref().is_some_and(|found| found.contains_key("oldWorkers"));
    let found = match found {
        Some(found) => found.get_i32("version").map_err(|err| StoreError::corrupt("meta", err))?,
        None => match meta.insert_one(doc! { "_id": "schema", "version": SCHEMA_VERSION }).await {
            Ok(_) => SCHEMA_VERSION,
            // Another process stored its version at the same time. If that version is newer, the
            // next start finds it.
            Err(err) if is_duplicate_key(&err) => SCHEMA_VERSION,
            Err(err) => return Err(to_store_error(&err)),
        },
    };
    match u32::try_from(found) {
        Ok(found) if found > SCHEMA_VERSION.unsigned_abs() => {
            return Err(StoreError::TooNew { found, known: SCHEMA_VERSION.unsigned_abs() });
        }
        Ok(1..) => (),
        _ => return Err(StoreError::corrupt("meta", format!("schema version {found}"))),
    }
    if found < 2 {
        // This runs before the new version is stored, because from then on other processes read
        // these fields.
        upgrade_to_2(database).await?;
    }
    for (collection, indexes) in index_models() {
        let collection = database.collection::<Document>(collection);
        collection.create_indexes(indexes).await.map_err(|err| to_store_error(&err))?;
    }
    if found < SCHEMA_VERSION {
        // Versions 3 and 4 added collections and an index. Version 5 added a field to heads, which
        // `fill_after_upgrade` writes.
        let mut version = doc! { "$max": { "version": SCHEMA_VERSION } };
        if found < 5 {
            let workers = database.collection::<Document>("workers");
            let workers =
                workers.distinct("_id", doc! {}).await.map_err(|err| to_store_error(&err))?;
            version.insert("$set", doc! { "oldWorkers": workers });
        }
        let schema = meta.update_one(doc! { "_id": "schema" }, version).await;
        schema.map_err(|err| to_store_error(&err))?;
    }
    Ok(has_old_heads || found < 5)
}

/// Version 2 added `finishedAt`. Finished executions get the current time, so that none is pruned
/// too early.
async fn upgrade_to_2(database: &Database) -> Result<(), StoreError> {
    let ended = doc! {
        "state": { "$in": ["COMPLETED", "FAILED", "CANCELLED"] },
        "finishedAt": { "$exists": false },
    };
    let now = doc! { "$multiply": [{ "$toLong": "$$NOW" }, 1_000_i64] };
    let heads = database.collection::<Document>("executions");
    let update = vec![doc! { "$set": { "finishedAt": now } }, doc! { "$unset": "wake" }];
    heads.update_many(ended, update).await.map_err(|err| to_store_error(&err)).map(drop)
}

fn index_models() -> [(&'static str, Vec<IndexModel>); 9] {
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
                plain(doc! { "at": -1, "_id": -1 }),
                plain(doc! { "state": 1, "at": -1, "_id": -1 }),
                only_with(doc! { "priority": -1, "wake": 1, "_id": 1 }, "wake"),
                only_with(doc! { "wake": 1, "_id": 1 }, "wake"),
                only_with(doc! { "owner": 1, "_id": 1 }, "owner"),
                only_with(doc! { "finishedAt": 1, "_id": 1 }, "finishedAt"),
                only_needing(doc! { "needsPerson": 1, "at": -1, "_id": -1 }),
            ],
        ),
        (
            "plans",
            vec![
                unique(doc! { "requestId": 1, "version": 1 }),
                plain(doc! { "at": -1, "_id": -1 }),
                plain(doc! { "tools": 1 }),
                only_with(doc! { "subPlans": 1 }, "subPlans"),
            ],
        ),
        ("keys", vec![plain(doc! { "execution": 1 })]),
        ("outputs", vec![plain(doc! { "until": 1 }), expiring(doc! { "expires": 1 })]),
        ("permits", vec![plain(doc! { "holders.w": 1 }), expiring(doc! { "expires": 1 })]),
        (RECORDS, vec![only_calls(doc! { "at": 1 })]),
        ("saved", vec![plain(doc! { "planId": 1 })]),
        ("requests", vec![plain(doc! { "at": -1, "_id": -1 })]),
        ("inbox", vec![plain(doc! { "n": 1 }), plain(doc! { "executionId": 1, "n": 1 })]),
    ]
}
