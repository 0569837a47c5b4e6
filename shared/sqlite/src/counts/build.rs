//! Creates the tables of counts, and counts the executions of a file that has none.

use rusqlite::{Connection, OptionalExtension};
use shared::store::{StoreError, backend::MigrationReport};

use super::{
    super::connection::to_store_error, COUNTED_COLUMNS, CountChanges, Counted, IS_FINISHED,
};

/// In these tables, `slot` is the beginning of a period, in microseconds, and `label` is empty or
/// `key=value`.
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
/// Number of executions whose changes are collected before the changes are written.
const BATCH_LEN: usize = 50_000;

/// Counts the executions of a file that has no counts, in one transaction.
pub(in super::super) fn prepare_counts(connection: &Connection) -> Result<(), StoreError> {
    let failed = |err: rusqlite::Error| to_store_error(&err);
    if is_ready(connection).map_err(failed)? {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let built = is_ready(connection)
        .and_then(|is_ready| if is_ready { Ok(()) } else { build_counts(connection) });
    let end = if built.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.execute_batch(end);
    built.and(ended).map_err(failed)
}

fn is_ready(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM meta WHERE name = ?1";
    let found = connection.query_row(sql, [READY], |_| Ok(())).optional()?;
    Ok(found.is_some())
}

fn build_counts(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(CREATE_TABLES)?;
    let total = "SELECT count(*) FROM executions";
    let total: i64 = connection.query_row(total, [], |row| row.get(0))?;
    let mut report = MigrationReport::start("counts", 0, total.unsigned_abs());
    let sql = format!("SELECT {COUNTED_COLUMNS} FROM executions WHERE +{IS_FINISHED}");
    let mut statement = connection.prepare(&sql)?;
    let mut found = statement.query([])?;
    let (mut changes, mut collected) = (CountChanges::default(), 0);
    while let Some(row) = found.next()? {
        // A damaged row is not counted.
        changes.change(Counted::read(row).ok(), |change| &mut change.added);
        collected += 1;
        if collected == BATCH_LEN {
            changes.write(connection)?;
            report.add(std::mem::take(&mut collected));
        }
    }
    changes.write(connection)?;
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?1, '1')", [READY]).map(drop)
}
