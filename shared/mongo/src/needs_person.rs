//! Lists of executions that need a person. Also adds the field `needsPerson` to the heads of older
//! versions, which lack it.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};
use mongodb::bson::{Bson, Document as Row, doc};
use shared::{
    id::{ExecutionId, WorkerId},
    store::{StoreError, load_execution},
};

use super::{Mongo, connection::to_store_error, lists, rows};

/// Logs that one query searches for waiting steps.
const LOGS_PER_QUERY: usize = 256;
/// Executions that are loaded at the same time.
const MAX_LOADS: usize = 16;
/// A query with more ids would be too large, so it joins the collections instead.
pub(super) const MAX_IDS: usize = 20_000;

impl Mongo {
    /// Returns the requests with an execution that needs a person, or `None` if there are more than
    /// [`MAX_IDS`].
    pub(super) async fn requests_needing_person(&self) -> Result<Option<Vec<Bson>>, StoreError> {
        let pipeline = [
            doc! { "$match": { "needsPerson": true } },
            doc! { "$group": { "_id": "$requestId" } },
            doc! { "$limit": lists::to_limit(MAX_IDS + 1) },
        ];
        let rows = lists::read_all(self.heads.aggregate(pipeline).await).await?;
        let is_complete = rows.len() <= MAX_IDS;
        Ok(is_complete.then(|| rows.into_iter().filter_map(|mut row| row.remove("_id")).collect()))
    }

    /// Returns the executions that have a descendant that needs a person.
    pub(super) async fn ancestors_needing_person(&self) -> Result<Vec<Bson>, StoreError> {
        let children = doc! { "needsPerson": true, "parent": { "$exists": true } };
        let mut level = self.parents_of(children).await?;
        let mut found = BTreeSet::new();
        while !level.is_empty() {
            level.retain(|id| found.insert(id.clone()));
            let mut next = Vec::new();
            for ids in level.chunks(MAX_IDS) {
                let above = doc! { "_id": { "$in": ids }, "parent": { "$exists": true } };
                next.append(&mut self.parents_of(above).await?);
            }
            level = next;
        }
        Ok(found.into_iter().map(Bson::from).collect())
    }

    async fn parents_of(&self, children: Row) -> Result<Vec<String>, StoreError> {
        let group = doc! { "$group": { "_id": "$parent" } };
        let pipeline = [doc! { "$match": children }, group];
        let rows = lists::read_all(self.heads.aggregate(pipeline).await).await?;
        Ok(rows.iter().filter_map(|row| row.get_str("_id").ok()).map(str::to_owned).collect())
    }

    /// Adds `needsPerson` to the heads that a node of an older version wrote.
    ///
    /// The meta document names the workers that may still write such heads. When the last of them
    /// has gone, the name is removed and no later process searches again.
    pub(super) async fn fill_after_upgrade(&self) -> Result<(), StoreError> {
        let meta = self.collection("meta");
        let schema =
            meta.find_one(doc! { "_id": "schema" }).await.map_err(|err| to_store_error(&err))?;
        let Some(schema) = schema else { return Ok(()) };
        let Ok(old) = schema.get_array("oldWorkers") else { return Ok(()) };
        // The workers are listed before the search, because a worker that ends during it may have
        // written a head that the search missed.
        let living = self.list_living_workers().await?;
        self.fill_needs_person().await?;
        if old.iter().filter_map(Bson::as_str).any(|worker| living.contains(worker)) {
            return Ok(());
        }
        let gone = doc! { "_id": "schema", "oldWorkers": old.clone() };
        let update = meta.update_one(gone, doc! { "$unset": { "oldWorkers": "" } }).await;
        update.map_err(|err| to_store_error(&err)).map(drop)
    }

    async fn list_living_workers(&self) -> Result<BTreeSet<String>, StoreError> {
        use shared::store::{Log, Store};
        let workers: Vec<WorkerId> = self.list_workers(self.shared_time().await?).await?;
        Ok(workers.iter().map(ToString::to_string).collect())
    }

    async fn fill_needs_person(&self) -> Result<(), StoreError> {
        let lacking = || doc! { "needsPerson": { "$exists": false } };
        let mut is_paused = lacking();
        is_paused.insert("state", "PAUSED");
        let update = doc! { "$set": { "needsPerson": true } };
        self.heads.update_many(is_paused, update).await.map_err(|err| to_store_error(&err))?;
        let mut may_wait = lacking();
        may_wait.insert("state", doc! { "$in": ["WAITING", "IN_PROGRESS"] });
        let found = self.heads.find(may_wait).projection(doc! { "_id": 1 }).await;
        let found = found.map_err(|err| to_store_error(&err))?.map_err(|err| to_store_error(&err));
        let mut chunks = found.try_chunks(LOGS_PER_QUERY);
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|err| err.1)?;
            let ids = chunk.iter().filter_map(|row| row.get_str("_id").ok()).collect::<Vec<_>>();
            self.fill_heads(&ids).await?;
        }
        Ok(())
    }

    /// Loads only executions with a step that waited, because loading is slow.
    async fn fill_heads(&self, ids: &[&str]) -> Result<(), StoreError> {
        let logs: Vec<Row> =
            ids.iter().map(|id| rows::log_range(id, Bson::MinKey, Bson::MaxKey)).collect();
        let waited = doc! { "$or": logs, "events": { "$regex": r#""type":"step_waiting""# } };
        let found = self.collection("events").find(waited).projection(doc! { "_id": 1 }).await;
        let found = lists::read_all(found).await?;
        let id = |row: &Row| row.get_document("_id").ok()?.get_str("x").ok()?.parse().ok();
        let waited: BTreeSet<ExecutionId> = found.iter().filter_map(id).collect();
        let waited = stream::iter(waited).map(Ok);
        waited.try_for_each_concurrent(MAX_LOADS, |id| self.fill_head(id)).await
    }

    async fn fill_head(&self, id: ExecutionId) -> Result<(), StoreError> {
        let execution = match load_execution(self, id).await {
            Ok(Some(execution)) => execution,
            Ok(None) => return Ok(()),
            Err(err) if err.is_permanent() => {
                tracing::warn!(execution = %id, %err, "cannot find out whether it needs a person");
                return Ok(());
            }
            Err(err) => return Err(err),
        };
        let lacking = doc! { "_id": id.to_string(), "needsPerson": { "$exists": false } };
        let update = doc! { "$set": { "needsPerson": execution.needs_person() } };
        self.heads.update_one(lacking, update).await.map_err(|err| to_store_error(&err)).map(drop)
    }
}
