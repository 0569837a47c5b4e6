//! Converts a database of an earlier layout. `docs/design/store-layout.md` describes the steps.

mod convert;

use futures::TryStreamExt;
use mongodb::{
    Database,
    bson::{Bson, Document as Row, doc},
};
use shared::store::{
    StoreError,
    backend::{LAYOUT, MigrationReport, OLDEST_LAYOUT, check_layout, store_in_use_error},
};

use super::{
    Mongo,
    commands::{self, Replacement, Safety},
    connection::{is_duplicate_key, to_store_error},
    lists,
};

const BATCH_LEN: usize = 500;
/// Maximum bytes of one batch, unless it has only one document.
const BATCH_BYTES: usize = 6 << 20;

/// Indexes of earlier layouts whose fields have other names now.
const OLD_INDEXES: [(&str, &str); 10] = [
    ("executions", "at_-1__id_-1"),
    ("executions", "state_1_at_-1__id_-1"),
    ("executions", "priority_-1_wake_1__id_1"),
    ("executions", "wake_1__id_1"),
    ("executions", "finishedAt_1__id_1"),
    ("executions", "needsPerson_1_at_-1__id_-1"),
    ("plans", "at_-1__id_-1"),
    ("requests", "at_-1__id_-1"),
    ("records", "at_1"),
    ("keys", "execution_1"),
];

/// A collection whose documents are converted. Collections are converted in this order, because a
/// head is made from its plan and its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Plans,
    Events,
    Transcripts,
    Records,
    Executions,
}

impl Part {
    const ALL: [Self; 5] =
        [Self::Plans, Self::Events, Self::Transcripts, Self::Records, Self::Executions];

    fn collection(self) -> &'static str {
        match self {
            Self::Plans => "plans",
            Self::Events => "events",
            Self::Transcripts => "transcripts",
            Self::Records => "records",
            Self::Executions => "executions",
        }
    }

    fn old_form_filter(self) -> Row {
        match self {
            Self::Events => doc! { "events": { "$type": "string" } },
            Self::Transcripts | Self::Records => doc! { "json": { "$exists": true } },
            Self::Plans | Self::Executions => doc! { "at": { "$exists": true } },
        }
    }
}

/// Stores the layout version in a new database. In a database of an earlier layout, starts a
/// migration, or only raises the version. Returns `true` if documents may have an old form.
pub(super) async fn prepare_database(database: &Database, layout: u32) -> Result<bool, StoreError> {
    let meta = database.collection::<Row>("meta");
    let found = find_schema(database).await?;
    let Some(found) = found else {
        let (version, oldest) = (layout.cast_signed(), OLDEST_LAYOUT.cast_signed());
        let schema = doc! { "_id": "schema", "version": version, "oldest": oldest };
        return match meta.insert_one(schema).await {
            Ok(_) => Ok(false),
            // Another process has just stored its version, so this function must read that version.
            Err(err) if is_duplicate_key(&err) => {
                Box::pin(prepare_database(database, layout)).await
            }
            Err(err) => Err(to_store_error(&err)),
        };
    };
    let damaged = |err: &dyn std::fmt::Display| StoreError::corrupt("meta", err);
    let version = found.get_i32("version").map_err(|err| damaged(&err))?;
    let oldest = found.get_i32("oldest").ok().and_then(|oldest| u32::try_from(oldest).ok());
    let version = u32::try_from(version).map_err(|err| damaged(&err))?;
    if version == 0 {
        return Err(damaged(&"schema version 0"));
    }
    check_layout(version, oldest)?;
    if version < OLDEST_LAYOUT {
        start_migration(database, version).await?;
        return Ok(true);
    }
    if version < layout {
        // Needs no migration, because the later layout only adds fields. Nodes of the earlier
        // layout can continue.
        let raised = doc! { "$max": { "version": layout.cast_signed() } };
        let update = meta.update_one(doc! { "_id": "schema" }, raised).await;
        update.map_err(|err| to_store_error(&err))?;
    }
    Ok(found.contains_key("migration"))
}

async fn find_schema(database: &Database) -> Result<Option<Row>, StoreError> {
    let meta = database.collection::<Row>("meta");
    meta.find_one(doc! { "_id": "schema" }).await.map_err(|err| to_store_error(&err))
}

/// Stores the new version, so that programs of earlier versions refuse the database from now on.
/// Fails while a worker of an earlier version is alive.
async fn start_migration(database: &Database, version: u32) -> Result<(), StoreError> {
    let now = doc! { "$multiply": [{ "$toLong": "$$NOW" }, 1_000_i64] };
    let alive = doc! { "$expr": { "$gt": ["$until", &now] } };
    let workers = database.collection::<Row>("workers");
    let alive = workers.find_one(alive).await.map_err(|err| to_store_error(&err))?;
    if let Some(worker) = alive {
        let name = |field| worker.get_str(field).unwrap_or("an unknown one");
        let worker = format!("the worker `{}` on `{}`", name("_id"), name("node"));
        return Err(store_in_use_error(&worker));
    }
    if version < 2 {
        add_end_times(database, now).await?;
    }
    let started = doc! {
        "$set": {
            "version": LAYOUT.cast_signed(),
            "oldest": OLDEST_LAYOUT.cast_signed(),
            "migration": { "from": version.cast_signed() },
        },
        "$unset": { "oldWorkers": "" },
    };
    let before = doc! { "_id": "schema", "version": version.cast_signed() };
    let meta = database.collection::<Row>("meta");
    meta.update_one(before, started).await.map_err(|err| to_store_error(&err)).map(drop)
}

/// Layout 2 added the end times of executions. Finished executions get the current time, so that
/// none is pruned too early.
async fn add_end_times(database: &Database, now: Row) -> Result<(), StoreError> {
    let ended = doc! {
        "state": { "$in": ["COMPLETED", "FAILED", "CANCELLED"] },
        "finishedAt": { "$exists": false },
    };
    let heads = database.collection::<Row>("executions");
    let update = vec![doc! { "$set": { "finishedAt": now } }, doc! { "$unset": "wake" }];
    heads.update_many(ended, update).await.map_err(|err| to_store_error(&err)).map(drop)
}

impl Mongo {
    pub(super) async fn migrate(&self) -> Result<(), StoreError> {
        self.rename_fields().await?;
        for part in Part::ALL {
            self.migrate_part(part).await?;
        }
        for (collection, index) in OLD_INDEXES {
            // Ignores an error, because the index is missing if the migration was interrupted here,
            // or if the database is older than the index.
            if let Err(err) = self.collection(collection).drop_index(index).await {
                tracing::debug!(%err, collection, index, "an index was not dropped");
            }
        }
        let done = doc! { "$unset": { "migration": "" } };
        let meta = self.collection("meta");
        let update = meta.update_one(doc! { "_id": "schema" }, done).await;
        update.map_err(|err| to_store_error(&err)).map(drop)
    }

    /// Converts the collections that the server can convert itself.
    async fn rename_fields(&self) -> Result<(), StoreError> {
        let rename = |collection, from: &str, to: &str| {
            let update = doc! { "$rename": { from: to } };
            (collection, doc! { from: { "$exists": true } }, update)
        };
        for (collection, old, update) in
            [rename("requests", "at", lists::CREATED), rename("keys", "execution", "executionId")]
        {
            let update = self.collection(collection).update_many(old, update).await;
            update.map_err(|err| to_store_error(&err))?;
        }
        Ok(())
    }

    async fn migrate_part(&self, part: Part) -> Result<(), StoreError> {
        let total = self.collection(part.collection()).estimated_document_count().await;
        let total = total.map_err(|err| to_store_error(&err))?;
        let progress = find_schema(&self.database).await?.unwrap_or_default();
        let progress = progress.get_document("migration").cloned().unwrap_or_default();
        let cursor = progress.get_document(part.collection()).cloned().unwrap_or_default();
        let done = cursor.get_i64("done").unwrap_or_default();
        let mut after = cursor.get("after").cloned().unwrap_or(Bson::MinKey);
        let mut report = MigrationReport::start(part.collection(), done.unsigned_abs(), total);
        loop {
            let batch = self.read_old_batch(part, &after).await?;
            let Some(last) = batch.last().and_then(|row| row.get("_id")).cloned() else {
                return Ok(());
            };
            let replacements = self.convert_batch(part, &batch).await?;
            // Splits the batch again, because a value can need more bytes in BSON than as text.
            for few in commands::split_replacements(replacements, BATCH_BYTES) {
                let command = commands::replace_command(part.collection(), few, Safety::Durable);
                commands::run_write(&self.database, command).await?;
            }
            report.add(batch.len());
            let done = i64::try_from(report.done()).unwrap_or(i64::MAX);
            let field = format!("migration.{}", part.collection());
            let cursor = doc! { "$set": { field: { "after": &last, "done": done } } };
            // Changes nothing if another process has finished the migration.
            let running = doc! { "_id": "schema", "migration": { "$exists": true } };
            let update = self.collection("meta").update_one(running, cursor).await;
            update.map_err(|err| to_store_error(&err))?;
            after = last;
        }
    }

    async fn read_old_batch(&self, part: Part, after: &Bson) -> Result<Vec<Row>, StoreError> {
        let mut old = part.old_form_filter();
        old.insert("_id", doc! { "$gt": after });
        let collection = self.collection(part.collection());
        let found = collection.find(old).sort(doc! { "_id": 1 });
        let found = found.limit(lists::to_limit(BATCH_LEN)).batch_size(100).await;
        let mut found = found.map_err(|err| to_store_error(&err))?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES
            && let Some(row) = found.try_next().await.map_err(|err| to_store_error(&err))?
        {
            let text = ["events", "json"].map(|field| row.get_str(field).map_or(0, str::len));
            let len = text.iter().sum::<usize>();
            if !batch.is_empty() && bytes + len > BATCH_BYTES {
                break;
            }
            bytes += len;
            batch.push(row);
        }
        Ok(batch)
    }

    /// Converts documents. Leaves out damaged documents, which stay as they are.
    async fn convert_batch(
        &self,
        part: Part,
        batch: &[Row],
    ) -> Result<Vec<Replacement>, StoreError> {
        let mut replacements = Vec::with_capacity(batch.len());
        for row in batch {
            let document = match part {
                Part::Plans => self.convert_plan(row).await,
                Part::Events => convert::convert_events(row),
                Part::Transcripts => self.convert_entry(row).await,
                Part::Records => convert::convert_record(row),
                Part::Executions => self.convert_head(row).await,
            };
            match document {
                Ok(document) => {
                    let mut query = part.old_form_filter();
                    query.insert("_id", row.get("_id"));
                    let query = mongodb::bson::RawDocumentBuf::try_from(&query)
                        .map_err(|err| StoreError::Unavailable(err.to_string()))?;
                    replacements.push(Replacement { query, document });
                }
                Err(err) if err.is_permanent() => {
                    tracing::warn!(%err, "a damaged document was not converted");
                }
                Err(err) => return Err(err),
            }
        }
        Ok(replacements)
    }
}
