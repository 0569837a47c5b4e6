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

use super::{Answer, Change, Sqlite, connection::to_store_error, removal::Removal, rows};

/// Number of writes of a kind after which its rows are counted, if the kind has a limit, because a
/// count costs far more than a write.
const WRITES_PER_COUNT: usize = 256;
/// Maximum number of old calls that one transaction removes. The writer commits other operations
/// between two such transactions.
const BATCH_LEN: usize = 256;

/// SQL for the table of a kind. Four kinds have their own tables.
struct Table {
    name: &'static str,
    key: &'static str,
    at: &'static str,
    json: &'static str,
    columns: &'static str,
    /// Values of `columns`, made from name (?1), time (?2) and JSON (?3).
    values: String,
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
                "json_object('executionId', executionId, 'fingerprint', fingerprint)",
                "key, executionId, fingerprint",
                "?1, ?3 ->> '$.executionId', ?3 ->> '$.fingerprint'",
            ),
            RecordKind::SavedPlan => (
                "saved",
                "name",
                "at",
                r#"'{"planId":' || json_quote(planId) || ',"inputs":' || coalesce(inputs, 'null') || '}'"#,
                "name, planId, inputs, at",
                "?1, ?3 ->> '$.planId', ?3 -> '$.inputs', ?2",
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

#[derive(Debug)]
pub(super) struct RecordRow {
    pub(super) kind: RecordKind,
    name: String,
    at: i64,
    pub(super) json: String,
}

impl RecordRow {
    fn write(&self, connection: &Connection, unless: &WriteCondition) -> rusqlite::Result<usize> {
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
            WriteCondition::ValueDiffers(expected) => {
                if !self.has_value(connection, expected)? {
                    return Ok(0);
                }
                self.write(connection, &WriteCondition::Never)
            }
        }
    }

    /// Returns `true` if the stored record of this name has a value. The caller's transaction keeps
    /// other processes from changing the record afterwards.
    fn has_value(
        &self,
        connection: &Connection,
        expected: &serde_json::Value,
    ) -> rusqlite::Result<bool> {
        let Table { name: table, key, json, condition, .. } = Table::of_kind(self.kind);
        let sql = format!("SELECT {json} FROM {table} WHERE {condition} AND {key} = ?1");
        let stored = connection
            .prepare_cached(&sql)?
            .query_row([&self.name], |row| row.get::<_, String>(0))
            .optional()?;
        let stored = stored.and_then(|json| serde_json::from_str(&json).ok());
        Ok(stored.is_some_and(|stored: serde_json::Value| stored == *expected))
    }

    /// Writes the histogram of a usage record into its own table.
    fn put_usage_times(&self, connection: &Connection) -> rusqlite::Result<()> {
        let sql = "DELETE FROM usage_times WHERE tool = ?1";
        connection.prepare_cached(sql)?.execute([&self.name])?;
        let sql = "INSERT INTO usage_times SELECT ?1, key, value FROM json_each(?2, '$.times')";
        connection.prepare_cached(sql)?.execute([&self.name, &self.json]).map(drop)
    }
}

/// Number of writes since the last count, for each kind with a limit.
#[derive(Debug, Default)]
pub(super) struct WriteCounts(BTreeMap<RecordKind, usize>);

impl WriteCounts {
    /// Writes a record. If the kind has a limit, the first write and then every 256th write remove
    /// the oldest records.
    pub(super) fn put_record(
        &mut self,
        connection: &Connection,
        row: &RecordRow,
        unless: &WriteCondition,
    ) -> rusqlite::Result<Answer> {
        if row.write(connection, unless)? == 0 {
            return Ok(Answer::Taken);
        }
        if row.kind == RecordKind::Usage {
            row.put_usage_times(connection)?;
        }
        if let Some(most) = row.kind.max_records() {
            // The first write of a process counts the rows, because the last process may have
            // stopped before it counted them.
            let writes = self.0.entry(row.kind).or_insert(WRITES_PER_COUNT - 1);
            *writes += 1;
            if *writes >= WRITES_PER_COUNT {
                *writes = 0;
                remove_excess(connection, row.kind, most)?;
            }
        }
        increase_revision(connection, row.kind)?;
        Ok(Answer::Done)
    }
}

/// Removes the oldest records, so that the kind stays within its limit until the next count.
fn remove_excess(connection: &Connection, kind: RecordKind, most: usize) -> rusqlite::Result<()> {
    let Table { name, condition, .. } = Table::of_kind(kind);
    let sql = format!("SELECT count(*) FROM {name} WHERE {condition}");
    let count: i64 = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    let excess = count - (most - WRITES_PER_COUNT).cast_signed() as i64;
    remove_oldest(connection, kind, i64::MAX, excess).map(drop)
}

fn remove_oldest(
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

/// Removes at most [`BATCH_LEN`] records of calls that were made before a time.
pub(super) fn remove_old_calls(
    connection: &Connection,
    before: Timestamp,
) -> rusqlite::Result<usize> {
    let most = BATCH_LEN.cast_signed() as i64;
    remove_oldest(connection, RecordKind::Call, before.timestamp_micros(), most)
}

pub(super) fn remove_record(
    connection: &Connection,
    kind: RecordKind,
    name: &str,
) -> rusqlite::Result<Answer> {
    let Table { name: table, key, condition, .. } = Table::of_kind(kind);
    let sql = format!("DELETE FROM {table} WHERE {condition} AND {key} = ?1");
    if connection.prepare_cached(&sql)?.execute([name])? == 0 {
        return Ok(Answer::Absent);
    }
    increase_revision(connection, kind)?;
    Ok(Answer::Done)
}

/// Increases the revision of a shared kind, so that other processes read their records again.
fn increase_revision(connection: &Connection, kind: RecordKind) -> rusqlite::Result<()> {
    if !kind.is_shared_by_nodes() {
        return Ok(());
    }
    let sql = "UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE name = 'records_revision'";
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

impl Sqlite {
    pub(super) async fn remove_all_old_calls(&self, before: Timestamp) -> Result<(), StoreError> {
        loop {
            match self.write(Change::Prune(Removal::Calls { before })).await? {
                Answer::Removed(BATCH_LEN) => (),
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
        self.readers.read(move |connection| find_record(connection, kind, &name)).await
    }

    async fn put_record(
        &self,
        record: &Record,
        unless: WriteCondition,
    ) -> Result<bool, StoreError> {
        let (name, at) = (record.name.clone(), record.at.timestamp_micros());
        let row = RecordRow { kind: record.kind, name, at, json: record.encode()? };
        Ok(self.write(Change::PutRecord { row, unless }).await?.is_done())
    }

    async fn list_records(
        &self,
        kind: RecordKind,
        page: RecordPage,
    ) -> Result<Vec<Record>, StoreError> {
        self.readers.read(move |connection| list_records(connection, kind, &page)).await
    }

    async fn remove_record(&self, kind: RecordKind, name: &str) -> Result<bool, StoreError> {
        let change = Change::RemoveRecord { kind, name: name.to_owned() };
        Ok(self.write(change).await?.is_done())
    }

    async fn records_revision(&self) -> Result<u64, StoreError> {
        self.readers.read(read_revision).await
    }
}

fn find_record(
    connection: &Connection,
    kind: RecordKind,
    name: &str,
) -> Result<Option<Record>, StoreError> {
    let Table { name: table, key, at, json, condition, .. } = Table::of_kind(kind);
    let sql = format!("SELECT {key}, {at}, {json} FROM {table} WHERE {condition} AND {key} = ?1");
    rows::find_row(connection, &sql, [name], |row| read_record(row, kind))
}

fn list_records(
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
    let mut statement = connection.prepare_cached(&sql).map_err(|err| to_store_error(&err))?;
    let mut found =
        statement.query(params_from_iter(values)).map_err(|err| to_store_error(&err))?;
    let mut records = Vec::new();
    // Damaged rows do not count, because a page with fewer records than wanted is the last page.
    while records.len() < page.first
        && let Some(row) = found.next().map_err(|err| to_store_error(&err))?
    {
        records.extend(skip_damaged(read_record(row, kind))?);
    }
    Ok(records)
}

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

fn read_record(row: &Row<'_>, kind: RecordKind) -> Result<Record, StoreError> {
    let name: String = rows::read_column(row, 0, "a record")?;
    let at = rows::to_time(rows::read_column(row, 1, &name)?, &name)?;
    let json: String = rows::read_column(row, 2, &name)?;
    Record::decode(kind, &name, at, &json)
}

fn read_revision(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'records_revision'";
    let found = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)).optional());
    let found = found.map_err(|err| to_store_error(&err))?;
    Ok(found.unwrap_or_default().cast_unsigned())
}
