//! Removes old executions that have finished, and plans and requests without references. An
//! execution is several documents, so the collection `going` keeps the ids of a removal until it is
//! complete.

use std::collections::BTreeSet;

use futures::TryStreamExt;
use mongodb::{
    Cursor, Database,
    bson::{Bson, Document as Row, doc},
};
use shared::{
    clock::Timestamp,
    id::ExecutionId,
    store::{Pruned, Removable, StoreError},
};

use super::{
    Mongo,
    commands::{self, Safety},
    connection::to_store_error,
    documents::transcript_range,
    lists::{self, CREATED},
    records,
    rows::{self, FINISHED_STATES},
};

/// Maximum number of objects that one command checks or removes.
const BATCH_LEN: usize = 64;
/// Age of a removal in `going` after which another process finishes it.
const ABANDONED_AFTER_MS: i64 = 60_000;
/// Maximum number of abandoned removals that one call finishes.
const MAX_ABANDONED: i64 = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnusedKind {
    Executions,
    Plans,
    Requests,
}

impl UnusedKind {
    const ALL: [Self; 3] = [Self::Executions, Self::Plans, Self::Requests];

    fn collection(self) -> &'static str {
        match self {
            Self::Executions => "executions",
            Self::Plans => "plans",
            Self::Requests => "requests",
        }
    }

    fn id_prefix(self) -> &'static str {
        match self {
            Self::Executions => "exec_",
            Self::Plans => "plan_",
            Self::Requests => "req_",
        }
    }
}

pub(super) async fn is_being_removed(
    database: &Database,
    id: ExecutionId,
) -> Result<bool, StoreError> {
    let removals = database.collection::<Row>("going");
    let found = removals.find_one(doc! { "_id": id.to_string() }).await;
    Ok(found.map_err(|err| to_store_error(&err))?.is_some())
}

impl Mongo {
    pub(super) async fn remove_old_documents(
        &self,
        before: Timestamp,
        most: usize,
    ) -> Result<Pruned, StoreError> {
        self.finish_abandoned_removals().await?;
        self.remove_old_records(before).await?;
        self.remove_permits_of_unknown_workers().await?;
        let mut pruned = Pruned::default();
        if most == 0 {
            return Ok(pruned);
        }
        for kind in UnusedKind::ALL {
            let mut old = self.find_old(kind, before, most.saturating_add(1)).await?;
            let more = old.len() > most;
            old.truncate(most);
            let has_sub_plans = old.iter().any(|row| row.contains_key("subPlans"));
            let ids: Vec<String> = old.iter().map(row_id).collect();
            for ids in ids.chunks(BATCH_LEN) {
                self.remove_documents(kind, ids).await?;
            }
            match kind {
                UnusedKind::Executions => pruned.executions = ids.len(),
                UnusedKind::Plans => pruned.plans = ids.len(),
                UnusedKind::Requests => pruned.requests = ids.len(),
            }
            pruned.more |= more || has_sub_plans;
            if more {
                break;
            }
        }
        Ok(pruned)
    }

    pub(super) async fn remove_objects(&self, objects: &Removable) -> Result<usize, StoreError> {
        let (kind, ids): (_, Vec<String>) = match objects {
            Removable::Executions(ids) => {
                (UnusedKind::Executions, ids.iter().map(ToString::to_string).collect())
            }
            Removable::Plans(ids) => {
                (UnusedKind::Plans, ids.iter().map(ToString::to_string).collect())
            }
            Removable::Requests(ids) => {
                (UnusedKind::Requests, ids.iter().map(ToString::to_string).collect())
            }
        };
        let mut removed = 0;
        for ids in ids.chunks(BATCH_LEN) {
            let mut filter = doc! { "_id": { "$in": ids } };
            let rows = if kind == UnusedKind::Executions {
                filter.insert("owner", doc! { "$exists": false });
                filter.insert("state", doc! { "$in": FINISHED_STATES.to_vec() });
                lists::read_all(self.heads.find(filter).await).await?
            } else {
                let all = self.collection(kind.collection());
                lists::read_all(all.find(filter).projection(doc! { "_id": 1 }).await).await?
            };
            let needed = self.find_needed(kind, &rows).await?;
            let unused = rows.iter().filter(|row| !needed.contains(&deciding_id(kind, row)));
            let unused: Vec<String> = unused.map(row_id).collect();
            if !unused.is_empty() {
                self.remove_documents(kind, &unused).await?;
            }
            removed += unused.len();
        }
        Ok(removed)
    }

    async fn find_old(
        &self,
        kind: UnusedKind,
        before: Timestamp,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let before = doc! { "$lt": before.timestamp_micros() };
        let fields = doc! { "_id": 1, "parentExecutionId": 1, "subPlans": 1 };
        let found = match kind {
            UnusedKind::Executions => {
                let finished = doc! {
                    "finishedAtMicros": before,
                    "owner": { "$exists": false },
                    "state": { "$in": FINISHED_STATES.to_vec() },
                };
                let old = self.heads.find(finished).sort(doc! { "finishedAtMicros": 1, "_id": 1 });
                old.projection(fields).await
            }
            UnusedKind::Plans | UnusedKind::Requests => {
                let all = self.collection(kind.collection());
                let old = all.find(doc! { CREATED: before }).sort(doc! { CREATED: 1, "_id": 1 });
                old.projection(fields).await
            }
        };
        let mut found = found.map_err(|err| to_store_error(&err))?;
        let mut old = Vec::new();
        loop {
            let batch = next_batch(&mut found).await?;
            let is_last = batch.len() < BATCH_LEN;
            let needed = self.find_needed(kind, &batch).await?;
            old.extend(batch.into_iter().filter(|row| !needed.contains(&deciding_id(kind, row))));
            if is_last || old.len() >= most {
                old.truncate(most);
                return Ok(old);
            }
        }
    }

    /// Returns the ids for which documents of the batch must stay stored: ids of unfinished
    /// parents, and of plans and requests in use. [`deciding_id`] gives the id of each document.
    async fn find_needed(
        &self,
        kind: UnusedKind,
        batch: &[Row],
    ) -> Result<BTreeSet<String>, StoreError> {
        let ids: Vec<String> = batch.iter().map(|row| deciding_id(kind, row)).collect();
        let in_batch = doc! { "$in": ids };
        let unfinished = doc! { "$nin": FINISHED_STATES.to_vec() };
        let lookups = match kind {
            UnusedKind::Executions => {
                vec![("executions", "_id", doc! { "_id": in_batch, "state": unfinished })]
            }
            UnusedKind::Plans => vec![
                ("executions", "planId", doc! { "planId": &in_batch }),
                ("saved", "planId", doc! { "planId": &in_batch }),
                ("plans", "subPlans", doc! { "subPlans": in_batch }),
            ],
            UnusedKind::Requests => vec![
                ("executions", "requestId", doc! { "requestId": &in_batch }),
                ("plans", "requestId", doc! { "requestId": in_batch }),
            ],
        };
        let mut needed = BTreeSet::new();
        for (collection, field, query) in lookups {
            let found = match collection {
                "executions" => self.heads.distinct(field, query).await,
                other => self.collection(other).distinct(field, query).await,
            };
            needed.append(&mut to_texts(&found.map_err(|err| to_store_error(&err))?));
        }
        Ok(needed)
    }

    async fn remove_documents(&self, kind: UnusedKind, ids: &[String]) -> Result<(), StoreError> {
        let updates: Vec<Row> = ids
            .iter()
            .map(|id| {
                let begun = doc! { "$currentDate": { "at": true } };
                doc! { "q": { "_id": id }, "u": begun, "upsert": true }
            })
            .collect();
        self.run(commands::update_command("going", &updates, Safety::Durable)).await?;
        if kind == UnusedKind::Executions {
            // The idempotency keys are removed before the head, because an idempotency key must not
            // name an execution that is gone.
            self.remove_where("keys", vec![doc! { "executionId": { "$in": ids } }]).await?;
        }
        self.remove_where(kind.collection(), vec![doc! { "_id": { "$in": ids } }]).await?;
        self.finish_removal(kind, ids).await
    }

    /// Removes the remaining documents of objects whose first document is already removed, so that
    /// no list shows these objects.
    async fn finish_removal(&self, kind: UnusedKind, ids: &[String]) -> Result<(), StoreError> {
        match kind {
            UnusedKind::Executions => {
                self.remove_where("inbox", vec![doc! { "executionId": { "$in": ids } }]).await?;
                let logs = ids.iter().map(|id| rows::log_range(id, Bson::MinKey, Bson::MaxKey));
                self.remove_where("events", logs.collect()).await?;
                let settlements = ids.iter().map(|id| records::settlement_range(id));
                self.remove_where("records", settlements.collect()).await?;
            }
            UnusedKind::Plans => {
                let parts = ids.iter().map(|id| plan_parts_range(id));
                self.remove_where("parts", parts.collect()).await?;
            }
            UnusedKind::Requests => {
                let entries = ids.iter().map(|id| transcript_range(id));
                self.remove_where("transcripts", entries.collect()).await?;
            }
        }
        for id in ids.iter().filter_map(|id| id.parse().ok()) {
            self.known_ends.remove(id);
        }
        self.remove_where("going", vec![doc! { "_id": { "$in": ids } }]).await
    }

    /// Finishes removals that a crash interrupted. A removal whose first document still exists is
    /// dropped instead, because that document may be in use again.
    async fn finish_abandoned_removals(&self) -> Result<(), StoreError> {
        let latest = doc! { "$subtract": ["$$NOW", ABANDONED_AFTER_MS] };
        let abandoned = doc! { "$expr": { "$lt": ["$at", latest] } };
        let abandoned = self.collection("going").find(abandoned).limit(MAX_ABANDONED).await;
        let abandoned: Vec<String> = lists::read_all(abandoned).await?.iter().map(row_id).collect();
        for kind in UnusedKind::ALL {
            let of_kind = abandoned.iter().filter(|id| id.starts_with(kind.id_prefix()));
            let ids: Vec<String> = of_kind.cloned().collect();
            if ids.is_empty() {
                continue;
            }
            let collection = self.collection(kind.collection());
            let existing = collection.find(doc! { "_id": { "$in": &ids } });
            let existing = lists::read_all(existing.projection(doc! { "_id": 1 }).await).await?;
            let existing: BTreeSet<String> = existing.iter().map(row_id).collect();
            let (not_begun, begun): (Vec<_>, Vec<_>) =
                ids.into_iter().partition(|id| existing.contains(id));
            self.remove_where("going", vec![doc! { "_id": { "$in": not_begun } }]).await?;
            self.finish_removal(kind, &begun).await?;
        }
        Ok(())
    }

    async fn remove_where(&self, collection: &str, queries: Vec<Row>) -> Result<(), StoreError> {
        if queries.is_empty() {
            return Ok(());
        }
        self.run(commands::remove_where_command(collection, queries)).await
    }

    async fn run(
        &self,
        command: Result<mongodb::bson::RawDocumentBuf, StoreError>,
    ) -> Result<(), StoreError> {
        commands::run_write(&self.database, command?).await.map(drop)
    }
}

/// Returns the id that decides whether the document is kept: the parent of an execution, otherwise
/// the document's own id.
fn deciding_id(kind: UnusedKind, row: &Row) -> String {
    let field = if kind == UnusedKind::Executions { "parentExecutionId" } else { "_id" };
    row.get_str(field).unwrap_or_default().to_owned()
}

fn row_id(row: &Row) -> String {
    row.get_str("_id").unwrap_or_default().to_owned()
}

/// Selects the parts of a plan. If `parts` is sharded, the server finds the shard by `_id.of`,
/// because a range of `_id` names no shard.
pub(super) fn plan_parts_range(id: &str) -> Row {
    let range =
        doc! { "$gte": { "of": id, "n": Bson::MinKey }, "$lt": { "of": id, "n": Bson::MaxKey } };
    doc! { "_id": range, "_id.of": id }
}

fn to_texts(values: &[Bson]) -> BTreeSet<String> {
    values.iter().filter_map(Bson::as_str).map(str::to_owned).collect()
}

async fn next_batch(found: &mut Cursor<Row>) -> Result<Vec<Row>, StoreError> {
    let mut rows = Vec::with_capacity(BATCH_LEN);
    while rows.len() < BATCH_LEN
        && let Some(row) = found.try_next().await.map_err(|err| to_store_error(&err))?
    {
        rows.push(row);
    }
    Ok(rows)
}
