//! Creates the tables of counts, and counts the executions of a file that has none.
//!
//! Each transaction counts a few thousand executions and moves the cursor in `meta`. So a killed
//! process loses at most one transaction, and several processes may count the same file. No process
//! writes executions meanwhile, because a process counts before it opens the file for others.

use rusqlite::{Connection, OptionalExtension, params};
use shared::store::{StoreError, backend::MigrationReport};

use super::{
    super::connection::to_store_error, COUNTED_COLUMNS, CountChanges, Counted, IS_FINISHED,
};

/// `slot` is the beginning of a part of the time, in microseconds. `label` is empty, or `key=value`.
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
/// The row of `meta` that says that the executions are counted.
const READY: &str = "counts";
/// The row of `meta` with the number of the last counted execution. It is there until all are
/// counted.
const CURSOR: &str = "counts_after";
/// Executions that one transaction counts.
const BATCH_LEN: u32 = 10_000;

/// Counts the executions of a file that has no counts.
pub(in super::super) fn prepare_counts(connection: &Connection) -> Result<(), StoreError> {
    let prepare = || -> rusqlite::Result<()> {
        let mut report: Option<MigrationReport> = None;
        while let Some(counted) = count_part(connection, BATCH_LEN)? {
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

/// Counts the next executions in one transaction. Returns `None` if all are counted.
pub(super) fn count_part(
    connection: &Connection,
    batch_len: u32,
) -> rusqlite::Result<Option<usize>> {
    if find_meta(connection, READY)?.is_some() {
        return Ok(None);
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let counted = count_next_batch(connection, batch_len);
    let ended = connection.execute_batch(if counted.is_ok() { "COMMIT" } else { "ROLLBACK" });
    let counted = counted?;
    ended?;
    Ok(counted)
}

fn count_next_batch(connection: &Connection, batch_len: u32) -> rusqlite::Result<Option<usize>> {
    // Another process may have counted executions since the last look.
    if find_meta(connection, READY)?.is_some() {
        return Ok(None);
    }
    let after = if let Some(after) = find_meta(connection, CURSOR)? {
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
        // A damaged row is not counted.
        changes.change(Counted::read(row).ok(), |change| &mut change.added);
        counted += 1;
    }
    changes.write(connection)?;
    let put_meta = |name: &str, value: i64| {
        let sql = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
        connection.execute(sql, [name, &value.to_string()]).map(drop)
    };
    if counted > 0 {
        put_meta(CURSOR, last)?;
    } else {
        connection.execute("DELETE FROM meta WHERE name = ?1", [CURSOR])?;
        put_meta(READY, 1)?;
    }
    Ok(Some(counted))
}

/// Returns the number of executions up to the cursor.
fn count_until_cursor(connection: &Connection) -> rusqlite::Result<u64> {
    let Some(after) = find_meta(connection, CURSOR)? else { return Ok(0) };
    let sql = "SELECT count(*) FROM executions WHERE number <= ?1";
    connection.query_row(sql, [after], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

fn find_meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = ?1";
    connection.query_row(sql, [name], |row| row.get(0)).optional()
}
