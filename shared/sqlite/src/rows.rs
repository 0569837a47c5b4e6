//! Converts rows to values, and heads to rows.

use std::{fmt::Display, str::FromStr};

use rusqlite::{Connection, Params, Row, params, types::FromSql};
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{Epoch, Seq},
    store::{ExecutionHead, StoreError, backend::skip_damaged},
};

use super::connection::to_store_error;

/// The columns that [`read_head`] expects, in its order.
pub(super) const HEAD_COLUMNS: &str = "execution, request, plan, state, created_at, heads.seq, epoch, owner, due, priority, finished_at, parent,
    EXISTS (SELECT 1 FROM needs_person AS need WHERE need.number = heads.number AND need.seq = heads.seq)";

/// Selects heads that a worker may claim, now or later. The partial indexes have the same
/// condition.
pub(super) const IS_CLAIMABLE: &str = "owner IS NULL AND due IS NOT NULL
    AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')";

/// Inserts or updates a head. Keeps a stored head that is newer. Columns that never change, such as
/// the plan, are not updated.
pub(super) fn put_head(
    connection: &Connection,
    log: i64,
    head: &ExecutionHead,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO heads VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
        ON CONFLICT (number) DO UPDATE SET state = excluded.state, seq = excluded.seq,
        epoch = excluded.epoch, owner = excluded.owner, due = excluded.due,
        priority = excluded.priority, finished_at = excluded.finished_at WHERE seq <= excluded.seq";
    let row = params![
        log,
        head.execution.to_string(),
        head.request.to_string(),
        head.plan.to_string(),
        head.state.as_str(),
        head.created_at.timestamp_micros(),
        head.seq.0.cast_signed(),
        head.epoch.0.cast_signed(),
        head.owner.map(|owner| owner.to_string()),
        head.due.map(|due| due.timestamp_micros()),
        head.priority,
        head.finished_at.map(|time| time.timestamp_micros()),
        head.parent.map(|parent| parent.to_string()),
    ];
    if connection.prepare_cached(sql)?.execute(row)? == 0 {
        return Ok(());
    }
    if head.needs_person {
        let sql = "INSERT OR REPLACE INTO needs_person VALUES (?1, ?2)";
        return connection.prepare_cached(sql)?.execute([log, head.seq.0.cast_signed()]).map(drop);
    }
    let sql = "DELETE FROM needs_person WHERE number = ?1";
    connection.prepare_cached(sql)?.execute([log]).map(drop)
}

pub(super) fn read_head(row: &Row<'_>) -> Result<ExecutionHead, StoreError> {
    let id: String = read_column(row, 0, "a head")?;
    let owner: Option<String> = read_column(row, 7, &id)?;
    let due: Option<i64> = read_column(row, 8, &id)?;
    let finished_at: Option<i64> = read_column(row, 10, &id)?;
    let parent: Option<String> = read_column(row, 11, &id)?;
    let read_count =
        |index| Ok(u64::try_from(read_column::<i64>(row, index, &id)?).unwrap_or_default());
    Ok(ExecutionHead {
        execution: parse(&id, &id)?,
        request: parse(&read_text(row, 1, &id)?, &id)?,
        plan: parse(&read_text(row, 2, &id)?, &id)?,
        state: parse_state(&read_text(row, 3, &id)?, &id)?,
        created_at: to_time(read_column(row, 4, &id)?, &id)?,
        seq: Seq(read_count(5)?),
        epoch: Epoch(read_count(6)?),
        owner: owner.map(|owner| parse(&owner, &id)).transpose()?,
        due: due.map(|due| to_time(due, &id)).transpose()?,
        priority: read_column(row, 9, &id)?,
        finished_at: finished_at.map(|time| to_time(time, &id)).transpose()?,
        parent: parent.map(|parent| parse(&parent, &id)).transpose()?,
        needs_person: read_column(row, 12, &id)?,
    })
}

/// Reads all rows that a query finds, without the damaged ones.
pub(super) fn list_rows<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    let mut found = statement.query(values).map_err(|err| to_store_error(&err))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().map_err(|err| to_store_error(&err))? {
        rows.extend(skip_damaged(read(row))?);
    }
    Ok(rows)
}

/// Reads the first row that a query finds.
pub(super) fn find_row<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(|err| to_store_error(&err))?;
    let mut found = statement.query(values).map_err(|err| to_store_error(&err))?;
    found.next().map_err(|err| to_store_error(&err))?.map(read).transpose()
}

/// Reads the column at `index`. `what` names the row in the error, as in the other readers.
pub(super) fn read_column<T: FromSql>(
    row: &Row<'_>,
    index: usize,
    what: &str,
) -> Result<T, StoreError> {
    row.get(index).map_err(|err| match to_store_error(&err) {
        StoreError::Corrupt { why, .. } => StoreError::corrupt(what, why),
        other => other,
    })
}

fn read_text(row: &Row<'_>, index: usize, what: &str) -> Result<String, StoreError> {
    read_column(row, index, what)
}

pub(super) fn parse<T: FromStr<Err: Display>>(text: &str, what: &str) -> Result<T, StoreError> {
    text.parse().map_err(|err| StoreError::corrupt(what, err))
}

pub(super) fn to_time(micros: i64, what: &str) -> Result<Timestamp, StoreError> {
    Timestamp::from_timestamp_micros(micros)
        .ok_or_else(|| StoreError::corrupt(what, format!("{micros} µs is not a time")))
}

fn parse_state(word: &str, what: &str) -> Result<ExecutionState, StoreError> {
    let found = ExecutionState::ALL.into_iter().find(|state| state.as_str() == word);
    found.ok_or_else(|| StoreError::corrupt(what, format!("`{word}` is not a state")))
}
