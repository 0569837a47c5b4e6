use rusqlite::{Connection, OptionalExtension, ToSql, params};
use shared::store::backend::Tally;

use super::{
    CHILD_KIND, CellChange, CellKey, DRY_RUN_KIND, LEVEL_MICROS, PlanKey, ROOT_KIND, read_tally,
};

/// Number of executions up to which a plan is rare. The executions of any other plan are close
/// together in the index by time, so this index finds the bounds of its tally faster.
const MAX_RARE_PLAN_EXECUTIONS: u64 = 10_000;

struct Bounds {
    first_at: i64,
    last_at: i64,
    /// The id of the last execution. A tally keeps this id as its `sample`.
    newest_id: String,
}

/// Applies a change to a cell. Returns the new tally, or `None` if the cell is now empty and was
/// removed. If `before` is `None`, reads the stored tally first.
pub(super) fn write_cell(
    connection: &Connection,
    key: &CellKey,
    before: Option<Tally>,
    change: &CellChange,
) -> rusqlite::Result<Option<Tally>> {
    let CellKey { level, label, slot, kind, state, error, tool } = key;
    let level = i64::try_from(*level).unwrap_or_default();
    let sql = "SELECT count, firstAt, lastAt, sample, durations FROM execution_counts
        WHERE level = ?1 AND label = ?2 AND slot = ?3 AND kind = ?4 AND state = ?5 AND error = ?6
        AND tool = ?7";
    let values = params![level, label, slot, kind, state, error, tool];
    let before = match before {
        None => find_tally(connection, sql, values)?,
        given => given,
    };
    let after = apply_change(before, change, |_| find_bounds(connection, key))?;
    let Some(after) = after else {
        let sql = "DELETE FROM execution_counts WHERE level = ?1 AND label = ?2 AND slot = ?3
            AND kind = ?4 AND state = ?5 AND error = ?6 AND tool = ?7";
        return connection.prepare_cached(sql)?.execute(values).map(|_| None);
    };
    let sql = "INSERT OR REPLACE INTO execution_counts
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    let (count, durations) = (after.count.cast_signed(), after.durations.encode());
    connection
        .prepare_cached(sql)?
        .execute(params![
            level,
            label,
            slot,
            kind,
            state,
            error,
            tool,
            count,
            after.first_at,
            after.last_at,
            after.sample,
            durations
        ])
        .map(|_| Some(after))
}

fn find_tally(
    connection: &Connection,
    sql: &str,
    values: &[&dyn ToSql],
) -> rusqlite::Result<Option<Tally>> {
    connection.prepare_cached(sql)?.query_row(values, |row| read_tally(row, 0)).optional()
}

pub(super) fn write_plan(
    connection: &Connection,
    key: &PlanKey,
    before: Option<Tally>,
    change: &CellChange,
) -> rusqlite::Result<Option<Tally>> {
    let PlanKey { plan, kind, state } = key;
    let sql = "SELECT count, firstAt, lastAt, sample, durations FROM plan_counts
        WHERE planId = ?1 AND kind = ?2 AND state = ?3";
    let values = params![plan, kind, state];
    let before = match before {
        None => find_tally(connection, sql, values)?,
        given => given,
    };
    let find = |tally: &Tally| find_plan_bounds(connection, key, tally);
    let Some(after) = apply_change(before, change, find)? else {
        let sql = "DELETE FROM plan_counts WHERE planId = ?1 AND kind = ?2 AND state = ?3";
        return connection.prepare_cached(sql)?.execute(values).map(|_| None);
    };
    let sql = "INSERT OR REPLACE INTO plan_counts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let (count, durations) = (after.count.cast_signed(), after.durations.encode());
    let row =
        params![plan, kind, state, count, after.first_at, after.last_at, after.sample, durations];
    connection.prepare_cached(sql)?.execute(row).map(|_| Some(after))
}

/// Returns the tally after a change, or `None` if it counts nothing. Searches for the bounds if the
/// first or the last execution was removed.
fn apply_change(
    before: Option<Tally>,
    change: &CellChange,
    find_bounds: impl FnOnce(&Tally) -> rusqlite::Result<Option<Bounds>>,
) -> rusqlite::Result<Option<Tally>> {
    let mut tally = match (before, &change.added) {
        (Some(mut before), Some(added)) => {
            before.merge(added);
            before
        }
        (Some(tally), None) => tally,
        (None, Some(added)) => added.clone(),
        (None, None) => return Ok(None),
    };
    let Some(removed) = &change.removed else { return Ok(Some(tally)) };
    tally.count = tally.count.saturating_sub(removed.count);
    tally.durations.remove(&removed.durations);
    if tally.count == 0 {
        return Ok(None);
    }
    if (removed.first_at <= tally.first_at || removed.last_at >= tally.last_at)
        && let Some(Bounds { first_at, last_at, newest_id }) = find_bounds(&tally)?
    {
        tally = Tally { first_at, last_at, sample: newest_id, ..tally };
    }
    Ok(Some(tally))
}

fn kind_condition(kind: i64) -> &'static str {
    match kind {
        ROOT_KIND => "parentExecutionId IS NULL AND NOT dryRun",
        DRY_RUN_KIND => "parentExecutionId IS NULL AND dryRun",
        CHILD_KIND => "parentExecutionId IS NOT NULL",
        _ => "FALSE",
    }
}

/// Searches the cells of the next shorter period where that is possible, because there are fewer
/// cells than executions.
fn find_bounds(connection: &Connection, key: &CellKey) -> rusqlite::Result<Option<Bounds>> {
    let CellKey { level, label, slot, kind, state, error, tool } = key;
    let end = slot + LEVEL_MICROS[*level];
    let condition = format!(
        "{} AND state = ?3 AND coalesce(errorCode, '') = ?4 AND coalesce(failedTool, '') = ?5",
        kind_condition(*kind)
    );
    if let Some((key, value)) = label.split_once('=') {
        let from = format!(
            "execution_labels AS label CROSS JOIN executions ON executions.number = label.number
             WHERE key = ?6 AND value = ?7 AND label.createdAt >= ?1 AND label.createdAt < ?2
             AND {condition}"
        );
        let values = params![slot, end, state, error, tool, key, value];
        return find_ends(connection, "label", &from, values);
    }
    if *level + 1 == LEVEL_MICROS.len() {
        let from = format!(
            "executions INDEXED BY heads_time WHERE createdAt >= ?1 AND createdAt < ?2
             AND {condition}"
        );
        return find_ends(connection, "executions", &from, params![slot, end, state, error, tool]);
    }
    let sql = "SELECT min(firstAt) OVER (), lastAt, sample FROM execution_counts
        WHERE level = ?1 AND label = '' AND slot >= ?2 AND slot < ?3 AND kind = ?4 AND state = ?5
        AND error = ?6 AND tool = ?7 ORDER BY lastAt DESC, sample DESC LIMIT 1";
    let finer = i64::try_from(*level + 1).unwrap_or_default();
    let values = params![finer, slot, end, kind, state, error, tool];
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Bounds { first_at: row.get(0)?, last_at: row.get(1)?, newest_id: row.get(2)? })
    };
    connection.prepare_cached(sql)?.query_row(values, read).optional()
}

fn find_plan_bounds(
    connection: &Connection,
    key: &PlanKey,
    tally: &Tally,
) -> rusqlite::Result<Option<Bounds>> {
    // A search by plan would sort all executions of the plan by time, which is fast only if they
    // are few.
    let index = if tally.count > MAX_RARE_PLAN_EXECUTIONS { "heads_time" } else { "heads_plan" };
    let state = if key.state.is_empty() { super::IS_FINISHED } else { "state = ?4" };
    let from = format!(
        "executions INDEXED BY {index} WHERE planId = ?3 AND createdAt >= ?1 AND createdAt <= ?2
         AND {} AND {state} AND ?4 IS NOT NULL",
        kind_condition(key.kind)
    );
    let values = params![tally.first_at, tally.last_at, key.plan, key.state];
    find_ends(connection, "executions", &from, values)
}

fn find_ends(
    connection: &Connection,
    table: &str,
    from: &str,
    values: &[&dyn ToSql],
) -> rusqlite::Result<Option<Bounds>> {
    let find = |order: &str| {
        let sql = format!(
            "SELECT {table}.createdAt, {table}.executionId FROM {from}
             ORDER BY {table}.createdAt {order}, {table}.executionId {order} LIMIT 1"
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
        statement.query_row(values, read).optional()
    };
    let (first, last) = (find("ASC")?, find("DESC")?);
    Ok(first.zip(last).map(|((first_at, _), (last_at, newest_id))| Bounds {
        first_at,
        last_at,
        newest_id,
    }))
}
