//! Records in MongoDB. What all nodes must agree on is written and counted in one transaction, so
//! that neither a crash nor a caller that goes away leaves a change that nobody looks at.

use std::{collections::BTreeMap, io, ops::Bound, sync::atomic::Ordering};

use async_trait::async_trait;
use futures::{FutureExt, TryStreamExt};
use mongodb::{
    ClientSession, Collection,
    action::{Delete, InsertOne, ReplaceOne},
    bson::{Bson, DateTime, Document as Row, doc},
    error::Error,
};
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    store::{
        KeyValue, Record, RecordKind, RecordPage, StoreError, WriteCondition,
        backend::{Span, skip_damaged},
    },
};
use tokio::time::timeout;

use super::{
    Mongo,
    connection::{CONFIRMATION, failed, is_duplicate},
    lists, rows,
};

/// The collection.
pub(super) const RECORDS: &str = "records";
/// Writes of a kind with a limit between two counts.
const COUNT_EVERY: usize = 256;
/// Records that are read or removed together.
const BATCH: usize = 1_000;
/// How often a record is written again that another wrote for the first time just then.
const TRIES: usize = 3;

/// What is done to one record. Each says whether it did anything.
#[derive(Clone, Debug)]
enum Writing {
    Insert(Row),
    Replace(Row),
    /// Only where `before` still finds the record.
    Change {
        before: Row,
        row: Row,
    },
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
            Self::Change { before, row } => {
                let replace = records.replace_one(before.clone(), row);
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
impl KeyValue for Mongo {
    async fn find_record(
        &self,
        kind: RecordKind,
        name: &str,
    ) -> Result<Option<Record>, StoreError> {
        let found = self.records(kind).find_one(doc! { "_id": id(kind, name) }).await;
        found.map_err(|err| failed(&err))?.map(|row| read(&row, kind)).transpose()
    }

    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        let row = row(record)?;
        let writing = match &unless {
            WriteCondition::Never => Writing::Replace(row),
            WriteCondition::Exists => Writing::Insert(row),
            WriteCondition::ChangedSince(at) => {
                let before = doc! { "_id": row.get("_id"), Table::of_kind(record.kind).at: at.timestamp_micros() };
                Writing::Change { before, row }
            }
        };
        let put = self.write_record(record.kind, &writing).await?;
        if let Some(most) = record.kind.max_records() {
            self.make_room(record.kind, most).await?;
        }
        Ok(put)
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        let Some(span) = page.span() else { return Ok(Vec::new()) };
        let order = if page.newest { -1 } else { 1 };
        let records = self.records(kind);
        let found = records.find(within(kind, span)).sort(doc! { "_id": order });
        // Without the values the index alone answers.
        let found = if page.names_only { found.projection(doc! { "_id": 1 }) } else { found };
        let most = u32::try_from(page.first.min(BATCH)).unwrap_or(u32::MAX);
        let mut found = found.batch_size(most).await.map_err(|err| failed(&err))?;
        let mut records = Vec::new();
        while records.len() < page.first
            && let Some(row) = found.try_next().await.map_err(|err| failed(&err))?
        {
            let read = if page.names_only { read_name(&row, kind) } else { read(&row, kind) };
            records.extend(skip_damaged(read)?);
        }
        Ok(records)
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        self.write_record(kind, &Writing::Remove(doc! { "_id": id(kind, name) })).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        let Some(row) = self.find("meta", RECORDS).await? else { return Ok(0) };
        Ok(rows::integer(&row, "revision", "meta")?.cast_unsigned())
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
                writing.run(&self.records(kind), None).await
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

    /// Now and then removes the records with the earliest times, so that there is room until the
    /// next count.
    async fn make_room(&self, kind: RecordKind, most: usize) -> Result<(), StoreError> {
        let round =
            if kind == RecordKind::Call { &self.rounds.calls } else { &self.rounds.outputs };
        if !round.fetch_add(1, Ordering::Relaxed).is_multiple_of(COUNT_EVERY as u64) {
            return Ok(());
        }
        let records = self.records(kind);
        let count = if Table::of_kind(kind).is_shared() {
            records.count_documents(of_kind(kind)).await
        } else {
            records.estimated_document_count().await
        };
        let count = usize::try_from(count.map_err(|err| failed(&err))?).unwrap_or(usize::MAX);
        let mut left = count.saturating_add(COUNT_EVERY).saturating_sub(most);
        while left > 0 {
            let removed = self.remove_earliest(kind, of_kind(kind), left.min(BATCH)).await?;
            if removed == 0 {
                break;
            }
            left = left.saturating_sub(removed);
        }
        Ok(())
    }

    /// Removes all old records of a kind with a limit: calls before a time, and outputs that have
    /// expired at it.
    pub(super) async fn remove_old_records(&self, before: Timestamp) -> Result<(), StoreError> {
        let before = before.timestamp_micros();
        let expired = doc! { "until": { "$lte": before } };
        self.outputs.delete_many(expired).await.map_err(|err| failed(&err))?;
        let mut old = of_kind(RecordKind::Call);
        old.insert("at", doc! { "$lt": before });
        while self.remove_earliest(RecordKind::Call, old.clone(), BATCH).await? == BATCH {}
        Ok(())
    }

    /// Removes the first few records that a query finds, by time, and returns how many it found.
    async fn remove_earliest(
        &self,
        kind: RecordKind,
        which: Row,
        most: usize,
    ) -> Result<usize, StoreError> {
        let records = self.records(kind);
        let found = records.find(which).sort(doc! { Table::of_kind(kind).at: 1 });
        let found = found.projection(doc! { "_id": 1 }).limit(lists::limit(most)).await;
        let found = lists::all_rows(found).await?;
        let ids: Vec<_> = found.into_iter().filter_map(|mut row| row.remove("_id")).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let those = doc! { "_id": { "$in": &ids } };
        records.delete_many(those).await.map_err(|err| failed(&err))?;
        Ok(ids.len())
    }

    fn records(&self, kind: RecordKind) -> Collection<Row> {
        match kind {
            RecordKind::Output => self.outputs.clone(),
            _ => self.collection(Table::of_kind(kind).name),
        }
    }
}

/// The collection of a kind. The kinds of the first versions have collections of their own.
struct Table {
    name: &'static str,
    /// The field with the time of a record.
    at: &'static str,
}

impl Table {
    fn of_kind(kind: RecordKind) -> Self {
        let (name, at) = match kind {
            RecordKind::Output => ("outputs", "until"),
            RecordKind::Key => ("keys", "at"),
            RecordKind::SavedPlan => ("saved", "at"),
            RecordKind::Usage => ("usage", "calls"),
            _ => (RECORDS, "at"),
        };
        Self { name, at }
    }

    /// Returns `true` if other kinds are in the same collection.
    fn is_shared(&self) -> bool {
        self.name == RECORDS
    }
}

/// The kind of calls as it is written; the partial index has the same.
pub(super) const CALL: &str = "call";

fn of_kind(kind: RecordKind) -> Row {
    if Table::of_kind(kind).is_shared() {
        doc! { "_id.k": kind.as_str() }
    } else {
        doc! {}
    }
}

fn id(kind: RecordKind, name: impl Into<Bson>) -> Bson {
    if Table::of_kind(kind).is_shared() {
        doc! { "k": kind.as_str(), "n": name.into() }.into()
    } else {
        name.into()
    }
}

/// Returns the query for a range of names.
/// Selects the settlements of an execution. Their names begin with its id and `/`.
pub(super) fn settlements_of(execution: &str) -> Row {
    let name = |end: &str| id(RecordKind::Settlement, format!("{execution}{end}"));
    doc! { "_id": { "$gte": name("/"), "$lt": name("0") } }
}

fn within(kind: RecordKind, (from, to): Span) -> Row {
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

/// Returns the document of a record.
fn row(record: &Record) -> Result<Row, StoreError> {
    let (kind, json, at) = (record.kind, record.encode()?, record.at.timestamp_micros());
    let text = |field: &str| record.value[field].as_str().unwrap_or_default();
    let mut row = doc! { "_id": id(kind, record.name.as_str()) };
    match kind {
        RecordKind::Output => row.extend(doc! {
            "until": at,
            "expires": DateTime::from_millis(record.at.timestamp_millis()),
            "json": json,
        }),
        RecordKind::Key => row.extend(doc! {
            "execution": text("execution"),
            "fingerprint": text("fingerprint"),
        }),
        RecordKind::SavedPlan => {
            row.extend(doc! { "planId": text("plan"), "at": at });
            record.value.get("inputs").map(|inputs| row.insert("inputs", inputs.to_string()));
        }
        RecordKind::Usage => {
            let count = |value: &Value| value.as_i64().unwrap_or_default();
            let times = record.value["times"].as_object().into_iter().flatten();
            let times: Row =
                times.map(|(bucket, calls)| (bucket.clone(), count(calls).into())).collect();
            row.extend(doc! {
                "calls": at,
                "failures": count(&record.value["failures"]),
                "last": count(&record.value["last"]),
                "times": times,
            });
        }
        _ => row.extend(doc! { "at": at, "json": json }),
    }
    Ok(row)
}

fn name(row: &Row, kind: RecordKind) -> Result<&str, StoreError> {
    if Table::of_kind(kind).is_shared() {
        let id = row.get_document("_id").map_err(|err| StoreError::corrupt("a record", err))?;
        rows::text(id, "n", "a record")
    } else {
        rows::text(row, "_id", "a record")
    }
}

fn read_name(row: &Row, kind: RecordKind) -> Result<Record, StoreError> {
    Ok(Record::new(kind, name(row, kind)?, &Value::Null, Timestamp::UNIX_EPOCH))
}

fn read(row: &Row, kind: RecordKind) -> Result<Record, StoreError> {
    let name = name(row, kind)?;
    let at = match kind {
        RecordKind::Key => Timestamp::UNIX_EPOCH,
        _ => rows::time(row, Table::of_kind(kind).at, name)?,
    };
    let value = match kind {
        RecordKind::Key => json!({
            "execution": rows::text(row, "execution", name)?,
            "fingerprint": rows::text(row, "fingerprint", name)?,
        }),
        RecordKind::SavedPlan => {
            let inputs = row.get_str("inputs").ok().map(serde_json::from_str::<Value>).transpose();
            let inputs = inputs.map_err(|err| StoreError::corrupt(name, err))?;
            json!({ "plan": rows::text(row, "planId", name)?, "inputs": inputs })
        }
        RecordKind::Usage => {
            let times = row.get_document("times").map_err(|err| StoreError::corrupt(name, err))?;
            let times = times.iter().filter_map(|(bucket, n)| Some((bucket, n.as_i64()?)));
            json!({
                "tool": name,
                "calls": rows::integer(row, "calls", name)?,
                "failures": rows::integer(row, "failures", name)?,
                "last": rows::integer(row, "last", name)?,
                "times": times.collect::<BTreeMap<_, _>>(),
            })
        }
        _ => return Record::decode(kind, name, at, rows::text(row, "json", name)?),
    };
    Ok(Record::new(kind, name, &value, at))
}
