//! Records in MongoDB. A record that all nodes must read again is written together with the
//! revision in one transaction, because a crash could otherwise leave a change that no other node
//! notices.

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
    connection::{MAJORITY_TIMEOUT, is_duplicate_key, to_store_error},
    json::{self, Times},
    lists, rows,
};

pub(super) const RECORDS: &str = "records";
/// The field with the exact time of a record.
pub(super) const AT_MICROS: &str = "atMicros";
/// Number of writes after which the records of a kind with a limit are counted.
const WRITES_PER_COUNT: usize = 256;
/// Maximum number of records in one batch of a read, and in one removal.
const BATCH_LEN: usize = 1_000;
/// Maximum number of attempts to write a record while other processes insert the same record.
const MAX_ATTEMPTS: usize = 3;

#[derive(Clone, Debug)]
enum RecordWrite {
    Insert(Row),
    Replace(Row),
    /// Does nothing if `expected` finds no record. Never inserts.
    ReplaceIf {
        expected: Row,
        row: Row,
    },
    Remove(Row),
}

impl RecordWrite {
    /// Returns `true` if a record was changed.
    async fn run(
        &self,
        records: &Collection<Row>,
        session: Option<&mut ClientSession>,
    ) -> Result<bool, Error> {
        match self {
            Self::Insert(row) => {
                let insert = records.insert_one(row);
                in_session(session, insert, InsertOne::session).await?;
                Ok(true)
            }
            Self::Replace(row) => {
                let id = doc! { "_id": row.get("_id") };
                let replace = records.replace_one(id, row).upsert(true);
                in_session(session, replace, ReplaceOne::session).await?;
                Ok(true)
            }
            Self::ReplaceIf { expected, row } => {
                let replace = records.replace_one(expected.clone(), row);
                let replaced = in_session(session, replace, ReplaceOne::session).await?;
                Ok(replaced.matched_count > 0)
            }
            Self::Remove(id) => {
                let remove = records.delete_one(id.clone());
                let removed = in_session(session, remove, Delete::session).await?;
                Ok(removed.deleted_count > 0)
            }
        }
    }
}

fn in_session<'a, A>(
    session: Option<&'a mut ClientSession>,
    action: A,
    set_session: impl FnOnce(A, &'a mut ClientSession) -> A,
) -> A {
    match session {
        Some(session) => set_session(action, session),
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
        let found = self.records_of(kind).find_one(doc! { "_id": record_id(kind, name) }).await;
        found.map_err(|err| to_store_error(&err))?.map(|row| read_record(&row, kind)).transpose()
    }

    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        let row = record_row(record)?;
        let write = match &unless {
            WriteCondition::ValueDiffers(value) => {
                let Some(expected) = self.find_expected(record, value).await? else {
                    return Ok(false);
                };
                RecordWrite::ReplaceIf { expected, row }
            }
            WriteCondition::Never => RecordWrite::Replace(row),
            WriteCondition::Exists => RecordWrite::Insert(row),
            WriteCondition::ChangedSince(at) => {
                let time_field = Table::of_kind(record.kind).time_field;
                let expected = doc! { "_id": row.get("_id"), time_field: at.timestamp_micros() };
                RecordWrite::ReplaceIf { expected, row }
            }
        };
        let is_changed = self.write_record(record.kind, &write).await?;
        if let Some(most) = record.kind.max_records() {
            self.remove_excess_records(record.kind, most).await?;
        }
        Ok(is_changed)
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        let Some(span) = page.span() else { return Ok(Vec::new()) };
        let order = if page.newest { -1 } else { 1 };
        let records = self.records_of(kind);
        let found = records.find(name_range(kind, span)).sort(doc! { "_id": order });
        // Names are in the index, so the server reads no documents.
        let found = if page.names_only { found.projection(doc! { "_id": 1 }) } else { found };
        let batch_len = u32::try_from(page.first.min(BATCH_LEN)).unwrap_or(u32::MAX);
        let mut found = found.batch_size(batch_len).await.map_err(|err| to_store_error(&err))?;
        let mut records = Vec::new();
        while records.len() < page.first
            && let Some(row) = found.try_next().await.map_err(|err| to_store_error(&err))?
        {
            let record =
                if page.names_only { read_name_only(&row, kind) } else { read_record(&row, kind) };
            records.extend(skip_damaged(record)?);
        }
        Ok(records)
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        let id = doc! { "_id": record_id(kind, name) };
        self.write_record(kind, &RecordWrite::Remove(id)).await
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        let Some(row) = self.find("meta", RECORDS).await? else { return Ok(0) };
        Ok(rows::read_integer(&row, "revision", "meta")?.cast_unsigned())
    }
}

impl Mongo {
    /// Returns a filter that finds the record of this name as long as it has this value. It
    /// compares the fields as the server has them, because a value can have several forms in BSON.
    async fn find_expected(
        &self,
        record: &Record,
        value: &Value,
    ) -> Result<Option<Row>, StoreError> {
        let (kind, id) = (record.kind, record_id(record.kind, record.name.as_str()));
        let found = self.records_of(kind).find_one(doc! { "_id": id }).await;
        let Some(row) = found.map_err(|err| to_store_error(&err))? else { return Ok(None) };
        if *read_record(&row, kind)?.value != *value {
            return Ok(None);
        }
        let field = |(name, value): (String, Bson)| {
            // `$eq` keeps the server from reading an operator in a field of the value.
            let value = if name == "_id" { value } else { doc! { "$eq": value }.into() };
            (name, value)
        };
        Ok(Some(row.into_iter().map(field).collect()))
    }

    async fn write_record(
        &self,
        kind: RecordKind,
        write: &RecordWrite,
    ) -> Result<bool, StoreError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let written = if kind.is_shared_by_nodes() {
                self.write_with_revision(write).await
            } else {
                write.run(&self.records_of(kind), None).await
            };
            let is_insert = matches!(write, RecordWrite::Insert(_));
            let is_changed = match written {
                Ok(is_changed) => is_changed,
                Err(err) if is_duplicate_key(&err) && is_insert => false,
                Err(err) if is_duplicate_key(&err) && attempts < MAX_ATTEMPTS => continue,
                Err(err) => return Err(to_store_error(&err)),
            };
            if is_changed && kind.is_shared_by_nodes() {
                self.hints.wake_records();
            }
            return Ok(is_changed);
        }
    }

    async fn write_with_revision(&self, write: &RecordWrite) -> Result<bool, Error> {
        let (records, meta) = (self.collection(RECORDS), self.collection("meta"));
        let mut session = self.database.client().start_session().await?;
        let transaction = session.start_transaction().and_run(
            (write, records, meta),
            |session, (write, records, meta)| {
                async move {
                    let is_changed = write.run(records, Some(session)).await?;
                    if is_changed {
                        let next = doc! { "$inc": { "revision": 1_i64 } };
                        let update = meta.update_one(doc! { "_id": RECORDS }, next).upsert(true);
                        update.session(session).await?;
                    }
                    Ok(is_changed)
                }
                .boxed()
            },
        );
        let too_long = |_| Error::from(io::Error::from(io::ErrorKind::TimedOut));
        timeout(MAJORITY_TIMEOUT, transaction).await.map_err(too_long)?
    }

    /// Removes the oldest records, so that the kind stays within its limit until the next count.
    /// Call this function at each write. Most calls do nothing.
    async fn remove_excess_records(&self, kind: RecordKind, most: usize) -> Result<(), StoreError> {
        let counters = &self.cleanup_counters;
        let counter = if kind == RecordKind::Call { &counters.calls } else { &counters.outputs };
        let write = counter.fetch_add(1, Ordering::Relaxed);
        if !write.is_multiple_of(WRITES_PER_COUNT as u64) {
            return Ok(());
        }
        let records = self.records_of(kind);
        let count = if Table::of_kind(kind).is_shared() {
            // Selects a range of the whole `_id`, because there is no index of `_id.k`.
            let all = name_range(kind, (Bound::Unbounded, Bound::Unbounded));
            records.count_documents(all).await
        } else {
            records.estimated_document_count().await
        };
        let count =
            usize::try_from(count.map_err(|err| to_store_error(&err))?).unwrap_or(usize::MAX);
        let mut excess = count.saturating_add(WRITES_PER_COUNT).saturating_sub(most);
        while excess > 0 {
            let batch_len = excess.min(BATCH_LEN);
            let removed = self.remove_oldest(kind, kind_filter(kind), batch_len).await?;
            if removed == 0 {
                break;
            }
            excess = excess.saturating_sub(removed);
        }
        Ok(())
    }

    /// Removes calls before a time, and cached outputs that have expired at that time.
    pub(super) async fn remove_old_records(&self, before: Timestamp) -> Result<(), StoreError> {
        let before = before.timestamp_micros();
        let expired = doc! { "until": { "$lte": before } };
        self.outputs.delete_many(expired).await.map_err(|err| to_store_error(&err))?;
        let mut old = kind_filter(RecordKind::Call);
        old.insert(AT_MICROS, doc! { "$lt": before });
        while self.remove_oldest(RecordKind::Call, old.clone(), BATCH_LEN).await? == BATCH_LEN {}
        Ok(())
    }

    async fn remove_oldest(
        &self,
        kind: RecordKind,
        filter: Row,
        most: usize,
    ) -> Result<usize, StoreError> {
        let records = self.records_of(kind);
        let found = records.find(filter).sort(doc! { Table::of_kind(kind).time_field: 1 });
        let found = found.projection(doc! { "_id": 1 }).limit(lists::to_limit(most)).await;
        let found = lists::read_all(found).await?;
        let ids: Vec<_> = found.into_iter().filter_map(|mut row| row.remove("_id")).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let oldest = doc! { "_id": { "$in": &ids } };
        records.delete_many(oldest).await.map_err(|err| to_store_error(&err))?;
        Ok(ids.len())
    }

    fn records_of(&self, kind: RecordKind) -> Collection<Row> {
        match kind {
            RecordKind::Output => self.outputs.clone(),
            _ => self.collection(Table::of_kind(kind).name),
        }
    }
}

struct Table {
    name: &'static str,
    time_field: &'static str,
}

impl Table {
    fn of_kind(kind: RecordKind) -> Self {
        let (name, time_field) = match kind {
            RecordKind::Output => ("outputs", "until"),
            RecordKind::Key => ("keys", "at"),
            RecordKind::SavedPlan => ("saved", "at"),
            RecordKind::Usage => ("usage", "calls"),
            _ => (RECORDS, AT_MICROS),
        };
        Self { name, time_field }
    }

    /// Returns `true` if other kinds are in the same collection.
    fn is_shared(&self) -> bool {
        self.name == RECORDS
    }
}

/// The stored name of [`RecordKind::Call`], which is also in the definition of a partial index.
pub(super) const CALL: &str = "call";

fn kind_filter(kind: RecordKind) -> Row {
    if Table::of_kind(kind).is_shared() {
        doc! { "_id.k": kind.as_str() }
    } else {
        doc! {}
    }
}

fn record_id(kind: RecordKind, name: impl Into<Bson>) -> Bson {
    if Table::of_kind(kind).is_shared() {
        doc! { "k": kind.as_str(), "n": name.into() }.into()
    } else {
        name.into()
    }
}

/// Selects the settlements of an execution. Their names begin with its id and `/`, and `0` is the
/// first character after `/`, so it ends the range.
pub(super) fn settlement_range(execution: &str) -> Row {
    let id = |end: &str| record_id(RecordKind::Settlement, format!("{execution}{end}"));
    doc! { "_id": { "$gte": id("/"), "$lt": id("0") } }
}

fn name_range(kind: RecordKind, (from, to): Span) -> Row {
    let (from_operator, from) = to_operand("$gte", "$gt", from, Bson::MinKey);
    let (to_operator, to) = to_operand("$lte", "$lt", to, Bson::MaxKey);
    doc! { "_id": { from_operator: record_id(kind, from), to_operator: record_id(kind, to) } }
}

/// Returns MongoDB's comparison operator for a bound, and the value to compare with.
fn to_operand(
    inclusive: &'static str,
    exclusive: &'static str,
    bound: Bound<String>,
    unbounded: Bson,
) -> (&'static str, Bson) {
    match bound {
        Bound::Included(name) => (inclusive, name.into()),
        Bound::Excluded(name) => (exclusive, name.into()),
        Bound::Unbounded => (exclusive, unbounded),
    }
}

fn record_row(record: &Record) -> Result<Row, StoreError> {
    let (kind, json, at) = (record.kind, record.encode()?, record.at.timestamp_micros());
    let text = |field: &str| record.value[field].as_str().unwrap_or_default();
    let mut row = doc! { "_id": record_id(kind, record.name.as_str()) };
    match kind {
        RecordKind::Output => row.extend(doc! {
            "until": at,
            "expires": DateTime::from_millis(record.at.timestamp_millis()),
            "json": json,
        }),
        RecordKind::Key => row.extend(doc! {
            "executionId": text("executionId"),
            "fingerprint": text("fingerprint"),
        }),
        RecordKind::SavedPlan => {
            row.extend(doc! { "planId": text("planId"), "at": at });
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
        _ => row.extend(doc! {
            "at": rows::to_date(record.at),
            AT_MICROS: at,
            "value": json::Value::from_json(&json, Times::None)?.into_bson()?,
        }),
    }
    Ok(row)
}

fn read_name(row: &Row, kind: RecordKind) -> Result<&str, StoreError> {
    if Table::of_kind(kind).is_shared() {
        let id = row.get_document("_id").map_err(|err| StoreError::corrupt("a record", err))?;
        rows::read_text(id, "n", "a record")
    } else {
        rows::read_text(row, "_id", "a record")
    }
}

fn read_name_only(row: &Row, kind: RecordKind) -> Result<Record, StoreError> {
    Ok(Record::new(kind, read_name(row, kind)?, &Value::Null, Timestamp::UNIX_EPOCH))
}

fn read_record(row: &Row, kind: RecordKind) -> Result<Record, StoreError> {
    let name = read_name(row, kind)?;
    let at = match kind {
        RecordKind::Key => Timestamp::UNIX_EPOCH,
        _ => rows::read_time(row, Table::of_kind(kind).time_field, name)?,
    };
    let value = match kind {
        RecordKind::Key => json!({
            "executionId": rows::read_text(row, "executionId", name)?,
            "fingerprint": rows::read_text(row, "fingerprint", name)?,
        }),
        RecordKind::SavedPlan => {
            let inputs = row.get_str("inputs").ok().map(serde_json::from_str::<Value>).transpose();
            let inputs = inputs.map_err(|err| StoreError::corrupt(name, err))?;
            json!({ "planId": rows::read_text(row, "planId", name)?, "inputs": inputs })
        }
        RecordKind::Usage => {
            let times = row.get_document("times").map_err(|err| StoreError::corrupt(name, err))?;
            let times = times.iter().filter_map(|(bucket, n)| Some((bucket, n.as_i64()?)));
            json!({
                "tool": name,
                "calls": rows::read_integer(row, "calls", name)?,
                "failures": rows::read_integer(row, "failures", name)?,
                "last": rows::read_integer(row, "last", name)?,
                "times": times.collect::<BTreeMap<_, _>>(),
            })
        }
        // The values of the cache stay text, because developers do not search them.
        RecordKind::Output => {
            return Record::decode(kind, name, at, rows::read_text(row, "json", name)?);
        }
        _ => {
            let what = format!("{} {name}", kind.as_str());
            let value = row.get("value").ok_or_else(|| StoreError::corrupt(&what, "no `value`"))?;
            return Record::decode(kind, name, at, &json::bson_to_text(value, &what)?);
        }
    };
    Ok(Record::new(kind, name, &value, at))
}
