//! Records in the file.

use std::{collections::BTreeMap, ops::Bound};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter, types::Value};
use shared::{
    clock::Timestamp,
    store::{
        KeyValue, Record, RecordKind, RecordPage, StoreError, WriteCondition,
        backend::{Span, skip_damaged},
    },
};

use super::{Answer, Change, Sqlite, connection::failed, removal::Removal, rows};

/// Writes of a kind with a limit between two counts. A count costs as much as a hundred writes.
const COUNT_EVERY: usize = 256;
/// Records that one transaction removes, so that others write between two transactions.
const BATCH: usize = 256;

/// The table of a kind. The kinds of the first versions have tables of their own.
struct Table {
    name: &'static str,
    key: &'static str,
    at: &'static str,
    /// The value as JSON.
    json: &'static str,
    /// The columns and their values, from name (?1), time (?2) and JSON (?3).
    columns: &'static str,
    values: String,
    /// Selects the rows of the kind.
    condition: String,
}

impl Table {
    fn of_kind(kind: RecordKind) -> Self {
        let (name, key, at, json, columns, values) = match kind {
            RecordKind::Output => {
                ("outputs", "key", "until", "json", "key, until, json", "?1, ?2, ?3")
            }
            RecordKind::Key => (
                "keys",
                "key",
                "0",
                "json_object('execution', execution, 'fingerprint', fingerprint)",
                "key, execution, fingerprint",
                "?1, ?3 ->> '$.execution', ?3 ->> '$.fingerprint'",
            ),
            RecordKind::SavedPlan => (
                "saved",
                "name",
                "at",
                r#"'{"plan":' || json_quote(plan) || ',"inputs":' || coalesce(inputs, 'null') || '}'"#,
                "name, plan, inputs, at",
                "?1, ?3 ->> '$.plan', ?3 -> '$.inputs', ?2",
            ),
            RecordKind::Usage => (
                "usage",
                "tool",
                "calls",
                "json_object('tool', tool, 'calls', calls, 'failures', failures, 'last', last,
                 'times', json((SELECT json_group_object(bucket, usage_times.calls)
                 FROM usage_times WHERE usage_times.tool = usage.tool)))",
                "tool, calls, failures, last",
                "?1, ?2, ?3 ->> '$.failures', ?3 ->> '$.last'",
            ),
            _ => {
                let kind = kind.as_str();
                return Self {
                    name: "records",
                    key: "name",
                    at: "at",
                    json: "json",
                    columns: "kind, name, at, json",
                    values: format!("'{kind}', ?1, ?2, ?3"),
                    condition: format!("kind = '{kind}'"),
                };
            }
        };
        let (values, condition) = (values.to_owned(), "TRUE".to_owned());
        Self { name, key, at, json, columns, values, condition }
    }
}

/// A record as it is kept.
#[derive(Debug)]
pub(super) struct RecordRow {
    pub(super) kind: RecordKind,
    name: String,
    at: i64,
    pub(super) json: String,
}

impl RecordRow {
    fn put(&self, connection: &Connection, unless: &WriteCondition) -> rusqlite::Result<usize> {
        let Self { kind, name, at, json } = self;
        let Table { name: table, key, at: time, columns, values, condition, .. } =
            Table::of_kind(*kind);
        let into = format!("INTO {table} ({columns})");
        match unless {
            WriteCondition::Never => {
                let sql = format!("INSERT OR REPLACE {into} VALUES ({values})");
                connection.prepare_cached(&sql)?.execute(params![name, at, json])
            }
            WriteCondition::Exists => {
                let sql = format!("INSERT {into} VALUES ({values}) ON CONFLICT DO NOTHING");
                connection.prepare_cached(&sql)?.execute(params![name, at, json])
            }
            WriteCondition::ChangedSince(since) => {
                let sql = format!(
                    "INSERT OR REPLACE {into} SELECT {values} WHERE EXISTS
                     (SELECT 1 FROM {table} WHERE {condition} AND {key} = ?1 AND {time} = ?4)"
                );
                let since = since.timestamp_micros();
                connection.prepare_cached(&sql)?.execute(params![name, at, json, since])
            }
        }
    }

    /// Writes the histogram of a usage record. It has a table of its own.
    fn put_usage_times(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "DELETE FROM usage_times WHERE tool = ?1";
        connection.prepare_cached(sql)?.execute([&self.name])?;
        let sql = "INSERT INTO usage_times SELECT ?1, key, value FROM json_each(?2, '$.times')";
        connection.prepare_cached(sql)?.execute([&self.name, &self.json]).map(drop)
    }
}

/// Writes since the last count, of each kind with a limit.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<RecordKind, usize>);

impl Counts {
    /// Writes a record, and makes room now and then if its kind has a limit.
    pub(super) fn put(
        &mut self,
        connection: &Connection,
        row: &RecordRow,
        unless: &WriteCondition,
    ) -> rusqlite::Result<Answer> {
        if row.put(connection, unless)? == 0 {
            return Ok(Answer::Taken);
        }
        if row.kind == RecordKind::Usage {
            row.put_usage_times(connection)?;
        }
        if let Some(most) = row.kind.max_records() {
            let written = self.0.entry(row.kind).or_insert(COUNT_EVERY - 1);
            *written += 1;
            if *written >= COUNT_EVERY {
                *written = 0;
                make_room(connection, row.kind, most)?;
            }
        }
        note_change(connection, row.kind)?;
        Ok(Answer::Done)
    }
}

/// Removes the records with the earliest times, so that there is room until the next count.
fn make_room(connection: &Connection, kind: RecordKind, most: usize) -> rusqlite::Result<()> {
    let Table { name, condition, .. } = Table::of_kind(kind);
    let sql = format!("SELECT count(*) FROM {name} WHERE {condition}");
    let count: i64 = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    let excess = count - (most - COUNT_EVERY).cast_signed() as i64;
    remove_earliest(connection, kind, i64::MAX, excess).map(drop)
}

/// Removes records of a kind before a time, the earliest first.
fn remove_earliest(
    connection: &Connection,
    kind: RecordKind,
    before: i64,
    most: i64,
) -> rusqlite::Result<usize> {
    if most <= 0 {
        return Ok(0);
    }
    let Table { name, key, at, condition, .. } = Table::of_kind(kind);
    let sql = format!(
        "DELETE FROM {name} WHERE rowid IN (SELECT rowid FROM {name}
         WHERE {condition} AND {at} < ?1 ORDER BY {at}, {key} LIMIT ?2)"
    );
    connection.prepare_cached(&sql)?.execute([before, most])
}

/// Removes the first few old calls.
pub(super) fn remove_old_calls(
    connection: &Connection,
    before: Timestamp,
) -> rusqlite::Result<usize> {
    let most = BATCH.cast_signed() as i64;
    remove_earliest(connection, RecordKind::Call, before.timestamp_micros(), most)
}

/// Removes a record, if there is one.
pub(super) fn remove(
    connection: &Connection,
    kind: RecordKind,
    name: &str,
) -> rusqlite::Result<Answer> {
    let Table { name: table, key, condition, .. } = Table::of_kind(kind);
    let sql = format!("DELETE FROM {table} WHERE {condition} AND {key} = ?1");
    if connection.prepare_cached(&sql)?.execute([name])? == 0 {
        return Ok(Answer::Absent);
    }
    note_change(connection, kind)?;
    Ok(Answer::Done)
}

fn note_change(connection: &Connection, kind: RecordKind) -> rusqlite::Result<()> {
    if !kind.is_shared_by_nodes() {
        return Ok(());
    }
    let sql = "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE name = 'records_revision'";
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

impl Sqlite {
    /// Removes all old calls, a few at a time.
    pub(super) async fn remove_all_old_calls(&self, before: Timestamp) -> Result<(), StoreError> {
        loop {
            match self.write(Change::Remove(Removal::Calls { before })).await? {
                Answer::Removed(BATCH) => (),
                _ => return Ok(()),
            }
        }
    }
}

#[async_trait]
impl KeyValue for Sqlite {
    async fn find_record(
        &self,
        kind: RecordKind,
        name: &str,
    ) -> Result<Option<Record>, StoreError> {
        let name = name.to_owned();
        self.readers.read(move |connection| find(connection, kind, &name)).await
    }

    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        let (name, at) = (record.name.clone(), record.at.timestamp_micros());
        let row = RecordRow { kind: record.kind, name, at, json: record.encode()? };
        Ok(self.write(Change::Record { row, unless }).await?.is_done())
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        self.readers.read(move |connection| list(connection, kind, &page)).await
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        let change = Change::RemoveRecord { kind, name: name.to_owned() };
        Ok(self.write(change).await?.is_done())
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.readers.read(revision).await
    }
}

fn find(
    connection: &Connection,
    kind: RecordKind,
    name: &str,
) -> Result<Option<Record>, StoreError> {
    let Table { name: table, key, at, json, condition, .. } = Table::of_kind(kind);
    let sql = format!("SELECT {key}, {at}, {json} FROM {table} WHERE {condition} AND {key} = ?1");
    rows::find_row(connection, &sql, [name], |row| read(row, kind))
}

fn list(
    connection: &Connection,
    kind: RecordKind,
    page: &RecordPage,
) -> Result<Vec<Record>, StoreError> {
    let Some(span) = page.span() else { return Ok(Vec::new()) };
    let Table { name: table, key, at, json, condition, .. } = Table::of_kind(kind);
    let json = if page.names_only { "'null'" } else { json };
    let (range, values) = key_range(key, span);
    let order = if page.newest { "DESC" } else { "ASC" };
    let sql = format!(
        "SELECT {key}, {at}, {json} FROM {table} WHERE {condition}{range} ORDER BY {key} {order}"
    );
    let mut statement = connection.prepare_cached(&sql).map_err(|err| failed(&err))?;
    let mut found = statement.query(params_from_iter(values)).map_err(|err| failed(&err))?;
    let mut records = Vec::new();
    // Damaged rows do not count: fewer records than asked for mean that there are no more.
    while records.len() < page.first
        && let Some(row) = found.next().map_err(|err| failed(&err))?
    {
        records.extend(skip_damaged(read(row, kind))?);
    }
    Ok(records)
}

/// Returns the condition for a range of keys, and its values.
fn key_range(key: &str, (from, to): Span) -> (String, Vec<Value>) {
    let (mut sql, mut values) = (String::new(), Vec::new());
    for (bound, inclusive, exclusive) in [(from, ">=", ">"), (to, "<=", "<")] {
        let (operator, name) = match bound {
            Bound::Included(name) => (inclusive, name),
            Bound::Excluded(name) => (exclusive, name),
            Bound::Unbounded => continue,
        };
        sql.extend([" AND ", key, " ", operator, " ?"]);
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
        .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)).optional());
    let found = found.map_err(|err| failed(&err))?;
    Ok(found.unwrap_or_default().cast_unsigned())
}
