//! Records in the file.

use std::ops::Bound;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter, types::Value};
use shared::{
    clock::Timestamp,
    limits,
    store::{Record, RecordKind, RecordPage, Records, StoreError, Usage, WriteCondition},
};

use super::{
    Answer, Change, Sqlite,
    connection::failed,
    removal::Removal,
    rows::{self, good},
    usage,
};

/// So many calls are written between one count and the next.
const COUNT_EVERY: usize = 256;
/// Calls that one transaction removes: others write between two of them.
const BATCH: usize = 256;

/// A record as it is kept.
#[derive(Debug)]
pub(super) struct RecordRow {
    kind: RecordKind,
    name: String,
    at: i64,
    json: String,
}

impl RecordRow {
    fn new(record: &Record) -> Result<Self, StoreError> {
        let Record { kind, name, at, .. } = record;
        let json = record.encode()?;
        Ok(Self { kind: *kind, name: name.clone(), at: at.timestamp_micros(), json })
    }

    pub(super) fn kind(&self) -> RecordKind {
        self.kind
    }

    pub(super) fn bytes(&self) -> usize {
        self.json.len()
    }
}

/// Sees to it that there are not too many calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// How many were written since the last count.
    written: Option<usize>,
}

impl Calls {
    /// Writes a record, of a call or of something else.
    pub(super) fn put(
        &mut self,
        connection: &Connection,
        row: &RecordRow,
        unless: &WriteCondition,
    ) -> rusqlite::Result<Answer> {
        let RecordRow { kind, name, at, json } = row;
        let kind = kind.as_str();
        let written = match unless {
            WriteCondition::Never => {
                let sql = "INSERT INTO records (kind, name, at, json) VALUES (?1, ?2, ?3, ?4)
                    ON CONFLICT (kind, name) DO UPDATE SET at = excluded.at, json = excluded.json";
                connection.prepare_cached(sql)?.execute(params![kind, name, at, json])?
            }
            WriteCondition::Exists => {
                let sql = "INSERT INTO records (kind, name, at, json) VALUES (?1, ?2, ?3, ?4)
                    ON CONFLICT (kind, name) DO NOTHING";
                connection.prepare_cached(sql)?.execute(params![kind, name, at, json])?
            }
            WriteCondition::ChangedSince(since) => {
                let sql = "UPDATE records SET at = ?3, json = ?4
                    WHERE kind = ?1 AND name = ?2 AND at = ?5";
                let since = since.timestamp_micros();
                connection.prepare_cached(sql)?.execute(params![kind, name, at, json, since])?
            }
        };
        if written == 0 {
            return Ok(Answer::Taken);
        }
        if row.kind == RecordKind::Call {
            self.count(connection)?;
        }
        note_change(connection, row.kind)?;
        Ok(Answer::Done)
    }

    fn count(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let written = self.written.map_or(COUNT_EVERY, |it| it + 1);
        self.written = Some(written);
        if written < COUNT_EVERY {
            return Ok(());
        }
        self.written = Some(0);
        let sql = "SELECT count(*) FROM records WHERE kind = 'call'";
        let count: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        let most = (limits::CALL_HISTORY - COUNT_EVERY).cast_signed() as i64;
        remove_calls(connection, i64::MAX, count - most).map(drop)
    }
}

/// Removes a record, if there is one.
pub(super) fn remove(
    connection: &Connection,
    kind: RecordKind,
    name: &str,
) -> rusqlite::Result<Answer> {
    let sql = "DELETE FROM records WHERE kind = ?1 AND name = ?2";
    if connection.prepare_cached(sql)?.execute([kind.as_str(), name])? == 0 {
        return Ok(Answer::Absent);
    }
    note_change(connection, kind)?;
    Ok(Answer::Done)
}

/// Removes the first few calls that are older.
pub(super) fn remove_old_calls(
    connection: &Connection,
    before: Timestamp,
) -> rusqlite::Result<usize> {
    remove_calls(connection, before.timestamp_micros(), BATCH.cast_signed() as i64)
}

fn remove_calls(connection: &Connection, before: i64, most: i64) -> rusqlite::Result<usize> {
    if most <= 0 {
        return Ok(0);
    }
    let sql = "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records
        WHERE kind = 'call' AND at < ?1 ORDER BY at, name LIMIT ?2)";
    connection.prepare_cached(sql)?.execute([before, most])
}

fn note_change(connection: &Connection, kind: RecordKind) -> rusqlite::Result<()> {
    if !kind.is_shared_by_nodes() {
        return Ok(());
    }
    let sql = "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE name = 'records_revision'";
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

impl Sqlite {
    /// Removes all calls that are older, a few at a time.
    pub(super) async fn forget_calls(&self, before: Timestamp) -> Result<(), StoreError> {
        loop {
            match self.write(Change::Remove(Removal::Calls { before })).await? {
                Answer::Removed(BATCH) => (),
                _ => return Ok(()),
            }
        }
    }
}

#[async_trait]
impl Records for Sqlite {
    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        let row = RecordRow::new(record)?;
        Ok(self.write(Change::Record { row, unless }).await?.is_done())
    }

    async fn record(&self, kind: RecordKind, name: &str) -> Result<Option<Record>, StoreError> {
        let name = name.to_owned();
        self.readers.read(move |connection| find(connection, kind, &name)).await
    }

    async fn records(&self, kind: RecordKind, page: RecordPage) -> Result<Vec<Record>, StoreError> {
        self.readers.read(move |connection| list(connection, kind, &page)).await
    }

    async fn record_names(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<String>, StoreError> {
        self.readers.read(move |connection| names(connection, kind, &page)).await
    }

    async fn count_records(
        &self,
        kind: RecordKind,
        prefix: &str,
        most: usize,
    ) -> Result<usize, StoreError> {
        let page = RecordPage::first_records(most).with_prefix(prefix);
        self.readers.read(move |connection| count(connection, kind, &page)).await
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        let change = Change::Forget { kind, name: name.to_owned() };
        Ok(self.write(change).await?.is_done())
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.readers.read(revision).await
    }

    async fn add_usage(&self, usage: Vec<Usage>) -> Result<(), StoreError> {
        self.write(Change::Usage(usage)).await.map(drop)
    }

    async fn usage(&self) -> Result<Vec<Usage>, StoreError> {
        self.readers.read(usage::all).await
    }
}

fn find(
    connection: &Connection,
    kind: RecordKind,
    name: &str,
) -> Result<Option<Record>, StoreError> {
    let sql = "SELECT name, at, json FROM records WHERE kind = ?1 AND name = ?2";
    let mut statement = connection.prepare_cached(sql).map_err(|err| failed(&err))?;
    let mut found = statement.query([kind.as_str(), name]).map_err(|err| failed(&err))?;
    found.next().map_err(|err| failed(&err))?.map(|row| read(row, kind)).transpose()
}

fn list(
    connection: &Connection,
    kind: RecordKind,
    page: &RecordPage,
) -> Result<Vec<Record>, StoreError> {
    let Some(span) = page.span() else { return Ok(Vec::new()) };
    let (within, values) = within(kind, span);
    let order = if page.newest { "name DESC" } else { "name" };
    let sql = format!("SELECT name, at, json FROM records WHERE {within} ORDER BY {order}");
    let mut statement = connection.prepare_cached(&sql).map_err(|err| failed(&err))?;
    let found = statement.query(params_from_iter(values));
    let mut found = found.map_err(|err| failed(&err))?;
    let mut records = Vec::new();
    while records.len() < page.first
        && let Some(row) = found.next().map_err(|err| failed(&err))?
    {
        records.extend(good(read(row, kind))?);
    }
    Ok(records)
}

fn names(
    connection: &Connection,
    kind: RecordKind,
    page: &RecordPage,
) -> Result<Vec<String>, StoreError> {
    let Some(span) = page.span() else { return Ok(Vec::new()) };
    let (within, mut values) = within(kind, span);
    values.push(i64::try_from(page.first).unwrap_or(i64::MAX).into());
    let order = if page.newest { "name DESC" } else { "name" };
    let sql = format!("SELECT name FROM records WHERE {within} ORDER BY {order} LIMIT ?");
    let mut statement = connection.prepare_cached(&sql).map_err(|err| failed(&err))?;
    let found = statement.query_map(params_from_iter(values), |row| row.get(0));
    found.and_then(Iterator::collect).map_err(|err| failed(&err))
}

fn count(
    connection: &Connection,
    kind: RecordKind,
    page: &RecordPage,
) -> Result<usize, StoreError> {
    let Some(span) = page.span() else { return Ok(0) };
    let (within, mut values) = within(kind, span);
    values.push(i64::try_from(page.first).unwrap_or(i64::MAX).into());
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM records WHERE {within} LIMIT ?)");
    let count = connection
        .prepare_cached(&sql)
        .and_then(|mut it| it.query_row(params_from_iter(values), |row| row.get::<_, i64>(0)));
    Ok(usize::try_from(count.map_err(|err| failed(&err))?).unwrap_or_default())
}

/// Returns the condition for a range of names, and its values.
fn within(kind: RecordKind, (from, to): shared::store::backend::Span) -> (String, Vec<Value>) {
    let (mut sql, mut values) =
        ("kind = ?".to_owned(), vec![Value::from(kind.as_str().to_owned())]);
    for (bound, inclusive, exclusive) in [(from, ">=", ">"), (to, "<=", "<")] {
        let (operator, name) = match bound {
            Bound::Included(name) => (inclusive, name),
            Bound::Excluded(name) => (exclusive, name),
            Bound::Unbounded => continue,
        };
        sql.extend([" AND name ", operator, " ?"]);
        values.push(name.into());
    }
    (sql, values)
}

fn read(row: &Row<'_>, kind: RecordKind) -> Result<Record, StoreError> {
    let name: String = rows::column(row, 0, "a record")?;
    let at = rows::time(rows::column(row, 1, &name)?, &name)?;
    let json: String = rows::column(row, 2, &name)?;
    Record::decode(kind, &name, at, &json)
}

fn revision(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'records_revision'";
    let found = connection
        .prepare_cached(sql)
        .and_then(|mut it| it.query_row([], |row| row.get::<_, i64>(0)).optional());
    let found = found.map_err(|err| failed(&err))?;
    Ok(found.unwrap_or_default().cast_unsigned())
}
