//! Creates the tables of counts, and counts the executions of a file that has none. Each
//! transaction moves a cursor, so several processes can count the same file.

use rusqlite::{Connection, OptionalExtension, params};
use shared::store::{StoreError, backend::MigrationReport};

use super::{
    super::connection::to_store_error, COUNTED_COLUMNS, CountChanges, CountedExecution, IS_FINISHED,
};

/// `slot` is the beginning of the cell's period, in microseconds. `label` is empty, or `key=value`.
const CREATE_TABLES: &str = "
CREATE TABLE IF NOT EXISTS execution_counts (
    level INTEGER NOT NULL, label TEXT NOT NULL, slot INTEGER NOT NULL, kind INTEGER NOT NULL,
    state TEXT NOT NULL, error TEXT NOT NULL, tool TEXT NOT NULL, count INTEGER NOT NULL,
    firstAt INTEGER NOT NULL, lastAt INTEGER NOT NULL, sample TEXT NOT NULL,
    durations BLOB NOT NULL, PRIMARY KEY (level, label, slot, kind, state, error, tool)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS plan_counts (
    planId TEXT NOT NULL, kind INTEGER NOT NULL, state TEXT NOT NULL, count INTEGER NOT NULL,
    firstAt INTEGER NOT NULL, lastAt INTEGER NOT NULL, sample TEXT NOT NULL,
    durations BLOB NOT NULL, PRIMARY KEY (planId, kind, state)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS plan_counts_count
    ON plan_counts (kind, state, count DESC, planId);
DELETE FROM execution_counts;
DELETE FROM plan_counts;
";
/// Name of the row of `meta` that exists as soon as all executions are counted.
const COUNTED_KEY: &str = "counts";
/// Name of the row of `meta` with the number of the last counted execution. The row exists until
/// all executions are counted.
const CURSOR_KEY: &str = "counts_after";
/// Maximum number of executions that one transaction counts.
const BATCH_LEN: u32 = 10_000;

pub(in super::super) fn prepare_counts(connection: &Connection) -> Result<(), StoreError> {
    let prepare = || -> rusqlite::Result<()> {
        let mut report: Option<MigrationReport> = None;
        while let Some(counted) = count_batch(connection, BATCH_LEN)? {
            if let Some(report) = &mut report {
                report.add(counted);
            } else {
                let done = count_until_cursor(connection)?;
                let total = "SELECT count(*) FROM executions";
                let total: i64 = connection.query_row(total, [], |row| row.get(0))?;
                report = Some(MigrationReport::start("counts", done, total.unsigned_abs()));
            }
        }
        Ok(())
    };
    prepare().map_err(|err| to_store_error(&err))
}

pub(super) fn count_batch(
    connection: &Connection,
    batch_len: u32,
) -> rusqlite::Result<Option<usize>> {
    if find_meta(connection, COUNTED_KEY)?.is_some() {
        return Ok(None);
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let counted = count_batch_in_transaction(connection, batch_len);
    let ended = connection.execute_batch(if counted.is_ok() { "COMMIT" } else { "ROLLBACK" });
    let counted = counted?;
    ended?;
    Ok(counted)
}

fn count_batch_in_transaction(
    connection: &Connection,
    batch_len: u32,
) -> rusqlite::Result<Option<usize>> {
    // Another process may have counted the rest before this transaction began.
    if find_meta(connection, COUNTED_KEY)?.is_some() {
        return Ok(None);
    }
    let after = if let Some(after) = find_meta(connection, CURSOR_KEY)? {
        after
    } else {
        connection.execute_batch(CREATE_TABLES)?;
        i64::MIN
    };
    let sql = format!(
        "SELECT {COUNTED_COLUMNS}, number FROM executions WHERE number > ?1 AND +{IS_FINISHED}
         ORDER BY number LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut found = statement.query(params![after, batch_len])?;
    let (mut changes, mut counted, mut last) = (CountChanges::default(), 0, after);
    while let Some(row) = found.next()? {
        last = row.get("number")?;
        // A damaged row changes no cell.
        changes.add_change(CountedExecution::from_row(row).ok(), |change| &mut change.added);
        counted += 1;
    }
    changes.write(connection)?;
    let put_meta = |name: &str, value: i64| {
        let sql = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
        connection.execute(sql, [name, &value.to_string()]).map(drop)
    };
    if counted > 0 {
        put_meta(CURSOR_KEY, last)?;
    } else {
        connection.execute("DELETE FROM meta WHERE name = ?1", [CURSOR_KEY])?;
        put_meta(COUNTED_KEY, 1)?;
    }
    Ok(Some(counted))
}

fn count_until_cursor(connection: &Connection) -> rusqlite::Result<u64> {
    let Some(after) = find_meta(connection, CURSOR_KEY)? else { return Ok(0) };
    let sql = "SELECT count(*) FROM executions WHERE number <= ?1";
    connection.query_row(sql, [after], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

fn find_meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = ?1";
    connection.query_row(sql, [name], |row| row.get(0)).optional()
}
