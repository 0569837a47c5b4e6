//! Records in MongoDB. What all nodes must agree on is written and counted in one transaction, so
//! that neither a crash nor a caller that goes away leaves a change that nobody looks at.

use std::{io, ops::Bound, sync::atomic::Ordering};

use async_trait::async_trait;
use futures::{FutureExt, TryStreamExt};
use mongodb::{
    ClientSession, Collection,
    action::{Delete, InsertOne, ReplaceOne},
    bson::{Bson, Document as Row, doc},
    error::Error,
};
use shared::{
    clock::Timestamp,
    limits,
    store::{Record, RecordKind, RecordPage, Records, StoreError, Usage, WriteCondition},
};
use tokio::time::timeout;

use super::{
    Mongo,
    connection::{CONFIRMATION, failed, is_duplicate},
    lists, rows,
};

/// The collection.
pub(super) const RECORDS: &str = "records";
/// So many calls are written between one count and the next.
const COUNT_EVERY: usize = 256;
/// Calls that are removed together.
const BATCH: usize = 1_000;
/// How often a record is written again that another wrote for the first time just then.
const TRIES: usize = 3;

/// What is done to one record. Each says whether it did anything.
#[derive(Clone, Debug)]
enum Writing {
    Insert(Row),
    Replace(Row),
    /// Only where the one that is there was written at this time, in microseconds.
    Change(Row, i64),
    Remove(Row),
}

impl Writing {
    async fn run(
        &self,
        records: &Collection<Row>,
        session: Option<&mut ClientSession>,
    ) -> Result<bool, Error> {
        match self {
            Self::Insert(row) => {
                let insert = records.insert_one(row);
                with(session, insert, InsertOne::session).await?;
                Ok(true)
            }
            Self::Replace(row) => {
                let id = doc! { "_id": row.get("_id") };
                let replace = records.replace_one(id, row).upsert(true);
                with(session, replace, ReplaceOne::session).await?;
                Ok(true)
            }
            Self::Change(row, since) => {
                let before = doc! { "_id": row.get("_id"), "at": since };
                let replace = records.replace_one(before, row);
                let replaced = with(session, replace, ReplaceOne::session).await?;
                Ok(replaced.matched_count > 0)
            }
            Self::Remove(id) => {
                let remove = records.delete_one(id.clone());
                let removed = with(session, remove, Delete::session).await?;
                Ok(removed.deleted_count > 0)
            }
        }
    }
}

/// Does something inside a transaction, if there is one.
fn with<'a, A>(
    session: Option<&'a mut ClientSession>,
    action: A,
    inside: impl FnOnce(A, &'a mut ClientSession) -> A,
) -> A {
    match session {
        Some(session) => inside(action, session),
        None => action,
    }
}

#[async_trait]
impl Records for Mongo {
    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        let row = doc! {
            "_id": id(record.kind, &record.name),
            "at": record.at.timestamp_micros(),
            "json": record.encode()?,
        };
        let writing = match &unless {
            WriteCondition::Never => Writing::Replace(row),
            WriteCondition::Exists => Writing::Insert(row),
            WriteCondition::ChangedSince(at) => Writing::Change(row, at.timestamp_micros()),
        };
        let put = self.write_record(record.kind, &writing).await?;
        if record.kind == RecordKind::Call {
            self.count_calls().await?;
        }
        Ok(put)
    }

    async fn record(&self, kind: RecordKind, name: &str) -> Result<Option<Record>, StoreError> {
        let found = self.collection(RECORDS).find_one(doc! { "_id": id(kind, name) }).await;
        found.map_err(|err| failed(&err))?.map(|row| read(&row, kind)).transpose()
    }

    async fn records(&self, kind: RecordKind, page: RecordPage) -> Result<Vec<Record>, StoreError> {
        let Some(span) = page.span() else { return Ok(Vec::new()) };
        let order = if page.newest { -1 } else { 1 };
        let records = self.collection(RECORDS);
        let found = records.find(within(kind, span)).sort(doc! { "_id": order });
        let most = u32::try_from(page.first.min(BATCH)).unwrap_or(u32::MAX);
        let mut found = found.batch_size(most).await.map_err(|err| failed(&err))?;
        let mut records = Vec::new();
        while records.len() < page.first
            && let Some(row) = found.try_next().await.map_err(|err| failed(&err))?
        {
            records.append(&mut lists::good(std::iter::once(read(&row, kind)))?);
        }
        Ok(records)
    }

    async fn record_names(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<String>, StoreError> {
        let Some(span) = page.span() else { return Ok(Vec::new()) };
        let order = if page.newest { -1 } else { 1 };
        let records = self.collection(RECORDS);
        let found = records.find(within(kind, span)).sort(doc! { "_id": order });
        let found = found.projection(doc! { "_id": 1 }).limit(lists::limit(page.first));
        let found: Vec<Row> = match found.await {
            Ok(found) => found.try_collect().await.map_err(|err| failed(&err))?,
            Err(err) => return Err(failed(&err)),
        };
        let name = |row: &Row| {
            let id = row.get_document("_id").map_err(|err| StoreError::corrupt("a record", err))?;
            rows::text(id, "n", "a record").map(str::to_owned)
        };
        found.iter().map(name).collect()
    }

    async fn count_records(
        &self,
        kind: RecordKind,
        prefix: &str,
        most: usize,
    ) -> Result<usize, StoreError> {
        let page = RecordPage::first_records(most).with_prefix(prefix);
        let Some(span) = page.span() else { return Ok(0) };
        let records = self.collection(RECORDS);
        let count = records.count_documents(within(kind, span)).limit(most as u64).await;
        let count = count.map_err(|err| failed(&err))?;
        Ok(usize::try_from(count).unwrap_or(most))
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        self.write_record(kind, &Writing::Remove(doc! { "_id": id(kind, name) })).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        let Some(row) = self.find("meta", RECORDS).await? else { return Ok(0) };
        Ok(rows::integer(&row, "revision", "meta")?.cast_unsigned())
    }

    async fn add_usage(&self, usage: Vec<Usage>) -> Result<(), StoreError> {
        self.count_usage(&usage).await
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        self.counted_usage().await
    }
}

impl Mongo {
    async fn write_record(&self, kind: RecordKind, writing: &Writing) -> Result<bool, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let written = if kind.is_shared_by_nodes() {
                self.write_and_count(writing).await
            } else {
                writing.run(&self.collection(RECORDS), None).await
            };
            let is_changed = match written {
                Ok(is_changed) => is_changed,
                Err(err) if is_duplicate(&err) && matches!(writing, Writing::Insert(_)) => false,
                Err(err) if is_duplicate(&err) && tries < TRIES => continue,
                Err(err) => return Err(failed(&err)),
            };
            if is_changed && kind.is_shared_by_nodes() {
                self.hints.wake_records();
            }
            return Ok(is_changed);
        }
    }

    /// Writes in one transaction, and counts what all must agree on.
    async fn write_and_count(&self, writing: &Writing) -> Result<bool, Error> {
        let (records, meta) = (self.collection(RECORDS), self.collection("meta"));
        let mut session = self.database.client().start_session().await?;
        let transaction = session.start_transaction().and_run(
            (writing, records, meta),
            |session, (writing, records, meta)| {
                async move {
                    let is_changed = writing.run(records, Some(session)).await?;
                    if is_changed {
                        let more = doc! { "$inc": { "revision": 1_i64 } };
                        let counted = meta.update_one(doc! { "_id": RECORDS }, more).upsert(true);
                        counted.session(session).await?;
                    }
                    Ok(is_changed)
                }
                .boxed()
            },
        );
        let too_long = |_| Error::from(io::Error::from(io::ErrorKind::TimedOut));
        timeout(CONFIRMATION, transaction).await.map_err(too_long)?
    }

    /// Now and then removes the oldest calls, so that there is room until the next count.
    async fn count_calls(&self) -> Result<(), StoreError> {
        if !self.rounds.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(COUNT_EVERY as u64) {
            return Ok(());
        }
        let count = self.count_records(RecordKind::Call, "", usize::MAX >> 1).await?;
        let mut left = (count + COUNT_EVERY).saturating_sub(limits::CALL_HISTORY);
        while left > 0 {
            let removed = self.remove_calls(doc! { "_id.k": CALL }, left.min(BATCH)).await?;
            if removed == 0 {
                break;
            }
            left = left.saturating_sub(removed);
        }
        Ok(())
    }

    /// Removes all calls that are older.
    pub(super) async fn forget_calls(&self, before: Timestamp) -> Result<(), StoreError> {
        let old = doc! { "_id.k": CALL, "at": { "$lt": before.timestamp_micros() } };
        while self.remove_calls(old.clone(), BATCH).await? == BATCH {}
        Ok(())
    }

    /// Removes the oldest few calls of those that a query finds, and returns how many it found.
    async fn remove_calls(&self, which: Row, most: usize) -> Result<usize, StoreError> {
        let calls = self.collection(RECORDS);
        let found = calls.find(which).sort(doc! { "at": 1 }).projection(doc! { "_id": 1 });
        let found = found.limit(lists::limit(most)).await.map_err(|err| failed(&err))?;
        let found: Vec<Row> = found.try_collect().await.map_err(|err| failed(&err))?;
        let ids: Vec<_> = found.into_iter().filter_map(|mut it| it.remove("_id")).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let those = doc! { "_id": { "$in": &ids } };
        calls.delete_many(those).await.map_err(|err| failed(&err))?;
        Ok(ids.len())
    }
}

/// The kind of calls as it is written; the partial index has the same.
pub(super) const CALL: &str = "call";

fn id(kind: RecordKind, name: impl Into<Bson>) -> Row {
    doc! { "k": kind.as_str(), "n": name.into() }
}

/// Returns the query for a range of names.
fn within(kind: RecordKind, (from, to): shared::store::backend::Span) -> Row {
    let (from_is, from) = edge("$gte", "$gt", from, Bson::MinKey);
    let (to_is, to) = edge("$lte", "$lt", to, Bson::MaxKey);
    doc! { "_id": { from_is: id(kind, from), to_is: id(kind, to) } }
}

/// Returns how a bound is asked for, and what for.
fn edge(
    inclusive: &'static str,
    exclusive: &'static str,
    bound: Bound<String>,
    none: Bson,
) -> (&'static str, Bson) {
    match bound {
        Bound::Included(name) => (inclusive, name.into()),
        Bound::Excluded(name) => (exclusive, name.into()),
        Bound::Unbounded => (exclusive, none),
    }
}

fn read(row: &Row, kind: RecordKind) -> Result<Record, StoreError> {
    let id = row.get_document("_id").map_err(|err| StoreError::corrupt("a record", err))?;
    let name = rows::text(id, "n", "a record")?;
    Record::decode(kind, name, rows::time(row, "at", name)?, rows::text(row, "json", name)?)
}
